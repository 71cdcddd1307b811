//! Output as lines, each told when it ends.

use engine::OutputStream;

/// A longer line is told in pieces.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// The lines of both streams that have no end yet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    open: [Vec<u8>; 2],
    /// Whether lines keep their line ends.
    keeps_ends: bool,
}

impl Lines {
    /// Lines with their line ends, for readers who join them without adding any.
    pub(super) fn with_ends() -> Self {
        Self { keeps_ends: true, ..Self::default() }
    }

    /// Tells the lines that `bytes` complete.
    pub(super) fn push(&mut self, stream: OutputStream, bytes: &[u8], mut tell: impl FnMut(&str)) {
        let open = &mut self.open[stream as usize];
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            open.extend_from_slice(piece);
            while open.len() > MAX_LINE_BYTES {
                let rest = open.split_off(border(open, MAX_LINE_BYTES));
                tell(&String::from_utf8_lossy(open));
                *open = rest;
            }
            if open.last() == Some(&b'\n') {
                if !self.keeps_ends {
                    open.pop();
                    if open.last() == Some(&b'\r') {
                        open.pop();
                    }
                }
                tell(&String::from_utf8_lossy(open));
                open.clear();
            }
        }
    }

    /// Tells what has no line break at its end.
    pub(super) fn finish(&mut self, mut tell: impl FnMut(OutputStream, &str)) {
        for stream in OutputStream::BOTH {
            let open = std::mem::take(&mut self.open[stream as usize]);
            if !open.is_empty() {
                tell(stream, &String::from_utf8_lossy(&open));
            }
        }
    }
}

/// The last place up to `most` that is not in the middle of a character.
fn border(bytes: &[u8], most: usize) -> usize {
    let is_inner = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000);
    (most.saturating_sub(3)..=most).rev().find(|at| !is_inner(*at)).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pieces: &[(OutputStream, &[u8])]) -> Vec<(OutputStream, String)> {
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        for (stream, bytes) in pieces {
            lines.push(*stream, bytes, |text| all.push((*stream, text.to_owned())));
        }
        lines.finish(|stream, text| all.push((stream, text.to_owned())));
        all
    }

    #[test]
    fn lines_are_told_when_they_end_and_the_rest_at_the_end() {
        use OutputStream::{Stderr, Stdout};
        let all = told(&[
            (Stdout, b"a\r\n\nb".as_slice()),
            (Stderr, b"x"),
            (Stdout, "ü\nlast".as_bytes()),
            (Stderr, b"y\n\xff"),
        ]);
        let expected = [
            (Stdout, "a"),
            (Stdout, ""),
            (Stdout, "bü"),
            (Stderr, "xy"),
            (Stdout, "last"),
            (Stderr, "\u{fffd}"),
        ];
        assert_eq!(all, expected.map(|(stream, text)| (stream, text.to_owned())));
    }

    #[test]
    fn the_ends_of_lines_are_kept_for_those_who_want_them() {
        let (mut lines, mut all) = (Lines::with_ends(), String::new());
        for piece in [b"a\r\n\nb".as_slice(), b"c\nlast"] {
            lines.push(OutputStream::Stdout, piece, |text| all.push_str(text));
        }
        lines.finish(|_, text| all.push_str(text));
        assert_eq!(all, "a\r\n\nbc\nlast");
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let long = "é".repeat(MAX_LINE_BYTES);
        let all = told(&[(OutputStream::Stdout, format!("x{long}").as_bytes())]);
        assert!(all.len() > 1 && all.iter().all(|(_, text)| text.len() <= MAX_LINE_BYTES));
        let joined: String = all.into_iter().map(|(_, text)| text).collect();
        assert_eq!(joined, format!("x{long}"));
    }
}
