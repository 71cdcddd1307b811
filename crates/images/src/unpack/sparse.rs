//! Files with holes: which parts of them the archive holds.

use tar::{GnuExtSparseHeader, GnuHeader, GnuSparseHeader};

use super::{
    feed::{Source, cut_short},
    members::BLOCK,
    pax::{PaxSparse, number},
};
use crate::error::{Error, Result};

/// Most parts of one file. A part is at least a block in practice; this is a file of a gigabyte with every second one a hole.
const MAX_SEGMENTS: usize = 128 * 1024;
/// Longest number in a map of version 1.0.
const MAX_DIGITS: usize = 20;

/// A part that is not a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(super) offset: u64,
    pub(super) length: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Map {
    pub(super) segments: Vec<Segment>,
    pub(super) real_size: u64,
}

impl Map {
    fn push(&mut self, offset: u64, length: u64) -> Result<()> {
        let after_last = self.segments.last().map_or(0, |last| last.offset + last.length);
        let end = offset.checked_add(length).ok_or_else(unsound)?;
        if offset < after_last || end > self.real_size || self.segments.len() >= MAX_SEGMENTS {
            return Err(unsound());
        }
        self.segments.push(Segment { offset, length });
        Ok(())
    }

    /// The archive must hold exactly the parts.
    fn checked(self, stored: u64) -> Result<Self> {
        let total: u64 = self.segments.iter().map(|segment| segment.length).sum();
        if total == stored && i64::try_from(self.real_size).is_ok() { Ok(self) } else { Err(unsound()) }
    }
}

/// The old GNU format: in the header, and in blocks right behind it.
pub(super) fn gnu(header: &GnuHeader, stored: u64, source: &mut Source) -> Result<Map> {
    let mut map = Map { real_size: header.real_size().map_err(malformed)?, ..Map::default() };
    gnu_segments(&header.sparse, &mut map)?;
    let mut more = header.is_extended();
    while more {
        let mut extension = GnuExtSparseHeader::new();
        if !source.read_exact(extension.as_mut_bytes())? {
            return Err(cut_short());
        }
        gnu_segments(extension.sparse(), &mut map)?;
        more = extension.is_extended();
    }
    map.checked(stored)
}

fn gnu_segments(headers: &[GnuSparseHeader], map: &mut Map) -> Result<()> {
    for header in headers.iter().filter(|header| !header.is_empty()) {
        map.push(header.offset().map_err(malformed)?, header.length().map_err(malformed)?)?;
    }
    Ok(())
}

/// The formats in extended headers. Answers the map and how many bytes of the data it took.
pub(super) fn pax(sparse: &PaxSparse, stored: u64, source: &mut Source) -> Result<(Map, u64)> {
    let mut map = Map { real_size: sparse.real_size.ok_or_else(unsound)?, ..Map::default() };
    let (numbers, taken) = match sparse.version {
        (0, _) => (sparse.numbers.clone(), 0),
        (1, 0) => leading_numbers(stored, source)?,
        (major, minor) => return Err(Error::unsupported(format!("sparse format {major}.{minor}"))),
    };
    if numbers.len() % 2 != 0 {
        return Err(unsound());
    }
    for pair in numbers.chunks_exact(2) {
        map.push(pair[0], pair[1])?;
    }
    Ok((map.checked(stored - taken)?, taken))
}

/// Version 1.0: a count and so many pairs, one number to a line, padded to a block.
fn leading_numbers(stored: u64, source: &mut Source) -> Result<(Vec<u64>, u64)> {
    let mut numbers = Vec::new();
    let mut wanted = None;
    let mut digits = Vec::with_capacity(MAX_DIGITS);
    let mut taken = 0;
    while wanted != Some(numbers.len()) {
        let mut block = [0; BLOCK];
        taken += BLOCK as u64;
        if taken > stored || !source.read_exact(&mut block)? {
            return Err(cut_short());
        }
        for byte in block {
            if wanted == Some(numbers.len()) {
                break;
            }
            if byte != b'\n' {
                digits.push(byte);
                if digits.len() > MAX_DIGITS {
                    return Err(unsound());
                }
                continue;
            }
            let value = number(&digits)?;
            digits.clear();
            if wanted.is_some() {
                numbers.push(value);
                continue;
            }
            let pairs = usize::try_from(value).ok().filter(|&pairs| pairs <= MAX_SEGMENTS);
            wanted = Some(pairs.ok_or_else(unsound)? * 2);
        }
    }
    Ok((numbers, taken))
}

fn unsound() -> Error {
    Error::corrupt("a sparse file's map", "parts in order that fit the file", "something else")
}

/// Without the cause, which would quote the header.
fn malformed(_quotes_it: std::io::Error) -> Error {
    Error::corrupt("a sparse file's map", "numbers", "something else")
}
