//! From the network that was asked for to the one that was decided. All defaults, limits and refusals are in this file.

use std::{collections::BTreeSet, fmt, net::IpAddr, ops::RangeInclusive};

use super::{
    decide::{ClassifiedAddress, could_pass, target_matches},
    overlap::{self, Forbids},
    policy::{DEFAULT_QUERY_TIMEOUT_MS, DEFAULT_RECORDS, DnsPlan, NetworkLimits, NetworkPlan, Policy},
    rule::{Protocol, Rule, RuleAction, Target},
    spec::{DnsSpec, NetworkLimitsSpec, NetworkSpec, Preset},
    surroundings::{Group, Surroundings},
};
use crate::{ByteSize, Error, ErrorKind, Namespace, Next, Result};

/// Most rules of one policy: each is looked at for each new connection.
pub const MAX_RULES: usize = 512;
/// Total length of the rules of one policy: a plan goes to the edge in one message.
pub const MAX_RULES_BYTES: usize = 32 * 1024;
/// Most policies above a sandbox's own: the operator's, the key's, and some to spare.
pub const MAX_CEILINGS: usize = 4;
/// Most servers that one sandbox's names are asked of.
pub const MAX_NAMESERVERS: usize = 4;
/// Most connections, and most UDP flows, that one sandbox may be allowed at the same time.
pub const MAX_CONNECTIONS: u32 = 65_536;
/// Milliseconds that a server of names may take: time for an answer from near, and not so long that programs give up
/// before the next server is asked.
const QUERY_TIMEOUTS_MS: RangeInclusive<u64> = 50..=10_000;
const MAX_CONNECTS_PER_SECOND: u32 = 100_000;
const MAX_DNS_PER_SECOND: u32 = 10_000;
/// Less than this and no connection gets anywhere.
const MIN_BYTES_PER_SECOND: ByteSize = ByteSize(1024);
const DNS_PORT: u16 = 53;

/// Decides the network. A rule that can never match, or that a ceiling forbids, is refused with its place in the
/// request and the reason. `ceilings` are policies that no caller can lift.
pub fn plan_network(spec: &NetworkSpec, ceilings: &[Policy]) -> Result<NetworkPlan> {
    if ceilings.len() > MAX_CEILINGS {
        let n_ceilings = ceilings.len();
        return Err(Error::invalid(format!("{n_ceilings} network ceilings; the limit is {MAX_CEILINGS}")));
    }
    let placed = placed_rules(spec)?;
    for ceiling in ceilings {
        check_preset(spec.preset, ceiling)?;
        for placed in &placed {
            check_ceiling(placed, ceiling).map_err(|error| placed.at(error))?;
        }
    }
    let own = Policy { preset: spec.preset.unwrap_or_default(), rules: rules_of(placed) };
    Ok(NetworkPlan {
        ceilings: ceilings.to_vec(),
        grants: Vec::new(),
        dns: decide_dns(&spec.dns, &own, ceilings)?,
        limits: decide_limits(&spec.limits)?,
        namespace: Namespace::default(),
        own,
    })
}

/// Refuses rules of a request that could not stand in `allow` of a policy. It gives their place in the request.
pub(super) fn check_request(rules: &[String], policy: &NetworkSpec) -> Result<()> {
    let spec = NetworkSpec { allow: rules.to_vec(), ..policy.clone() };
    placed_rules_with(&spec, "rules").map(drop)
}

impl Policy {
    /// The policy of a request or of an operator's configuration: `deny` first, then `rules`, then `allow`.
    pub fn from_spec(spec: &NetworkSpec) -> Result<Self> {
        let rules = rules_of(placed_rules(spec)?);
        Ok(Self { preset: spec.preset.unwrap_or_default(), rules })
    }
}

/// A rule with its place in the request.
#[derive(Debug)]
struct PlacedRule {
    list: &'static str,
    index: usize,
    rule: Rule,
}

impl PlacedRule {
    /// Adds to an error where the rule stands.
    fn at(&self, error: Error) -> Error {
        error.reworded(|words| format!("{self}: {words}"))
    }
}

impl fmt::Display for PlacedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.list, self.index)
    }
}

fn rules_of(placed: Vec<PlacedRule>) -> Vec<Rule> {
    placed.into_iter().map(|placed| placed.rule).collect()
}

/// All rules in the order in which they are looked at.
fn placed_rules(spec: &NetworkSpec) -> Result<Vec<PlacedRule>> {
    placed_rules_with(spec, "allow")
}

/// `allow_list`: the name of the list that holds `allow` in what the caller sent.
fn placed_rules_with(spec: &NetworkSpec, allow_list: &'static str) -> Result<Vec<PlacedRule>> {
    let deny = spec.deny.iter().enumerate().map(|(index, text)| ("deny", index, RuleAction::Deny, text));
    let rules = spec.rules.iter().enumerate();
    let rules = rules.map(|(index, rule)| ("rules", index, rule.action, &rule.target));
    let allow =
        spec.allow.iter().enumerate().map(|(index, text)| (allow_list, index, RuleAction::Allow, text));
    let texts: Vec<_> = deny.chain(rules).chain(allow).collect();
    if texts.len() > MAX_RULES {
        return Err(Error::invalid(format!("rules: there are {}; the limit is {MAX_RULES}", texts.len()))
            .with_hint("Use wildcards and ranges in place of many rules."));
    }
    let n_bytes: usize = texts.iter().map(|(_, _, _, text)| text.len()).sum();
    if n_bytes > MAX_RULES_BYTES {
        return Err(Error::invalid(format!(
            "rules: together they have {n_bytes} bytes; the limit is {MAX_RULES_BYTES}"
        ))
        .with_hint("Use wildcards and ranges in place of many rules."));
    }
    let mut placed: Vec<PlacedRule> = Vec::with_capacity(texts.len());
    for (list, index, action, text) in texts {
        let rule = Rule::new(action, text)
            .map_err(|error| error.reworded(|words| format!("{list}[{index}]: {words}")))?;
        let next = PlacedRule { list, index, rule };
        check_possible(&next.rule).map_err(|error| next.at(error))?;
        check_reached(&next, &placed).map_err(|error| next.at(error))?;
        placed.push(next);
    }
    Ok(placed)
}

/// Refuses a rule that allows what can never happen, whatever the other rules are.
fn check_possible(rule: &Rule) -> Result<()> {
    if rule.action == RuleAction::Deny {
        return Ok(());
    }
    let never = |why: &str| Error::invalid(format!("{:?} can never match: {why}", rule.text().to_string()));
    if overlap::is_own_loopback(&rule.target) {
        return Err(never("inside, it is the sandbox itself, which needs no rule")
            .with_hint("For a port of the daemon's machine, use host with the port, such as host:3000."));
    }
    if overlap::is_multicast(&rule.target) && rule.protocol != Some(Protocol::Udp) {
        return Err(never("TCP has no multicast").with_hint("Write udp@ before the target."));
    }
    if overlap::is_opaque_range(&rule.target) {
        return Err(never("only the network there knows which addresses these stand for")
            .with_hint("Write single addresses, or the IPv4 range that they stand for."));
    }
    if matches!(rule.target, Target::Sandbox(_)) && rule.protocol == Some(Protocol::Udp) {
        return Err(never("ports of sandboxes are TCP ports").with_hint("Omit udp@."));
    }
    if rule.ports.ranges() == [DNS_PORT..=DNS_PORT] {
        return Err(never("every request to port 53 is answered by the sandbox's own resolver").with_hint(
            "Allow the names to be resolved. To have them resolved elsewhere, give the sandbox other nameservers.",
        ));
    }
    Ok(())
}

/// Refuses a rule of which an earlier one with the opposite effect leaves nothing. One with the same effect changes
/// nothing, so the rule may stay.
fn check_reached(rule: &PlacedRule, earlier: &[PlacedRule]) -> Result<()> {
    let shadows = |before: &&PlacedRule| {
        before.rule.action != rule.rule.action && overlap::covers(&before.rule, &rule.rule)
    };
    let Some(before) = earlier.iter().find(shadows) else { return Ok(()) };
    let (own, theirs) = (rule.rule.text().to_string(), before.rule.text().to_string());
    let action = before.rule.action;
    Err(Error::invalid(format!(
        "{own:?} can never match: {before} ({action} {theirs}) comes first and matches all of it"
    ))
    .with_hint(
        "Omit one of them, or use rules to put them in another order: the first that matches decides.",
    ))
}

/// Refuses a rule of which a ceiling leaves nothing.
fn check_ceiling(placed: &PlacedRule, ceiling: &Policy) -> Result<()> {
    let forbids = match (placed.rule.action, overlap::forbids(ceiling, &placed.rule)) {
        (RuleAction::Deny, _) | (RuleAction::Allow, None) => return Ok(()),
        (RuleAction::Allow, Some(forbids)) => forbids,
    };
    let ceiling = "forbidden by a ceiling that the operator set, by its";
    let why = match forbids {
        Forbids::Rule(rule) => format!("{ceiling} rule {} {}", rule.action, rule.text()),
        // What keys reach where the operator set nothing.
        Forbids::Preset(Preset::Packages) => {
            "beyond package indexes, which are all that keys reach here; package managers reach theirs without a rule"
                .to_owned()
        }
        Forbids::Preset(preset) => format!("{ceiling} preset `{preset}`"),
    };
    let rule = placed.rule.text().to_string();
    Err(beyond(format!("{rule:?} is {why}")).with_next(Next::AskNetwork(vec![rule])))
}

/// Refuses a preset that was asked for and of which a ceiling without exceptions allows less.
fn check_preset(asked: Option<Preset>, ceiling: &Policy) -> Result<()> {
    let has_exceptions = ceiling.rules.iter().any(|rule| rule.action == RuleAction::Allow);
    match asked {
        Some(preset) if preset > ceiling.preset && !has_exceptions => {
            let most = ceiling.preset;
            Err(beyond(format!("preset: `{preset}` is beyond the ceiling that the operator set, `{most}`"))
                .with_next(Next::AskNetwork(Vec::new())))
        }
        _ => Ok(()),
    }
}

fn beyond(message: String) -> Error {
    Error::new(ErrorKind::Denied, message)
}

fn decide_dns(asked: &DnsSpec, own: &Policy, ceilings: &[Policy]) -> Result<DnsPlan> {
    let n_servers = asked.nameservers.len();
    if n_servers > MAX_NAMESERVERS {
        return Err(Error::invalid(format!(
            "dns.nameservers: there are {n_servers}; the limit is {MAX_NAMESERVERS}"
        )));
    }
    for (index, server) in asked.nameservers.iter().enumerate() {
        check_nameserver(*server, own, ceilings)
            .map_err(|error| error.reworded(|words| format!("dns.nameservers[{index}]: {words}")))?;
    }
    let query_timeout_ms = asked.query_timeout_ms.unwrap_or(DEFAULT_QUERY_TIMEOUT_MS);
    if !QUERY_TIMEOUTS_MS.contains(&query_timeout_ms) {
        let (least, most) = QUERY_TIMEOUTS_MS.into_inner();
        return Err(Error::invalid(format!(
            "dns.queryTimeoutMs: the time is {query_timeout_ms}; it must be between {least} and {most}"
        ))
        .with_hint(format!("Omit it for the usual {DEFAULT_QUERY_TIMEOUT_MS}.")));
    }
    let records: BTreeSet<_> = asked.records.iter().copied().collect();
    let records = if records.is_empty() { DEFAULT_RECORDS.to_vec() } else { records.into_iter().collect() };
    Ok(DnsPlan { nameservers: asked.nameservers.clone(), records, query_timeout_ms })
}

/// A server that is named may be asked whatever the preset is, but not against a rule.
fn check_nameserver(server: IpAddr, own: &Policy, ceilings: &[Policy]) -> Result<()> {
    let nowhere = Surroundings::default();
    if is_no_nameserver(server, &nowhere) {
        return Err(Error::invalid(format!("{server} cannot be a nameserver of a sandbox"))
            .with_hint("Give the address of a server on a network, or omit it for the host's own."));
    }
    if let Some(rule) = denying(own, &ClassifiedAddress::somewhere_at(server, &nowhere)) {
        let rule = rule.text().to_string();
        return Err(Error::invalid(format!("{server} cannot be asked: the rule deny {rule} comes first"))
            .with_hint("Omit the server or the rule, or allow the server by a rule before it."));
    }
    if ceilings
        .iter()
        .any(|ceiling| !could_pass(ceiling, &ClassifiedAddress::somewhere_at(server, &nowhere), None))
    {
        return Err(beyond(format!("{server} is beyond a ceiling that the operator set"))
            .with_hint("Omit it for the host's own nameservers, or ask the operator to allow it."));
    }
    Ok(())
}

/// The rule by which a policy denies questions to a server. One about everything is not meant: the server was named.
fn denying<'a>(policy: &'a Policy, server: &ClassifiedAddress<'_>) -> Option<&'a Rule> {
    let is_about = |rule: &&Rule| {
        // A rule that allows is mostly written for TCP, as rules are, and means questions too.
        let asks = rule.action == RuleAction::Allow || rule.applies_to(Protocol::Udp);
        let is_wide = rule.target == Target::Group(Group::Any);
        asks && !is_wide && rule.ports.contains(DNS_PORT) && target_matches(rule, policy.preset, server, None)
    };
    policy.rules.iter().find(is_about).filter(|rule| rule.action == RuleAction::Deny)
}

fn is_no_nameserver(server: IpAddr, around: &Surroundings) -> bool {
    let group = around.group(server);
    matches!(group, Some(Group::Loopback | Group::Meta | Group::Host | Group::Multicast))
}

impl NetworkPlan {
    /// Whether a nameserver of [`DnsPlan::nameservers`] may be asked, now that the host's surroundings are known.
    pub fn may_ask(&self, server: IpAddr, around: &Surroundings) -> bool {
        let place = ClassifiedAddress::somewhere_at(server, around);
        !is_no_nameserver(server, around)
            && !around.is_closed(server, DNS_PORT)
            && denying(&self.own, &place).is_none()
            && self.ceilings.iter().all(|ceiling| could_pass(ceiling, &place, None))
    }
}

fn decide_limits(asked: &NetworkLimitsSpec) -> Result<NetworkLimits> {
    let usual = NetworkLimits::default();
    let one = |name: &str, asked: Option<u32>, usual: u32, most: u32| match asked {
        Some(value) if !(1..=most).contains(&value) => Err(Error::invalid(format!(
            "limits.{name}: the limit is {value}; it must be between 1 and {most}"
        ))),
        asked => Ok(asked.unwrap_or(usual)),
    };
    if let Some(rate) = asked.bytes_per_second.filter(|rate| *rate < MIN_BYTES_PER_SECOND) {
        return Err(Error::invalid(format!(
            "limits.bytesPerSecond: the limit is {rate}; the minimum is {MIN_BYTES_PER_SECOND}"
        )));
    }
    Ok(NetworkLimits {
        connections: one("connections", asked.connections, usual.connections, MAX_CONNECTIONS)?,
        udp_flows: one("udpFlows", asked.udp_flows, usual.udp_flows, MAX_CONNECTIONS)?,
        connects_per_second: one(
            "connectsPerSecond",
            asked.connects_per_second,
            usual.connects_per_second,
            MAX_CONNECTS_PER_SECOND,
        )?,
        dns_per_second: one("dnsPerSecond", asked.dns_per_second, usual.dns_per_second, MAX_DNS_PER_SECOND)?,
        bytes_per_second: asked.bytes_per_second,
        ..usual
    })
}
