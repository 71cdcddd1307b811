//! Descriptors that Tokio watches.

use std::{io, os::fd::OwnedFd, sync::Arc};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::{Interest, unix::AsyncFd};

pub(crate) type Watched = AsyncFd<Arc<OwnedFd>>;

/// Watches a descriptor. The value owns its descriptor, which is the promise that the newer name of this function
/// requires in an unsafe block, and this crate has none.
#[expect(deprecated, reason = "the replacement is unsafe and differs in nothing else")]
pub(crate) fn watch(descriptor: impl Into<Arc<OwnedFd>>, interest: Interest) -> io::Result<Watched> {
    let descriptor = descriptor.into();
    fcntl_setfl(&*descriptor, fcntl_getfl(&*descriptor)? | OFlags::NONBLOCK)?;
    AsyncFd::with_interest(descriptor, interest)
}
