//! Names of contents.

use std::{
    fmt,
    io::{self, Write},
    str::FromStr,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

/// Bytes of a SHA-256 in hexadecimal.
const HEX_LENGTH: usize = 64;

/// `sha256:` and 64 lower-case hexadecimal digits: the only kind of digest in use for images, and safe as a file name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without `sha256:`.
    pub fn hex(&self) -> &str {
        self.0.strip_prefix("sha256:").unwrap_or(&self.0)
    }

    /// Fails with [`Error::Corrupt`] unless `got` is this digest.
    pub(crate) fn expect(&self, got: &Self, what: impl Into<String>) -> Result<()> {
        if self == got { Ok(()) } else { Err(Error::corrupt(what, self.as_str(), got.as_str())) }
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some(hex) = text.strip_prefix("sha256:") else {
            return Err(match text.split_once(':') {
                Some((algorithm @ ("sha384" | "sha512" | "blake3"), _)) => {
                    Error::unsupported(format!("digest algorithm {algorithm}"))
                }
                _ => Error::invalid(format!("{text:?} is not a digest")),
            });
        };
        if hex.len() != HEX_LENGTH || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(Error::invalid(format!("{text:?} is not a digest")));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Digest {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Computes a [`Digest`] as bytes go by, and counts them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hasher {
    state: Sha256,
    bytes: u64,
}

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn finish(self) -> Digest {
        use fmt::Write as _;

        let mut text = String::with_capacity(7 + HEX_LENGTH);
        text.push_str("sha256:");
        for byte in self.state.finalize() {
            let _never_fails = write!(text, "{byte:02x}");
        }
        Digest(text)
    }
}

/// Passes bytes on and hashes them.
#[derive(Debug)]
pub(crate) struct HashingWriter<W> {
    pub(crate) inner: W,
    pub(crate) hasher: Hasher,
}

impl<W: Write> HashingWriter<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, hasher: Hasher::default() }
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_sha256_digests_are_names() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").as_str(), empty);
        assert_eq!(empty.parse::<Digest>().unwrap().hex().len(), 64);
        for bad in ["", "sha256:", "sha256:../../etc/passwd", &empty[..70], &empty.to_uppercase(), "md5:00"] {
            assert!(matches!(bad.parse::<Digest>(), Err(Error::Invalid { .. })), "{bad}");
        }
        let longer = format!("sha512:{}", "0".repeat(128));
        assert!(matches!(longer.parse::<Digest>(), Err(Error::Unsupported { .. })));
    }
}
