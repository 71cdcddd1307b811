//! Whole frames over a connection.

use bytes::BytesMut;
use guest_protocol::{Decoder, Frame, FrameKind, ProtocolError, Response, encode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};

/// The connection cannot go on: the other end left, or sent what it never sends. Nobody is left to be told why.
#[derive(Debug)]
pub(crate) struct Lost;

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

pub(crate) type Result<T, E = Lost> = std::result::Result<T, E>;

#[derive(Debug)]
pub(crate) struct Connection<S> {
    stream: S,
    decoder: Decoder,
    buffer: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, decoder: Decoder::default(), buffer: BytesMut::new() }
    }

    pub(crate) async fn next(&mut self) -> Result<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer)? {
                return Ok(frame);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(Lost);
            }
        }
    }

    pub(crate) async fn skip_body(&mut self) -> Result<()> {
        loop {
            match self.next().await?.kind {
                FrameKind::Data => {}
                FrameKind::End => return Ok(()),
                _ => return Err(Lost),
            }
        }
    }

    /// Returns when the other end has left.
    pub(crate) async fn gone(&mut self) -> Result<()> {
        while self.stream.read_buf(&mut self.buffer).await? > 0 {
            self.buffer.clear();
        }
        Ok(())
    }

    pub(crate) async fn send(&mut self, frame: &Frame) -> Result<()> {
        let mut bytes = BytesMut::new();
        encode(frame, &mut bytes)?;
        self.raw(&bytes).await
    }

    pub(crate) async fn answer(&mut self, response: &Response) -> Result<()> {
        self.send(&Frame::json(FrameKind::Response, response)?).await
    }

    /// Bytes as they are, which need not be a frame.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }

    /// Carries everything to and fro from now on.
    pub(crate) async fn relay<T: AsyncRead + AsyncWrite + Unpin>(self, other: Connection<T>) -> Result<()> {
        let (mut one, mut other) = (self, other);
        other.stream.write_all(&one.buffer).await?;
        one.stream.write_all(&other.buffer).await?;
        copy_bidirectional(&mut one.stream, &mut other.stream).await?;
        Ok(())
    }
}
