//! What is mounted inside besides the layers: opened by the spawner, as mounts that are attached nowhere, and handed to the
//! child, which puts them in their places ([`crate::place`]).

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, CWD, OFlags},
    mount::{OpenTreeFlags, open_tree},
};
use serde::{Deserialize, Serialize};

use crate::{
    cage::{HandedMount, MountFlag, MountOrigin},
    image,
    packet::{self, Failure, MAX_DESCRIPTORS},
    sys,
};

/// Says how many mounts come beside it.
#[derive(Debug, Serialize, Deserialize)]
struct Mounts;

/// Opens each, and refuses what is not what it must be: nobody can have put another in its place after this.
pub(crate) fn open_all(mounts: &[HandedMount]) -> Result<Vec<OwnedFd>, Failure> {
    mounts.iter().map(|mount| open(mount).map_err(|error| Failure::new(mount.to_string(), &error))).collect()
}

fn open(mount: &HandedMount) -> io::Result<OwnedFd> {
    match &mount.origin {
        MountOrigin::Path { path, recursive } => {
            let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            flags.set(OpenTreeFlags::AT_RECURSIVE, *recursive);
            let opened = open_tree(CWD, path, flags)?;
            check_identity(opened.as_fd(), mount.identity)?;
            Ok(opened)
        }
        MountOrigin::Image { path, is_ours } => {
            let writable =
                match rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, rustix::fs::Mode::empty()) {
                    // One that nobody may write to can still be shown.
                    Err(rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS)
                        if mount.flags.contains(&MountFlag::ReadOnly) =>
                    {
                        None
                    }
                    opened => Some(opened?),
                };
            let (file, is_writable) = match writable {
                Some(file) => (file, true),
                None => (
                    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty())?,
                    false,
                ),
            };
            check_identity(file.as_fd(), mount.identity)?;
            let mounted = image::mount_shared(&file.into(), is_writable)?;
            if *is_ours {
                // Of use to a repair of the file system only, which makes it again.
                let _gone = rustix::fs::unlinkat(&mounted, "lost+found", AtFlags::REMOVEDIR);
            }
            Ok(mounted)
        }
    }
}

fn check_identity(opened: BorrowedFd<'_>, expected: Option<(u64, u64)>) -> io::Result<()> {
    let found = rustix::fs::fstat(opened)?;
    if expected.is_some_and(|expected| expected != (found.st_dev, found.st_ino)) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is another file now than the one that was allowed",
        ));
    }
    Ok(())
}

/// Gives each its flags and, where it is to be shown with the sandbox's ids, those.
pub(crate) fn prepare(
    mounts: &[HandedMount],
    opened: &[OwnedFd],
    user_namespace: Option<BorrowedFd<'_>>,
) -> Result<(), Failure> {
    for (mount, opened) in mounts.iter().zip(opened) {
        let ids = user_namespace.filter(|_| mount.is_mapped);
        sys::set_mount_tree(opened.as_fd(), &mount.flags, ids)
            .map_err(|error| Failure::new(mount.to_string(), &error))?;
    }
    Ok(())
}

/// In several messages, since there may be more than fit beside one.
pub(crate) fn send(socket: BorrowedFd<'_>, opened: &[OwnedFd]) -> io::Result<()> {
    for some in opened.chunks(MAX_DESCRIPTORS) {
        let some: Vec<_> = some.iter().map(OwnedFd::as_fd).collect();
        packet::send(socket, &Mounts, &some)?;
    }
    Ok(())
}

/// Takes what [`send`] sent, all of it.
pub(crate) fn receive(socket: BorrowedFd<'_>, count: usize) -> io::Result<Vec<Option<OwnedFd>>> {
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let (Mounts, some) = packet::receive(socket, rustix::net::RecvFlags::empty())?;
        all.extend(some.into_iter().map(Some));
    }
    Ok(all)
}
