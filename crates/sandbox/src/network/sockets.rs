//! The sockets by which a sandbox's network is served from outside, and what both ends must know about them.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

/// The sandbox's own address, the same in every sandbox: each has a network namespace of its own.
pub const OWN_ADDRESS_V4: Ipv4Addr = Ipv4Addr::new(10, 83, 66, 1);
/// The same for IPv6; absent if the daemon's host has no route out for IPv6.
pub const OWN_ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0x6172, 0x7265, 0x6e00, 0, 0, 0, 1);
/// The resolver of every sandbox. DNS questions to any address end at the edge; this one is nobody else's.
pub const NAMESERVER: Ipv4Addr = Ipv4Addr::new(10, 83, 66, 53);
/// What packets from `raw4` and `raw6` are marked with, which is set on those sockets already. A first packet of a TCP
/// connection passes only with it.
pub const RELEASE_MARK: u32 = 0x7761_7272;

/// Made in the sandbox's network namespace before its first program ran; the guest keeps copies and hands them out.
///
/// All are non-blocking. That and every other setting belongs to the socket, not to the descriptor, so a guest that was
/// taken over can change them: pass `MSG_DONTWAIT` to calls that take it, and do not accept on a thread that others
/// depend on without setting the socket to non-blocking first.
///
/// The `6` ones are absent if the sandbox has no IPv6. On the wire they are in the order of the fields.
#[derive(Debug)]
pub struct NetworkSockets {
    /// Listens for TCP connections to any address. The local address of an accepted connection is its destination. Own
    /// address as destination: not ours to serve, close it.
    pub tcp4: OwnedFd,
    pub tcp6: Option<OwnedFd>,
    /// Receives datagrams for any address, with their destination (`IP_ORIGDSTADDR`, `IPV6_ORIGDSTADDR`). Answers go
    /// through `raw4` and `raw6`: this socket has another address.
    pub udp4: OwnedFd,
    pub udp6: Option<OwnedFd>,
    /// Sends whole packets, headers included: first packets of TCP connections that may begin, resets, datagrams, and
    /// ICMP errors. Nothing can be received from it.
    pub raw4: OwnedFd,
    pub raw6: Option<OwnedFd>,
    /// Receives the first packet (SYN) of every TCP connection to outside, from the network header on and without a
    /// valid TCP checksum; of IPv4 and IPv6. The kernel drops the packet itself and the program waits, and repeats it
    /// after a second. `raw4` or `raw6` begin the connection by sending it with its checksum; then `tcp4` or `tcp6`
    /// accepts. Packets are lost if too many wait.
    pub syn: OwnedFd,
}

impl NetworkSockets {
    /// Their number with and without IPv6.
    pub const COUNTS: [usize; 2] = [7, 4];

    /// From the order of the fields; `None` if there are too few or too many.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let has_v6 = match descriptors.len() {
            7 => true,
            4 => false,
            _ => return None,
        };
        let mut rest = descriptors.into_iter();
        let mut pair = || {
            let v4 = rest.next()?;
            Some((v4, if has_v6 { Some(rest.next()?) } else { None }))
        };
        let ((tcp4, tcp6), (udp4, udp6), (raw4, raw6)) = (pair()?, pair()?, pair()?);
        let syn = rest.next()?;
        Some(Self { tcp4, tcp6, udp4, udp6, raw4, raw6, syn })
    }

    /// In the order of the fields.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let Self { tcp4, tcp6, udp4, udp6, raw4, raw6, syn } = self;
        let all =
            [Some(tcp4), tcp6.as_ref(), Some(udp4), udp6.as_ref(), Some(raw4), raw6.as_ref(), Some(syn)];
        all.into_iter().flatten().map(|descriptor| descriptor.as_fd()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd as _};

    use super::*;

    fn some(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| File::open("/dev/null").unwrap().into()).collect()
    }

    #[test]
    fn the_order_is_that_of_the_fields() {
        for count in NetworkSockets::COUNTS {
            let descriptors = some(count);
            let numbers: Vec<_> = descriptors.iter().map(|one| one.as_raw_fd()).collect();
            let sockets = NetworkSockets::from_descriptors(descriptors).unwrap();
            assert_eq!(sockets.tcp6.is_some(), count == 7);
            assert_eq!(sockets.descriptors().iter().map(|one| one.as_raw_fd()).collect::<Vec<_>>(), numbers);
        }
        for count in [0, 1, 3, 5, 6, 8] {
            assert!(NetworkSockets::from_descriptors(some(count)).is_none(), "{count}");
        }
    }
}
