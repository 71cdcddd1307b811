//! The overlap of rules, as far as it is known without a host: used to refuse rules that can never match.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    address::{self, IpNet},
    name::DnsName,
    policy::Policy,
    rule::{Protocol, Rule, RuleAction, Target},
    spec::Preset,
    surroundings::{Group, META_ADDRESSES},
};

/// The part of a ceiling that leaves nothing of a rule.
#[derive(Debug)]
pub(super) enum Forbids<'a> {
    Rule(&'a Rule),
    Preset(Preset),
}

/// Finds the part of the ceiling that denies all that the rule allows, if there is one.
pub(super) fn forbids<'a>(ceiling: &'a Policy, rule: &Rule) -> Option<Forbids<'a>> {
    for above in &ceiling.rules {
        match above.action {
            RuleAction::Allow if overlaps(above, rule) => return None,
            RuleAction::Deny if covers(above, rule) => return Some(Forbids::Rule(above)),
            RuleAction::Allow | RuleAction::Deny => {}
        }
    }
    (!preset_could_allow(ceiling.preset, rule)).then_some(Forbids::Preset(ceiling.preset))
}

/// Whether everything that `rule` matches is matched by `wide` already. A rule without a protocol is taken as one for
/// TCP: the part for UDP would hardly be what its author meant to say.
pub(super) fn covers(wide: &Rule, rule: &Rule) -> bool {
    let protocol = rule.protocol.unwrap_or(Protocol::Tcp);
    // Ports of another sandbox are counted inside it, those of other rules outside.
    let same_ports = matches!(wide.target, Target::Sandbox(_)) == matches!(rule.target, Target::Sandbox(_));
    wide.applies_to(protocol)
        && (wide.ports.is_all() || same_ports && wide.ports.covers(&rule.ports))
        && covers_target(wide, &rule.target)
}

fn covers_target(wide: &Rule, target: &Target) -> bool {
    let denies = wide.action == RuleAction::Deny;
    match (&wide.target, target) {
        (Target::Group(Group::Any), narrow) => denies || !is_guarded(narrow),
        (Target::Group(Group::Host), Target::HostPort) | (Target::HostPort, Target::HostPort) => true,
        (Target::Group(Group::Host), Target::Sandbox(_)) => denies,
        (Target::Group(one), Target::Group(other)) => one == other,
        (Target::Net(one), Target::Net(other)) => one.covers(other),
        (Target::Sandbox(one), Target::Sandbox(other)) => one == other,
        (Target::Name(_) | Target::Wildcard(_) | Target::Apex(_), narrow) => {
            covers_names(&wide.target, narrow)
        }
        _ => false,
    }
}

fn covers_names(wide: &Target, narrow: &Target) -> bool {
    let within = |name: &DnsName, parent: &DnsName| name == parent || name.is_beneath(parent);
    match (wide, narrow) {
        (Target::Name(one), Target::Name(other)) => one == other,
        (Target::Wildcard(parent), Target::Name(name) | Target::Apex(name)) => name.is_beneath(parent),
        (Target::Wildcard(parent), Target::Wildcard(other)) => within(other, parent),
        (Target::Apex(parent), Target::Name(other) | Target::Wildcard(other) | Target::Apex(other)) => {
            within(other, parent)
        }
        _ => false,
    }
}

/// Whether some traffic could match both rules, which both allow. `true` when in doubt.
fn overlaps(above: &Rule, rule: &Rule) -> bool {
    let protocols = [Protocol::Tcp, Protocol::Udp];
    protocols.into_iter().any(|protocol| above.applies_to(protocol) && rule.applies_to(protocol))
        && above.ports.overlaps(&rule.ports)
        && targets_overlap(&above.target, &rule.target)
}

fn targets_overlap(one: &Target, other: &Target) -> bool {
    match (one, other) {
        // Traffic to a port of another sandbox is matched by rules for sandboxes only.
        (Target::Sandbox(one), Target::Sandbox(other)) => one == other,
        (Target::Sandbox(_), _) | (_, Target::Sandbox(_)) => false,
        (Target::Net(one), Target::Net(other)) => one.overlaps(other),
        (Target::Group(group), target) | (target, Target::Group(group)) => group_overlaps(*group, target),
        (Target::HostPort, target) | (target, Target::HostPort) => group_overlaps(Group::Host, target),
        // A name may have any address.
        (Target::Net(_), _) | (_, Target::Net(_)) => true,
        (one, other) => names_overlap(one, other),
    }
}

fn group_overlaps(group: Group, target: &Target) -> bool {
    match target {
        Target::Group(Group::Any) => !is_guarded(&Target::Group(group)),
        Target::Group(other) if group == Group::Any => !is_guarded(&Target::Group(*other)),
        Target::Group(other) => group == *other,
        Target::HostPort => group == Group::Host,
        Target::Sandbox(_) => false,
        Target::Net(net) => net_could_be_in(net, group),
        // A name leads to places without a guard only.
        Target::Name(_) | Target::Wildcard(_) | Target::Apex(_) => !is_guarded(&Target::Group(group)),
    }
}

fn names_overlap(one: &Target, other: &Target) -> bool {
    let (Some(one_name), Some(other_name)) = (name_of(one), name_of(other)) else { return false };
    let is_tree = |target: &Target| !matches!(target, Target::Name(_));
    covers_names(one, other)
        || covers_names(other, one)
        || (is_tree(one) && is_tree(other))
            && (one_name.is_beneath(other_name) || other_name.is_beneath(one_name) || one_name == other_name)
}

fn name_of(target: &Target) -> Option<&DnsName> {
    match target {
        Target::Name(name) | Target::Wildcard(name) | Target::Apex(name) => Some(name),
        Target::Net(_) | Target::Group(_) | Target::HostPort | Target::Sandbox(_) => None,
    }
}

/// Whether a preset could let some of what the rule matches pass. `true` when in doubt.
fn preset_could_allow(preset: Preset, rule: &Rule) -> bool {
    let reaches = |group| group_overlaps(group, &rule.target);
    match preset {
        Preset::None | Preset::Packages => false,
        Preset::Public => rule.applies_to(Protocol::Tcp) && reaches(Group::Public),
        Preset::PublicPrivate => {
            rule.applies_to(Protocol::Tcp) && (reaches(Group::Public) || reaches(Group::Private))
        }
        Preset::All => !is_guarded(&rule.target),
    }
}

/// Targets that wider rules which allow do not reach.
fn is_guarded(target: &Target) -> bool {
    match target {
        Target::Group(group) => matches!(group, Group::Host | Group::Meta | Group::Loopback),
        Target::HostPort | Target::Sandbox(_) => true,
        Target::Net(net) => {
            net.is_single() && META_ADDRESSES.contains(&net.address())
                || is_in(net, &LOOPBACK)
                || is_in(net, &OPAQUE)
        }
        Target::Name(_) | Target::Wildcard(_) | Target::Apex(_) => false,
    }
}

pub(super) fn is_own_loopback(target: &Target) -> bool {
    match target {
        Target::Net(net) => is_in(net, &LOOPBACK),
        target => name_of(target)
            .is_some_and(|name| name.as_str() == "localhost" || name.as_str().ends_with(".localhost")),
    }
}

pub(super) fn is_multicast(target: &Target) -> bool {
    match target {
        Target::Group(group) => *group == Group::Multicast,
        Target::Net(net) => is_in(net, &MULTICAST),
        _ => false,
    }
}

/// Whether all addresses of the range hide others, so that only a rule for a single one matches.
pub(super) fn is_opaque_range(target: &Target) -> bool {
    matches!(target, Target::Net(net) if !net.is_single() && is_in(net, &OPAQUE))
}

type Range = (IpAddr, u8);

const LOOPBACK: [Range; 4] =
    [v4(127, 0, 0, 0, 8), v4(0, 0, 0, 0, 8), (IpAddr::V6(Ipv6Addr::LOCALHOST), 128), UNSPECIFIED];
const UNSPECIFIED: Range = (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128);
const LINK_LOCAL: [Range; 2] = [v4(169, 254, 0, 0, 16), v6(0xfe80, 0, 0, 10)];
const MULTICAST: [Range; 3] =
    [v4(224, 0, 0, 0, 4), (IpAddr::V4(Ipv4Addr::BROADCAST), 32), v6(0xff00, 0, 0, 8)];
/// NAT64 with a prefix that the network chooses.
const OPAQUE: [Range; 1] = [v6(0x64, 0xff9b, 1, 48)];
const PRIVATE: [Range; 6] = [
    v4(10, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
    v4(100, 64, 0, 0, 10),
    v6(0xfc00, 0, 0, 7),
    v6(0xfec0, 0, 0, 10),
];

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Range {
    (IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix)
}

const fn v6(first: u16, second: u16, third: u16, prefix: u8) -> Range {
    (IpAddr::V6(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0)), prefix)
}

/// Whether the net lies within one of the ranges.
fn is_in(net: &IpNet, ranges: &[Range]) -> bool {
    ranges
        .iter()
        .any(|(address, prefix)| *prefix <= net.prefix() && address::mask(net.address(), *prefix) == *address)
}

/// Whether the net and one of the ranges have addresses in common.
fn meets(net: &IpNet, ranges: &[Range]) -> bool {
    let holds = |(address, prefix): &Range| {
        net.prefix() <= *prefix && address::mask(*address, net.prefix()) == net.address()
    };
    is_in(net, ranges) || ranges.iter().any(holds)
}

/// Whether some address of the net could be in the group on some host. `true` when in doubt.
fn net_could_be_in(net: &IpNet, group: Group) -> bool {
    let is_elsewhere = is_in(net, &LOOPBACK) || is_in(net, &LINK_LOCAL) || is_in(net, &MULTICAST);
    match group {
        Group::Public => !(is_elsewhere || is_in(net, &PRIVATE) || is_reserved(net)),
        // Whatever is on the host's link counts as private.
        Group::Private => !is_elsewhere,
        Group::Loopback => meets(net, &LOOPBACK),
        Group::LinkLocal => meets(net, &LINK_LOCAL),
        Group::Multicast => meets(net, &MULTICAST),
        // A guarded group is opened by a rule of its own or for one address.
        Group::Meta => net.is_single() && META_ADDRESSES.contains(&net.address()),
        Group::Host => net.is_single(),
        Group::Any => !is_guarded(&Target::Net(*net)),
    }
}

/// Whether the net is one address that is not public, or a range of documentation.
fn is_reserved(net: &IpNet) -> bool {
    net.is_single() && !address::is_public(net.address())
}
