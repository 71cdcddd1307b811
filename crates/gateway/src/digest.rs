//! Hashes that indexes state, and the one that names files in the cache.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use md5::Md5;
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512, digest::DynDigest};

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
    /// Each with its name and the length of its hashes in bytes.
    const ALL: [(Self, &str, usize); 6] = [
        (Self::Md5, "md5", 16),
        (Self::Sha1, "sha1", 20),
        (Self::Sha224, "sha224", 28),
        (Self::Sha256, "sha256", 32),
        (Self::Sha384, "sha384", 48),
        (Self::Sha512, "sha512", 64),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        let algorithm = Self::ALL.into_iter().find(|(_, known, _)| known.eq_ignore_ascii_case(name));
        algorithm.map(|(algorithm, ..)| algorithm)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn bytes(self) -> usize {
        Self::ALL[self as usize].2
    }

    /// Whether nobody can make two files with one hash, so that the hash alone may name the file.
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

/// SHA-256, and the stated algorithm if it is another one.
pub(crate) struct Hasher {
    sha256: Sha256,
    other: Option<Box<dyn DynDigest + Send>>,
}

impl Hasher {
    pub(crate) fn new(stated: Option<&Stated>) -> Self {
        let other = stated.and_then(|stated| -> Option<Box<dyn DynDigest + Send>> {
            match stated.algorithm {
                Algorithm::Md5 => Some(Box::new(Md5::new())),
                Algorithm::Sha1 => Some(Box::new(Sha1::new())),
                Algorithm::Sha224 => Some(Box::new(Sha224::new())),
                Algorithm::Sha256 => None,
                Algorithm::Sha384 => Some(Box::new(Sha384::new())),
                Algorithm::Sha512 => Some(Box::new(Sha512::new())),
            }
        });
        Self { sha256: Sha256::new(), other }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        Digest::update(&mut self.sha256, bytes);
        if let Some(other) = &mut self.other {
            other.update(bytes);
        }
    }

    /// The SHA-256, and the hash in the stated algorithm.
    pub(crate) fn finish(self) -> (String, String) {
        let sha256 = to_hex(&Digest::finalize(self.sha256));
        let other = self.other.map_or_else(|| sha256.clone(), |other| to_hex(&other.finalize()));
        (sha256, other)
    }
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
