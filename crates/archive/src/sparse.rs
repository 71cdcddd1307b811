//! Maps of sparse files: which parts of them an archive holds.

use tar::GnuSparseHeader;

use crate::{
    BLOCK, Content, Part,
    error::{Error, Result, bad_map, malformed},
    pax,
};

/// Longest number in a map.
const MAX_DIGITS: usize = 20;

/// A map that is being read.
pub(crate) struct Map {
    content: Content,
    max_parts: usize,
}

impl Map {
    /// An empty map for a file of `size` bytes.
    pub(crate) fn new(size: u64, max_parts: usize) -> Result<Self> {
        i64::try_from(size).map_err(|_no_file_is_so_large| bad_map())?;
        Ok(Self { content: Content { size, parts: Vec::new() }, max_parts })
    }

    fn push(&mut self, offset: u64, length: u64) -> Result<()> {
        let parts = &mut self.content.parts;
        let before = parts.last().map_or(0, Part::end);
        let end = offset.checked_add(length).filter(|&end| offset >= before && end <= self.content.size);
        end.ok_or_else(bad_map)?;
        if parts.len() >= self.max_parts {
            return Err(Error::ManyParts { most: self.max_parts });
        }
        parts.push(Part { offset, length });
        Ok(())
    }

    /// Offsets and lengths in turn.
    pub(crate) fn push_pairs(&mut self, numbers: &[u64]) -> Result<()> {
        if !numbers.len().is_multiple_of(2) {
            return Err(bad_map());
        }
        numbers.chunks_exact(2).try_for_each(|pair| self.push(pair[0], pair[1]))
    }

    /// Adds the parts from a GNU header, or from a block behind it.
    pub(crate) fn push_gnu(&mut self, slots: &[GnuSparseHeader]) -> Result<()> {
        slots.iter().filter(|slot| !slot.is_empty()).try_for_each(|slot| {
            self.push(slot.offset().map_err(malformed)?, slot.length().map_err(malformed)?)
        })
    }

    /// Whether the last part ends where the file does, as in all maps of the GNU format.
    pub(crate) fn is_to_the_end(&self) -> bool {
        self.content.parts.last().map_or(0, Part::end) == self.content.size
    }

    /// The archive must hold exactly the parts. Empty ones only mark the end.
    pub(crate) fn finish(mut self, stored: u64) -> Result<Content> {
        self.content.parts.retain(|part| part.length > 0);
        if self.content.stored() == stored { Ok(self.content) } else { Err(bad_map()) }
    }
}

/// Version 1.0: a count and so many pairs, one number to a line, filled up to a whole block.
pub(crate) struct Lines {
    expected: Option<usize>,
    numbers: Vec<u64>,
    digits: Vec<u8>,
    max_parts: usize,
}

impl Lines {
    pub(crate) fn new(max_parts: usize) -> Self {
        Self { expected: None, numbers: Vec::new(), digits: Vec::new(), max_parts }
    }

    /// All numbers but the count, once they are there.
    pub(crate) fn numbers(&self) -> Option<&[u64]> {
        (self.expected == Some(self.numbers.len())).then_some(&self.numbers)
    }

    pub(crate) fn take(&mut self, byte: u8) -> Result<()> {
        if self.numbers().is_some() {
            return Ok(());
        }
        if byte != b'\n' {
            self.digits.push(byte);
            return if self.digits.len() > MAX_DIGITS { Err(bad_map()) } else { Ok(()) };
        }
        let number = pax::number(&std::mem::take(&mut self.digits))?;
        if self.expected.is_some() {
            self.numbers.push(number);
            return Ok(());
        }
        let pairs = usize::try_from(number).ok().filter(|&pairs| pairs <= self.max_parts);
        self.expected = Some(2 * pairs.ok_or(Error::ManyParts { most: self.max_parts })?);
        Ok(())
    }
}

/// The map as version 1.0 has it before the parts. A last part of no length is how others learn of zeros at the end.
pub(crate) fn written_map(content: &Content) -> Vec<u8> {
    let Content { size, parts } = content;
    let end = Part { offset: *size, length: 0 };
    let end = (parts.last().map_or(0, Part::end) < *size).then_some(end);
    let mut map = format!("{}\n", parts.len() + usize::from(end.is_some()));
    for Part { offset, length } in parts.iter().chain(&end) {
        map.push_str(&format!("{offset}\n{length}\n"));
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}
