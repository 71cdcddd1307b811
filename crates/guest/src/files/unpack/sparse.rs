//! Zeros become holes: an archive of a few bytes can name a file of any size, which must not take that much room.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
};

use crate::files::Cancel;

/// What is a hole or is not: the block of most file systems. In larger steps, a lone byte would be written with zeros around it.
const BLOCK_BYTES: usize = 4096;
/// Bytes looked at together.
const PIECE_BYTES: usize = 16 * BLOCK_BYTES;
const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Gives an error once nobody waits for its bytes any more: holes have no end that the stream's end would bring.
pub(super) struct Awaited<'a, R> {
    pub(super) source: &'a mut R,
    pub(super) cancel: &'a Cancel,
}

impl<R: Read> Read for Awaited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.cancel.check().map_err(io::Error::other)?;
        self.source.read(buffer)
    }
}

/// Copies all of `source` into a file that is new.
pub(super) fn copy_sparsely(source: &mut impl Read, file: &File) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut position = 0;
    loop {
        let n = fill(source, &mut piece)?;
        write_blocks(file, &piece[..n], position)?;
        position += n as u64;
        if n < piece.len() {
            // What ends with a hole has no last byte that was written.
            return file.set_len(position);
        }
    }
}

/// Reads until the buffer is full, so that blocks stay where the file system has them; less only at the end.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match source.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(n)
}

/// Writes each run of blocks that are not all zeros.
fn write_blocks(file: &File, piece: &[u8], position: u64) -> io::Result<()> {
    let is_hole = |block: &[u8]| block == &ZEROS[..block.len()];
    let mut begin = 0;
    let mut blocks = piece.chunks(BLOCK_BYTES).peekable();
    while let Some(block) = blocks.next() {
        let mut end = begin + block.len();
        if !is_hole(block) {
            while let Some(next) = blocks.next_if(|next| !is_hole(next)) {
                end += next.len();
            }
            file.write_all_at(&piece[begin..end], position + begin as u64)?;
        }
        begin = end;
    }
    Ok(())
}
