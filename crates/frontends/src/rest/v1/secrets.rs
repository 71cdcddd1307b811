//! Secrets on the wire: values come in and never go out.

pub use engine::SecretView as Secret;
use sandbox::{SecretRules, SecretValue};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use utoipa::ToSchema;

/// A secret to set: a new one, or another value for one that exists.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRequest {
    pub rules: SecretRules,
    /// Visible ASCII. No answer has it.
    #[schema(value_type = String, write_only)]
    #[serde(deserialize_with = "unquoted")]
    pub value: SecretValue,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretList {
    pub secrets: Vec<Secret>,
}

query!(RemoveSecretQuery {
    /// Also while sandboxes have it: running ones lose it at once, and stopped ones do not start without it.
    #[serde(default)]
    pub force: bool,
});

/// By way of any value: what refuses a value of another kind quotes it.
fn unquoted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretValue, D::Error> {
    match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => SecretValue::new(text).map_err(D::Error::custom),
        _ => Err(D::Error::custom("the value of a secret must be a string")),
    }
}
