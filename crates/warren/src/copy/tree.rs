//! Trees as tar streams on this side, packed and unpacked by a blocking thread at the other end of a short channel.

use std::{
    convert::Infallible,
    io,
    io::{Read, Write},
    os::fd::OwnedFd,
    path::PathBuf,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use sandbox::{Error, ErrorKind};
use tokio::sync::mpsc;

use super::unpack;
use crate::error::{CommandResult, io_failure};

/// Pieces of a tar stream that may wait for the other side, and their size.
const PIECES: usize = 8;
const PIECE_BYTES: usize = 128 * 1024;

/// Packs `source`, its entries named beneath `prefix`; an empty prefix means only what is in it.
pub(super) fn pack(
    source: PathBuf,
    prefix: PathBuf,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut builder =
            tar::Builder::new(io::BufWriter::with_capacity(PIECE_BYTES, Sending(sender.clone())));
        builder.follow_symlinks(false);
        let packed = builder.append_dir_all(&prefix, &source).and_then(|()| builder.into_inner()?.flush());
        if let Err(error) = packed {
            // Whoever reads the stream learns of it as the stream's end.
            let named = io::Error::new(error.kind(), format!("{}: {error}", source.display()));
            sender.blocking_send(Err(named)).ok();
        }
    });
    futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    })
}

struct Sending(mpsc::Sender<io::Result<Bytes>>);

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .blocking_send(Ok(Bytes::copy_from_slice(bytes)))
            .map_err(|_closed| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Unpacks a tar stream beneath an open directory, and nowhere else.
pub(super) async fn unpack(
    bytes: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
    directory: OwnedFd,
) -> CommandResult<()> {
    let (sender, receiver) = mpsc::channel(PIECES);
    let (at_work, ended) = std::sync::mpsc::channel::<Infallible>();
    let unpacking = tokio::task::spawn_blocking(move || {
        let _at_work = at_work;
        let mut source = Receiving { receiver, rest: Bytes::new() };
        let unpacked = unpack::unpack(&mut source, directory);
        // Read what follows the end of the archive, or the sender would see a closed channel.
        io::copy(&mut source, &mut io::sink()).ok();
        unpacked
    });
    let mut feeding = Feeding { sender: Some(sender), ended };
    let failure = feeding.all(bytes).await;
    feeding.sender = None;
    let unpacked = unpacking.await.map_err(io::Error::other)?;
    match failure {
        Some(error) => Err(Error::new(ErrorKind::Unavailable, "the tree could not be read to its end")
            .with_source(error)
            .into()),
        None => unpacked.map_err(|error| io_failure("the tree could not be unpacked", error)),
    }
}

/// What the thread that unpacks is fed with.
struct Feeding {
    sender: Option<mpsc::Sender<Bytes>>,
    /// Nothing comes; it is closed when the thread is done.
    ended: std::sync::mpsc::Receiver<Infallible>,
}

impl Feeding {
    /// Passes everything on. Returns why there will be no more, unless it was all.
    async fn all(&self, mut bytes: impl Stream<Item = io::Result<Bytes>> + Unpin) -> Option<io::Error> {
        let sender = self.sender.as_ref()?;
        while let Some(piece) = bytes.next().await {
            match piece {
                Ok(piece) => sender.send(piece).await.ok()?,
                Err(error) => return Some(error),
            }
        }
        None
    }
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.sender = None;
        // Whoever breaks off removes the directory next: the thread, which has little left, must not write there any more.
        self.ended.recv().ok();
    }
}

struct Receiving {
    receiver: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Read for Receiving {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.rest = piece,
                None => return Ok(0),
            }
        }
        let n = self.rest.len().min(out.len());
        out[..n].copy_from_slice(&self.rest.split_to(n));
        Ok(n)
    }
}
