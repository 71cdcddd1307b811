//! A key that looks like one of microsandbox: `msb_` and a JSON Web Token (HS256).
//!
//! Its clients never look inside, and nor do we: like every key it is recognised by the hash of all of it. So it is
//! signed with a secret that nobody keeps, and what it claims grants nothing; expiry and namespace are in the record.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _, digest::Key};
use jiff::Timestamp;
use sandbox::{KeyId, KeyView, Result};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::names;

const PREFIX: &str = "msb_";
/// The claim of a key that has access to every namespace.
const EVERY_NAMESPACE: &str = "*";
const SECRET_BYTES: usize = 32;
/// Longest header that is decoded: ours has 80 characters.
const MAX_HEADER_CHARACTERS: usize = 256;

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    typ: String,
    /// The id of the key, by which its record is found.
    kid: KeyId,
}

#[derive(Serialize)]
struct Claims<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<i64>,
    iat: i64,
    namespace: &'a str,
}

/// The secret of a key.
pub(crate) fn make(key: &KeyView) -> Result<String> {
    let header = Header { alg: "HS256".to_owned(), typ: "JWT".to_owned(), kid: key.id.clone() };
    let claims = Claims {
        exp: key.expires_at.map(Timestamp::as_second),
        iat: key.created_at.as_second(),
        namespace: key.namespace.as_ref().map_or(EVERY_NAMESPACE, |namespace| namespace.as_str()),
    };
    let signed = format!("{}.{}", part(&header), part(&claims));
    let secret: [u8; SECRET_BYTES] = names::random_bytes()?;
    // A secret shorter than a block is padded with zeros, per the standard.
    let mut block = Key::<Hmac<Sha256>>::default();
    block[..SECRET_BYTES].copy_from_slice(&secret);
    let signature = Hmac::<Sha256>::new(&block).chain_update(signed.as_bytes()).finalize().into_bytes();
    Ok(format!("{PREFIX}{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

fn part(of: &impl Serialize) -> String {
    // Strings and numbers only: it cannot fail.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(of).unwrap_or_default())
}

/// The id that a secret contains. It proves nothing.
pub(crate) fn id_of(secret: &str) -> Option<KeyId> {
    let (header, _rest) = secret.strip_prefix(PREFIX)?.split_once('.')?;
    if header.len() > MAX_HEADER_CHARACTERS {
        return None;
    }
    let header = URL_SAFE_NO_PAD.decode(header).ok()?;
    serde_json::from_slice::<Header>(&header).ok().map(|header| header.kid)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key(namespace: Option<&str>, expires_at: Option<i64>) -> KeyView {
        KeyView {
            id: KeyId::from_random(names::random_bytes().unwrap()),
            label: None,
            namespace: namespace.map(|name| name.parse().unwrap()),
            created_at: Timestamp::from_second(1_000).unwrap(),
            expires_at: expires_at.map(|at| Timestamp::from_second(at).unwrap()),
            revoked_at: None,
            last_used_at: None,
            max_sandboxes: None,
            max_memory: None,
            read_only: false,
            network: None,
        }
    }

    fn decoded(part: &str) -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    }

    #[test]
    fn a_token_has_the_claims_of_its_key_and_leads_to_its_id() {
        let key = key(Some("blue"), Some(4_600));
        let token = make(&key).unwrap();
        let parts: Vec<_> = token.strip_prefix("msb_").unwrap().split('.').collect();
        assert_eq!(decoded(parts[0]), json!({ "alg": "HS256", "typ": "JWT", "kid": key.id }));
        assert_eq!(decoded(parts[1]), json!({ "exp": 4_600, "iat": 1_000, "namespace": "blue" }));
        assert_eq!((parts.len(), parts[2].len()), (3, 43));
        assert_eq!(id_of(&token), Some(key.id.clone()));
        assert_ne!(make(&key).unwrap(), token);
    }

    #[test]
    fn a_key_without_bounds_claims_so() {
        let token = make(&key(None, None)).unwrap();
        assert_eq!(decoded(token.split('.').nth(1).unwrap()), json!({ "iat": 1_000, "namespace": "*" }));
    }

    #[test]
    fn what_is_no_token_leads_nowhere() {
        let long = format!("msb_{}.x.y", "e".repeat(100_000));
        for text in ["", "msb_", "msb_.", "msb_e30.e30.x", "msb_é.x.y", "eyJ.x.y", &long] {
            assert_eq!(id_of(text), None, "{text:.20}");
        }
    }
}
