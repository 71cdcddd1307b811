//! The upper directory of an overlay as a layer: the way back from [`unpack_layer`](crate::unpack_layer).

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
    path::PathBuf,
};

use archive::{Attribute, AttributeReader, Content, Kind, Member, Writer};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    unpack::{OpaqueMark, is_kept},
};

/// Directories within directories; each is held open on the way down.
const MAX_DEPTH: usize = 512;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackOptions {
    pub opaque: OpaqueMark,
    pub max_entries: u64,
    /// Directories at the top that whoever made the overlay put there: left out while nothing is in them.
    pub own_directories: Vec<String>,
    /// Files that were put there, and their content: left out while they are as they were.
    pub own_files: Vec<(String, String)>,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self {
            opaque: OpaqueMark::default(),
            max_entries: crate::Limits::default().max_entries,
            own_directories: Vec::new(),
            own_files: Vec::new(),
        }
    }
}

/// Writes what `upper` holds as an uncompressed layer and answers the number of its entries. The same tree gives the
/// same bytes. No link is followed. Sockets and devices stay behind.
pub fn pack_layer(upper: BorrowedFd<'_>, writer: impl Write, options: &PackOptions) -> Result<u64> {
    let mut packer = Packer {
        archive: Writer::new(io::BufWriter::with_capacity(256 * 1024, writer)),
        options,
        levels: Vec::new(),
        linked: HashMap::new(),
        n_entries: 0,
        attributes: AttributeReader::default(),
    };
    let top = rustix::fs::openat(upper, c".", DIRECTORY, Mode::empty())
        .map_err(|errno| failed("open", b".", errno))?;
    packer.enter(Vec::new(), top, None)?;
    packer.all()?;
    packer.archive.finish().map_err(|error| Error::io("write", "layer")(error.into()))?;
    Ok(packer.n_entries)
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn failed(act: &'static str, path: &[u8], errno: Errno) -> Error {
    Error::io(act, shown(path))(errno.into())
}

fn shown(path: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()))
}

struct Level {
    path: Vec<u8>,
    directory: OwnedFd,
    /// Still to come, the next one last.
    names: Vec<CString>,
    /// The directory's own facts, while they are still to be written before anything in it.
    pending: Option<Stat>,
}

struct Packer<'a, W: Write> {
    archive: Writer<io::BufWriter<W>>,
    options: &'a PackOptions,
    levels: Vec<Level>,
    /// First names of files that have several.
    linked: HashMap<(u64, u64), Vec<u8>>,
    n_entries: u64,
    attributes: AttributeReader,
}

impl<W: Write> Packer<'_, W> {
    fn all(&mut self) -> Result<()> {
        while let Some(level) = self.levels.last_mut() {
            let Some(name) = level.names.pop() else {
                self.levels.pop();
                continue;
            };
            let mut path = level.path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.to_bytes());
            let directory = level.directory.try_clone().map_err(Error::io("hold", shown(&path)))?;
            self.one(directory.as_fd(), &name, path)?;
        }
        Ok(())
    }

    fn enter(&mut self, path: Vec<u8>, directory: OwnedFd, pending: Option<Stat>) -> Result<()> {
        if self.levels.len() >= MAX_DEPTH {
            return Err(Error::TooLarge {
                what: format!("the depth of {}", shown(&path).display()),
                limit: "MAX_DEPTH".into(),
                most: MAX_DEPTH as u64,
            });
        }
        let list = || -> Result<Vec<CString>, Errno> {
            let mut names = Vec::new();
            for entry in Dir::read_from(&directory)? {
                let entry = entry?;
                if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    names.push(entry.file_name().to_owned());
                }
            }
            names.sort_unstable_by(|one, other| other.cmp(one));
            Ok(names)
        };
        let names = list().map_err(|errno| failed("list", &path, errno))?;
        let is_opaque = self.is_opaque(&directory);
        self.levels.push(Level { path: path.clone(), directory, names, pending });
        if is_opaque {
            let mut mark = path;
            if !mark.is_empty() {
                mark.push(b'/');
            }
            mark.extend_from_slice(OPAQUE);
            self.mark(&mark)?;
        }
        Ok(())
    }

    fn is_opaque(&self, directory: &OwnedFd) -> bool {
        let mut value = [0; 2];
        let read = rustix::fs::fgetxattr(directory, self.options.opaque.attribute(), &mut value[..]);
        read.is_ok_and(|length| &value[..length] == b"y")
    }

    fn one(&mut self, directory: BorrowedFd<'_>, name: &CStr, path: Vec<u8>) -> Result<()> {
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| failed("look at", &path, errno))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::CharacterDevice && stat.st_rdev == 0 {
            let at = path.len() - name.to_bytes().len();
            return self.mark(&[&path[..at], WHITEOUT, name.to_bytes()].concat());
        }
        if name.to_bytes().starts_with(WHITEOUT) {
            return Err(Error::Refused {
                entry: shown(&path).display().to_string(),
                why: "a name that begins with .wh. stands for a removal in every image".into(),
            });
        }
        match kind {
            FileType::Directory => {
                let open = rustix::fs::openat(directory, name, DIRECTORY, Mode::empty())
                    .map_err(|errno| failed("open", &path, errno))?;
                let is_own = self.options.own_directories.iter().any(|own| own.as_bytes() == path);
                if !is_own {
                    self.directory(&path, open.as_fd(), &stat)?;
                }
                self.enter(path, open, is_own.then_some(stat))
            }
            FileType::RegularFile => self.file(directory, name, &path),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(directory, name, Vec::new())
                    .map_err(|errno| failed("read", &path, errno))?;
                self.bare(path, Kind::Symlink { target: target.into_bytes() }, &stat)
            }
            FileType::Fifo => self.bare(path, Kind::Fifo, &stat),
            _ => Ok(()),
        }
    }

    /// Counts an entry, and writes directories above it that waited for one.
    fn begin(&mut self) -> Result<()> {
        for index in 0..self.levels.len() {
            if let Some(stat) = self.levels[index].pending.take() {
                let level = &self.levels[index];
                let (path, open) = (level.path.clone(), level.directory.try_clone());
                let open = open.map_err(Error::io("hold", shown(&path)))?;
                self.directory(&path, open.as_fd(), &stat)?;
            }
        }
        self.n_entries += 1;
        if self.n_entries > self.options.max_entries {
            return Err(Error::TooLarge {
                what: "the number of entries of the new layer".to_owned(),
                limit: "max_entries".into(),
                most: self.options.max_entries,
            });
        }
        Ok(())
    }

    /// Times are to the second, as in all layers.
    fn append(&mut self, member: Member, data: impl Read) -> Result<()> {
        let member = member.to_the_second();
        let added = self.archive.add(&member, data);
        added.map_err(|error| Error::io("write", shown(&member.path))(error.into()))
    }

    /// Writes a member that has neither content nor attributes.
    fn bare(&mut self, path: Vec<u8>, kind: Kind, stat: &Stat) -> Result<()> {
        self.begin()?;
        self.append(Member::of(path, kind, stat), io::empty())
    }

    /// An empty file with a name that means something.
    fn mark(&mut self, path: &[u8]) -> Result<()> {
        self.begin()?;
        self.append(Member::new(path, Kind::File(Content::default()), 0o644), io::empty())
    }

    fn directory(&mut self, path: &[u8], open: BorrowedFd<'_>, stat: &Stat) -> Result<()> {
        self.begin()?;
        let attributes = self.xattrs(open, path)?;
        self.append(Member { attributes, ..Member::of(path, Kind::Directory, stat) }, io::empty())
    }

    fn file(&mut self, directory: BorrowedFd<'_>, name: &CStr, path: &[u8]) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = rustix::fs::openat(directory, name, flags, Mode::empty())
            .map_err(|errno| failed("open", path, errno))?;
        let stat = rustix::fs::fstat(&open).map_err(|errno| failed("look at", path, errno))?;
        let mut file = File::from(open);
        if self.is_own(&mut file, path, stat.st_size)? {
            return Ok(());
        }
        if stat.st_nlink > 1 {
            if let Some(first) = self.linked.get(&(stat.st_dev, stat.st_ino)).cloned() {
                return self.bare(path.to_vec(), Kind::HardLink { target: first }, &stat);
            }
            self.linked.insert((stat.st_dev, stat.st_ino), path.to_vec());
        }
        self.begin()?;
        let attributes = self.xattrs(file.as_fd(), path)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let member = Member { attributes, ..Member::of(path, Kind::File(Content::whole(size)), &stat) };
        // One that has shrunk meanwhile must not shift what follows.
        self.append(member, file.take(size).chain(io::repeat(0)).take(size))
    }

    fn is_own(&self, file: &mut File, path: &[u8], size: i64) -> Result<bool> {
        let own = self.options.own_files.iter().find(|(own, _)| own.as_bytes() == path);
        let Some((_, content)) = own.filter(|(_, content)| usize::try_from(size) == Ok(content.len())) else {
            return Ok(false);
        };
        let mut found = Vec::new();
        file.take(content.len() as u64).read_to_end(&mut found).map_err(Error::io("read", shown(path)))?;
        io::Seek::rewind(file).map_err(Error::io("read", shown(path)))?;
        Ok(found == content.as_bytes())
    }

    /// Attributes that can be written in every layer.
    fn xattrs(&mut self, open: BorrowedFd<'_>, path: &[u8]) -> Result<Vec<Attribute>> {
        self.attributes
            .read(open, |name| is_kept(name) && !name.contains(&b'='))
            .map_err(|errno| failed("look at", path, errno))
    }
}
