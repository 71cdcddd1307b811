//! The content of files in pieces of one size, with those that are all zero told apart, whether they are written or not.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::{
    fs::{SeekFrom, seek},
    io::{Errno, pread},
};

/// Length of a piece. A part of the definition of a tree's digest.
pub(crate) const PIECE_BYTES: u64 = 1024 * 1024;

/// The next place at or behind `at` where a file of `size` bytes may have something written, rounded down to the piece that has
/// it; `size` when there is none.
pub(crate) fn next_written(file: impl AsFd, at: u64, size: u64) -> Result<u64, Errno> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok((data / PIECE_BYTES * PIECE_BYTES).max(at).min(size)),
        Err(Errno::NXIO) => Ok(size),
        // A file system that cannot tell: everything may be.
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
