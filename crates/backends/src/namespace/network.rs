//! The network of sandboxes: its end inside, and the sockets that its other end is served by.

use std::{
    fs, io,
    io::IoSliceMut,
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use guest_protocol::{
    Decoder, Failure, FailureKind, Frame, FrameKind, Hello, PortProtocol, Request, Response, encode,
};
use jail::{NamedPorts, NetworkEnd, NetworkMeans};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use sandbox::{
    BackendError, NetworkHold, Next, SandboxId, SandboxPlan,
    network::{
        MAX_NAMED_PORTS, MAX_NETWORK_SOCKETS, NetworkPlan, NetworkSockets, NotByName, OWN_ADDRESS_V4,
        OWN_ADDRESS_V6, RELEASE_MARK, ReachedPorts,
    },
};
use tokio::{io::Interest, net::UnixStream};

use super::{error, names::PlaceNames, record, socket};

/// A guest on a busy machine answers in milliseconds.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Longest greeting and answer together; both are short.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Most descriptors taken with one read; the kernel closes others.
const MAX_DESCRIPTORS: usize = MAX_NETWORK_SOCKETS;

/// The congestion control of sandboxes with a network. The host's default may suit long distances; these are none, and
/// it is several times slower here.
pub(crate) const CONGESTION_CONTROL: &str = "reno";
/// Any port: the socket is not used, it only shows its network namespace.
const ANY_PORT: u16 = 9;
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// The end of a sandbox's network inside; `None` if its plan needs none.
pub(crate) fn end_of(plan: &SandboxPlan, means: &NetworkMeans) -> Result<Option<NetworkEnd>, BackendError> {
    if !plan.network.needs_edge() {
        return Ok(None);
    }
    end(&plan.id, &plan.network, means).map(Some)
}

/// The end of any sandbox's network here.
pub(crate) fn end(
    id: &SandboxId,
    plan: &NetworkPlan,
    means: &NetworkMeans,
) -> Result<NetworkEnd, BackendError> {
    let (can_v6, named) = match means {
        NetworkMeans::Tproxy { v6 } => (*v6, None),
        NetworkMeans::NamedPorts { v6, why } => {
            let ports = plan.named_ports().map_err(|unheld| not_by_name(&unheld, why))?;
            let (tcp, udp) = (ports.tcp.into_iter().collect(), ports.udp.into_iter().collect());
            (*v6, Some(NamedPorts { tcp, udp }))
        }
        NetworkMeans::None { why } => {
            let what = format!("sandbox {id} needs a network, which cannot be made here: {why}");
            return Err(BackendError::Unsupported { what, next: Some(Next::Diagnose) });
        }
    };
    let v6 = (can_v6 && has_route_out(&fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default()))
        .then_some(OWN_ADDRESS_V6);
    Ok(NetworkEnd { v4: OWN_ADDRESS_V4, v6, mark: RELEASE_MARK, named })
}

fn not_by_name(unheld: &NotByName, why: &str) -> BackendError {
    let what = format!(
        "a network policy of which {unheld}, on a host whose kernel has no tproxy for nftables ({why}) and so takes at \
         most {MAX_NAMED_PORTS} ports that are named"
    );
    BackendError::Unsupported { what, next: Some(Next::Diagnose) }
}

/// Why networks cannot be made here, or not in full, if so.
pub(crate) fn what_is_missing(means: &NetworkMeans) -> Option<String> {
    match means {
        NetworkMeans::Tproxy { .. } => None,
        NetworkMeans::NamedPorts { why, .. } => Some(format!(
            "Networks reach only the usual ports and those that rules name: the kernel has no tproxy for nftables ({why})."
        )),
        NetworkMeans::None { why } => Some(format!("Sandboxes reach nothing but package indexes: {why}.")),
    }
}

/// A sandbox's network for the statement of its isolation.
pub(crate) fn statement(plan: &NetworkPlan, end: Option<&NetworkEnd>) -> NetworkHold {
    match end {
        Some(NetworkEnd { named: Some(_), .. }) => NetworkHold::EdgeByNamedPorts,
        Some(_) => NetworkHold::Edge,
        None if plan.reaches_packages() => NetworkHold::Packages,
        None => NetworkHold::Loopback,
    }
}

/// Warns of what does not hold of a sandbox's network, if it has one in the form of named ports.
pub(crate) fn warning(end: Option<&NetworkEnd>) -> Option<String> {
    let ports = reached(end?.named.as_ref()?);
    Some(format!(
        "The kernel has no tproxy for nftables. Of what its policy allows, the sandbox reaches the ports {ports}; programs \
         inside cannot listen on these, and what they send to others that they listen on themselves stays inside. A \
         connection that is denied is accepted first and then reset."
    ))
}

pub(crate) fn reached(named: &NamedPorts) -> ReachedPorts {
    let NamedPorts { tcp, udp } = named;
    ReachedPorts { tcp: tcp.iter().copied().collect(), udp: udp.iter().copied().collect() }
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
    let Some((answer, descriptors)) = answer(id, at, &Request::NetworkSockets).await? else {
        return Ok(None);
    };
    let Response::NetworkSockets { count } = answer else {
        return Err(failed(id, "it answered with something else"));
    };
    if count as usize != descriptors.len() {
        return Err(failed(id, "their number is not the one it says"));
    }
    all_of(id, descriptors).map(Some)
}

fn all_of(id: &SandboxId, descriptors: Vec<OwnedFd>) -> Result<NetworkSockets, BackendError> {
    // The guest may have been taken over by its workload, and whoever serves these sockets relies on their kind.
    let sockets = edge::sort_sockets(descriptors)
        .ok_or_else(|| failed(id, "some are missing, or are another kind of socket"))?;
    for socket in sockets.descriptors() {
        rustix::io::ioctl_fionbio(socket, true).map_err(|error| failed(id, &error.to_string()))?;
    }
    Ok(sockets)
}

fn failed(id: &SandboxId, why: &str) -> BackendError {
    let what = format!("the guest of {id} did not hand out its network's sockets: {why}");
    BackendError::Failed { what, source: None }
}

/// The guest's answer, with the descriptors that came along. `None`: it has nothing of the kind, or is too old.
async fn answer(
    id: &SandboxId,
    at: &Path,
    request: &Request,
) -> Result<Option<(Response, Vec<OwnedFd>)>, BackendError> {
    let broken = |error: io::Error| failed(id, &error.to_string());
    let mut guest = Asked::connect(id, at).await?;
    let hello = guest.frame(FrameKind::Hello).await.map_err(broken)?;
    let version = hello.parse::<Hello>().ok().and_then(|hello| hello.agree().ok());
    let version = version.ok_or_else(|| failed(id, "it speaks no version of the protocol that we do"))?;
    if version < request.since() {
        return Ok(None);
    }
    guest.send(request).await.map_err(broken)?;
    let answer = guest.next().await.map_err(broken)?;
    match answer.kind {
        FrameKind::Response => match answer.parse() {
            Ok(response) => Ok(Some((response, std::mem::take(&mut guest.descriptors)))),
            Err(_garbled) => Err(failed(id, "it answered with something else")),
        },
        FrameKind::Failure => match answer.parse::<Failure>() {
            Ok(Failure { kind: FailureKind::NotFound | FailureKind::Unsupported, .. }) => Ok(None),
            _ => Err(failed(id, "it refuses")),
        },
        _ => Err(failed(id, "it broke the protocol")),
    }
}

/// Makes the end of a network for a sandbox that was started without one ([`jail::make_network_later`]). `patience`:
/// how long sockets of an earlier daemon may be in the way.
pub(crate) async fn make_later(
    id: &SandboxId,
    names: &PlaceNames,
    end: NetworkEnd,
    patience: Duration,
) -> Result<NetworkSockets, BackendError> {
    let namespace = record::read_network_namespace(&names.pid())
        .ok_or_else(|| failed(id, "it is of a version that did not note its network namespace"))?;
    let any = Request::ConnectFd { port: ANY_PORT, protocol: PortProtocol::Udp };
    let place = names.socket();
    let asked = tokio::time::timeout(ANSWER_TIME, answer(id, &place, &any)).await;
    let Some((Response::Socket, sockets)) = asked.unwrap_or_else(|_elapsed| {
        let what = format!("a socket of sandbox {id}");
        Err(BackendError::TimedOut { what, after: ANSWER_TIME })
    })?
    else {
        return Err(failed(id, "it did not show its network namespace"));
    };
    // Closing what a guest attached may block too.
    let made = tokio::task::spawn_blocking(move || match sockets.first() {
        Some(of) => make_when_free(of, namespace, &end, patience),
        None => Err(io::ErrorKind::NotFound.into()),
    });
    let made = made.await.map_err(error::from_join)?;
    all_of(id, made.map_err(|error| failed(id, &error.to_string()))?)
}

/// Blocks, while sockets of before are there.
fn make_when_free(
    of: &OwnedFd,
    namespace: u64,
    end: &NetworkEnd,
    patience: Duration,
) -> io::Result<Vec<OwnedFd>> {
    let began = Instant::now();
    loop {
        match jail::make_network_later(of.as_fd(), namespace, end, CONGESTION_CONTROL) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && began.elapsed() < patience => {
                std::thread::sleep(TRY_AGAIN);
            }
            made => return made,
        }
    }
}

/// A connection that descriptors come over.
struct Asked {
    stream: UnixStream,
    buffer: BytesMut,
    /// Everything that came so far.
    descriptors: Vec<OwnedFd>,
}

impl Drop for Asked {
    /// Closing a socket can block for as long as its sandbox likes (`SO_LINGER`).
    fn drop(&mut self) {
        let descriptors = std::mem::take(&mut self.descriptors);
        if !descriptors.is_empty() {
            drop(tokio::task::spawn_blocking(move || drop(descriptors)));
        }
    }
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

#[cfg(test)]
mod tests {
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
}
