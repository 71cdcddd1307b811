//! Identities: made by the engine from random bytes, never chosen by a caller.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Bytes of randomness in an id: enough that two never collide, short enough to read aloud.
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
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        $(#[$doc])*
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// Makes an id from random bytes that the caller draws.
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
    /// Names one sandbox forever. Everything made for it on the host can be found from its id alone.
    #[schema(example = "sbx-0123456789abc")]
    SandboxId,
    "sbx-"
);
id_type!(
    /// Names one command run in a sandbox.
    #[schema(example = "exc-0123456789abc")]
    ExecId,
    "exc-"
);
id_type!(
    /// Names one key. It is not secret; the secret contains it so that the key can be looked up.
    #[schema(example = "key-0123456789abc")]
    KeyId,
    "key-"
);
id_type!(
    /// Names one public key of SSH.
    #[schema(example = "ssh-0123456789abc")]
    SshKeyId,
    "ssh-"
);
id_type!(
    /// Names one share. It is not secret; the address of a share contains it, signed.
    #[schema(example = "shr-0123456789abc")]
    ShareId,
    "shr-"
);
id_type!(
    /// Names one package installation in a sandbox.
    #[schema(example = "pkg-0123456789abc")]
    PackageJobId,
    "pkg-"
);
id_type!(
    /// Names one snapshot on this host, and its directory.
    #[schema(example = "snp-0123456789abc")]
    SnapshotId,
    "snp-"
);

id_type!(
    /// Names one volume forever, even if it is renamed.
    VolumeId,
    "vol-"
);
id_type!(
    /// Names one request for more network than a sandbox's policy allows.
    #[schema(example = "ask-0123456789abc")]
    NetworkRequestId,
    "ask-"
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
