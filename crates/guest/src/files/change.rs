//! Small changes: directories, names, links, modes and owners.

use std::{ffi::CStr, os::fd::AsFd, path::Path};

use guest_protocol::{Failure, FailureKind, Response};
use rustix::{
    fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Uid},
    io::Errno,
};

use super::{
    Answer, Cancel, absolute,
    entry::{EntryAt, kind_of, make_directories, open_directory, split},
    failure, named,
    walk::{Flow, Trouble, Visit, read_names, walk},
    wrong_state,
};

/// Names taken from a directory at once while it is emptied.
const REMOVE_BATCH: usize = 4096;
/// How often a directory is emptied again while a process keeps filling it.
const REMOVE_ROUNDS: usize = 64;

pub(super) fn mode_of(mode: u32) -> Answer<Mode> {
    if mode > 0o7777 {
        return Err(Failure::new(FailureKind::InvalidRequest, format!("{mode:o} is not a mode")));
    }
    Ok(Mode::from_raw_mode(mode))
}

pub(crate) fn mkdir(path: &str, parents: bool, mode: Option<u32>) -> Answer {
    let path = absolute(path)?;
    let wanted = mode.map(mode_of).transpose()?;
    let usual = Mode::from_raw_mode(0o755);
    if parents {
        let is_there = rustix::fs::stat(&path).is_ok_and(|stat| kind_of(&stat) == FileType::Directory);
        make_directories(&path, usual)?;
        if is_there {
            return Ok(Response::Done);
        }
    } else {
        rustix::fs::mkdir(&path, usual).map_err(|error| failure(named("make", &path), error))?;
    }
    if let Some(mode) = wanted {
        // By descriptor and without following links: the new directory may have been swapped already.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(&path, flags, Mode::empty())
            .and_then(|directory| rustix::fs::fchmod(directory, mode))
            .map_err(|error| failure(named("set the mode of", &path), error))?;
    }
    Ok(Response::Done)
}

pub(crate) fn remove(path: &str, recursive: bool, cancel: &Cancel) -> Answer {
    let path = absolute(path)?;
    let failed = |error: Errno| failure(named("remove", &path), error);
    let entry = EntryAt::of(&path)?;
    let stat = entry.stat().map_err(failed)?;
    if kind_of(&stat) != FileType::Directory {
        rustix::fs::unlinkat(&entry.directory, &entry.name, AtFlags::empty()).map_err(failed)?;
        return Ok(Response::Done);
    }
    for _ in 0..REMOVE_ROUNDS {
        match rustix::fs::unlinkat(&entry.directory, &entry.name, AtFlags::REMOVEDIR) {
            Ok(()) => return Ok(Response::Done),
            Err(Errno::NOENT) if recursive => return Ok(Response::Done),
            Err(Errno::NOTEMPTY | Errno::EXIST) if recursive => {}
            Err(error) => return Err(failed(error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory =
            rustix::fs::openat(&entry.directory, &entry.name, flags, Mode::empty()).map_err(failed)?;
        empty(directory, &path, cancel)?;
    }
    Err(wrong_state(format!("{} fills up as fast as it is emptied", path.display())))
}

/// Removes everything in a directory now, whatever its size.
fn empty(directory: std::os::fd::OwnedFd, path: &Path, cancel: &Cancel) -> Answer<()> {
    // First the plain files: the directory may be too large to be walked.
    loop {
        cancel.check()?;
        let names =
            read_names(&directory, REMOVE_BATCH).map_err(|error| failure(named("list", path), error))?;
        let removed = names
            .iter()
            .filter(|name| rustix::fs::unlinkat(&directory, name.as_c_str(), AtFlags::empty()).is_ok())
            .count();
        if removed == 0 {
            break;
        }
    }
    walk(directory, path, Trouble::Fail, cancel, |item| {
        let is_directory = kind_of(item.stat) == FileType::Directory;
        let flags = match (is_directory, item.visit) {
            (true, Visit::Enter) => return Ok(Flow::Into),
            (true, Visit::Leave) => AtFlags::REMOVEDIR,
            (false, _) => AtFlags::empty(),
        };
        match rustix::fs::unlinkat(item.parent, item.name, flags) {
            // Gone, changed or refilled meanwhile: the next round handles it.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR) => Ok(Flow::Into),
            Err(error) => Err(failure(named("remove", &path.join(item.relative)), error)),
        }
    })?;
    Ok(())
}

pub(crate) fn rename(from: &str, to: &str, replace: bool) -> Answer {
    let (from, to) = (absolute(from)?, absolute(to)?);
    // For the root and `.` the kernel's error would name nothing.
    split(&from)?;
    split(&to)?;
    let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    rustix::fs::renameat_with(CWD, &from, CWD, &to, flags).map_err(|error| {
        if error == Errno::XDEV {
            return wrong_state(format!(
                "{} and {} are on different file systems",
                from.display(),
                to.display()
            ));
        }
        let message = format!("could not rename {} to {}", from.display(), to.display());
        if error == Errno::NOTEMPTY {
            return Failure::new(FailureKind::AlreadyExists, format!("{message}: {error}"));
        }
        failure(message, error)
    })?;
    Ok(Response::Done)
}

pub(crate) fn symlink(target: &str, path: &str) -> Answer {
    let path = absolute(path)?;
    if target.is_empty() || target.contains('\0') {
        return Err(Failure::new(
            FailureKind::InvalidRequest,
            "the target of a symlink is empty or has a NUL",
        ));
    }
    rustix::fs::symlink(target, &path).map_err(|error| failure(named("make the symlink", &path), error))?;
    Ok(Response::Done)
}

pub(crate) fn readlink(path: &str) -> Answer {
    let path = absolute(path)?;
    let target = rustix::fs::readlink(&path, vec![]).map_err(|error| match error {
        Errno::INVAL => wrong_state(format!("{} is not a symlink", path.display())),
        error => failure(named("read the link", &path), error),
    })?;
    Ok(Response::Link { target: target.to_string_lossy().into_owned() })
}

pub(crate) fn chmod(path: &str, mode: u32, recursive: bool, cancel: &Cancel) -> Answer {
    let path = absolute(path)?;
    let mode = mode_of(mode)?;
    let failed = |path: &Path, error| failure(named("set the mode of", path), error);
    rustix::fs::chmod(&path, mode).map_err(|error| failed(&path, error))?;
    if recursive && is_directory(&path)? {
        walk(open_directory(&path)?, &path, Trouble::Fail, cancel, |item| {
            if item.visit == Visit::Leave || kind_of(item.stat) == FileType::Symlink {
                return Ok(Flow::Into);
            }
            match chmod_itself(item.parent, item.name, mode) {
                Ok(()) | Err(Errno::NOENT) => Ok(Flow::Into),
                Err(error) => Err(failed(&path.join(item.relative), error)),
            }
        })?;
    }
    Ok(Response::Done)
}

/// `fchmodat` always follows links, so the file is opened by a descriptor that leads nowhere else.
fn chmod_itself(parent: impl AsFd, name: &CStr, mode: Mode) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::openat(parent.as_fd(), name, flags, Mode::empty())?;
    if kind_of(&rustix::fs::fstat(&held)?) == FileType::Symlink {
        return Ok(());
    }
    match rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), mode) {
        // A root without /proc: by name then.
        Err(Errno::NOENT | Errno::NOTDIR) => rustix::fs::chmodat(parent, name, mode, AtFlags::empty()),
        result => result,
    }
}

fn is_directory(path: &Path) -> Answer<bool> {
    let stat = rustix::fs::stat(path).map_err(|error| failure(named("stat", path), error))?;
    Ok(kind_of(&stat) == FileType::Directory)
}

pub(crate) fn chown(
    path: &str,
    uid: Option<u32>,
    gid: Option<u32>,
    recursive: bool,
    cancel: &Cancel,
) -> Answer {
    let path = absolute(path)?;
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(Failure::new(
            FailureKind::InvalidRequest,
            format!("{} is not a user or group", u32::MAX),
        ));
    }
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    let failed = |path: &Path, error| match error {
        // An id that this sandbox does not have.
        Errno::INVAL => Failure::new(
            FailureKind::Denied,
            format!("{}: there is no such user or group in this sandbox", named("change the owner of", path)),
        ),
        error => failure(named("change the owner of", path), error),
    };
    rustix::fs::chownat(CWD, &path, uid, gid, AtFlags::empty()).map_err(|error| failed(&path, error))?;
    if recursive && is_directory(&path)? {
        walk(open_directory(&path)?, &path, Trouble::Fail, cancel, |item| {
            if item.visit == Visit::Leave {
                return Ok(Flow::Into);
            }
            match rustix::fs::chownat(item.parent, item.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(()) | Err(Errno::NOENT) => Ok(Flow::Into),
                Err(error) => Err(failed(&path.join(item.relative), error)),
            }
        })?;
    }
    Ok(Response::Done)
}
