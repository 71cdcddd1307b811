//! The ports that a plan names, for the form of named ports: some kernels cannot bring every port to the edge.

use std::{collections::BTreeSet, fmt};

use super::{
    policy::NetworkPlan,
    rule::{Protocol, Rule, RuleAction},
};

/// Reached without being named: DNS, SSH, HTTP and HTTPS.
const USUAL_TCP: [u16; 4] = [22, DNS, 80, 443];
const DNS: u16 = 53;
/// Each has a socket of its own, which goes from process to process by descriptor.
pub const MAX_NAMED_PORTS: usize = 32;

/// The ports of any address that a sandbox reaches in this form, if its policy allows the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachedPorts {
    pub tcp: BTreeSet<u16>,
    pub udp: BTreeSet<u16>,
}

/// The part of a plan that this form cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotByName {
    #[error("its rules name more than {MAX_NAMED_PORTS} ports")]
    TooManyPorts,
    #[error("the rule {0} is about UDP and names no port")]
    NoPort(String),
}

impl ReachedPorts {
    fn usual() -> Self {
        Self { tcp: USUAL_TCP.into(), udp: [DNS].into() }
    }

    /// Whether all of those are among these.
    pub fn cover(&self, others: &Self) -> bool {
        self.tcp.is_superset(&others.tcp) && self.udp.is_superset(&others.udp)
    }

    fn add(&mut self, rule: &Rule) -> Result<(), NotByName> {
        let ports = match rule.protocol {
            Some(Protocol::Udp) if rule.ports.is_all() => {
                return Err(NotByName::NoPort(rule.text().to_string()));
            }
            Some(Protocol::Udp) => &mut self.udp,
            Some(Protocol::Tcp) | None => &mut self.tcp,
        };
        for range in rule.ports.ranges() {
            if usize::from(range.end() - range.start()) >= MAX_NAMED_PORTS {
                return Err(NotByName::TooManyPorts);
            }
            ports.extend(range.clone());
        }
        match self.tcp.len() + self.udp.len() <= MAX_NAMED_PORTS {
            true => Ok(()),
            false => Err(NotByName::TooManyPorts),
        }
    }
}

/// `22,53,80,443 (TCP) and 53 (UDP)`.
impl fmt::Display for ReachedPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ports: &BTreeSet<u16>| ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        write!(f, "{} (TCP) and {} (UDP)", list(&self.tcp), list(&self.udp))
    }
}

impl NetworkPlan {
    /// The usual ports, and all that its rules and grants name.
    pub fn named_ports(&self) -> Result<ReachedPorts, NotByName> {
        let policies = std::iter::once(&self.own).chain(self.grants.iter().map(|grant| &grant.policy));
        let mut reached = ReachedPorts::usual();
        for rule in policies.flat_map(|policy| &policy.rules).filter(|rule| rule.action == RuleAction::Allow)
        {
            reached.add(rule)?;
        }
        Ok(reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{NetworkSpec, Preset, plan_network};

    fn named(allow: &[&str]) -> Result<ReachedPorts, NotByName> {
        let allow = allow.iter().map(|rule| (*rule).to_owned()).collect();
        let spec = NetworkSpec {
            allow,
            deny: vec!["*.corp.example:9".to_owned()],
            ..NetworkSpec::preset(Preset::Public)
        };
        plan_network(&spec, &[]).unwrap().named_ports()
    }

    #[test]
    fn the_usual_ports_and_those_that_rules_name() {
        assert_eq!(named(&["api.example"]), Ok(ReachedPorts::usual()));
        let some = named(&["host:3000", "10.0.0.0/8:8000-8002,5432", "udp@192.0.2.1:123"]).unwrap();
        assert_eq!(some.to_string(), "22,53,80,443,3000,5432,8000,8001,8002 (TCP) and 53,123 (UDP)");
        assert!(some.cover(&ReachedPorts::usual()) && !ReachedPorts::usual().cover(&some));
    }

    #[test]
    fn what_cannot_be_held_is_refused() {
        for many in ["api.example:1-33", "api.example:1000-1027", "api.example:1-65534"] {
            assert_eq!(named(&[many]), Err(NotByName::TooManyPorts), "{many}");
        }
        assert!(named(&["api.example:1000-1026"]).is_ok());
        let without = NotByName::NoPort("udp@192.0.2.1".to_owned());
        assert_eq!(named(&["udp@192.0.2.1"]), Err(without));
    }
}
