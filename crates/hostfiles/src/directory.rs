//! One name in an open directory.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, statat},
    io::Errno,
};

/// A directory that is listed. A link to one is none.
pub(crate) const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Without waiting: a pipe that takes the place of a file just before it is opened must not hold us.
pub(crate) const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The kind of what has this name, itself and not what a link points to.
pub(crate) fn kind_at(parent: impl AsFd, name: &OsStr) -> Result<FileType, Errno> {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| kind(&stat))
}

/// Not for our children, and no terminal of ours. Beside `PATH` the kernel takes no other wish.
pub fn quiet(flags: OFlags) -> OFlags {
    let no_terminal = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NOCTTY };
    flags | OFlags::CLOEXEC | no_terminal
}

/// Opens one name of a directory; a link is refused as one.
pub fn step(parent: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let (parent, flags) = (parent.as_fd(), quiet(flags | OFlags::NOFOLLOW));
    match openat(parent, name, flags, Mode::empty()) {
        // Only to tell better why it failed.
        Err(Errno::NOTDIR) if kind_at(parent, name) == Ok(FileType::Symlink) => Err(Errno::LOOP),
        // A descriptor of a link itself is of no use here.
        Ok(opened) if flags.contains(OFlags::PATH) && kind(&fstat(&opened)?) == FileType::Symlink => {
            Err(Errno::LOOP)
        }
        result => result,
    }
}

/// Makes a directory, or opens the one that is there; a link is refused.
pub fn make_directory(parent: impl AsFd, name: &OsStr, mode: Mode, flags: OFlags) -> Result<OwnedFd, Errno> {
    match mkdirat(&parent, name, mode) {
        Ok(()) | Err(Errno::EXIST) => step(parent, name, flags | OFlags::DIRECTORY),
        Err(error) => Err(error),
    }
}

/// Names of what is in a directory, sorted. `admit` is asked before each is kept, with the number of names so far.
pub(crate) fn names<E>(
    directory: BorrowedFd<'_>,
    failed: impl Fn(Errno) -> E,
    admit: impl Fn(u64) -> Result<(), E>,
) -> Result<Vec<OsString>, E> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(&failed)? {
        let name = entry.map_err(&failed)?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            admit(names.len() as u64 + 1)?;
            names.push(OsString::from_vec(name));
        }
    }
    names.sort_unstable();
    Ok(names)
}
