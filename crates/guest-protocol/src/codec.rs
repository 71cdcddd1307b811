//! One frame: `[length: u32 LE][kind: u8][payload]`, where length counts kind and payload.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Longest frame either side may send, header not counted. Larger payloads are split, so this bounds what one hostile
/// peer can make the other hold.
pub const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;
/// Longest payload of one `Data` frame that we send: large enough to copy fast, small enough to interleave.
pub const MAX_DATA_BYTES: usize = 256 * 1024;
pub const HEADER_BYTES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameKind {
    Hello,
    Request,
    Response,
    Failure,
    Data,
    End,
    Event,
    Ack,
}

impl FrameKind {
    fn code(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Request => 2,
            Self::Response => 3,
            Self::Failure => 4,
            Self::Data => 5,
            Self::End => 6,
            Self::Event => 7,
            Self::Ack => 8,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [
            Self::Hello,
            Self::Request,
            Self::Response,
            Self::Failure,
            Self::Data,
            Self::End,
            Self::Event,
            Self::Ack,
        ]
        .into_iter()
        .find(|kind| kind.code() == code)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("a frame of {len} bytes; at most {MAX_FRAME_BYTES} are allowed")]
    TooLong { len: usize },
    #[error("a frame with no kind")]
    Empty,
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    #[error("expected {expected}, got a {got:?} frame")]
    Unexpected { expected: &'static str, got: FrameKind },
    #[error("a {kind:?} frame that cannot be read")]
    Malformed {
        kind: FrameKind,
        #[source]
        source: Option<serde_json::Error>,
    },
    #[error("the stream ended in the middle of a frame")]
    Truncated,
}

/// A value that a frame carries as JSON. Functions of this crate write and read it: serde's are generic, and would be
/// compiled again in each crate that calls them.
pub trait Message: Sized {
    fn to_json(&self) -> serde_json::Result<Vec<u8>>;
    fn from_json(json: &[u8]) -> serde_json::Result<Self>;
}

macro_rules! messages {
    ($($message:ident),+ $(,)?) => {$(
        impl Message for crate::$message {
            #[inline(never)]
            fn to_json(&self) -> serde_json::Result<Vec<u8>> {
                serde_json::to_vec(self)
            }

            #[inline(never)]
            fn from_json(json: &[u8]) -> serde_json::Result<Self> {
                serde_json::from_slice(json)
            }
        }
    )+};
}

messages!(ExitReport, Failure, Hello, Incoming, Request, Response, Rich, WatchEvent);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: FrameKind,
    pub payload: Bytes,
}

impl Frame {
    pub fn new(kind: FrameKind, payload: impl Into<Bytes>) -> Self {
        Self { kind, payload: payload.into() }
    }

    /// Makes a frame that carries JSON. Our own messages always serialise, so a failure is a bug worth an error, not a
    /// panic.
    pub fn json<T: Message>(kind: FrameKind, message: &T) -> Result<Self, ProtocolError> {
        Ok(Self::new(kind, message.to_json().map_err(malformed(kind))?))
    }

    pub fn parse<T: Message>(&self) -> Result<T, ProtocolError> {
        T::from_json(&self.payload).map_err(malformed(self.kind))
    }
}

pub(crate) fn malformed(kind: FrameKind) -> impl FnOnce(serde_json::Error) -> ProtocolError {
    move |source| ProtocolError::Malformed { kind, source: Some(source) }
}

/// The five bytes before a payload of `len` bytes, for senders that write payloads without copying them.
pub fn header(kind: FrameKind, len: usize) -> Result<[u8; HEADER_BYTES], ProtocolError> {
    let total = u32::try_from(len + 1)
        .ok()
        .filter(|_| len < MAX_FRAME_BYTES)
        .ok_or(ProtocolError::TooLong { len })?;
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&total.to_le_bytes());
    header[4] = kind.code();
    Ok(header)
}

/// Appends one frame to `out`.
pub fn encode(frame: &Frame, out: &mut BytesMut) -> Result<(), ProtocolError> {
    let header = header(frame.kind, frame.payload.len())?;
    out.reserve(header.len() + frame.payload.len());
    out.put_slice(&header);
    out.put_slice(&frame.payload);
    Ok(())
}

/// Cuts frames from bytes as they arrive. Holds at most one frame of the peer's data.
#[derive(Debug, Default)]
pub struct Decoder {
    _private: (),
}

impl Decoder {
    /// Takes the next whole frame off the front of `buffer`; `None` when more bytes are needed.
    ///
    /// After an error the stream cannot be trusted and must be closed.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, ProtocolError> {
        let Some(head) = buffer.first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*head) as usize;
        if len == 0 {
            return Err(ProtocolError::Empty);
        }
        if len > MAX_FRAME_BYTES {
            return Err(ProtocolError::TooLong { len });
        }
        if let Some(&code) = buffer.get(4)
            && FrameKind::from_code(code).is_none()
        {
            return Err(ProtocolError::UnknownKind(code));
        }
        if buffer.len() < 4 + len {
            buffer.reserve(4 + len - buffer.len());
            return Ok(None);
        }
        buffer.advance(4);
        let mut frame = buffer.split_to(len);
        let code = frame.get_u8();
        let kind = FrameKind::from_code(code).ok_or(ProtocolError::UnknownKind(code))?;
        Ok(Some(Frame { kind, payload: frame.freeze() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_being_cut_anywhere() {
        let frames = [
            Frame::new(FrameKind::Data, vec![7; 1000]),
            Frame::new(FrameKind::End, vec![]),
            Frame::new(FrameKind::Ack, vec![1]),
        ];
        let mut wire = BytesMut::new();
        for frame in &frames {
            encode(frame, &mut wire).unwrap();
        }
        for step in [1, 2, 3, 7, 64, 4096] {
            let (mut decoder, mut buffer, mut seen) = (Decoder::default(), BytesMut::new(), vec![]);
            for part in wire.chunks(step) {
                buffer.extend_from_slice(part);
                while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, frames);
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn hostile_bytes_are_errors_and_reserve_nothing_large() {
        let decode = |bytes: &[u8]| Decoder::default().decode(&mut BytesMut::from(bytes));
        assert!(matches!(decode(&[0, 0, 0, 0]), Err(ProtocolError::Empty)));
        assert!(matches!(decode(&u32::MAX.to_le_bytes()), Err(ProtocolError::TooLong { .. })));
        assert!(matches!(decode(&[2, 0, 0, 0, 99]), Err(ProtocolError::UnknownKind(99))));
        assert!(matches!(decode(&[]), Ok(None)));
    }
}
