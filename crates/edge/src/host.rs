//! The host's addresses and the ranges that it reaches without a gateway, as its kernel knows them.

use std::{io, net::IpAddr, os::fd::OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv, send, socket_with,
};
use sandbox::network::{IpNet, Surroundings};
use tokio::io::Interest;

use crate::watched::{Watched, watch};

const BUFFER: usize = 64 * 1024;
/// Most messages of one answer: a host with more routes than this has them in another table.
const MAX_MESSAGES: usize = 100_000;

const HEADER: usize = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// A request for all there are.
const DUMP: u16 = 0x301;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_GATEWAY: u16 = 5;
const RTA_VIA: u16 = 18;
const MAIN_TABLE: u8 = 254;
const UNICAST: u8 = 1;
/// Changes of addresses and routes, of IPv4 and IPv6.
const GROUPS: u32 = 0x10 | 0x40 | 0x100 | 0x400;

/// Looks at the host, and again when something changed there.
#[derive(Debug)]
pub(crate) struct HostWatch {
    /// Absent where the kernel refuses it.
    changes: Option<Watched>,
}

impl HostWatch {
    pub(crate) fn new() -> Self {
        let changes = open(GROUPS).and_then(|socket| watch(socket, Interest::READABLE));
        if let Err(error) = &changes {
            tracing::warn!(%error, "changes of the host's addresses will not be seen");
        }
        Self { changes: changes.ok() }
    }

    /// Waits until addresses or routes changed. A wait that is given up loses nothing.
    pub(crate) async fn changed(&self) {
        let Some(changes) = &self.changes else { return std::future::pending().await };
        let Ok(mut ready) = changes.readable().await else { return std::future::pending().await };
        let mut buffer = vec![0; BUFFER];
        // An error is a change too: changes were lost.
        while let Ok(Ok(_)) =
            ready.try_io(|socket| Ok(recv(socket.get_ref(), &mut buffer[..], RecvFlags::DONTWAIT)?))
        {}
    }

    /// Returns the surroundings as they are now; what could not be found out is missing.
    pub(crate) fn look(&self) -> Surroundings {
        let host = dump(RTM_GETADDR).map(|messages| messages.iter().filter_map(|one| address(one)).collect());
        let on_link =
            dump(RTM_GETROUTE).map(|messages| messages.iter().filter_map(|one| on_link(one)).collect());
        if let Err(error) = host.as_ref().map(drop).and(on_link.as_ref().map(drop)) {
            tracing::warn!(%error, "could not find out the host's addresses");
        }
        Surroundings {
            host: host.unwrap_or_default(),
            on_link: on_link.unwrap_or_default(),
            ..Surroundings::default()
        }
    }
}

fn open(groups: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &netlink::SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// The bodies of all messages, each with its type.
fn dump(request: u16) -> io::Result<Vec<Vec<u8>>> {
    let socket = open(0)?;
    // A header, and the family "all" of an address or a route.
    let mut message = vec![0; HEADER + 12];
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&request.to_ne_bytes());
    message[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    send(&socket, &message, SendFlags::empty())?;
    let mut all = Vec::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        let (_, length) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..length.min(BUFFER)];
        while let Some((kind, body, next)) = split(rest) {
            match kind {
                NLMSG_DONE => return Ok(all),
                NLMSG_ERROR => {
                    return Err(io::Error::other("the kernel refused to list addresses or routes"));
                }
                _ if all.len() >= MAX_MESSAGES => return Ok(all),
                kind => all.push([&kind.to_ne_bytes()[..], body].concat()),
            }
            rest = next;
        }
    }
}

/// The first message: its type, its body, and what follows.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
    let body = bytes.get(HEADER..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes([*attributes.get(2)?, *attributes.get(3)?]);
        let value = attributes.get(4..length)?;
        // The upper bits are flags.
        if kind & 0x3fff == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*bytes.first_chunk::<16>()?)),
        _ => None,
    }
}

fn address(message: &[u8]) -> Option<IpAddr> {
    let (kind, body) = message.split_first_chunk()?;
    if u16::from_ne_bytes(*kind) != RTM_NEWADDR {
        return None;
    }
    let attributes = body.get(8..)?;
    ip(attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS))?)
}

fn on_link(message: &[u8]) -> Option<IpNet> {
    let (kind, body) = message.split_first_chunk()?;
    let [_family, prefix, _source, _tos, table, _protocol, _scope, sort, ..] = body else { return None };
    let attributes = body.get(12..)?;
    let has_gateway =
        attribute(attributes, RTA_GATEWAY).is_some() || attribute(attributes, RTA_VIA).is_some();
    if u16::from_ne_bytes(*kind) != RTM_NEWROUTE || *table != MAIN_TABLE || *sort != UNICAST || has_gateway {
        return None;
    }
    IpNet::new(ip(attribute(attributes, RTA_DST)?)?, *prefix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_own_addresses_are_found() {
        let host = dump(RTM_GETADDR).unwrap();
        let addresses: Vec<_> = host.iter().filter_map(|one| address(one)).collect();
        assert!(addresses.contains(&IpAddr::from([127, 0, 0, 1])), "{addresses:?}");
    }

    #[test]
    fn any_bytes_are_no_harm() {
        assert_eq!(split(&[255; 64]), None);
        assert_eq!(split(&[0; 64]), None);
        assert_eq!(attribute(&[0; 8], 1), None);
        assert_eq!(address(&[20, 0, 1]), None);
        assert_eq!(on_link(&[24, 0, 1, 2, 3]), None);
    }
}
