//! The network of sandboxes: its end inside, and the sockets that its other end is served by.

use std::{fs, io, io::IoSliceMut, mem::MaybeUninit, os::fd::OwnedFd, path::Path, time::Duration};

use bytes::BytesMut;
use guest_protocol::{Decoder, Failure, FailureKind, Frame, FrameKind, Hello, Request, Response, encode};
use jail::{NetworkEnd, NetworkMeans};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketType, ipproto,
    recvmsg, sockopt,
};
use sandbox::{
    BackendError, Next, SandboxId, SandboxPlan,
    network::{NetworkPlan, NetworkSockets, OWN_ADDRESS_V4, OWN_ADDRESS_V6, RELEASE_MARK},
};
use tokio::{io::Interest, net::UnixStream};

use super::socket;

/// A guest on a busy machine answers in milliseconds.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Longest greeting and answer together; both are short.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Most descriptors taken with one read; the kernel closes others.
const MAX_DESCRIPTORS: usize = 8;

/// Begins with [`sandbox::EDGE_NETWORK`].
const EDGE_BY_TPROXY: &str = "edge (tproxy)";

/// The end of a sandbox's network inside; `None` if its plan needs none.
pub(crate) fn end_of(plan: &SandboxPlan, means: &NetworkMeans) -> Result<Option<NetworkEnd>, BackendError> {
    if !plan.network.needs_edge() {
        return Ok(None);
    }
    match means {
        NetworkMeans::Tproxy { v6 } => {
            let v6 = (*v6 && has_route_out(&fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default()))
                .then_some(OWN_ADDRESS_V6);
            Ok(Some(NetworkEnd { v4: OWN_ADDRESS_V4, v6, mark: RELEASE_MARK }))
        }
        NetworkMeans::NamedPorts { .. } | NetworkMeans::None { .. } => {
            let why = why_none(means).unwrap_or_default();
            let what = format!("sandbox {} needs a network, which cannot be made here: {why}", plan.id);
            Err(BackendError::Unsupported { what, next: Some(Next::Diagnose) })
        }
    }
}

/// Why a network cannot be made here, if so.
pub(crate) fn why_none(means: &NetworkMeans) -> Option<String> {
    match means {
        NetworkMeans::Tproxy { .. } => None,
        NetworkMeans::NamedPorts { why, .. } => {
            Some(format!("the kernel has no tproxy for nftables ({why})"))
        }
        NetworkMeans::None { why } => Some(why.clone()),
    }
}

/// A sandbox's network in the words of its isolation.
pub(crate) fn statement(plan: &NetworkPlan, end: Option<&NetworkEnd>) -> &'static str {
    match end {
        Some(_) => EDGE_BY_TPROXY,
        None if plan.reaches_packages() => "packages",
        None => "none",
    }
}

/// Whether the host has a default route for IPv6. `routes`: the text of `/proc/net/ipv6_route`.
fn has_route_out(routes: &str) -> bool {
    const REJECTS: u32 = 0x0200;
    routes.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [destination, length, .., flags, _link] = fields[..] else { return false };
        let is_default = destination.bytes().all(|digit| digit == b'0') && length == "00";
        is_default && u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & REJECTS == 0)
    })
}

/// Asks the guest at a socket for the sockets of its network. `None`: it has none, or is of a version that had no
/// networks.
pub(crate) async fn sockets(id: &SandboxId, at: &Path) -> Result<Option<NetworkSockets>, BackendError> {
    match tokio::time::timeout(ANSWER_TIME, asked(id, at)).await {
        Ok(answer) => answer,
        Err(_elapsed) => {
            let what = format!("the network's sockets of sandbox {id}");
            Err(BackendError::TimedOut { what, after: ANSWER_TIME })
        }
    }
}

async fn asked(id: &SandboxId, at: &Path) -> Result<Option<NetworkSockets>, BackendError> {
    let failed = |why: &str| BackendError::Failed {
        what: format!("the guest of {id} did not hand out its network's sockets: {why}"),
        source: None,
    };
    let broken = |error: io::Error| failed(&error.to_string());
    let mut guest = Asked::connect(id, at).await?;
    let hello = guest.frame(FrameKind::Hello).await.map_err(broken)?;
    let version = hello.parse::<Hello>().ok().and_then(|hello| hello.agree().ok());
    let version = version.ok_or_else(|| failed("it speaks no version of the protocol that we do"))?;
    if version < Request::NetworkSockets.since() {
        return Ok(None);
    }
    guest.send(&Request::NetworkSockets).await.map_err(broken)?;
    let answer = guest.next().await.map_err(broken)?;
    match answer.kind {
        FrameKind::Response => {
            let Ok(Response::NetworkSockets { count }) = answer.parse() else {
                return Err(failed("it answered with something else"));
            };
            if count as usize != guest.descriptors.len() {
                return Err(failed("their number is not the one it says"));
            }
            let sockets = NetworkSockets::from_descriptors(guest.descriptors)
                .ok_or_else(|| failed("their number is wrong"))?;
            check(&sockets).map_err(|why| failed(&why))?;
            Ok(Some(sockets))
        }
        FrameKind::Failure => match answer.parse::<Failure>() {
            Ok(Failure { kind: FailureKind::NotFound | FailureKind::Unsupported, .. }) => Ok(None),
            _ => Err(failed("it refuses")),
        },
        _ => Err(failed("it broke the protocol")),
    }
}

/// A connection that descriptors come over.
struct Asked {
    stream: UnixStream,
    buffer: BytesMut,
    /// Everything that came so far.
    descriptors: Vec<OwnedFd>,
}

impl Asked {
    async fn connect(id: &SandboxId, at: &Path) -> Result<Self, BackendError> {
        let stream = socket::connect_unix(id, at).await?;
        Ok(Self { stream, buffer: BytesMut::new(), descriptors: Vec::new() })
    }

    async fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut wire = BytesMut::new();
        let frame = Frame::request(request).map_err(io::Error::other)?;
        encode(&frame, &mut wire).map_err(io::Error::other)?;
        tokio::io::AsyncWriteExt::write_all(&mut self.stream, &wire).await
    }

    async fn frame(&mut self, kind: FrameKind) -> io::Result<Frame> {
        let frame = self.next().await?;
        if frame.kind != kind {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it broke the protocol"));
        }
        Ok(frame)
    }

    /// The next frame; the guest is hostile, so everything that it sends is bounded.
    async fn next(&mut self) -> io::Result<Frame> {
        loop {
            if let Some(frame) = Decoder::default().decode(&mut self.buffer).map_err(io::Error::other)? {
                return Ok(frame);
            }
            let (stream, descriptors) = (&self.stream, &mut self.descriptors);
            let mut bytes = [0; 4096];
            let n_read =
                stream.async_io(Interest::READABLE, || receive(stream, &mut bytes, descriptors)).await?;
            if n_read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buffer.extend_from_slice(&bytes[..n_read]);
            if self.buffer.len() > MAX_ANSWER_BYTES || self.descriptors.len() > MAX_DESCRIPTORS {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it sends too much"));
            }
        }
    }
}

/// Reads once, with the descriptors that are attached.
fn receive(stream: &UnixStream, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it sends too many descriptors"));
    }
    Ok(got.bytes)
}

/// Refuses sockets of other kinds: the guest may have been taken over by its workload, and whoever serves these sockets
/// relies on their kind. That they belong to the sandbox's network namespace needs no check: the guest has no others.
fn check(sockets: &NetworkSockets) -> Result<(), String> {
    let v4 = AddressFamily::INET;
    let v6 = AddressFamily::INET6;
    let NetworkSockets { tcp4, tcp6, udp4, udp6, raw4, raw6, syn } = sockets;
    for (name, socket, domain, kind, protocol) in [
        ("tcp4", Some(tcp4), v4, SocketType::STREAM, Some(ipproto::TCP)),
        ("tcp6", tcp6.as_ref(), v6, SocketType::STREAM, Some(ipproto::TCP)),
        ("udp4", Some(udp4), v4, SocketType::DGRAM, Some(ipproto::UDP)),
        ("udp6", udp6.as_ref(), v6, SocketType::DGRAM, Some(ipproto::UDP)),
        ("raw4", Some(raw4), v4, SocketType::RAW, Some(ipproto::RAW)),
        ("raw6", raw6.as_ref(), v6, SocketType::RAW, Some(ipproto::RAW)),
        ("syn", Some(syn), AddressFamily::PACKET, SocketType::DGRAM, None),
    ] {
        let Some(socket) = socket else { continue };
        let is_right = sockopt::socket_domain(socket).is_ok_and(|found| found == domain)
            && sockopt::socket_type(socket).is_ok_and(|found| found == kind)
            // The protocol of a packet socket is that of the packets.
            && (domain == AddressFamily::PACKET || sockopt::socket_protocol(socket).is_ok_and(|found| found == protocol))
            && (kind != SocketType::STREAM || sockopt::socket_acceptconn(socket).is_ok_and(|listens| listens));
        if !is_right {
            return Err(format!("{name} is another kind of socket"));
        }
        rustix::io::ioctl_fionbio(socket, true).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn a_route_out_is_a_default_route_that_rejects_nothing() {
        let zero = "0".repeat(32);
        let line = |destination: &str, length: &str, flags: &str| {
            format!("{destination} {length} {zero} 00 {zero} 00000400 00000001 00000000 {flags} eth0\n")
        };
        assert!(has_route_out(&line(&zero, "00", "00000003")));
        assert!(!has_route_out(&line(&zero, "00", "00200200")), "the kernel's own, which refuses");
        assert!(!has_route_out(&line(&format!("fe80{}", "0".repeat(28)), "40", "00000001")));
        assert!(!has_route_out(&line(&zero, "40", "00000001")));
        assert!(!has_route_out("") && !has_route_out("x\n"));
    }

    #[test]
    fn sockets_of_another_kind_are_refused() {
        let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let udp = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        let refused = |descriptors: Vec<OwnedFd>| {
            check(&NetworkSockets::from_descriptors(descriptors).unwrap()).unwrap_err()
        };
        assert!(refused(vec![udp(), udp(), udp(), udp()]).starts_with("tcp4"));
        assert!(refused(vec![tcp(), tcp(), udp(), udp()]).starts_with("udp4"));
        assert!(refused(vec![tcp(), udp(), tcp(), udp()]).starts_with("raw4"));
        let file = || OwnedFd::from(fs::File::open("/dev/null").unwrap());
        assert!(refused(vec![file(), udp(), udp(), udp()]).starts_with("tcp4"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = OwnedFd::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        assert!(refused(vec![connected, udp(), udp(), udp()]).starts_with("tcp4"), "it does not listen");
    }
}
