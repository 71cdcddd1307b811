//! The format of a key: `wrn_`, the 13 characters of its id, `_`, and 256 random bits.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sandbox::{KeyId, Result};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::names;

const PREFIX: &str = "wrn_";
const ID_CHARACTERS: usize = 13;

/// SHA-256 of a secret.
pub(crate) type Hash = [u8; 32];

/// Makes a key's id and its secret.
pub(crate) fn make() -> Result<(KeyId, String)> {
    let id = KeyId::from_random(names::random_bytes()?);
    let random: [u8; 32] = names::random_bytes()?;
    let id_part = id.as_str().strip_prefix(KeyId::PREFIX).unwrap_or_default();
    let secret = format!("{PREFIX}{id_part}_{}", URL_SAFE_NO_PAD.encode(random));
    Ok((id, secret))
}

/// The id that a secret contains. It proves nothing.
pub(crate) fn id_of(secret: &str) -> Option<KeyId> {
    let id_part = secret.strip_prefix(PREFIX)?.get(..ID_CHARACTERS)?;
    format!("{}{id_part}", KeyId::PREFIX).parse().ok()
}

pub(crate) fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// Whether the secret has this hash. Takes the same time for every secret of the same length, even if there is no such
/// key.
pub(crate) fn matches(secret: &str, expected: Option<&Hash>) -> bool {
    let nobody = [0; 32];
    let is_equal = hash(secret).ct_eq(expected.unwrap_or(&nobody));
    bool::from(is_equal) && expected.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_leads_to_its_id_and_no_two_are_alike() {
        let (id, secret) = make().unwrap();
        assert_eq!(secret.len(), PREFIX.len() + ID_CHARACTERS + 1 + 43);
        assert_eq!(id_of(&secret), Some(id));
        assert!(matches(&secret, Some(&hash(&secret))));
        assert_ne!(make().unwrap().1[18..], secret[18..]);
    }

    #[test]
    fn what_is_no_secret_leads_nowhere() {
        for text in ["", "wrn_", "wrn_é23456789abcd_x", "wrn_0123456789", "key-0000000000000", "Bearer x"] {
            assert_eq!(id_of(text), None, "{text:?}");
        }
        assert!(!matches("", None) && !matches("", Some(&[0; 32])));
        let (_, secret) = make().unwrap();
        assert!(!matches(&secret[..60], Some(&hash(&secret))), "all of it counts");
    }
}
