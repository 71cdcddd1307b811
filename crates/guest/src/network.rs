//! The sandbox's network: its sockets were made before the guest began, and the guest keeps them for whoever serves the
//! other end. That process may come and go; the sandbox's connections wait meanwhile.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use guest_protocol::{Failure, FailureKind, Response};
use rustix::net::{SocketType, sockopt::socket_type};

use crate::{
    sockets::NotCounted,
    transport::Transport,
    wire::{self, FrameWriter},
};

/// Sockets that are handed out as copies and never used here. No program inside gets one: they are closed on exec, and
/// nobody inside may look into this process.
#[derive(Debug)]
pub(crate) struct Kept {
    sockets: Vec<OwnedFd>,
    can_hand_out: bool,
}

impl Kept {
    pub(crate) fn new(sockets: Vec<OwnedFd>, transport: &Transport) -> Self {
        Self { sockets, can_hand_out: transport.carries_descriptors() }
    }

    /// Counts the sockets: they are not the workload's, so its budget does not pay for them.
    pub(crate) fn counted(&self) -> NotCounted {
        let is_tcp = |socket: &&OwnedFd| socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM);
        let tcp = self.sockets.iter().filter(is_tcp).count();
        NotCounted { tcp: tcp as u64, others: (self.sockets.len() - tcp) as u64 }
    }

    /// Refuses where the host gets no descriptors.
    pub(crate) fn check_handing_out(&self) -> Result<(), Failure> {
        match self.can_hand_out {
            true => Ok(()),
            false => Err(Failure::new(
                FailureKind::Unsupported,
                "sockets can be handed out over a Unix socket only",
            )),
        }
    }

    pub(crate) async fn hand_out(&self, writer: FrameWriter<'_>) -> wire::Result<()> {
        let has_some = match self.sockets.is_empty() {
            true => Err(Failure::new(FailureKind::NotFound, "this sandbox has no network")),
            false => Ok(()),
        };
        if let Err(failure) = self.check_handing_out().and(has_some) {
            return writer.fail(&failure).await;
        }
        let descriptors: Vec<BorrowedFd<'_>> = self.sockets.iter().map(|socket| socket.as_fd()).collect();
        let count = descriptors.len() as u32;
        writer.respond_with(&Response::NetworkSockets { count }, &descriptors).await
    }
}
