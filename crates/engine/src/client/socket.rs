//! A connected socket inside a sandbox, handed out by its guest.
//!
//! The guest may keep a copy, and both copies share their flags: a guest that was taken over could make the socket
//! block. So every read and write here says by itself that it does not wait.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Poll, ready},
};

use guest_protocol::PortProtocol;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketType, getpeername, ipproto,
    recv, send, sendmsg, shutdown, sockopt,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd},
    sync::OwnedSemaphorePermit,
};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::descriptor::GuestDescriptor;

/// A server that is gone is an error, not a signal.
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A socket to a server inside. It ends with its sandbox, at the latest.
#[derive(Debug)]
pub(crate) struct InsideSocket {
    socket: AsyncFd<GuestDescriptor>,
    sandbox_over: Pin<Box<WaitForCancellationFutureOwned>>,
    _place: OwnedSemaphorePermit,
}

impl InsideSocket {
    /// Takes a socket that has been checked. Must be called in a Tokio runtime.
    pub(super) fn new(
        socket: GuestDescriptor,
        sandbox_over: WaitForCancellationFutureOwned,
        place: OwnedSemaphorePermit,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket: watched(socket)?, sandbox_over: Box::pin(sandbox_over), _place: place })
    }

    /// Takes a datagram from the server, cut to the buffer.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let receive = |socket: &GuestDescriptor| Ok(recv(socket, &mut *buffer, RecvFlags::DONTWAIT)?.0);
        self.socket.async_io(Interest::READABLE, receive).await
    }

    /// Sends a datagram to the server. One that does not fit is lost, as datagrams may be.
    pub(crate) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match send(self.socket.get_ref(), datagram, SEND) {
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::MSGSIZE) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// An error once the sandbox is over, which also wakes whoever waits.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.sandbox_over.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionReset.into()),
            Poll::Pending => Ok(()),
        }
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        send: impl Fn(&GuestDescriptor) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll_over(cx)?;
        loop {
            let mut ready = ready!(self.socket.poll_write_ready(cx))?;
            if let Ok(sent) = ready.try_io(|socket| Ok(send(socket.get_ref())?)) {
                return Poll::Ready(sent);
            }
        }
    }
}

impl AsyncRead for InsideSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_over(cx)?;
        loop {
            let mut ready = ready!(self.socket.poll_read_ready(cx))?;
            // Only as much as will be filled: memory that a reader hands over for the first time has to be cleared.
            let n_arrived = rustix::io::ioctl_fionread(self.socket.get_ref()).unwrap_or(u64::MAX);
            let n_wanted = usize::try_from(n_arrived).unwrap_or(usize::MAX).max(1).min(out.remaining());
            let unfilled = out.initialize_unfilled_to(n_wanted);
            let receive = |socket: &AsyncFd<GuestDescriptor>| {
                Ok(recv(socket.get_ref(), &mut *unfilled, RecvFlags::DONTWAIT)?.0)
            };
            if let Ok(received) = ready.try_io(receive) {
                out.advance(received?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for InsideSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, |socket| send(socket, data, SEND))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, |socket| sendmsg(socket, data, &mut SendAncillaryBuffer::default(), SEND))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match shutdown(self.socket.get_ref(), Shutdown::Write) {
            // A server that is gone already needs no end.
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }
}

/// Watches a socket. The value owns its descriptor, which is the promise that the newer name of this function requires
/// in an unsafe block, and this crate has none.
#[expect(deprecated, reason = "the replacement is unsafe and differs in nothing else")]
fn watched(socket: GuestDescriptor) -> io::Result<AsyncFd<GuestDescriptor>> {
    AsyncFd::new(socket)
}

/// Refuses everything but a connected stream socket without a name, such as the one that a server inside speaks over.
pub(super) fn check_stream(socket: impl AsFd) -> Result<(), &'static str> {
    let socket = socket.as_fd();
    let is_unix = sockopt::socket_domain(socket).is_ok_and(|domain| domain == AddressFamily::UNIX);
    let is_stream = sockopt::socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM);
    match is_unix && is_stream && getpeername(socket).is_ok() {
        true => Ok(()),
        false => Err("a descriptor that is not a connected stream"),
    }
}

/// Refuses everything but a socket that is connected to this port of loopback. That it belongs to the sandbox's network
/// needs no check: the guest has no others.
pub(super) fn check(socket: impl AsFd, port: u16, protocol: PortProtocol) -> Result<(), &'static str> {
    let socket = socket.as_fd();
    let (kind, protocol) = match protocol {
        PortProtocol::Tcp => (SocketType::STREAM, ipproto::TCP),
        PortProtocol::Udp => (SocketType::DGRAM, ipproto::UDP),
    };
    let is_of_internet = sockopt::socket_domain(socket)
        .is_ok_and(|domain| matches!(domain, AddressFamily::INET | AddressFamily::INET6));
    let is_right_kind = is_of_internet
        && sockopt::socket_type(socket).is_ok_and(|found| found == kind)
        && sockopt::socket_protocol(socket).is_ok_and(|found| found == Some(protocol));
    if !is_right_kind {
        return Err("another kind of descriptor than was asked for");
    }
    if !sockopt::socket_acceptconn(socket).is_ok_and(|listens| !listens) {
        return Err("a socket that listens");
    }
    if !sockopt::socket_error(socket).is_ok_and(|error| error.is_ok()) {
        return Err("a socket that is not connected");
    }
    let peer = getpeername(socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
    match peer {
        Some(peer) if peer.port() == port && peer.ip().to_canonical().is_loopback() => Ok(()),
        Some(_) => Err("a socket that is connected elsewhere"),
        None => Err("a socket that is not connected"),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        net::{TcpListener, TcpStream, UdpSocket},
        os::unix::net::UnixStream,
    };

    use super::*;

    #[test]
    fn only_a_socket_to_the_asked_port_is_taken() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        assert_eq!(check(&client, port, PortProtocol::Tcp), Ok(()));
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(check(&datagrams, port, PortProtocol::Udp).unwrap_err().contains("not connected"));
        datagrams.connect(("127.0.0.1", port)).unwrap();
        assert_eq!(check(&datagrams, port, PortProtocol::Udp), Ok(()));
        let six = TcpListener::bind("[::1]:0").unwrap();
        let to_six = TcpStream::connect(six.local_addr().unwrap()).unwrap();
        assert_eq!(check(&to_six, six.local_addr().unwrap().port(), PortProtocol::Tcp), Ok(()));

        let refused = |socket: &dyn AsFd, port| check(socket.as_fd(), port, PortProtocol::Tcp).unwrap_err();
        assert!(refused(&datagrams, port).contains("another kind"));
        assert!(check(&client, port, PortProtocol::Udp).unwrap_err().contains("another kind"));
        assert!(refused(&fs::File::open("/dev/null").unwrap(), port).contains("another kind"));
        assert!(refused(&UnixStream::pair().unwrap().0, port).contains("another kind"));
        assert!(refused(&server, port).contains("listens"));
        assert!(refused(&client, port ^ 1).contains("elsewhere"));
        let unconnected = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        assert!(refused(&unconnected, port).contains("not connected"));
        // A connection that broke has an error or no peer.
        drop((server.accept().unwrap(), server));
        let reset = TcpListener::bind("127.0.0.1:0").unwrap();
        let broken = TcpStream::connect(reset.local_addr().unwrap()).unwrap();
        let (accepted, _) = reset.accept().unwrap();
        sockopt::set_socket_linger(&accepted, Some(std::time::Duration::ZERO)).unwrap();
        drop(accepted);
        assert!(refused(&broken, reset.local_addr().unwrap().port()).contains("not connected"));
    }
}
