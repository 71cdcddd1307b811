//! A tree as an archive: the same bytes for the same tree.

use std::{
    collections::HashMap,
    ffi::CStr,
    io::{BufWriter, Write},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use archive::{Content, Kind, Member, Part, Writer};
use rustix::fs::Stat;

use crate::{
    MAX_PARTS, MAX_PATH_BYTES,
    attributes::{Attribute, Reader},
    content::{self, PIECE_BYTES},
    error::{Error, Result},
    ladder::{Identity, identity},
    walk::{Step, Walk},
};

const BUFFER_BYTES: usize = 256 * 1024;
/// The two empty blocks at the end of every archive.
const END_BYTES: u64 = 2 * archive::BLOCK as u64;

/// The size of an archive that was packed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packed {
    pub n_entries: u64,
    /// Length of the archive.
    pub bytes: u64,
}

/// Writes the tree in `directory`, which nobody changes meanwhile, as an uncompressed tar.
pub fn pack(directory: BorrowedFd<'_>, archive: impl Write) -> Result<Packed> {
    let mut packer = Packer {
        archive: Writer::new(BufWriter::with_capacity(BUFFER_BYTES, archive)),
        n_entries: 0,
        path: Vec::new(),
        linked: HashMap::new(),
        reader: Reader::default(),
        piece: Vec::new(),
    };
    let mut walk = Walk::new(directory)?;
    while let Some(step) = walk.next()? {
        packer.add(&walk, step)?;
    }
    let Packer { archive, n_entries, .. } = packer;
    let bytes = archive.written() + END_BYTES;
    archive.finish()?;
    Ok(Packed { n_entries, bytes })
}

struct Packer<W: Write> {
    archive: Writer<BufWriter<W>>,
    n_entries: u64,
    /// The path of the directory we are in.
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
                self.plain(&name, Kind::Symlink { target: target.into_bytes() }, &stat)
            }
            Step::Fifo { name, stat } => self.plain(&name, Kind::Fifo, &stat),
            Step::Socket { name, stat } => self.plain(&name, Kind::Socket, &stat),
            Step::Whiteout { name } => {
                // Nothing is asked of a whiteout but that it is there.
                let whiteout = Member::new(self.path_of(&name)?, Kind::Whiteout, 0);
                self.begin(&whiteout)
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
        self.member(path, Kind::File(Content { size, parts: parts.clone() }), stat, extended)?;
        for part in parts {
            self.content(walk, name, file, part)?;
        }
        Ok(())
    }

    /// Finds the parts of a file to write: all of it but pieces that are nothing but zeros. Decided by content alone,
    /// so that the same file is the same archive however its holes came about.
    fn parts(&mut self, walk: &Walk<'_>, name: &CStr, file: &OwnedFd, size: u64) -> Result<Vec<Part>> {
        if size <= PIECE_BYTES {
            return Ok(Content::whole(size).parts);
        }
        let failed = |errno| walk.failed("read", name, errno);
        let mut parts: Vec<Part> = Vec::new();
        let mut at = 0;
        while at < size {
            let written = content::next_written(file, at, size).map_err(failed)?;
            if written > at {
                at = written;
                continue;
            }
            let length = PIECE_BYTES.min(size - at);
            if !archive::is_zero(self.piece(walk, name, file, at, length)?) {
                match parts.last_mut() {
                    Some(part) if part.end() == at => part.length += length,
                    _ => parts.push(Part { offset: at, length }),
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

    fn content(&mut self, walk: &Walk<'_>, name: &CStr, file: &OwnedFd, part: Part) -> Result<()> {
        let mut at = part.offset;
        while at < part.end() {
            let length = PIECE_BYTES.min(part.end() - at);
            self.piece(walk, name, file, at, length)?;
            self.archive.write(&self.piece[..usize::try_from(length).unwrap_or_default()])?;
            at += length;
        }
        Ok(())
    }

    fn member(&mut self, path: Vec<u8>, kind: Kind, stat: &Stat, attributes: Vec<Attribute>) -> Result<()> {
        self.begin(&Member { attributes, ..Member::of(path, kind, stat) })
    }

    fn begin(&mut self, member: &Member) -> Result<()> {
        self.n_entries += 1;
        Ok(self.archive.begin(member)?)
    }
}
