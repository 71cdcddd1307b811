//! Secrets that never enter a sandbox: inside there is a placeholder, and the edge puts the value in on the way out.

mod plan;
mod rules;

use std::{fmt, str::FromStr};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use zeroize::Zeroize as _;

pub(crate) use self::plan::{add_variables, check_uses, decide_secrets};
pub use self::{
    plan::{CA_BUNDLE, CA_VARIABLES, MAX_SECRETS, ResolvedSecret, SecretPlan, place as secret_place},
    rules::MAX_SECRET_HOSTS,
};
use crate::{Error, Result, network::DnsName};

/// Longest name of a secret.
pub const MAX_SECRET_NAME_BYTES: usize = 64;
/// Longest value: what fits in a header that servers accept.
pub const MAX_SECRET_BYTES: usize = 8 * 1024;

/// The name of a secret, which is also that of its variable inside, unless another is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "GITHUB_TOKEN")]
pub struct SecretName(String);

impl SecretName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let is_later = |c: char| is_first(c) || c.is_ascii_digit();
        let is_name = text.starts_with(is_first) && text.chars().all(is_later);
        if !is_name || text.len() > MAX_SECRET_NAME_BYTES {
            let shown: String = text.chars().take(80).collect();
            return Err(Error::invalid(format!("{shown:?} cannot be the name of a secret")).with_hint(
                format!("Use up to {MAX_SECRET_NAME_BYTES} letters, digits and '_', and no digit first."),
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for SecretName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> Self {
        name.0
    }
}

/// The hosts that may receive the value of a secret. The operator decides, never the caller who uses it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRules {
    /// Servers it is for: exact names, over TLS on port 443.
    pub hosts: Vec<DnsName>,
    /// Headers in which the placeholder is replaced, in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Also in the query of the address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub query: bool,
    /// Also in the body.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub body: bool,
    /// Methods, in upper case, of requests that get the value; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Beginnings of paths of requests that get the value, whole segments only; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Bytes that are shown nowhere, and are overwritten when they go.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretValue(String);

impl SecretValue {
    /// Accepts a value that can stand in a header: visible ASCII and blanks within, not empty.
    pub fn new(value: String) -> Result<Self> {
        let is_visible = |byte: u8| (0x20..0x7f).contains(&byte);
        if value.is_empty() || value.len() > MAX_SECRET_BYTES || !value.bytes().all(is_visible) {
            return Err(Error::invalid(format!(
                "the value of a secret must have 1 to {MAX_SECRET_BYTES} visible ASCII characters"
            ))
            .with_hint("Remove the trailing line break; it is not part of the value."));
        }
        Ok(Self(value))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Drop for SecretValue {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

/// One secret of one sandbox, as the edge holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSecret {
    pub name: SecretName,
    /// The stand-in that programs inside have for the value: random for each sandbox, only letters, digits, `_` and
    /// `-`.
    pub placeholder: String,
    pub value: SecretValue,
    pub rules: SecretRules,
}

/// The data that the edge needs to put secrets into one sandbox's requests. Never part of a record or of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSecrets {
    pub authority: Authority,
    pub secrets: Vec<HeldSecret>,
}

/// The certificate authority of one sandbox, limited to the hosts of its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// PEM; trusted inside.
    pub certificate: String,
    /// PEM; kept outside.
    pub key: SecretKey,
}

/// A private key in PEM, shown nowhere and overwritten when it goes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretKey(pub String);

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

/// A secret that a sandbox asks for. In JSON it may also be written as a string, `NAME` or `NAME=VARIABLE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretUse {
    pub name: SecretName,
    /// The variable inside that holds the placeholder; the secret's name when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<SecretName>,
}

/// A secret of a request: its name, or `NAME=VARIABLE`, or both as separate members.
#[derive(utoipa::ToSchema)]
#[schema(as = SecretUse)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what the visitor below reads")]
pub(crate) enum SecretUseForms {
    Text(String),
    Object(SecretUseObject),
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SecretUseObject {
    name: SecretName,
    /// The variable inside that holds the placeholder; the secret's name when absent.
    #[serde(default)]
    env: Option<SecretName>,
}

impl FromStr for SecretUse {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, env) = match text.split_once('=') {
            Some((name, env)) => (name, Some(env.parse()?)),
            None => (text, None),
        };
        Ok(Self { name: name.parse()?, env })
    }
}

impl<'de> Deserialize<'de> for SecretUse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Forms;

        impl<'de> Visitor<'de> for Forms {
            type Value = SecretUse;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a secret, or an object with its name")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SecretUse, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SecretUse, A::Error> {
                let SecretUseObject { name, env } =
                    SecretUseObject::deserialize(MapAccessDeserializer::new(map))?;
                Ok(SecretUse { name, env })
            }
        }

        deserializer.deserialize_any(Forms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_asked_for_by_a_string_or_an_object() {
        let read = |text: &str| serde_json::from_str::<SecretUse>(text).map_err(|error| error.to_string());
        let named = |name: &str, env: Option<&str>| SecretUse {
            name: name.parse().unwrap(),
            env: env.map(|env| env.parse().unwrap()),
        };
        assert_eq!(read(r#""TOKEN""#), Ok(named("TOKEN", None)));
        assert_eq!(read(r#""TOKEN=GH_TOKEN""#), Ok(named("TOKEN", Some("GH_TOKEN"))));
        assert_eq!(read(r#"{"name":"TOKEN","env":"T"}"#), Ok(named("TOKEN", Some("T"))));
        let text = serde_json::to_string(&named("TOKEN", Some("T"))).unwrap();
        assert_eq!(read(&text), Ok(named("TOKEN", Some("T"))));
        for bad in
            [r#""""#, r#""1A""#, r#""A=""#, r#""A-B""#, "1", "[]", r#"{"env":"T"}"#, r#"{"name":"A","x":1}"#]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read(&format!("{:?}", "A".repeat(65))).is_err());
    }

    #[test]
    fn nothing_prints_a_value() {
        let value = SecretValue::new("ghp_very".to_owned()).unwrap();
        assert!(!format!("{value:?}").contains("ghp"));
        assert!(!format!("{:?}", SecretKey("BEGIN".to_owned())).contains("BEGIN"));
        for bad in ["", "a\nb", "é", &"a".repeat(MAX_SECRET_BYTES + 1)] {
            let error = SecretValue::new(bad.to_owned()).unwrap_err();
            assert!(bad.is_empty() || !error.to_string().contains(bad));
        }
    }
}
