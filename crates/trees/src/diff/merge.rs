//! Layers as one tree.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat, fgetxattr, openat, statat},
    io::Errno,
};

use super::FileKind;
use crate::{
    attributes::OPAQUE,
    content,
    error::{Error, Result},
    ladder::DIRECTORY,
    reach,
    walk::{DirectoryEntry, is_whiteout, look_at, names_in},
};

/// Numbers of layers, topmost first.
pub(super) type Stack = Vec<usize>;

/// The meaning of a name when layers are merged.
#[derive(Debug)]
pub(super) enum Node {
    Leaf {
        layer: usize,
        stat: Stat,
    },
    /// All layers that have a part of it.
    Directory {
        layers: Stack,
        stat: Stat,
    },
}

impl Node {
    /// The topmost layer that has it.
    pub(super) fn layer(&self) -> usize {
        match self {
            Self::Leaf { layer, .. } => *layer,
            Self::Directory { layers, .. } => layers.first().copied().unwrap_or(usize::MAX),
        }
    }

    /// Whether both come from the very same layers.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leaf { layer: one, .. }, Self::Leaf { layer: other, .. }) => one == other,
            (Self::Directory { layers: one, .. }, Self::Directory { layers: other, .. }) => one == other,
            _ => false,
        }
    }

    pub(super) fn stat(&self) -> &Stat {
        match self {
            Self::Leaf { stat, .. } | Self::Directory { stat, .. } => stat,
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        kind_of(self.stat())
    }

    pub(super) fn into_stack(self) -> Option<Stack> {
        match self {
            Self::Leaf { .. } => None,
            Self::Directory { layers, .. } => Some(layers),
        }
    }
}

pub(super) fn kind_of(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        _ => FileKind::Device,
    }
}

#[derive(Debug)]
pub(super) struct Layers<'a> {
    tops: &'a [BorrowedFd<'a>],
    /// The last directory, in the layers asked for it: most lookups are in one directory.
    path: Vec<Vec<u8>>,
    open: Vec<Option<OwnedFd>>,
    listing: Vec<u8>,
}

impl<'a> Layers<'a> {
    pub(super) fn new(tops: &'a [BorrowedFd<'a>]) -> Self {
        let mut layers =
            Self { tops, path: Vec::new(), open: Vec::new(), listing: Vec::with_capacity(32 * 1024) };
        layers.close();
        layers
    }

    fn close(&mut self) {
        self.open = self.tops.iter().map(|_top| None).collect();
    }

    /// The directory at `path` in one layer; `None` if it has none.
    pub(super) fn directory(&mut self, path: &[Vec<u8>], layer: usize) -> Result<Option<BorrowedFd<'_>>> {
        if self.path != path {
            self.path = path.to_vec();
            self.close();
        }
        let (Some(top), Some(open)) = (self.tops.get(layer), self.open.get_mut(layer)) else {
            return Ok(None);
        };
        if open.is_none() {
            let names: Vec<&[u8]> = path.iter().map(Vec::as_slice).collect();
            match reach::directory(*top, &names) {
                Ok(directory) => *open = Some(directory),
                // Removed, or something else by now, or under a mount that no layer shows.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(None),
                Err(errno) => return Err(failed("open", path, None, errno)),
            }
        }
        Ok(open.as_ref().map(OwnedFd::as_fd))
    }

    /// Finds what `name` in the directory at `path` means if the layers of `stack` are merged.
    pub(super) fn find(&mut self, path: &[Vec<u8>], stack: &[usize], name: &CStr) -> Result<Option<Node>> {
        let mut found: Option<(Stack, Stat)> = None;
        for &layer in stack {
            let Some(directory) = self.directory(path, layer)? else { continue };
            let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                looked => looked.map_err(|errno| failed("look at", path, Some(name), errno))?,
            };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            match &mut found {
                // A directory above hides a non-directory, and everything below that.
                Some(_) if !is_directory => break,
                None if is_whiteout(&stat) => return Ok(None),
                None if !is_directory => return Ok(Some(Node::Leaf { layer, stat })),
                Some((layers, _)) => layers.push(layer),
                None => found = Some((vec![layer], stat)),
            }
            if is_opaque(directory, name) {
                break;
            }
        }
        Ok(found.map(|(layers, stat)| Node::Directory { layers, stat }))
    }

    /// All names in the directory at `path` of these layers, in descending order.
    pub(super) fn names(&mut self, path: &[Vec<u8>], layers: &[usize]) -> Result<Vec<CString>> {
        let mut all = BTreeSet::new();
        for &layer in layers {
            let Some(directory) = self.directory(path, layer)? else { continue };
            let listed = openat(directory, c".", DIRECTORY, Mode::empty());
            let names = match listed {
                Err(Errno::NOENT) => continue,
                opened => opened
                    .and_then(|directory| names_in(&directory, &mut self.listing))
                    .map_err(|errno| failed("list", path, None, errno))?,
            };
            all.extend(names.into_iter().map(|(name, _)| name));
        }
        Ok(all.into_iter().rev().collect())
    }

    /// Opens the file or directory that was found.
    pub(super) fn open(&mut self, path: &[Vec<u8>], name: &CStr, node: &Node) -> Result<Option<OwnedFd>> {
        let Some(directory) = self.directory(path, node.layer())? else { return Ok(None) };
        match look_at(directory, name, FileType::from_raw_mode(node.stat().st_mode)) {
            Ok(DirectoryEntry::Directory(file, _) | DirectoryEntry::File(file, _)) => Ok(Some(file)),
            Ok(DirectoryEntry::Other(_)) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(failed("open", path, Some(name), errno)),
        }
    }

    pub(super) fn target(&mut self, path: &[Vec<u8>], name: &CStr, node: &Node) -> Result<Option<CString>> {
        let Some(directory) = self.directory(path, node.layer())? else { return Ok(None) };
        match rustix::fs::readlinkat(directory, name, Vec::new()) {
            Ok(target) => Ok(Some(target)),
            Err(Errno::NOENT | Errno::INVAL | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(failed("read the link", path, Some(name), errno)),
        }
    }

    /// The content of a file of at most `most` bytes.
    pub(super) fn read(
        &mut self,
        path: &[Vec<u8>],
        name: &CStr,
        node: &Node,
        most: u64,
    ) -> Result<Option<Vec<u8>>> {
        let size = u64::try_from(node.stat().st_size).unwrap_or(u64::MAX);
        if node.kind() != FileKind::File || size > most {
            return Ok(None);
        }
        let Some(file) = self.open(path, name, node)? else { return Ok(None) };
        let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
        let read = content::read_piece(file.as_fd(), 0, &mut bytes)
            .map_err(|errno| failed("read", path, Some(name), errno))?;
        bytes.truncate(read);
        Ok(Some(bytes))
    }
}

fn is_opaque(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut value = [0; 2];
    openat(parent, name, flags, Mode::empty())
        .and_then(|directory| fgetxattr(directory, OPAQUE, &mut value[..]))
        .is_ok_and(|length| value[..length.min(2)] == *b"y")
}

pub(super) fn failed(act: &str, path: &[Vec<u8>], name: Option<&CStr>, errno: Errno) -> Error {
    let names = path.iter().map(Vec::as_slice).chain(name.map(CStr::to_bytes));
    let shown: Vec<_> = names.take(64).collect();
    Error::io(act, String::from_utf8_lossy(&shown.join(&b'/')).into_owned(), errno)
}
