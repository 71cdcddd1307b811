//! Opening files without blocking and without being redirected.

use std::{
    ffi::OsStr,
    fs::File,
    os::fd::{BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{Answer, failure, named, wrong_state};

/// Most symlinks followed by hand: the kernel's own limit.
const MAX_LINKS: usize = 40;

/// Flags for everything we open: never block, never become a terminal's owner, never leak into a child.
pub(crate) const QUIET: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

pub(crate) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Opens a file or device for reading. FIFOs and sockets are refused before they are opened: opening one affects the
/// process at its other end.
pub(super) fn open_readable(path: &Path) -> Answer<(File, Stat)> {
    let stat = rustix::fs::stat(path).map_err(|error| failure(named("read", path), error))?;
    refuse_odd(path, &stat)?;
    let fd = rustix::fs::open(path, OFlags::RDONLY | QUIET, Mode::empty())
        .map_err(|error| failure(named("open", path), error))?;
    let stat = rustix::fs::fstat(&fd).map_err(|error| failure(named("read", path), error))?;
    refuse_odd(path, &stat)?;
    Ok((File::from(fd), stat))
}

fn refuse_odd(path: &Path, stat: &Stat) -> Answer<()> {
    let what = match kind_of(stat) {
        FileType::RegularFile | FileType::CharacterDevice | FileType::BlockDevice => return Ok(()),
        FileType::Directory => "directory",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        _ => "file of unknown kind",
    };
    Err(wrong_state(format!("{} is a {what}", path.display())))
}

/// Opens a regular file in `parent`, never the target of a symlink in its place.
pub(super) fn open_regular_at(parent: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<(File, Stat), Errno> {
    let fd = rustix::fs::openat(parent, name, OFlags::RDONLY | OFlags::NOFOLLOW | QUIET, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if kind_of(&stat) != FileType::RegularFile {
        return Err(Errno::NXIO);
    }
    Ok((File::from(fd), stat))
}

pub(super) fn open_directory(path: &Path) -> Answer<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | QUIET;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failure(named("open", path), error))
}

/// A name in an open directory: operations on it stay there, whatever happens to the path meanwhile.
#[derive(Debug)]
pub(super) struct EntryAt {
    pub(super) directory: OwnedFd,
    pub(super) name: std::ffi::CString,
    pub(super) path: PathBuf,
}

impl EntryAt {
    /// The entry of `path`'s last component, which need not exist.
    pub(super) fn of(path: &Path) -> Answer<Self> {
        let (parent, name) = split(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|error| failure(named("open", parent), error))?;
        Ok(Self { directory, name: c_name(name)?, path: path.to_owned() })
    }

    /// Like [`EntryAt::of`], after following symlinks at the end of the path: an editor writes through them.
    pub(super) fn followed(path: &Path) -> Answer<Self> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let entry = Self::of(&path)?;
            match entry.stat() {
                Ok(stat) if kind_of(&stat) == FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&entry.directory, &entry.name, vec![])
                        .map_err(|error| failure(named("read", &path), error))?;
                    let (parent, _) = split(&path)?;
                    use std::os::unix::ffi::OsStrExt;
                    path = parent.join(OsStr::from_bytes(target.as_bytes()));
                }
                _ => return Ok(entry),
            }
        }
        Err(failure(named("follow", &path), Errno::LOOP))
    }

    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.directory, &self.name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
    }
}

/// A path's directory and last component. The root, `.` and `..` at the end have none.
pub(super) fn split(path: &Path) -> Answer<(&Path, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !path.as_os_str().as_encoded_bytes().ends_with(b"/.") => {
            Ok((parent, name))
        }
        _ => Err(wrong_state(format!("{} is not a name in a directory", path.display()))),
    }
}

pub(super) fn c_name(name: &OsStr) -> Answer<std::ffi::CString> {
    std::ffi::CString::new(name.as_encoded_bytes())
        .map_err(|_nul| failure(format!("{} cannot be a name", name.display()), Errno::INVAL))
}

/// Makes `path` and every missing directory above it. Iterative, because a path has up to two thousand components.
pub(super) fn make_directories(path: &Path, mode: Mode) -> Answer<()> {
    let mut made = PathBuf::new();
    for component in path.components() {
        made.push(component);
        match rustix::fs::mkdirat(CWD, &made, mode) {
            Ok(()) => {}
            Err(error) => {
                let is_there =
                    rustix::fs::stat(&made).is_ok_and(|stat| kind_of(&stat) == FileType::Directory);
                if !is_there {
                    // EEXIST would say "already exists", but the problem is that it is not a directory.
                    let error = if error == Errno::EXIST { Errno::NOTDIR } else { error };
                    return Err(failure(named("make", &made), error));
                }
            }
        }
    }
    Ok(())
}
