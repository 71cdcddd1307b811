//! Hashes that indexes state, and the one that we keep by.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use md5::Md5;
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Algorithm {
    // From weak to strong: the strongest that is stated is the one that counts.
    Md5,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl Algorithm {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "md5" => Self::Md5,
            "sha1" => Self::Sha1,
            "sha224" => Self::Sha224,
            "sha256" => Self::Sha256,
            "sha384" => Self::Sha384,
            "sha512" => Self::Sha512,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha224 => "sha224",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Whether nobody can make two files of one hash, so that the hash alone may name the file.
    pub(crate) fn is_strong(self) -> bool {
        self >= Self::Sha224
    }
}

/// A hash as an index states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stated {
    pub(crate) algorithm: Algorithm,
    /// Lower case.
    pub(crate) hex: String,
}

impl Stated {
    pub(crate) fn from_hex(algorithm: Algorithm, hex: &str) -> Option<Self> {
        let is_hex = hex.len() == algorithm.bytes() * 2 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| Self { algorithm, hex: hex.to_ascii_lowercase() })
    }

    /// The strongest of a page's `name → hex` pairs.
    pub(crate) fn strongest<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        pairs
            .into_iter()
            .filter_map(|(name, hex)| Self::from_hex(Algorithm::named(name)?, hex))
            .max_by_key(|stated| stated.algorithm)
    }

    /// The strongest of a Subresource Integrity text, `sha512-<base64> sha1-<base64>?option`.
    pub(crate) fn from_integrity(text: &str) -> Option<Self> {
        text.split_ascii_whitespace()
            .filter_map(|word| {
                let (name, value) = word.split_once('-')?;
                let value = value.split('?').next()?;
                let bytes = STANDARD.decode(value).ok()?;
                Self::from_hex(Algorithm::named(name)?, &to_hex(&bytes))
            })
            .max_by_key(|stated| stated.algorithm)
    }
}

/// SHA-256, and the stated one where that is another.
pub(crate) struct Hasher {
    sha256: Sha256,
    other: Option<Other>,
}

enum Other {
    Md5(Md5),
    Sha1(Sha1),
    Sha224(Sha224),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Hasher {
    pub(crate) fn new(stated: Option<&Stated>) -> Self {
        let other = stated.and_then(|stated| match stated.algorithm {
            Algorithm::Md5 => Some(Other::Md5(Md5::new())),
            Algorithm::Sha1 => Some(Other::Sha1(Sha1::new())),
            Algorithm::Sha224 => Some(Other::Sha224(Sha224::new())),
            Algorithm::Sha256 => None,
            Algorithm::Sha384 => Some(Other::Sha384(Sha384::new())),
            Algorithm::Sha512 => Some(Other::Sha512(Sha512::new())),
        });
        Self { sha256: Sha256::new(), other }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        match &mut self.other {
            None => {}
            Some(Other::Md5(hash)) => hash.update(bytes),
            Some(Other::Sha1(hash)) => hash.update(bytes),
            Some(Other::Sha224(hash)) => hash.update(bytes),
            Some(Other::Sha384(hash)) => hash.update(bytes),
            Some(Other::Sha512(hash)) => hash.update(bytes),
        }
    }

    /// The SHA-256, and the hash in the stated algorithm.
    pub(crate) fn finish(self) -> (String, String) {
        let sha256 = to_hex(&self.sha256.finalize());
        let other = match self.other {
            None => sha256.clone(),
            Some(Other::Md5(hash)) => to_hex(&hash.finalize()),
            Some(Other::Sha1(hash)) => to_hex(&hash.finalize()),
            Some(Other::Sha224(hash)) => to_hex(&hash.finalize()),
            Some(Other::Sha384(hash)) => to_hex(&hash.finalize()),
            Some(Other::Sha512(hash)) => to_hex(&hash.finalize()),
        };
        (sha256, other)
    }
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_hash_counts() {
        let page =
            [("md5", "900150983cd24fb0d6963f7d28e17f72"), ("sha256", &sha256_hex(b"abc")), ("odd", "1")];
        let stated = Stated::strongest(page).unwrap();
        assert_eq!(stated, Stated { algorithm: Algorithm::Sha256, hex: sha256_hex(b"abc") });
        assert_eq!(Stated::strongest([("sha256", "abc"), ("md5", "zz")]), None, "neither is a hash");
    }

    #[test]
    fn integrity_is_read_and_computed() {
        for text in [
            "sha1-qZk+NkcGgWq6PiVxeFDCbJzQ2J0=",
            "sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==?x",
        ] {
            let stated = Stated::from_integrity(text).unwrap();
            let mut hasher = Hasher::new(Some(&stated));
            hasher.update(b"ab");
            hasher.update(b"c");
            assert_eq!(hasher.finish(), (sha256_hex(b"abc"), stated.hex));
        }
        assert_eq!(Stated::from_integrity("sha512-???"), None);
    }
}
