//! UDP: questions to DNS servers are answered here; where a rule allows UDP, datagrams pass flow by flow. Everything
//! else is refused at once, so that clients of QUIC fall back to TCP.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    io::IoSliceMut,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::{AsRawFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    libc,
    sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg},
};
use rustix::net::{SendFlags, send};
use sandbox::network::{NetworkEventKind, Protocol};
use tokio::{net::UdpSocket, time::timeout};

use crate::{
    dns,
    events::{Decision, count},
    handling::{self, DNS_PORT, Handling, Outcome},
    hosts::HostCounting,
    packets::{self, Unreachable},
    sandbox::{Opening, Sandbox},
    tcp::{dial, hold::Ends, splice::Meter},
    watched::Watched,
};

/// How long a flow may be silent both ways.
const IDLE: Duration = Duration::from_secs(60);
/// Datagrams that are taken before other tasks get a turn.
const BATCH: usize = 64;
/// Pause after an error of the socket that is not "nothing there".
const PAUSE: Duration = Duration::from_millis(100);
const HTTPS_PORT: u16 = 443;

/// Flows of one sandbox.
#[derive(Debug)]
pub(crate) struct Flows {
    open: Mutex<HashMap<Ends, Arc<Flow>>>,
    /// How long one may be silent both ways.
    idle: Duration,
}

impl Default for Flows {
    fn default() -> Self {
        Self { open: Mutex::default(), idle: IDLE }
    }
}

#[derive(Debug)]
struct Flow {
    outside: UdpSocket,
    host: Arc<HostCounting>,
    last_sent: Mutex<Instant>,
}

/// Hears datagrams until the task is aborted.
pub(crate) async fn hear(sandbox: Arc<Sandbox>, socket: Watched) {
    loop {
        let Ok(mut ready) = socket.readable().await else { return };
        for _ in 0..BATCH {
            match ready.try_io(|socket| take_one(&sandbox, socket.get_ref())) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(sandbox = %sandbox.id, %error, "could not hear a datagram");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(_nothing_there) => break,
            }
        }
        drop(ready);
        tokio::task::yield_now().await;
    }
}

thread_local! {
    /// One for all sandboxes of a thread: most of them send few datagrams.
    static DATAGRAM: RefCell<Vec<u8>> = RefCell::new(vec![0; usize::from(u16::MAX)]);
}

fn take_one(sandbox: &Arc<Sandbox>, socket: &OwnedFd) -> io::Result<()> {
    DATAGRAM.with_borrow_mut(|buffer| {
        if let Some((length, ends)) = receive(socket, buffer)? {
            take(sandbox, ends, &buffer[..length]);
        }
        Ok(())
    })
}

/// One datagram with where it came from and where it wanted to go.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<(usize, Ends)>> {
    let mut space = nix::cmsg_space!(libc::sockaddr_in, libc::sockaddr_in6);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let source = received.address.as_ref().and_then(source_of);
    let destination = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4OrigDstAddr(address) => {
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(address.sin_port))))
        }
        ControlMessageOwned::Ipv6OrigDstAddr(address) => {
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(address.sin6_port), 0, 0)))
        }
        _ => None,
    });
    Ok(source
        .zip(destination)
        .map(|(source, destination)| (received.bytes, (plain(source), plain(destination)))))
}

fn source_of(address: &SockaddrStorage) -> Option<SocketAddr> {
    let ipv4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    ipv4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

/// IPv4 as IPv4, also from a socket of IPv6 that takes both.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn take(sandbox: &Arc<Sandbox>, ends: Ends, payload: &[u8]) {
    count(&sandbox.counting.datagrams);
    let (source, destination) = ends;
    if Sandbox::is_own(source.ip(), destination.ip()) {
        return;
    }
    if destination.port() == DNS_PORT {
        answer(sandbox, ends, payload);
        return;
    }
    let flow = sandbox.flows.lock().get(&ends).cloned();
    let flow = match flow {
        Some(flow) => flow,
        None => match open(sandbox, ends) {
            Ok(flow) => flow,
            Err(decision) => {
                refuse(sandbox, ends, payload, Unreachable::Port);
                sandbox.tell(*decision);
                return;
            }
        },
    };
    *flow.last_sent.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    // A datagram that finds no room is lost. Not Tokio's `try_send`: it sends nothing until the socket was polled.
    if send(&flow.outside, payload, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok() {
        let bytes = u64::try_from(payload.len()).unwrap_or(u64::MAX);
        sandbox.counting.sent_bytes.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        flow.host.sent(bytes);
    }
}

fn answer(sandbox: &Arc<Sandbox>, (source, destination): Ends, question: &[u8]) {
    let (sandbox, question) = (Arc::clone(sandbox), question.to_vec());
    tokio::spawn(async move {
        if let Some(reply) = dns::answer_datagram(&sandbox, &question).await {
            sandbox.raw.send(&packets::datagram(destination, source, &reply), source.ip());
        }
    });
}

/// Opens a flow, if the policy allows it.
fn open(sandbox: &Arc<Sandbox>, ends: Ends) -> Result<Arc<Flow>, Box<Decision>> {
    let (_, destination) = ends;
    let plan = sandbox.plan();
    let names = handling::names_of(sandbox, destination);
    let decision = |kind, rule: String| Decision {
        kind,
        protocol: Protocol::Udp,
        name: names.first().cloned(),
        address: Some(destination.ip()),
        port: destination.port(),
        rule,
    };
    let denied = |rule: &str| Box::new(decision(NetworkEventKind::Denied, rule.to_owned()));
    let (handling, rule) = match handling::decide(sandbox, Protocol::Udp, destination, &names) {
        Outcome::Take { handling, rule } => (handling, rule),
        Outcome::Refuse { rule } => return Err(denied(&rule)),
    };
    if matches!(handling, Handling::Named { .. }) && destination.port() == HTTPS_PORT {
        return Err(denied("denied: QUIC cannot be held to a name; clients fall back to TCP"));
    }
    let outside = connect(destination).map_err(|error| {
        Box::new(decision(NetworkEventKind::Failed, format!("{rule}; no socket could be opened: {error}")))
    })?;
    let host = sandbox.hosts.of(names.first(), Some(destination.ip()));
    let flow = Arc::new(Flow { outside, host, last_sent: Mutex::new(Instant::now()) });
    let listed = Listed { sandbox: Arc::clone(sandbox), ends };
    let opening = Opening { protocol: Protocol::Udp, destination, names: names.clone(), handling };
    let limit = plan.limits.udp_flows;
    sandbox.flows.lock().insert(ends, Arc::clone(&flow));
    if !sandbox.open(opening, limit, relay(listed, Arc::clone(&flow))) {
        return Err(denied(&format!("denied: the sandbox has {limit} UDP flows open, which is its limit")));
    }
    if !Arc::ptr_eq(&plan, &sandbox.plan()) {
        // A new plan came between the decision and the entry, and did not see it.
        sandbox.judge_again();
    }
    count(&flow.host.connections);
    sandbox.tell(decision(NetworkEventKind::Allowed, rule));
    Ok(flow)
}

fn connect(destination: SocketAddr) -> io::Result<UdpSocket> {
    let address = dial::addresses(destination).first().copied().unwrap_or(destination);
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// Carries answers back until the flow is silent.
async fn relay(listed: Listed, flow: Arc<Flow>) {
    let (sandbox, (source, destination)) = (&listed.sandbox, listed.ends);
    let idle = sandbox.flows.idle;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        match timeout(idle, flow.outside.recv(&mut buffer)).await {
            Ok(Ok(length)) => {
                let packet = packets::datagram(destination, source, &buffer[..length]);
                sandbox.raw.send(&packet, source.ip());
                Meter::Received(sandbox, &flow.host).passed(length).await;
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                refuse(sandbox, listed.ends, &[], Unreachable::Port);
            }
            Ok(Err(error)) => {
                tracing::debug!(sandbox = %sandbox.id, %error, "a UDP flow ended early");
                return;
            }
            Err(_silent) => {
                let last_sent = *flow.last_sent.lock().unwrap_or_else(PoisonError::into_inner);
                if last_sent.elapsed() >= idle {
                    return;
                }
            }
        }
    }
}

fn refuse(sandbox: &Sandbox, (source, destination): Ends, payload: &[u8], why: Unreachable) {
    let packet = packets::datagram_unreachable(source, destination, payload, why);
    sandbox.raw.send(&packet, source.ip());
}

impl Flows {
    fn lock(&self) -> MutexGuard<'_, HashMap<Ends, Arc<Flow>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a flow out of the list when it ends, however it ends.
#[derive(Debug)]
struct Listed {
    sandbox: Arc<Sandbox>,
    ends: Ends,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.sandbox.flows.lock().remove(&self.ends);
    }
}

#[cfg(test)]
mod tests {
    use sandbox::{
        SandboxId,
        network::{NetworkSpec, plan_network},
    };

    use super::*;
    use crate::raw::Raw;

    /// Answers that come in a flow before everybody falls silent.
    const ANSWERS: u32 = 10;

    #[tokio::test]
    async fn a_flow_ends_once_both_ways_are_silent() {
        let plan = plan_network(&NetworkSpec::default(), &[]).unwrap();
        let own = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let raw = Raw::new(own().into(), None);
        let mut sandbox = Sandbox::new(SandboxId::from_random([1; 8]), plan, raw, false, Arc::default());
        sandbox.flows.idle = Duration::from_millis(100);
        let sandbox = Arc::new(sandbox);
        let server = own();
        let ends = (own().local_addr().unwrap(), server.local_addr().unwrap());
        let host = sandbox.hosts.of(None, Some(ends.1.ip()));
        let outside = connect(ends.1).unwrap();
        let flow = Arc::new(Flow { outside, host, last_sent: Mutex::new(Instant::now()) });
        let client = SocketAddr::new(ends.1.ip(), flow.outside.local_addr().unwrap().port());
        sandbox.flows.lock().insert(ends, Arc::clone(&flow));
        let listed = Listed { sandbox: Arc::clone(&sandbox), ends };
        let relaying = tokio::spawn(relay(listed, flow));
        for n in 1..=ANSWERS {
            server.send_to(b"answer", client).unwrap();
            while sandbox.counting.read().received_bytes < u64::from(n * 6) {
                tokio::time::sleep(Duration::from_millis(5)).await;
                assert!(!relaying.is_finished(), "it ended with answers on their way");
            }
        }
        relaying.await.unwrap();
        assert!(sandbox.flows.lock().is_empty());
    }
}
