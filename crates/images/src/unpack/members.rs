//! The archive as a stream of entries.
//!
//! Headers are read by the `tar` crate; the stream is ours, because extended headers and long names come from strangers and must
//! not be held in memory without bound, and because file data goes to the disk straight from the decompressor's buffer.

use rustix::fs::Timespec;
use tar::{EntryType, Header};

use super::{
    feed::{Source, cut_short},
    pax::Pax,
    sparse::{self, Map},
};
use crate::error::{Error, Result};

pub(super) const BLOCK: usize = 512;

/// Largest extended header or long name. Extended attributes of a file are 64 KiB at most, a path 4 KiB.
const MAX_HEADER_BYTES: u64 = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) mtime: Timespec,
    pub(super) xattrs: Vec<(String, Vec<u8>)>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    File {
        size: u64,
    },
    /// Data follows as in a file, but only the parts that are no holes.
    Sparse(Map),
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    HardLink {
        target: Vec<u8>,
    },
    Fifo,
    Device,
}

impl Member {
    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}

/// Reads members one after the other; the caller may read a file's data through [`Members::data`].
#[derive(Debug)]
pub(crate) struct Members<'a> {
    source: &'a mut Source,
    /// Data of the current member that nobody read yet, and the padding behind it.
    unread: u64,
    padding: u64,
}

impl<'a> Members<'a> {
    pub(super) fn new(source: &'a mut Source) -> Self {
        Self { source, unread: 0, padding: 0 }
    }

    /// Hands the next `bytes` of the current member's data to `sink`.
    pub(crate) fn data(&mut self, bytes: u64, sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.unread = self.unread.checked_sub(bytes).ok_or_else(cut_short)?;
        self.source.pass(bytes, sink)
    }

    /// The next member, or `None` when the archive ended; then everything behind the end was read too.
    pub(super) fn next(&mut self) -> Result<Option<Member>> {
        let mut pax = None;
        let mut long_name = None;
        let mut long_link = None;
        loop {
            self.skip()?;
            let mut block = [0; BLOCK];
            if !self.source.read_exact(&mut block)? || block.iter().all(|&byte| byte == 0) {
                self.source.drain();
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block);
            verify_checksum(header)?;
            let stored = header.entry_size().map_err(malformed)?;
            match header.entry_type() {
                EntryType::XHeader => pax = Some(Pax::parse(&self.small_body(stored)?)?),
                EntryType::XGlobalHeader => drop(self.small_body(stored)?),
                EntryType::GNULongName => long_name = Some(without_nul(self.small_body(stored)?)),
                EntryType::GNULongLink => long_link = Some(without_nul(self.small_body(stored)?)),
                _ => return self.member(header, pax.unwrap_or_default(), long_name, long_link).map(Some),
            }
        }
    }

    fn member(
        &mut self,
        header: &Header,
        pax: Pax,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Member> {
        let path = pax.path.clone().or(long_name).unwrap_or_else(|| header.path_bytes().into_owned());
        let mtime = match pax.mtime {
            Some(mtime) => mtime,
            None => Timespec {
                tv_sec: i64::try_from(number(&header.as_old().mtime, header.mtime())?).unwrap_or(i64::MAX),
                tv_nsec: 0,
            },
        };
        let target = || {
            pax.link.clone().or(long_link).or_else(|| header.link_name_bytes().map(|name| name.into_owned()))
        };
        let kind = match header.entry_type() {
            EntryType::Symlink => Kind::Symlink { target: target().unwrap_or_default() },
            EntryType::Link => Kind::HardLink { target: target().unwrap_or_default() },
            EntryType::Directory => Kind::Directory,
            EntryType::Fifo => Kind::Fifo,
            EntryType::Char | EntryType::Block => Kind::Device,
            EntryType::GNUSparse => self.gnu_sparse(header)?,
            // None of the above has data, whatever size its header states: so does every reader of layers see it.
            // Archives older than the directory type mark directories by a slash.
            EntryType::Regular if path.ends_with(b"/") => {
                self.begin(pax.size.map_or_else(|| header.entry_size().map_err(malformed), Ok)?);
                Kind::Directory
            }
            EntryType::Regular | EntryType::Continuous => self.file(header, &pax)?,
            other => {
                return Err(Error::Refused {
                    entry: String::from_utf8_lossy(&path).into_owned(),
                    why: format!("its kind {:?} is unknown", char::from(other.as_byte())),
                });
            }
        };
        Ok(Member {
            mode: number(&header.as_old().mode, header.mode())? & 0o7777,
            uid: pax.uid.map_or_else(|| number(&header.as_old().uid, header.uid()), Ok)?,
            gid: pax.gid.map_or_else(|| number(&header.as_old().gid, header.gid()), Ok)?,
            path,
            kind,
            mtime,
            xattrs: pax.xattrs,
        })
    }

    fn file(&mut self, header: &Header, pax: &Pax) -> Result<Kind> {
        let stored = pax.size.map_or_else(|| header.entry_size().map_err(malformed), Ok)?;
        self.begin(stored);
        if !pax.sparse.present {
            return Ok(Kind::File { size: stored });
        }
        let (map, taken) = sparse::pax(&pax.sparse, stored, self.source)?;
        self.unread -= taken;
        Ok(Kind::Sparse(map))
    }

    fn gnu_sparse(&mut self, header: &Header) -> Result<Kind> {
        let stored = header.entry_size().map_err(malformed)?;
        let gnu =
            header.as_gnu().ok_or_else(|| Error::corrupt("a sparse file", "a GNU header", "another"))?;
        let map = sparse::gnu(gnu, stored, self.source)?;
        self.begin(stored);
        Ok(Kind::Sparse(map))
    }

    fn begin(&mut self, stored: u64) {
        self.unread = stored;
        self.padding = stored.wrapping_neg() % BLOCK as u64;
    }

    fn skip(&mut self) -> Result<()> {
        let (unread, padding) = (std::mem::take(&mut self.unread), std::mem::take(&mut self.padding));
        self.source.pass(unread, |_| Ok(()))?;
        self.source.pass(padding, |_| Ok(()))
    }

    fn small_body(&mut self, stored: u64) -> Result<Vec<u8>> {
        if stored > MAX_HEADER_BYTES {
            return Err(Error::Refused {
                entry: "an extended header".to_owned(),
                why: format!("it is longer than {MAX_HEADER_BYTES} bytes"),
            });
        }
        self.begin(stored);
        let mut body = Vec::with_capacity(usize::try_from(stored).unwrap_or_default());
        self.data(stored, |bytes| {
            body.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(body)
    }
}

fn without_nul(mut name: Vec<u8>) -> Vec<u8> {
    while name.last() == Some(&0) {
        name.pop();
    }
    name
}

/// The sum of all bytes with the sum's own field taken for spaces; very old writers summed signed bytes.
fn verify_checksum(header: &Header) -> Result<()> {
    let bytes = header.as_bytes();
    let summed = || bytes[..148].iter().chain(&bytes[156..]);
    let unsigned: u32 = summed().map(|&byte| u32::from(byte)).sum::<u32>() + 8 * 32;
    let signed: i32 = summed().map(|&byte| i32::from(byte.cast_signed())).sum::<i32>() + 8 * 32;
    let stated = header.cksum().map_err(malformed)?;
    if stated == unsigned || i64::from(stated) == i64::from(signed) {
        return Ok(());
    }
    Err(Error::corrupt("a tar header", format!("checksum {unsigned}"), stated.to_string()))
}

/// A field that was left blank is zero; some writers leave out what does not matter to them.
fn number<T: Default>(field: &[u8], parsed: std::io::Result<T>) -> Result<T> {
    if field.iter().all(|&byte| byte == 0 || byte == b' ') {
        return Ok(T::default());
    }
    parsed.map_err(malformed)
}

/// Without the cause, which would quote the header: bytes of who knows what.
fn malformed(_quotes_it: std::io::Error) -> Error {
    Error::corrupt("a tar header", "numbers in its fields", "something else")
}
