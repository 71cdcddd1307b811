//! Opening and making things beneath a directory that is held open.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, Path},
};

use hostfiles::{make_directory, quiet, step};
use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};

/// The kernel gives up when directories are renamed while it resolves; then it is asked again, this often.
const MAX_TRIES: usize = 64;

/// How far a resolution may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bounds {
    /// Not out of the directory, by whatever name or link.
    Beneath,
    /// Anywhere, as every program may. Only the links of `/proc`, which are no paths, are not followed.
    Free,
}

impl Bounds {
    fn flags(self) -> ResolveFlags {
        match self {
            Self::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            Self::Free => ResolveFlags::NO_MAGICLINKS,
        }
    }
}

/// Opens `path` beneath `root`. Where the kernel cannot hold the bounds itself, no link is followed at all.
pub(super) fn open(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    bounds: Bounds,
) -> Result<OwnedFd, Errno> {
    let flags = quiet(flags);
    for _ in 0..MAX_TRIES {
        match openat2(root, path, flags, Mode::empty(), bounds.flags()) {
            Err(Errno::AGAIN) => {}
            // Old kernels, and filters that do not know the call.
            Err(Errno::NOSYS | Errno::PERM) => return walk(root, path, flags),
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// As [`open`], one name at a time and without following any link.
fn walk(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    let Some((last, above)) = names.split_last() else {
        return openat(root, ".", flags | OFlags::NOFOLLOW, Mode::empty());
    };
    let mut held: Option<OwnedFd> = None;
    for name in above {
        let parent = held.as_ref().map_or(root, AsFd::as_fd);
        held = Some(step(parent, name, OFlags::PATH | OFlags::DIRECTORY)?);
    }
    step(held.as_ref().map_or(root, AsFd::as_fd), last, flags)
}

/// Opens a directory beneath `root`, making what is missing of it.
pub(super) fn make_directories(root: BorrowedFd<'_>, path: &Path, bounds: Bounds) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    match open(root, path, flags, bounds) {
        Err(Errno::NOENT) => {}
        result => return result,
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name() else { return Err(Errno::NOENT) };
    let parent = make_directories(root, above, bounds)?;
    make_directory(parent, name, Mode::from_raw_mode(0o755), OFlags::PATH)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn without_the_kernels_help_no_link_is_followed() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("root/d")).unwrap();
        fs::write(home.path().join("root/d/a"), "1").unwrap();
        fs::write(home.path().join("secret"), "secret").unwrap();
        symlink("d", home.path().join("root/within")).unwrap();
        symlink("../secret", home.path().join("root/out")).unwrap();
        let root = fs::File::open(home.path().join("root")).unwrap();
        let walk = |path: &str| super::walk(root.as_fd(), Path::new(path), OFlags::RDONLY).map(|_| ());
        assert!(walk("d/a").is_ok() && walk("./d/a").is_ok() && walk(".").is_ok());
        for path in ["out", "within/a", "../secret", "d/../../secret", "/etc/passwd"] {
            let error = walk(path).unwrap_err();
            assert!([Errno::LOOP, Errno::XDEV].contains(&error), "{path}: {error}");
        }
    }
}
