//! Connections that the sandbox's kernel made, after their SYN was released.

use std::{
    io,
    net::{SocketAddr, TcpStream as StdStream},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use rustix::net::{SocketFlags, accept_with, sockopt::set_socket_linger};
use tokio::{io::unix::AsyncFd, net::TcpStream};

use crate::{sandbox::Sandbox, watched::make_nonblocking};

/// Pause after an error that concerns us and not the connection, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until the task is aborted.
pub(crate) async fn accept(sandbox: Arc<Sandbox>, listener: AsyncFd<OwnedFd>) {
    loop {
        let Ok(mut ready) = listener.readable().await else { return };
        match ready.try_io(|listener| accept_one(listener.get_ref())) {
            Ok(Ok(inside)) => match_up(&sandbox, inside),
            Ok(Err(error)) => {
                tracing::debug!(sandbox = %sandbox.id, %error, "could not accept");
                tokio::time::sleep(PAUSE).await;
            }
            Err(_nothing_there) => {}
        }
    }
}

/// The sandbox's guest has the same socket and can make it blocking, which would stop this thread: set each time.
fn accept_one(listener: &OwnedFd) -> io::Result<TcpStream> {
    make_nonblocking(listener)?;
    let inside = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    TcpStream::from_std(StdStream::from(inside))
}

fn match_up(sandbox: &Sandbox, inside: TcpStream) {
    // Of a socket that was reached by tproxy the local address is where the sandbox wanted to go.
    let (Ok(source), Ok(destination)) = (inside.peer_addr(), inside.local_addr()) else { return };
    let ends = (canonical(source), canonical(destination));
    if let Err(stranger) = sandbox.held.accepted(ends, inside) {
        reset(&stranger);
    }
}

/// Makes a connection end with a reset when it is dropped.
pub(crate) fn reset(stream: &TcpStream) {
    if let Err(error) = set_socket_linger(stream, Some(Duration::ZERO)) {
        tracing::debug!(%error, "could not set a connection to end by a reset");
    }
}

/// IPv4 as IPv4, also from a socket of IPv6 that takes both.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
