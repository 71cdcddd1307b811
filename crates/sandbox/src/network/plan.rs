//! From the network that was asked for to the one that was decided.

use super::{
    policy::{DnsPlan, NetworkLimits, NetworkPlan, Policy},
    rule::{Rule, RuleAction},
    spec::NetworkSpec,
};
use crate::{Error, Namespace, Result};

/// Most rules of one policy.
pub const MAX_RULES: usize = 512;

/// Decides the network. A rule that can never match is refused with its place and the reason.
pub fn plan_network(spec: &NetworkSpec, ceilings: &[Policy]) -> Result<NetworkPlan> {
    Ok(NetworkPlan {
        own: Policy::from_spec(spec)?,
        ceilings: ceilings.to_vec(),
        dns: DnsPlan::default(),
        limits: NetworkLimits::default(),
        namespace: Namespace::default(),
    })
}

impl Policy {
    /// The policy of a request or of an operator's configuration: `deny` first, then `rules`, then `allow`.
    pub fn from_spec(spec: &NetworkSpec) -> Result<Self> {
        let deny = spec.deny.iter().map(|text| (RuleAction::Deny, text));
        let rules = spec.rules.iter().map(|rule| (rule.action, &rule.target));
        let allow = spec.allow.iter().map(|text| (RuleAction::Allow, text));
        let parsed = deny
            .chain(rules)
            .chain(allow)
            .map(|(action, text)| text.parse::<Rule>().map(|rule| Rule { action, ..rule }));
        Ok(Self { preset: spec.preset.unwrap_or_default(), rules: parsed.collect::<Result<_, Error>>()? })
    }
}
