//! Tar: all that the rest of the crate knows of it.

use std::{
    cell::Cell,
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    rc::Rc,
};

use rustix::fs::Stat;
use tar::{Archive, Builder, EntryType, Header};

use crate::{Error, Result};

/// Bytes of headers, long names and extensions before one entry's own bytes: the archive's reader holds them whole.
pub(crate) const MAX_HEADER_BYTES: u64 = 256 * 1024;

const BLOCK_BYTES: usize = 512;

/// Writes members with their modes and times. Their owners stay here.
pub(crate) struct ArchiveWriter<W: Write> {
    tar: Builder<W>,
    /// Bits of a mode that are written.
    mode_mask: u32,
}

impl<W: Write> ArchiveWriter<W> {
    pub(crate) fn new(writer: W, mode_mask: u32) -> Self {
        Self { tar: Builder::new(writer), mode_mask }
    }

    /// Begins a member. Content and padding of a file are written next.
    pub(crate) fn add(&mut self, path: &Path, stat: &Stat, kind: &MemberKind) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_mode(stat.st_mode & self.mode_mask);
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(if let MemberKind::File { size } = kind { *size } else { 0 });
        header.set_entry_type(match kind {
            MemberKind::File { .. } => EntryType::Regular,
            MemberKind::Directory => EntryType::Directory,
            MemberKind::Link { .. } => EntryType::Symlink,
            MemberKind::HardLink { .. } => EntryType::Link,
            MemberKind::Pipe | MemberKind::Odd => EntryType::Fifo,
        });
        match kind {
            MemberKind::Link { target } | MemberKind::HardLink { target } => {
                self.tar.append_link(&mut header, path, target)
            }
            _ => self.tar.append_data(&mut header, path, io::empty()),
        }
    }

    pub(crate) fn content(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tar.get_mut().write_all(bytes)
    }

    pub(crate) fn pad(&mut self, size: u64) -> io::Result<()> {
        let n_missing = usize::try_from(size.wrapping_neg() % BLOCK_BYTES as u64).unwrap_or(0);
        self.content(&[0; BLOCK_BYTES][..n_missing])
    }

    /// A file with holes, which are not written. Its mode is not masked.
    pub(crate) fn sparse_file(&mut self, path: &Path, file: &mut File) -> io::Result<()> {
        self.tar.append_file(path, file)
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        self.tar.into_inner()?.flush()
    }
}

/// One member of an archive, as it says of itself.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) path: PathBuf,
    pub(crate) kind: MemberKind,
    pub(crate) mode: u32,
    pub(crate) modified: Option<i64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File {
        size: u64,
    },
    Directory,
    Link {
        target: PathBuf,
    },
    HardLink {
        target: PathBuf,
    },
    Pipe,
    /// Something that means nothing here.
    Odd,
}

/// Hands every member of an archive to `take`, with its content.
pub(crate) fn each_member(
    source: impl Read,
    mut take: impl FnMut(Member, &mut dyn Read) -> Result<()>,
) -> Result<()> {
    let broken = |error: io::Error| Error::Archive(error.to_string());
    let header_left = Rc::new(Cell::new(None));
    let mut archive = Archive::new(Bounded { source, header_left: Rc::clone(&header_left) });
    let mut entries = archive.entries().map_err(broken)?;
    loop {
        header_left.set(Some(MAX_HEADER_BYTES));
        let Some(entry) = entries.next() else { return Ok(()) };
        header_left.set(None);
        let mut entry = entry.map_err(broken)?;
        let target = || entry.link_name_bytes().map(|target| path_of(&target)).unwrap_or_default();
        let kind = match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => MemberKind::File { size: entry.size() },
            EntryType::Directory => MemberKind::Directory,
            EntryType::Symlink => MemberKind::Link { target: target() },
            EntryType::Link => MemberKind::HardLink { target: target() },
            EntryType::Fifo => MemberKind::Pipe,
            // Even to leave it out, its holes would have to be counted through, and they may have no end.
            EntryType::GNUSparse => {
                let why = "comes as a sparse file, which no honest sandbox sends";
                return Err(Error::Refused { entry: path_of(&entry.path_bytes()), why });
            }
            _ => MemberKind::Odd,
        };
        let modified = entry.header().mtime().ok().and_then(|seconds| i64::try_from(seconds).ok());
        let mode = entry.header().mode().map_err(broken)?;
        take(Member { path: path_of(&entry.path_bytes()), kind, mode, modified }, &mut entry)?;
        // What is left of the entry is not part of the next one's header.
        io::copy(&mut entry, &mut io::sink()).map_err(broken)?;
    }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Gives only so many bytes between two entries.
struct Bounded<R> {
    source: R,
    /// `None` while an entry's own bytes are read.
    header_left: Rc<Cell<Option<u64>>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(out)?;
        if let Some(left) = self.header_left.get() {
            let left = left.checked_sub(n as u64).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "a header is longer than any honest one")
            })?;
            self.header_left.set(Some(left));
        }
        Ok(n)
    }
}
