//! The secret of a key: `wrn_`, the 13 characters of its id, `_`, and 256 random bits; or a token (see [`token`]).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sandbox::{KeyFormat, KeyId, KeyView, Result};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{names, token};

const PREFIX: &str = "wrn_";
const ID_CHARACTERS: usize = 13;

/// SHA-256 of a secret.
pub(crate) type Hash = [u8; 32];

/// Makes the secret of a key.
pub(crate) fn make(key: &KeyView, format: KeyFormat) -> Result<String> {
    match format {
        KeyFormat::Warren => own(&key.id),
        KeyFormat::Msb => token::make(key),
    }
}

fn own(id: &KeyId) -> Result<String> {
    let random: [u8; 32] = names::random_bytes()?;
    let id_part = id.as_str().strip_prefix(KeyId::PREFIX).unwrap_or_default();
    Ok(format!("{PREFIX}{id_part}_{}", URL_SAFE_NO_PAD.encode(random)))
}

/// The id that a secret contains. It proves nothing.
pub(crate) fn id_of(secret: &str) -> Option<KeyId> {
    let Some(own) = secret.strip_prefix(PREFIX) else { return token::id_of(secret) };
    let id_part = own.get(..ID_CHARACTERS)?;
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
        let id = KeyId::from_random(names::random_bytes().unwrap());
        let secret = own(&id).unwrap();
        assert_eq!(secret.len(), PREFIX.len() + ID_CHARACTERS + 1 + 43);
        assert_eq!(id_of(&secret).as_ref(), Some(&id));
        assert!(matches(&secret, Some(&hash(&secret))));
        assert_ne!(own(&id).unwrap(), secret);
    }

    #[test]
    fn what_is_no_secret_leads_nowhere() {
        for text in ["", "wrn_", "wrn_é23456789abcd_x", "wrn_0123456789", "key-0000000000000", "Bearer x"] {
            assert_eq!(id_of(text), None, "{text:?}");
        }
        assert!(!matches("", None) && !matches("", Some(&[0; 32])));
        let secret = own(&KeyId::from_random(names::random_bytes().unwrap())).unwrap();
        assert!(!matches(&secret[..60], Some(&hash(&secret))), "all of it counts");
    }
}
