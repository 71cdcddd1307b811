//! Directories below a top by their path, which may be longer than the kernel accepts at once.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

/// Longest path passed to the kernel at once.
const MAX_AT_ONCE: usize = 4000;

/// Opens the directory at `names` below `top`. No link is followed, and no mount is entered.
pub(crate) fn directory(top: BorrowedFd<'_>, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_XDEV
        | ResolveFlags::NO_MAGICLINKS;
    let open = |at: BorrowedFd<'_>, path: &[u8]| {
        rustix::io::retry_on_intr(|| match openat2(at, path, flags, Mode::empty(), within) {
            // A directory on the way was renamed meanwhile.
            Err(Errno::AGAIN) => Err(Errno::INTR),
            opened => opened,
        })
    };
    let mut reached: Option<OwnedFd> = None;
    let mut path = Vec::new();
    for name in names {
        if path.len() + name.len() + 1 > MAX_AT_ONCE {
            let at = reached.as_ref().map_or(top, std::os::fd::AsFd::as_fd);
            reached = Some(open(at, &path)?);
            path.clear();
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'.');
    }
    open(reached.as_ref().map_or(top, std::os::fd::AsFd::as_fd), &path)
}
