//! The rich stream of a cell, from bytes back to records. It comes from the workload: bounded, and never trusted.

use guest_protocol::Rich;

/// Longest single record. A larger one is left out and counted.
pub const MAX_RICH_BYTES: usize = 16 * 1024 * 1024;

/// Takes the stream piece by piece.
#[derive(Debug, Default)]
pub struct RichReader {
    line: Vec<u8>,
    /// The rest of this line is discarded.
    is_skipping: bool,
    n_left_out: u64,
}

impl RichReader {
    /// Records that `bytes` complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Rich> {
        let mut records = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_whole) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            if !self.is_skipping {
                self.take(text);
            }
            if is_whole {
                records.extend(self.finish());
            }
        }
        records
    }

    /// Entries are missing here, so the current record cannot be completed. What follows may be the end of a record,
    /// which is discarded, or a whole one.
    pub fn gap(&mut self) {
        self.line.clear();
        self.is_skipping = false;
    }

    /// Lines that were too long or not records.
    pub fn n_left_out(&self) -> u64 {
        self.n_left_out
    }

    fn take(&mut self, text: &[u8]) {
        if self.line.len() + text.len() > MAX_RICH_BYTES {
            self.line.clear();
            self.is_skipping = true;
        } else {
            self.line.extend_from_slice(text);
        }
    }

    fn finish(&mut self) -> Option<Rich> {
        let line = std::mem::take(&mut self.line);
        let was_skipped = std::mem::take(&mut self.is_skipping);
        let record = if was_skipped { None } else { serde_json::from_slice(&line).ok() };
        self.n_left_out += u64::from(record.is_none());
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARNING: &str = "{\"type\":\"warning\",\"message\":\"m\"}\n";

    fn warning() -> Rich {
        Rich::Warning { message: "m".to_owned() }
    }

    #[test]
    fn records_come_whole_however_they_are_cut() {
        for at in 0..WARNING.len() {
            let (head, tail) = WARNING.split_at(at);
            let mut reader = RichReader::default();
            let mut records = reader.push(head.as_bytes());
            records.extend(reader.push(tail.as_bytes()));
            assert_eq!((records, reader.n_left_out()), (vec![warning()], 0), "cut at {at}");
        }
    }

    #[test]
    fn what_is_no_record_or_too_long_or_lost_is_left_out() {
        let mut reader = RichReader::default();
        assert_eq!(reader.push(b"garbage\n\xff\n{\"type\":\"unknown\"}\n"), []);
        assert_eq!(reader.n_left_out(), 3);
        let long = vec![b'x'; MAX_RICH_BYTES / 2 + 1];
        assert_eq!(reader.push(&long), []);
        assert_eq!(reader.push(&long), []);
        assert_eq!(reader.push(format!("\n{WARNING}").as_bytes()), [warning()]);
        reader.push(b"{\"type\":");
        reader.gap();
        assert_eq!(reader.push(format!("the rest\n{WARNING}").as_bytes()), [warning()]);
        assert_eq!(reader.n_left_out(), 5);
        reader.gap();
        assert_eq!(reader.push(WARNING.as_bytes()), [warning()]);
    }
}
