//! Between threads that block and tasks that do not: bytes in bounded pieces.

use std::io::{self, Read, Write};

use bytes::{Buf as _, Bytes, BytesMut};
use engine::ByteStream;
use futures_util::StreamExt as _;
use sandbox::Result;
use tokio::sync::mpsc;

/// Pieces on their way.
const QUEUE: usize = 8;
/// What is gathered before it is handed over.
const PIECE_BYTES: usize = 128 * 1024;
/// What is still taken from a sender whose bytes nobody wants any more, so that it reads why.
const MAX_DRAINED_BYTES: usize = 256 * 1024 * 1024;

/// Pieces of a pipe. An empty one is its end: a pipe that only closes was given up.
pub(crate) type Pieces = mpsc::Sender<Result<Bytes>>;

pub(crate) fn pieces() -> (Pieces, mpsc::Receiver<Result<Bytes>>) {
    mpsc::channel(QUEUE)
}

/// For a thread that reads what comes as a stream.
pub(crate) fn readable(mut bytes: ByteStream) -> PipeReader {
    let (pieces, reader) = pieces();
    tokio::spawn(async move {
        while let Some(piece) = bytes.next().await {
            let is_over = piece.is_err();
            if piece.as_ref().is_ok_and(Bytes::is_empty) {
                continue;
            }
            if pieces.send(piece).await.is_err() {
                return drain(bytes).await;
            }
            if is_over {
                return;
            }
        }
        // Nobody reads on: all was understood before the end.
        pieces.send(Ok(Bytes::new())).await.unwrap_or(());
    });
    PipeReader::new(reader)
}

async fn drain(mut bytes: ByteStream) {
    let mut left = MAX_DRAINED_BYTES;
    while let Some(Ok(piece)) = bytes.next().await {
        let Some(rest) = left.checked_sub(piece.len()) else { return };
        left = rest;
    }
}

/// The reading end. Blocks.
#[derive(Debug)]
pub(crate) struct PipeReader {
    pieces: mpsc::Receiver<Result<Bytes>>,
    current: Bytes,
    has_ended: bool,
}

impl PipeReader {
    pub(crate) fn new(pieces: mpsc::Receiver<Result<Bytes>>) -> Self {
        Self { pieces, current: Bytes::new(), has_ended: false }
    }
}

impl Read for PipeReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.current.is_empty() && !self.has_ended {
            match self.pieces.blocking_recv() {
                Some(Ok(piece)) => {
                    self.has_ended = piece.is_empty();
                    self.current = piece;
                }
                Some(Err(error)) => return Err(io::Error::other(error)),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let n = self.current.len().min(into.len());
        self.current.copy_to_slice(&mut into[..n]);
        Ok(n)
    }
}

/// The writing end. Blocks, gathers, and fails once nobody reads.
#[derive(Debug)]
pub(crate) struct PipeWriter {
    pieces: Pieces,
    buffer: BytesMut,
}

impl PipeWriter {
    pub(crate) fn new(pieces: Pieces) -> Self {
        Self { pieces, buffer: BytesMut::with_capacity(PIECE_BYTES) }
    }
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = self.buffer.split().freeze();
        self.pieces.blocking_send(Ok(piece)).map_err(|_closed| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use sandbox::{Error, ErrorKind};

    use super::*;

    async fn read(pieces: Vec<Result<Bytes>>) -> io::Result<String> {
        let mut reader = readable(stream::iter(pieces).boxed());
        tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn what_ends_early_is_told_from_what_ends() {
        let whole = vec![Ok("on".into()), Ok(Bytes::new()), Ok("e".into())];
        assert_eq!(read(whole).await.unwrap(), "one");
        let broken = vec![Ok("on".into()), Err(Error::new(ErrorKind::Cancelled, "the body ended early"))];
        assert_eq!(read(broken).await.unwrap_err().to_string(), "the body ended early");
    }

    #[test]
    fn what_was_given_up_has_no_end() {
        let (pieces, receiver) = pieces();
        drop(pieces);
        let given_up = PipeReader::new(receiver).read(&mut [0; 1]).unwrap_err();
        assert_eq!(given_up.kind(), io::ErrorKind::UnexpectedEof);
    }
}
