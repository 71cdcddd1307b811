//! The reach of a sandbox on the network: viewing it, changing it while the sandbox runs, and seeing what came of it.
//!
//! The policy is a part of the record. The driver writes a changed one there before the back end holds it, so a daemon
//! that dies in between comes back with the new policy, never with a wider one than recorded.

mod denials;
mod log;
mod requests;
mod watch;

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use sandbox::{
    Capability, Error, Isolation, NetworkHold, NetworkHosts, NetworkRequest, NetworkSpec, Policy, Preset,
    Result,
    network::{Rule, RuleAction, RuleSpec},
    plan_network,
};
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    denials::CaughtUp,
    log::NetworkLog,
    requests::{drop_ended, in_words, no_such_request},
    watch::watch,
};
pub use self::{
    denials::{NetworkDenial, NetworkDenials, NetworkReach},
    log::NetworkLogEntry,
    requests::NetworkRequestView,
};
use crate::{
    Engine, Principal, SandboxRef, core::Core, driver::Command, error, lifecycle::ask, shared::Shared,
};

/// The network of a sandbox, for callers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkView {
    /// As it was asked for, with the changes since.
    pub policy: NetworkSpec,
    /// The operator's ceilings, one line each. No caller can lift them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ceilings: Vec<String>,
    /// Requests beyond the policy, oldest first. Grants apply beside the policy until they expire.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<NetworkRequest>,
    /// The means that enforce it: `none`, `packages`, `edge (tproxy)`, `edge (named ports)`. Absent while the sandbox
    /// does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// The change allows more than the running sandbox was built for: it holds from the next start on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", rename = "pending")]
    pub is_pending: bool,
}

/// A change of a sandbox's network policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkChange {
    Replace(NetworkSpec),
    Patch(NetworkPatch),
}

/// Rules to add and to remove. New rules come before those that are there, so the latest word counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPatch {
    /// The hosts reached without a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Rules in their order. They come before the ordered rules that are there; of two for the same traffic the first
    /// stays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleSpec>,
    /// Rules that go, whether they allow or deny.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

impl NetworkChange {
    pub(crate) fn apply(&self, before: &NetworkSpec) -> Result<NetworkSpec> {
        match self {
            Self::Replace(spec) => Ok(spec.clone()),
            Self::Patch(patch) => patch.apply(before),
        }
    }
}

impl NetworkPatch {
    fn apply(&self, before: &NetworkSpec) -> Result<NetworkSpec> {
        let mut after = before.clone();
        after.preset = self.preset.or(after.preset);
        for text in &self.remove {
            remove(&mut after, text)?;
        }
        for rule in self.rules.iter().rev() {
            forget(&mut after, &parse(&rule.target)?);
            after.rules.insert(0, rule.clone());
        }
        for (texts, action) in [(&self.allow, RuleAction::Allow), (&self.deny, RuleAction::Deny)] {
            for text in texts {
                let rule = parse(text)?;
                // One that is there with the other action would be a contradiction.
                forget(&mut after, &rule);
                match action {
                    RuleAction::Allow => after.allow.insert(0, text.clone()),
                    RuleAction::Deny => after.deny.insert(0, text.clone()),
                }
            }
        }
        Ok(after)
    }
}

fn parse(text: &str) -> Result<Rule> {
    text.parse()
}

/// Whether a rule as somebody wrote it means the same traffic.
fn is_same(text: &str, rule: &Rule) -> bool {
    let allow = |rule: Rule| Rule { action: RuleAction::Allow, ..rule };
    text.parse::<Rule>().is_ok_and(|other| allow(other) == allow(rule.clone()))
}

/// Removes a rule, whether it allows or denies. Whether it was there.
fn forget(spec: &mut NetworkSpec, rule: &Rule) -> bool {
    let count = |spec: &NetworkSpec| spec.allow.len() + spec.deny.len() + spec.rules.len();
    let before = count(spec);
    spec.allow.retain(|other| !is_same(other, rule));
    spec.deny.retain(|other| !is_same(other, rule));
    spec.rules.retain(|other| !is_same(&other.target, rule));
    count(spec) < before
}

fn remove(from: &mut NetworkSpec, text: &str) -> Result<()> {
    if !forget(from, &parse(text)?) {
        return Err(Error::not_found(format!("the policy has no rule {text:?}"))
            .with_hint("Look at the policy first; a rule is removed as it is written there."));
    }
    Ok(())
}

impl Engine {
    #[crate::boxed]
    pub async fn network(&self, who: &Principal, which: &SandboxRef) -> Result<NetworkView> {
        Ok(self.core().find_to_look(who, which).await?.network_view())
    }

    /// Changes what a sandbox reaches, at once. Open connections that are no longer allowed end.
    #[crate::boxed]
    pub async fn change_network(
        &self,
        who: &Principal,
        which: &SandboxRef,
        change: NetworkChange,
    ) -> Result<NetworkView> {
        let shared = self.core().find_to_change(who, which).await?;
        let ceilings = ceilings(self.core(), who);
        let change = Box::new(change);
        ask(&shared, |reply| Command::ChangeNetwork { change, ceilings, reply }).await?;
        Ok(shared.network_view())
    }

    /// Closes listeners of the daemon to all sandboxes, whatever their policies say.
    pub fn close_to_sandboxes(&self, listeners: Vec<std::net::SocketAddr>) {
        self.core().own_listeners.send_replace(listeners);
    }

    /// Returns the sandbox's reach, and the traffic that was denied after `since`.
    #[crate::boxed]
    pub async fn network_denials(
        &self,
        who: &Principal,
        which: &SandboxRef,
        since: Timestamp,
    ) -> Result<NetworkDenials> {
        let core = self.core();
        let shared = core.find_to_look(who, which).await?;
        Ok(NetworkDenials::since(core, who, &shared, since).await)
    }

    /// Returns the traffic to each host since the start of the sandbox, or of the edge that serves it.
    #[crate::boxed]
    pub async fn network_hosts(&self, who: &Principal, which: &SandboxRef) -> Result<NetworkHosts> {
        let shared = self.core().find_to_look(who, which).await?;
        let life = shared.status.borrow().life.clone();
        let Some(life) = life else { return Ok(NetworkHosts::default()) };
        life.instance.network_hosts().await.map_err(|error| error::from_backend(error, &shared.label()))
    }

    /// Returns the decisions about the sandbox's traffic, oldest first: from entry number `from` on, or the last
    /// `limit`.
    #[crate::boxed]
    pub async fn network_log(
        &self,
        who: &Principal,
        which: &SandboxRef,
        from: Option<u64>,
        limit: usize,
    ) -> Result<Vec<NetworkLogEntry>> {
        let shared = self.core().find_to_look(who, which).await?;
        // What happened before the question is in the answer.
        self.core().caught_up.wait(self.core()).await;
        Ok(shared.network.read(from, limit))
    }
}

impl Shared {
    fn network_view(&self) -> NetworkView {
        let status = self.status.borrow();
        let record = &status.record;
        let has_edge = record.isolation.as_ref().is_some_and(Isolation::has_edge);
        NetworkView {
            policy: record.spec.network.clone(),
            ceilings: record.plan.network.ceilings.iter().map(ToString::to_string).collect(),
            requests: record.network_requests.clone(),
            held_by: record.isolation.as_ref().map(|isolation| held_now(isolation, &record.plan.network)),
            is_pending: status.life.as_ref().is_some_and(|life| {
                life.network_waits.load(Ordering::Relaxed) || record.plan.network.needs_edge() && !has_edge
            }),
        }
    }
}

/// The means that enforce the policy as it is now: the gateway of packages opens and closes while a sandbox runs.
fn held_now(isolation: &Isolation, plan: &sandbox::NetworkPlan) -> String {
    let hold = match isolation.network {
        // A network waits for the next start.
        hold if plan.needs_edge() => hold,
        NetworkHold::Loopback | NetworkHold::Packages if plan.reaches_packages() => NetworkHold::Packages,
        NetworkHold::Loopback | NetworkHold::Packages => NetworkHold::Loopback,
        hold => hold,
    };
    hold.to_string()
}

/// The most that this caller's sandboxes may reach: what the operator set for all, and for the caller's key. They are
/// recorded with the sandbox, so it stays within them when the key ends.
pub(crate) fn ceilings(core: &Core, who: &Principal) -> Vec<Policy> {
    if who.is_owner {
        return Vec::new();
    }
    let of_key = who.network.as_deref().cloned();
    std::iter::once(core.config.network_ceiling.clone()).chain(of_key).collect()
}

/// The policy and the plan after a change, for the back end that the sandbox is on.
pub(crate) fn decide(
    core: &Core,
    record: &store::SandboxRecord,
    change: &NetworkChange,
    ceilings: &[Policy],
) -> Result<(NetworkSpec, sandbox::NetworkPlan)> {
    let spec = change.apply(&record.spec.network)?;
    let plan = plan_network(&spec, ceilings)?;
    let (namespace, grants) = (record.namespace.clone(), record.plan.network.grants.clone());
    let plan = sandbox::NetworkPlan { namespace, grants, ..plan };
    if plan.needs_edge() {
        core.backends.check(&record.plan, Capability::Network)?;
    }
    Ok((spec, plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(of: &[&str]) -> Vec<String> {
        of.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn the_latest_word_about_a_rule_counts() {
        let before = NetworkSpec {
            allow: texts(&["a.example", "b.example:443"]),
            deny: texts(&["c.example"]),
            ..NetworkSpec::default()
        };
        let patch = NetworkPatch {
            preset: Some(Preset::Public),
            allow: texts(&["C.example"]),
            deny: texts(&["a.example"]),
            remove: texts(&["b.example:443"]),
            ..NetworkPatch::default()
        };
        let after = NetworkChange::Patch(patch).apply(&before).unwrap();
        assert_eq!((after.allow, after.deny), (texts(&["C.example"]), texts(&["a.example"])));
        assert_eq!(after.preset, Some(Preset::Public));
    }

    #[test]
    fn ordered_rules_come_before_those_that_are_there() {
        let rule = |action, target: &str| RuleSpec { action, target: target.to_owned() };
        let (allow, deny) = (RuleAction::Allow, RuleAction::Deny);
        let before = NetworkSpec {
            deny: texts(&["a.example"]),
            rules: vec![rule(deny, "*.example"), rule(allow, "b.test")],
            ..NetworkSpec::default()
        };
        let rules = vec![
            rule(allow, "c.example"),
            rule(allow, "a.example"),
            rule(deny, "B.test"),
            rule(deny, "c.example"),
        ];
        let after =
            NetworkChange::Patch(NetworkPatch { rules, ..NetworkPatch::default() }).apply(&before).unwrap();
        assert_eq!(after.deny, texts(&[]));
        let expected = [
            rule(allow, "c.example"),
            rule(allow, "a.example"),
            rule(deny, "B.test"),
            rule(deny, "*.example"),
        ];
        assert_eq!(after.rules, expected);
    }

    #[test]
    fn a_rule_that_is_not_there_cannot_be_removed() {
        let patch = NetworkPatch { remove: texts(&["a.example"]), ..NetworkPatch::default() };
        let refused = NetworkChange::Patch(patch).apply(&NetworkSpec::default()).unwrap_err();
        assert_eq!(refused.kind(), sandbox::ErrorKind::NotFound);
    }
}
