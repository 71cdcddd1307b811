//! Names: which are resolved, and to what. The questions come from `dig` and the C library.

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use edge::Around;
use sandbox::network::{NetworkEventKind, Preset, Surroundings};

use super::{
    edge::{Edge, plan},
    inside::Inside,
    world::{in_a_world, shell},
    zone::{Mood, Zone},
};

/// Returns the lines that `dig` prints for a question, sorted.
fn dig(inside: &Inside, arguments: &str) -> Vec<String> {
    let script = format!("dig +tries=1 +timeout=3 +short {arguments} || true");
    let mut lines: Vec<_> = inside.run(move || shell(&script)).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn dig_whole(inside: &Inside, arguments: &str) -> String {
    let script = format!("dig +tries=1 +timeout=3 {arguments} || true");
    inside.run(move || shell(&script))
}

#[test]
fn names_that_a_rule_allows_are_resolved_and_others_are_never_asked_for() {
    in_a_world(|| {
        let zone = Zone::start(
            "api.example 93.184.216.34, api.example 2606:4700::1, www.example > api.example, evil.example 93.184.216.66",
        );
        let edge = Edge::start();
        let inside = edge.add(1, &plan(Preset::None, &["api.example", "www.example:443"]));
        assert_eq!(dig(&inside, "API.Example A"), ["93.184.216.34"]);
        assert_eq!(dig(&inside, "api.example AAAA"), ["2606:4700::1"]);
        assert_eq!(dig(&inside, "www.example A"), ["93.184.216.34", "api.example."]);
        // Another server, and TCP: port 53 of every address is ours.
        assert_eq!(dig(&inside, "@8.8.8.8 +tcp api.example A"), ["93.184.216.34"]);
        assert_eq!(dig(&inside, "@2606:4700::1111 api.example A"), ["93.184.216.34"]);

        let refused = dig_whole(&inside, "secret-data.evil.example A");
        assert!(refused.contains("status: REFUSED"), "{refused}");
        assert!(refused.contains("EDE: 17 (Filtered)") && refused.contains("network policy"), "{refused}");
        let event = edge.denial(53);
        assert_eq!(event.name.unwrap().as_str(), "secret-data.evil.example");
        assert!(!zone.asked().iter().any(|question| question.contains("evil")), "{:?}", zone.asked());
        // From the cache.
        assert_eq!(zone.asked().iter().filter(|question| *question == "api.example. A").count(), 1);
        let resolved = inside.run(|| shell("getent ahosts api.example | awk '{print $1}' | sort -u"));
        assert_eq!(resolved, "2606:4700::1\n93.184.216.34\n");
    });
}

#[test]
fn a_server_of_names_has_as_long_as_the_policy_says() {
    in_a_world(|| {
        let zone = Zone::start("api.example 93.184.216.34");
        zone.becomes(Mood::Slow(Duration::from_millis(300)));
        let edge = Edge::start();
        let mut network = plan(Preset::None, &["api.example"]);
        network.dns.query_timeout_ms = 50;
        let inside = edge.add(1, &network);
        let told = dig_whole(&inside, "api.example A");
        assert!(told.contains("status: SERVFAIL"), "{told}");
        network.dns.query_timeout_ms = 10_000;
        edge.update(1, &network);
        assert_eq!(dig(&inside, "+timeout=10 api.example A"), ["93.184.216.34"]);
    });
}

#[test]
fn a_server_that_the_sandbox_named_is_asked_unless_it_is_this_host() {
    in_a_world(|| {
        let zone = Zone::start("api.example 93.184.216.34");
        let mut plan = plan(Preset::None, &["api.example"]);
        plan.dns.nameservers = vec![[10, 9, 9, 9].into()];
        let edge = Edge::start_with(Around::default());
        assert_eq!(dig(&edge.add(1, &plan), "api.example A"), ["93.184.216.34"]);
        assert_eq!(zone.asked().len(), 1);

        let surroundings = Surroundings { host: vec![[10, 9, 9, 9].into()], ..Surroundings::default() };
        let edge = Edge::start_with(Around { surroundings, ..Around::default() });
        let refused = dig_whole(&edge.add(1, &plan), "api.example A");
        assert!(refused.contains("status: SERVFAIL"), "{refused}");
        assert_eq!(zone.asked().len(), 1);
    });
}

#[test]
fn answers_that_lead_inside_are_removed() {
    in_a_world(|| {
        let zone = Zone::start(
            "rebind.example 10.0.0.1, mixed.example 93.184.216.34, mixed.example 127.0.0.1, mixed.example 169.254.169.254,
             alias.example > internal.corp, internal.corp 10.1.2.3, six.example fd00::1, six.example ::ffff:10.0.0.1",
        );
        let edge = Edge::start();
        let inside = edge.add(1, &plan(Preset::Public, &[]));
        assert_eq!(dig(&inside, "mixed.example A"), ["93.184.216.34"]);
        assert_eq!(dig(&inside, "rebind.example A"), Vec::<String>::new());
        assert!(dig_whole(&inside, "rebind.example A").contains("status: NXDOMAIN"));
        assert_eq!(dig(&inside, "alias.example A"), Vec::<String>::new());
        assert_eq!(dig(&inside, "six.example AAAA"), Vec::<String>::new());
        let event = edge.event(|event| event.address == Some([10, 0, 0, 1].into()));
        assert_eq!(event.kind, NetworkEventKind::Denied);
        // Names of private addresses are not asked for.
        dig(&inside, "-x 10.1.2.3");
        assert!(!zone.asked().iter().any(|question| question.contains("arpa")));
        // Where private networks are reached, so are their names.
        edge.update(1, &plan(Preset::PublicPrivate, &[]));
        assert_eq!(dig(&inside, "rebind.example A"), ["10.0.0.1"]);
        assert_eq!(dig(&inside, "mixed.example A"), ["93.184.216.34"]);
    });
}

#[test]
fn hints_and_keys_for_encrypted_names_are_stripped() {
    in_a_world(|| {
        let _zone = Zone::start("api.example https");
        let edge = Edge::start();
        let inside = edge.add(1, &plan(Preset::Public, &[]));
        assert_eq!(dig(&inside, "api.example TYPE65"), [r#"1 . alpn="h2""#]);
    });
}

#[test]
fn long_answers_come_over_tcp_and_are_bounded() {
    in_a_world(|| {
        let zone = Zone::start("many.example 93.184.216.1, long.example \"x\"");
        for last in 2..=200 {
            zone.add(&format!("many.example 93.184.216.{last}"));
        }
        let edge = Edge::start();
        let inside = edge.add(1, &plan(Preset::Public, &[]));
        assert_eq!(dig(&inside, "many.example A").len(), 64);
        assert_eq!(dig(&inside, "+noedns many.example A").len(), 64);
    });
}

#[test]
fn a_server_that_is_away_is_told() {
    in_a_world(|| {
        let edge = Edge::start();
        let inside = edge.add(1, &plan(Preset::Public, &[]));
        let failed = dig_whole(&inside, "api.example A");
        assert!(failed.contains("status: SERVFAIL") && failed.contains("EDE: 23"), "{failed}");
        edge.event(|event| event.kind == NetworkEventKind::Failed && event.port == 53);
    });
}

#[test]
fn a_server_that_is_slow_silent_or_impersonated() {
    in_a_world(|| {
        let zone =
            Zone::start("one.example 93.184.216.34, two.example 93.184.216.34, three.example 93.184.216.34");
        let edge = Edge::start();
        let inside = edge.add(1, &plan(Preset::None, &["*.example"]));
        zone.becomes(Mood::Spoofed);
        assert_eq!(dig(&inside, "one.example A"), ["93.184.216.34"]);
        zone.becomes(Mood::Slow(Duration::from_millis(700)));
        assert_eq!(dig(&inside, "two.example A"), ["93.184.216.34"]);
        zone.becomes(Mood::Silent);
        let failed = inside.run(|| shell("dig +tries=1 +timeout=15 three.example A"));
        assert!(failed.contains("status: SERVFAIL"), "{failed}");
        // What was learnt before is still known.
        assert_eq!(dig(&inside, "one.example A"), ["93.184.216.34"]);
        zone.becomes(Mood::Honest);
        assert_eq!(dig(&inside, "three.example A"), ["93.184.216.34"]);
    });
}

#[test]
fn a_flood_of_questions_is_bounded_and_the_neighbour_does_not_notice() {
    in_a_world(|| {
        let zone = Zone::start("api.example 93.184.216.34");
        let edge = Edge::start();
        let (loud, quiet) =
            (edge.add(1, &plan(Preset::Public, &[])), edge.add(2, &plan(Preset::Public, &[])));
        let flood = loud.start(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let mut question = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x08".to_vec();
            question.extend(b"00000000\x07example\0\0\x01\0\x01");
            let start = Instant::now();
            let mut sent = 0_u32;
            while start.elapsed() < Duration::from_secs(2) && sent < 50_000 {
                question[13..21].copy_from_slice(format!("{sent:08}").as_bytes());
                let _is_sent = socket.send_to(&question, "8.8.8.8:53");
                sent += 1;
            }
            sent
        });
        let start = Instant::now();
        assert_eq!(dig(&quiet, "api.example A"), ["93.184.216.34"]);
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        let sent = flood.join().unwrap();
        let asked = zone.asked().iter().filter(|question| question.starts_with("0")).count();
        println!("of {sent} questions {asked} were asked");
        assert!((50..=50 * 4).contains(&asked), "{asked}");
        assert!(edge.events().len() < 200);
        edge.event(|event| event.rule.contains("DNS questions a second") && event.count > 1);
    });
}
