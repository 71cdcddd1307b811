//! How a caller points at a snapshot.

use std::{fmt, str::FromStr};

use sandbox::{Error, Namespace, Next, Result, SnapshotId, SnapshotName, Thing, is_hex};

/// Fewest digits of a digest that name a snapshot.
const MIN_DIGITS: usize = 6;
const DIGEST_PREFIX: &str = "sha256:";

/// A name, a digest or the beginning of one, or an id; in a namespace (the principal's own when not said).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRef {
    pub(crate) which: Which,
    pub(crate) namespace: Option<Namespace>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    Id(SnapshotId),
    /// Digits of a digest.
    Digest(String),
    /// The digits, too, where it could be the beginning of a digest.
    Name(SnapshotName, Option<String>),
}

impl SnapshotRef {
    pub fn new(text: &str, namespace: Option<Namespace>) -> Result<Self> {
        let shown: String = text.chars().take(80).collect();
        let which = if text.starts_with(SnapshotId::PREFIX) {
            let none = |_malformed| {
                Error::not_found(format!("no snapshot {shown:?}")).with_next(Next::List(Thing::Snapshot))
            };
            Which::Id(text.parse().map_err(none)?)
        } else if let Some(hex) = text.strip_prefix(DIGEST_PREFIX) {
            if !is_hex(hex) || !(MIN_DIGITS..=64).contains(&hex.len()) {
                return Err(Error::invalid(format!("{shown:?} is not a snapshot digest"))
                    .with_hint("Give sha256: and at least 6 of its 64 digits."));
            }
            Which::Digest(hex.to_owned())
        } else if text.len() == 64 && is_hex(text) {
            Which::Digest(text.to_owned())
        } else {
            let is_digits = text.len() >= MIN_DIGITS && is_hex(text);
            Which::Name(text.parse()?, is_digits.then(|| text.to_owned()))
        };
        Ok(Self { which, namespace, text: shown })
    }

    #[must_use]
    pub fn in_namespace(mut self, namespace: &Namespace) -> Self {
        self.namespace = Some(namespace.clone());
        self
    }
}

impl FromStr for SnapshotRef {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::new(text, None)
    }
}

impl From<&SnapshotId> for SnapshotRef {
    fn from(id: &SnapshotId) -> Self {
        Self { which: Which::Id(id.clone()), namespace: None, text: id.to_string() }
    }
}

impl fmt::Display for SnapshotRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_digests_ids_and_neither() {
        let which = |text: &str| text.parse::<SnapshotRef>().unwrap().which;
        assert!(matches!(which("snp-0000000000000"), Which::Id(_)));
        assert!(matches!(which("sha256:0123ab"), Which::Digest(hex) if hex == "0123ab"));
        assert!(matches!(which(&"a".repeat(64)), Which::Digest(_)));
        assert!(matches!(which("deadbeef"), Which::Name(_, Some(hex)) if hex == "deadbeef"));
        assert!(matches!(which("base-1"), Which::Name(_, None)));
        for text in ["", "..", "a/b", "/etc", "sha256:", "sha256:XYZ", "snp-../../x", &"x".repeat(70)] {
            assert!(text.parse::<SnapshotRef>().is_err(), "{text:?}");
        }
    }
}
