//! Keys: they admit callers who do not use the daemon's own socket, and set what those may do.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ByteSize, Error, KeyId, KeyLabel, Namespace, Policy, Result, network::MAX_RULES};

/// The shortest life of a key; anything shorter is a mistake.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);
/// The highest memory limit of a key: more than any host has, and it fits every database.
const MAX_MEMORY: ByteSize = ByteSize(i64::MAX as u64);

/// The form of a key's secret. All forms have the same rights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyFormat {
    /// `wrn_…`
    #[default]
    Warren,
    /// `msb_` and a JWT, for clients of microsandbox.
    Msb,
}

/// The request for a new key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySpec {
    pub label: Option<String>,
    /// None means every namespace.
    pub namespace: Option<Namespace>,
    pub expires_in: Option<Duration>,
    /// Sandboxes that it may have at the same time, including stopped ones.
    pub max_sandboxes: Option<u32>,
    /// Memory limits of all its sandboxes together.
    pub max_memory: Option<ByteSize>,
    /// The key may read but not change anything.
    pub read_only: bool,
    /// The most that sandboxes of its callers may reach, beside the operator's own ceiling.
    pub network: Option<Policy>,
    pub format: KeyFormat,
}

impl KeySpec {
    /// Refuses an impossible key; returns its label, which can be used in place of its id.
    pub fn check(&self) -> Result<Option<KeyLabel>> {
        if let Some(span) = self.expires_in.filter(|span| *span < SHORTEST_LIFE) {
            return Err(Error::invalid(format!("a key that expires in {span:?} could not be used"))
                .with_hint("Leave the expiry out for a key without one, or give it at least a second."));
        }
        if let Some(memory) = self.max_memory.filter(|memory| *memory > MAX_MEMORY) {
            return Err(Error::invalid(format!("{memory} of memory are more than the most, {MAX_MEMORY}"))
                .with_hint("Leave the memory out for a key without a bound."));
        }
        if let Some(n_rules) = self.network.as_ref().map(|network| network.rules.len())
            && n_rules > MAX_RULES
        {
            return Err(Error::invalid(format!(
                "network: there are {n_rules} rules; the limit is {MAX_RULES}"
            ))
            .with_hint("Use wildcards and ranges in place of many rules."));
        }
        Ok(self.label.as_deref().map(str::parse).transpose()?)
    }
}

/// Everything about a key that may be shown. The secret is not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Key)]
pub struct KeyView {
    pub id: KeyId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<KeyLabel>,
    /// Absent means every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// To the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sandboxes: Option<u32>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<ByteSize>,
    pub read_only: bool,
    /// The most that sandboxes of its callers may reach, beside the operator's own ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Policy>,
}

impl KeyView {
    /// The name that messages and the audit log use.
    pub fn name(&self) -> &str {
        self.label.as_ref().map_or(self.id.as_str(), KeyLabel::as_str)
    }

    /// When it stopped being valid; none while it is.
    pub fn ended_at(&self, now: Timestamp) -> Option<Timestamp> {
        let expired_at = self.expires_at.filter(|at| *at <= now);
        self.revoked_at.into_iter().chain(expired_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_could_never_be_used_is_refused() {
        let with_label =
            |label: &str| KeySpec { label: Some(label.to_owned()), ..KeySpec::default() }.check();
        assert_eq!(with_label("ci").unwrap().unwrap().as_str(), "ci");
        assert!(with_label("").is_err() && with_label("a b").is_err());
        // If a label could be mistaken for an id, the wrong key could be revoked.
        assert!(with_label("key-0000000000000").is_err());
        let expires_in = Some(Duration::ZERO);
        assert!(KeySpec { expires_in, ..KeySpec::default() }.check().is_err());
        let max_memory = Some(ByteSize(u64::MAX));
        assert!(KeySpec { max_memory, ..KeySpec::default() }.check().is_err());
        let rules = vec!["a.example".parse().unwrap(); MAX_RULES + 1];
        let network = Some(Policy { rules, ..Policy::default() });
        assert!(KeySpec { network, ..KeySpec::default() }.check().is_err());
        assert!(KeySpec::default().check().unwrap().is_none());
    }
}
