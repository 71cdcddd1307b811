//! The path of a layer's bytes: decompressed on one thread, hashed on another, read as an archive and written on a
//! third.

use std::{
    io::{self, BufRead, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

use crate::{
    compression::{decompressed, unreadable},
    digest::{Digest, Hasher},
    error::{Error, Result},
};

/// Size of the buffers that travel between the threads.
const BUFFER_BYTES: usize = 256 * 1024;
/// How many of them wait between two threads at most.
const BUFFERS: usize = 4;

/// Makes a pipe: whatever is fed comes out at the source.
pub(super) fn pipe() -> (Feed, Source) {
    let (full_tx, full_rx) = sync_channel(BUFFERS);
    let (empty_tx, empty_rx) = sync_channel(2 * BUFFERS);
    let source = Source { full: full_rx, empty: empty_tx, buffer: Vec::new(), at: 0 };
    (Feed { full: full_tx, empty: empty_rx }, source)
}

/// The same, with a tap in between.
pub(super) fn tapped_pipe() -> (Feed, Tap, Source) {
    let (feed, mut source) = pipe();
    let (tapped_tx, tapped_rx) = sync_channel(BUFFERS);
    let from = std::mem::replace(&mut source.full, tapped_rx);
    (feed, Tap { from, to: tapped_tx }, source)
}

/// Where the bytes go in.
#[derive(Debug)]
pub(super) struct Feed {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
}

impl Feed {
    /// Feeds all that `blob` holds, uncompressed, for as long as somebody reads.
    pub(super) fn run(self, blob: impl Read + Send, max_layer_bytes: u64) -> Result<()> {
        let (_compression, mut reader) = decompressed(blob)?;
        let mut bytes = 0;
        loop {
            let mut buffer = self.empty.try_recv().unwrap_or_default();
            buffer.resize(BUFFER_BYTES, 0);
            let filled = fill(&mut reader, &mut buffer)?;
            buffer.truncate(filled);
            bytes += filled as u64;
            if bytes > max_layer_bytes {
                return Err(Error::TooLarge {
                    what: "the unpacked layer".to_owned(),
                    limit: "max_layer_bytes".into(),
                    most: max_layer_bytes,
                });
            }
            // Nobody reads any more: the other end failed and says why.
            if filled == 0 || self.full.send(buffer).is_err() {
                return Ok(());
            }
        }
    }
}

/// Hashes what goes by.
#[derive(Debug)]
pub(super) struct Tap {
    from: Receiver<Vec<u8>>,
    to: SyncSender<Vec<u8>>,
}

impl Tap {
    /// The digest of all that went by, and its length.
    pub(super) fn run(self) -> (Digest, u64) {
        let mut hasher = Hasher::default();
        while let Ok(buffer) = self.from.recv() {
            hasher.update(&buffer);
            if self.to.send(buffer).is_err() {
                break;
            }
        }
        let bytes = hasher.bytes();
        (hasher.finish(), bytes)
    }
}

/// Reads until `buffer` is full or the stream ends.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error, "layer")),
        }
    }
    Ok(filled)
}

/// The reading end: the archive, uncompressed.
#[derive(Debug)]
pub(crate) struct Source {
    full: Receiver<Vec<u8>>,
    empty: SyncSender<Vec<u8>>,
    buffer: Vec<u8>,
    at: usize,
}

impl Source {
    /// Reads to the end: the digest covers what lies behind the archive's end mark too.
    pub(super) fn drain(&mut self) {
        self.at = self.buffer.len();
        while self.full.recv().is_ok() {}
    }
}

impl BufRead for Source {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.buffer.len()
            && let Ok(next) = self.full.recv()
        {
            let used = std::mem::replace(&mut self.buffer, next);
            let _full_of_buffers = self.empty.try_send(used);
            self.at = 0;
        }
        Ok(&self.buffer[self.at..])
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}
