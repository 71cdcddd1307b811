//! The content of files in pieces of one size. All-zero pieces are recognized, whether they are written or holes.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::{
    fs::{SeekFrom, seek},
    io::{Errno, pread},
};

/// Length of a piece. A part of the definition of a tree's digest.
pub(crate) const PIECE_BYTES: u64 = 1024 * 1024;

/// The next offset at or after `at` where a file of `size` bytes may have data, rounded down to its piece; `size` if
/// there is none.
pub(crate) fn next_written(file: impl AsFd, at: u64, size: u64) -> Result<u64, Errno> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok((data / PIECE_BYTES * PIECE_BYTES).max(at).min(size)),
        Err(Errno::NXIO) => Ok(size),
        // A file system without this information: there may be data anywhere.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(at),
        Err(errno) => Err(errno),
    }
}

/// Reads the piece at `at`; shorter only at the end of the file.
pub(crate) fn read_piece(file: BorrowedFd<'_>, at: u64, piece: &mut [u8]) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < piece.len() {
        match pread(file, &mut piece[filled..], at + filled as u64) {
            Ok(0) => break,
            Err(Errno::INTR) => {}
            read => filled += read?,
        }
    }
    Ok(filled)
}
