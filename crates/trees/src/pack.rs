//! A tree as an archive: the same bytes for the same tree.

use std::{
    collections::HashMap,
    ffi::CStr,
    io::{BufWriter, Write},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::fs::Stat;

use crate::{
    archive::{BLOCK, END, Kind, MAX_PARTS, MAX_PATH_BYTES, Member, sparse_map, write_header},
    attributes::{Attribute, Attributes, Reader},
    content::{self, PIECE_BYTES},
    error::{Error, Result},
    ladder::{Identity, identity},
    walk::{Step, Walk},
};

const BUFFER_BYTES: usize = 256 * 1024;

/// What went into an archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packed {
    pub n_entries: u64,
    /// Length of the archive.
    pub bytes: u64,
}

/// Writes the tree in `directory`, which nobody changes meanwhile, as an uncompressed tar.
pub fn pack(directory: BorrowedFd<'_>, archive: impl Write) -> Result<Packed> {
    let mut packer = Packer {
        archive: BufWriter::with_capacity(BUFFER_BYTES, archive),
        packed: Packed::default(),
        path: Vec::new(),
        linked: HashMap::new(),
        reader: Reader::new(),
        piece: Vec::new(),
    };
    let mut walk = Walk::new(directory)?;
    while let Some(step) = walk.next()? {
        packer.add(&walk, step)?;
    }
    packer.write(&END)?;
    packer.archive.flush().map_err(|error| Error::archive(&error))?;
    Ok(packer.packed)
}

struct Packer<W: Write> {
    archive: BufWriter<W>,
    packed: Packed,
    /// Of the directory we are in.
    path: Vec<u8>,
    /// The first name of files with several.
    linked: HashMap<Identity, Vec<u8>>,
    reader: Reader,
    piece: Vec<u8>,
}

impl<W: Write> Packer<W> {
    fn add(&mut self, walk: &Walk<'_>, step: Step) -> Result<()> {
        match step {
            Step::Enter { name, stat } => {
                let path = self.path_of(&name)?;
                let extended = self
                    .reader
                    .read(walk.here())
                    .map_err(|errno| Error::io("read the attributes of", walk.shown(None), errno))?;
                self.path.clone_from(&path);
                self.member(path, Kind::Directory, &stat, extended)
            }
            Step::Leave { .. } => {
                let parent = self.path.iter().rposition(|&byte| byte == b'/').unwrap_or_default();
                self.path.truncate(parent);
                Ok(())
            }
            Step::File { name, file, stat } => self.file(walk, &name, &file, &stat),
            Step::Link { name, stat } => {
                let target = rustix::fs::readlinkat(walk.here(), &name, Vec::new())
                    .map_err(|errno| walk.failed("read the link", &name, errno))?;
                self.plain(&name, Kind::Link { target: target.into_bytes() }, &stat)
            }
            Step::Fifo { name, stat } => self.plain(&name, Kind::Fifo, &stat),
            Step::Socket { name, stat } => self.plain(&name, Kind::Socket, &stat),
            Step::Whiteout { name } => {
                let path = self.path_of(&name)?;
                // Nothing is asked of a whiteout but that it is there.
                let never = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 };
                let attributes = Attributes { uid: 0, gid: 0, mode: 0, mtime: never };
                self.header(&Member { path, kind: Kind::Whiteout, attributes, extended: Vec::new() })
            }
            Step::Device => Ok(()),
        }
    }

    fn path_of(&self, name: &CStr) -> Result<Vec<u8>> {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        if path.len() > MAX_PATH_BYTES {
            return Err(Error::TooLarge {
                what: "the length of a path in the tree".to_owned(),
                limit: "MAX_PATH_BYTES".to_owned(),
                most: MAX_PATH_BYTES as u64,
            });
        }
        Ok(path)
    }

    /// Where this is a further name of a file, writes it as that.
    fn is_further_name(&mut self, path: &[u8], stat: &Stat) -> Result<bool> {
        if stat.st_nlink < 2 {
            return Ok(false);
        }
        let Some(first) = self.linked.get(&identity(stat)) else {
            self.linked.insert(identity(stat), path.to_vec());
            return Ok(false);
        };
        let kind = Kind::HardLink { target: first.clone() };
        self.member(path.to_vec(), kind, stat, Vec::new())?;
        Ok(true)
    }

    fn plain(&mut self, name: &CStr, kind: Kind, stat: &Stat) -> Result<()> {
        let path = self.path_of(name)?;
        if self.is_further_name(&path, stat)? {
            return Ok(());
        }
        self.member(path, kind, stat, Vec::new())
    }

    fn file(&mut self, walk: &Walk<'_>, name: &CStr, file: &OwnedFd, stat: &Stat) -> Result<()> {
        let path = self.path_of(name)?;
        if self.is_further_name(&path, stat)? {
            return Ok(());
        }
        let extended = self
            .reader
            .read(file.as_fd())
            .map_err(|errno| walk.failed("read the attributes of", name, errno))?;
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        let parts = self.parts(walk, name, file, size)?;
        let written: u64 = parts.iter().map(|(_, length)| length).sum();
        if written == size {
            self.member(path, Kind::File { stored: size }, stat, extended)?;
        } else {
            let map = sparse_map(&parts, size);
            let stored = written + map.len() as u64;
            self.member(path, Kind::Sparse { stored, size }, stat, extended)?;
            self.write(&map)?;
        }
        for (offset, length) in parts {
            self.content(walk, name, file, offset, length)?;
        }
        self.fill_block(written)
    }

    /// What is to be written of a file: all of it but pieces that are nothing but zeros. Decided by content alone, so that the same
    /// file is the same archive however its holes came about.
    fn parts(&mut self, walk: &Walk<'_>, name: &CStr, file: &OwnedFd, size: u64) -> Result<Vec<(u64, u64)>> {
        if size <= PIECE_BYTES {
            return Ok(if size == 0 { Vec::new() } else { vec![(0, size)] });
        }
        let failed = |errno| walk.failed("read", name, errno);
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut at = 0;
        while at < size {
            let written = content::next_written(file, at, size).map_err(failed)?;
            if written > at {
                at = written;
                continue;
            }
            let length = PIECE_BYTES.min(size - at);
            if !content::is_zero(self.piece(walk, name, file, at, length)?) {
                match parts.last_mut() {
                    Some((offset, before)) if *offset + *before == at => *before += length,
                    _ => parts.push((at, length)),
                }
            }
            at += length;
        }
        if parts.len() >= MAX_PARTS {
            return Err(Error::TooLarge {
                what: format!("the number of parts of the file {:?}", walk.shown(Some(name))),
                limit: "MAX_PARTS".to_owned(),
                most: MAX_PARTS as u64,
            });
        }
        Ok(parts)
    }

    fn piece(&mut self, walk: &Walk<'_>, name: &CStr, file: &OwnedFd, at: u64, length: u64) -> Result<&[u8]> {
        let length = usize::try_from(length.min(PIECE_BYTES)).unwrap_or_default();
        if self.piece.len() < length {
            self.piece.resize(length, 0);
        }
        let read = content::read_piece(file.as_fd(), at, &mut self.piece[..length])
            .map_err(|errno| walk.failed("read", name, errno))?;
        if read < length {
            return Err(Error::Changed { path: walk.shown(Some(name)) });
        }
        Ok(&self.piece[..length])
    }

    fn content(
        &mut self,
        walk: &Walk<'_>,
        name: &CStr,
        file: &OwnedFd,
        begin: u64,
        length: u64,
    ) -> Result<()> {
        let (mut at, end) = (begin, begin + length);
        while at < end {
            let length = PIECE_BYTES.min(end - at);
            self.piece(walk, name, file, at, length)?;
            let piece = std::mem::take(&mut self.piece);
            let written = self.write(&piece[..usize::try_from(length).unwrap_or_default()]);
            self.piece = piece;
            written?;
            at += length;
        }
        Ok(())
    }

    fn member(&mut self, path: Vec<u8>, kind: Kind, stat: &Stat, extended: Vec<Attribute>) -> Result<()> {
        self.header(&Member { path, kind, attributes: Attributes::of(stat), extended })
    }

    fn header(&mut self, member: &Member) -> Result<()> {
        self.packed.n_entries += 1;
        self.write(&write_header(member)?)
    }

    fn fill_block(&mut self, written: u64) -> Result<()> {
        let missing = usize::try_from(written.wrapping_neg() % BLOCK as u64).unwrap_or_default();
        self.write(&[0; BLOCK][..missing])
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.packed.bytes += bytes.len() as u64;
        self.archive.write_all(bytes).map_err(|error| Error::archive(&error))
    }
}
