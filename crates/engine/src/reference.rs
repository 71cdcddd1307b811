//! A caller's reference to a sandbox.

use std::{fmt, str::FromStr};

use sandbox::{Error, Namespace, Result, SandboxId, SandboxName};

/// Characters of an id behind its prefix.
const ID_CHARACTERS: usize = 13;

/// An id or its beginning, or a name in a namespace (by default the principal's own).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRef(pub(crate) Which);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    Id(SandboxId),
    /// The beginning of an id, for people: it counts if only one that the caller sees begins so.
    Begin(String),
    Name {
        name: SandboxName,
        namespace: Option<Namespace>,
    },
}

impl SandboxRef {
    pub fn new(text: &str, namespace: Option<Namespace>) -> Result<Self> {
        if let Some(rest) = text.strip_prefix(SandboxId::PREFIX) {
            // A malformed id cannot be a name: ids and names never overlap.
            if !rest.is_empty()
                && rest.len() < ID_CHARACTERS
                && rest.bytes().all(|b| b.is_ascii_alphanumeric())
            {
                return Ok(Self(Which::Begin(text.to_owned())));
            }
            return text.parse().map(|id| Self(Which::Id(id))).map_err(|_malformed| {
                Error::not_found(format!("no sandbox {:?}", shorten(text)))
                    .with_hint("An id is sbx- and 13 characters.")
            });
        }
        Ok(Self(Which::Name { name: text.parse()?, namespace }))
    }
}

impl FromStr for SandboxRef {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::new(text, None)
    }
}

impl From<SandboxId> for SandboxRef {
    fn from(id: SandboxId) -> Self {
        Self(Which::Id(id))
    }
}

impl From<&SandboxId> for SandboxRef {
    fn from(id: &SandboxId) -> Self {
        Self(Which::Id(id.clone()))
    }
}

impl fmt::Display for SandboxRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Which::Id(id) => id.fmt(f),
            Which::Begin(begin) => begin.fmt(f),
            Which::Name { name, .. } => name.fmt(f),
        }
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use sandbox::ErrorKind;

    use super::*;

    #[test]
    fn ids_names_and_neither() {
        assert!(matches!("sbx-0000000000000".parse::<SandboxRef>().unwrap().0, Which::Id(_)));
        assert!(matches!("sbx-00".parse::<SandboxRef>().unwrap().0, Which::Begin(_)));
        assert!(matches!("web-1".parse::<SandboxRef>().unwrap().0, Which::Name { .. }));
        for (text, kind) in [
            ("", ErrorKind::InvalidRequest),
            ("..", ErrorKind::InvalidRequest),
            ("a/b", ErrorKind::InvalidRequest),
            ("sbx-../../../x", ErrorKind::NotFound),
        ] {
            assert_eq!(text.parse::<SandboxRef>().unwrap_err().kind(), kind, "{text:?}");
        }
    }
}
