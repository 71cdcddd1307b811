//! `Connect`: a stream to a port or socket inside.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use bytes::BytesMut;
use guest_protocol::{Failure, FailureKind, Response, Target};
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
    let too_slow = |what: &str| {
        Failure::new(FailureKind::LimitReached, format!("nobody accepted a connection to {what} in time"))
    };
    match target {
        Target::Tcp(port) => match tokio::time::timeout(CONNECT_PATIENCE, connect_tcp(port)).await {
            Err(_elapsed) => Ok(Err(too_slow(&format!("port {port}")))),
            Ok(Err(failure)) => Ok(Err(failure)),
            Ok(Ok(stream)) => join(reader, writer, stream).await.map(Ok),
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

async fn connect_tcp(port: u16) -> Result<TcpStream, Failure> {
    if port == 0 {
        return Err(Failure::new(FailureKind::InvalidRequest, "0 is not a port"));
    }
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
