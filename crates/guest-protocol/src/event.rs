//! Events of an exec, numbered by the guest, one `Event` frame each.
//!
//! Payload: `[number: u64 LE][code: u8][bytes]`. Output stays raw; the rest is JSON.
//! An `Ack` frame's payload is `[number: u64 LE]`: the host has everything up to and including it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::{FrameKind, ProtocolError, codec::Frame};

/// One event of an exec. Numbers start at 1 and have no gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    Started {
        pid: i32,
    },
    Stdout(Bytes),
    Stderr(Bytes),
    /// Part of a stream of [`crate::Rich`] records, one JSON object per line. A record may span several events.
    Rich(Bytes),
    /// The first process was reaped and everything that it had written was sent. Output of processes that it left
    /// behind may follow, up to `Closed`.
    Exited(ExitReport),
    /// The last event: no process holds the exec's output any more.
    Closed,
}

/// How the first process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    /// Exit code, when it exited.
    pub code: Option<u8>,
    /// Signal, when one ended it.
    pub signal: Option<i32>,
    /// The guest killed the group because the time was up.
    #[serde(default)]
    pub timed_out: bool,
    /// Processes that the kernel killed for lack of memory while this exec ran.
    #[serde(default)]
    pub oom_kills: u64,
    /// The guest was told to end everything (`Shutdown`).
    #[serde(default)]
    pub shutdown: bool,
    /// The guest killed it because the sandbox passed its disk limit (`KillAll { disk: true }`).
    #[serde(default)]
    pub disk_limit: bool,
}

impl ExecEvent {
    fn code(&self) -> u8 {
        match self {
            Self::Started { .. } => 1,
            Self::Stdout(_) => 2,
            Self::Stderr(_) => 3,
            Self::Exited(_) => 4,
            Self::Closed => 5,
            Self::Rich(_) => 6,
        }
    }

    pub fn to_frame(&self, number: u64) -> Result<Frame, ProtocolError> {
        let mut payload = BytesMut::with_capacity(9 + 64);
        payload.put_u64_le(number);
        payload.put_u8(self.code());
        match self {
            Self::Started { pid } => payload.put_i32_le(*pid),
            Self::Stdout(bytes) | Self::Stderr(bytes) | Self::Rich(bytes) => payload.put_slice(bytes),
            Self::Exited(report) => {
                let json = serde_json::to_vec(report).map_err(|source| ProtocolError::Malformed {
                    kind: FrameKind::Event,
                    source: Some(source),
                })?;
                payload.put_slice(&json);
            }
            Self::Closed => {}
        }
        Ok(Frame::new(FrameKind::Event, payload.freeze()))
    }

    /// Reads an `Event` frame: its number and the event.
    pub fn from_frame(frame: &Frame) -> Result<(u64, Self), ProtocolError> {
        if frame.kind != FrameKind::Event {
            return Err(ProtocolError::Unexpected { expected: "an event", got: frame.kind });
        }
        let malformed = || ProtocolError::Malformed { kind: FrameKind::Event, source: None };
        let mut payload = frame.payload.clone();
        let number = payload.try_get_u64_le().map_err(|_short| malformed())?;
        let code = payload.try_get_u8().map_err(|_short| malformed())?;
        let event = match code {
            1 => Self::Started { pid: payload.try_get_i32_le().map_err(|_short| malformed())? },
            2 => Self::Stdout(payload),
            3 => Self::Stderr(payload),
            4 => Self::Exited(serde_json::from_slice(&payload).map_err(|source| {
                ProtocolError::Malformed { kind: FrameKind::Event, source: Some(source) }
            })?),
            5 => Self::Closed,
            6 => Self::Rich(payload),
            _ => return Err(malformed()),
        };
        Ok((number, event))
    }
}

impl Frame {
    /// "The host has everything up to and including `number`."
    pub fn ack(number: u64) -> Self {
        Self::new(FrameKind::Ack, Bytes::copy_from_slice(&number.to_le_bytes()))
    }

    pub fn acked(&self) -> Result<u64, ProtocolError> {
        if self.kind != FrameKind::Ack {
            return Err(ProtocolError::Unexpected { expected: "an acknowledgement", got: self.kind });
        }
        let bytes: [u8; 8] = self.payload[..]
            .try_into()
            .map_err(|_wrong_length| ProtocolError::Malformed { kind: FrameKind::Ack, source: None })?;
        Ok(u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_read_back_as_themselves() {
        let report = ExitReport {
            code: Some(3),
            signal: None,
            timed_out: false,
            oom_kills: 1,
            shutdown: false,
            disk_limit: false,
        };
        for event in [
            ExecEvent::Started { pid: 42 },
            ExecEvent::Stdout(Bytes::from_static(b"\xff\x00raw")),
            ExecEvent::Stderr(Bytes::new()),
            ExecEvent::Rich(Bytes::from_static(b"{\"type\"")),
            ExecEvent::Exited(report),
            ExecEvent::Closed,
        ] {
            assert_eq!(ExecEvent::from_frame(&event.to_frame(9).unwrap()).unwrap(), (9, event));
        }
    }

    #[test]
    fn short_or_unknown_events_are_errors() {
        for payload in
            [&b""[..], b"1234567", b"12345678", b"12345678\x09", b"12345678\x01ab", b"12345678\x04{"]
        {
            assert!(ExecEvent::from_frame(&Frame::new(FrameKind::Event, payload.to_vec())).is_err());
        }
        assert!(Frame::new(FrameKind::Ack, vec![1, 2]).acked().is_err());
    }
}
