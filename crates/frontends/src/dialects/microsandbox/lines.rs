//! Output as lines in their order of arrival, each with its stream, in bounded memory.

use std::collections::VecDeque;

use engine::{Entry, EntryBody, Rich, RichReader};
use sandbox::Result;
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::Collector;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Line {
    pub(super) stream: Stream,
    pub(super) text: String,
}

/// Gathers lines. What does not fit is left out of the middle, and said so there.
#[derive(Debug)]
pub(super) struct Lines {
    max_bytes: usize,
    head: Vec<Line>,
    n_head: usize,
    tail: VecDeque<Line>,
    n_tail: usize,
    n_left_out: usize,
    /// Lines that have no end yet.
    open: [Option<Collector>; 2],
    rich: RichReader,
}

impl Lines {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            head: Vec::new(),
            n_head: 0,
            tail: VecDeque::new(),
            n_tail: 0,
            n_left_out: 0,
            open: [None, None],
            rich: RichReader::default(),
        }
    }

    pub(super) fn take(&mut self, entry: &Result<Entry>) {
        match entry.as_ref().map(|entry| &entry.body) {
            Ok(EntryBody::Stdout(bytes)) => self.push(Stream::Stdout, bytes),
            Ok(EntryBody::Stderr(bytes)) => self.push(Stream::Stderr, bytes),
            Ok(EntryBody::Rich(bytes)) => {
                for shown in self.rich.push(bytes) {
                    self.show(shown);
                }
            }
            Ok(EntryBody::Trimmed { .. }) | Err(_) => {
                self.rich.gap();
                self.say(Stream::Stderr, "[… output was lost here …]");
            }
            Ok(_) => {}
        }
    }

    /// Shows what an interactive interpreter would print: values, and the exception that ended the code.
    fn show(&mut self, shown: Rich) {
        match shown {
            Rich::Result { data } | Rich::Display { data } => {
                if let Some(text) = data.get("text/plain").and_then(|text| text.as_str()) {
                    self.say(Stream::Stdout, text);
                }
            }
            Rich::Error { traceback, .. } => self.say(Stream::Stderr, &traceback),
            Rich::Warning { message } => self.say(Stream::Stderr, &message),
            Rich::Files { .. } | Rich::State { .. } => {}
        }
    }

    /// Adds whole lines, after what the stream has printed so far.
    pub(super) fn say(&mut self, stream: Stream, text: &str) {
        self.close(stream);
        self.push(stream, text.as_bytes());
        self.close(stream);
    }

    fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            let is_whole = pieces.peek().is_some();
            if is_whole || !piece.is_empty() {
                let most = self.max_bytes / 2;
                self.open[stream as usize].get_or_insert_with(|| Collector::new(most)).push(piece);
            }
            if is_whole {
                self.close(stream);
            }
        }
    }

    fn close(&mut self, stream: Stream) {
        let Some(open) = self.open[stream as usize].take() else { return };
        let mut text = open.finish("output", String::new).text;
        // Programs that print for terminals end lines with both.
        if text.ends_with('\r') {
            text.pop();
        }
        self.add(Line { stream, text });
    }

    fn add(&mut self, line: Line) {
        let n_bytes = cost(&line);
        if self.tail.is_empty() && self.n_head + n_bytes <= self.max_bytes / 2 {
            self.n_head += n_bytes;
            self.head.push(line);
            return;
        }
        self.n_tail += n_bytes;
        self.tail.push_back(line);
        while self.n_tail > self.max_bytes / 2
            && self.tail.len() > 1
            && let Some(gone) = self.tail.pop_front()
        {
            self.n_tail -= cost(&gone);
            self.n_left_out += 1;
        }
    }

    pub(super) fn finish(mut self) -> Vec<Line> {
        self.close(Stream::Stdout);
        self.close(Stream::Stderr);
        let left_out = (self.n_left_out > 0).then(|| Line {
            stream: Stream::Stdout,
            text: format!("[… {} lines left out …]", self.n_left_out),
        });
        self.head.into_iter().chain(left_out).chain(self.tail).collect()
    }
}

/// A line of no text still takes room.
fn cost(line: &Line) -> usize {
    line.text.len() + 1
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn entry(body: EntryBody) -> Result<Entry> {
        Ok(Entry { number: 1, at_ms: 0, body })
    }

    fn gathered(max_bytes: usize, pieces: &[(Stream, &str)]) -> Vec<(Stream, String)> {
        let mut lines = Lines::new(max_bytes);
        for (stream, text) in pieces {
            let bytes = Bytes::copy_from_slice(text.as_bytes());
            lines.take(&entry(match stream {
                Stream::Stdout => EntryBody::Stdout(bytes),
                Stream::Stderr => EntryBody::Stderr(bytes),
            }));
        }
        lines.finish().into_iter().map(|line| (line.stream, line.text)).collect()
    }

    #[test]
    fn lines_come_in_the_order_in_which_they_ended() {
        let pieces = [
            (Stream::Stdout, "a\nb"),
            (Stream::Stderr, "x\r\n"),
            (Stream::Stdout, "c\n\nlast"),
            (Stream::Stderr, "end"),
        ];
        let expected = [
            (Stream::Stdout, "a"),
            (Stream::Stderr, "x"),
            (Stream::Stdout, "bc"),
            (Stream::Stdout, ""),
            (Stream::Stdout, "last"),
            (Stream::Stderr, "end"),
        ];
        assert_eq!(gathered(100, &pieces), expected.map(|(stream, text)| (stream, text.to_owned())));
    }

    #[test]
    fn output_is_bounded_and_keeps_both_ends() {
        let many: String = (0..1000).map(|n| format!("{n}\n")).collect();
        let lines = gathered(40, &[(Stream::Stdout, &many)]);
        let texts: Vec<_> = lines.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!((texts[0], texts[texts.len() - 1]), ("0", "999"));
        assert!(texts.iter().any(|text| text.contains("lines left out")), "{texts:?}");
        assert!(texts.concat().len() < 80, "{texts:?}");

        let long = gathered(40, &[(Stream::Stdout, &"x".repeat(10_000))]);
        assert!(long.len() == 1 && long[0].1.contains("left out") && long[0].1.len() < 80, "{long:?}");
    }
}
