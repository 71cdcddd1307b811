//! Descriptors that Tokio watches.

use std::{io, os::fd::AsRawFd};

use tokio::io::{Interest, unix::AsyncFd};

/// Watches a descriptor for reading. The value owns its descriptor, which is the promise that the newer name of this
/// function requires in an unsafe block, and this crate has none.
#[expect(deprecated, reason = "the replacement is unsafe and differs in nothing else")]
pub(crate) fn readable<T: AsRawFd>(descriptor: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}
