//! Our own program as a file that nobody can change through it, whatever rights they have over the one on disk.
//!
//! A sandbox of an ordinary user runs as that user: through `/proc/self/exe` it could otherwise change the user's own
//! binary (the class of CVE-2019-5736).

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
};

use rustix::{
    fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, memfd_create},
    net::RecvFlags,
    process::geteuid,
};

use crate::{
    cage::{FileIdentity, MountFlag},
    mounts, packet, sys,
};

const RUNNING: &str = "/proc/self/exe";

/// A read-only mount of the program on disk, which costs no memory; a sealed copy if the kernel refuses that, or if the
/// program was replaced since it was started.
pub(crate) fn unchangeable() -> io::Result<OwnedFd> {
    let mount = if geteuid().is_root() { mounted() } else { mounted_by_helper() };
    mount.or_else(|_refused| sealed_copy())
}

/// Only the mount, for a daemon that may make it without a helper process.
pub(crate) fn mounted_by_root() -> Option<OwnedFd> {
    if geteuid().is_root() { mounted().ok() } else { None }
}

/// Without root a child in its own namespaces makes the mount, and we stay where we are: the memory of a process
/// belongs to the user namespace in which it executed its program. If that were ours, the root of a sandbox, who is the
/// same user, would own the guest's files in `/proc`.
fn mounted_by_helper() -> io::Result<OwnedFd> {
    let (ours, theirs) = packet::pair()?;
    let Some(helper) = sys::fork()? else {
        let made = sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS).and_then(|()| mounted());
        let sent = made.and_then(|mount| packet::send(theirs.as_fd(), &(), &[mount.as_fd()]));
        sys::exit_now(i32::from(sent.is_err()))
    };
    drop(theirs);
    let received = packet::receive::<()>(ours.as_fd(), RecvFlags::empty());
    sys::wait_for(helper)?;
    received?.1.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn mounted() -> io::Result<OwnedFd> {
    let running = fs::metadata(RUNNING)?;
    // By its path: the link itself leads into the mount namespace in which we were started, and only mounts of the
    // current one can be copied.
    let flags = [MountFlag::ReadOnly, MountFlag::NoSuid, MountFlag::NoDev];
    let mount = mounts::copy(&fs::read_link(RUNNING)?, false, &flags)?;
    FileIdentity { device: running.dev(), inode: running.ino() }.check(mount.as_fd())?;
    Ok(mount)
}

fn sealed_copy() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let copy = match memfd_create("warren", flags | MemfdFlags::EXEC) {
        // Kernels before 6.3 do not know this flag, and all their memfds are executable.
        Err(rustix::io::Errno::INVAL) => memfd_create("warren", flags)?,
        made => made?,
    };
    let mut copy = File::from(copy);
    io::copy(&mut File::open(RUNNING)?, &mut copy)?;
    // The kernel makes it writable for everybody, and seals protect only its content.
    fchmod(&copy, Mode::from_raw_mode(0o555))?;
    fcntl_add_seals(&copy, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(copy.into())
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::fs::FileExt as _, process::Command};

    use super::*;

    #[test]
    fn a_sealed_copy_is_the_program_and_cannot_be_changed() {
        let copy = File::from(sealed_copy().unwrap());
        assert_eq!(copy.metadata().unwrap().len(), fs::metadata(RUNNING).unwrap().len());
        assert_eq!((&copy).write(b"x").unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert_eq!(copy.write_at(b"x", 0).unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert_eq!(copy.set_len(0).unwrap_err().raw_os_error(), Some(libc::EPERM));
        let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&copy));
        assert!(Command::new(path).arg("--list").output().unwrap().status.success());
    }
}
