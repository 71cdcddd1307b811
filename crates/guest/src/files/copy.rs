//! `Copy`: files, symlinks and trees, with their modes.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use guest_protocol::{Failure, FailureKind, Response};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{
    Answer, Cancel, absolute,
    entry::{EntryAt, QUIET, kind_of, open_directory, open_readable, open_regular_at},
    failure, named,
    walk::{Flow, Item, Trouble, Visit, walk},
    write::{Draft, DraftName},
    wrong_state,
};

/// Bytes that the kernel copies in one call; the job can be cancelled between two.
const STEP_BYTES: usize = 8 * 1024 * 1024;
const BUFFER_BYTES: usize = 128 * 1024;

pub(crate) fn copy(from: &str, to: &str, recursive: bool, cancel: &Cancel) -> Answer {
    let (from, to) = (absolute(from)?, absolute(to)?);
    let source = EntryAt::of(&from)?;
    let stat = source.stat().map_err(|error| failure(named("copy", &from), error))?;
    match kind_of(&stat) {
        FileType::RegularFile => {
            let (file, stat) = open_regular_at(source.directory.as_fd(), &source.name)
                .map_err(|error| failure(named("copy", &from), error))?;
            copy_file(file, &stat, EntryAt::followed(&to)?, cancel)?;
        }
        FileType::Symlink if !recursive => {
            // Like `cp`: a symlink named as the source stands for its target.
            let (file, stat) = open_readable(&from)?;
            copy_file(file, &stat, EntryAt::followed(&to)?, cancel)?;
        }
        FileType::Symlink => {
            let target = EntryAt::of(&to)?;
            copy_symlink(source.directory.as_fd(), &source.name, &target.directory, &target.name)
                .map_err(|error| failure(named("copy to", &to), error))?;
        }
        FileType::Directory if recursive => copy_tree(&from, &stat, &to, cancel)?,
        FileType::Directory => {
            return Err(wrong_state(format!("{} is a directory; copy it recursively", from.display())));
        }
        _ => return Err(wrong_state(format!("{} is neither file, symlink nor directory", from.display()))),
    }
    Ok(Response::Done)
}

/// Permission bits of a copy: set-id bits are not passed to another owner's file.
fn copied_mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o1777)
}

/// Replaces the file at `to`, whole or not at all.
fn copy_file(from: File, stat: &Stat, to: EntryAt, cancel: &Cancel) -> Answer<()> {
    if to.stat().is_ok_and(|there| kind_of(&there) != FileType::RegularFile) {
        return Err(wrong_state(format!("{} is there and is not a file", to.path.display())));
    }
    if to.stat().is_ok_and(|there| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)) {
        return Err(wrong_state(format!("{} is the same file", to.path.display())));
    }
    let path = to.path.clone();
    let draft = Draft::beside(to, None, Some(copied_mode(stat)), true, &DraftName::new())?;
    copy_bytes(from, draft.file(), cancel).map_err(|stop| stop.told(&path))?;
    draft.commit()
}

/// Why copying stopped.
enum Stop {
    Io(std::io::Error),
    Cancelled(Failure),
}

impl Stop {
    fn told(self, path: &Path) -> Failure {
        match self {
            Self::Io(error) => failure(named("write", path), error),
            Self::Cancelled(failure) => failure,
        }
    }
}

fn copy_bytes(mut from: File, mut to: &File, cancel: &Cancel) -> Result<(), Stop> {
    loop {
        cancel.check().map_err(Stop::Cancelled)?;
        match rustix::fs::copy_file_range(&from, None, to, None, STEP_BYTES) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                return Err(Stop::Io(std::io::ErrorKind::StorageFull.into()));
            }
            // Some file systems cannot, and those of the kernel report "nothing" for files with content.
            Err(_) => break,
        }
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        cancel.check().map_err(Stop::Cancelled)?;
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => to.write_all(&buffer[..n]).map_err(Stop::Io)?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Stop::Io(error)),
        }
    }
}

fn copy_symlink(
    from: impl AsFd,
    name: &std::ffi::CStr,
    to: impl AsFd,
    new_name: &std::ffi::CStr,
) -> Result<(), Errno> {
    let target = rustix::fs::readlinkat(from, name, vec![])?;
    match rustix::fs::symlinkat(&target, to.as_fd(), new_name) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(to.as_fd(), new_name, AtFlags::empty())?;
            rustix::fs::symlinkat(&target, to, new_name)
        }
        result => result,
    }
}

fn copy_tree(from: &Path, stat: &Stat, to: &Path, cancel: &Cancel) -> Answer<()> {
    refuse_inside(from, to)?;
    let target = EntryAt::of(to)?;
    make_one(&target.directory, &target.name).map_err(|error| failure(named("make", to), error))?;
    let root = open_in(&target.directory, &target.name).map_err(|error| failure(named("open", to), error))?;
    let own = rustix::fs::fstat(&root).map_err(|error| failure(named("read", to), error))?;
    // The open directories of the copy, outermost first.
    let mut open: Vec<OwnedFd> = vec![root];
    walk(open_directory(from)?, from, Trouble::Fail, cancel, |item| {
        // A rename can outrun the check by path, but not this one.
        if (item.stat.st_dev, item.stat.st_ino) == (own.st_dev, own.st_ino) {
            return Err(inside(from, to));
        }
        let target = to.join(item.relative);
        copy_item(item, &mut open, &target, cancel)
    })?;
    if let Some(root) = open.first() {
        rustix::fs::fchmod(root, copied_mode(stat))
            .map_err(|error| failure(named("set the mode of", to), error))?;
    }
    Ok(())
}

fn copy_item(item: &Item<'_>, open: &mut Vec<OwnedFd>, target: &Path, cancel: &Cancel) -> Answer<Flow> {
    let failed = |error: Errno| failure(named("copy to", target), error);
    let directory = open.last().ok_or_else(super::broken)?;
    match (kind_of(item.stat), item.visit) {
        (FileType::Directory, Visit::Enter) => {
            make_one(directory, item.name).map_err(failed)?;
            let opened = open_in(directory, item.name).map_err(failed)?;
            open.push(opened);
        }
        (FileType::Directory, Visit::Leave) => {
            // At the end, so that a directory without write permission can be filled first.
            rustix::fs::fchmod(directory, copied_mode(item.stat)).map_err(failed)?;
            open.pop();
        }
        (FileType::RegularFile, _) => {
            let (file, stat) = open_regular_at(item.parent, item.name).map_err(failed)?;
            let target = EntryAt {
                directory: directory.try_clone().map_err(|error| failure(named("copy to", target), error))?,
                name: item.name.to_owned(),
                path: target.to_owned(),
            };
            copy_file(file, &stat, target, cancel)?;
        }
        (FileType::Symlink, _) => {
            copy_symlink(item.parent, item.name, directory, item.name).map_err(failed)?;
        }
        (FileType::Fifo, _) => match rustix::fs::mkfifoat(directory, item.name, copied_mode(item.stat)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        },
        // Sockets belong to their listeners, devices to the sandbox.
        _ => {}
    }
    Ok(Flow::Into)
}

fn make_one(directory: impl AsFd, name: &std::ffi::CStr) -> Result<(), Errno> {
    match rustix::fs::mkdirat(directory, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

fn open_in(directory: impl AsFd, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | QUIET;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn inside(from: &Path, to: &Path) -> Failure {
    let message = format!("{} lies inside {}, which is to be copied there", to.display(), from.display());
    Failure::new(FailureKind::InvalidRequest, message)
}

fn refuse_inside(from: &Path, to: &Path) -> Answer<()> {
    let real = |path: &Path| std::fs::canonicalize(path).map_err(|error| failure(named("find", path), error));
    let (parent, name) = super::entry::split(to)?;
    let target = real(to).or_else(|_missing| real(parent).map(|parent| parent.join(name)))?;
    if target.starts_with(real(from)?) {
        return Err(inside(from, to));
    }
    Ok(())
}
