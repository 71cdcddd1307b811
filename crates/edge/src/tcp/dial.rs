//! Connections to the outside.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, getpeername, socket_with},
};
use sandbox::network::HOST_ADDRESS;
use tokio::{net::TcpStream, time::timeout};

use super::{hold::Refusal, proxy::UpstreamProxy};
use crate::packets::Unreachable;

/// How long a host may take to answer. Clients wait about two minutes; less tells them sooner.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connects to where a sandbox wants to go, through the host's proxy if there is one for it.
pub(crate) async fn dial(destination: SocketAddr, proxy: Option<&UpstreamProxy>) -> io::Result<TcpStream> {
    if let Some(proxy) = proxy {
        let made = timeout(PATIENCE, proxy.connect(destination)).await;
        return made.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
    }
    let mut refused = None;
    for address in addresses(destination) {
        match timeout(PATIENCE, connect(address)).await {
            Ok(Ok(stream)) if !is_itself(&stream, address) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Ok(_itself)) => refused = Some(io::ErrorKind::ConnectionRefused.into()),
            Ok(Err(error)) => refused = Some(error),
            Err(_elapsed) => refused = Some(io::ErrorKind::TimedOut.into()),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}

/// A server that is near has answered by the time the call returns: then nothing waits to be told so.
async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let is_made = getpeername(&socket).is_ok();
    let stream = TcpStream::from_std(socket.into())?;
    if is_made {
        return Ok(stream);
    }
    stream.writable().await?;
    match stream.take_error()? {
        None => Ok(stream),
        Some(error) => Err(error),
    }
}

/// The host's own address inside stands for its loopback, of either family.
pub(crate) fn addresses(destination: SocketAddr) -> Vec<SocketAddr> {
    let port = destination.port();
    match destination.ip().to_canonical() {
        IpAddr::V4(HOST_ADDRESS) => {
            vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
        }
        address => vec![SocketAddr::new(address, port)],
    }
}

/// Dialling a free port of this machine can meet its own SYN.
fn is_itself(stream: &TcpStream, dialled: SocketAddr) -> bool {
    stream.local_addr().is_ok_and(|ours| ours == dialled)
}

/// Returns what the sandbox is told of a failure.
pub(crate) fn refusal(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NetworkUnreachable => Refusal::Unreachable(Unreachable::Network),
        io::ErrorKind::HostUnreachable | io::ErrorKind::TimedOut => Refusal::Unreachable(Unreachable::Host),
        _ => Refusal::Reset,
    }
}
