//! The ways hosts reach a guest: a listening socket of any family, or one byte stream that carries many connections.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketFlags};
use tokio::{
    io::{AsyncReadExt as _, Interest},
    sync::Semaphore,
    task::spawn_local,
};
use tokio_util::compat::{FuturesAsyncReadCompatExt as _, TokioAsyncReadCompatExt as _};

use crate::{
    Guest,
    limits::{ACCEPT_REST, MAX_CONNECTIONS},
    server, sys,
};

/// How long a client may take to send the token.
const TOKEN_TIME: Duration = Duration::from_secs(10);

/// How hosts reach the guest.
#[derive(Debug)]
pub enum Transport {
    /// A listening stream socket (close-on-exec): Unix, TCP or vsock. With a token, each connection must begin with it.
    Listener { socket: OwnedFd, token: Option<Vec<u8>> },
    /// One stream, read from `from` and written to `to`, which something else carries: an attached container, a serial
    /// line. The host opens its connections in it by yamux. The guest exits when the stream ends, since no other can
    /// come.
    Carried { from: OwnedFd, to: OwnedFd },
}

impl From<OwnedFd> for Transport {
    /// A listener that only the host can reach.
    fn from(socket: OwnedFd) -> Self {
        Self::Listener { socket, token: None }
    }
}

impl Transport {
    /// Whether hosts connect by Unix sockets, which can carry descriptors.
    pub(crate) fn carries_descriptors(&self) -> bool {
        match self {
            Self::Listener { socket, .. } => {
                rustix::net::sockopt::socket_domain(socket).is_ok_and(|domain| domain == AddressFamily::UNIX)
            }
            Self::Carried { .. } => false,
        }
    }

    /// Starts to serve. The process may have threads from here on.
    pub(crate) fn serve(self, guest: &Rc<Guest>) -> io::Result<()> {
        match self {
            Self::Listener { socket, token } => {
                rustix::io::ioctl_fionbio(&socket, true)?;
                spawn_local(accept(Rc::clone(guest), sys::watched(socket)?, token.map(Rc::from)));
            }
            Self::Carried { from, to } => {
                let carrier = pump(from, to)?;
                let guest = Rc::clone(guest);
                spawn_local(async move {
                    carry(&guest, carrier).await;
                    guest.leave.notify_one();
                });
            }
        }
        Ok(())
    }
}

/// Accepts forever.
async fn accept(guest: Rc<Guest>, listener: tokio::io::unix::AsyncFd<OwnedFd>, token: Option<Rc<[u8]>>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = listener
            .async_io(Interest::READABLE, |socket| Ok(rustix::net::accept_with(socket, flags)?))
            .await
            .and_then(stream);
        match accepted {
            Ok(stream) => {
                let (guest, token) = (Rc::clone(&guest), token.clone());
                spawn_local(async move {
                    if let Some(stream) = admitted(stream, token.as_deref()).await {
                        server::serve_connection(&guest, stream).await;
                    }
                    drop(place);
                });
            }
            Err(_out_of_descriptors) => tokio::time::sleep(ACCEPT_REST).await,
        }
    }
}

/// A stream socket of any family as a Unix one: reading and writing are the same for all.
fn stream(socket: OwnedFd) -> io::Result<tokio::net::UnixStream> {
    // Small frames must not wait for others. Only TCP supports this.
    rustix::net::sockopt::set_tcp_nodelay(&socket, true).ok();
    tokio::net::UnixStream::from_std(UnixStream::from(socket))
}

/// The stream, once the client has sent the token.
async fn admitted(
    mut stream: tokio::net::UnixStream,
    token: Option<&[u8]>,
) -> Option<tokio::net::UnixStream> {
    let Some(token) = token else { return Some(stream) };
    let mut said = vec![0; token.len()];
    tokio::time::timeout(TOKEN_TIME, stream.read_exact(&mut said)).await.ok()?.ok()?;
    // Compares every byte, so that the time taken reveals nothing.
    let difference = said.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    (difference == 0).then_some(stream)
}

/// Starts two threads that copy between the carrier, which may be pipes or a terminal, and a socket of ours.
fn pump(from: OwnedFd, to: OwnedFd) -> io::Result<tokio::net::UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let (mut incoming, mut outgoing) = (theirs.try_clone()?, theirs);
    std::thread::Builder::new().spawn(move || {
        copy(&mut std::fs::File::from(from), &mut incoming);
        incoming.shutdown(std::net::Shutdown::Write).ok();
    })?;
    std::thread::Builder::new().spawn(move || copy(&mut outgoing, &mut std::fs::File::from(to)))?;
    ours.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(ours)
}

fn copy(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..n]).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// Serves every stream that the host opens in the carried one, until that ends.
async fn carry(guest: &Rc<Guest>, carrier: tokio::net::UnixStream) {
    let mut config = yamux::Config::default();
    config.set_max_num_streams(MAX_CONNECTIONS);
    let mut connection = yamux::Connection::new(carrier.compat(), config, yamux::Mode::Server);
    loop {
        let next = std::future::poll_fn(|context| match connection.poll_next_inbound(context) {
            Poll::Ready(Some(Ok(stream))) => Poll::Ready(Some(stream)),
            Poll::Ready(Some(Err(_)) | None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let Some(stream) = next.await else { return };
        let guest = Rc::clone(guest);
        spawn_local(async move {
            let Ok((ours, mut theirs)) = tokio::net::UnixStream::pair() else { return };
            let mut stream = stream.compat();
            tokio::join!(server::serve_connection(&guest, ours), async {
                // When either side ends, so does this one connection.
                tokio::io::copy_bidirectional(&mut stream, &mut theirs).await.ok();
                drop(theirs);
            });
        });
    }
}

/// Our standard input and output as a carrier. `/dev/null` replaces them, so that no message of ours gets in between.
pub(crate) fn take_stdio() -> io::Result<Transport> {
    let from = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let to = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    Ok(Transport::Carried { from, to })
}
