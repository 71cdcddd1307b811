//! Members from an archive that may be hostile.

use std::io::{self, BufRead};

use rustix::fs::Timespec;
use tar::{EntryType, GnuExtSparseHeader, Header};

use crate::{
    BLOCK, Content, Kind, Member, Part,
    error::{Error, Result, bad_map, cut_short, malformed},
    pax::{Pax, SOCKET},
    sparse::{Lines, Map},
};

/// Limits on what a reader holds in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Extended headers and long names before one member, together.
    pub header_bytes: u64,
    /// Parts of one sparse file.
    pub parts: usize,
}

/// The kinds of archives that a reader accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Whatever any program writes as a tar. It may end without a mark.
    Any,
    /// Only what [`Writer`](crate::Writer) writes: all else is of an unknown kind, not supported, or damaged.
    Own,
}

/// Reads members one after the other.
#[derive(Debug)]
pub struct Reader<R> {
    archive: R,
    format: Format,
    limits: ReadLimits,
    position: u64,
    /// Content of the current member that nobody read yet, and what fills its last block.
    unread: u64,
    padding: u64,
}

/// The extensions that came before a member's own header.
#[derive(Default)]
struct Extensions {
    pax: Option<Pax>,
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

/// Takes what an extension says, which may be said once.
fn once<T>(slot: &mut Option<T>, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::Damaged("a member with two extended headers of one kind")),
    }
}

impl<R: BufRead> Reader<R> {
    pub fn new(archive: R, format: Format, limits: ReadLimits) -> Self {
        Self { archive, format, limits, position: 0, unread: 0, padding: 0 }
    }

    /// Bytes of the archive that were read. Right after [`Reader::next`], where the member's content begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The archive, of which what follows its end was not read.
    pub fn into_inner(self) -> R {
        self.archive
    }

    /// The next member; `None` at the end of the archive. Skips what was not read of the last one.
    #[expect(clippy::should_implement_trait, reason = "its members' content is read between two calls")]
    pub fn next(&mut self) -> Result<Option<Member>> {
        let mut extensions = Extensions::default();
        let mut header_left = self.limits.header_bytes;
        loop {
            self.skip()?;
            let Some(header) = self.header()? else {
                let Extensions { pax: None, long_path: None, long_link: None } = extensions else {
                    return Err(cut_short());
                };
                return Ok(None);
            };
            match (header.entry_type(), self.format) {
                (EntryType::XHeader, _) => {
                    let pax = Pax::parse(&self.small(&header, &mut header_left)?)?;
                    once(&mut extensions.pax, pax)?;
                }
                (EntryType::XGlobalHeader, Format::Any) => drop(self.small(&header, &mut header_left)?),
                (EntryType::GNULongName, Format::Any) => {
                    let path = without_zeros(self.small(&header, &mut header_left)?);
                    once(&mut extensions.long_path, path)?;
                }
                (EntryType::GNULongLink, Format::Any) => {
                    let link = without_zeros(self.small(&header, &mut header_left)?);
                    once(&mut extensions.long_link, link)?;
                }
                _ => return self.member(&header, extensions).map(Some),
            }
        }
    }

    /// Hands the member's next `bytes` to `sink`, piece by piece.
    pub fn data<E: From<Error>>(
        &mut self,
        bytes: u64,
        sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.unread = self.unread.checked_sub(bytes).ok_or_else(cut_short)?;
        self.pass(bytes, sink)
    }

    /// Hands all that is stored of the member's content to `sink`, piece by piece, each with its place in the file.
    pub fn content<E: From<Error>>(
        &mut self,
        content: &Content,
        mut sink: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for &Part { offset: mut at, length } in &content.parts {
            self.data(length, |bytes| {
                sink(at, bytes)?;
                at += bytes.len() as u64;
                Ok::<_, E>(())
            })?;
        }
        Ok(())
    }

    fn member(&mut self, header: &Header, extensions: Extensions) -> Result<Member> {
        let Extensions { pax, long_path, long_link } = extensions;
        let mut pax = pax.unwrap_or_default();
        let path = pax.sparse.path.take().or(pax.path.take()).or(long_path);
        let mut path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let fields = header.as_old();
        let mtime = match pax.mtime {
            Some(mtime) => mtime,
            None => {
                let seconds = number(&fields.mtime, header.mtime())?;
                Timespec { tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX), tv_nsec: 0 }
            }
        };
        let (uid, gid) = (pax.uid, pax.gid);
        let link = pax.link.take().or(long_link);
        let target = || link.or_else(|| Some(header.link_name_bytes()?.into_owned())).unwrap_or_default();
        let is_any = self.format == Format::Any;
        // Links, directories and nodes have no content, whatever size their headers state: so Go and Docker see it.
        let kind = match header.entry_type() {
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink { target: target() },
            EntryType::Link => Kind::HardLink { target: target() },
            EntryType::Fifo => Kind::Fifo,
            EntryType::Char if is_whiteout(header) => Kind::Whiteout,
            EntryType::Char | EntryType::Block => Kind::Device,
            EntryType::GNUSparse if is_any => self.gnu_sparse(header)?,
            EntryType::Regular if pax.kind.is_some() => match pax.kind.as_deref() {
                Some(SOCKET) => Kind::Socket,
                _ => self.unknown(header)?,
            },
            // Archives older than the type of directories mark them by a slash.
            EntryType::Regular if is_any && path.ends_with(b"/") => {
                self.begin(stored(header, &pax)?);
                Kind::Directory
            }
            EntryType::Regular => self.file(header, &pax)?,
            EntryType::Continuous if is_any => self.file(header, &pax)?,
            _ => self.unknown(header)?,
        };
        if kind == Kind::Directory && path.len() > 1 && path.ends_with(b"/") {
            path.pop();
        }
        Ok(Member {
            path,
            kind,
            mode: number(&fields.mode, header.mode())? & 0o7777,
            uid: uid.map_or_else(|| number(&fields.uid, header.uid()), Ok)?,
            gid: gid.map_or_else(|| number(&fields.gid, header.gid()), Ok)?,
            mtime,
            attributes: pax.attributes,
        })
    }

    fn unknown(&mut self, header: &Header) -> Result<Kind> {
        self.begin(header.entry_size().map_err(malformed)?);
        Ok(Kind::Unknown(header.entry_type().as_byte()))
    }

    fn file(&mut self, header: &Header, pax: &Pax) -> Result<Kind> {
        let stored = stored(header, pax)?;
        self.begin(stored);
        let sparse = &pax.sparse;
        if !sparse.is_present {
            return Ok(Kind::File(Content::whole(stored)));
        }
        match (sparse.version, self.format) {
            ((1, 0), _) | ((0, _), Format::Any) => {}
            ((major, minor), _) => return Err(Error::Unsupported(format!("sparse format {major}.{minor}"))),
        }
        let mut map = Map::new(sparse.real_size.ok_or_else(bad_map)?, self.limits.parts)?;
        if sparse.version.0 == 0 {
            map.push_pairs(&sparse.numbers)?;
        } else {
            let mut lines = Lines::new(self.limits.parts);
            while lines.numbers().is_none() {
                self.data(BLOCK as u64, |bytes| bytes.iter().try_for_each(|&byte| lines.take(byte)))?;
            }
            map.push_pairs(lines.numbers().unwrap_or_default())?;
        }
        map.finish(self.unread).map(Kind::File)
    }

    /// The old GNU format: the map is in the header, and in blocks right behind it.
    fn gnu_sparse(&mut self, header: &Header) -> Result<Kind> {
        let gnu = header.as_gnu().ok_or(Error::Damaged("a sparse file without a GNU header"))?;
        let mut map = Map::new(gnu.real_size().map_err(malformed)?, self.limits.parts)?;
        map.push_gnu(&gnu.sparse)?;
        let mut has_more = gnu.is_extended();
        while has_more {
            let mut more = GnuExtSparseHeader::new();
            if self.fill(more.as_mut_bytes())? < BLOCK {
                return Err(cut_short());
            }
            map.push_gnu(more.sparse())?;
            has_more = more.is_extended();
        }
        let stored = header.entry_size().map_err(malformed)?;
        self.begin(stored);
        if map.is_to_the_end() { map.finish(stored).map(Kind::File) } else { Err(bad_map()) }
    }

    fn begin(&mut self, stored: u64) {
        self.unread = stored;
        self.padding = stored.wrapping_neg() % BLOCK as u64;
    }

    /// The content of an extension, whole.
    fn small(&mut self, header: &Header, left: &mut u64) -> Result<Vec<u8>> {
        let stored = header.entry_size().map_err(malformed)?;
        let most = self.limits.header_bytes;
        *left = left.checked_sub(stored).ok_or(Error::LongHeader { most })?;
        self.begin(stored);
        let mut content = Vec::new();
        self.data(stored, |bytes| {
            content.extend_from_slice(bytes);
            Ok::<_, Error>(())
        })?;
        Ok(content)
    }

    fn header(&mut self) -> Result<Option<Header>> {
        let mut header = Header::new_old();
        match self.fill(header.as_mut_bytes())? {
            0 if self.format == Format::Any => return Ok(None),
            BLOCK => {}
            _ => return Err(cut_short()),
        }
        if crate::is_zero(header.as_bytes()) {
            return Ok(None);
        }
        verify_checksum(&header)?;
        Ok(Some(header))
    }

    fn skip(&mut self) -> Result<()> {
        let (unread, padding) = (std::mem::take(&mut self.unread), std::mem::take(&mut self.padding));
        self.pass(unread, |_| Ok::<_, Error>(()))?;
        self.pass(padding, |_| Ok::<_, Error>(()))
    }

    /// Fills `into`; returns how much there was.
    fn fill(&mut self, into: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            let available = available(&mut self.archive)?;
            let n = available.len().min(into.len() - filled);
            if n == 0 {
                break;
            }
            into[filled..filled + n].copy_from_slice(&available[..n]);
            self.archive.consume(n);
            self.position += n as u64;
            filled += n;
        }
        Ok(filled)
    }

    fn pass<E: From<Error>>(
        &mut self,
        mut bytes: u64,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while bytes > 0 {
            let available = available(&mut self.archive)?;
            if available.is_empty() {
                return Err(cut_short().into());
            }
            let n = available.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
            sink(&available[..n])?;
            self.archive.consume(n);
            self.position += n as u64;
            bytes -= n as u64;
        }
        Ok(())
    }
}

/// Returns the bytes that can be read without asking for more; empty at the end only.
fn available(archive: &mut impl BufRead) -> Result<&[u8]> {
    loop {
        match archive.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
            // The buffer is asked for again: a loop may not give away what it borrowed.
            Ok(_) => break,
        }
    }
    Ok(archive.fill_buf()?)
}

fn stored(header: &Header, pax: &Pax) -> Result<u64> {
    pax.size.map_or_else(|| header.entry_size().map_err(malformed), Ok)
}

fn is_whiteout(header: &Header) -> bool {
    let is_zero = |number: io::Result<Option<u32>>| matches!(number, Ok(Some(0)));
    is_zero(header.device_major()) && is_zero(header.device_minor())
}

fn without_zeros(mut name: Vec<u8>) -> Vec<u8> {
    while name.last() == Some(&0) {
        name.pop();
    }
    name
}

/// The type byte of the header that this block is, as [`Reader`] sees it; `None` where it is none.
pub fn header_type(block: &[u8; BLOCK]) -> Option<u8> {
    let header = Header::from_byte_slice(block);
    verify_checksum(header).ok().map(|()| header.entry_type().as_byte())
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
    Err(Error::Damaged("a tar header with a wrong checksum"))
}

/// A field that was left blank is zero; some writers leave out what does not matter to them.
fn number<T: Default>(field: &[u8], parsed: io::Result<T>) -> Result<T> {
    if field.iter().all(|&byte| byte == 0 || byte == b' ') {
        return Ok(T::default());
    }
    parsed.map_err(malformed)
}
