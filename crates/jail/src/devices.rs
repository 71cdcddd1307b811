//! A sandbox's `/dev`: few nodes, none of which reaches hardware.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, FileType, Gid, Mode, OFlags, Uid, chmodat, chownat, makedev, mkdirat, mknodat, openat,
        symlinkat,
    },
    io::Errno,
};

use crate::{cage::MountFlag, mount_target, mounts, sys};

/// Name, major and minor number.
const NODES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// Directories to mount on.
const DIRECTORIES: [&str; 2] = ["pts", "shm"];
const BYTES: u64 = 64 * 1024;
const FLAGS: [MountFlag; 2] = [MountFlag::NoSuid, MountFlag::NoExec];
const NODE_MODE: Mode = Mode::from_raw_mode(0o666);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

/// A `/dev` with nodes of its own, attached nowhere, so that locks and watches on them are private. Only the host's
/// root can make one. Its files belong to `owner`.
pub(crate) fn make(owner: u32) -> io::Result<OwnedFd> {
    let mount = mounts::new_tmpfs(BYTES, DIRECTORY_MODE.as_raw_mode(), &FLAGS)?;
    for (name, major, minor) in NODES {
        mknodat(&mount, name, FileType::CharacterDevice, NODE_MODE, makedev(major, minor))?;
        // Set again, since our umask may have removed bits.
        chmodat(&mount, name, NODE_MODE, AtFlags::empty())?;
    }
    make_rest(mount.as_fd())?;
    let names = NODES.map(|(name, ..)| name);
    let names = names.iter().chain(LINKS.iter().map(|(name, _)| name)).chain(&DIRECTORIES);
    let (user, group) = (Uid::from_raw(owner), Gid::from_raw(owner));
    for name in names {
        chownat(&mount, *name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    chownat(&mount, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    // Devices remain writable; only the set of nodes, their modes and their owners are fixed.
    sys::set_mount_tree(mount.as_fd(), &[MountFlag::ReadOnly], None)?;
    Ok(mount)
}

/// Why [`make`] does not work here: making nodes, or opening them, may be forbidden.
pub(crate) fn try_make() -> io::Result<()> {
    let null = openat(make(0)?, "null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(null, b"x").map(drop)?;
    Ok(())
}

/// Makes a `/dev` with the host's own nodes in a directory of the stage.
pub(crate) fn show_hosts(at: &Path) -> io::Result<()> {
    mounts::tmpfs(at, BYTES, DIRECTORY_MODE.as_raw_mode(), &FLAGS)?;
    let mount = mounts::open(at)?;
    for (name, ..) in NODES {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&mount, name, flags, NODE_MODE)?;
        // Read-only: neither the mode nor the owner of the host's node can be changed.
        let flags = [MountFlag::ReadOnly, MountFlag::NoSuid, MountFlag::NoExec];
        let node = mounts::copy(&Path::new("/dev").join(name), false, &flags)?;
        mount_target::put_on(node.as_fd(), file.as_fd())?;
    }
    make_rest(mount.as_fd())?;
    sys::add_mount_flags(at, &[MountFlag::ReadOnly], false)
}

fn make_rest(top: BorrowedFd<'_>) -> rustix::io::Result<()> {
    for (name, to) in LINKS {
        symlinkat(to, top, name)?;
    }
    for name in DIRECTORIES {
        match mkdirat(top, name, DIRECTORY_MODE) {
            Err(Errno::EXIST) => {}
            made => made?,
        }
        chmodat(top, name, DIRECTORY_MODE, AtFlags::empty())?;
    }
    Ok(())
}
