//! The sockets of a sandbox, told apart by what the kernel says: whoever hands them out may have been taken over.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketType, getsockname, ipproto, sockopt};
use sandbox::network::{NetworkSockets, SocketKind};

/// Sorts the sockets of a sandbox's network; `None` if one is of another kind, or some are missing. That they belong to
/// the sandbox's network namespace needs no check: its guest has no others.
pub fn sort_sockets(descriptors: Vec<OwnedFd>) -> Option<NetworkSockets> {
    let kinds: Option<Vec<_>> =
        descriptors.into_iter().map(|socket| Some((kind(&socket)?, socket))).collect();
    NetworkSockets::sorted(kinds?)
}

fn kind(socket: &OwnedFd) -> Option<SocketKind> {
    let (domain, kind) = (sockopt::socket_domain(socket).ok()?, sockopt::socket_type(socket).ok()?);
    if domain == AddressFamily::PACKET {
        // The protocol of a packet socket is that of the packets.
        return (kind == SocketType::DGRAM).then_some(SocketKind::Packet);
    }
    let protocol = sockopt::socket_protocol(socket).ok()?;
    let is_ipv4 = match domain {
        AddressFamily::INET => true,
        AddressFamily::INET6 => false,
        _ => return None,
    };
    match (kind, protocol) {
        (SocketType::STREAM, Some(ipproto::TCP)) => {
            sockopt::socket_acceptconn(socket).is_ok_and(|listens| listens).then_some(SocketKind::Tcp)
        }
        (SocketType::DGRAM, Some(ipproto::UDP)) => Some(SocketKind::Udp),
        (SocketType::RAW, Some(ipproto::RAW)) if is_ipv4 => Some(SocketKind::Raw4),
        (SocketType::RAW, Some(ipproto::RAW)) => Some(SocketKind::Raw6),
        _ => None,
    }
}

/// The ports of listeners in the form of named ports, which are bound to no address; `None` in the other form.
pub(crate) fn named_ports(listeners: &[impl AsFd]) -> Option<BTreeSet<u16>> {
    listeners
        .iter()
        .map(|listener| {
            let at = SocketAddr::try_from(getsockname(listener).ok()?).ok()?;
            at.ip().is_unspecified().then_some(at.port())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn sockets_of_another_kind_are_refused() {
        let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let udp = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = OwnedFd::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        assert_eq!(kind(&tcp()), Some(SocketKind::Tcp));
        assert_eq!(kind(&udp()), Some(SocketKind::Udp));
        assert_eq!(kind(&file()), None);
        assert_eq!(kind(&connected), None, "it does not listen");
        assert!(sort_sockets(vec![tcp(), udp(), udp(), udp()]).is_none());
        assert!(sort_sockets(vec![tcp(), udp(), file()]).is_none());
    }

    #[test]
    fn the_form_is_known_by_where_listeners_are_bound() {
        let at = |address: &str| TcpListener::bind(address).unwrap();
        assert_eq!(named_ports(&[at("127.0.0.1:0")]), None);
        let (one, other) = (at("0.0.0.0:0"), at("[::]:0"));
        let ports = [&one, &other].map(|listener| listener.local_addr().unwrap().port());
        assert_eq!(named_ports(&[one, other]), Some(ports.into()));
    }
}
