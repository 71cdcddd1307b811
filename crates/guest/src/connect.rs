//! `Connect`: a stream to a port or socket inside. `ConnectFd`: the socket itself, connected and handed out.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use bytes::BytesMut;
use guest_protocol::{Failure, FailureKind, PortProtocol, Response, Target};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    sync::Notify,
};

use crate::{
    files, wire,
    wire::{ConnectionError, FrameReader, FrameWriter},
};

/// How long a server inside may take to accept.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// One read from a server inside.
const CHUNK_BYTES: usize = 64 * 1024;

/// Serves a connect until both sides have ended. `Ok(Err)` is a refusal after which the connection can go on.
pub(crate) async fn connect(
    reader: &mut FrameReader<'_>,
    writer: FrameWriter<'_>,
    target: Target,
) -> wire::Result<Result<(), Failure>> {
    match target {
        Target::Tcp(port) => match connect_tcp(port).await {
            Err(failure) => Ok(Err(failure)),
            Ok(stream) => join(reader, writer, stream).await.map(Ok),
        },
        Target::Unix(path) => {
            let connecting = async {
                let path = files::absolute(&path)?;
                UnixStream::connect(&path)
                    .await
                    .map_err(|error| refused(&format!("the socket {}", path.display()), &error))
            };
            match tokio::time::timeout(CONNECT_PATIENCE, connecting).await {
                Err(_elapsed) => Ok(Err(too_slow(&path))),
                Ok(Err(failure)) => Ok(Err(failure)),
                Ok(Ok(stream)) => join(reader, writer, stream).await.map(Ok),
            }
        }
    }
}

fn too_slow(what: &str) -> Failure {
    Failure::new(FailureKind::LimitReached, format!("nobody accepted a connection to {what} in time"))
}

/// Hands out a connected socket. Our own copy of it is closed at once, so only the host decides when it ends.
pub(crate) async fn hand_out(
    writer: FrameWriter<'_>,
    port: u16,
    protocol: PortProtocol,
) -> wire::Result<Result<(), Failure>> {
    let socket = match protocol {
        PortProtocol::Tcp => connect_tcp(port).await.and_then(|stream| {
            stream.into_std().map(OwnedFd::from).map_err(|error| refused(&format!("port {port}"), &error))
        }),
        PortProtocol::Udp => connect_udp(port).map(OwnedFd::from),
    };
    let socket = match socket {
        Ok(socket) => socket,
        Err(failure) => return Ok(Err(failure)),
    };
    hand_out_socket(writer, &socket).await
}

/// Attaches a socket to the response.
pub(crate) async fn hand_out_socket(
    writer: FrameWriter<'_>,
    socket: &OwnedFd,
) -> wire::Result<Result<(), Failure>> {
    match writer.respond_with(&Response::Socket, &[socket.as_fd()]).await {
        // Some kernels have Unix sockets that carry no descriptors.
        Err(ConnectionError::Io(error)) => {
            let message = format!("the socket could not be handed out: {error}");
            Ok(Err(Failure::new(FailureKind::Unsupported, message)))
        }
        sent => sent.map(Ok),
    }
}

/// A datagram finds out only later whether anybody listens, so the address is chosen by looking.
fn connect_udp(port: u16) -> Result<UdpSocket, Failure> {
    check_port(port)?;
    let listens = |table: &str| fs::read_to_string(table).is_ok_and(|sockets| listens_on(&sockets, port));
    let loopback: IpAddr = match !listens("/proc/net/udp") && listens("/proc/net/udp6") {
        true => Ipv6Addr::LOCALHOST.into(),
        false => Ipv4Addr::LOCALHOST.into(),
    };
    let connected = UdpSocket::bind((loopback, 0)).and_then(|socket| {
        socket.connect((loopback, port))?;
        Ok(socket)
    });
    connected.map_err(|error| refused(&format!("port {port}"), &error))
}

/// Whether a table of the kernel (`/proc/net/udp`) has a socket that takes datagrams from everybody on this port.
fn listens_on(sockets: &str, port: u16) -> bool {
    let port = format!("{port:04X}");
    sockets.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (own, peer) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        own.rsplit_once(':').is_some_and(|(_, own)| own == port) && peer.ends_with(":0000")
    })
}

fn check_port(port: u16) -> Result<(), Failure> {
    match port {
        0 => Err(Failure::new(FailureKind::InvalidRequest, "0 is not a port")),
        _ => Ok(()),
    }
}

async fn connect_tcp(port: u16) -> Result<TcpStream, Failure> {
    let connected = tokio::time::timeout(CONNECT_PATIENCE, try_tcp(port)).await;
    connected.unwrap_or_else(|_elapsed| Err(too_slow(&format!("port {port}"))))
}

async fn try_tcp(port: u16) -> Result<TcpStream, Failure> {
    check_port(port)?;
    let four = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
    let stream = match four {
        Ok(stream) => stream,
        // Some servers listen on the other loopback only; the first error is the one to report.
        Err(error) => TcpStream::connect(SocketAddr::from((Ipv6Addr::LOCALHOST, port)))
            .await
            .map_err(|_other| refused(&format!("port {port}"), &error))?,
    };
    // Small messages must arrive at once.
    stream.set_nodelay(true).ok();
    Ok(stream)
}

fn refused(what: &str, error: &std::io::Error) -> Failure {
    let message = format!("could not connect to {what}: {error}");
    match error.kind() {
        // Nobody listens there now, but may soon.
        std::io::ErrorKind::ConnectionRefused => Failure::new(FailureKind::WrongState, message),
        std::io::ErrorKind::NotFound => Failure::new(FailureKind::NotFound, message),
        std::io::ErrorKind::WouldBlock => Failure::new(FailureKind::LimitReached, message),
        std::io::ErrorKind::PermissionDenied => Failure::new(FailureKind::Denied, message),
        _ => Failure::new(FailureKind::WrongState, message),
    }
}

/// Carries bytes both ways; each side's end is passed on as a half-close.
pub(crate) async fn join(
    reader: &mut FrameReader<'_>,
    writer: FrameWriter<'_>,
    stream: impl AsyncRead + AsyncWrite,
) -> wire::Result<()> {
    writer.respond(&Response::Connected).await?;
    let (mut inside_reader, mut inside_writer) = tokio::io::split(stream);
    let host_ended = Notify::new();
    let inward = async {
        while let Some(bytes) = reader.body().await? {
            inside_writer.write_all(&bytes).await?;
        }
        inside_writer.shutdown().await?;
        host_ended.notify_one();
        // Half-closed; if the host disconnects, so do we.
        reader.gone().await;
        Err(ConnectionError::Gone)
    };
    let outward = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.clear();
            buffer.reserve(CHUNK_BYTES);
            if inside_reader.read_buf(&mut buffer).await? == 0 {
                break;
            }
            writer.data(&buffer).await?;
        }
        writer.end().await?;
        host_ended.notified().await;
        Ok(())
    };
    tokio::select! {
        result = inward => result,
        result = outward => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_socket_without_a_peer_listens() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
            7: 0100007F:0035 00000000:0000 07 00000000:00000000\n   \
            8: 0100007F:1F90 0100007F:0035 01 00000000:00000000\n";
        assert!(listens_on(table, 53));
        assert!(!listens_on(table, 8080), "it is somebody's client");
        assert!(!listens_on(table, 5353) && !listens_on("", 53) && !listens_on("x\ny\nz :\n", 0));
    }
}
