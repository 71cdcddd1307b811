//! Text of a stream that comes in pieces: a character belongs to the piece that holds its first byte.
//!
//! A poll keeps nothing in mind between calls, so the rule must give the same answer wherever a reader begins: a piece
//! is shown without the bytes that complete a character begun before it, and with those that complete its own last one,
//! borrowed from the pieces behind it.

/// Longest beginning of a character that lacks its end.
const MAX_OPEN_BYTES: usize = 3;

/// Last bytes of a stream: enough to know whether it stands inside a character.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edge {
    last: Vec<u8>,
}

impl Edge {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.last.extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_OPEN_BYTES)..]);
        let excess = self.last.len().saturating_sub(MAX_OPEN_BYTES);
        self.last.drain(..excess);
    }

    /// Bytes that the character at the end still lacks; 0 when the stream ends with a whole one, or with no text at
    /// all.
    pub(crate) fn n_missing(&self) -> usize {
        self.open().map_or(0, |(_, n_missing)| n_missing)
    }

    /// Bytes that there are of a character at the end that lacks some.
    pub(crate) fn n_open(&self) -> usize {
        self.open().map_or(0, |(n_open, _)| n_open)
    }

    fn open(&self) -> Option<(usize, usize)> {
        let start = self.last.iter().rposition(|byte| !matches!(byte, 0x80..=0xBF))?;
        let width = match self.last[start] {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => return None,
        };
        let open = &self.last[start..];
        let can_be_completed = std::str::from_utf8(open).is_err_and(|error| error.error_len().is_none());
        can_be_completed.then(|| (open.len(), width - open.len()))
    }

    /// How many of the first bytes of the next piece complete the character at the end.
    pub(crate) fn n_claimed(&self, next: &[u8]) -> usize {
        n_continuing(next).min(self.n_missing())
    }
}

/// Bytes at the beginning that can only be the rest of a character.
pub(crate) fn n_continuing(bytes: &[u8]) -> usize {
    bytes.iter().take(MAX_OPEN_BYTES).take_while(|byte| matches!(byte, 0x80..=0xBF)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows pieces by the rule, one by one.
    fn shown(pieces: &[&[u8]]) -> Vec<String> {
        let mut edge = Edge::default();
        let mut out = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let claimed = edge.n_claimed(piece);
            edge.push(piece);
            let mut text = piece[claimed..].to_vec();
            let mut ahead = edge.clone();
            for next in &pieces[index + 1..] {
                // A piece that only goes on with a character of another one borrows nothing.
                let n = if text.is_empty() { 0 } else { ahead.n_claimed(next) };
                text.extend_from_slice(&next[..n]);
                ahead.push(&next[..n]);
                if n < next.len() {
                    break;
                }
            }
            out.push(String::from_utf8_lossy(&text).into_owned());
        }
        out
    }

    #[test]
    fn pieces_cut_anywhere_read_as_the_whole() {
        let text = "aä€🦀z🦀€äa";
        let bytes = text.as_bytes();
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(shown(&pieces).concat(), text, "{first} {second}");
            }
        }
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(shown(&single).concat(), text);
    }

    #[test]
    fn what_is_no_text_completes_nothing() {
        for (bytes, missing) in [
            (&b"a"[..], 0),
            (b"\xc3", 1),
            (b"\xe2", 2),
            (b"\xe2\x82", 1),
            (b"\xf0\x9f\xa6", 1),
            (b"\xff", 0),
            (b"\x82\x82\x82", 0),
            (b"\xc0", 0),
            (b"\xe0\x80", 0),
        ] {
            let mut edge = Edge::default();
            edge.push(bytes);
            assert_eq!(edge.n_missing(), missing, "{bytes:x?}");
        }
        assert_eq!(shown(&[b"\xe2", b"x"]), ["\u{fffd}", "x"]);
        assert_eq!(shown(&[b"\x82"]), ["\u{fffd}"]);
    }
}
