//! Secrets: values arrive where they are for, and nowhere else.

use std::{fs, thread, time::Instant};

use sandbox::{
    HeldSecret, HeldSecrets, SecretRules, SecretValue,
    network::{NetworkEvent, NetworkEventKind, NetworkPlan, Preset},
};

use super::{
    edge::{Edge, plan},
    https::{BIG, Https, WorldAuthority},
    inside::Inside,
    world::{file, http, in_a_world, serve, shell},
    zone::Zone,
};

const PLACEHOLDER: &str = "warren-placeholder_Zx81";
const VALUE: &str = "sk-v4lue-0f-the-s3cret";

/// A sandbox with secret `TOKEN` for `api.example`, and a server that speaks for it.
struct Place {
    edge: Edge,
    inside: Inside,
    api: Https,
    held: HeldSecrets,
    world: WorldAuthority,
}

fn rules() -> SecretRules {
    SecretRules {
        hosts: vec!["api.example".parse().unwrap()],
        headers: vec!["authorization".to_owned()],
        ..SecretRules::default()
    }
}

fn secret(name: &str, placeholder: &str, value: &str, rules: SecretRules) -> HeldSecret {
    let value = SecretValue::new(value.to_owned()).unwrap();
    HeldSecret { name: name.parse().unwrap(), placeholder: placeholder.to_owned(), value, rules }
}

impl Place {
    fn new(plan: &NetworkPlan, rules: SecretRules) -> Self {
        Self::with(plan, vec![secret("TOKEN", PLACEHOLDER, VALUE, rules)])
    }

    fn with(plan: &NetworkPlan, secrets: Vec<HeldSecret>) -> Self {
        Zone::start("api.example 93.184.216.34, other.example 93.184.216.35, second.example 93.184.216.36");
        let world = WorldAuthority::new("the world");
        let hosts: Vec<_> = secrets.iter().flat_map(|secret| secret.rules.hosts.clone()).collect();
        let authority = edge::make_authority(&hosts).unwrap();
        file("/tmp/sandbox.pem", &authority.certificate);
        file("/tmp/world.pem", &world.pem);
        let held = HeldSecrets { authority, secrets };
        let edge = Edge::start();
        edge.trust(vec![world.der.clone()]);
        let inside = edge.add_with(1, plan, Some(&held));
        let api = world.serve("93.184.216.34:443", "api.example");
        Self { edge, inside, api, held, world }
    }

    /// Output, answer's status and exit code of `curl`.
    fn curl(&self, arguments: &str) -> String {
        self.curl_trusting("/tmp/sandbox.pem", arguments)
    }

    fn curl_trusting(&self, authority: &str, arguments: &str) -> String {
        let script = format!(
            "curl -sS --max-time 15 --cacert {authority} -w ' status %{{http_code}} v%{{http_version}}' \
             {arguments} 2>&1; echo \" exit $?\""
        );
        self.inside.run(move || shell(&script))
    }

    fn event(&self, kind: NetworkEventKind, words: &str) -> NetworkEvent {
        self.edge.event(|event| event.kind == kind && event.rule.contains(words))
    }
}

fn bearer() -> String {
    format!("-H 'Authorization: Bearer {PLACEHOLDER}'")
}

#[test]
fn values_arrive_in_the_declared_header_of_their_host() {
    in_a_world(|| {
        let place = Place::new(&plan(Preset::None, &["api.example", "other.example"]), rules());
        let other = place.world.serve("93.184.216.35:443", "other.example");
        for (version, shown) in [("--http1.1", "v1.1"), ("--http2", "v2")] {
            let told = place.curl(&format!("{version} {} https://api.example/a?b=c", bearer()));
            assert!(told.contains(&format!("status 200 {shown} exit 0")), "{told}");
        }
        let heard = place.api.heard();
        assert_eq!(heard.matches(&format!("authorization: Bearer {VALUE}")).count(), 2, "{heard}");
        assert!(heard.contains("GET /a?b=c HTTP/1.1"), "{heard}");
        assert!(heard.contains("GET https://api.example/a?b=c HTTP/2.0"), "{heard}");
        // As a password.
        let told = place.curl(&format!("-u user:{PLACEHOLDER} https://api.example/"));
        assert!(told.contains("status 200"), "{told}");
        let expected = shell(&format!("printf %s user:{VALUE} | base64"));
        assert!(place.api.heard().contains(&format!("Basic {}", expected.trim())));
        let event = place.event(NetworkEventKind::Allowed, "secret TOKEN was put in");
        assert_eq!((event.name.unwrap().as_str(), event.port), ("api.example", 443));

        // A host without a secret is passed through: its own certificate, and the placeholder.
        let told = place.curl_trusting("/tmp/world.pem", &format!("{} https://other.example/", bearer()));
        assert!(told.contains("exit 0"), "{told}");
        assert!(other.heard().contains(PLACEHOLDER) && !other.heard().contains(VALUE));
        assert!(place.curl("https://other.example/").contains("exit 60"));
        // A body is not looked at unless the operator says so.
        let told = place.curl(&format!("--data token={PLACEHOLDER} https://api.example/"));
        assert!(told.contains("status 200"), "{told}");
        assert!(place.api.heard().contains(&format!("token={PLACEHOLDER}")));
    });
}

#[test]
fn presets_that_allow_any_address_are_no_way_around_the_name() {
    in_a_world(|| {
        let place = Place::new(&plan(Preset::Public, &[]), rules());
        // Before it was resolved, and at an address that is another's.
        let wrong = place.world.serve("93.184.216.40:443", "api.example");
        for address in ["93.184.216.34", "93.184.216.40"] {
            let told =
                place.curl(&format!("{} https://api.example/ --resolve api.example:443:{address}", bearer()));
            assert!(told.contains("exit 35"), "{told}");
        }
        assert_eq!(wrong.heard() + &place.api.heard(), "");
        place.event(NetworkEventKind::Denied, "did not resolve it");
        let told = place.curl(&format!("{} https://api.example/", bearer()));
        assert!(told.contains("status 200"), "{told}");
        assert!(place.api.heard().contains(VALUE));
        // Whatever else is on port 443 passes, also servers that speak first.
        serve("93.184.216.41:443", |mut stream| {
            use std::io::Write as _;
            stream.write_all(b"SSH-2.0-here\r\n").unwrap();
        });
        let said = place.inside.run(|| {
            let mut said = String::new();
            let mut stream = std::net::TcpStream::connect("93.184.216.41:443").unwrap();
            std::io::Read::read_to_string(&mut stream, &mut said).unwrap();
            said
        });
        assert_eq!(said, "SSH-2.0-here\r\n");
    });
}

#[test]
fn values_stay_where_the_rules_do_not_cover() {
    in_a_world(|| {
        let only =
            SecretRules { methods: vec!["GET".to_owned()], paths: vec!["/repos".to_owned()], ..rules() };
        let second = SecretRules { hosts: vec!["second.example".parse().unwrap()], ..rules() };
        let place = Place::with(
            &plan(Preset::Public, &[]),
            vec![
                secret("TOKEN", PLACEHOLDER, VALUE, only),
                secret("SECOND", "warren-second_1", "value-of-the-second", second),
            ],
        );
        let second = place.world.serve("93.184.216.36:443", "second.example");
        serve("93.184.216.34:80", http("api"));
        let bearer = bearer();
        for (status, arguments) in [
            (403, format!("-X POST {bearer} https://api.example/repos")),
            (403, format!("{bearer} https://api.example/user")),
            (403, format!("{bearer} --path-as-is https://api.example/repos/../user")),
            (403, format!("-H 'X-Other: {PLACEHOLDER}' https://api.example/repos")),
            (403, format!("-H 'Cookie: a={PLACEHOLDER}' https://api.example/repos")),
            (403, format!("'https://api.example/repos?q={PLACEHOLDER}'")),
            (403, format!("https://api.example/repos/{PLACEHOLDER}")),
            (403, format!("{bearer} https://second.example/")),
            (403, "-H 'Authorization: Bearer warren-second_1' https://api.example/repos".to_owned()),
            (405, format!("-X TRACE {bearer} https://api.example/repos")),
            (421, format!("{bearer} -H 'Host: second.example' https://api.example/repos")),
            (421, format!("{bearer} -H 'Host: api.example:80' https://api.example/repos")),
        ] {
            for version in ["--http1.1", "--http2"] {
                let told = place.curl(&format!("{version} {arguments}"));
                assert!(told.contains(&format!("status {status}")), "{version} {arguments}: {told}");
            }
        }
        let told = place.curl(&format!("{bearer} https://api.example/user"));
        assert!(told.contains("The secret TOKEN is not put into the header authorization"), "{told}");
        assert!(told.contains("methods: GET; paths: /repos"), "{told}");
        place.event(NetworkEventKind::Denied, "secret TOKEN must not be put into the header x-other");
        // Two requests on one connection, the second for somebody else.
        let told = place.curl(&format!(
            "--http1.1 {bearer} https://api.example/repos --next -sS --http1.1 --cacert /tmp/sandbox.pem \
             -w ' status %{{http_code}} new %{{num_connects}}' -H 'Host: other.example' {bearer} https://api.example/"
        ));
        assert!(told.contains("status 200") && told.contains("status 421 new 0"), "{told}");
        // Plain HTTP.
        let told = place.curl(&format!("{bearer} http://api.example/repos"));
        assert!(told.contains(PLACEHOLDER) && !told.contains(VALUE), "{told}");

        let heard = place.api.heard();
        assert_eq!(heard.matches(VALUE).count(), 1, "{heard}");
        assert!(!heard.contains(PLACEHOLDER) && !heard.contains("second"), "{heard}");
        assert_eq!(second.heard(), "");
    });
}

#[test]
fn servers_that_do_not_prove_who_they_are_get_nothing() {
    in_a_world(|| {
        let place = Place::new(&plan(Preset::None, &["api.example", "second.example"]), rules());
        let stranger = WorldAuthority::new("a stranger");
        let two = SecretRules { hosts: vec!["second.example".parse().unwrap()], ..rules() };
        let mut held = place.held.clone();
        held.authority =
            edge::make_authority(&["api.example".parse().unwrap(), two.hosts[0].clone()]).unwrap();
        held.secrets = vec![secret("TOKEN", PLACEHOLDER, VALUE, two)];
        place.edge.hold(1, Some(&held));
        file("/tmp/sandbox.pem", &held.authority.certificate);
        let server = stranger.serve("93.184.216.36:443", "second.example");
        let told = place.curl(&format!("{} https://second.example/", bearer()));
        assert!(told.contains("exit 35"), "{told}");
        place.event(NetworkEventKind::Failed, "no authority that this host trusts vouches for it");
        assert_eq!(server.heard(), "");

        // A certificate of the right authority for another name.
        held.secrets[0].rules.hosts = vec!["other.example".parse().unwrap()];
        held.authority = edge::make_authority(&held.secrets[0].rules.hosts).unwrap();
        place.edge.hold(1, Some(&held));
        place.edge.update(1, &plan(Preset::None, &["other.example"]));
        file("/tmp/sandbox.pem", &held.authority.certificate);
        let server = place.world.serve("93.184.216.35:443", "second.example");
        let told = place.curl(&format!("{} https://other.example/", bearer()));
        assert!(told.contains("exit 35"), "{told}");
        place.event(NetworkEventKind::Failed, "it is for another name");
        assert_eq!(server.heard(), "");
    });
}

#[test]
fn values_are_taken_out_of_answers() {
    in_a_world(|| {
        let place = Place::new(&plan(Preset::None, &["api.example"]), rules());
        let masked = "*".repeat(VALUE.len());
        for version in ["--http1.1", "--http2"] {
            for path in ["/", "/length"] {
                let told = place.curl(&format!(
                    "{version} -i --compressed -H 'Range: bytes=0-9' {} https://api.example{path}",
                    bearer()
                ));
                // The header, the body in pieces of seven bytes, and the trailer of HTTP/2.
                assert!(told.contains("status 200"), "{told}");
                assert!(told.contains(&format!("authorization: Bearer {masked}")), "{told}");
                assert!(told.contains(&format!("x-said: Bearer {masked}")), "{told}");
                assert!(!told.contains(VALUE) && !told.contains("alt-svc"), "{told}");
            }
            let told = place.curl(&format!("{version} -u user:{PLACEHOLDER} https://api.example/"));
            let sent = shell(&format!("printf %s user:{VALUE} | base64"));
            assert!(told.contains("authorization: Basic dXNlcj") && !told.contains(sent.trim()), "{told}");
            assert!(told.contains(&"*".repeat(VALUE.len() * 8 / 6 - 1)), "{told}");
            let told = place.curl(&format!("{version} {} https://api.example/gzip", bearer()));
            assert!(told.contains("compressed answer") && told.contains("status 502"), "{told}");
        }
        let heard = place.api.heard();
        assert!(heard.contains("accept-encoding: identity") && !heard.contains("range:"), "{heard}");
        // What was put in once may come back in the answer to a request without it.
        let told = place.curl(&format!("--data said={VALUE} https://api.example/"));
        assert!(told.contains(&format!("said={masked}")), "{told}");
    });
}

#[test]
fn a_websocket_passes_without_values_in_what_comes_back() {
    in_a_world(|| {
        let place = Place::new(&plan(Preset::None, &["api.example"]), rules());
        let script = file(
            "/tmp/ws.py",
            &format!(
                r#"
import socket, ssl
context = ssl.create_default_context(cafile="/tmp/sandbox.pem")
stream = context.wrap_socket(socket.create_connection(("api.example", 443), 10), server_hostname="api.example")
stream.sendall(b"GET /ws HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer {PLACEHOLDER}\r\n\r\n")
got = b""
while b"\n\n" not in got.replace(b"\r", b"") or not got.endswith(b"\n"):
    got += stream.recv(1000)
stream.sendall(b"and {VALUE}!")
while not got.endswith(b"!"):
    more = stream.recv(3)
    assert more
    got += more
print(got.decode())
"#
            ),
        );
        let told = place.inside.run(move || shell(&format!("/usr/bin/python3 {script} 2>&1")));
        assert!(told.starts_with("HTTP/1.1 101"), "{told}");
        let masked = "*".repeat(VALUE.len());
        assert!(
            told.contains(&format!("Bearer {masked}")) && told.contains(&format!("and {masked}!")),
            "{told}"
        );
        assert!(place.api.heard().contains(&format!("Bearer {VALUE}")));
    });
}

#[test]
fn queries_and_bodies_are_filled_where_the_operator_says_so() {
    in_a_world(|| {
        let open = SecretRules { query: true, body: true, ..rules() };
        let place = Place::new(&plan(Preset::None, &["api.example"]), open);
        for version in ["--http1.1", "--http2"] {
            let told = place.curl(&format!(
                "{version} --data 'a={PLACEHOLDER}&b=1' 'https://api.example/x?key={PLACEHOLDER}'"
            ));
            assert!(told.contains("status 200"), "{told}");
            let told = place.curl(&format!("{version} -T - https://api.example/ < /tmp/world.pem"));
            assert!(told.contains("BEGIN CERTIFICATE") && told.contains("status 200"), "{told}");
            shell("head -c 1100000 /dev/zero > /tmp/big");
            let told = place.curl(&format!("{version} --data-binary @/tmp/big https://api.example/"));
            // This curl takes an early answer of HTTP/2 for an error of the stream.
            let is_told = told.contains("status 413") && told.contains("at most");
            assert!(is_told || (version == "--http2" && told.contains("exit 92")), "{told}");
        }
        let heard = place.api.heard();
        assert!(!heard.contains("\0\0\0"));
        assert_eq!(heard.matches(&format!("/x?key={VALUE}")).count(), 2, "{heard}");
        assert_eq!(heard.matches(&format!("a={VALUE}&b=1")).count(), 2, "{heard}");
        let length = format!("content-length: {}", format!("a={VALUE}&b=1").len());
        assert_eq!(heard.matches(&length).count(), 2, "{heard}");
    });
}

/// The most memory that this process, in which the edge is a thread, ever had, in KiB.
fn peak_memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn big_answers_and_bodies_stream_through() {
    in_a_world(|| {
        let place = Place::new(&plan(Preset::None, &["api.example"]), rules());
        place.curl("https://api.example/");
        let before = peak_memory();
        for version in ["--http1.1", "--http2"] {
            let told = place.curl(&format!(
                "{version} {} -o /dev/null -w ' {{%{{size_download}}}}' https://api.example/big",
                bearer()
            ));
            assert!(told.contains(&format!("{{{BIG}}} exit 0")), "{told}");
        }
        let more = peak_memory() - before;
        println!("two answers of {BIG} bytes took {more} KiB more");
        assert!(more < 24 * 1024, "{more} KiB");
    });
}

#[test]
fn connections_end_with_their_secrets_and_with_the_policy() {
    in_a_world(|| {
        let preset = plan(Preset::None, &["api.example"]);
        let place = Place::new(&preset, rules());
        let endless = |version: &str| {
            let script = format!(
                "curl -sSN --max-time 60 {version} --cacert /tmp/sandbox.pem {} https://api.example/forever 2>&1; echo exit $?",
                bearer()
            );
            let asked = place.api.heard().matches("/forever").count();
            let running = place.inside.start(move || shell(&script));
            while place.api.heard().matches("/forever").count() == asked {
                thread::sleep(std::time::Duration::from_millis(10));
            }
            running
        };
        for version in ["--http1.1", "--http2"] {
            let running = endless(version);
            place.edge.hold(1, None);
            let told = running.join().unwrap();
            assert!(!told.contains("exit 0") && !told.contains("exit 28"), "{told}");
            // From now on it is a host like others.
            let told = place.curl_trusting("/tmp/world.pem", &format!("{} https://api.example/", bearer()));
            assert!(told.contains(PLACEHOLDER), "{told}");
            place.edge.hold(1, Some(&place.held));

            let running = endless(version);
            place.edge.update(1, &plan(Preset::None, &[]));
            let told = running.join().unwrap();
            assert!(!told.contains("exit 0") && !told.contains("exit 28"), "{told}");
            place.edge.update(1, &preset);
        }
    });
}

/// How long a request takes with a secret and passed through: `cargo test --release -- --ignored --nocapture measured`.
#[test]
#[ignore = "measures; says nothing in a debug build"]
fn a_request_is_measured() {
    in_a_world(|| {
        let place = Place::new(&plan(Preset::None, &["api.example", "other.example"]), rules());
        let _other = place.world.serve("93.184.216.35:443", "other.example");
        file("/tmp/both.pem", &(fs::read_to_string("/tmp/sandbox.pem").unwrap() + &place.world.pem));
        let script = file(
            "/tmp/measure.py",
            &format!(
                r#"
import http.client, ssl, sys, time
context = ssl.create_default_context(cafile="/tmp/both.pem")
def ask(connection):
    connection.request("GET", "/", headers={{"Authorization": "Bearer {PLACEHOLDER}"}})
    return connection.getresponse().read()
def new(host):
    connection = http.client.HTTPSConnection(host, context=context)
    connection.connect()
    return connection
def timed(work, times):
    took = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        took.append((time.perf_counter() - start) * 1000)
    took.sort()
    return "p50 %.3f ms, p90 %.3f ms" % (took[times // 2], took[times * 9 // 10])
for round in range(2):
    for host in ["other.example", "api.example"]:
        kept = new(host)
        ask(kept)
        print(host, "kept:", timed(lambda: ask(kept), 500), "| new:", timed(lambda: ask(new(host)), 100))
"#
            ),
        );
        let start = Instant::now();
        let told = place.inside.run(move || shell(&format!("/usr/bin/python3 {script} 2>&1")));
        println!("{told}({:?} in all)", start.elapsed());
    });
}
