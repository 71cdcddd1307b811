//! `Read`: a file's bytes; the next block is read while the previous one is sent.

use std::{fs::File, io, sync::Arc};

use guest_protocol::{FileEntry, MAX_DATA_BYTES, Response};
use rustix::{fs::FileType, io::Errno};

use super::{
    Answer, absolute,
    entry::{kind_of, open_readable},
    in_background,
    list::entry,
};
use crate::{
    background, wire,
    wire::{ConnectionError, FrameReader, FrameWriter},
};

/// Bytes read at once: several frames, so that switching threads costs little.
const BLOCK_BYTES: u64 = 1024 * 1024;

/// Past this offset the kernel refuses to read instead of reporting the end.
const MAX_OFFSET: u64 = i64::MAX as u64 - BLOCK_BYTES;
/// First block of a file of unknown size, such as those of `/proc`.
const UNSIZED_BYTES: u64 = 64 * 1024;

/// The state of a read.
struct Cursor {
    file: Arc<File>,
    offset: u64,
    /// Bytes that may still be sent.
    left: u64,
    /// Bytes to read next: no more than the file's size, so that a small file needs no large buffer.
    block: u64,
    is_regular: bool,
}

/// One block: the first `len` bytes of a reused buffer.
struct Block {
    buffer: Vec<u8>,
    len: usize,
    is_last: bool,
}

impl Cursor {
    /// Reads the next block into `buffer`.
    fn next(&mut self, mut buffer: Vec<u8>) -> io::Result<Block> {
        let wanted = usize::try_from(self.left.min(self.block)).unwrap_or(0);
        self.block = BLOCK_BYTES;
        if buffer.len() < wanted {
            buffer.resize(wanted, 0);
        }
        let mut len = 0;
        while len < wanted {
            match self.read_some(&mut buffer[len..wanted]) {
                Ok(0) | Err(Errno::AGAIN) => self.left = 0,
                Ok(n) => {
                    len += n;
                    self.offset += n as u64;
                    self.left -= n as u64;
                    // A regular file that gives less than requested is at its end; a device may just be slow.
                    if len < wanted && self.is_regular {
                        self.left = 0;
                    }
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if self.left == 0 || !self.is_regular {
                break;
            }
        }
        Ok(Block { buffer, len, is_last: self.left == 0 })
    }

    fn read_some(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match rustix::io::pread(&*self.file, &mut *buffer, self.offset) {
            // Files without positions are read as they come.
            Err(Errno::SPIPE) => rustix::io::read(&*self.file, buffer),
            result => result,
        }
    }
}

fn open(path: &str, offset: u64, length: Option<u64>) -> Answer<(FileEntry, Cursor)> {
    let path = absolute(path)?;
    let (file, stat) = open_readable(&path)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    // One byte more than the size, so that a short read is known to be the last.
    let block = if size == 0 {
        UNSIZED_BYTES
    } else {
        size.saturating_sub(offset).saturating_add(1).min(BLOCK_BYTES)
    };
    let cursor = Cursor {
        file: Arc::new(file),
        offset: offset.min(MAX_OFFSET),
        left: length.unwrap_or(u64::MAX),
        block,
        is_regular: kind_of(&stat) == FileType::RegularFile,
    };
    Ok((entry(&path, &stat, None), cursor))
}

pub(crate) async fn read(
    reader: &mut FrameReader<'_>,
    writer: FrameWriter<'_>,
    path: String,
    offset: u64,
    length: Option<u64>,
) -> wire::Result<Answer<()>> {
    let first = in_background(reader, move |_| {
        let (entry, mut cursor) = open(&path, offset, length)?;
        let block = cursor
            .next(Vec::new())
            .map_err(|error| super::failure(format!("could not read {path}"), error))?;
        Ok((entry, cursor, block))
    })
    .await?;
    let (entry, cursor, block) = match first {
        Ok(first) => first,
        Err(failure) => return Ok(Err(failure)),
    };
    writer.respond(&Response::Reading { entry }).await?;
    send_blocks(writer, cursor, block).await?;
    writer.end().await?;
    Ok(Ok(()))
}

/// Sends a block while the next one is read. A body cannot report an error, so one in the middle ends the connection.
async fn send_blocks(writer: FrameWriter<'_>, mut cursor: Cursor, mut block: Block) -> wire::Result<()> {
    let mut spare = Vec::new();
    loop {
        let next = (!block.is_last).then(|| {
            let buffer = std::mem::take(&mut spare);
            background::spawn(move || {
                let next = cursor.next(buffer);
                (cursor, next)
            })
        });
        for part in block.buffer[..block.len].chunks(MAX_DATA_BYTES) {
            writer.data(part).await?;
        }
        let Some(next) = next else { return Ok(()) };
        spare = block.buffer;
        let read =
            next.map_err(ConnectionError::BrokenBody)?.done().await.map_err(ConnectionError::BrokenBody)?;
        cursor = read.0;
        block = read.1?;
    }
}
