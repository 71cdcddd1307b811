//! Reading files and trees of the host, in a thread of their own.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Component, Path, PathBuf},
};

use super::{
    CHUNK_BYTES, MAX_DEPTH,
    beneath::{kind, step},
    copy::Tally,
    place::{Place, failed},
};
use crate::pipe::PipeWriter;
use bytes::BytesMut;
use rustix::{
    fs::{AtFlags, Dir, FileType, OFlags, Stat, fstat, readlinkat, statat},
    io::Errno,
};
use sandbox::{Error, ErrorKind, Result};

/// Without waiting: a pipe that takes the place of a file just before it is opened must not hold us.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);
const READ_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// What is copied from, held open.
#[derive(Debug)]
pub(super) enum Opened {
    File { file: File, mode: u32 },
    Directory(OwnedFd),
}

/// Why reading stopped before its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// Nobody takes the bytes any more.
    Gone,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) fn open(place: &Place) -> Result<Opened> {
    let told = |error| failed("read", &place.shown, error);
    // Looked at before it is opened for reading, which a device or a pipe would notice.
    let looked_at = fstat(place.open(OFlags::PATH).map_err(told)?).map_err(told)?;
    match kind(&looked_at) {
        FileType::RegularFile => {
            let fd = place.open(READ).map_err(told)?;
            let stat = fstat(&fd).map_err(told)?;
            match kind(&stat) {
                FileType::RegularFile => Ok(Opened::File { file: File::from(fd), mode: mode(&stat) }),
                _ => Err(not_copied(&place.shown)),
            }
        }
        FileType::Directory => place.open(READ_DIRECTORY).map(Opened::Directory).map_err(told),
        _ => Err(not_copied(&place.shown)),
    }
}

fn not_copied(path: &Path) -> Error {
    let message = format!("{} on the host is neither a file nor a directory", path.display());
    Error::new(ErrorKind::WrongState, message)
        .with_hint("Pipes, sockets and devices cannot be copied; give a file or a directory.")
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Permission bits, without those that lend the owner's rights.
fn mode(stat: &Stat) -> u32 {
    stat.st_mode & 0o777
}

pub(super) use crate::pipe::Pieces as Chunks;

/// Sends the bytes of a file.
pub(super) fn send_file(
    file: &mut File,
    shown: &Path,
    chunks: &Chunks,
    tally: &mut Tally,
) -> Result<(), Stop> {
    tally.file(0)?;
    loop {
        let mut buffer = BytesMut::zeroed(CHUNK_BYTES);
        let n = match file.read(&mut buffer) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unreadable(shown, &error).into()),
        };
        if n == 0 {
            return Ok(());
        }
        buffer.truncate(n);
        tally.bytes(n as u64)?;
        chunks.blocking_send(Ok(buffer.freeze())).map_err(|_closed| Stop::Gone)?;
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    failed("read", path, errno)
}

/// Sends everything beneath a directory as a tar stream, by descriptors: what is swapped for a link meanwhile is left out.
pub(super) fn send_tree(root: OwnedFd, shown: &Path, chunks: Chunks, tally: Tally) -> Result<Tally, Stop> {
    let writer = PipeWriter::new(chunks);
    let mut walk = Walk { tar: tar::Builder::new(writer), tally, shown, relative: PathBuf::new() };
    walk.directory(root, 0)?;
    let Walk { tar, tally, .. } = walk;
    let sent = tar.into_inner().and_then(|mut writer| writer.flush());
    sent.map(|()| tally).map_err(|_closed| Stop::Gone)
}

struct Walk<'a> {
    tar: tar::Builder<PipeWriter>,
    tally: Tally,
    shown: &'a Path,
    /// Where the walk stands, beneath the root.
    relative: PathBuf,
}

impl Walk<'_> {
    fn at(&self) -> PathBuf {
        self.shown.join(&self.relative)
    }

    fn directory(&mut self, directory: OwnedFd, depth: usize) -> Result<(), Stop> {
        if depth >= MAX_DEPTH {
            return Err(super::copy::too_deep(&self.at().display()).into());
        }
        for name in self.names(directory.as_fd())? {
            self.relative.push(&name);
            self.entry(directory.as_fd(), &name, depth)?;
            self.relative.pop();
        }
        Ok(())
    }

    fn names(&self, directory: BorrowedFd<'_>) -> Result<Vec<OsString>> {
        let told = |error| failed("list", &self.at(), error);
        let mut names = Vec::new();
        for entry in Dir::read_from(directory).map_err(told)? {
            let name = entry.map_err(told)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                self.tally.room_for(names.len() as u64 + 1)?;
                names.push(OsString::from_vec(name));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn entry(&mut self, parent: BorrowedFd<'_>, name: &OsStr, depth: usize) -> Result<(), Stop> {
        let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            result => result.map_err(|error| failed("look at", &self.at(), error))?,
        };
        match kind(&stat) {
            FileType::Symlink => self.link(parent, name, &stat),
            FileType::Directory => match step(parent, name, READ_DIRECTORY) {
                Ok(directory) => {
                    self.tally.directory()?;
                    let mut header = header(&stat, tar::EntryType::Directory, 0);
                    let added = self.tar.append_data(&mut header, &self.relative, io::empty());
                    added.map_err(|_closed| Stop::Gone)?;
                    self.directory(directory, depth + 1)
                }
                Err(error) => self.gone_or(error),
            },
            FileType::RegularFile => match step(parent, name, READ) {
                Ok(fd) => self.file(fd),
                Err(error) => self.gone_or(error),
            },
            _ => self.skip(),
        }
    }

    /// What was looked at is not there any more, or something else is; anything but that is a failure.
    fn gone_or(&mut self, error: Errno) -> Result<(), Stop> {
        match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO => self.skip(),
            error => Err(failed("read", &self.at(), error).into()),
        }
    }

    fn skip(&mut self) -> Result<(), Stop> {
        self.tally.skip(&self.relative.to_string_lossy());
        Ok(())
    }

    fn file(&mut self, fd: OwnedFd) -> Result<(), Stop> {
        let stat = fstat(&fd).map_err(|error| failed("look at", &self.at(), error))?;
        if kind(&stat) != FileType::RegularFile {
            return self.skip();
        }
        let size = size(&stat);
        self.tally.file(size)?;
        let mut header = header(&stat, tar::EntryType::Regular, size);
        let mut content = Exactly { file: File::from(fd), left: size, failure: None };
        match self.tar.append_data(&mut header, &self.relative, &mut content) {
            Ok(()) => Ok(()),
            Err(_) => Err(match content.failure {
                Some(ReadFailure::Shorter) => changed(&self.at()).into(),
                Some(ReadFailure::Io(error)) => unreadable(&self.at(), &error).into(),
                None => Stop::Gone,
            }),
        }
    }

    fn link(&mut self, parent: BorrowedFd<'_>, name: &OsStr, stat: &Stat) -> Result<(), Stop> {
        let Ok(target) = readlinkat(parent, name, Vec::new()) else { return self.skip() };
        let target = Path::new(OsStr::from_bytes(target.to_bytes()));
        let depth = self.relative.components().count() - 1;
        if !stays_inside(target, depth) {
            return self.skip();
        }
        self.tally.link()?;
        let mut header = header(stat, tar::EntryType::Symlink, 0);
        let added = self.tar.append_link(&mut header, &self.relative, target);
        added.map_err(|_closed| Stop::Gone)
    }
}

/// Whether a link in a directory `depth` steps down a tree leads to something in the tree. Steps up may only come first:
/// after a name they would lead up from wherever that name leads, if it is a link itself.
pub(super) fn stays_inside(target: &Path, depth: usize) -> bool {
    let mut n_up = 0;
    let mut has_names = false;
    for component in target.components() {
        match component {
            Component::Normal(_) => has_names = true,
            Component::CurDir => {}
            Component::ParentDir if !has_names => n_up += 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    n_up <= depth && !target.as_os_str().is_empty()
}

fn header(stat: &Stat, kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode(stat));
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header
}

fn changed(path: &Path) -> Error {
    let message = format!("{} on the host changed while it was copied", path.display());
    Error::new(ErrorKind::Unavailable, message).with_hint("Copy it again.")
}

/// As many bytes of a file as its header says; a file that became shorter is an error, or the archive would be broken.
struct Exactly {
    file: File,
    left: u64,
    failure: Option<ReadFailure>,
}

enum ReadFailure {
    Shorter,
    Io(io::Error),
}

impl Read for &mut Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        match self.file.read(&mut buffer[..wanted]) {
            Ok(0) => {
                self.failure = Some(ReadFailure::Shorter);
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(n) => {
                self.left -= n as u64;
                Ok(n)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.failure = Some(ReadFailure::Io(error));
                Err(kind.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_could_leave_the_tree_are_known() {
        for (target, depth, inside) in [
            ("a", 0, true),
            ("./a/b", 0, true),
            ("..foo", 0, true),
            ("..", 0, false),
            ("../x", 1, true),
            ("../../x", 1, false),
            ("/etc/passwd", 3, false),
            // `a` may be a link to the top of the tree.
            ("a/..", 2, false),
            ("", 2, false),
        ] {
            assert_eq!(stays_inside(Path::new(target), depth), inside, "{target} at {depth}");
        }
    }
}
