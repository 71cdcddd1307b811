//! Cutting what is too long for an answer: the beginning and the end are kept, on character borders, and all is
//! counted.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;

/// A field that does not hold all there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Truncated {
    pub(crate) field: String,
    pub(crate) returned_bytes: u64,
    pub(crate) total_bytes: u64,
    /// Which call reads the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

/// Gathers a stream in bounded memory, keeping its head and its tail.
#[derive(Debug)]
pub(crate) struct HeadAndTail {
    max_bytes: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    n_total: u64,
}

/// The part of a stream that is kept.
pub(crate) enum Kept {
    Whole(Vec<u8>),
    /// Without half a character where it was cut.
    Ends {
        head: Vec<u8>,
        tail: Vec<u8>,
        n_left_out: u64,
    },
}

impl HeadAndTail {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, head: Vec::new(), tail: VecDeque::new(), n_total: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.n_total += bytes.len() as u64;
        // All of it, while it fits; what comes after goes through the tail.
        let n_head = bytes.len().min(self.head_room());
        self.head.extend_from_slice(&bytes[..n_head]);
        let rest = &bytes[n_head..];
        let skipped = rest.len().saturating_sub(self.tail_limit());
        self.tail.extend(&rest[skipped..]);
        let excess = self.tail.len().saturating_sub(self.tail_limit());
        self.tail.drain(..excess);
    }

    fn head_room(&self) -> usize {
        (self.max_bytes - self.tail_limit()).saturating_sub(self.head.len())
    }

    /// Errors and results stand at the end more often than at the beginning.
    fn tail_limit(&self) -> usize {
        self.max_bytes / 2
    }

    pub(crate) fn n_total(&self) -> u64 {
        self.n_total
    }

    pub(crate) fn finish(self) -> Kept {
        let tail = Vec::from(self.tail);
        if (self.head.len() + tail.len()) as u64 == self.n_total {
            return Kept::Whole([self.head, tail].concat());
        }
        let head = until_character_border(&self.head).to_vec();
        let tail = from_character_border(&tail).to_vec();
        let n_left_out = self.n_total - (head.len() + tail.len()) as u64;
        Kept::Ends { head, tail, n_left_out }
    }
}

/// Gathers a stream to be told as text.
#[derive(Debug)]
pub(crate) struct Collector(HeadAndTail);

/// The text gathered from a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gathered {
    /// Bytes that are no UTF-8 are replaced.
    pub(crate) text: String,
    pub(crate) is_lossy: bool,
    pub(crate) truncated: Option<Truncated>,
}

impl Collector {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self(HeadAndTail::new(max_bytes))
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// The text; `rest` says, where bytes were left out, which call reads them.
    pub(crate) fn finish(self, field: &str, rest: impl FnOnce() -> String) -> Gathered {
        let total_bytes = self.0.n_total();
        let (head, tail, n_left_out) = match self.0.finish() {
            Kept::Whole(bytes) => {
                let (text, is_lossy) = decode(bytes);
                return Gathered { text, is_lossy, truncated: None };
            }
            Kept::Ends { head, tail, n_left_out } => (head, tail, n_left_out),
        };
        let truncated = Truncated {
            field: field.to_owned(),
            returned_bytes: total_bytes - n_left_out,
            total_bytes,
            hint: Some(rest()),
        };
        let (head, is_head_lossy) = decode(head);
        let (tail, is_tail_lossy) = decode(tail);
        let text = format!("{head}\n[… {n_left_out} bytes left out …]\n{tail}");
        Gathered { text, is_lossy: is_head_lossy || is_tail_lossy, truncated: Some(truncated) }
    }
}

/// A text cut to a number of bytes, which keeps both its ends.
pub(crate) fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let mut collector = Collector::new(max_bytes);
    collector.push(text.as_bytes());
    collector.finish("", String::new).text
}

/// One stream of an exec, cut to what an answer may hold.
#[derive(Debug)]
pub(crate) struct Capture {
    collector: Collector,
    n_bytes: usize,
    n_head: usize,
    /// The first entry that does not fit the head whole.
    cut_at: Option<u64>,
}

impl Capture {
    pub(crate) fn new(max_bytes: usize) -> Self {
        let n_head = max_bytes - max_bytes / 2;
        Self { collector: Collector::new(max_bytes), n_bytes: 0, n_head, cut_at: None }
    }

    /// Takes the bytes of the ledger entry with this number.
    pub(crate) fn push(&mut self, number: u64, bytes: &[u8]) {
        self.n_bytes = self.n_bytes.saturating_add(bytes.len());
        if self.n_bytes > self.n_head {
            self.cut_at.get_or_insert(number);
        }
        self.collector.push(bytes);
    }

    /// `rest` says which call reads on, given the last entry that is in the head whole.
    pub(crate) fn finish(self, field: &str, rest: impl FnOnce(u64) -> String) -> Gathered {
        let cursor = self.cut_at.unwrap_or(1) - 1;
        self.collector.finish(field, || rest(cursor))
    }
}

/// As text, and whether bytes had to be replaced.
fn decode(bytes: Vec<u8>) -> (String, bool) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, false),
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
    }
}

/// Without a character that is cut in two at the end.
pub(crate) fn until_character_border(bytes: &[u8]) -> &[u8] {
    let first = bytes.len().saturating_sub(3);
    for start in (first..bytes.len()).rev() {
        let width = match bytes[start] {
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            0x80..=0xBF => continue,
            _ => return bytes,
        };
        return if start + width > bytes.len() { &bytes[..start] } else { bytes };
    }
    bytes
}

/// Without the rest of a character that was cut in two at the beginning.
pub(crate) fn from_character_border(bytes: &[u8]) -> &[u8] {
    let skip = bytes.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xBF)).count();
    &bytes[skip..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(max: usize, chunks: &[&str]) -> Gathered {
        let mut collector = Collector::new(max);
        for chunk in chunks {
            collector.push(chunk.as_bytes());
        }
        collector.finish("stdout", || "Read on.".to_owned())
    }

    #[test]
    fn what_fits_is_whole_also_when_characters_come_in_pieces() {
        assert_eq!(
            gather(10, &["0123456789"]),
            Gathered { text: "0123456789".into(), is_lossy: false, truncated: None }
        );
        let mut collector = Collector::new(4);
        for byte in "äö".bytes() {
            collector.push(&[byte]);
        }
        assert_eq!(collector.finish("stdout", String::new).text, "äö");
    }

    #[test]
    fn what_does_not_fit_keeps_both_ends_and_is_counted() {
        let got = gather(10, &["abcdefgh", "ijklmnop", "qrstuvwxyz"]);
        assert_eq!(got.text, "abcde\n[… 16 bytes left out …]\nvwxyz");
        let cut = got.truncated.unwrap();
        assert_eq!((cut.returned_bytes, cut.total_bytes), (10, 26));
    }

    #[test]
    fn no_character_is_cut_in_two() {
        let got = gather(7, &["ääääää"]);
        assert_eq!(got.text, "ää\n[… 6 bytes left out …]\nä");
        assert!(!got.is_lossy);
        assert_eq!(got.truncated.unwrap().returned_bytes, 6);
        assert_eq!(until_character_border("a€".as_bytes()), "a€".as_bytes());
        assert_eq!(until_character_border(&"a€".as_bytes()[..3]), b"a");
    }
}
