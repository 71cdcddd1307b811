//! A walk through a tree by descriptors: a directory swapped for a symlink on the way is not followed.

use std::{
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use guest_protocol::{Failure, FailureKind};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{
    Answer, Cancel,
    entry::{QUIET, kind_of},
    failure, named,
};

/// Directories open at once, and so the deepest tree.
pub(super) const MAX_DEPTH: usize = 256;
/// Most names of one directory held at once.
pub(super) const MAX_NAMES: usize = 200_000;

/// File systems without real files: endless, changing, and useless in a listing or an archive.
const PSEUDO_FILE_SYSTEMS: [u64; 4] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x27e_0eb,   // cgroup
    0x6367_7270, // cgroup2
];

/// One entry, as passed to a visitor.
#[derive(Debug)]
pub(super) struct Item<'a> {
    /// The directory that holds it.
    pub(super) parent: BorrowedFd<'a>,
    pub(super) name: &'a CStr,
    /// Its path beneath the root of the walk.
    pub(super) relative: &'a Path,
    pub(super) stat: &'a Stat,
    pub(super) visit: Visit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visit {
    /// Before the contents.
    Enter,
    /// A directory, after everything in it.
    Leave,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Continue, into it if it is a directory.
    Into,
    /// Continue with the next entry.
    Over,
    /// End the walk.
    Stop,
}

/// The treatment of a directory that cannot be opened or is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    Fail,
    /// Leave it out; [`Walked`] records that.
    Skip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walked {
    All,
    /// Something was left out, or the visitor stopped.
    Partly,
}

struct Level {
    directory: OwnedFd,
    /// Sorted backwards, so that the next one is at the end.
    names: Vec<CString>,
    relative: PathBuf,
    device: u64,
    /// This directory itself, as its parent sees it; the root has none.
    own: Option<(CString, Stat)>,
}

/// Visits everything in `root`, sorted by name in each directory, never following a symlink.
pub(super) fn walk(
    root: OwnedFd,
    path: &Path,
    trouble: Trouble,
    cancel: &Cancel,
    mut visit: impl FnMut(&Item<'_>) -> Answer<Flow>,
) -> Answer<Walked> {
    let device = rustix::fs::fstat(&root).map_err(|error| failure(named("read", path), error))?.st_dev;
    let mut walked = Walked::All;
    let names = names_of(&root, path)?;
    let mut levels = vec![Level { directory: root, names, relative: PathBuf::new(), device, own: None }];
    while let Some(level) = levels.last_mut() {
        cancel.check()?;
        let Some(name) = level.names.pop() else {
            if leave(&mut levels, &mut visit)? == Flow::Stop {
                return Ok(Walked::Partly);
            }
            continue;
        };
        let relative = level.relative.join(OsStr::from_bytes(name.to_bytes()));
        // Removed since the directory was read.
        let Ok(stat) = rustix::fs::statat(&level.directory, &name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        let parent = level.directory.as_fd();
        let item = Item { parent, name: &name, relative: &relative, stat: &stat, visit: Visit::Enter };
        match visit(&item)? {
            Flow::Stop => return Ok(Walked::Partly),
            Flow::Over => continue,
            Flow::Into if kind_of(&stat) != FileType::Directory => continue,
            Flow::Into => {}
        }
        let device = level.device;
        match enter(&levels, name, relative, &stat, device, path) {
            Ok(level) => levels.push(level),
            Err(failure) if trouble == Trouble::Fail => return Err(failure),
            Err(_left_out) => walked = Walked::Partly,
        }
    }
    Ok(walked)
}

fn enter(
    levels: &[Level],
    name: CString,
    relative: PathBuf,
    stat: &Stat,
    parent_device: u64,
    root: &Path,
) -> Answer<Level> {
    let path = root.join(&relative);
    if levels.len() >= MAX_DEPTH {
        let message = format!("{} lies deeper than {MAX_DEPTH} directories", path.display());
        return Err(Failure::new(FailureKind::LimitReached, message));
    }
    let parent = levels.last().map(|level| level.directory.as_fd());
    let parent = parent.ok_or_else(super::broken)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | QUIET;
    let directory = rustix::fs::openat(parent, &name, flags, Mode::empty())
        .map_err(|error| failure(named("open", &path), error))?;
    let is_empty = stat.st_dev != parent_device && is_pseudo(&directory);
    let names = if is_empty { vec![] } else { names_of(&directory, &path)? };
    Ok(Level { directory, names, relative, device: stat.st_dev, own: Some((name, *stat)) })
}

/// Closes the last level and visits its directory once more.
fn leave(levels: &mut Vec<Level>, visit: &mut impl FnMut(&Item<'_>) -> Answer<Flow>) -> Answer<Flow> {
    let Some(level) = levels.pop() else { return Ok(Flow::Stop) };
    if let (Some((name, stat)), Some(parent)) = (&level.own, levels.last()) {
        let parent = parent.directory.as_fd();
        return visit(&Item { parent, name, relative: &level.relative, stat, visit: Visit::Leave });
    }
    Ok(Flow::Into)
}

pub(super) fn is_pseudo(directory: &OwnedFd) -> bool {
    rustix::fs::fstatfs(directory)
        .is_ok_and(|stat| u64::try_from(stat.f_type).is_ok_and(|kind| PSEUDO_FILE_SYSTEMS.contains(&kind)))
}

/// The names in a directory, sorted backwards.
fn names_of(directory: &OwnedFd, path: &Path) -> Answer<Vec<CString>> {
    let mut names =
        read_names(directory, MAX_NAMES + 1).map_err(|error| failure(named("list", path), error))?;
    if names.len() > MAX_NAMES {
        let message = format!("{} holds more than {MAX_NAMES} names", path.display());
        return Err(Failure::new(FailureKind::LimitReached, message));
    }
    names.sort_unstable_by(|one, other| other.cmp(one));
    Ok(names)
}

/// At most `limit` names in a directory, unsorted.
pub(super) fn read_names(directory: &OwnedFd, limit: usize) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        names.push(name.to_owned());
        if names.len() == limit {
            break;
        }
    }
    Ok(names)
}
