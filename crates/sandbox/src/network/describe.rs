//! Decisions in words, for events, denial pages and DNS errors.

use std::fmt;

use super::{IpNet, Ports};
use super::{
    decide::{Cause, Flow, PolicyRef, RuleRef},
    policy::{NetworkPlan, Policy},
    rule::{Protocol, Rule, RuleAction, Target},
    spec::Preset,
    surroundings::{Group, HOST_NAME, Surroundings},
};

impl NetworkPlan {
    /// Says in words what decided: ``denied: the preset `packages` reaches package indexes only``.
    pub fn describe(&self, by: &RuleRef) -> String {
        let policy = match by.policy {
            PolicyRef::Own => Some(&self.own),
            PolicyRef::Ceiling(index) => self.ceilings.get(index),
            PolicyRef::Grant(index) => self.grants.get(index).map(|grant| &grant.policy),
        };
        // A reference of a policy that has since been replaced.
        let Some(policy) = policy else { return "decided by an earlier policy".to_owned() };
        match by.cause {
            Cause::Rule => self.describe_rule(policy, by),
            Cause::Closed => "denied: the sandbox manager itself listens there".to_owned(),
            Cause::Published => "denied: that port of the host leads to another sandbox".to_owned(),
            cause => self.describe_preset(policy.preset, by.policy, cause),
        }
    }

    fn describe_rule(&self, policy: &Policy, by: &RuleRef) -> String {
        let rule = by.rule.and_then(|index| Some((index, policy.rules.get(index)?)));
        let Some((index, rule)) = rule else { return "decided by an earlier policy".to_owned() };
        let verb = match rule.action {
            RuleAction::Allow => "allowed",
            RuleAction::Deny => "denied",
        };
        let whose = self.whose(by.policy);
        format!("{verb} by rule {} of {whose}: {} {}", index + 1, rule.action, rule.text())
    }

    fn describe_preset(&self, preset: Preset, policy: PolicyRef, cause: Cause) -> String {
        let whose = match policy {
            PolicyRef::Own => String::new(),
            PolicyRef::Ceiling(_) | PolicyRef::Grant(_) => format!(" of {}", self.whose(policy)),
        };
        let preset_words = format!("the preset `{preset}`{whose}");
        match cause {
            Cause::Preset if preset > Preset::Packages => {
                format!("allowed: {preset_words} {}", reach(preset))
            }
            Cause::Udp => format!("denied: {preset_words} reaches it over TCP only; UDP needs a rule"),
            Cause::Group(group) => format!("denied: {preset_words} does not reach {}", place(group)),
            Cause::NameLeadsTo(group) => format!(
                "denied: the name is allowed{whose}, but it leads to {}, which needs a rule of its own",
                place(group)
            ),
            Cause::Reserved => format!("denied: {preset_words} does not reach reserved addresses"),
            _ => format!("denied: {preset_words} {}", reach(preset)),
        }
    }

    fn whose(&self, policy: PolicyRef) -> String {
        match policy {
            PolicyRef::Own => "the sandbox's policy".to_owned(),
            PolicyRef::Ceiling(_) if self.ceilings.len() == 1 => "the ceiling".to_owned(),
            PolicyRef::Ceiling(index) => format!("ceiling {}", index + 1),
            PolicyRef::Grant(index) => match self.grants.get(index) {
                Some(grant) => format!("the grant {}", grant.id),
                None => "a grant".to_owned(),
            },
        }
    }

    /// A rule that would let the flow pass in the sandbox's own policy; `None` if no rule can. A ceiling may still deny
    /// it.
    pub fn rule_that_allows(&self, flow: &Flow<'_>, around: &Surroundings) -> Option<Rule> {
        if around.is_closed(flow.address, flow.port) {
            return None;
        }
        let group = around.group(flow.address);
        let (target, port) = match around.published_at(flow.address, flow.port) {
            Some(other) if other.namespace != self.namespace || group != Some(Group::Host) => return None,
            Some(other) => (Target::Sandbox(other.name.clone()), other.port),
            None => (self.target_that_allows(flow, around), flow.port),
        };
        let protocol = (flow.protocol == Protocol::Udp).then_some(Protocol::Udp);
        let rule = Rule { action: RuleAction::Allow, target, protocol, ports: Ports::one(port) };
        (port != 0).then_some(rule)
    }

    fn target_that_allows(&self, flow: &Flow<'_>, around: &Surroundings) -> Target {
        match (around.group(flow.address), flow.names.first()) {
            (Some(Group::Host), _) => Target::HostPort,
            (Some(Group::Public), Some(name)) if name.as_str() != HOST_NAME => Target::Name(name.clone()),
            _ => Target::Net(IpNet::single(flow.address)),
        }
    }
}

/// As people read it: `public, deny *.corp.example`.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.preset)?;
        self.rules.iter().try_for_each(|rule| write!(f, ", {} {}", rule.action, rule.text()))
    }
}

/// Says what a preset reaches, to follow its name.
fn reach(preset: Preset) -> &'static str {
    match preset {
        Preset::None => "reaches nothing",
        Preset::Packages => "reaches package indexes only",
        Preset::Public => "reaches the internet",
        Preset::PublicPrivate => "reaches the internet and private networks",
        Preset::All => "reaches everything",
    }
}

fn place(group: Group) -> &'static str {
    match group {
        Group::Public => "the internet",
        Group::Private => "private networks",
        Group::Loopback => "loopback addresses",
        Group::LinkLocal => "link-local addresses",
        Group::Meta => "metadata services",
        Group::Multicast => "multicast addresses",
        Group::Host => "the host",
        Group::Any => "it",
    }
}
