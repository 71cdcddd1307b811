//! Frames over one connection.

use std::{future::pending, io, io::IoSlice, mem::MaybeUninit, os::fd::BorrowedFd};

use bytes::{Bytes, BytesMut};
use guest_protocol::{
    Decoder, Failure, Frame, FrameKind, HEADER_BYTES, ProtocolError, Response, encode, header,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::{io::Interest, net::UnixStream};

use crate::limits::READ_AHEAD_BYTES;

/// Read buffer of an idle connection.
const FIRST_READ_BYTES: usize = 4 * 1024;
/// Pieces given to one vectored write; the kernel's `IOV_MAX` is 1024.
const MAX_PIECES: usize = 64;

/// Why a connection is over. The other side is not told: it is gone or broke the protocol.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("the host went away")]
    Gone,
    /// A failure in the middle of a body, which only the end of the connection can report.
    #[error(transparent)]
    BrokenBody(Failure),
}

pub(crate) type Result<T, E = ConnectionError> = std::result::Result<T, E>;

/// The reading side: cuts frames from what the host sends.
#[derive(Debug)]
pub(crate) struct FrameReader<'a> {
    stream: &'a UnixStream,
    decoder: Decoder,
    buffer: BytesMut,
    /// Length of the previous frame: in a body the next one is likely as long.
    last_frame: usize,
}

impl<'a> FrameReader<'a> {
    pub(crate) fn new(stream: &'a UnixStream) -> Self {
        Self { stream, decoder: Decoder::default(), buffer: BytesMut::new(), last_frame: 0 }
    }

    /// The next frame; `None` when the host closed between two frames. Safe to cancel: bytes stay in the buffer.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer)? {
                self.last_frame = frame.payload.len() + HEADER_BYTES;
                return Ok(Some(frame));
            }
            if self.buffer.is_empty() {
                // An idle connection holds no buffer.
                self.buffer = BytesMut::new();
            }
            self.stream.readable().await?;
            if self.read_some()? == Some(0) {
                return if self.buffer.is_empty() { Ok(None) } else { Err(ProtocolError::Truncated.into()) };
            }
        }
    }

    /// The next frame, if the host must send one.
    pub(crate) async fn expect(&mut self) -> Result<Frame> {
        self.next().await?.ok_or(ConnectionError::Gone)
    }

    /// The next piece of a body; `None` at its end.
    pub(crate) async fn body(&mut self) -> Result<Option<Bytes>> {
        let frame = self.expect().await?;
        match frame.kind {
            FrameKind::Data => Ok(Some(frame.payload)),
            FrameKind::End => Ok(None),
            got => Err(ProtocolError::Unexpected { expected: "a body", got }.into()),
        }
    }

    /// Throws the rest of a body away.
    pub(crate) async fn skip_body(&mut self) -> Result<()> {
        while self.body().await?.is_some() {}
        Ok(())
    }

    /// Returns when the host has disconnected. Reads ahead a little meanwhile; a host that sends more than that unasked
    /// is no longer watched, and its disconnect is noticed at the next read or write.
    pub(crate) async fn gone(&mut self) {
        loop {
            if self.buffer.len() >= READ_AHEAD_BYTES {
                return pending().await;
            }
            if self.stream.readable().await.is_err() {
                return;
            }
            match self.read_some() {
                Ok(Some(0)) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Reads the available bytes; `None` if there are none.
    fn read_some(&mut self) -> io::Result<Option<usize>> {
        if self.buffer.capacity() == self.buffer.len() {
            self.buffer.reserve(FIRST_READ_BYTES.max(self.last_frame));
        }
        match self.stream.try_read_buf(&mut self.buffer) {
            Ok(n) => Ok(Some(n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Most descriptors attached to one frame.
const MAX_DESCRIPTORS: usize = 8;

fn send_with(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// The writing side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameWriter<'a> {
    stream: &'a UnixStream,
}

impl<'a> FrameWriter<'a> {
    pub(crate) fn new(stream: &'a UnixStream) -> Self {
        Self { stream }
    }

    pub(crate) async fn send(&self, frame: &Frame) -> Result<()> {
        self.send_payload(frame.kind, &frame.payload).await
    }

    pub(crate) async fn respond(&self, response: &Response) -> Result<()> {
        self.send(&Frame::json(FrameKind::Response, response)?).await
    }

    /// With descriptors attached to the first byte. The stream must be a Unix socket whose peer is the host itself.
    pub(crate) async fn respond_with(
        &self,
        response: &Response,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let frame = Frame::json(FrameKind::Response, response)?;
        let mut bytes = BytesMut::new();
        encode(&frame, &mut bytes)?;
        let send = || send_with(self.stream, &bytes, descriptors);
        let n_sent = self.stream.async_io(Interest::WRITABLE, send).await?;
        Ok(self.write_all(&mut [IoSlice::new(&bytes[n_sent..])]).await?)
    }

    pub(crate) async fn fail(&self, failure: &Failure) -> Result<()> {
        self.send(&Frame::json(FrameKind::Failure, failure)?).await
    }

    pub(crate) async fn data(&self, payload: &[u8]) -> Result<()> {
        self.send_payload(FrameKind::Data, payload).await
    }

    pub(crate) async fn end(&self) -> Result<()> {
        self.send_payload(FrameKind::End, &[]).await
    }

    async fn send_payload(&self, kind: FrameKind, payload: &[u8]) -> Result<()> {
        let header = header(kind, payload.len())?;
        Ok(self.write_all(&mut [IoSlice::new(&header), IoSlice::new(payload)]).await?)
    }

    /// Writes all pieces in order, without copying them together.
    pub(crate) async fn write_all(&self, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut pieces, 0);
        while !pieces.is_empty() {
            let window = pieces.len().min(MAX_PIECES);
            match self.stream.try_write_vectored(&pieces[..window]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => IoSlice::advance_slices(&mut pieces, n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.ready(Interest::WRITABLE).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
