//! Messages between the daemon and the edge: one packet, one message, with descriptors attached.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read, Seek, Write},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};
use sandbox::{
    HeldSecrets, SandboxId,
    network::{MAX_NETWORK_SOCKETS, NetworkEvent, NetworkHosts, NetworkPlan, Surroundings},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{events::Counters, tcp::proxy::UpstreamProxy};

/// Longest message in a packet. Longer ones, plans with very many rules, go by a file in memory.
const MAX_PACKET: usize = 64 * 1024;
/// Longest message at all.
const MAX_MESSAGE: u64 = 16 * 1024 * 1024;
/// Stands for a message that is in the first descriptor.
const IN_FILE: &[u8] = b"@";
/// Most descriptors of a message: those of one sandbox, and a file.
const MAX_DESCRIPTORS: usize = MAX_NETWORK_SOCKETS + 1;

/// A request of the daemon. Each is answered by [`Report::Done`] or [`Report::Failed`] when it has taken effect.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) order: Order,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Serves a sandbox. Attached: its sockets, in the order of [`sandbox::network::NetworkSockets`]. A sandbox that is
    /// known already is served anew.
    Add {
        sandbox: SandboxId,
        plan: Box<NetworkPlan>,
        secrets: Option<Box<HeldSecrets>>,
    },
    /// Decides by another plan, and closes what it does not allow.
    Update {
        sandbox: SandboxId,
        plan: Box<NetworkPlan>,
    },
    /// Replaces a sandbox's secrets, and ends the connections that could carry the old ones.
    Hold {
        sandbox: SandboxId,
        secrets: Option<Box<HeldSecrets>>,
    },
    /// Verifies servers by these root certificates, in DER. An order of its own: they are many, and do not change with
    /// what is around.
    Trust {
        roots: Vec<Vec<u8>>,
    },
    /// Ends everything of a sandbox.
    Drop {
        sandbox: SandboxId,
    },
    /// Says how much went to which host.
    Hosts {
        sandbox: SandboxId,
    },
    Around(Box<Around>),
    /// Reports what has happened so far, and then [`Report::CaughtUp`].
    Tell {
        number: u64,
    },
}

/// Facts about the host that the edge cannot find out by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Around {
    /// Added to the addresses and ranges that the edge finds.
    pub surroundings: Surroundings,
    /// The text of the host's `/etc/resolv.conf`: the edge has no files.
    pub resolv_conf: String,
    /// The internet is reached through it.
    pub proxy: Option<UpstreamProxy>,
}

/// A message of the edge to the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Done {
        number: u64,
        /// The answer to [`Order::Hosts`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hosts: Option<NetworkHosts>,
    },
    Failed {
        number: u64,
        why: String,
    },
    Events(Vec<NetworkEvent>),
    Counters(Vec<(SandboxId, Counters)>),
    CaughtUp(u64),
}

/// Sends a message. `WouldBlock` if there is no room.
pub(crate) fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() <= MAX_PACKET {
        return send_packet(socket, &bytes, descriptors);
    }
    let mut file = File::from(memfd_create("message", MemfdFlags::CLOEXEC)?);
    file.write_all(&bytes)?;
    file.rewind()?;
    let all: Vec<_> = std::iter::once(file.as_fd()).chain(descriptors.iter().copied()).collect();
    send_packet(socket, IN_FILE, &all)
}

fn send_packet(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

thread_local! {
    /// Where packets arrive: most are far shorter than the longest, and many come in a row.
    static PACKET: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_PACKET]);
}

/// Receives a message. `WouldBlock` if there is none, `UnexpectedEof` if the other end is closed.
pub(crate) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<(T, Vec<OwnedFd>)> {
    PACKET.with_borrow_mut(|packet| receive_into(socket, packet))
}

fn receive_into<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    packet: &mut [u8],
) -> io::Result<(T, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got =
        rustix::io::retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(packet)], &mut control, flags));
    let got = match got {
        Err(rustix::io::Errno::CONNRESET) => return Err(io::ErrorKind::UnexpectedEof.into()),
        got => got?,
    };
    let mut descriptors: Vec<OwnedFd> = control
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        })
        .collect();
    if got.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was cut"));
    }
    let bytes = &packet[..got.bytes];
    if bytes != IN_FILE || descriptors.is_empty() {
        return Ok((serde_json::from_slice(bytes)?, descriptors));
    }
    let file = File::from(descriptors.remove(0));
    let mut bytes = Vec::new();
    file.take(MAX_MESSAGE).read_to_end(&mut bytes)?;
    Ok((serde_json::from_slice(&bytes)?, descriptors))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn long_and_short_messages_arrive_with_their_descriptors() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        for length in [1, MAX_PACKET * 3] {
            let text = "x".repeat(length);
            send(ours.as_fd(), &text, &[ours.as_fd()]).unwrap();
            let (got, descriptors): (String, _) = receive(theirs.as_fd()).unwrap();
            assert_eq!((got, descriptors.len()), (text, 1));
        }
        drop(ours);
        let end = receive::<String>(theirs.as_fd()).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }
}
