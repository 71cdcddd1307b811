//! The sockets by which a sandbox's network is served from outside, and what both ends must know about them.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use super::named::MAX_NAMED_PORTS;

/// The sandbox's own address, the same in every sandbox: each has a network namespace of its own.
pub const OWN_ADDRESS_V4: Ipv4Addr = Ipv4Addr::new(10, 83, 66, 1);
/// The same for IPv6; absent if the daemon's host has no route out for IPv6.
pub const OWN_ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0x6172, 0x7265, 0x6e00, 0, 0, 0, 1);
/// The resolver of every sandbox. DNS questions to any address end at the edge; this one is nobody else's.
pub const NAMESERVER: Ipv4Addr = Ipv4Addr::new(10, 83, 66, 53);
/// The mark of packets from `raw4` and `raw6`, which is set on those sockets already. The first packet of a TCP
/// connection passes only with it.
pub const RELEASE_MARK: u32 = 0x7761_7272;

/// Made in the sandbox's network namespace before its first program ran; the guest keeps copies and hands them out.
///
/// All are non-blocking. That and every other setting belongs to the socket, not to the descriptor, so a guest that was
/// taken over can change them: pass `MSG_DONTWAIT` to calls that take it, and do not accept on a thread that others
/// depend on without setting the socket to non-blocking first.
///
/// On the wire they are in the order of the fields.
#[derive(Debug)]
pub struct NetworkSockets {
    /// Each listens for TCP connections to any address: one for IPv4 and one for IPv6 that take every port; or, in the
    /// form of named ports, one for each port. The local address of an accepted connection is its destination. Own
    /// address as destination: not ours to serve, close it.
    pub tcp: Vec<OwnedFd>,
    /// Each receives datagrams for any address, with their destination (`IP_ORIGDSTADDR`, `IPV6_ORIGDSTADDR`). Answers
    /// go through `raw4` and `raw6`: these sockets have other addresses.
    pub udp: Vec<OwnedFd>,
    /// Sends whole packets, headers included: first packets of TCP connections that may begin, resets, datagrams, and
    /// ICMP errors. Nothing can be received from it.
    pub raw4: OwnedFd,
    /// Absent if the sandbox has no IPv6.
    pub raw6: Option<OwnedFd>,
    /// Receives the first packet (SYN) of every TCP connection to outside, from the network header on and without a
    /// valid TCP checksum; of IPv4 and IPv6. The kernel drops the packet itself and the program waits, and repeats it
    /// after a second. `raw4` or `raw6` begin the connection by sending it with its checksum; then one of `tcp`
    /// accepts. Packets are lost if too many wait. In the form of named ports the kernel drops none, and the connection
    /// begins by itself.
    pub syn: OwnedFd,
}

/// Most sockets of one network: those of the form of named ports.
pub const MAX_NETWORK_SOCKETS: usize = MAX_NAMED_PORTS + 3;

/// The kind of a socket, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketKind {
    /// A listener.
    Tcp,
    Udp,
    Raw4,
    Raw6,
    Packet,
}

impl NetworkSockets {
    /// From sockets of which the caller found out what they are; `None` if some are missing or there are too many.
    pub fn sorted(sockets: Vec<(SocketKind, OwnedFd)>) -> Option<Self> {
        if sockets.len() > MAX_NETWORK_SOCKETS {
            return None;
        }
        let (mut tcp, mut udp, mut raw4, mut raw6, mut syn) = (Vec::new(), Vec::new(), None, None, None);
        for (kind, socket) in sockets {
            let only = match kind {
                SocketKind::Tcp => {
                    tcp.push(socket);
                    continue;
                }
                SocketKind::Udp => {
                    udp.push(socket);
                    continue;
                }
                SocketKind::Raw4 => &mut raw4,
                SocketKind::Raw6 => &mut raw6,
                SocketKind::Packet => &mut syn,
            };
            if only.replace(socket).is_some() {
                return None;
            }
        }
        let is_whole = !tcp.is_empty() && !udp.is_empty();
        is_whole.then_some(Self { tcp, udp, raw4: raw4?, raw6, syn: syn? })
    }

    /// In the order of the fields.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let Self { tcp, udp, raw4, raw6, syn } = self;
        let all = tcp.iter().chain(udp).chain([raw4]).chain(raw6).chain([syn]);
        all.map(|descriptor| descriptor.as_fd()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd as _};

    use super::{SocketKind::*, *};

    fn some(kinds: &[SocketKind]) -> Vec<(SocketKind, OwnedFd)> {
        kinds.iter().map(|kind| (*kind, File::open("/dev/null").unwrap().into())).collect()
    }

    #[test]
    fn the_order_is_that_of_the_fields() {
        for whole in [&[Tcp, Tcp, Udp, Udp, Raw4, Raw6, Packet][..], &[Tcp, Udp, Raw4, Packet]] {
            let descriptors = some(whole);
            let numbers: Vec<_> = descriptors.iter().map(|(_, one)| one.as_raw_fd()).collect();
            let sockets = NetworkSockets::sorted(descriptors).unwrap();
            assert_eq!(sockets.raw6.is_some(), whole.contains(&Raw6));
            assert_eq!(sockets.descriptors().iter().map(|one| one.as_raw_fd()).collect::<Vec<_>>(), numbers);
        }
        for wrong in [
            &[][..],
            &[Tcp],
            &[Tcp, Udp, Raw4],
            &[Udp, Raw4, Packet],
            &[Tcp, Udp, Raw6, Packet],
            &[Tcp, Udp, Raw4, Raw4, Packet],
            &[Tcp, Udp, Raw4, Packet, Packet],
            &[Tcp; MAX_NETWORK_SOCKETS + 1],
        ] {
            assert!(NetworkSockets::sorted(some(wrong)).is_none(), "{wrong:?}");
        }
    }
}
