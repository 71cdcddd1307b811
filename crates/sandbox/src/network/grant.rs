//! Grants: what a person allowed beside a sandbox's policy.
//!
//! A grant is a small policy of its own, under the ceilings of whoever granted it. It opens what the sandbox's preset
//! and ceilings leave closed, and nothing that a rule of the sandbox's own policy denies. All other traffic stays under
//! the sandbox's own ceilings.

use serde::{Deserialize, Serialize};

use super::{
    decide::{Decider, PolicyRef, RuleRef},
    plan_network,
    policy::{NetworkPlan, Policy},
    spec::{NetworkSpec, Preset},
};
use crate::{NetworkRequestId, Result};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkGrant {
    /// The request that was granted.
    pub id: NetworkRequestId,
    /// The rules that were asked for, and nothing without a rule.
    pub policy: Policy,
    /// The ceilings of whoever granted it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ceilings: Vec<Policy>,
}

impl NetworkGrant {
    /// Refuses rules of which the ceilings leave nothing, and rules that can never match.
    pub fn new(id: NetworkRequestId, rules: &[String], ceilings: &[Policy]) -> Result<Self> {
        let spec = NetworkSpec { allow: rules.to_vec(), ..NetworkSpec::preset(Preset::None) };
        let plan = plan_network(&spec, ceilings)?;
        Ok(Self { id, policy: plan.own, ceilings: plan.ceilings })
    }
}

impl NetworkPlan {
    /// Judges by the grants what the policies refused. Returns the refusal if no grant opens it, or if a rule of the
    /// sandbox's own policy denies it.
    pub(super) fn or_granted(
        &self,
        refusal: RuleRef,
        judge: impl Fn(&Policy) -> Result<Decider, Decider>,
    ) -> Result<RuleRef, RuleRef> {
        if self.grants.is_empty() || judge(&self.own).is_err_and(|by| by.rule.is_some()) {
            return Err(refusal);
        }
        let opens = |(index, grant): (usize, &NetworkGrant)| {
            let by = judge(&grant.policy).ok()?;
            grant
                .ceilings
                .iter()
                .all(|ceiling| judge(ceiling).is_ok())
                .then(|| by.of(PolicyRef::Grant(index)))
        };
        self.grants.iter().enumerate().find_map(opens).ok_or(refusal)
    }

    /// Whether a grant and its ceilings let something pass.
    pub(super) fn could_be_granted(&self, could: impl Fn(&Policy) -> bool) -> bool {
        self.grants.iter().any(|grant| could(&grant.policy) && grant.ceilings.iter().all(&could))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::{DnsName, Flow, Protocol, Surroundings};
    use super::*;
    use crate::ErrorKind;

    fn grant(rules: &[&str], ceilings: &[Policy]) -> Result<NetworkGrant> {
        let rules: Vec<_> = rules.iter().map(|&rule| rule.to_owned()).collect();
        NetworkGrant::new(NetworkRequestId::from_random([1; 8]), &rules, ceilings)
    }

    fn policy(preset: Preset, rules: &[&str]) -> Policy {
        Policy { preset, rules: rules.iter().map(|rule| rule.parse().unwrap()).collect() }
    }

    fn passes(plan: &NetworkPlan, name: &str, port: u16) -> bool {
        let name: DnsName = name.parse().unwrap();
        let names = [name.clone()];
        let address: IpAddr = "93.184.216.34".parse().unwrap();
        let flow = Flow { protocol: Protocol::Tcp, address, port, names: &names };
        let around = Surroundings::default();
        let passes = !plan.decide(&flow, &around).is_denied();
        let is_known = !plan.decide_name(&name).is_denied();
        assert_eq!(is_known, plan.may_answer(&name, address, &around), "{name}");
        assert!(is_known || !passes, "{name} passes, but is not resolved");
        passes
    }

    #[test]
    fn a_grant_opens_what_the_preset_and_the_ceilings_of_the_sandbox_close() {
        let ceilings = vec![Policy::default()];
        let closed = NetworkPlan { ceilings, ..NetworkPlan::default() };
        assert!(!closed.needs_edge());
        let open = NetworkPlan { grants: vec![grant(&["api.example:443"], &[]).unwrap()], ..closed };
        assert!(open.needs_edge() && open.reaches_packages());
        assert!(passes(&open, "api.example", 443));
        assert!(!passes(&open, "api.example", 80) && !passes(&open, "other.example", 443));
        let name: DnsName = "api.example".parse().unwrap();
        let words = open.describe(open.decide_name(&name).by());
        assert_eq!(words, "allowed by rule 1 of the grant ask-02081040g2081: allow api.example:443");
    }

    #[test]
    fn rules_that_deny_stand_above_grants() {
        let own = policy(Preset::None, &["ok.corp.example", "deny *.corp.example"]);
        let granted = grant(&["**.example"], &[]).unwrap();
        // The ceiling is why a name that the sandbox's own policy allows is asked for.
        let plan = NetworkPlan {
            own,
            ceilings: vec![Policy::default()],
            grants: vec![granted],
            ..NetworkPlan::default()
        };
        assert!(passes(&plan, "a.example", 443) && passes(&plan, "ok.corp.example", 443));
        assert!(!passes(&plan, "db.corp.example", 443));
    }

    #[test]
    fn a_grant_stays_under_the_ceilings_of_whoever_granted_it() {
        let ceiling = policy(Preset::Public, &["deny *.corp.example"]);
        assert_eq!(
            grant(&["db.corp.example"], std::slice::from_ref(&ceiling)).unwrap_err().kind(),
            ErrorKind::Denied
        );
        let granted = grant(&["**.example"], &[ceiling]).unwrap();
        let plan = NetworkPlan { grants: vec![granted], ..NetworkPlan::default() };
        assert!(passes(&plan, "a.example", 443));
        assert!(!passes(&plan, "db.corp.example", 443));
    }
}
