//! Mounts inside besides the layers: the spawner opens them, attached nowhere, and hands them to the child, which
//! attaches them ([`crate::mount_target`]).

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags},
    io::Errno,
    mount::{OpenTreeFlags, open_tree},
};
use serde::{Deserialize, Serialize};

use crate::{
    cage::{FileIdentity, HandedMount, MountFlag, MountOrigin},
    image::{self, Writes},
    packet::{self, Failure, MAX_DESCRIPTORS},
    sys,
};

/// A message accompanied by mounts.
#[derive(Debug, Serialize, Deserialize)]
struct Mounts;

/// Opens each, and refuses a file with the wrong identity: after this nobody can swap it.
pub(crate) fn open_all(mounts: &[HandedMount]) -> Result<Vec<OwnedFd>, Failure> {
    mounts.iter().map(|mount| open(mount).map_err(|error| Failure::new(mount.to_string(), &error))).collect()
}

fn open(mount: &HandedMount) -> io::Result<OwnedFd> {
    match &mount.origin {
        MountOrigin::Path { path, recursive } => {
            let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            flags.set(OpenTreeFlags::AT_RECURSIVE, *recursive);
            let opened = open_tree(CWD, path, flags)?;
            check(opened.as_fd(), mount.identity)?;
            Ok(opened)
        }
        MountOrigin::Image { path, is_ours } => {
            let (file, writes) = open_image(path, mount.flags.contains(&MountFlag::ReadOnly))?;
            check(file.as_fd(), mount.identity)?;
            if !file.metadata()?.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
            }
            let mounted = image::mount_shared(&file, writes, *is_ours)?;
            if *is_ours {
                // Only useful for repairing the file system, which creates it again.
                let _gone = rustix::fs::unlinkat(&mounted, "lost+found", AtFlags::REMOVEDIR);
            }
            Ok(mounted)
        }
    }
}

fn check(opened: BorrowedFd<'_>, identity: Option<FileIdentity>) -> io::Result<()> {
    identity.map_or(Ok(()), |identity| identity.check(opened))
}

/// Opens for writing, or for reading if that is all that is requested and allowed.
fn open_image(path: &Path, is_read: bool) -> io::Result<(File, Writes)> {
    // A pipe must not make us wait for its other end.
    let open = |access: OFlags| {
        rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
    };
    match open(OFlags::RDWR) {
        Err(Errno::ROFS | Errno::ACCESS) if is_read => Ok((open(OFlags::RDONLY)?.into(), Writes::Refused)),
        opened => Ok((opened?.into(), Writes::Allowed)),
    }
}

/// Gives each its flags and, if requested, the sandbox's ids.
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

/// In several messages, since not all descriptors may fit into one.
pub(crate) fn send(socket: BorrowedFd<'_>, opened: &[OwnedFd]) -> io::Result<()> {
    for some in opened.chunks(MAX_DESCRIPTORS) {
        let some: Vec<_> = some.iter().map(OwnedFd::as_fd).collect();
        packet::send(socket, &Mounts, &some)?;
    }
    Ok(())
}

/// Receives everything that [`send`] sent.
pub(crate) fn receive(socket: BorrowedFd<'_>, count: usize) -> io::Result<Vec<Option<OwnedFd>>> {
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let (Mounts, some) = packet::receive(socket, rustix::net::RecvFlags::empty())?;
        all.extend(some.into_iter().map(Some));
    }
    Ok(all)
}
