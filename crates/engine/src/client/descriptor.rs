//! Descriptors that a guest attaches to its answers. Whatever they are, the guest may still hold them too.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::Arc,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg, sockopt::set_socket_linger,
};
use tokio::{net::UnixStream, runtime::Handle};

/// Most descriptors taken with one answer; the kernel closes others.
pub(super) const MAX_DESCRIPTORS: usize = 1;

/// A descriptor that a guest handed out.
///
/// Closing one can block for as long as its sandbox likes (`SO_LINGER` of a socket whose peer does not read), so that
/// is done on a thread that may wait.
#[derive(Debug)]
pub(crate) struct GuestDescriptor {
    /// Goes first: fields are dropped in their order.
    used: Arc<OwnedFd>,
    _last: ClosedApart,
}

/// The last copy of a descriptor, which closes it.
#[derive(Debug)]
struct ClosedApart(Option<Arc<OwnedFd>>);

impl GuestDescriptor {
    fn new(descriptor: OwnedFd) -> Self {
        let used = Arc::new(descriptor);
        Self { _last: ClosedApart(Some(Arc::clone(&used))), used }
    }
}

impl AsFd for GuestDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.used.as_fd()
    }
}

impl AsRawFd for GuestDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for ClosedApart {
    fn drop(&mut self) {
        let Some(descriptor) = self.0.take() else { return };
        let close = move || {
            set_socket_linger(&descriptor, None).ok();
            drop(descriptor);
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(close)),
            Err(_outside_of_a_runtime) => close(),
        }
    }
}

/// Reads once, with the descriptors that are attached.
pub(super) fn receive(
    stream: &UnixStream,
    bytes: &mut [u8],
    descriptors: &mut Vec<GuestDescriptor>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(attached) = message {
            descriptors.extend(attached.map(GuestDescriptor::new));
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "more descriptors than were asked for"));
    }
    Ok(received.bytes)
}
