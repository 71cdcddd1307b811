//! Descriptors that Tokio watches.

use std::{io, os::fd::OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::{Interest, unix::AsyncFd};

/// Watches a descriptor. The value owns its descriptor, which is the promise that the newer name of this function
/// requires in an unsafe block, and this crate has none.
#[expect(deprecated, reason = "the replacement is unsafe and differs in nothing else")]
pub(crate) fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    make_nonblocking(&descriptor)?;
    AsyncFd::with_interest(descriptor, interest)
}

pub(crate) fn make_nonblocking(descriptor: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(descriptor, fcntl_getfl(descriptor)? | OFlags::NONBLOCK)?)
}
