//! The decision: pure, for one flow at a time.
//!
//! A flow is judged once by its address alone and once for each name that the sandbox resolved to the address. It
//! passes whatever it says if all of these pass; only as certain names if only those pass. What the policies refuse may
//! still pass by a grant ([`super::grant`]).

use std::net::IpAddr;

use super::{
    address::{canonical, is_opaque},
    name::DnsName,
    policy::{NetworkPlan, Policy},
    rule::{Protocol, Rule, RuleAction, Target},
    spec::Preset,
    surroundings::{Group, HOST_NAME, Surroundings},
};
use crate::Namespace;

/// Names of metadata services. They are resolved only if a rule is about them or about the group `meta`.
const META_NAMES: [&str; 4] =
    ["metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"];

/// A connection or datagram that a sandbox tries to send.
#[derive(Debug, Clone, Copy)]
pub struct Flow<'a> {
    pub protocol: Protocol,
    /// Where the workload wants to go, in whatever form. For the host's name that is
    /// [`HOST_ADDRESS`](super::HOST_ADDRESS), not the address that the edge dials in its place.
    pub address: IpAddr,
    pub port: u16,
    /// The names that this sandbox resolved to this address, by our resolver.
    pub names: &'a [DnsName],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Whatever is said on the wire.
    Allow {
        by: RuleRef,
    },
    /// Only as one of these names: where the protocol says a name, it is one of them.
    AllowNamed {
        names: Vec<DnsName>,
        by: RuleRef,
    },
    Deny {
        by: RuleRef,
    },
}

impl Verdict {
    pub fn by(&self) -> &RuleRef {
        match self {
            Self::Allow { by } | Self::AllowNamed { by, .. } | Self::Deny { by } => by,
        }
    }

    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Deny { .. })
    }
}

/// Whether a name may be resolved at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameVerdict {
    Allow { by: RuleRef },
    Deny { by: RuleRef },
}

impl NameVerdict {
    pub fn by(&self) -> &RuleRef {
        match self {
            Self::Allow { by } | Self::Deny { by } => by,
        }
    }

    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Deny { .. })
    }
}

/// Which policy decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyRef {
    Own,
    /// By its index in [`NetworkPlan::ceilings`].
    Ceiling(usize),
    /// By its index in [`NetworkPlan::grants`].
    Grant(usize),
}

/// The rule or preset that decided; [`NetworkPlan::describe`] puts it into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleRef {
    pub policy: PolicyRef,
    /// Its index in [`Policy::rules`]; the preset if absent.
    pub rule: Option<usize>,
    pub cause: Cause,
}

/// Why it was decided that way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The rule matched.
    Rule,
    /// No rule matched, and this is what the preset does.
    Preset,
    /// As `Preset`: UDP needs a rule that names it.
    Udp,
    /// As `Preset`, and the address is in this group, which the preset does not reach.
    Group(Group),
    /// As `Group`, although a rule allows the name: it has an address that the rule does not open.
    NameLeadsTo(Group),
    /// As `Preset`, and the address is reserved: it belongs to no network.
    Reserved,
    /// The port leads to another sandbox.
    Published,
    /// The daemon or the edge listens there.
    Closed,
}

impl NetworkPlan {
    /// Judges a flow by the sandbox's own policy and by every ceiling.
    pub fn decide(&self, flow: &Flow<'_>, around: &Surroundings) -> Verdict {
        let place = ClassifiedAddress::of(flow, around);
        if around.is_closed(flow.address, flow.port) {
            return Verdict::Deny {
                by: RuleRef { policy: PolicyRef::Own, rule: None, cause: Cause::Closed },
            };
        }
        let by_address = self.judge(&Traffic { place, name: None, protocol: flow.protocol, port: flow.port });
        let mut allowed = Vec::new();
        let mut refused = None;
        for name in flow.names {
            let traffic = Traffic { place, name: Some(name), protocol: flow.protocol, port: flow.port };
            match self.judge(&traffic) {
                Ok(by) => allowed.push((name, by)),
                Err(by) => refused = refused.or(Some(by)),
            }
        }
        match (by_address, refused, allowed.first()) {
            (Ok(by), None, _) => Verdict::Allow { by },
            (_, _, Some((_, by))) => {
                let names = allowed.iter().map(|(name, _)| (*name).clone()).collect();
                Verdict::AllowNamed { names, by: *by }
            }
            (_, Some(by), None) | (Err(by), None, None) => Verdict::Deny { by },
        }
    }

    /// Whether the name may be resolved: some flow to it could pass. Names that no rule allows are never sent on, since
    /// a question carries bytes out. A rule for private addresses opens no names, a rule for `public` or `any` opens
    /// all.
    pub fn decide_name(&self, name: &DnsName) -> NameVerdict {
        let verdicts = self.policies().map(|(policy, rules)| {
            judge_name(rules, name).map(|own| own.of(policy)).map_err(|own| own.of(policy))
        });
        let judged =
            first_refusal(verdicts).or_else(|by| self.or_granted(by, |policy| judge_name(policy, name)));
        match judged {
            Ok(by) => NameVerdict::Allow { by },
            Err(by) => NameVerdict::Deny { by },
        }
    }

    /// Whether the address may be an answer for the name: some flow to it could pass. Private answers for public names
    /// are how a stranger's name leads into the owner's network (rebinding).
    pub fn may_answer(&self, name: &DnsName, address: IpAddr, around: &Surroundings) -> bool {
        let place = ClassifiedAddress::somewhere_at(address, around);
        let could = |policy: &Policy| could_pass(policy, &place, Some(name));
        self.policies().all(|(_, policy)| could(policy))
            || !is_closed_by_rule(&self.own, &place, Some(name)) && self.could_be_granted(could)
    }

    /// All policies, the sandbox's own first.
    pub(super) fn policies(&self) -> impl Iterator<Item = (PolicyRef, &Policy)> {
        let ceilings = self.ceilings.iter().enumerate();
        std::iter::once((PolicyRef::Own, &self.own))
            .chain(ceilings.map(|(index, ceiling)| (PolicyRef::Ceiling(index), ceiling)))
    }

    fn judge(&self, traffic: &Traffic<'_>) -> Result<RuleRef, RuleRef> {
        let of_one = |policy: &Policy| judge(policy, &self.namespace, traffic);
        let judged = first_refusal(self.policies().map(|(policy, rules)| {
            let judged = of_one(rules);
            judged.map(|own| own.of(policy)).map_err(|own| own.of(policy))
        }));
        judged.or_else(|by| self.or_granted(by, of_one))
    }
}

/// The first refusal, or else the first answer, which is the sandbox's own.
fn first_refusal(mut verdicts: impl Iterator<Item = Result<RuleRef, RuleRef>>) -> Result<RuleRef, RuleRef> {
    let unruled = RuleRef { policy: PolicyRef::Own, rule: None, cause: Cause::Preset };
    let own = verdicts.next().unwrap_or(Err(unruled))?;
    verdicts.try_for_each(|verdict| verdict.map(drop))?;
    Ok(own)
}

/// The rule or preset that decided within one policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decider {
    pub(super) rule: Option<usize>,
    cause: Cause,
}

impl Decider {
    fn rule(index: usize) -> Self {
        Self { rule: Some(index), cause: Cause::Rule }
    }

    fn preset(cause: Cause) -> Self {
        Self { rule: None, cause }
    }

    pub(super) fn of(self, policy: PolicyRef) -> RuleRef {
        RuleRef { policy, rule: self.rule, cause: self.cause }
    }
}

/// An address as rules see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassifiedAddress<'a> {
    address: IpAddr,
    group: Option<Group>,
    /// The sandbox that the port leads to, if the address is the host's and the port is published.
    published: Option<&'a super::PublishedPort>,
}

impl<'a> ClassifiedAddress<'a> {
    fn of(flow: &Flow<'_>, around: &'a Surroundings) -> Self {
        let published = around.published_at(flow.address, flow.port);
        Self { published, ..Self::somewhere_at(flow.address, around) }
    }

    pub(super) fn somewhere_at(address: IpAddr, around: &Surroundings) -> Self {
        Self { address: canonical(address), group: around.group(address), published: None }
    }

    /// Places that only a rule of their own opens, not one for a wider range or for names.
    fn is_guarded(&self) -> bool {
        matches!(self.group, Some(Group::Meta | Group::Host | Group::Loopback)) || is_opaque(self.address)
    }
}

struct Traffic<'a> {
    place: ClassifiedAddress<'a>,
    /// The name it is judged as.
    name: Option<&'a DnsName>,
    protocol: Protocol,
    port: u16,
}

/// Judges traffic by one policy.
fn judge(policy: &Policy, namespace: &Namespace, traffic: &Traffic<'_>) -> Result<Decider, Decider> {
    let Traffic { place, name, protocol, port } = traffic;
    for (index, rule) in policy.rules.iter().enumerate() {
        let matches = match (&rule.target, place.published) {
            (Target::Sandbox(sandbox), Some(published)) => {
                place.group == Some(Group::Host)
                    && published.name == *sandbox
                    && published.namespace == *namespace
                    && rule.ports.contains(published.port)
            }
            (Target::Sandbox(_), None) => false,
            (_, Some(_)) if rule.action == RuleAction::Allow => false,
            _ => rule.ports.contains(*port) && target_matches(rule, policy.preset, place, *name),
        };
        if matches && rule.applies_to(*protocol) {
            return match rule.action {
                RuleAction::Allow => Ok(Decider::rule(index)),
                RuleAction::Deny => Err(Decider::rule(index)),
            };
        }
    }
    if place.published.is_none() && preset_reaches(policy.preset, place, *protocol) {
        return Ok(Decider::preset(Cause::Preset));
    }
    Err(Decider::preset(unreached(policy, traffic)))
}

/// Why a policy lets traffic that no rule matches not pass.
fn unreached(policy: &Policy, traffic: &Traffic<'_>) -> Cause {
    let Traffic { place, name, protocol, port } = traffic;
    if place.published.is_some() {
        return Cause::Published;
    }
    let allows_name = |rule: &Rule| {
        let is_named = name.is_some_and(|name| name_matches(&rule.target, name));
        is_named
            && rule.action == RuleAction::Allow
            && rule.ports.contains(*port)
            && rule.applies_to(*protocol)
    };
    match place.group {
        Some(group) if policy.rules.iter().any(allows_name) => Cause::NameLeadsTo(group),
        _ if *protocol == Protocol::Udp && preset_reaches(policy.preset, place, Protocol::Tcp) => Cause::Udp,
        Some(group) if place.is_guarded() => Cause::Group(group),
        _ if policy.preset <= Preset::Packages => Cause::Preset,
        Some(group) => Cause::Group(group),
        None => Cause::Reserved,
    }
}

/// Whether the rule is about the place, whatever the port.
pub(super) fn target_matches(
    rule: &Rule,
    preset: Preset,
    place: &ClassifiedAddress<'_>,
    name: Option<&DnsName>,
) -> bool {
    let denies = rule.action == RuleAction::Deny;
    match &rule.target {
        target @ (Target::Name(_) | Target::Wildcard(_) | Target::Apex(_)) => {
            name.is_some_and(|name| name_matches(target, name) && (denies || !is_host_name(name)))
                && (denies || name_reaches(preset, place))
        }
        Target::Net(net) => net.contains(place.address) && (denies || !place.is_guarded() || net.is_single()),
        Target::Group(Group::Any) => denies || !place.is_guarded(),
        Target::Group(group) => place.group == Some(*group),
        Target::HostPort => place.group == Some(Group::Host),
        Target::Sandbox(_) => false,
    }
}

/// The host's name has one address, which only rules for the host open.
fn is_host_name(name: &DnsName) -> bool {
    name.as_str() == HOST_NAME
}

fn name_matches(target: &Target, name: &DnsName) -> bool {
    match target {
        Target::Name(own) => name == own,
        Target::Wildcard(parent) => name.is_beneath(parent),
        Target::Apex(parent) => name == parent || name.is_beneath(parent),
        Target::Net(_) | Target::Group(_) | Target::HostPort | Target::Sandbox(_) => false,
    }
}

/// Whether a preset lets traffic pass that no rule matches.
fn preset_reaches(preset: Preset, place: &ClassifiedAddress<'_>, protocol: Protocol) -> bool {
    match preset {
        Preset::None | Preset::Packages => false,
        Preset::Public => place.group == Some(Group::Public) && protocol == Protocol::Tcp,
        Preset::PublicPrivate => {
            matches!(place.group, Some(Group::Public | Group::Private)) && protocol == Protocol::Tcp
        }
        Preset::All => !place.is_guarded(),
    }
}

/// Whether an allowed name may lead to the place: to the internet always, further only where the preset reaches anyway.
fn name_reaches(preset: Preset, place: &ClassifiedAddress<'_>) -> bool {
    !place.is_guarded()
        && (place.group == Some(Group::Public) || preset_reaches(preset, place, Protocol::Tcp))
}

/// Whether the policy lets traffic to the place pass for some port and protocol.
pub(super) fn could_pass(policy: &Policy, place: &ClassifiedAddress<'_>, name: Option<&DnsName>) -> bool {
    for rule in &policy.rules {
        let leads_there = matches!(rule.target, Target::Sandbox(_)) && place.group == Some(Group::Host);
        if leads_there || target_matches(rule, policy.preset, place, name) {
            match rule.action {
                RuleAction::Allow => return true,
                RuleAction::Deny if rule.is_for_all_ports() => return false,
                RuleAction::Deny => {}
            }
        }
    }
    preset_reaches(policy.preset, place, Protocol::Tcp) || preset_reaches(policy.preset, place, Protocol::Udp)
}

/// Whether a rule of the policy denies all traffic to the place, whatever the preset is.
fn is_closed_by_rule(policy: &Policy, place: &ClassifiedAddress<'_>, name: Option<&DnsName>) -> bool {
    let decides = |rule: &&Rule| {
        target_matches(rule, policy.preset, place, name)
            && (rule.action == RuleAction::Allow || rule.is_for_all_ports())
    };
    policy.rules.iter().find(decides).is_some_and(|rule| rule.action == RuleAction::Deny)
}

/// Judges by one policy whether a name may be resolved.
fn judge_name(policy: &Policy, name: &DnsName) -> Result<Decider, Decider> {
    let special = match name.as_str() {
        HOST_NAME => Some(Group::Host),
        other if META_NAMES.contains(&other) => Some(Group::Meta),
        _ => None,
    };
    for (index, rule) in policy.rules.iter().enumerate() {
        match rule.action {
            RuleAction::Allow if opens_name(&rule.target, name, special) => return Ok(Decider::rule(index)),
            RuleAction::Deny if rule.is_for_all_ports() && closes_name(&rule.target, name, special) => {
                return Err(Decider::rule(index));
            }
            RuleAction::Allow | RuleAction::Deny => {}
        }
    }
    match special {
        Some(group) => Err(Decider::preset(Cause::Group(group))),
        None if policy.preset > Preset::Packages => Ok(Decider::preset(Cause::Preset)),
        None => Err(Decider::preset(Cause::Preset)),
    }
}

fn opens_name(target: &Target, name: &DnsName, special: Option<Group>) -> bool {
    match target {
        Target::Name(_) | Target::Wildcard(_) | Target::Apex(_) => {
            !is_host_name(name) && name_matches(target, name)
        }
        Target::Group(Group::Public | Group::Any) => special.is_none(),
        Target::Group(group) => special == Some(*group),
        Target::HostPort | Target::Sandbox(_) => special == Some(Group::Host),
        Target::Net(net) => special.is_none() && net.prefix() == 0,
    }
}

fn closes_name(target: &Target, name: &DnsName, special: Option<Group>) -> bool {
    match target {
        Target::Group(Group::Any) => true,
        Target::Group(group) => special == Some(*group),
        other => name_matches(other, name),
    }
}
