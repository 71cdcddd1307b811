//! `Read`: a file's bytes, one block being read while the one before is sent.

use std::{fs::File, io, sync::Arc};

use guest_protocol::{FileEntry, MAX_DATA_BYTES, Response};
use rustix::{fs::FileType, io::Errno};
use tokio::task::spawn_blocking;

use super::{
    Answer, absolute, broken, in_background,
    list::entry,
    place::{kind_of, open_readable},
};
use crate::{
    wire,
    wire::{ConnectionError, FrameReader, FrameWriter},
};

/// Bytes read at once: some frames' worth, so that handing over between threads costs little.
const BLOCK_BYTES: u64 = 1024 * 1024;

/// Where a read stands.
struct Cursor {
    file: Arc<File>,
    offset: u64,
    /// Bytes that may still be sent.
    left: u64,
    /// A regular file that gives less than asked for is at its end; a device may just be slow.
    is_regular: bool,
}

/// One block, and whether more may follow.
struct Block {
    bytes: Vec<u8>,
    is_last: bool,
}

impl Cursor {
    /// Reads the next block into `buffer`, whose memory is used again.
    fn next(&mut self, mut buffer: Vec<u8>) -> io::Result<Block> {
        buffer.clear();
        let wanted = usize::try_from(self.left.min(BLOCK_BYTES)).unwrap_or(0);
        buffer.reserve_exact(wanted);
        while buffer.len() < wanted {
            let room = buffer.capacity().min(wanted) - buffer.len();
            match self.read_some(&mut buffer, room) {
                Ok(0) | Err(Errno::AGAIN) => {
                    self.left = 0;
                    break;
                }
                Ok(n) => {
                    self.offset += n as u64;
                    self.left -= n as u64;
                    if n < room && self.is_regular {
                        self.left = 0;
                    }
                    if n < room {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Block { bytes: buffer, is_last: self.left == 0 })
    }

    fn read_some(&self, buffer: &mut Vec<u8>, room: usize) -> Result<usize, Errno> {
        use rustix::buffer::spare_capacity;
        debug_assert!(buffer.capacity() - buffer.len() >= room);
        match rustix::io::pread(&*self.file, spare_capacity(buffer), self.offset) {
            // What cannot be read at a place is read as it comes.
            Err(Errno::SPIPE) => rustix::io::read(&*self.file, spare_capacity(buffer)),
            result => result,
        }
    }
}

fn open(path: &str, offset: u64, length: Option<u64>) -> Answer<(FileEntry, Cursor)> {
    let path = absolute(path)?;
    let (file, stat) = open_readable(&path)?;
    let cursor = Cursor {
        file: Arc::new(file),
        offset: offset.min(i64::MAX as u64),
        left: length.unwrap_or(u64::MAX),
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
        let size = usize::try_from(entry.size.min(BLOCK_BYTES)).unwrap_or(0);
        let block = cursor
            .next(Vec::with_capacity(size))
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

/// Sends a block while the next one is read. An error in the middle cannot be told in a body, so it ends the connection.
async fn send_blocks(writer: FrameWriter<'_>, mut cursor: Cursor, mut block: Block) -> wire::Result<()> {
    let mut spare = Vec::new();
    loop {
        let next = (!block.is_last).then(|| {
            let buffer = std::mem::take(&mut spare);
            spawn_blocking(move || {
                let next = cursor.next(buffer);
                (cursor, next)
            })
        });
        for part in block.bytes.chunks(MAX_DATA_BYTES) {
            writer.data(part).await?;
        }
        let Some(next) = next else { return Ok(()) };
        spare = block.bytes;
        let read = next.await.map_err(|_panic| ConnectionError::Io(io::Error::other(broken())))?;
        cursor = read.0;
        block = read.1?;
    }
}
