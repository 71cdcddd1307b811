//! Properties that hold for every policy and every flow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{overlap, *};
use crate::NetworkRequestId;

fn some_name() -> impl Strategy<Value = DnsName> {
    let label = || select(vec!["a", "b", "xn--bcher-kva", "corp"]);
    let parts = vec(label(), 0..3).prop_map(|mut labels| {
        labels.push("example");
        labels.join(".")
    });
    // Names that are words of rules too.
    let parts = prop_oneof![9 => parts, 1 => select(vec!["meta", "host", "sandbox", HOST_NAME]).prop_map(str::to_owned)];
    parts.prop_map(|text| text.parse().unwrap())
}

/// Addresses of every group, and any others.
fn some_address() -> impl Strategy<Value = IpAddr> {
    let known = [
        "93.184.216.34",
        "93.184.216.5",
        "10.0.0.5",
        "10.0.0.6",
        "10.2.0.7",
        "169.254.1.2",
        "169.254.7.7",
        "169.254.169.254",
        "168.63.129.16",
        "127.0.0.1",
        "224.0.0.1",
        "198.18.0.1",
        "2606:4700::1",
        "2606:4700:1::7",
        "fd00:ec2::254",
        "fe80::1",
        "::1",
        "64:ff9b:1::a9fe:a9fe",
    ];
    prop_oneof![
        8 => select(known.map(|text| text.parse::<IpAddr>().unwrap()).to_vec()),
        1 => any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into()),
        1 => any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).into()),
    ]
}

fn some_net() -> impl Strategy<Value = IpNet> {
    (some_address(), 0..=128_u8).prop_filter_map("a range", |(address, prefix)| {
        let address = canonical(address);
        let prefix = if address.is_ipv4() { prefix % 33 } else { prefix };
        IpNet::new(super::address::mask(address, prefix), prefix).ok()
    })
}

/// Few enough that all properties take some seconds together.
const CASES: u32 = 512;
const PORTS: [u16; 6] = [22, 80, 443, 3000, 5432, 15432];

fn some_ports() -> impl Strategy<Value = Ports> {
    let text = select(vec!["80", "443", "80,443", "1-1024", "3000", "5432", "15432", "22,5000-6000"]);
    text.prop_map(|text| text.parse().unwrap())
}

fn some_rule() -> impl Strategy<Value = Rule> {
    let target = prop_oneof![
        some_name().prop_map(Target::Name),
        some_name().prop_map(Target::Wildcard),
        some_name().prop_map(Target::Apex),
        some_net().prop_map(Target::Net),
        some_address().prop_map(|address| Target::Net(IpNet::single(address))),
        select(Group::ALL.to_vec()).prop_map(Target::Group),
        Just(Target::HostPort),
        select(vec!["db", "web"]).prop_map(|name| Target::Sandbox(name.parse().unwrap())),
    ];
    let action = select(vec![RuleAction::Allow, RuleAction::Deny]);
    let protocol = option::of(some_protocol());
    (action, target, protocol, option::of(some_ports()), some_ports()).prop_map(
        |(action, target, protocol, ports, needed)| {
            let ports = match target {
                Target::HostPort | Target::Sandbox(_) => needed,
                Target::Group(Group::Host) => Ports::all(),
                _ => ports.unwrap_or_default(),
            };
            Rule { action, target, protocol, ports }
        },
    )
}

fn some_protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![3 => Just(Protocol::Tcp), 1 => Just(Protocol::Udp)]
}

fn some_preset() -> impl Strategy<Value = Preset> {
    select(Preset::ALL.to_vec())
}

fn some_policy() -> impl Strategy<Value = Policy> {
    (some_preset(), vec(some_rule(), 0..5)).prop_map(|(preset, rules)| Policy { preset, rules })
}

fn some_plan() -> impl Strategy<Value = NetworkPlan> {
    (some_policy(), vec(some_policy(), 0..3)).prop_map(|(own, ceilings)| NetworkPlan {
        own,
        ceilings,
        ..NetworkPlan::default()
    })
}

fn some_surroundings() -> impl Strategy<Value = Surroundings> {
    let published = |namespace: &str| PublishedPort {
        namespace: namespace.parse().unwrap(),
        name: "db".parse().unwrap(),
        port: 5432,
    };
    let full = Surroundings {
        host: ["127.0.0.1", "10.0.0.5", "93.184.216.5"].map(|text| text.parse().unwrap()).to_vec(),
        on_link: ["10.0.0.0/24", "2606:4700:1::/64"].map(|text| text.parse().unwrap()).to_vec(),
        closed: vec!["127.0.0.1:22".parse().unwrap()],
        published: [(15432, published("default")), (443, published("red"))].into(),
    };
    prop_oneof![2 => Just(full), 1 => Just(Surroundings::default())]
}

#[derive(Debug, Clone)]
struct OwnedFlow {
    protocol: Protocol,
    address: IpAddr,
    port: u16,
    names: Vec<DnsName>,
}

impl OwnedFlow {
    fn as_flow(&self) -> Flow<'_> {
        let Self { protocol, address, port, names } = self;
        Flow { protocol: *protocol, address: *address, port: *port, names }
    }
}

fn some_flow() -> impl Strategy<Value = OwnedFlow> {
    let parts = (some_protocol(), some_address(), select(PORTS.to_vec()), vec(some_name(), 0..3));
    parts.prop_map(|(protocol, address, port, names)| OwnedFlow { protocol, address, port, names })
}

/// Whether everything that `narrow` lets pass, `wide` lets pass too.
fn is_within(narrow: &Verdict, wide: &Verdict) -> bool {
    match (narrow, wide) {
        (Verdict::Deny { .. }, _) | (_, Verdict::Allow { .. }) => true,
        (Verdict::AllowNamed { names, .. }, Verdict::AllowNamed { names: more, .. }) => {
            names.iter().all(|name| more.contains(name))
        }
        _ => false,
    }
}

fn same_effect(one: &Verdict, other: &Verdict) -> bool {
    is_within(one, other) && is_within(other, one)
}

/// The IPv6 addresses that carry an IPv4 address.
fn forms(four: Ipv4Addr) -> Vec<IpAddr> {
    let [high, low] = [(four.to_bits() >> 16) as u16, four.to_bits() as u16];
    let mut forms = vec![
        Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
        Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0x2002, high, low, 7, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !high, !low),
    ];
    if four.to_bits() > 1 {
        forms.push(Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low));
    }
    forms.into_iter().map(IpAddr::V6).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_rule_reads_back_as_itself(rule in some_rule()) {
        prop_assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
    }

    #[test]
    fn any_text_is_a_rule_or_an_error(text in "\\PC{0,60}") {
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
        }
    }

    #[test]
    fn what_looks_like_a_rule_is_one_or_an_error(
        text in "(deny |allow )?(udp@|tcp@)?(\\*{0,3}\\.?[a-z0-9.\\[\\]:/-]{0,30})(:[0-9,-]{0,12})?"
    ) {
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
        }
    }

    #[test]
    fn a_ceiling_only_narrows(
        plan in some_plan(), ceiling in some_policy(), flow in some_flow(), around in some_surroundings()
    ) {
        let mut under = plan.clone();
        under.ceilings.push(ceiling);
        let (narrow, wide) = (under.decide(&flow.as_flow(), &around), plan.decide(&flow.as_flow(), &around));
        prop_assert!(is_within(&narrow, &wide), "{:?} {:?}", narrow, wide);
        for name in &flow.names {
            prop_assert!(under.decide_name(name).is_denied() || !plan.decide_name(name).is_denied());
            let may = |plan: &NetworkPlan| plan.may_answer(name, flow.address, &around);
            prop_assert!(!may(&under) || may(&plan));
        }
    }

    #[test]
    fn a_grant_opens_no_more_than_its_rules_under_its_ceilings(
        plan in some_plan(), granted in vec(some_rule(), 1..4), ceiling in some_policy(),
        flow in some_flow(), around in some_surroundings()
    ) {
        let policy = Policy { preset: Preset::None, rules: granted };
        let (id, ceilings) = (NetworkRequestId::from_random([1; 8]), vec![ceiling]);
        let alone = NetworkPlan { own: policy.clone(), ceilings: ceilings.clone(), ..NetworkPlan::default() };
        let open = NetworkPlan { grants: vec![NetworkGrant { id, policy, ceilings }], ..plan.clone() };
        let judged = |plan: &NetworkPlan| plan.decide(&flow.as_flow(), &around);
        prop_assert!(is_within(&judged(&plan), &judged(&open)), "a grant closes nothing");
        if judged(&plan).is_denied() && judged(&alone).is_denied() && flow.names.len() < 2 {
            prop_assert!(judged(&open).is_denied(), "{:?}", judged(&open));
        }
        let mut shut = open.clone();
        shut.own.rules.insert(0, "deny any".parse().unwrap());
        prop_assert!(judged(&shut).is_denied(), "rules that deny stand above grants");
        for name in &flow.names {
            let is_denied = |plan: &NetworkPlan| plan.decide_name(name).is_denied();
            prop_assert!(!is_denied(&open) || is_denied(&plan));
            prop_assert!(is_denied(&open) || !is_denied(&plan) || !is_denied(&alone));
            let may = |plan: &NetworkPlan| plan.may_answer(name, flow.address, &around);
            prop_assert!(may(&open) || !may(&plan));
            prop_assert!(!may(&open) || may(&plan) || may(&alone));
        }
    }

    #[test]
    fn a_rule_that_denies_never_widens(
        plan in some_plan(), rule in some_rule(), at in any::<prop::sample::Index>(),
        flow in some_flow(), around in some_surroundings()
    ) {
        let mut stricter = plan.clone();
        let at = at.index(plan.own.rules.len() + 1);
        stricter.own.rules.insert(at, Rule { action: RuleAction::Deny, ..rule });
        let (narrow, wide) = (stricter.decide(&flow.as_flow(), &around), plan.decide(&flow.as_flow(), &around));
        prop_assert!(is_within(&narrow, &wide), "{:?} {:?}", narrow, wide);
    }

    #[test]
    fn a_lower_preset_never_widens(
        plan in some_plan(), preset in some_preset(), flow in some_flow(), around in some_surroundings()
    ) {
        let mut other = plan.clone();
        other.own.preset = preset.min(plan.own.preset);
        let (narrow, wide) = (other.decide(&flow.as_flow(), &around), plan.decide(&flow.as_flow(), &around));
        prop_assert!(is_within(&narrow, &wide), "{:?} {:?}", narrow, wide);
    }

    #[test]
    fn rules_after_the_one_that_matched_do_not_matter(
        policy in some_policy(), others in vec(some_rule(), 0..3), mut flow in some_flow(),
        around in some_surroundings()
    ) {
        flow.names.truncate(1);
        let plan = NetworkPlan { own: policy, ..NetworkPlan::default() };
        let judged = |plan: &NetworkPlan| plan.decide(&flow.as_flow(), &around);
        // With a name there are two judgements: by the address alone, and as the name.
        let alone = Flow { names: &[], ..flow.as_flow() };
        let last = [judged(&plan), plan.decide(&alone, &around)].iter().map(|verdict| verdict.by().rule).max();
        if let (Some(Some(last)), true) = (last, flow.names.is_empty()) {
            let mut replaced = plan.clone();
            replaced.own.rules.truncate(last + 1);
            replaced.own.rules.extend(others);
            prop_assert_eq!(judged(&replaced), judged(&plan));
        }
    }

    #[test]
    fn what_is_denied_first_stays_denied(
        plan in some_plan(), flow in some_flow(), around in some_surroundings()
    ) {
        let mut closed = plan;
        closed.own.rules.insert(0, "deny any".parse().unwrap());
        prop_assert!(closed.decide(&flow.as_flow(), &around).is_denied());
        for name in &flow.names {
            prop_assert!(closed.decide_name(name).is_denied());
            prop_assert!(!closed.may_answer(name, flow.address, &around));
        }
    }

    #[test]
    fn every_form_of_an_address_has_the_same_verdict(
        plan in some_plan(), mut flow in some_flow(), around in some_surroundings()
    ) {
        let IpAddr::V4(four) = flow.address else { return Ok(()) };
        let expected = plan.decide(&flow.as_flow(), &around);
        for form in forms(four) {
            flow.address = form;
            prop_assert_eq!(&plan.decide(&flow.as_flow(), &around), &expected, "{}", form);
        }
    }

    #[test]
    fn what_may_pass_may_be_resolved_and_answered(
        plan in some_plan(), flow in some_flow(), around in some_surroundings()
    ) {
        let passes = match plan.decide(&flow.as_flow(), &around) {
            Verdict::AllowNamed { names, .. } => names,
            Verdict::Allow { .. } => flow.names.clone(),
            Verdict::Deny { .. } => Vec::new(),
        };
        for name in &passes {
            prop_assert!(plan.may_answer(name, flow.address, &around), "{}", name);
        }
        let alone = Flow { names: &[], ..flow.as_flow() };
        // A name that passes where its address alone would not is in a rule.
        if plan.ceilings.is_empty() && plan.decide(&alone, &around).is_denied() {
            for name in &passes {
                prop_assert!(!plan.decide_name(name).is_denied(), "{}", name);
            }
        }
    }

    #[test]
    fn guards_hold_without_a_rule_of_their_own(
        preset in some_preset(), rules in vec(some_rule(), 0..5), flow in some_flow(),
        around in some_surroundings()
    ) {
        let opens = |rule: &Rule| match &rule.target {
            Target::Group(group) => matches!(group, Group::Meta | Group::Host | Group::Loopback),
            Target::HostPort | Target::Sandbox(_) => true,
            Target::Net(net) => net.is_single(),
            Target::Name(_) | Target::Wildcard(_) | Target::Apex(_) => false,
        };
        let rules = rules.into_iter().filter(|rule| !opens(rule)).collect();
        let plan = NetworkPlan { own: Policy { preset, rules }, ..NetworkPlan::default() };
        let group = around.group(flow.address);
        if matches!(group, Some(Group::Meta | Group::Host | Group::Loopback)) {
            prop_assert!(plan.decide(&flow.as_flow(), &around).is_denied());
        }
    }

    #[test]
    fn closed_listeners_are_never_reached(plan in some_plan(), mut flow in some_flow(), around in some_surroundings()) {
        flow.port = 22;
        if around.is_closed(flow.address, flow.port) {
            prop_assert!(plan.decide(&flow.as_flow(), &around).is_denied());
            prop_assert_eq!(plan.rule_that_allows(&flow.as_flow(), &around), None);
        }
    }

    #[test]
    fn the_rule_that_would_allow_a_flow_does(
        preset in some_preset(), mut flow in some_flow(), around in some_surroundings()
    ) {
        flow.names.truncate(1);
        let nothing = NetworkPlan { own: Policy { preset, rules: Vec::new() }, ..NetworkPlan::default() };
        if let Some(rule) = nothing.rule_that_allows(&flow.as_flow(), &around)
            && !matches!((&rule.target, flow.protocol), (Target::Sandbox(_), Protocol::Udp))
        {
            let own = Policy { preset, rules: vec![rule] };
            let allowed = NetworkPlan { own, ..NetworkPlan::default() };
            prop_assert!(!allowed.decide(&flow.as_flow(), &around).is_denied());
        }
    }

    #[test]
    fn a_rule_called_shadowed_changes_nothing(
        preset in some_preset(), first in some_rule(), second in some_rule(), flow in some_flow(),
        around in some_surroundings()
    ) {
        let protocol = second.protocol.unwrap_or(Protocol::Tcp);
        if first.action != second.action && overlap::covers(&first, &second) && flow.protocol == protocol {
            let policy = |rules| NetworkPlan { own: Policy { preset, rules }, ..NetworkPlan::default() };
            let one = policy(vec![first.clone()]).decide(&flow.as_flow(), &around);
            let both = policy(vec![first, second]).decide(&flow.as_flow(), &around);
            prop_assert!(same_effect(&one, &both), "{:?} {:?}", one, both);
        }
    }

    #[test]
    fn a_rule_called_forbidden_lets_nothing_pass(
        ceiling in some_policy(), rule in some_rule(), flow in some_flow(), around in some_surroundings()
    ) {
        let rule = Rule { action: RuleAction::Allow, ..rule };
        if overlap::forbids(&ceiling, &rule).is_some() {
            let own = Policy { preset: Preset::All, rules: vec![rule, "deny any".parse().unwrap()] };
            let plan = NetworkPlan { own, ceilings: vec![ceiling], ..NetworkPlan::default() };
            let verdict = plan.decide(&flow.as_flow(), &around);
            prop_assert!(verdict.is_denied(), "{:?}", verdict);
        }
    }

    #[test]
    fn decisions_have_words(plan in some_plan(), flow in some_flow(), around in some_surroundings()) {
        let verdict = plan.decide(&flow.as_flow(), &around);
        let verb = if verdict.is_denied() { "denied" } else { "allowed" };
        let words = plan.describe(verdict.by());
        prop_assert!(words.starts_with(verb), "{:?} {}", verdict, words);
        for name in &flow.names {
            let verdict = plan.decide_name(name);
            let verb = if verdict.is_denied() { "denied" } else { "allowed" };
            prop_assert!(plan.describe(verdict.by()).starts_with(verb));
        }
    }

    #[test]
    fn a_plan_reads_back_as_itself(plan in some_plan()) {
        let json = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(serde_json::from_str::<NetworkPlan>(&json).unwrap(), plan);
    }
}
