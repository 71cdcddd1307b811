//! Finds one sequence of bytes in a stream, by the algorithm of Knuth, Morris and Pratt: each byte of the stream is
//! read once, however often the sequence almost occurs.

use std::{collections::VecDeque, ops::Range};

use memchr::{memchr, memchr3};
use zeroize::Zeroizing;

use super::escapes::Escapes;

#[derive(Debug)]
pub(super) struct Pattern {
    bytes: Zeroizing<Vec<u8>>,
    /// For each length n, the length of the longest proper prefix of the first n bytes that is also their suffix.
    borders: Vec<usize>,
    /// The escapes in which its bytes may be written, besides plainly.
    escapes: Option<Escapes>,
}

/// How much of a pattern the end of a stream matches.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The number of bytes of the pattern that the end of the stream matches.
    matched: usize,
    /// For each of them, the number of bytes that it has in the stream. Empty for a pattern without escapes, where each
    /// has one.
    widths: VecDeque<usize>,
    /// The number of them that have more than one.
    n_wide: usize,
    /// The end of the stream, if it may be the beginning of an escape.
    partial: Vec<u8>,
}

impl Progress {
    /// The number of bytes at the end of the stream that may be the beginning of an occurrence.
    pub(super) fn held(&self) -> usize {
        let matched = if self.widths.is_empty() { self.matched } else { self.widths.iter().sum() };
        matched + self.partial.len()
    }

    fn grow(&mut self, width: usize) {
        self.matched += 1;
        self.widths.push_back(width);
        self.n_wide += usize::from(width > 1);
    }

    fn shrink(&mut self, matched: usize) {
        let dropped = self.widths.drain(..self.matched - matched);
        self.n_wide -= dropped.filter(|width| *width > 1).count();
        self.matched = matched;
    }
}

impl Pattern {
    /// `bytes`: at least one.
    pub(super) fn new(bytes: Vec<u8>, escapes: Option<Escapes>) -> Self {
        let mut borders = vec![0; bytes.len() + 1];
        let mut length = 0;
        for at in 1..bytes.len() {
            while length > 0 && bytes[at] != bytes[length] {
                length = borders[length];
            }
            if bytes[at] == bytes[length] {
                length += 1;
            }
            borders[at + 1] = length;
        }
        Self { bytes: Zeroizing::new(bytes), borders, escapes }
    }

    /// Continues with the next piece of the stream. Calls `found` with the range of each occurrence, counted from
    /// `before` bytes ahead of the piece. A pattern with escapes may leave out an occurrence that has none: the same
    /// pattern without escapes finds it.
    pub(super) fn search(
        &self,
        progress: &mut Progress,
        before: usize,
        piece: &[u8],
        found: impl FnMut(Range<usize>),
    ) {
        match self.escapes {
            Some(escapes) => self.search_escaped(escapes, progress, before, piece, found),
            None => self.search_plain(&mut progress.matched, before, piece, found),
        }
    }

    fn search_plain(
        &self,
        matched: &mut usize,
        before: usize,
        piece: &[u8],
        mut found: impl FnMut(Range<usize>),
    ) {
        let mut at = 0;
        while at < piece.len() {
            if *matched == 0 {
                match memchr(self.bytes[0], &piece[at..]) {
                    Some(skipped) => at += skipped,
                    None => return,
                }
            }
            while *matched > 0 && piece[at] != self.bytes[*matched] {
                *matched = self.borders[*matched];
            }
            if piece[at] == self.bytes[*matched] {
                *matched += 1;
            }
            at += 1;
            if *matched == self.bytes.len() {
                found(before + at - self.bytes.len()..before + at);
                *matched = self.borders[*matched];
            }
        }
    }

    fn search_escaped(
        &self,
        escapes: Escapes,
        progress: &mut Progress,
        before: usize,
        piece: &[u8],
        mut found: impl FnMut(Range<usize>),
    ) {
        let (mut at, mut next_sign) = (0, 0);
        while at < piece.len() {
            if !progress.partial.is_empty() {
                progress.partial.push(piece[at]);
                at += 1;
                while let Some((byte, width)) = escapes.read(&progress.partial) {
                    progress.partial.drain(..width);
                    self.step(progress, byte, width, before + at - progress.partial.len(), &mut found);
                }
                continue;
            }
            if at >= next_sign && escapes != Escapes::Form && progress.n_wide == 0 {
                next_sign = memchr(escapes.sign(), &piece[at..]).map_or(piece.len(), |plain| at + plain);
                // Nothing before the next sign is escaped, so an occurrence with an escape begins less than its length
                // before that.
                let begin = next_sign.saturating_sub(self.bytes.len() - 1);
                if begin > at {
                    progress.shrink(0);
                    at = begin;
                    continue;
                }
            }
            if progress.matched == 0 {
                let (first, otherwise) = self.first(escapes);
                match memchr3(first, otherwise, escapes.sign(), &piece[at..]) {
                    Some(skipped) => at += skipped,
                    None => return,
                }
            }
            let Some((byte, width)) = escapes.read(&piece[at..]) else {
                progress.partial.extend_from_slice(&piece[at..]);
                return;
            };
            at += width;
            self.step(progress, byte, width, before + at, &mut found);
        }
    }

    /// The two bytes that stand for the first one without an escape; the same twice if there is only one.
    fn first(&self, escapes: Escapes) -> (u8, u8) {
        let first = self.bytes[0];
        (first, if escapes == Escapes::Form && first == b' ' { b'+' } else { first })
    }

    /// Takes one more byte, written with `width` bytes that end at `end`.
    fn step(
        &self,
        progress: &mut Progress,
        byte: u8,
        width: usize,
        end: usize,
        found: &mut impl FnMut(Range<usize>),
    ) {
        while progress.matched > 0 && byte != self.bytes[progress.matched] {
            progress.shrink(self.borders[progress.matched]);
        }
        if byte == self.bytes[progress.matched] {
            progress.grow(width);
        }
        if progress.matched == self.bytes.len() {
            let length: usize = progress.widths.iter().sum();
            found(end - length..end);
            progress.shrink(self.borders[progress.matched]);
        }
    }
}
