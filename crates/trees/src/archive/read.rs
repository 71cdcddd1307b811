//! Members from an archive that may be hostile.

use std::io::{self, BufRead};

use rustix::fs::Timespec;
use tar::{EntryType, Header};

use super::{
    BLOCK, Kind, MAX_HEADER_BYTES, MAX_PARTS, MAX_PATH_BYTES, Member, SOCKET,
    pax::{self, Pax},
};
use crate::{
    attributes::Attributes,
    error::{Error, Result},
};

/// Longest number in a map.
const MAX_DIGITS: usize = 20;

#[derive(Debug)]
pub(crate) struct Reader<R> {
    archive: R,
    /// Content of the current member that nobody read yet, and what fills its last block.
    unread: u64,
    padding: u64,
}

impl<R: BufRead> Reader<R> {
    pub(crate) fn new(archive: R) -> Self {
        Self { archive, unread: 0, padding: 0 }
    }

    /// The next member; `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Member>> {
        self.skip()?;
        let Some(mut header) = self.header()? else { return Ok(None) };
        let mut pax = Pax::default();
        if header.entry_type() == EntryType::XHeader {
            pax = Pax::parse(&self.records(&header)?)?;
            header = self.header()?.ok_or_else(|| damaged("it ends behind an extended header"))?;
        }
        self.member(&header, pax).map(Some)
    }

    /// Hands the member's next `bytes` to `sink`, piece by piece.
    pub(crate) fn data(&mut self, mut bytes: u64, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if bytes > self.unread {
            return Err(damaged("a member is longer than it says"));
        }
        self.unread -= bytes;
        while bytes > 0 {
            let available = available(&mut self.archive)?;
            if available.is_empty() {
                return Err(cut_short());
            }
            let take = available.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
            sink(&available[..take])?;
            self.archive.consume(take);
            bytes -= take as u64;
        }
        Ok(())
    }

    /// The map before the parts of a sparse file of `size` bytes: offset and length of each part.
    pub(crate) fn map(&mut self, size: u64) -> Result<Vec<(u64, u64)>> {
        let mut lines = Lines { wanted: None, numbers: Vec::new(), digits: Vec::new() };
        while !lines.is_done() {
            self.data(BLOCK as u64, |bytes| bytes.iter().try_for_each(|&byte| lines.take(byte)))?;
        }
        let mut parts = Vec::with_capacity(lines.numbers.len() / 2);
        let (mut end, mut total) = (0, 0_u64);
        for pair in lines.numbers.chunks_exact(2) {
            let (offset, length) = (pair[0], pair[1]);
            let next = offset.checked_add(length).filter(|&next| next <= size && offset >= end);
            end = next.ok_or_else(|| damaged("the parts of a file do not fit it"))?;
            total += length;
            parts.push((offset, length));
        }
        if total == self.unread {
            Ok(parts)
        } else {
            Err(damaged("the parts of a file are not those in its map"))
        }
    }

    fn member(&mut self, header: &Header, pax: Pax) -> Result<Member> {
        let old = header.as_old();
        let path = pax.path.unwrap_or_else(|| field(&old.name).to_vec());
        let refused = |why: String| Error::Refused { entry: shown(&path), why };
        let link = || pax.link.clone().unwrap_or_else(|| field(&old.linkname).to_vec());
        let id = |stated: Option<u64>, read: io::Result<u64>| {
            let id = stated.map_or_else(|| read.map_err(malformed), Ok)?;
            // The largest number means "nobody in particular" to the kernel.
            let id = u32::try_from(id).ok().filter(|&id| id != u32::MAX);
            id.ok_or_else(|| refused("its owner cannot be".to_owned()))
        };
        let attributes = Attributes {
            mode: header.mode().map_err(malformed)? & 0o7777,
            uid: id(pax.uid, header.uid())?,
            gid: id(pax.gid, header.gid())?,
            mtime: pax.mtime.map_or_else(|| whole_seconds(header), Ok)?,
        };
        let kind = match header.entry_type() {
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Link { target: link() },
            EntryType::Link => Kind::HardLink { target: link() },
            EntryType::Fifo => Kind::Fifo,
            EntryType::Char if is_whiteout(header) => Kind::Whiteout,
            EntryType::Char | EntryType::Block => return Err(refused("it is a device".to_owned())),
            EntryType::Regular if pax.kind.as_deref() == Some(SOCKET) => Kind::Socket,
            EntryType::Regular if pax.kind.is_some() => {
                return Err(refused("its kind is unknown".to_owned()));
            }
            EntryType::Regular => {
                let stored = pax.size.map_or_else(|| header.entry_size().map_err(malformed), Ok)?;
                self.unread = stored;
                self.padding = stored.wrapping_neg() % BLOCK as u64;
                match (pax.sparse_version, pax.real_size) {
                    ((None, None), None) => Kind::File { stored },
                    ((Some(1), Some(0)), Some(size)) if i64::try_from(size).is_ok() => {
                        Kind::Sparse { stored, size }
                    }
                    _ => return Err(refused("its holes are written in an unknown way".to_owned())),
                }
            }
            other => return Err(refused(format!("its kind {:?} is unknown", char::from(other.as_byte())))),
        };
        let path = match path.strip_suffix(b"/") {
            Some(directory) if kind == Kind::Directory => directory.to_vec(),
            _ => path,
        };
        Ok(Member { path, kind, attributes, extended: pax.extended })
    }

    fn header(&mut self) -> Result<Option<Header>> {
        let mut header = Header::new_old();
        self.fill(header.as_mut_bytes())?;
        if header.as_bytes().iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let bytes = header.as_bytes();
        let sum: u32 =
            bytes[..148].iter().chain(&bytes[156..]).map(|&byte| u32::from(byte)).sum::<u32>() + 8 * 32;
        if header.cksum().map_err(malformed)? != sum {
            return Err(damaged("the checksum of a header is wrong"));
        }
        Ok(Some(header))
    }

    fn records(&mut self, header: &Header) -> Result<Vec<u8>> {
        let length = header.entry_size().map_err(malformed)?;
        if length > MAX_HEADER_BYTES {
            return Err(Error::TooLarge {
                what: "an extended header".to_owned(),
                limit: "MAX_HEADER_BYTES".to_owned(),
                most: MAX_HEADER_BYTES,
            });
        }
        self.unread = length;
        self.padding = length.wrapping_neg() % BLOCK as u64;
        let mut records = Vec::new();
        self.data(length, |bytes| {
            records.extend_from_slice(bytes);
            Ok(())
        })?;
        self.skip()?;
        Ok(records)
    }

    fn skip(&mut self) -> Result<()> {
        self.unread += std::mem::take(&mut self.padding);
        self.data(self.unread, |_skipped| Ok(()))
    }

    fn fill(&mut self, mut into: &mut [u8]) -> Result<()> {
        while !into.is_empty() {
            let available = available(&mut self.archive)?;
            if available.is_empty() {
                return Err(cut_short());
            }
            let take = available.len().min(into.len());
            into[..take].copy_from_slice(&available[..take]);
            self.archive.consume(take);
            into = &mut into[take..];
        }
        Ok(())
    }
}

/// A count and so many pairs, one number to a line.
struct Lines {
    wanted: Option<usize>,
    numbers: Vec<u64>,
    digits: Vec<u8>,
}

impl Lines {
    fn is_done(&self) -> bool {
        self.wanted == Some(self.numbers.len())
    }

    fn take(&mut self, byte: u8) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        if byte != b'\n' {
            self.digits.push(byte);
            return if self.digits.len() > MAX_DIGITS {
                Err(damaged("a map of parts is malformed"))
            } else {
                Ok(())
            };
        }
        let number = pax::number(&self.digits)?;
        self.digits.clear();
        if self.wanted.is_some() {
            self.numbers.push(number);
            return Ok(());
        }
        let pairs = usize::try_from(number).ok().filter(|&pairs| pairs <= MAX_PARTS);
        self.wanted = Some(
            2 * pairs.ok_or_else(|| Error::TooLarge {
                what: "the number of parts of a file".to_owned(),
                limit: "MAX_PARTS".to_owned(),
                most: MAX_PARTS as u64,
            })?,
        );
        Ok(())
    }
}

/// What can be read without asking for more; empty at the end only.
fn available(archive: &mut impl BufRead) -> Result<&[u8]> {
    loop {
        match archive.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::archive(&error)),
            // The buffer is asked for again: a loop may not give away what it borrowed.
            Ok(_) => break,
        }
    }
    archive.fill_buf().map_err(|error| Error::archive(&error))
}

fn is_whiteout(header: &Header) -> bool {
    let is_zero = |number: io::Result<Option<u32>>| matches!(number, Ok(Some(0)));
    is_zero(header.device_major()) && is_zero(header.device_minor())
}

fn whole_seconds(header: &Header) -> Result<Timespec> {
    let seconds = header.mtime().map_err(malformed)?;
    let tv_sec = i64::try_from(seconds).map_err(|_large| damaged("a time cannot be"))?;
    Ok(Timespec { tv_sec, tv_nsec: 0 })
}

fn field(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

pub(crate) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(&path[..path.len().min(MAX_PATH_BYTES).min(1024)]).into_owned()
}

fn malformed(error: io::Error) -> Error {
    Error::Damaged(format!("a header is malformed: {error}"))
}

fn damaged(what: &str) -> Error {
    Error::Damaged(what.to_owned())
}

fn cut_short() -> Error {
    damaged("it ends too early")
}
