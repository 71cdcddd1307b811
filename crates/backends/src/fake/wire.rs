//! Whole frames over the simulated connection.

use bytes::{Bytes, BytesMut};
use guest_protocol::{Decoder, Failure, Frame, FrameKind, MAX_DATA_BYTES, ProtocolError, Response, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

/// Bytes read ahead from a host while its request is still being worked on.
const READ_AHEAD_BYTES: usize = 512 * 1024;

/// The connection cannot go on: the host left, or sent what no host sends. Nobody is left to be told why.
#[derive(Debug)]
pub(super) struct Lost;

impl From<std::io::Error> for Lost {
    fn from(_gone: std::io::Error) -> Self {
        Self
    }
}

impl From<ProtocolError> for Lost {
    fn from(_unreadable: ProtocolError) -> Self {
        Self
    }
}

pub(super) type Result<T, E = Lost> = std::result::Result<T, E>;

#[derive(Debug)]
pub(super) struct FrameReader {
    io: ReadHalf<DuplexStream>,
    decoder: Decoder,
    buffer: BytesMut,
}

impl FrameReader {
    pub(super) fn new(io: ReadHalf<DuplexStream>) -> Self {
        Self { io, decoder: Decoder::default(), buffer: BytesMut::new() }
    }

    /// The next frame; `None` when the host has closed. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            if self.io.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(Lost) };
            }
        }
    }

    /// The next bytes of a request's body; `None` at its end.
    pub(super) async fn body(&mut self) -> Result<Option<Bytes>> {
        match self.next().await?.ok_or(Lost)? {
            Frame { kind: FrameKind::Data, payload } => Ok(Some(payload)),
            Frame { kind: FrameKind::End, .. } => Ok(None),
            _ => Err(Lost),
        }
    }

    pub(super) async fn skip_body(&mut self) -> Result<()> {
        while self.body().await?.is_some() {}
        Ok(())
    }

    /// Returns when the host has left. Reads ahead, so that nothing is lost when this is cancelled.
    pub(super) async fn gone(&mut self) {
        while self.buffer.len() < READ_AHEAD_BYTES {
            if !matches!(self.io.read_buf(&mut self.buffer).await, Ok(1..)) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

#[derive(Debug)]
pub(super) struct FrameWriter {
    io: WriteHalf<DuplexStream>,
}

impl FrameWriter {
    pub(super) fn new(io: WriteHalf<DuplexStream>) -> Self {
        Self { io }
    }

    pub(super) async fn send(&mut self, frame: &Frame) -> Result<()> {
        let mut bytes = BytesMut::new();
        encode(frame, &mut bytes)?;
        self.raw(&bytes).await
    }

    /// Bytes as they are, which need not be a frame.
    pub(super) async fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.io.write_all(bytes).await?)
    }

    pub(super) async fn answer(&mut self, answer: std::result::Result<Response, Failure>) -> Result<()> {
        let frame = match answer {
            Ok(response) => Frame::json(FrameKind::Response, &response)?,
            Err(failure) => Frame::json(FrameKind::Failure, &failure)?,
        };
        self.send(&frame).await
    }

    /// A whole body, with its end.
    pub(super) async fn body(&mut self, bytes: Bytes) -> Result<()> {
        for start in (0..bytes.len()).step_by(MAX_DATA_BYTES) {
            let part = bytes.slice(start..bytes.len().min(start + MAX_DATA_BYTES));
            self.send(&Frame::new(FrameKind::Data, part)).await?;
        }
        self.send(&Frame::new(FrameKind::End, Bytes::new())).await
    }
}
