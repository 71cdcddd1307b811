//! Finds, or creates, the mount points in a sandbox's root.
//!
//! The root's content is hostile, above all its links, and the host's files are still reachable at this moment. So the
//! kernel resolves every path, starting at a descriptor of a mount that we made. Paths from users are resolved as if
//! the root were already `/`; paths that every sandbox has are resolved without following links.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, fstat},
    io::Errno,
    mount::{MoveMountFlags, move_mount},
};

const NEW_DIRECTORY: Mode = Mode::from_raw_mode(0o755);
const NEW_FILE: Mode = Mode::from_raw_mode(0o644);
const IN_WAY: &str = "a link or a file is in the place of a directory";

/// Moves a detached or attached mount to `target`.
pub(crate) fn put_on(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", target, "", flags)?)
}

/// Whether a path may lead from one mount into another that lies in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crossing {
    Allowed,
    Refused,
}

/// Opens `path` in this mount, and nowhere else: no link is followed.
pub(crate) fn find(
    mount: BorrowedFd<'_>,
    path: &Path,
    how: OFlags,
    crossing: Crossing,
) -> rustix::io::Result<OwnedFd> {
    let mut within = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    within.set(ResolveFlags::NO_XDEV, crossing == Crossing::Refused);
    rustix::fs::openat2(mount, path, how | OFlags::CLOEXEC, Mode::empty(), within)
}

/// The directory `name` at the top of this mount, to mount on. Created if missing.
pub(crate) fn own_directory(mount: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let open = || find(mount, name, OFlags::PATH | OFlags::DIRECTORY, Crossing::Refused);
    let opened = match open() {
        Err(Errno::NOENT) => {
            rustix::fs::mkdirat(mount, name, NEW_DIRECTORY)?;
            open()
        }
        opened => opened,
    };
    match opened {
        Err(Errno::LOOP | Errno::NOTDIR) => Err(refused(IN_WAY)),
        opened => Ok(opened?),
    }
}

/// Attaches a detached mount at `at`, resolved with `root` as the root. A link must not lead into the file systems
/// `of_kernel`.
pub(crate) fn put(
    mount: BorrowedFd<'_>,
    root: BorrowedFd<'_>,
    at: &str,
    of_kernel: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let kind = FileType::from_raw_mode(fstat(mount)?.st_mode);
    let target = find_or_make(root, at, kind == FileType::Directory)?;
    let (found, top) = (fstat(&target)?, fstat(root)?);
    // A covered root could not be pivoted to.
    if (found.st_dev, found.st_ino) == (top.st_dev, top.st_ino) {
        return Err(refused("a link leads there to the root itself"));
    }
    for own in of_kernel {
        if fstat(own)?.st_dev == found.st_dev {
            return Err(refused("a link leads there into a file system of the kernel"));
        }
    }
    if (FileType::from_raw_mode(found.st_mode) == FileType::Directory) != (kind == FileType::Directory) {
        return Err(refused("a directory goes on a directory, and a file on a file"));
    }
    put_on(mount, target.as_fd())
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

fn resolve(root: BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), within)
}

/// Descends component by component. Each is resolved from the root anew, since a link on the way may be absolute.
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

/// Creates it in a directory that was resolved within the root; `name` has no slash, and an existing entry is not
/// followed.
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

        // An absolute link means the sandbox's own root, even if the host has that path too.
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

    #[test]
    fn a_directory_of_our_own_is_made_and_nothing_else_will_do() {
        let (root, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let opened = File::open(root.path()).unwrap();
        let own =
            |name: &str| Ok::<_, io::Error>(fstat(own_directory(opened.as_fd(), Path::new(name))?)?.st_ino);
        assert_eq!(own("proc").unwrap(), fs::metadata(root.path().join("proc")).unwrap().ino());
        assert_eq!(own("proc").unwrap(), fs::metadata(root.path().join("proc")).unwrap().ino());

        fs::write(root.path().join("file"), "").unwrap();
        fs::create_dir(root.path().join("real")).unwrap();
        symlink("real", root.path().join("near")).unwrap();
        symlink(host.path(), root.path().join("far")).unwrap();
        symlink("loop", root.path().join("loop")).unwrap();
        symlink("nowhere", root.path().join("broken")).unwrap();
        for name in ["file", "near", "far", "loop", "broken", "far/x", "near/x"] {
            let error = own(name).unwrap_err();
            assert_eq!(error.to_string(), IN_WAY, "{name}");
        }
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_found_in_a_mount_lies_in_it() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        symlink("a", root.path().join("link")).unwrap();
        let opened = File::open(root.path()).unwrap();
        let error =
            |path: &str| find(opened.as_fd(), Path::new(path), OFlags::PATH, Crossing::Refused).unwrap_err();
        assert_eq!(error("link"), Errno::LOOP);
        assert_eq!(error("link/x"), Errno::LOOP);
        assert_eq!(error("none"), Errno::NOENT);
        let top = File::open("/").unwrap();
        let error = find(top.as_fd(), Path::new("proc/sys"), OFlags::PATH, Crossing::Refused).unwrap_err();
        assert_eq!(error, Errno::XDEV);
    }
}
