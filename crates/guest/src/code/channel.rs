//! The channel between the guest and a driver: frames to it, lines from it.
//!
//! The workload controls everything that comes in, so only its form is trusted: it is bounded and may be cut anywhere,
//! and an interpreter whose channel breaks the form is killed.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    },
};
use serde::Deserialize;
use tokio::io::unix::AsyncFd;

use super::drivers::Framing;
use crate::{
    exec::{self, Chunk},
    limits::{MAX_CONTROL_BYTES, MAX_RECORD_BYTES, MAX_UNWRITTEN_BYTES, OUTPUT_CHUNK_BYTES},
    sys,
};

/// Longest end-of-cell line of a driver.
const MAX_END_BYTES: usize = 64;
/// How that line begins. No JSON contains these bytes, so a record with them has swallowed an end of a cell.
const END_OF_CELL: &[u8] = b"d{\"cell\":";

/// The guest's end of the channel.
#[derive(Debug)]
pub(crate) struct Channel {
    fd: AsyncFd<OwnedFd>,
    framing: Framing,
    unwritten: RefCell<Unwritten>,
    pub(crate) lines: Lines,
    /// Nothing more is read: the other end is closed, or broke the protocol.
    pub(crate) is_deaf: bool,
}

#[derive(Debug, Default)]
struct Unwritten {
    bytes: Vec<u8>,
    n_written: usize,
}

impl Channel {
    /// A channel, and the end for the interpreter.
    pub(crate) fn open(framing: Framing) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let fd = exec::nonblocking(ours)?;
        let channel =
            Self { fd, framing, unwritten: RefCell::default(), lines: Lines::default(), is_deaf: false };
        Ok((channel, sys::above_channel(theirs)?))
    }

    /// Waits for the next bytes or the end.
    pub(crate) async fn next(&self) -> Chunk {
        loop {
            let Ok(mut ready) = self.fd.readable().await else { return Chunk::Closed };
            match exec::read_chunk(&self.fd, OUTPUT_CHUNK_BYTES) {
                Chunk::Empty => ready.clear_ready(),
                chunk => return chunk,
            }
        }
    }

    /// The bytes available now.
    pub(crate) fn take(&self) -> Chunk {
        exec::read_chunk(&self.fd, OUTPUT_CHUNK_BYTES)
    }

    /// Sends the driver's own parts.
    pub(crate) fn send_parts(&self, parts: &[(&str, &str)]) -> Result<(), Garbled> {
        if parts.is_empty() {
            return Ok(());
        }
        let mut payload = Vec::new();
        for (name, source) in parts {
            payload.extend_from_slice(&u16::try_from(name.len()).unwrap_or(0).to_le_bytes());
            payload.extend_from_slice(name.as_bytes());
            payload.extend_from_slice(&length(source.len()));
            payload.extend_from_slice(source.as_bytes());
        }
        self.send(b'P', &[&payload])
    }

    pub(crate) fn send_cell(&self, kind: u8, number: u64, code: &str) -> Result<(), Garbled> {
        match self.framing {
            Framing::Binary => self.send(kind, &[&number.to_le_bytes(), code.as_bytes()]),
            Framing::Shell => self.put(&[number.to_string().as_bytes(), &[0], code.as_bytes(), &[0]]),
        }
    }

    fn send(&self, kind: u8, payload: &[&[u8]]) -> Result<(), Garbled> {
        let bytes: usize = payload.iter().map(|part| part.len()).sum();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(payload.len() + 2);
        let (head, kind) = (length(bytes + 1), [kind]);
        parts.extend([&head[..], &kind]);
        parts.extend(payload);
        self.put(&parts)
    }

    /// Queues the bytes and writes what fits without waiting. Fails if a driver that reads nothing would make us hold
    /// too much.
    fn put(&self, parts: &[&[u8]]) -> Result<(), Garbled> {
        {
            let mut unwritten = self.unwritten.borrow_mut();
            let n_bytes: usize = parts.iter().map(|part| part.len()).sum();
            if unwritten.bytes.len() + n_bytes > MAX_UNWRITTEN_BYTES {
                return Err(Garbled);
            }
            unwritten.bytes.reserve_exact(n_bytes);
            for part in parts {
                unwritten.bytes.extend_from_slice(part);
            }
        }
        self.write_some();
        Ok(())
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        !self.is_deaf && !self.unwritten.borrow().bytes.is_empty()
    }

    /// Continues writing when there is room again.
    pub(crate) async fn write_on(&self) {
        match self.fd.writable().await {
            Ok(mut ready) => {
                if self.write_some() == Some(Errno::AGAIN) {
                    ready.clear_ready();
                }
            }
            Err(_) => std::future::pending().await,
        }
    }

    fn write_some(&self) -> Option<Errno> {
        let mut unwritten = self.unwritten.borrow_mut();
        let Unwritten { bytes, n_written } = &mut *unwritten;
        while *n_written < bytes.len() {
            match rustix::io::write(self.fd.get_ref(), &bytes[*n_written..]) {
                Ok(n) => *n_written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Some(Errno::AGAIN),
                // The reader is gone; its silence or its end will show that.
                Err(_) => break,
            }
        }
        // A quiet channel owns no memory.
        *unwritten = Unwritten::default();
        None
    }

    /// Sends a frame with descriptors on its first byte. The driver is waiting for it, so it is sent whole or not at
    /// all.
    pub(crate) fn send_with(&self, kind: u8, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut frame = length(payload.len() + 1).to_vec();
        frame.push(kind);
        frame.extend_from_slice(payload);
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if self.has_unwritten() || !rights.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = sendmsg(self.fd.as_fd(), &[io::IoSlice::new(&frame)], &mut rights, SendFlags::NOSIGNAL)?;
        if sent == frame.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes()
}

/// A driver's messages other than records.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Ready,
    Done { cell: u64, code: u8 },
    Forked(ForkAnswer),
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ForkAnswer {
    pub(crate) ok: bool,
    pub(crate) pid: i32,
    pub(crate) warnings: Vec<String>,
    pub(crate) reasons: Vec<String>,
}

#[derive(Deserialize)]
struct Done {
    cell: u64,
    code: i64,
}

/// The channel broke the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

#[derive(Debug, Default)]
enum Within {
    /// At the beginning of a line.
    #[default]
    Start,
    /// A record, passed on as it arrives.
    Record {
        n_bytes: usize,
    },
    Control,
}

/// Splits the input into records, which are passed on, and control words.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    within: Within,
    /// The control line so far, or the last bytes of a record.
    held: Vec<u8>,
}

impl Lines {
    /// Whether a record has begun and is not complete.
    pub(crate) fn is_within_record(&self) -> bool {
        matches!(self.within, Within::Record { .. })
    }

    /// Consumes bytes up to the next control word. Records among them go to `rich`.
    pub(crate) fn next(&mut self, bytes: &mut &[u8], rich: &mut Vec<u8>) -> Result<Option<Word>, Garbled> {
        while let Some((&first, after)) = bytes.split_first() {
            match self.within {
                Within::Start => {
                    self.within = match first {
                        b'r' => Within::Record { n_bytes: 0 },
                        b'd' | b'i' | b'f' => {
                            self.held.push(first);
                            Within::Control
                        }
                        _ => return Err(Garbled),
                    };
                    *bytes = after;
                }
                Within::Record { n_bytes } => {
                    let (piece, is_whole) = cut_line(bytes);
                    rich.extend_from_slice(piece);
                    self.pass_record(piece, is_whole, n_bytes + piece.len())?;
                }
                Within::Control => {
                    let (piece, is_whole) = cut_line(bytes);
                    self.held.extend_from_slice(piece);
                    if self.held.len() > MAX_CONTROL_BYTES {
                        return Err(Garbled);
                    }
                    if is_whole {
                        self.within = Within::Start;
                        return word(&std::mem::take(&mut self.held)).map(Some);
                    }
                }
            }
        }
        Ok(None)
    }

    fn pass_record(&mut self, piece: &[u8], is_whole: bool, n_bytes: usize) -> Result<(), Garbled> {
        // Otherwise half a line written before the driver's own word would keep the cell from ever ending.
        self.held.extend_from_slice(&piece[piece.len().saturating_sub(MAX_END_BYTES)..]);
        let surplus = self.held.len().saturating_sub(MAX_END_BYTES);
        self.held.drain(..surplus);
        if n_bytes > MAX_RECORD_BYTES {
            return Err(Garbled);
        }
        self.within = Within::Record { n_bytes };
        if is_whole {
            self.within = Within::Start;
            let tail = std::mem::take(&mut self.held);
            if tail.windows(END_OF_CELL.len()).any(|window| window == END_OF_CELL) {
                return Err(Garbled);
            }
        }
        Ok(())
    }
}

/// The bytes up to and including the end of the line, and whether the end was found.
fn cut_line<'a>(bytes: &mut &'a [u8]) -> (&'a [u8], bool) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
    *bytes = rest;
    (piece, end.is_some())
}

fn word(line: &[u8]) -> Result<Word, Garbled> {
    let line = line.strip_suffix(b"\n").ok_or(Garbled)?;
    match line.split_first() {
        Some((b'i', [])) => Ok(Word::Ready),
        Some((b'd', json)) => {
            let Done { cell, code } = serde_json::from_slice(json).map_err(|_not_json| Garbled)?;
            // Truncated like a process's exit code.
            Ok(Word::Done { cell, code: code.to_le_bytes()[0] })
        }
        Some((b'f', json)) => Ok(Word::Forked(serde_json::from_slice(json).map_err(|_not_json| Garbled)?)),
        _ => Err(Garbled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words and records of a stream that is fed in pieces of `size`.
    fn heard(stream: &[u8], size: usize) -> (Vec<Word>, Vec<u8>, Result<(), Garbled>) {
        let (mut lines, mut words, mut rich) = (Lines::default(), vec![], vec![]);
        for mut piece in stream.chunks(size) {
            loop {
                match lines.next(&mut piece, &mut rich) {
                    Ok(Some(word)) => words.push(word),
                    Ok(None) => break,
                    Err(garbled) => return (words, rich, Err(garbled)),
                }
            }
        }
        (words, rich, Ok(()))
    }

    #[test]
    fn records_and_words_come_apart_however_they_are_cut() {
        let stream =
            b"i\nr{\"a\":1}\nr{}\nd{\"cell\":1,\"code\":0}\nr{\"b\"}\nd{\"cell\":2,\"code\":-1}\nf{\"ok\":true,\"pid\":7}\n";
        for size in 1..stream.len() {
            let (words, rich, end) = heard(stream, size);
            assert_eq!(end, Ok(()));
            assert_eq!(rich, b"{\"a\":1}\n{}\n{\"b\"}\n");
            let answer = ForkAnswer { ok: true, pid: 7, ..ForkAnswer::default() };
            let expected = [
                Word::Ready,
                Word::Done { cell: 1, code: 0 },
                Word::Done { cell: 2, code: 255 },
                Word::Forked(answer),
            ];
            assert_eq!(words, expected);
        }
    }

    #[test]
    fn what_has_no_form_is_garbled() {
        let long = [b"d".as_slice(), &vec![b'x'; MAX_CONTROL_BYTES]].concat();
        let endless = [b"r".as_slice(), &vec![b'x'; MAX_RECORD_BYTES + 1]].concat();
        for stream in [
            b"x".as_slice(),
            b"\n",
            b"ii\n",
            b"d\n",
            b"d{}\n",
            b"d{\"cell\":-1,\"code\":0}\n",
            b"f7\n",
            b"d\xff\n",
            // The driver's own word after half a record.
            b"rjunkd{\"cell\":1,\"code\":0}\n",
            &long,
            &endless,
        ] {
            for size in [1 + stream.len() / 1000, 7 + stream.len() / 1000, stream.len()] {
                assert_eq!(heard(stream, size).2, Err(Garbled), "{:?}", &stream[..stream.len().min(40)]);
            }
        }
    }
}
