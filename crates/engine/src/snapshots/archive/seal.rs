//! The seal of an archive: a digest of every byte before it, at its very end.
//!
//! In a plain tar it is the last member; behind zstd it is a frame that other decoders skip. So the archives are what
//! their names say to every other program, and a changed byte anywhere, in what no reader looks at too, is noticed.

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

/// First bytes of every zstd frame with content.
pub(super) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// First bytes of a frame to be skipped (the last of sixteen kinds), then the length of the rest: 32 bytes.
const SKIPPED: [u8; 8] = [0x5f, 0x2a, 0x4d, 0x18, 32, 0, 0, 0];
/// Bytes read at a time.
const READ_BYTES: usize = 64 * 1024;
const SEAL_NAME: &str = "sha256";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Tar,
    Zstd,
}

impl Format {
    /// Length of the seal.
    fn len(self) -> usize {
        match self {
            // Header and content of the member, and the two empty blocks at the end of every tar.
            Self::Tar => 4 * archive::BLOCK,
            Self::Zstd => SKIPPED.len() + 32,
        }
    }

    fn seal(self, hash: &[u8; 32]) -> Vec<u8> {
        match self {
            Self::Zstd => [&SKIPPED[..], hash].concat(),
            Self::Tar => {
                let digest = super::super::manifest::digest_text(hash);
                let mut seal = super::header(SEAL_NAME, digest.len() as u64);
                seal.extend(digest.into_bytes());
                seal.resize(self.len(), 0);
                seal
            }
        }
    }
}

/// Passes bytes on and puts the seal behind them.
pub(super) struct Sealing<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Sealing<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new() }
    }

    pub(super) fn finish(mut self, format: Format) -> io::Result<()> {
        self.inner.write_all(&format.seal(&self.hash.finalize().into()))?;
        self.inner.flush()
    }
}

impl<W: Write> Write for Sealing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hash.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Passes everything but the seal on.
pub(super) struct Sealed<R> {
    inner: R,
    format: Format,
    hash: Sha256,
    /// Read and not passed on; the last bytes of it may be the seal.
    held: Vec<u8>,
    /// How much of `held` was passed on.
    n_passed: usize,
    is_at_end: bool,
}

impl<R: Read> Sealed<R> {
    /// Finds out by its first bytes what it is.
    pub(super) fn open(mut inner: R) -> io::Result<Self> {
        let mut first = Vec::new();
        inner.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut first)?;
        let format = if first == ZSTD_MAGIC { Format::Zstd } else { Format::Tar };
        Ok(Self { inner, format, hash: Sha256::new(), held: first, n_passed: 0, is_at_end: false })
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Whether what stands at the end is the seal of all before it, and all before it was read.
    pub(super) fn check(mut self) -> io::Result<bool> {
        let mut beyond = [0; 1];
        if self.read(&mut beyond)? > 0 {
            return Ok(false);
        }
        let seal = self.format.seal(&self.hash.finalize().into());
        Ok(self.held[self.n_passed..] == seal)
    }

    /// Reads until there is more than a seal could be, or the end.
    fn fill(&mut self) -> io::Result<()> {
        self.held.drain(..self.n_passed);
        self.n_passed = 0;
        let wanted = self.format.len() + READ_BYTES;
        while self.held.len() <= self.format.len() && !self.is_at_end {
            let n_missing = (wanted - self.held.len()) as u64;
            let n = self.inner.by_ref().take(n_missing).read_to_end(&mut self.held)?;
            self.is_at_end = n == 0;
        }
        Ok(())
    }
}

impl<R: Read> Read for Sealed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.held.len() - self.n_passed <= self.format.len() {
            self.fill()?;
        }
        let n_free = (self.held.len() - self.n_passed).saturating_sub(self.format.len());
        let n = n_free.min(buffer.len());
        let passed = &self.held[self.n_passed..self.n_passed + n];
        buffer[..n].copy_from_slice(passed);
        self.hash.update(passed);
        self.n_passed += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(content: &[u8], format: Format) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut sealing = Sealing::new(&mut bytes);
        sealing.write_all(content).unwrap();
        sealing.finish(format).unwrap();
        bytes
    }

    fn read_back(bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut sealed = Sealed::open(bytes).unwrap();
        let mut content = Vec::new();
        sealed.read_to_end(&mut content).unwrap();
        (content, sealed.check().unwrap())
    }

    #[test]
    fn what_was_sealed_is_read_back_and_every_changed_byte_is_noticed() {
        let zstd = [&ZSTD_MAGIC[..], &[7; 300]].concat();
        for (content, format) in [(vec![1; 1000], Format::Tar), (zstd, Format::Zstd)] {
            let bytes = sealed(&content, format);
            assert_eq!(bytes.len(), content.len() + format.len());
            assert_eq!(read_back(&bytes), (content, true));
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 0x20;
                assert!(!read_back(&changed).1, "byte {at} of {format:?}");
            }
            for len in 0..bytes.len() {
                assert!(!read_back(&bytes[..len]).1, "cut to {len} of {format:?}");
            }
            assert!(!read_back(&[&bytes[..], b"x"].concat()).1);
        }
    }

    #[test]
    fn long_content_comes_in_whole() {
        let content: Vec<u8> = (0..3 * READ_BYTES + 17).map(|i| i as u8).collect();
        assert_eq!(read_back(&sealed(&content, Format::Tar)), (content, true));
    }
}
