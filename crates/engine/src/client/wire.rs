//! One connection to a guest: whole frames out, whole frames in, nothing trusted.

use std::{fmt, time::Duration};

use bytes::{Bytes, BytesMut};
use guest_protocol::{
    Decoder, Frame, FrameKind, HEADER_BYTES, Hello, MAX_DATA_BYTES, MAX_FRAME_BYTES, OLDEST_VERSION,
    ProtocolError, Request, Response, header,
};
use sandbox::GuestStream;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::UnixStream,
};

use super::{
    GuestError,
    descriptor::{self, GuestDescriptor, MAX_DESCRIPTORS},
};

/// Read buffer of a fresh connection; larger frames reserve more.
const READ_BUFFER_BYTES: usize = 16 * 1024;
/// Up to this size a payload is copied behind its header, which saves a system call.
const COALESCE_BYTES: usize = 16 * 1024;
/// Longest answer that comes with descriptors, or refusal of them.
const MAX_SHORT_ANSWER_BYTES: usize = 4 * 1024;

pub(crate) struct Wire {
    stream: GuestStream,
    decoder: Decoder,
    buffer: BytesMut,
    /// The version agreed with the guest, once it has greeted.
    version: Option<u32>,
    hello_within: Duration,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Wire {
    pub(crate) fn new(stream: GuestStream, hello_within: Duration) -> Self {
        Self { stream, decoder: Decoder::default(), buffer: BytesMut::new(), version: None, hello_within }
    }

    /// Whether it has carried a request before, and so may have gone stale.
    pub(crate) fn is_used(&self) -> bool {
        self.version.is_some()
    }

    /// Whether nothing of the last request is left unread.
    pub(crate) fn is_clean(&self) -> bool {
        self.version.is_some() && self.buffer.is_empty()
    }

    /// Frees memory that an idle connection does not need; there may be thousands.
    pub(crate) fn rest(&mut self) {
        self.buffer = BytesMut::new();
    }

    /// The stream and the bytes read ahead, for a connection that leaves framed requests and responses.
    pub(crate) fn into_parts(self) -> (GuestStream, BytesMut) {
        (self.stream, self.buffer)
    }

    pub(crate) async fn request(&mut self, request: &Request) -> Result<(), GuestError> {
        if request.since() > OLDEST_VERSION {
            self.greeting().await?;
        }
        if let Some(speaks) = self.version.filter(|version| *version < request.since()) {
            return Err(GuestError::TooOld { speaks, needs: request.since() });
        }
        let frame = Frame::request(request)?;
        if frame.payload.len() >= MAX_FRAME_BYTES {
            return Err(GuestError::RequestTooLong { len: frame.payload.len() });
        }
        self.send(frame.kind, &frame.payload).await
    }

    pub(crate) async fn send(&mut self, kind: FrameKind, payload: &[u8]) -> Result<(), GuestError> {
        let header = header(kind, payload.len())?;
        if payload.len() <= COALESCE_BYTES {
            let mut out = Vec::with_capacity(HEADER_BYTES + payload.len());
            out.extend_from_slice(&header);
            out.extend_from_slice(payload);
            self.stream.write_all(&out).await?;
        } else {
            self.stream.write_all(&header).await?;
            self.stream.write_all(payload).await?;
        }
        self.stream.flush().await?;
        Ok(())
    }

    /// Sends bytes of a body, cut into frames.
    pub(crate) async fn send_data(&mut self, bytes: &Bytes) -> Result<(), GuestError> {
        for part in bytes.chunks(MAX_DATA_BYTES) {
            self.send(FrameKind::Data, part).await?;
        }
        Ok(())
    }

    /// The next frame after the guest's greeting. Safe to drop and call again.
    pub(crate) async fn receive(&mut self) -> Result<Frame, GuestError> {
        self.greeting().await?;
        self.next_frame().await
    }

    /// Returns once the guest has greeted.
    pub(crate) async fn greeting(&mut self) -> Result<(), GuestError> {
        if self.version.is_some() { Ok(()) } else { self.greet().await }
    }

    /// The guest's answer to the request just sent. A refusal is `GuestError::Refused`.
    pub(crate) async fn answer(&mut self) -> Result<Response, GuestError> {
        let frame = self.receive().await?;
        answer_in(&frame)
    }

    /// Whether descriptors can come over it.
    pub(crate) fn carries_descriptors(&self) -> bool {
        self.unix().is_some()
    }

    fn unix(&self) -> Option<&UnixStream> {
        // Of the stream, not of its box.
        (*self.stream).as_any().downcast_ref()
    }

    /// The guest's answer to the request just sent, and the descriptors that came with it.
    pub(crate) async fn answer_with_descriptors(
        &mut self,
    ) -> Result<(Response, Vec<GuestDescriptor>), GuestError> {
        self.greeting().await?;
        let (mut chunk, mut descriptors) = ([0; MAX_SHORT_ANSWER_BYTES], Vec::new());
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer)? {
                return Ok((answer_in(&frame)?, descriptors));
            }
            let stream = self.unix().ok_or(GuestError::Nonsense("a stream without descriptors"))?;
            let receive = || descriptor::receive(stream, &mut chunk, &mut descriptors);
            let n_read = stream.async_io(Interest::READABLE, receive).await?;
            if n_read == 0 {
                return Err(GuestError::Closed);
            }
            self.buffer.extend_from_slice(&chunk[..n_read]);
            if self.buffer.len() > MAX_SHORT_ANSWER_BYTES || descriptors.len() > MAX_DESCRIPTORS {
                return Err(GuestError::Nonsense("more than was asked for"));
            }
        }
    }

    /// A frame that has arrived already, without waiting for one.
    pub(crate) fn take_arrived(&mut self) -> Result<Option<Frame>, GuestError> {
        if self.version.is_none() {
            return Ok(None);
        }
        Ok(self.decoder.decode(&mut self.buffer)?)
    }

    async fn greet(&mut self) -> Result<(), GuestError> {
        let after = self.hello_within;
        let frame = within(after, self.next_frame()).await?;
        if frame.kind != FrameKind::Hello {
            return Err(ProtocolError::Unexpected { expected: "a greeting", got: frame.kind }.into());
        }
        let hello: Hello = frame.parse()?;
        self.version = Some(hello.agree()?);
        Ok(())
    }

    async fn next_frame(&mut self) -> Result<Frame, GuestError> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer)? {
                return Ok(frame);
            }
            if self.buffer.capacity() == self.buffer.len() {
                self.buffer.reserve(READ_BUFFER_BYTES);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(if self.buffer.is_empty() {
                    GuestError::Closed
                } else {
                    ProtocolError::Truncated.into()
                });
            }
        }
    }
}

fn answer_in(frame: &Frame) -> Result<Response, GuestError> {
    match frame.kind {
        FrameKind::Response => Ok(frame.parse()?),
        FrameKind::Failure => Err(GuestError::Refused(frame.parse()?)),
        got => Err(ProtocolError::Unexpected { expected: "a response", got }.into()),
    }
}

/// Runs into `GuestError::Silent` when the guest takes longer than `after`.
pub(crate) async fn within<T>(
    after: Duration,
    work: impl Future<Output = Result<T, GuestError>>,
) -> Result<T, GuestError> {
    tokio::time::timeout(after, work).await.unwrap_or(Err(GuestError::Silent { after }))
}
