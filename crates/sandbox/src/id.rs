//! Identities: made by the engine from random bytes, never chosen by a caller.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Bytes of randomness in an id: enough that two never meet, short enough to read aloud.
const RANDOM_BYTES: usize = 8;

/// Lower case without look-alikes (no i, l, o, u), so an id survives being copied by hand.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    #[error("an id of this kind starts with {0:?}")]
    Prefix(&'static str),
    #[error("an id is 13 characters of 0-9 and a-z after its prefix")]
    Characters,
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// Makes an id from random bytes, which the caller draws.
            pub fn from_random(bytes: [u8; RANDOM_BYTES]) -> Self {
                Self(encode($prefix, bytes))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let tail = text.strip_prefix($prefix).ok_or(InvalidId::Prefix($prefix))?;
                if tail.len() != 13 || !tail.bytes().all(|byte| ALPHABET.contains(&byte)) {
                    return Err(InvalidId::Characters);
                }
                Ok(Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

id_type!(
    /// Names one sandbox for ever. Everything made for it on the host can be found from this alone.
    SandboxId,
    "sbx-"
);
id_type!(
    /// Names one command run in a sandbox.
    ExecId,
    "exc-"
);
id_type!(
    /// Names one key; it is no secret, and stands in the secret so that the key is found by it.
    KeyId,
    "key-"
);
id_type!(
    /// Names one job that installs packages in a sandbox.
    PackageJobId,
    "pkg-"
);
id_type!(
    /// Names one snapshot on this host, and its directory.
    SnapshotId,
    "snp-"
);

id_type!(
    /// Names one volume for ever, whatever it is called.
    VolumeId,
    "vol-"
);

fn encode(prefix: &str, bytes: [u8; RANDOM_BYTES]) -> String {
    let mut bits = u64::from_be_bytes(bytes);
    let mut text = [0_u8; 13];
    for slot in text.iter_mut().rev() {
        *slot = ALPHABET[(bits % 32) as usize];
        bits /= 32;
    }
    let mut id = String::with_capacity(prefix.len() + text.len());
    id.push_str(prefix);
    id.extend(text.iter().map(|&byte| char::from(byte)));
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_itself() {
        for bytes in [[0; 8], [255; 8], [1, 2, 3, 4, 5, 6, 7, 8]] {
            let id = SandboxId::from_random(bytes);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in
            ["", "sbx-", "sbx-../../etc/pass", "exc-0000000000000", "sbx-000000000000O", "sbx-00000000000000"]
        {
            assert!(text.parse::<SandboxId>().is_err(), "{text:?}");
        }
    }
}
