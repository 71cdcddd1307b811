//! How a registry is asked, as callers say it.

use std::fmt;

use engine::{Credentials, PullOptions, Reference};
use sandbox::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use utoipa::ToSchema;

/// Longest password, which may be a token.
const MAX_PASSWORD_BYTES: usize = 16 * 1024;

/// Never shown, neither in a log nor in an error.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, ToSchema)]
#[serde(transparent)]
#[schemars(inline, extend("format" = "password"))]
#[schema(value_type = String, format = Password)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

impl<'de> Deserialize<'de> for Password {
    /// By way of any value: what refuses a value of another kind quotes it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) if text.len() <= MAX_PASSWORD_BYTES => Ok(Self(text)),
            serde_json::Value::String(_) => Err(de::Error::custom("the password is too long")),
            _ => Err(de::Error::custom("the password must be a string")),
        }
    }
}

/// The platform, the credentials and the options with which a registry is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Registry {
    pub(crate) platform: Option<String>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Password>,
    pub(crate) insecure: bool,
}

impl Registry {
    pub(crate) fn options(self) -> Result<PullOptions> {
        let credentials = match (self.username, self.password) {
            (Some(username), Some(Password(password))) => Some(Credentials { username, password }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(Error::invalid("the user name has no password")
                    .with_hint("Give both, or neither to use the daemon's own credentials."));
            }
            (None, Some(_)) => {
                return Err(Error::invalid("the password has no user name")
                    .with_hint("Give both, or neither to use the daemon's own credentials."));
            }
        };
        let platform = match self.platform {
            Some(text) => Some(text.parse().map_err(|error: engine::ImageError| {
                Error::invalid(error.to_string()).with_hint("Write a platform as linux/amd64.")
            })?),
            None => None,
        };
        Ok(PullOptions { platform, credentials, insecure: self.insecure, ..PullOptions::default() })
    }
}

/// Reads a reference to an image.
pub(crate) fn reference(text: &str) -> Result<Reference> {
    text.parse().map_err(|error: engine::ImageError| {
        Error::invalid(error.to_string())
            .with_hint("Write an image as alpine or registry.example/team/app:1.2.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let password: Password = serde_json::from_str("\"hunter2\"").unwrap();
        let asked = Registry { password: Some(password), ..Registry::default() };
        assert!(!format!("{asked:?}").contains("hunter2"));
        assert!(!asked.options().unwrap_err().to_string().contains("hunter2"));
        let error = serde_json::from_str::<Password>("4711").unwrap_err();
        assert!(!error.to_string().contains("4711"), "{error}");
    }

    #[test]
    fn names_and_passwords_come_in_pairs() {
        let alone = Registry { username: Some("ana".to_owned()), ..Registry::default() };
        assert!(alone.options().is_err());
        let both = Registry {
            username: Some("ana".to_owned()),
            password: Some(Password("pw".to_owned())),
            platform: Some("linux/arm64".to_owned()),
            insecure: true,
        };
        let options = both.options().unwrap();
        assert_eq!((options.platform.unwrap().architecture.as_str(), options.insecure), ("arm64", true));
        assert_eq!(options.credentials.unwrap().password, "pw");
    }
}
