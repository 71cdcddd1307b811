//! Connections that the sandbox's kernel made, after their SYN was released.

use std::{
    io,
    net::{SocketAddr, TcpStream as StdStream},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use rustix::net::{
    SocketFlags, acceptfrom_with,
    sockopt::{set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size},
};
use tokio::net::TcpStream;

use crate::{sandbox::Sandbox, watched::Watched};

/// Pause after an error that concerns us and not the connection, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// Connections of one sandbox whose buffers may grow: to the largest `tcp_rmem` and `tcp_wmem` inside, 128 and 512 KiB
/// at most. Our ends of further ones keep small ones, since we are charged for what waits in them.
const GROWING: usize = 32;
/// Each of those buffers. The kernel doubles it for its own needs.
const SMALL_BYTES: usize = 32 * 1024;

/// Accepts connections whose first packets were held, until the task is aborted.
pub(crate) async fn accept(sandbox: Arc<Sandbox>, listener: Watched) {
    accept_with(&sandbox, listener, |inside, source| match_up(&sandbox, inside, source)).await;
}

/// Gives each connection and where it comes from to `take`, until the task is aborted.
pub(super) async fn accept_with(sandbox: &Sandbox, listener: Watched, take: impl Fn(TcpStream, SocketAddr)) {
    loop {
        let Ok(mut ready) = listener.readable().await else { return };
        match ready.try_io(|listener| accept_one(listener.get_ref())) {
            Ok(Ok((inside, source))) => {
                if sandbox.n_connections() > GROWING {
                    keep_small(&inside);
                }
                take(inside, canonical(source));
            }
            Ok(Err(error)) => {
                tracing::debug!(sandbox = %sandbox.id, %error, "could not accept");
                tokio::time::sleep(PAUSE).await;
            }
            Err(_nothing_there) => {}
        }
    }
}

/// Takes a connection that is there already, without waiting to be told of it: the kernel makes one while the first
/// packet is sent. Others that wait are for the task above.
pub(crate) fn accept_at_once(sandbox: &Sandbox, is_ipv4: bool) {
    let made = sandbox.listener(is_ipv4).map(accept_one);
    if let Some(Ok((inside, source))) = made {
        if sandbox.n_connections() > GROWING {
            keep_small(&inside);
        }
        match_up(sandbox, inside, canonical(source));
    }
}

/// The sandbox's guest has the same socket and can make it blocking, which would stop this thread: set each time.
fn accept_one(listener: &OwnedFd) -> io::Result<(TcpStream, SocketAddr)> {
    rustix::io::ioctl_fionbio(listener, true)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (inside, source) = acceptfrom_with(listener, flags)?;
    let source = source.and_then(|source| SocketAddr::try_from(source).ok());
    let source = source.ok_or(io::ErrorKind::InvalidData)?;
    Ok((TcpStream::from_std(StdStream::from(inside))?, source))
}

fn match_up(sandbox: &Sandbox, inside: TcpStream, source: SocketAddr) {
    // Of a socket that was reached by tproxy the local address is where the sandbox wanted to go.
    let Ok(destination) = inside.local_addr() else { return };
    let ends = (source, canonical(destination));
    if let Err(stranger) = sandbox.held.accepted(ends, inside) {
        reset(&stranger);
    }
}

fn keep_small(inside: &TcpStream) {
    let set = set_socket_recv_buffer_size(inside, SMALL_BYTES)
        .and_then(|()| set_socket_send_buffer_size(inside, SMALL_BYTES));
    if let Err(error) = set {
        tracing::debug!(%error, "could not bound the buffers of a connection");
    }
}

/// Makes a connection end with a reset when it is dropped.
pub(crate) fn reset(stream: &TcpStream) {
    if let Err(error) = set_socket_linger(stream, Some(Duration::ZERO)) {
        tracing::debug!(%error, "could not set a connection to end by a reset");
    }
}

/// IPv4 as IPv4, also from a socket of IPv6 that takes both.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
