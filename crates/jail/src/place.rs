//! Finding, or making, the place in a sandbox's root where something is mounted.
//!
//! What is in the root is hostile, links above all, and the host's files are still in reach at this moment. So every path is
//! resolved by the kernel as if the root were `/` already.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_string,
        fsmount, fsopen, move_mount,
    },
};

use crate::cage::MountFlag;

/// File systems of the kernel and of the sandbox itself: a link must not lead a mount into them.
const OWN_PLACES: [&str; 3] = ["dev", "proc", "sys"];
const NEW_DIRECTORY: Mode = Mode::from_raw_mode(0o755);
const NEW_FILE: Mode = Mode::from_raw_mode(0o644);

/// Puts a mount that is attached nowhere at `at` in the directory `root`, as whoever has that as root sees it.
pub(crate) fn put(mount: BorrowedFd<'_>, root: &Path, at: &str) -> io::Result<()> {
    let kind = FileType::from_raw_mode(fstat(mount)?.st_mode);
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let place = find_or_make(root.as_fd(), at, kind == FileType::Directory)?;
    let found = fstat(&place)?;
    if is_own(root.as_fd(), &found) {
        return Err(refused("a link leads there into a file system of the kernel"));
    }
    if (FileType::from_raw_mode(found.st_mode) == FileType::Directory) != (kind == FileType::Directory) {
        return Err(refused("a directory goes on a directory, and a file on a file"));
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", &place, "", flags)?)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn resolve(root: BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), within)
}

/// Goes down part by part. Each is resolved from the root anew, since a link on the way may be absolute.
fn find_or_make(root: BorrowedFd<'_>, at: &str, is_directory: bool) -> io::Result<OwnedFd> {
    let parts: Vec<_> = at.split('/').filter(|part| !part.is_empty()).collect();
    let (mut parent, mut path) = (root.try_clone_to_owned()?, String::new());
    for (number, part) in parts.iter().enumerate() {
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(part);
        let is_last = number + 1 == parts.len();
        parent = match resolve(root, &path) {
            Err(Errno::NOENT) => {
                make(parent.as_fd(), part, is_directory || !is_last)?;
                match resolve(root, &path) {
                    Err(Errno::NOENT) => return Err(refused("a link there leads nowhere")),
                    made => made?,
                }
            }
            found => found?,
        };
    }
    Ok(parent)
}

/// In a directory that was resolved within the root; `name` has no slash, and what has it already is not followed.
fn make(parent: BorrowedFd<'_>, name: &str, is_directory: bool) -> io::Result<()> {
    let made = if is_directory {
        rustix::fs::mkdirat(parent, name, NEW_DIRECTORY)
    } else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name, flags, NEW_FILE).map(drop)
    };
    match made {
        Err(Errno::EXIST) => Ok(()),
        made => Ok(made?),
    }
}

fn is_own(root: BorrowedFd<'_>, found: &Stat) -> bool {
    let device = |name: &&str| resolve(root, name).and_then(fstat).map(|own| own.st_dev);
    let root_device = fstat(root).map(|root| root.st_dev);
    OWN_PLACES
        .iter()
        .filter_map(|name| device(name).ok())
        .any(|own| own == found.st_dev && root_device != Ok(own))
}

/// A tmpfs that is attached nowhere yet.
pub(crate) fn new_tmpfs(bytes: u64, mode: u32, flags: &[MountFlag]) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // Files of no bytes take kernel memory too, as in `mounts::tmpfs`.
    let inodes = (bytes / 4096).max(64);
    for (key, value) in
        [("size", bytes.to_string()), ("nr_inodes", inodes.to_string()), ("mode", format!("{mode:o}"))]
    {
        fsconfig_set_string(&context, key, value.as_str())?;
    }
    fsconfig_create(&context)?;
    let attributes = flags.iter().fold(MountAttrFlags::empty(), |all, one| {
        all | match one {
            MountFlag::ReadOnly => MountAttrFlags::MOUNT_ATTR_RDONLY,
            MountFlag::NoSuid => MountAttrFlags::MOUNT_ATTR_NOSUID,
            MountFlag::NoDev => MountAttrFlags::MOUNT_ATTR_NODEV,
            MountFlag::NoExec => MountAttrFlags::MOUNT_ATTR_NOEXEC,
        }
    });
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::fs::{MetadataExt as _, symlink},
    };

    use super::*;

    fn found(root: &Path, at: &str) -> io::Result<u64> {
        let root = File::open(root).unwrap();
        Ok(fstat(find_or_make(root.as_fd(), at, true)?)?.st_ino)
    }

    #[test]
    fn what_is_missing_is_made_and_links_stay_inside() {
        let (root, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = root.path();
        let inode = |path: &str| fs::metadata(root.join(path)).unwrap().ino();
        assert_eq!(found(root, "/a/b/c").unwrap(), inode("a/b/c"));

        // An absolute link means the sandbox's own root, however much the host has there too.
        let outside = host.path().to_str().unwrap();
        symlink(outside, root.join("out")).unwrap();
        let error = found(root, "/out").unwrap_err();
        assert!(error.to_string().contains("leads nowhere"), "{error}");
        let error = found(root, "/out/x").unwrap_err();
        assert!(error.to_string().contains("leads nowhere"), "{error}");
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);

        fs::create_dir_all(root.join(&outside[1..])).unwrap();
        assert_eq!(found(root, "/out/x").unwrap(), inode(&format!("{}/x", &outside[1..])));
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);

        symlink("../../../../../..", root.join("a/up")).unwrap();
        assert_eq!(found(root, "/a/up").unwrap(), inode("."));
        symlink("/a", root.join("abs")).unwrap();
        assert_eq!(found(root, "/abs/b").unwrap(), inode("a/b"));
    }

    #[test]
    fn nothing_is_made_through_a_file_or_a_magic_link() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        assert!(found(root.path(), "/file/x").is_err());
        assert_eq!(found(Path::new("/"), "/proc/self/root").unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(found(Path::new("/"), "/proc/self/cwd/x").unwrap_err().raw_os_error(), Some(libc::ELOOP));
    }
}
