//! An archive on its way to somebody else, in pieces of one size.

use std::io::{self, Write};

/// Gathers what is written and hands it on in pieces.
#[derive(Debug)]
pub struct Pieces<F> {
    piece: Vec<u8>,
    piece_bytes: usize,
    send: F,
}

impl<F: FnMut(Vec<u8>) -> io::Result<()>> Pieces<F> {
    pub fn new(piece_bytes: usize, send: F) -> Self {
        Self { piece: Vec::new(), piece_bytes, send }
    }
}

impl<F: FnMut(Vec<u8>) -> io::Result<()>> Write for Pieces<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.reserve_exact(self.piece_bytes - self.piece.len());
        let n = bytes.len().min(self.piece_bytes - self.piece.len());
        self.piece.extend_from_slice(&bytes[..n]);
        if self.piece.len() == self.piece_bytes {
            self.flush()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        (self.send)(std::mem::take(&mut self.piece))
    }
}
