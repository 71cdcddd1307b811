//! Packets that the edge sends into a sandbox: a SYN released, a reset, a datagram, "unreachable". Pure: bytes in,
//! bytes out.
//!
//! Packets that come in were made by the sandbox's kernel at the wish of a hostile program, so every length is checked.
//! Of the IP header only the addresses survive; options and extension headers do not.

use std::net::{IpAddr, SocketAddr};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const HOPS: u8 = 64;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
/// How much of a refused datagram's payload goes back with the refusal. The kernel needs the headers only.
const QUOTED_PAYLOAD: usize = 8;
/// Largest payload of a datagram: what IPv4's length field leaves.
pub(crate) const MAX_DATAGRAM: usize = 65_535 - IPV4_HEADER - UDP_HEADER;

/// Why something cannot be reached, as the sandbox's kernel is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreachable {
    Network,
    Host,
    Port,
}

/// The first packet of a TCP connection, held until the connection outside is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Syn {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// The TCP header with its options, without data: whoever sends data in a SYN sends it again.
    tcp: Vec<u8>,
}

impl Syn {
    /// Reads an IP packet; `None` unless it is a whole SYN header that begins a connection.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let (source, destination, segment) = match packet.first()? >> 4 {
            4 => parse_ipv4(packet)?,
            6 => parse_ipv6(packet)?,
            _ => return None,
        };
        let header = usize::from(segment.get(12)? >> 4) * 4;
        // SYN without ACK, RST or FIN.
        if header < TCP_HEADER || segment.len() < header || segment[13] & 0x17 != 0x02 {
            return None;
        }
        let port = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
        Some(Self {
            source: SocketAddr::new(source, port(0)),
            destination: SocketAddr::new(destination, port(2)),
            tcp: segment[..header].to_vec(),
        })
    }

    /// The packet as it is sent on to the listener.
    pub(crate) fn released(&self) -> Vec<u8> {
        let mut tcp = self.tcp.clone();
        set_checksum(&mut tcp, 16, self.source.ip(), self.destination.ip(), TCP);
        with_ip_header(self.source.ip(), self.destination.ip(), TCP, &tcp)
    }

    /// The answer of a host where nothing listens on the port.
    pub(crate) fn reset(&self) -> Vec<u8> {
        let (from, to) = (self.destination, self.source);
        let sequence = u32::from_be_bytes([self.tcp[4], self.tcp[5], self.tcp[6], self.tcp[7]]);
        let mut tcp = Vec::with_capacity(TCP_HEADER);
        tcp.extend(from.port().to_be_bytes());
        tcp.extend(to.port().to_be_bytes());
        tcp.extend(0_u32.to_be_bytes());
        tcp.extend(sequence.wrapping_add(1).to_be_bytes());
        // Five words of header; RST and ACK; no window, checksum below, no urgent data.
        tcp.extend([0x50, 0x14, 0, 0, 0, 0, 0, 0]);
        set_checksum(&mut tcp, 16, from.ip(), to.ip(), TCP);
        with_ip_header(from.ip(), to.ip(), TCP, &tcp)
    }

    /// The answer of a router that knows no way.
    pub(crate) fn unreachable(&self, why: Unreachable) -> Vec<u8> {
        let refused = with_ip_header(self.source.ip(), self.destination.ip(), TCP, &self.tcp);
        unreachable(self.destination.ip(), self.source.ip(), why, &refused)
    }
}

/// A datagram with any source.
pub(crate) fn datagram(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let udp = udp_segment(source, destination, payload);
    with_ip_header(source.ip(), destination.ip(), UDP, &udp)
}

/// The answer of `destination` where nothing takes the datagram that `source` sent.
pub(crate) fn datagram_unreachable(
    source: SocketAddr,
    destination: SocketAddr,
    payload: &[u8],
    why: Unreachable,
) -> Vec<u8> {
    let quoted = udp_segment(source, destination, &payload[..payload.len().min(QUOTED_PAYLOAD)]);
    let refused = with_ip_header(source.ip(), destination.ip(), UDP, &quoted);
    unreachable(destination.ip(), source.ip(), why, &refused)
}

fn udp_segment(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(MAX_DATAGRAM)];
    let length = u16::try_from(UDP_HEADER + payload.len()).unwrap_or(u16::MAX);
    let mut udp = Vec::with_capacity(UDP_HEADER + payload.len());
    udp.extend(source.port().to_be_bytes());
    udp.extend(destination.port().to_be_bytes());
    udp.extend(length.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    set_checksum(&mut udp, 6, source.ip(), destination.ip(), UDP);
    // A sum of zero would mean "none", which IPv6 forbids.
    if udp[6..8] == [0, 0] {
        udp[6..8].copy_from_slice(&[0xff, 0xff]);
    }
    udp
}

fn unreachable(from: IpAddr, to: IpAddr, why: Unreachable, refused: &[u8]) -> Vec<u8> {
    let mut message = match (from, why) {
        (IpAddr::V4(_), Unreachable::Network) => vec![3, 0],
        (IpAddr::V4(_), Unreachable::Host) => vec![3, 1],
        (IpAddr::V4(_), Unreachable::Port) => vec![3, 3],
        (IpAddr::V6(_), Unreachable::Network) => vec![1, 0],
        (IpAddr::V6(_), Unreachable::Host) => vec![1, 3],
        (IpAddr::V6(_), Unreachable::Port) => vec![1, 4],
    };
    message.extend([0; 6]);
    message.extend(refused);
    match (from, to) {
        (IpAddr::V4(_), _) => {
            let sum = fold(add(0, &message));
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            with_ip_header(from, to, ICMP, &message)
        }
        (IpAddr::V6(_), _) => {
            set_checksum(&mut message, 2, from, to, ICMPV6);
            with_ip_header(from, to, ICMPV6, &message)
        }
    }
}

fn parse_ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let header = usize::from(packet[0] & 0xf) * 4;
    if header < IPV4_HEADER || packet.len() < header {
        return None;
    }
    // More fragments, or not the first one.
    let is_fragment = packet[6] & 0x3f != 0 || packet[7] != 0;
    if packet[9] != TCP || is_fragment {
        return None;
    }
    let address = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    Some((address(12)?, address(16)?, &packet[header..]))
}

fn parse_ipv6(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    if packet.len() < IPV6_HEADER || packet[6] != TCP {
        return None;
    }
    let address = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
    Some((address(8)?, address(24)?, &packet[IPV6_HEADER..]))
}

fn with_ip_header(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = u16::try_from(IPV4_HEADER + payload.len()).unwrap_or(u16::MAX);
            let mut packet = Vec::with_capacity(IPV4_HEADER + payload.len());
            packet.extend([0x45, 0]);
            packet.extend(length.to_be_bytes());
            // Not fragmented, no fragments.
            packet.extend([0, 0, 0x40, 0, HOPS, protocol, 0, 0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            let sum = fold(add(0, &packet));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            packet.extend(payload);
            packet
        }
        (from, to) => {
            let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
            let mut packet = Vec::with_capacity(IPV6_HEADER + payload.len());
            packet.extend([0x60, 0, 0, 0]);
            packet.extend(length.to_be_bytes());
            packet.extend([protocol, HOPS]);
            packet.extend(as_ipv6(from));
            packet.extend(as_ipv6(to));
            packet.extend(payload);
            packet
        }
    }
}

fn as_ipv6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Writes the checksum over a segment and its pseudo header at `at`.
fn set_checksum(segment: &mut [u8], at: usize, from: IpAddr, to: IpAddr, protocol: u8) {
    segment[at..at + 2].copy_from_slice(&[0, 0]);
    let sum = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => add(add(0, &from.octets()), &to.octets()),
        (from, to) => add(add(0, &as_ipv6(from)), &as_ipv6(to)),
    };
    let length = u32::try_from(segment.len()).unwrap_or(u32::MAX);
    let sum = fold(add(add(sum, &length.to_be_bytes()), segment) + u64::from(protocol));
    segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn add(sum: u64, bytes: &[u8]) -> u64 {
    let mut pairs = bytes.chunks_exact(2);
    let whole: u64 = pairs.by_ref().map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let odd = pairs.remainder().first().map_or(0, |last| u64::from(*last) << 8);
    sum + whole + odd
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Reads bytes as a packet; whatever is made of them can be read again.
#[doc(hidden)]
pub fn fuzz_packet(bytes: &[u8]) {
    if let Some(syn) = Syn::parse(bytes) {
        assert!(Syn::parse(&syn.released()).is_some());
        assert_eq!(Syn::parse(&syn.reset()), None);
        assert!(!syn.unreachable(Unreachable::Host).is_empty());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn syn(source: &str, destination: &str) -> Syn {
        let (source, destination): (SocketAddr, SocketAddr) =
            (source.parse().unwrap(), destination.parse().unwrap());
        let mut tcp = Vec::new();
        tcp.extend(source.port().to_be_bytes());
        tcp.extend(destination.port().to_be_bytes());
        tcp.extend([1, 2, 3, 4, 0, 0, 0, 0, 0x60, 0x02, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 0xff, 0xd7]);
        Syn { source, destination, tcp }
    }

    /// Whether a segment and its pseudo header add up.
    fn adds_up(packet: &[u8]) -> bool {
        let (from, to, protocol, body) = match packet[0] >> 4 {
            4 => (&packet[12..16], &packet[16..20], packet[9], &packet[20..]),
            _ => (&packet[8..24], &packet[24..40], packet[6], &packet[40..]),
        };
        let pseudo = if protocol == ICMP {
            0
        } else {
            add(add(0, from), to) + u64::from(protocol) + u64::try_from(body.len()).unwrap()
        };
        fold(add(pseudo, body)) == 0 && (packet[0] >> 4 != 4 || fold(add(0, &packet[..20])) == 0)
    }

    #[test]
    fn a_released_syn_is_the_same_syn_with_right_sums() {
        for (source, destination) in
            [("10.0.2.15:40000", "93.184.216.34:443"), ("[fd00::15]:40000", "[2606:4700::1]:443")]
        {
            let held = syn(source, destination);
            let released = held.released();
            assert!(adds_up(&released));
            let again = Syn::parse(&released).unwrap();
            assert_eq!((again.source, again.destination), (held.source, held.destination));
            assert_eq!(again.tcp[18..], held.tcp[18..]);
        }
    }

    #[test]
    fn a_reset_acknowledges_the_syn() {
        let reset = syn("10.0.2.15:40000", "93.184.216.34:443").reset();
        assert!(adds_up(&reset));
        assert_eq!(reset[12..20], [93, 184, 216, 34, 10, 0, 2, 15]);
        assert_eq!(reset[20..24], [1, 187, 156, 64]);
        assert_eq!(reset[28..32], [1, 2, 3, 5]);
        assert_eq!(reset[33], 0x14);
        assert_eq!(Syn::parse(&reset), None);
    }

    #[test]
    fn refusals_and_datagrams_add_up() {
        for (a, b) in [("10.0.2.15:40000", "93.184.216.34:443"), ("[fd00::15]:40000", "[2606:4700::1]:443")] {
            let (a, b): (SocketAddr, SocketAddr) = (a.parse().unwrap(), b.parse().unwrap());
            for payload in [&b""[..], b"x", b"a longer payload"] {
                assert!(adds_up(&datagram(b, a, payload)));
                assert!(adds_up(&datagram_unreachable(a, b, payload, Unreachable::Port)));
            }
        }
        assert!(adds_up(&syn("10.0.2.15:1", "1.2.3.4:2").unreachable(Unreachable::Host)));
        assert!(adds_up(&syn("[fd00::15]:1", "[2606:4700::1]:2").unreachable(Unreachable::Network)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_syn_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(syn) = Syn::parse(&bytes) {
                prop_assert!(adds_up(&syn.released()));
                prop_assert!(adds_up(&syn.reset()));
            }
        }

        #[test]
        fn what_is_cut_short_is_nothing(length in 0_usize..44) {
            let whole = syn("10.0.2.15:40000", "93.184.216.34:443").released();
            prop_assert_eq!(Syn::parse(&whole[..length.min(whole.len() - 1)]), None);
        }
    }
}
