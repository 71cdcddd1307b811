//! Entries of an exec's log, in two forms: JSON for everyone, and a compact binary frame for our own command line.
//!
//! A frame is `[length: u32 LE][number: u64 LE][at_ms: i64 LE][kind: u8][data]`, where `length` counts what follows it.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Media type of the binary form.
pub const ENTRIES_MEDIA_TYPE: &str = "application/vnd.warren.entries";

/// Bytes of a frame between its length and its data: number, time, kind.
const FRAME_HEAD_BYTES: usize = 8 + 8 + 1;
/// Longest frame a reader accepts. The ledger cuts output into far smaller pieces.
const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum EntryKind {
    Started,
    Stdin,
    Stdout,
    Stderr,
    /// The command ended; `data` is its outcome.
    Exited,
    /// Nobody inside holds the output any more; nothing follows.
    Closed,
    /// Entries that were cut off to stay within the sandbox's log limit; `data` says which.
    Trimmed,
    /// A piece of lines of JSON: values, pictures, errors and files of a cell.
    Rich,
}

impl EntryKind {
    fn code(self) -> u8 {
        match self {
            Self::Started => 1,
            Self::Stdin => 2,
            Self::Stdout => 3,
            Self::Stderr => 4,
            Self::Exited => 5,
            Self::Closed => 6,
            Self::Trimmed => 7,
            Self::Rich => 8,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [
            Self::Started,
            Self::Stdin,
            Self::Stdout,
            Self::Stderr,
            Self::Exited,
            Self::Closed,
            Self::Trimmed,
            Self::Rich,
        ]
        .into_iter()
        .find(|kind| kind.code() == code)
    }

    fn carries_bytes(self) -> bool {
        matches!(self, Self::Stdin | Self::Stdout | Self::Stderr | Self::Rich)
    }
}

/// One entry as it is inside: raw bytes. `data` is JSON for `started`, `exited` and `trimmed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireEntry {
    pub number: u64,
    pub at_ms: i64,
    pub kind: EntryKind,
    pub data: Bytes,
}

/// One entry as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecEntry {
    /// Numbers grow by one; reading again from any of them gives the same entries.
    pub number: u64,
    /// Milliseconds since 1970.
    pub at_ms: i64,
    pub kind: EntryKind,
    /// Bytes of stdin, stdout or stderr, when they are UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The same, when they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Facts of `started`, `exited` and `trimmed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub data: Option<serde_json::Value>,
}

impl From<&WireEntry> for ExecEntry {
    fn from(entry: &WireEntry) -> Self {
        let mut json = Self {
            number: entry.number,
            at_ms: entry.at_ms,
            kind: entry.kind,
            text: None,
            base64: None,
            data: None,
        };
        if !entry.kind.carries_bytes() {
            json.data = serde_json::from_slice(&entry.data).ok();
        } else if let Ok(text) = std::str::from_utf8(&entry.data) {
            json.text = Some(text.to_owned());
        } else {
            json.base64 = Some(BASE64_STANDARD.encode(&entry.data));
        }
        json
    }
}

/// Appends one frame to `out`.
pub fn encode_frame(entry: &WireEntry, out: &mut BytesMut) {
    let length = FRAME_HEAD_BYTES + entry.data.len();
    out.reserve(4 + length);
    // The ledger's entries are far below 4 GiB; a longer one would be cut by its reader's limit anyway.
    out.put_u32_le(u32::try_from(length).unwrap_or(u32::MAX));
    out.put_u64_le(entry.number);
    out.put_i64_le(entry.at_ms);
    out.put_u8(entry.kind.code());
    out.put_slice(&entry.data);
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    Length(usize),
    Kind(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "a frame of {length} bytes cannot be"),
            Self::Kind(code) => write!(f, "{code} is not a kind of entry"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Takes every whole frame from the front of `buffer`; a part of one stays for the next call.
pub fn decode_frames(buffer: &mut BytesMut) -> Result<Vec<WireEntry>, FrameError> {
    let mut entries = Vec::new();
    while let Some(head) = buffer.first_chunk::<4>() {
        let length = u32::from_le_bytes(*head) as usize;
        if !(FRAME_HEAD_BYTES..=MAX_FRAME_BYTES).contains(&length) {
            return Err(FrameError::Length(length));
        }
        if buffer.len() < 4 + length {
            break;
        }
        buffer.advance(4);
        let mut frame = buffer.split_to(length).freeze();
        let (number, at_ms, code) = (frame.get_u64_le(), frame.get_i64_le(), frame.get_u8());
        let kind = EntryKind::from_code(code).ok_or(FrameError::Kind(code))?;
        entries.push(WireEntry { number, at_ms, kind, data: frame });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, kind: EntryKind, data: &'static [u8]) -> WireEntry {
        WireEntry { number, at_ms: 1_700_000_000_000, kind, data: Bytes::from_static(data) }
    }

    #[test]
    fn frames_read_back_however_they_are_cut() {
        let entries = [
            entry(1, EntryKind::Started, b"{\"pid\":1}"),
            entry(2, EntryKind::Stdout, b"\xff\x00"),
            entry(3, EntryKind::Closed, b""),
        ];
        let mut whole = BytesMut::new();
        entries.iter().for_each(|entry| encode_frame(entry, &mut whole));
        for size in 1..=whole.len() {
            let (mut buffer, mut read) = (BytesMut::new(), Vec::new());
            for piece in whole.chunks(size) {
                buffer.extend_from_slice(piece);
                read.extend(decode_frames(&mut buffer).unwrap());
            }
            assert_eq!(read, entries, "in pieces of {size}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn frames_that_cannot_be_are_errors() {
        let mut short = BytesMut::from(&[3, 0, 0, 0, 1, 2, 3][..]);
        assert_eq!(decode_frames(&mut short), Err(FrameError::Length(3)));
        let mut long = BytesMut::from(&[255, 255, 255, 255][..]);
        assert!(decode_frames(&mut long).is_err());
        let mut odd = BytesMut::new();
        encode_frame(&entry(1, EntryKind::Closed, b""), &mut odd);
        odd[20] = 99;
        assert_eq!(decode_frames(&mut odd), Err(FrameError::Kind(99)));
    }

    #[test]
    fn output_is_text_where_it_can_be() {
        let text = ExecEntry::from(&entry(1, EntryKind::Stdout, "é".as_bytes()));
        assert_eq!((text.text.as_deref(), text.base64), (Some("é"), None));
        let raw = ExecEntry::from(&entry(1, EntryKind::Stderr, b"\xff"));
        assert_eq!((raw.text, raw.base64.as_deref()), (None, Some("/w==")));
    }
}
