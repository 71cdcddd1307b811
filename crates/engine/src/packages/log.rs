//! The last lines of an install's output, from the ledger of its exec.

use std::collections::VecDeque;

use sandbox::ExecId;

use crate::{Entry, OutputStream, disk::may_block, error, shared::Shared};

/// Lines that a view shows.
const MAX_LINES: usize = 20;
/// Entries at the end of the ledger that are read for them.
const MAX_ENTRIES: u64 = 256;

pub(super) fn last_lines(shared: &Shared, exec: &ExecId) -> Vec<String> {
    let Ok(ledger) = shared.ledger() else { return Vec::new() };
    may_block(|| {
        let last = match shared.execs.get(exec) {
            Some(live) => live.last_number(),
            None => ledger.last_number(exec).unwrap_or(0),
        };
        let mut lines = Lines::default();
        let Ok(mut reader) = ledger.reader(exec, last.saturating_sub(MAX_ENTRIES).max(1)) else {
            return Vec::new();
        };
        while let Ok(Some(item)) = reader.next() {
            if let Some((stream, bytes)) = Entry::from(item).output() {
                lines.push(stream, bytes);
            }
        }
        lines.finish()
    })
}

/// Whole lines in the order in which they ended. Each stream has its own, so that one cannot split a line of the other.
#[derive(Default)]
struct Lines {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    done: VecDeque<String>,
}

impl Lines {
    fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        let begun = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        begun.extend_from_slice(bytes);
        let Some(end) = begun.iter().rposition(|byte| b"\n\r".contains(byte)) else { return };
        let whole: Vec<u8> = begun.drain(..=end).collect();
        self.keep(&whole);
    }

    fn finish(mut self) -> Vec<String> {
        for rest in [std::mem::take(&mut self.stdout), std::mem::take(&mut self.stderr)] {
            self.keep(&rest);
        }
        self.done.into()
    }

    fn keep(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        for line in text.split(['\n', '\r']).filter(|line| !line.trim().is_empty()) {
            if self.done.len() == MAX_LINES {
                self.done.pop_front();
            }
            self.done.push_back(error::readable(line).trim_end().to_owned());
        }
    }
}

/// The line that best explains why an install failed.
pub(super) fn complaint(lines: &[String]) -> Option<&str> {
    let marks = ["ERROR: ", "E: ", "dpkg: error", "npm ERR! code", "npm error code", "error: ", "× "];
    // The last complaint of pip and apt sums up; npm begins with its code.
    let is_complaint = |line: &&String| marks.iter().any(|mark| line.starts_with(mark));
    lines.iter().rev().find(is_complaint).or_else(|| lines.last()).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(pieces: &[(OutputStream, &str)]) -> Vec<String> {
        let mut lines = Lines::default();
        pieces.iter().for_each(|(stream, text)| lines.push(*stream, text.as_bytes()));
        lines.finish()
    }

    #[test]
    fn the_last_lines_are_shown_without_what_plays_with_terminals() {
        let text: String = (0..50).map(|n| format!("\x1b[1mline {n}\n\n")).collect();
        let lines = lines_of(&[(OutputStream::Stdout, &text)]);
        assert_eq!((lines.len(), lines[MAX_LINES - 1].as_str()), (MAX_LINES, "[1mline 49"));
        assert_eq!(lines_of(&[(OutputStream::Stderr, "10%\r20%\rdone")]), ["10%", "20%", "done"]);
    }

    #[test]
    fn one_stream_does_not_tear_the_lines_of_the_other() {
        let lines = lines_of(&[
            (OutputStream::Stdout, "Reading lists..."),
            (OutputStream::Stderr, "E: Unable to lo"),
            (OutputStream::Stderr, "cate it\n"),
            (OutputStream::Stdout, "\nDone"),
        ]);
        assert_eq!(lines, ["E: Unable to locate it", "Reading lists...", "Done"]);
    }

    #[test]
    fn the_complaint_is_found() {
        let lines = ["Looking", "ERROR: No matching distribution found for x", "", "bye"].map(str::to_owned);
        assert_eq!(complaint(&lines), Some("ERROR: No matching distribution found for x"));
        assert_eq!(complaint(&lines[..1]), Some("Looking"));
        assert_eq!(complaint(&[]), None);
    }
}
