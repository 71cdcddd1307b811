//! Stories of policies: what passes, and in which words it is refused.

use std::net::IpAddr;

use super::*;
use crate::{ErrorKind, Next, Result};

fn spec(preset: Preset, allow: &[&str], deny: &[&str]) -> NetworkSpec {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    NetworkSpec { allow: texts(allow), deny: texts(deny), ..NetworkSpec::preset(preset) }
}

fn planned(preset: Preset, allow: &[&str], deny: &[&str]) -> NetworkPlan {
    plan_network(&spec(preset, allow, deny), &[]).unwrap()
}

fn name(text: &str) -> DnsName {
    text.parse().unwrap()
}

fn around() -> Surroundings {
    let published =
        PublishedPort { namespace: "default".parse().unwrap(), name: "db".parse().unwrap(), port: 5432 };
    Surroundings {
        host: ["127.0.0.1", "10.0.0.5", "93.184.216.5"].map(|text| text.parse().unwrap()).to_vec(),
        on_link: ["10.0.0.0/24", "2606:4700:1::/64"].map(|text| text.parse().unwrap()).to_vec(),
        closed: vec!["127.0.0.1:7777".parse().unwrap()],
        published: [(15432, published)].into(),
    }
}

/// The verdict in words. `to`: `[udp@]address:port`, and the names that led there.
fn verdict(plan: &NetworkPlan, to: &str, names: &[&str]) -> String {
    let (protocol, to) = match to.strip_prefix("udp@") {
        Some(to) => (Protocol::Udp, to),
        None => (Protocol::Tcp, to),
    };
    let to: std::net::SocketAddr = to.parse().unwrap();
    let names: Vec<_> = names.iter().map(|text| name(text)).collect();
    let flow = Flow { protocol, address: to.ip(), port: to.port(), names: &names };
    let verdict = plan.decide(&flow, &around());
    let words = plan.describe(verdict.by());
    match verdict {
        Verdict::AllowNamed { names, .. } => {
            let names: Vec<_> = names.iter().map(DnsName::as_str).collect();
            format!("as {}: {words}", names.join(", "))
        }
        Verdict::Allow { .. } => {
            assert!(words.starts_with("allowed"), "{words}");
            words
        }
        Verdict::Deny { .. } => {
            assert!(words.starts_with("denied"), "{words}");
            words
        }
    }
}

#[track_caller]
fn check(plan: &NetworkPlan, to: &str, names: &[&str], expected: &str) {
    assert_eq!(verdict(plan, to, names), expected, "{to} {names:?}");
}

#[test]
fn presets_reach_what_they_say() {
    let places = [
        ("public", "93.184.216.34:443"),
        ("private", "10.1.2.3:443"),
        ("link-local", "169.254.7.7:443"),
        ("udp", "udp@93.184.216.34:443"),
        ("reserved", "198.18.0.1:443"),
        ("meta", "169.254.169.254:80"),
        ("host", "10.0.0.5:80"),
        ("neighbour", "[2606:4700:1::7]:443"),
        ("azure", "168.63.129.16:80"),
        ("host by its public address", "93.184.216.5:443"),
        ("host by its name", "169.254.1.2:443"),
        ("loopback", "127.0.0.1:443"),
        ("mapped meta", "[::ffff:169.254.169.254]:80"),
        ("hidden", "[64:ff9b:1::a9fe:a9fe]:80"),
    ];
    for (preset, expected) in [
        (Preset::None, &[][..]),
        (Preset::Packages, &[]),
        (Preset::Public, &["public"]),
        (Preset::PublicPrivate, &["public", "private", "neighbour"]),
        (Preset::All, &["public", "private", "link-local", "udp", "reserved", "neighbour"]),
    ] {
        let plan = planned(preset, &[], &[]);
        let reached: Vec<_> = places
            .iter()
            .filter(|(_, to)| verdict(&plan, to, &[]).starts_with("allowed"))
            .map(|(what, _)| *what)
            .collect();
        assert_eq!(reached, expected, "{preset}");
        assert_eq!(plan.needs_edge(), preset > Preset::Packages, "{preset}");
        assert_eq!(plan.reaches_packages(), preset > Preset::None, "{preset}");
    }
}

#[test]
fn decisions_are_told_in_words() {
    check(
        &planned(Preset::Packages, &[], &[]),
        "93.184.216.34:443",
        &[],
        "denied: the preset `packages` reaches package indexes only",
    );
    check(
        &planned(Preset::None, &[], &[]),
        "93.184.216.34:443",
        &[],
        "denied: the preset `none` reaches nothing",
    );
    let plan = planned(Preset::Public, &["host:3000"], &["bad.example", "*.corp.example"]);
    check(&plan, "93.184.216.34:443", &[], "allowed: the preset `public` reaches the internet");
    check(
        &plan,
        "93.184.216.34:443",
        &["git.corp.example"],
        "denied by rule 2 of the sandbox's policy: deny *.corp.example",
    );
    check(
        &plan,
        "169.254.1.2:3000",
        &[HOST_NAME],
        "allowed by rule 3 of the sandbox's policy: allow host:3000",
    );
    check(&plan, "169.254.1.2:3001", &[HOST_NAME], "denied: the preset `public` does not reach the host");
    check(&plan, "10.0.0.5:15432", &[], "denied: that port of the host leads to another sandbox");
    check(&plan, "10.0.0.5:7777", &[], "denied: the sandbox manager itself listens there");
    check(&plan, "10.9.9.9:80", &[], "denied: the preset `public` does not reach private networks");
    check(&plan, "198.18.0.1:80", &[], "denied: the preset `public` does not reach reserved addresses");
    check(&plan, "169.254.169.254:80", &[], "denied: the preset `public` does not reach metadata services");
    check(
        &plan,
        "udp@93.184.216.34:443",
        &[],
        "denied: the preset `public` reaches it over TCP only; UDP needs a rule",
    );
    let ceiling = Policy::from_spec(&spec(Preset::Public, &[], &["*.evil.example"])).unwrap();
    let under = NetworkPlan { ceilings: vec![ceiling], ..planned(Preset::All, &[], &[]) };
    check(
        &under,
        "93.184.216.34:443",
        &["a.evil.example"],
        "denied by rule 1 of the ceiling: deny *.evil.example",
    );
    check(
        &under,
        "10.9.9.9:80",
        &[],
        "denied: the preset `public` of the ceiling does not reach private networks",
    );
    let stale = RuleRef { policy: PolicyRef::Ceiling(7), rule: Some(3), cause: Cause::Rule };
    assert_eq!(under.describe(&stale), "decided by an earlier policy");
}

#[test]
fn a_name_rule_opens_only_addresses_that_the_name_led_to() {
    let plan = planned(Preset::None, &["api.example.org:443", "*.cdn.example"], &[]);
    let by_first = "as api.example.org: allowed by rule 1 of the sandbox's policy: allow api.example.org:443";
    check(&plan, "93.184.216.34:443", &["api.example.org"], by_first);
    let none = "denied: the preset `none` reaches nothing";
    check(&plan, "93.184.216.34:443", &[], none);
    check(&plan, "93.184.216.34:80", &["api.example.org"], none);
    check(&plan, "udp@93.184.216.34:443", &["api.example.org"], none);
    check(&plan, "93.184.216.34:443", &["cdn.example"], none);
    check(&plan, "93.184.216.34:443", &["api.example.org.evil.test"], none);
    // An address that two names share passes as the one that is allowed.
    check(&plan, "93.184.216.34:443", &["evil.test", "api.example.org"], by_first);
}

#[test]
fn a_denied_name_stays_denied_where_it_shares_an_address() {
    let plan = planned(Preset::Public, &[], &["*.corp.example"]);
    let public = "allowed: the preset `public` reaches the internet";
    check(&plan, "93.184.216.34:443", &["fine.example"], public);
    check(
        &plan,
        "93.184.216.34:443",
        &["fine.example", "git.corp.example"],
        &format!("as fine.example: {public}"),
    );
}

#[test]
fn names_do_not_lead_into_private_networks_unless_a_rule_opens_them() {
    let plan = planned(Preset::None, &["git.corp.example", "10.2.0.0/16:5432"], &[]);
    let leads =
        "denied: the name is allowed, but it leads to private networks, which needs a rule of its own";
    check(&plan, "10.9.0.1:443", &["git.corp.example"], leads);
    check(
        &plan,
        "10.2.0.1:5432",
        &["git.corp.example"],
        "allowed by rule 2 of the sandbox's policy: allow 10.2.0.0/16:5432",
    );
    let git = name("git.corp.example");
    let may = |plan: &NetworkPlan, address: &str| plan.may_answer(&git, address.parse().unwrap(), &around());
    assert!(may(&plan, "93.184.216.34") && may(&plan, "10.2.0.1"));
    for address in ["10.9.0.1", "127.0.0.1", "169.254.169.254", "10.0.0.5", "::ffff:10.9.0.1", "0.0.0.0"] {
        assert!(!may(&plan, address), "{address}");
    }
    assert!(may(&planned(Preset::PublicPrivate, &["git.corp.example"], &[]), "10.9.0.1"));
    assert!(!may(&planned(Preset::All, &["host:3000"], &[]), "127.0.0.1"));
}

#[test]
fn guarded_places_need_a_rule_of_their_own() {
    let wide = planned(
        Preset::All,
        &["any", "private", "0.0.0.0/0", "169.254.0.0/16", "10.0.0.0/24", "link-local", "::/0"],
        &[],
    );
    for to in ["169.254.169.254:80", "10.0.0.5:80", "93.184.216.5:443", "169.254.1.2:80", "127.0.0.1:80"] {
        assert!(verdict(&wide, to, &[]).starts_with("denied"), "{to}");
    }
    let named = planned(Preset::None, &["meta", "10.0.0.5:80", "93.184.216.5:15432"], &[]);
    for to in ["169.254.169.254:80", "[fd00:ec2::254]:80", "10.0.0.5:80"] {
        assert!(verdict(&named, to, &[]).starts_with("allowed"), "{to}");
    }
    check(&named, "93.184.216.5:15432", &[], "denied: that port of the host leads to another sandbox");
    // What the daemon listens on is never open.
    let host = planned(Preset::All, &["host", "loopback", "10.0.0.5:7777"], &[]);
    for to in ["10.0.0.5:7777", "169.254.1.2:7777", "127.0.0.1:7777", "[::ffff:10.0.0.5]:7777"] {
        assert!(verdict(&host, to, &[]).starts_with("denied"), "{to}");
    }
    assert!(verdict(&host, "10.0.0.5:7778", &[]).starts_with("allowed"));
}

#[test]
fn another_sandbox_is_reached_by_its_name_in_the_same_namespace() {
    let plan = planned(Preset::None, &["sandbox:db:5432"], &[]);
    check(&plan, "10.0.0.5:15432", &[], "allowed by rule 1 of the sandbox's policy: allow sandbox:db:5432");
    assert!(verdict(&plan, "10.0.0.6:15432", &[]).starts_with("denied"));
    assert!(
        verdict(&planned(Preset::None, &["sandbox:db:15432"], &[]), "10.0.0.5:15432", &[])
            .starts_with("denied")
    );
    let elsewhere = NetworkPlan { namespace: "red".parse().unwrap(), ..plan };
    assert!(verdict(&elsewhere, "10.0.0.5:15432", &[]).starts_with("denied"));
}

#[test]
fn names_are_resolved_only_where_a_rule_allows_them() {
    let may = |plan: &NetworkPlan, text: &str| !plan.decide_name(&name(text)).is_denied();
    let listed = planned(Preset::None, &["api.example.org:443", "**.pypi.org", "private", "10.0.0.0/8"], &[]);
    for text in ["api.example.org", "pypi.org", "files.pypi.org"] {
        assert!(may(&listed, text), "{text}");
    }
    for text in ["example.org", "x.api.example.org", "secret.evil.test", "printer.local", HOST_NAME] {
        assert!(!may(&listed, text), "{text}");
    }
    let public = planned(Preset::Public, &["host:3000"], &["*.corp.example", "half.example:80"]);
    assert!(may(&public, "anything.example") && may(&public, "half.example") && may(&public, HOST_NAME));
    assert!(!may(&public, "git.corp.example") && !may(&public, "metadata.google.internal"));
    assert!(may(&planned(Preset::None, &["meta"], &[]), "metadata.google.internal"));
    assert!(may(&planned(Preset::None, &["public:443"], &[]), "anything.example"));
    let denied = public.decide_name(&name("git.corp.example"));
    assert_eq!(public.describe(denied.by()), "denied by rule 1 of the sandbox's policy: deny *.corp.example");
    let packages = NetworkPlan::default();
    let denied = packages.decide_name(&name("example.org"));
    assert_eq!(packages.describe(denied.by()), "denied: the preset `packages` reaches package indexes only");
}

#[test]
fn a_denial_comes_with_the_rule_that_would_allow_it() {
    let plan = planned(Preset::None, &[], &[]);
    for (to, names, expected) in [
        ("93.184.216.34:443", &["api.example.org"][..], Some("api.example.org:443")),
        ("93.184.216.34:443", &[], Some("93.184.216.34:443")),
        ("10.9.0.1:443", &["git.corp.example"], Some("10.9.0.1:443")),
        ("10.0.0.5:3000", &[], Some("host:3000")),
        ("10.0.0.5:15432", &[], Some("sandbox:db:5432")),
        ("169.254.169.254:80", &[], Some("169.254.169.254:80")),
        ("10.0.0.5:7777", &[], None),
    ] {
        let address: std::net::SocketAddr = to.parse().unwrap();
        let names: Vec<_> = names.iter().map(|text| name(text)).collect();
        let (ip, port) = (address.ip(), address.port());
        let flow = Flow { protocol: Protocol::Tcp, address: ip, port, names: &names };
        let rule = plan.rule_that_allows(&flow, &around());
        assert_eq!(rule.as_ref().map(ToString::to_string).as_deref(), expected, "{to}");
        if let Some(rule) = rule {
            let own = Policy { preset: Preset::None, rules: vec![rule] };
            assert!(!NetworkPlan { own, ..plan.clone() }.decide(&flow, &around()).is_denied(), "{to}");
        }
    }
}

#[track_caller]
fn refused(planned: Result<NetworkPlan>, kind: ErrorKind, expected: &str) {
    let error = planned.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, expected));
    let is_told = matches!(error.next(), Some(Next::Advice(_) | Next::AskNetwork(_)));
    assert!(is_told || expected.starts_with("limits"), "{error}");
}

#[test]
fn rules_that_can_never_match_are_refused_with_place_and_reason() {
    let check = |allow: &[&str], deny: &[&str], expected: &str| {
        refused(plan_network(&spec(Preset::None, allow, deny), &[]), ErrorKind::InvalidRequest, expected);
    };
    check(
        &["fine.example", "git.corp.example"],
        &["*.corp.example"],
        r#"allow[1]: "git.corp.example" can never match: deny[0] (deny *.corp.example) comes first and matches all of it"#,
    );
    check(
        &["10.2.0.7:5432"],
        &["x.example", "10.0.0.0/8"],
        r#"allow[0]: "10.2.0.7:5432" can never match: deny[1] (deny 10.0.0.0/8) comes first and matches all of it"#,
    );
    check(
        &["localhost:3000"],
        &[],
        r#"allow[0]: "localhost:3000" can never match: inside, it is the sandbox itself, which needs no rule"#,
    );
    check(
        &["127.0.0.1:3000"],
        &[],
        r#"allow[0]: "127.0.0.1:3000" can never match: inside, it is the sandbox itself, which needs no rule"#,
    );
    check(&["multicast"], &[], r#"allow[0]: "multicast" can never match: TCP has no multicast"#);
    check(
        &["udp@sandbox:db:5432"],
        &[],
        r#"allow[0]: "udp@sandbox:db:5432" can never match: ports of sandboxes are TCP ports"#,
    );
    check(
        &["udp@8.8.8.8:53"],
        &[],
        r#"allow[0]: "udp@8.8.8.8:53" can never match: every request to port 53 is answered by the sandbox's own resolver"#,
    );
    check(&["a.example", "b.example:0"], &[], r#"allow[1]: "0" is not a port: ports go from 1 to 65535"#);
    check(&["10.2.3.4/16"], &[], "allow[0]: 10.2.3.4/16 has bits after its prefix; the range is 10.2.0.0/16");
    let rule = |action, target: &str| RuleSpec { action, target: target.to_owned() };
    let ordered = |rules: Vec<RuleSpec>| plan_network(&NetworkSpec { rules, ..NetworkSpec::default() }, &[]);
    refused(
        ordered(vec![rule(RuleAction::Allow, "any"), rule(RuleAction::Deny, "10.0.0.0/8")]),
        ErrorKind::InvalidRequest,
        r#"rules[1]: "10.0.0.0/8" can never match: rules[0] (allow any) comes first and matches all of it"#,
    );
    // What changes nothing, or only a part, stays.
    assert!(
        ordered(vec![rule(RuleAction::Allow, "a.example"), rule(RuleAction::Allow, "a.example")]).is_ok()
    );
    assert!(ordered(vec![rule(RuleAction::Allow, "any:443"), rule(RuleAction::Deny, "10.0.0.0/8")]).is_ok());
    assert!(ordered(vec![rule(RuleAction::Allow, "any"), rule(RuleAction::Deny, "host")]).is_ok());
    let mixed = spec(Preset::Public, &["a.corp.example"], &["*.corp.example:80", "127.0.0.0/8"]);
    assert!(plan_network(&mixed, &[]).is_ok());
}

#[test]
fn what_a_ceiling_forbids_is_refused() {
    let ceiling =
        |preset, allow: &[&str], deny: &[&str]| vec![Policy::from_spec(&spec(preset, allow, deny)).unwrap()];
    let public = ceiling(Preset::Public, &[], &["*.evil.example"]);
    let ask = |preset, allow: &[&str], ceilings: &[Policy]| plan_network(&spec(preset, allow, &[]), ceilings);
    refused(
        ask(Preset::None, &["fine.example", "a.evil.example"], &public),
        ErrorKind::Denied,
        r#"allow[1]: "a.evil.example" is forbidden by a ceiling that the operator set, by its rule deny *.evil.example"#,
    );
    for forbidden in ["10.2.0.0/16", "private", "host:3000", "meta", "udp@8.8.8.8:123", "sandbox:db:5432"] {
        refused(
            ask(Preset::None, &[forbidden], &public),
            ErrorKind::Denied,
            &format!(
                "allow[0]: {forbidden:?} is forbidden by a ceiling that the operator set, by its preset `public`"
            ),
        );
    }
    assert_eq!(
        ask(Preset::None, &["10.2.0.0/16"], &public).unwrap_err().next(),
        Some(&Next::AskNetwork(vec!["10.2.0.0/16".to_owned()]))
    );
    refused(
        ask(Preset::None, &["pypi.org"], &ceiling(Preset::Packages, &[], &[])),
        ErrorKind::Denied,
        r#"allow[0]: "pypi.org" is beyond package indexes, which are all that keys reach here; package managers reach theirs without a rule"#,
    );
    refused(
        ask(Preset::All, &[], &public),
        ErrorKind::Denied,
        "preset: `all` is beyond the ceiling that the operator set, `public`",
    );
    for fine in ["8.8.8.8", "0.0.0.0/0", "public", "any", "api.example.org"] {
        assert!(ask(Preset::Public, &[fine], &public).is_ok(), "{fine}");
    }
    let listed = ceiling(Preset::None, &["**.corp.example", "10.2.0.0/16:5432", "sandbox:db:5432"], &[]);
    for fine in ["corp.example", "*.git.corp.example", "10.2.0.7:5432", "10.0.0.0/8", "sandbox:db:5432"] {
        assert!(ask(Preset::Public, &[fine], &listed).is_ok(), "{fine}");
    }
    for forbidden in ["host", "8.8.4.4:53-54", "sandbox:web:80", "10.2.0.7:5432"] {
        let ports = ceiling(Preset::None, &["**.corp.example:22", "10.2.0.0/16:443"], &[]);
        assert!(ask(Preset::None, &[forbidden], &ports).is_err(), "{forbidden}");
    }
    // A ceiling below the default takes the default away; nobody asked for it.
    let none = plan_network(&NetworkSpec::default(), &ceiling(Preset::None, &[], &[])).unwrap();
    assert!(!none.reaches_packages());
}

#[test]
fn limits_and_nameservers_are_checked() {
    let with = |edit: fn(&mut NetworkSpec)| {
        let mut spec = NetworkSpec::default();
        edit(&mut spec);
        plan_network(&spec, &[])
    };
    let plan = with(|spec| spec.limits.connections = Some(7)).unwrap();
    assert_eq!(plan.limits, NetworkLimits { connections: 7, ..NetworkLimits::default() });
    refused(
        with(|spec| spec.limits.dns_per_second = Some(0)),
        ErrorKind::InvalidRequest,
        "limits.dnsPerSecond: the limit is 0; it must be between 1 and 10000",
    );
    assert!(with(|spec| spec.limits.connections = Some(u32::MAX)).is_err());
    assert!(with(|spec| spec.limits.bytes_per_second = Some(crate::ByteSize(1))).is_err());
    let plan = with(|spec| spec.dns.query_timeout_ms = Some(500)).unwrap();
    assert_eq!((plan.dns.query_timeout_ms, DnsPlan::default().query_timeout_ms), (500, 2000));
    for out_of_range in [0, 49, 10_001, u64::MAX] {
        let dns = DnsSpec { query_timeout_ms: Some(out_of_range), ..DnsSpec::default() };
        refused(
            plan_network(&NetworkSpec { dns, ..NetworkSpec::default() }, &[]),
            ErrorKind::InvalidRequest,
            &format!("dns.queryTimeoutMs: the time is {out_of_range}; it must be between 50 and 10000"),
        );
    }
    let plan = with(|spec| spec.dns.records = vec![RecordType::Aaaa, RecordType::A, RecordType::A]).unwrap();
    assert_eq!(plan.dns.records, [RecordType::A, RecordType::Aaaa]);
    assert!(plan.dns.answers(28) && !plan.dns.answers(16) && DnsPlan::default().answers(65));
    let server = |text: &str| DnsSpec { nameservers: vec![text.parse().unwrap()], ..DnsSpec::default() };
    for bad in ["127.0.0.53", "0.0.0.0", "::1", "169.254.169.254", "224.0.0.251"] {
        let spec = NetworkSpec { dns: server(bad), ..NetworkSpec::default() };
        assert!(
            plan_network(&spec, &[]).unwrap_err().to_string().starts_with("dns.nameservers[0]: "),
            "{bad}"
        );
    }
    let public = [Policy { preset: Preset::Public, rules: Vec::new() }];
    let inside = NetworkSpec { dns: server("10.0.0.2"), ..NetworkSpec::default() };
    assert_eq!(plan_network(&inside, &public).unwrap_err().kind(), ErrorKind::Denied);
    let plan = plan_network(&inside, &[]).unwrap();
    let may = |text: &str| plan.may_ask(text.parse::<IpAddr>().unwrap(), &around());
    assert!(may("10.0.0.2") && may("8.8.8.8") && !may("10.0.0.5") && !may("169.254.169.254"));
    for (deny, is_refused) in [
        (&["10.0.0.0/8"][..], true),
        (&["private:53"], true),
        (&["any"], false),
        (&["10.0.0.0/8:443"], false),
        (&["tcp@10.0.0.2"], false),
        (&["10.0.0.3"], false),
    ] {
        let deny = deny.iter().map(|rule| (*rule).to_owned()).collect();
        let planned = plan_network(&NetworkSpec { deny, ..inside.clone() }, &[]);
        assert_eq!(planned.is_err(), is_refused, "{planned:?}");
    }
}

#[test]
fn too_many_rules_are_refused() {
    let many: Vec<_> = (0..=MAX_RULES).map(|n| format!("h{n}.example")).collect();
    let all = NetworkSpec { allow: many.clone(), ..NetworkSpec::default() };
    assert!(plan_network(&all, &[]).is_err());
    let fits = NetworkSpec { allow: many[1..].to_vec(), ..NetworkSpec::default() };
    assert_eq!(plan_network(&fits, &[]).unwrap().own.rules.len(), MAX_RULES);
    let long: Vec<_> =
        (0..200).map(|n| format!("{}{n}.{}.example", "a".repeat(50), "b.".repeat(90))).collect();
    let long = NetworkSpec { deny: long, ..NetworkSpec::default() };
    assert!(plan_network(&long, &[]).is_err());
    assert!(plan_network(&NetworkSpec::default(), &vec![Policy::default(); MAX_CEILINGS + 1]).is_err());
}

#[test]
fn specs_and_plans_are_json() {
    let text = r#"{"preset":"public+private","allow":["host:3000"],"deny":["*.corp.example"],
        "rules":[{"action":"deny","target":"udp@any"}],"dns":{"nameservers":["10.0.0.2"],"records":["A","AAAA"]},
        "limits":{"connections":9,"dnsPerSecond":5}}"#;
    let spec: NetworkSpec = serde_json::from_str(text).unwrap();
    let again: NetworkSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
    assert_eq!(again, spec);
    let plan =
        plan_network(&spec, &[Policy { preset: Preset::All, rules: vec!["host".parse().unwrap()] }]).unwrap();
    let rules: Vec<_> = plan.own.rules.iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["deny *.corp.example", "deny udp@any", "host:3000"]);
    assert_eq!(serde_json::from_str::<NetworkPlan>(&serde_json::to_string(&plan).unwrap()).unwrap(), plan);
    assert_eq!(serde_json::from_str::<NetworkPlan>("{}").unwrap(), NetworkPlan::default());
    assert_eq!(serde_json::from_str::<NetworkSpec>("{}").unwrap(), NetworkSpec::default());
    for wrong in [
        r#"{"preset":"open"}"#,
        r#"{"allowed":[]}"#,
        "[]",
        r#"{"rules":["a.example"]}"#,
        r#"{"rules":[{"action":"drop","target":"x"}]}"#,
        r#"{"dns":{"nameservers":["ns.example"]}}"#,
        r#"{"dns":{"records":["ANY"]}}"#,
        r#"{"limits":{"connections":-1}}"#,
    ] {
        assert!(serde_json::from_str::<NetworkSpec>(wrong).is_err(), "{wrong}");
    }
    let around: Surroundings = serde_json::from_str(&serde_json::to_string(&around()).unwrap()).unwrap();
    assert_eq!(around, self::around());
}

/// A name that is denied is never resolved again; its addresses are closed as long as the sandbox knows them.
#[test]
fn a_denied_name_closes_the_addresses_that_the_sandbox_got_for_it() {
    let plan = planned(Preset::Public, &[], &["evil.example"]);
    let names: Vec<DnsName> = ["evil.example", "good.example"].map(|name| name.parse().unwrap()).into();
    let flow =
        |names| Flow { protocol: Protocol::Tcp, address: "93.184.216.34".parse().unwrap(), port: 443, names };
    let decide = |names| plan.decide(&flow(names), &Surroundings::default());
    assert!(decide(&names[..1]).is_denied());
    // Another name that leads there too is still reached, as itself only.
    assert!(matches!(decide(&names), Verdict::AllowNamed { names, .. } if names.len() == 1));
    assert!(!decide(&[]).is_denied(), "an address that it never asked for by name");
}
