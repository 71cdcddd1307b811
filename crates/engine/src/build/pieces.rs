//! From what was found to a tar for the inside of a sandbox.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::FileExt as _,
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use sandbox::{Error, ErrorKind, Result};
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;

use super::context::{Entry, Kind};
use crate::ByteStream;

/// Pieces that wait to be sent.
const QUEUED_PIECES: usize = 8;
const PIECE_BYTES: usize = 256 * 1024;

/// One member of the tar to be written.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// Relative to where the tar is unpacked.
    pub(super) name: String,
    pub(super) entry: Entry,
    pub(super) bytes: Source,
}

/// Where a file's bytes are.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// In an archive, where the entry says.
    Archive(Arc<File>),
    Memory(Bytes),
}

/// Writes the pieces as a tar, as fast as it is read.
pub(super) fn stream_of(pieces: Vec<Piece>) -> ByteStream {
    let (sender, receiver) = mpsc::channel(QUEUED_PIECES);
    tokio::task::spawn_blocking(move || {
        let failures = sender.clone();
        let mut archive = Builder::new(Writer { sender, buffer: BytesMut::new() });
        let written = pieces.iter().try_for_each(|piece| append(&mut archive, piece));
        let written = written.and_then(|()| archive.into_inner()).and_then(|mut writer| writer.flush());
        if let Err(error) = written {
            let error =
                Error::new(ErrorKind::Unavailable, "cannot read the build context again").with_source(error);
            // Fails only when nobody reads any more.
            let _nobody_reads = failures.blocking_send(Err(error));
        }
    });
    stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))).boxed()
}

fn append(archive: &mut Builder<Writer>, piece: &Piece) -> io::Result<()> {
    let Entry { mode, uid, gid, mtime, kind } = &piece.entry;
    let mut header = Header::new_gnu();
    header.set_mode(*mode);
    header.set_uid(u64::from(*uid));
    header.set_gid(u64::from(*gid));
    header.set_mtime(*mtime);
    header.set_size(0);
    match kind {
        Kind::Directory => {
            header.set_entry_type(EntryType::Directory);
            archive.append_data(&mut header, &piece.name, io::empty())
        }
        Kind::Symlink { target } => {
            header.set_entry_type(EntryType::Symlink);
            archive.append_link(&mut header, &piece.name, target)
        }
        Kind::File { offset, size, .. } => {
            header.set_entry_type(EntryType::Regular);
            header.set_size(*size);
            match &piece.bytes {
                Source::Memory(bytes) => archive.append_data(&mut header, &piece.name, &bytes[..]),
                Source::Archive(file) => {
                    archive.append_data(&mut header, &piece.name, Section { file, at: *offset, left: *size })
                }
            }
        }
        Kind::Sparse { stored, .. } => {
            // What stands in a Dockerfile has no holes.
            let Source::Archive(file) = &piece.bytes else { return Err(io::ErrorKind::InvalidData.into()) };
            stored.dress(file, &mut header)?;
            archive.append_data(&mut header, &piece.name, stored.section(file))
        }
    }
}

/// A part of a file that others read too.
pub(super) struct Section<'a> {
    pub(super) file: &'a File,
    pub(super) at: u64,
    pub(super) left: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let n = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

struct Writer {
    sender: mpsc::Sender<Result<Bytes>>,
    buffer: BytesMut,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(PIECE_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..n]);
        if self.buffer.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.buffer).freeze();
        self.sender.blocking_send(Ok(piece)).map_err(|_gone| io::ErrorKind::BrokenPipe.into())
    }
}
