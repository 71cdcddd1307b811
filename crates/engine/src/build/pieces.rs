//! Turns the files that were found into a tar for the inside of a sandbox.

use std::{
    fs::File,
    io::{self, ErrorKind::BrokenPipe, Read, Write},
    os::unix::fs::FileExt as _,
    sync::Arc,
};

use archive::{Content, Kind as MemberKind, Member, Pieces, Timespec, Writer};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use sandbox::{Error, ErrorKind};
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
        let send = |piece| sender.blocking_send(Ok(Bytes::from(piece))).map_err(|_gone| BrokenPipe.into());
        let mut archive = Writer::new(Pieces::new(PIECE_BYTES, send));
        let written = pieces.iter().try_for_each(|piece| append(&mut archive, piece));
        let written = written.and_then(|()| archive.finish());
        if let Err(error) = written {
            let error =
                Error::new(ErrorKind::Unavailable, "cannot read the build context again").with_source(error);
            // Fails only when nobody reads any more.
            let _nobody_reads = sender.blocking_send(Err(error));
        }
    });
    stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))).boxed()
}

fn append(archive: &mut Writer<impl Write>, piece: &Piece) -> archive::Result<()> {
    let Entry { mode, uid, gid, mtime, kind } = &piece.entry;
    let member = |kind| Member {
        uid: u64::from(*uid),
        gid: u64::from(*gid),
        mtime: Timespec { tv_sec: *mtime, tv_nsec: 0 },
        ..Member::new(piece.name.as_bytes(), kind, *mode)
    };
    let (offset, content) = match kind {
        Kind::Directory => return archive.begin(&member(MemberKind::Directory)),
        Kind::Symlink { target } => {
            let target = target.clone().into_bytes();
            return archive.begin(&member(MemberKind::Symlink { target }));
        }
        Kind::File { offset, size, parts: Some(parts), .. } => {
            (*offset, Content { size: *size, parts: parts.to_vec() })
        }
        Kind::File { offset, size, parts: None, .. } => (*offset, Content::whole(*size)),
    };
    let left = content.stored();
    let member = member(MemberKind::File(content));
    match &piece.bytes {
        Source::Memory(bytes) => archive.add(&member, &bytes[..]),
        Source::Archive(file) => archive.add(&member, Section { file, at: offset, left }),
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
