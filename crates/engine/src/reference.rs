//! A caller's reference to a sandbox.

use std::{fmt, str::FromStr};

use sandbox::{Error, Namespace, Result, SandboxId, SandboxName};

/// Characters of an id behind its prefix.
const ID_CHARACTERS: usize = 13;

/// An id, or a name in a namespace (by default the principal's own).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRef(pub(crate) Which);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    Id(SandboxId),
    /// The beginning of an id.
    Begin(String),
    Name {
        name: SandboxName,
        namespace: Option<Namespace>,
    },
}

impl SandboxRef {
    /// The same for people who type it: the beginning of an id counts, if only one that they see begins so.
    pub fn typed(text: &str, namespace: Option<Namespace>) -> Result<Self> {
        let is_begin = text.strip_prefix(SandboxId::PREFIX).is_some_and(|rest| {
            (1..ID_CHARACTERS).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_alphanumeric())
        });
        if is_begin { Ok(Self(Which::Begin(text.to_owned()))) } else { Self::new(text, namespace) }
    }

    pub fn new(text: &str, namespace: Option<Namespace>) -> Result<Self> {
        if text.starts_with(SandboxId::PREFIX) {
            // A malformed id cannot be a name: ids and names never overlap.
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
        assert!(matches!(SandboxRef::typed("sbx-00", None).unwrap().0, Which::Begin(_)));
        assert!(matches!(SandboxRef::typed("sbx-0000000000000", None).unwrap().0, Which::Id(_)));
        assert!(SandboxRef::typed("sbx-", None).is_err() && "sbx-00".parse::<SandboxRef>().is_err());
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
