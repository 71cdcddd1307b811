//! The output of a command as entries, one for each line, in bounded memory: the beginning and the end of each stream.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;

use crate::output::Collector;

/// The bytes that an entry takes in an answer besides its text.
const ENTRY_BYTES: usize = 56;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct LogEntry {
    text: String,
    /// Milliseconds since 1970
    timestamp: i64,
    is_error: bool,
}

/// One stream. What does not fit is left out of the middle, and an entry there says so.
#[derive(Debug)]
pub(super) struct Log {
    is_error: bool,
    max_bytes: usize,
    head: Vec<LogEntry>,
    head_bytes: usize,
    tail: VecDeque<LogEntry>,
    tail_bytes: usize,
    n_left_out: usize,
    /// The line that has no end yet.
    open: Option<(Collector, i64)>,
    is_cut: bool,
}

impl Log {
    pub(super) fn new(is_error: bool, max_bytes: usize) -> Self {
        Self {
            is_error,
            max_bytes,
            head: Vec::new(),
            head_bytes: 0,
            tail: VecDeque::new(),
            tail_bytes: 0,
            n_left_out: 0,
            open: None,
            is_cut: false,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8], at_ms: i64) {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            let is_whole = pieces.peek().is_some();
            if is_whole || !piece.is_empty() {
                let most = self.max_bytes / 2;
                self.open.get_or_insert_with(|| (Collector::new(most), at_ms)).0.push(piece);
            }
            if is_whole {
                self.close();
            }
        }
    }

    /// Adds a line of ours.
    pub(super) fn say(&mut self, text: String, at_ms: i64) {
        self.close();
        self.add(LogEntry { text, timestamp: at_ms, is_error: self.is_error });
    }

    fn close(&mut self) {
        let Some((line, timestamp)) = self.open.take() else { return };
        let line = line.finish("line", String::new);
        self.is_cut |= line.truncated.is_some();
        let mut text = line.text;
        // Programs that print for terminals end lines with both.
        if text.ends_with('\r') {
            text.pop();
        }
        self.add(LogEntry { text, timestamp, is_error: self.is_error });
    }

    fn add(&mut self, entry: LogEntry) {
        let n_bytes = entry.text.len() + ENTRY_BYTES;
        if self.tail.is_empty() && self.head_bytes + n_bytes <= self.max_bytes / 2 {
            self.head_bytes += n_bytes;
            self.head.push(entry);
            return;
        }
        self.tail_bytes += n_bytes;
        self.tail.push_back(entry);
        while self.tail_bytes > self.max_bytes / 2
            && self.tail.len() > 1
            && let Some(gone) = self.tail.pop_front()
        {
            self.tail_bytes -= gone.text.len() + ENTRY_BYTES;
            self.n_left_out += 1;
        }
    }

    /// The entries, and whether something is missing.
    pub(super) fn finish(mut self) -> (Vec<LogEntry>, bool) {
        self.close();
        let is_cut = self.is_cut || self.n_left_out > 0;
        let gap = (self.n_left_out > 0).then(|| LogEntry {
            text: format!("[… {} lines left out …]", self.n_left_out),
            timestamp: self.tail.front().map_or(0, |entry| entry.timestamp),
            is_error: self.is_error,
        });
        (self.head.into_iter().chain(gap).chain(self.tail).collect(), is_cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(max_bytes: usize, pieces: &[&str]) -> (Vec<String>, bool) {
        let mut log = Log::new(false, max_bytes);
        for (at_ms, piece) in pieces.iter().enumerate() {
            log.push(piece.as_bytes(), at_ms as i64);
        }
        let (entries, is_cut) = log.finish();
        (entries.into_iter().map(|entry| entry.text).collect(), is_cut)
    }

    #[test]
    fn there_is_one_entry_for_each_line() {
        let lines = logged(10_000, &["a\nb", "c\r\n\n", "last"]);
        assert_eq!(lines, (["a", "bc", "", "last"].map(str::to_owned).to_vec(), false));
        assert_eq!(logged(100, &[]), (vec![], false));
    }

    #[test]
    fn long_output_keeps_its_ends_and_says_what_is_missing() {
        let many: String = (0..10_000).map(|n| format!("{n}\n")).collect();
        let (lines, is_cut) = logged(1000, &[&many]);
        assert!(is_cut && lines.len() < 40, "{lines:?}");
        assert_eq!((lines[0].as_str(), lines[lines.len() - 1].as_str()), ("0", "9999"));
        let gap = lines.iter().find(|line| line.contains("left out")).unwrap();
        assert_eq!(*gap, format!("[… {} lines left out …]", 10_000 - (lines.len() - 1)));

        let (lines, is_cut) = logged(1000, &[&"x".repeat(100_000)]);
        assert!(is_cut && lines.len() == 1 && lines[0].len() < 600, "{}", lines[0].len());
    }
}
