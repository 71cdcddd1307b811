//! Entries of an exec's log, in two forms: JSON for everyone, and a compact binary frame for our own command line.
//!
//! A frame is `[length: u32 LE][number: u64 LE][at_ms: i64 LE][kind: u8][data]`, where `length` counts what follows it.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::{Buf, BufMut, BytesMut};
use engine::{Entry, EntryBody};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Media type of the binary form.
pub const ENTRIES_MEDIA_TYPE: &str = "application/vnd.warren.entries";

/// Bytes of a frame between its length and its data: number, time, kind.
const FRAME_HEAD_BYTES: usize = 8 + 8 + 1;
/// Longest frame a reader accepts. The ledger cuts output into far smaller pieces.
const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum EntryKind {
    Started,
    Stdin,
    Stdout,
    Stderr,
    /// The command ended; `data` is its outcome.
    Exited,
    /// No process holds the output open any more; nothing follows.
    Closed,
    /// Entries that were cut off to stay within the sandbox's log limit; `data` says which.
    Trimmed,
    /// A piece of lines of JSON: values, pictures, errors and files of a cell.
    Rich,
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

impl From<&Entry> for ExecEntry {
    fn from(entry: &Entry) -> Self {
        let (kind, bytes) = match &entry.body {
            EntryBody::Started { .. } => (EntryKind::Started, None),
            EntryBody::Stdin(bytes) => (EntryKind::Stdin, Some(bytes)),
            EntryBody::Stdout(bytes) => (EntryKind::Stdout, Some(bytes)),
            EntryBody::Stderr(bytes) => (EntryKind::Stderr, Some(bytes)),
            EntryBody::Rich(bytes) => (EntryKind::Rich, Some(bytes)),
            EntryBody::Exited(_) => (EntryKind::Exited, None),
            EntryBody::Closed => (EntryKind::Closed, None),
            EntryBody::Trimmed { .. } => (EntryKind::Trimmed, None),
        };
        let text = bytes.map(|bytes| std::str::from_utf8(bytes));
        Self {
            number: entry.number,
            at_ms: entry.at_ms,
            kind,
            text: text.and_then(Result::ok).map(str::to_owned),
            base64: bytes
                .filter(|_| text.is_some_and(|text| text.is_err()))
                .map(|bytes| BASE64_STANDARD.encode(bytes)),
            data: entry.facts(),
        }
    }
}

/// Appends one frame to `out`.
pub fn encode_frame(entry: &Entry, out: &mut BytesMut) {
    let (code, data) = entry.encode();
    let length = FRAME_HEAD_BYTES + data.len();
    out.reserve(4 + length);
    // The ledger's entries are far below 4 GiB; a longer one would be cut by its reader's limit anyway.
    out.put_u32_le(u32::try_from(length).unwrap_or(u32::MAX));
    out.put_u64_le(entry.number);
    out.put_i64_le(entry.at_ms);
    out.put_u8(code);
    out.put_slice(&data);
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    Length(usize),
    Kind(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "a frame cannot have {length} bytes"),
            Self::Kind(code) => write!(f, "{code} is not a kind of entry"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Takes every whole frame from the front of `buffer`; a part of one stays for the next call.
pub fn decode_frames(buffer: &mut BytesMut) -> Result<Vec<Entry>, FrameError> {
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
        entries.push(Entry::decode(number, at_ms, code, frame).ok_or(FrameError::Kind(code))?);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, body: EntryBody) -> Entry {
        Entry { number, at_ms: 1_700_000_000_000, body }
    }

    #[test]
    fn frames_read_back_however_they_are_cut() {
        let entries = [
            entry(1, EntryBody::Started { pid: Some(1) }),
            entry(2, EntryBody::Stdout(b"\xff\x00"[..].into())),
            entry(3, EntryBody::Closed),
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
        encode_frame(&entry(1, EntryBody::Closed), &mut odd);
        odd[20] = 99;
        assert_eq!(decode_frames(&mut odd), Err(FrameError::Kind(99)));
    }

    #[test]
    fn output_is_text_where_it_can_be() {
        let text = ExecEntry::from(&entry(1, EntryBody::Stdout("é".into())));
        assert_eq!((text.text.as_deref(), text.base64), (Some("é"), None));
        let raw = ExecEntry::from(&entry(1, EntryBody::Stderr(b"\xff"[..].into())));
        assert_eq!((raw.text, raw.base64.as_deref()), (None, Some("/w==")));
    }
}
