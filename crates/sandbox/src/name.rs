//! Names that callers choose. Every name may end up in a path, so every name is checked here, once.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{KeyId, Language, SandboxId, SnapshotId, Thing};

const MAX_LABEL_KEY_BYTES: usize = 128;
const MAX_LABEL_VALUE_BYTES: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    Sandbox,
    Namespace,
    RequestId,
    KeyLabel,
    Volume,
    Snapshot,
    Context,
    LabelKey,
    LabelValue,
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandbox => "sandbox name",
            Self::Namespace => "namespace",
            Self::RequestId => "request id",
            Self::KeyLabel => "key label",
            Self::Volume => "volume name",
            Self::Snapshot => "snapshot name",
            Self::Context => "context name",
            Self::LabelKey => "label key",
            Self::LabelValue => "label value",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error("a {what} must not be empty")]
    Empty { what: NameKind },
    #[error("a {what} has at most {limit} bytes, but this one has {len}")]
    TooLong { what: NameKind, len: usize, limit: usize },
    #[error(
        "{name:?} is not a {what}: letters, digits, '-', '_' and '.' only, starting with a letter or digit"
    )]
    Characters { what: NameKind, name: String },
    #[error("{name:?} is not a {what}: names that start with {prefix:?} are reserved for ids")]
    Reserved { what: NameKind, name: String, prefix: &'static str },
}

impl InvalidName {
    /// The thing that names of this kind belong to, if errors are about such things.
    pub(crate) fn thing(&self) -> Option<Thing> {
        let (Self::Empty { what }
        | Self::TooLong { what, .. }
        | Self::Characters { what, .. }
        | Self::Reserved { what, .. }) = self;
        match what {
            NameKind::Sandbox => Some(Thing::Sandbox),
            NameKind::Volume => Some(Thing::Volume),
            NameKind::Snapshot => Some(Thing::Snapshot),
            NameKind::Context => Some(Thing::Context),
            NameKind::KeyLabel => Some(Thing::Key),
            NameKind::Namespace | NameKind::RequestId | NameKind::LabelKey | NameKind::LabelValue => None,
        }
    }
}

fn check(what: NameKind, text: &str, limit: usize) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName::Empty { what });
    }
    if text.len() > limit {
        return Err(InvalidName::TooLong { what, len: text.len(), limit });
    }
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !begins_well || !is_plain {
        return Err(InvalidName::Characters { what, name: text.to_owned() });
    }
    Ok(())
}

/// A name and the most bytes that it has. 63 is a DNS label, so that a name can become a host name.
macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:expr, $limit:tt, |$text:ident| $extra:expr) => {
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        $(#[$doc])*
        #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", min_length = 1, max_length = $limit)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
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
            type Err = InvalidName;

            fn from_str($text: &str) -> Result<Self, Self::Err> {
                check($what, $text, $limit)?;
                $extra?;
                Ok(Self($text.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

name_type!(
    /// The name of a sandbox; unique in its namespace while the sandbox exists.
    SandboxName, NameKind::Sandbox, 63, |text| not_prefixed(NameKind::Sandbox, text, SandboxId::PREFIX)
);
name_type!(
    /// A scope of names: a key sees the sandboxes of its namespace and no others.
    Namespace, NameKind::Namespace, 63, |text| Ok::<(), InvalidName>(())
);
name_type!(
    /// Chosen by a caller so that a request sent twice has one effect. There is room for a UUID with a prefix.
    RequestId, NameKind::RequestId, 128, |text| Ok::<(), InvalidName>(())
);

name_type!(
    /// The label of a key; unique among the keys that are not revoked.
    KeyLabel, NameKind::KeyLabel, 63, |text| not_prefixed(NameKind::KeyLabel, text, KeyId::PREFIX)
);

name_type!(
    /// The name of a volume; unique in its namespace.
    VolumeName, NameKind::Volume, 63, |text| Ok::<(), InvalidName>(())
);

name_type!(
    /// The name of a snapshot; unique in its namespace.
    SnapshotName, NameKind::Snapshot, 63, |text| not_prefixed(NameKind::Snapshot, text, SnapshotId::PREFIX)
);

name_type!(
    /// The context that holds one interpreter's variables; unique in its sandbox.
    ContextName, NameKind::Context, 63, |text| Ok::<(), InvalidName>(())
);

impl ContextName {
    /// A language's default context.
    pub fn of(language: Language) -> Self {
        Self(language.interpreter().as_str().to_owned())
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

/// A name must never be mistaken for an id, or `rm sbx-…` could remove the wrong sandbox.
fn not_prefixed(what: NameKind, text: &str, prefix: &'static str) -> Result<(), InvalidName> {
    if text.starts_with(prefix) {
        return Err(InvalidName::Reserved { what, name: text.to_owned(), prefix });
    }
    Ok(())
}

/// A caller's own `key=value` on a sandbox; filters select by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub key: String,
    pub value: String,
}

impl Label {
    pub fn new(key: &str, value: &str) -> Result<Self, InvalidName> {
        check(NameKind::LabelKey, &key.replace('/', "."), MAX_LABEL_KEY_BYTES)?;
        let (what, limit) = (NameKind::LabelValue, MAX_LABEL_VALUE_BYTES);
        if value.len() > limit {
            return Err(InvalidName::TooLong { what, len: value.len(), limit });
        }
        if value.contains(char::is_control) {
            return Err(InvalidName::Characters { what, name: value.escape_debug().to_string() });
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

impl FromStr for Label {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        Self::new(key, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_names() {
        for name in ["a", "web-1", "Py_3.11", "0", &"x".repeat(63)] {
            assert!(name.parse::<SandboxName>().is_ok(), "{name:?}");
        }
    }

    #[test]
    fn paths_and_oddities_are_not_names() {
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "/etc",
            "-rf",
            ".hidden",
            "a b",
            "naïve",
            "名前",
            "a\0b",
            "a\n",
            "sbx-1",
            &"x".repeat(64),
            &"x".repeat(10_000),
        ] {
            assert!(name.parse::<SandboxName>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn labels_take_a_slash_in_the_key_and_any_text_as_value() {
        assert_eq!("team/owner=Ana B.".parse::<Label>().map(|l| l.value), Ok("Ana B.".to_owned()));
        assert!("=x".parse::<Label>().is_err());
        assert!(Label::new("k", "a\nb").is_err());
    }
}
