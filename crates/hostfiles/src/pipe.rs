//! Between threads that block and tasks that do not: bytes in bounded pieces.

use std::{
    error,
    io::{self, Read, Write},
};

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use tokio::sync::mpsc;

use crate::{Error, Result};

/// Pieces on their way.
const QUEUE: usize = 8;
/// Bytes that are gathered before they are handed over.
const PIECE_BYTES: usize = 128 * 1024;

/// Pieces of a pipe. An empty one is its end: a pipe that only closes was given up.
pub type Pieces<E> = mpsc::Sender<Result<Bytes, E>>;

pub fn pieces<E>() -> (Pieces<E>, mpsc::Receiver<Result<Bytes, E>>) {
    mpsc::channel(QUEUE)
}

/// Streams the pieces that come, up to their end.
pub(crate) fn stream_of<E: Send + 'static>(
    received: mpsc::Receiver<Result<Bytes, E>>,
) -> BoxStream<'static, Result<Bytes, E>> {
    stream::unfold(received, |mut received| async {
        let piece = received.recv().await.filter(|piece| !piece.as_ref().is_ok_and(Bytes::is_empty));
        piece.map(|piece| (piece, received))
    })
    .boxed()
}

/// Reads `source` to its end.
pub(crate) fn each_chunk<E>(
    source: &mut (impl Read + ?Sized),
    failed: impl Fn(&io::Error) -> E,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut chunk = vec![0; PIECE_BYTES];
    loop {
        match source.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => take(&chunk[..n])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(&error)),
        }
    }
}

/// Runs `work` in a thread of its own and returns what it writes; why it failed comes last.
pub(crate) fn written<E: Send + 'static>(
    work: impl FnOnce(&mut PipeWriter<E>) -> Result<(), E> + Send + 'static,
) -> mpsc::Receiver<Result<Bytes, E>> {
    let (pieces, received) = pieces();
    tokio::task::spawn_blocking(move || {
        let mut writer = PipeWriter::new(pieces);
        let end = work(&mut writer).map(|()| Bytes::new());
        // Whoever does not read any more needs no end either.
        if writer.flush().is_ok() {
            writer.pieces.blocking_send(end).unwrap_or(());
        }
    });
    received
}

/// Whether the other end of a pipe wanted everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pumped {
    All,
    /// It has all it wants, or it failed.
    Closed,
}

/// Passes everything on, and its end.
pub async fn pump<E>(
    bytes: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    pieces: &Pieces<E>,
) -> Result<Pumped, E> {
    loop {
        let piece = bytes.next().await.transpose()?;
        let is_end = piece.is_none();
        let piece = piece.unwrap_or_default();
        if piece.is_empty() && !is_end {
            continue;
        }
        match (pieces.send(Ok(piece)).await, is_end) {
            (_, true) => return Ok(Pumped::All),
            (Err(_closed), _) => return Ok(Pumped::Closed),
            (Ok(()), false) => {}
        }
    }
}

/// Has `work` read what comes, in a thread of its own. The outer error is that of `bytes`, which comes first: the
/// thread only saw that there is no more. Whoever drops this breaks the reading off; the thread ends soon.
pub async fn feed<T: Send + 'static, E: Send + 'static>(
    mut bytes: impl Stream<Item = Result<Bytes, E>> + Unpin,
    work: impl FnOnce(PipeReader<E>) -> Result<T> + Send + 'static,
) -> Result<Result<T>, E> {
    let (pieces, received) = pieces();
    let working = tokio::task::spawn_blocking(move || work(PipeReader::new(received)));
    let pumped = pump(&mut bytes, &pieces).await;
    drop(pieces);
    let done = working.await.unwrap_or(Err(Error::BrokenOff));
    pumped.map(|_| done)
}

/// The reading end. Blocks.
#[derive(Debug)]
pub struct PipeReader<E> {
    pieces: mpsc::Receiver<Result<Bytes, E>>,
    current: Bytes,
    has_ended: bool,
}

impl<E> PipeReader<E> {
    pub fn new(pieces: mpsc::Receiver<Result<Bytes, E>>) -> Self {
        Self { pieces, current: Bytes::new(), has_ended: false }
    }
}

impl<E: Into<Box<dyn error::Error + Send + Sync>>> Read for PipeReader<E> {
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
pub struct PipeWriter<E> {
    pieces: Pieces<E>,
    buffer: BytesMut,
}

impl<E> PipeWriter<E> {
    pub fn new(pieces: Pieces<E>) -> Self {
        Self { pieces, buffer: BytesMut::with_capacity(PIECE_BYTES) }
    }
}

impl<E> Write for PipeWriter<E> {
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
    use super::*;

    #[test]
    fn what_was_given_up_has_no_end() {
        let (pieces, receiver) = pieces::<io::Error>();
        drop(pieces);
        let given_up = PipeReader::new(receiver).read(&mut [0; 1]).unwrap_err();
        assert_eq!(given_up.kind(), io::ErrorKind::UnexpectedEof);
    }

    async fn fed(pieces: Vec<io::Result<Bytes>>) -> io::Result<Result<String>> {
        feed(stream::iter(pieces), |mut reader| {
            let mut text = String::new();
            reader.read_to_string(&mut text).map_err(|error| Error::Archive(error.to_string()))?;
            Ok(text)
        })
        .await
    }

    #[tokio::test]
    async fn what_breaks_off_is_told_from_what_ends() {
        let whole = fed(vec![Ok("on".into()), Ok(Bytes::new()), Ok("e".into())]).await;
        assert_eq!(whole.unwrap(), Ok("one".to_owned()));
        let broken = fed(vec![Ok("on".into()), Err(io::Error::other("why"))]).await;
        assert_eq!(broken.unwrap_err().to_string(), "why");
    }
}
