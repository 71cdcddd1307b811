//! The raw sockets of a sandbox: packets with any source, sent into it.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
};

use rustix::net::{SendFlags, sendto};

/// Never waits: a packet that finds no room is lost, as packets are.
#[derive(Debug)]
pub(crate) struct Raw {
    ipv4: OwnedFd,
    ipv6: Option<OwnedFd>,
}

impl Raw {
    pub(crate) fn new(ipv4: OwnedFd, ipv6: Option<OwnedFd>) -> Self {
        Self { ipv4, ipv6 }
    }

    /// Sends a whole IP packet.
    pub(crate) fn send(&self, packet: &[u8], to: IpAddr) {
        let socket = match to {
            IpAddr::V4(_) => Some(&self.ipv4),
            IpAddr::V6(_) => self.ipv6.as_ref(),
        };
        let Some(socket) = socket else { return };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if let Err(error) = sendto(socket, packet, flags, &SocketAddr::new(to, 0)) {
            tracing::debug!(%to, %error, "a packet into a sandbox was lost");
        }
    }
}
