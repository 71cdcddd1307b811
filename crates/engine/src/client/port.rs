//! Bytes to and from a port inside: over a socket that the guest handed out, or over `Data` frames, where each side's
//! `End` is its half-close.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use guest_protocol::{Decoder, FrameKind, MAX_DATA_BYTES, header};
use sandbox::GuestStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{socket::InsideSocket, wire::Wire};

/// Bytes taken from the writer before it has to wait for the guest.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// A stream to a port or socket inside. Shutting down its write side is the half-close; dropping it closes both.
pub struct PortStream {
    stream: GuestStream,
    is_socket: bool,
    /// Keeps the sandbox from counting as idle while the stream is in use.
    guard: Option<Box<dyn std::any::Any + Send + Sync>>,
}

impl std::fmt::Debug for PortStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortStream").field("is_socket", &self.is_socket).finish_non_exhaustive()
    }
}

impl PortStream {
    pub(super) fn new(wire: Wire) -> Self {
        Self { stream: Box::new(Frames::new(wire)), is_socket: false, guard: None }
    }

    pub(super) fn of_socket(socket: InsideSocket) -> Self {
        Self { stream: Box::new(socket), is_socket: true, guard: None }
    }

    pub(crate) fn hold(mut self, guard: impl Send + Sync + 'static) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }

    /// Whether it is the server's own connection, which bytes take without passing through the guest.
    pub fn is_socket(&self) -> bool {
        self.is_socket
    }
}

impl AsyncRead for PortStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, out)
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.is_socket()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A connection to the guest that was turned into bytes.
struct Frames {
    stream: GuestStream,
    decoder: Decoder,
    arrived: BytesMut,
    /// The rest of the frame being read.
    current: Bytes,
    /// Frames to be sent.
    leaving: BytesMut,
    read_ended: bool,
    write_ended: bool,
}

impl Frames {
    fn new(wire: Wire) -> Self {
        let (stream, arrived) = wire.into_parts();
        Self {
            stream,
            decoder: Decoder::default(),
            arrived,
            current: Bytes::new(),
            leaving: BytesMut::new(),
            read_ended: false,
            write_ended: false,
        }
    }

    /// Makes `current` hold unread bytes, or `read_ended` true.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.current.is_empty() && !self.read_ended {
            if let Some(frame) = self.decoder.decode(&mut self.arrived).map_err(io::Error::other)? {
                match frame.kind {
                    FrameKind::Data => self.current = frame.payload,
                    FrameKind::End => self.read_ended = true,
                    got => {
                        return Poll::Ready(Err(io::Error::other(format!("the guest sent a {got:?} frame"))));
                    }
                }
                continue;
            }
            self.arrived.reserve(READ_BUFFER_BYTES);
            let n_read =
                ready!(tokio_util::io::poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.arrived))?;
            if n_read == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.leaving.is_empty() {
            let n_written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.leaving))?;
            if n_written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.leaving.advance(n_written);
        }
        Poll::Ready(Ok(()))
    }

    fn queue(&mut self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        let header = header(kind, payload.len()).map_err(io::Error::other)?;
        self.leaving.extend_from_slice(&header);
        self.leaving.extend_from_slice(payload);
        Ok(())
    }
}

impl AsyncRead for Frames {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_fill(cx))?;
        let n_bytes = self.current.len().min(out.remaining());
        out.put_slice(&self.current[..n_bytes]);
        self.current.advance(n_bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Frames {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.write_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.leaving.len() >= WRITE_BUFFER_BYTES {
            ready!(self.poll_leave(cx))?;
        }
        let n_bytes = data.len().min(MAX_DATA_BYTES);
        if n_bytes > 0 {
            self.queue(FrameKind::Data, &data[..n_bytes])?;
        }
        // Sent at once; whatever does not fit now leaves with the next write or flush.
        if let Poll::Ready(Err(error)) = self.poll_leave(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(n_bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_leave(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.write_ended {
            self.write_ended = true;
            self.queue(FrameKind::End, &[])?;
        }
        // The stream below stays open: the other half may still bring bytes.
        self.poll_flush(cx)
    }
}
