//! Rules and networks as strangers write them: each is read as one thing, and every flow is decided.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use sandbox::{
    DnsName, NetworkPlan, NetworkSpec, Policy,
    network::{Flow, HOST_ADDRESS, IpNet, Protocol, Rule, Surroundings},
    plan_network,
};

const PORTS: [u16; 5] = [0, 53, 80, 443, u16::MAX];

/// One address of each group, and those that the input names.
fn addresses(bits: u128) -> [IpAddr; 9] {
    [
        Ipv6Addr::from_bits(bits).into(),
        Ipv4Addr::from_bits(bits as u32).into(),
        Ipv4Addr::from_bits(bits as u32).to_ipv6_mapped().into(),
        Ipv4Addr::new(93, 184, 216, 34).into(),
        Ipv4Addr::new(10, 0, 0, 5).into(),
        Ipv4Addr::new(169, 254, 169, 254).into(),
        HOST_ADDRESS.into(),
        Ipv4Addr::LOCALHOST.into(),
        Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0, 0, 1).into(),
    ]
}

/// Decides every flow, and says so in words. Metadata services are open only to a rule that names them.
fn decide_all(plan: &NetworkPlan, bits: u128, names: &[DnsName]) {
    let around = Surroundings {
        host: vec![Ipv4Addr::new(10, 0, 0, 5).into()],
        closed: vec![(Ipv4Addr::UNSPECIFIED, 443).into()],
        ..Surroundings::default()
    };
    for address in addresses(bits) {
        for port in PORTS {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let flow = Flow { protocol, address, port, names };
                let verdict = plan.decide(&flow, &around);
                assert!(!plan.describe(verdict.by()).is_empty());
                assert!(verdict.is_denied() || !around.is_closed(address, port), "{plan:?} {flow:?}");
                if let Some(rule) = plan.rule_that_allows(&flow, &around) {
                    assert_eq!(rule.to_string().parse::<Rule>().ok(), Some(rule));
                }
            }
        }
        for name in names {
            plan.may_answer(name, address, &around);
        }
        plan.may_ask(address, &around);
    }
    for name in names {
        assert!(!plan.describe(plan.decide_name(name).by()).is_empty());
    }
}

fuzz_target!(|input: (String, Vec<String>, Vec<String>, u128)| {
    let (text, names, rules, bits) = input;
    if let Ok(rule) = text.parse::<Rule>() {
        assert_eq!(rule.to_string().parse::<Rule>().ok().as_ref(), Some(&rule), "{text:?}");
    }
    if let Ok(net) = text.parse::<IpNet>() {
        assert_eq!(net.to_string().parse(), Ok(net), "{text:?}");
    }
    if let Ok(name) = text.parse::<DnsName>() {
        assert_eq!(name.as_str().parse(), Ok(name.clone()), "{text:?}");
    }
    let names: Vec<DnsName> = names.iter().take(4).filter_map(|name| name.parse().ok()).collect();
    // A ceiling of whatever can be read; rules alone, since one that is wrong spoils a whole request.
    let rules: Vec<Rule> = rules.iter().take(16).filter_map(|rule| rule.parse().ok()).collect();
    let spec: NetworkSpec = serde_json::from_str(&text).unwrap_or_default();
    let ceiling = Policy { preset: spec.preset.unwrap_or_default(), rules: rules.clone() };
    decide_all(&NetworkPlan { own: ceiling.clone(), ..NetworkPlan::default() }, bits, &names);
    if let Ok(plan) = plan_network(&spec, &[ceiling]) {
        let json = serde_json::to_string(&plan).expect("a plan is JSON");
        assert_eq!(serde_json::from_str::<NetworkPlan>(&json).ok().as_ref(), Some(&plan));
        decide_all(&plan, bits, &names);
    }
    let allow = rules.iter().map(|rule| rule.text().to_string()).collect();
    let _refused = plan_network(&NetworkSpec { allow, ..NetworkSpec::default() }, &[]);
});
