//! The effects of a policy, seen by programs inside: what it opens, and what it closes.

use std::{
    io::{BufRead as _, BufReader, Lines},
    net::UdpSocket,
    process::{Child, ChildStdout, Stdio},
    thread,
};

use super::{
    servers::{echo, http, serve},
    world::{curl, in_a_world, log},
    zone::Zone,
};
use crate::harness::{Daemon, until};

/// A program inside that says what happens, line by line.
pub(crate) struct Talk {
    program: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Talk {
    pub(crate) fn start(daemon: &Daemon, name: &str, script: &str) -> Self {
        let mut program = daemon.command(["exec", name, "python3", "-u", "-c", script]);
        let mut program = program.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        Self { program, lines }
    }

    pub(crate) fn next(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.program.kill().ok();
        self.program.wait().ok();
    }
}

/// Keeps a connection open, and says how it ends.
pub(crate) const KEEP_OPEN: &str = "
import socket
s = socket.create_connection(('93.184.216.34', 7000), 60)
s.settimeout(None)
s.sendall(b'x')
print('open', s.recv(1).decode())
try: print('ended', s.recv(1))
except OSError as error: print('ended', type(error).__name__)
";

/// Says over UDP whether somebody answers.
const DATAGRAM: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
s.connect(('93.184.216.34', 123))
s.send(b'x')
print(s.recv(9))
";

#[test]
fn presets_reach_what_they_say() {
    in_a_world(|| {
        const WEB: [&str; 5] =
            ["93.184.216.34", "[2606:4700::1]", "10.1.2.3", "169.254.169.254", "[fd00:ec2::254]"];
        for address in WEB {
            serve(&format!("{address}:80"), http("server"));
        }
        let datagrams = UdpSocket::bind("93.184.216.34:123").unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 99];
            while let Ok((length, from)) = datagrams.recv_from(&mut buffer) {
                datagrams.send_to(&buffer[..length], from).unwrap();
            }
        });
        let daemon = Daemon::start();
        for (name, preset, expected) in [
            ("none", "none", &[][..]),
            ("packages", "packages", &[]),
            ("public", "public", &WEB[..2]),
            ("private", "public+private", &WEB[..3]),
            ("all", "all", &WEB[..3]),
        ] {
            daemon.create(name, &["--network", preset]);
            let answers = WEB.map(|address| curl(&daemon, name, &format!("http://{address}/")));
            let reached: Vec<_> =
                WEB.iter().zip(&answers).filter(|(_, told)| told.contains("heard")).collect();
            assert_eq!(
                reached.iter().map(|(web, _)| **web).collect::<Vec<_>>(),
                expected,
                "{preset}: {answers:?}"
            );
            // All others are refused, not left waiting.
            assert!(
                answers.iter().all(|told| told.contains("heard") || told == "exit 7"),
                "{preset}: {answers:?}"
            );
            let by_datagram = daemon.output(["exec", name, "python3", "-c", DATAGRAM]);
            assert_eq!(by_datagram.status.success(), preset == "all", "{preset}: {by_datagram:?}");
        }
    });
}

#[test]
fn a_name_is_reached_where_a_rule_allows_it_and_the_log_says_so() {
    in_a_world(|| {
        let zone = Zone::start(
            "api.example 93.184.216.34, api.example 2606:4700::1, other.example 93.184.216.34, inner.example 10.1.2.3",
        );
        for at in ["93.184.216.34:80", "[2606:4700::1]:80", "10.1.2.3:80"] {
            serve(at, http("server"));
        }
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "none", "--allow", "api.example", "--allow", "inner.example"]);
        let curl = |arguments: &str| curl(&daemon, "lab", arguments);
        // An address is nothing before it was resolved, nor for another name.
        assert_eq!(curl("http://93.184.216.34/"), "exit 7");
        assert!(curl("http://api.example/hello").contains("heard: GET /hello"));
        assert!(curl("-4 http://api.example/hello").contains("heard: GET /hello"));
        assert!(curl("-6 http://api.example/hello").contains("heard: GET /hello"));
        assert_eq!(curl("http://other.example/"), "exit 6");
        assert!(
            curl("http://other.example/ --connect-to other.example:80:api.example:80")
                .contains("does not allow")
        );
        // A name that leads into a private network leads nowhere.
        assert_eq!(curl("http://inner.example/"), "exit 6");
        assert!(!zone.asked().iter().any(|question| question.starts_with("other")), "{:?}", zone.asked());
        let mut told = Vec::new();
        until("the log has it all", || {
            told = log(&daemon, "lab");
            ["allowed api.example", "denied other.example 53", "denied inner.example 10.1.2.3"]
                .iter()
                .all(|entry| told.iter().any(|line| line.starts_with(entry)))
        });
        assert!(told[0].starts_with("denied 93.184.216.34 80 denied: "), "{told:#?}");
    });
}

#[test]
fn a_new_rule_closes_an_open_connection_at_once() {
    in_a_world(|| {
        serve("93.184.216.34:7000", echo);
        serve("93.184.216.34:80", http("server"));
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "public"]);
        let mut talk = Talk::start(&daemon, "lab", KEEP_OPEN);
        assert_eq!(talk.next(), "open x");
        daemon.ok(["network", "lab", "--deny", "93.184.216.34:7000"]);
        assert_eq!(talk.next(), "ended ConnectionResetError");
        assert!(curl(&daemon, "lab", "http://93.184.216.34/").contains("heard"), "another port of it");
        daemon.ok(["network", "lab", "--remove", "93.184.216.34:7000"]);
        assert_eq!(Talk::start(&daemon, "lab", KEEP_OPEN).next(), "open x");
    });
}

#[test]
fn the_host_is_reached_where_a_rule_names_its_port_and_the_daemon_never_is() {
    in_a_world(|| {
        serve("127.0.0.1:3000", http("server"));
        serve("127.0.0.1:3001", http("server"));
        let daemon = Daemon::configured(
            "[serve]\nalso_listen = ['127.0.0.1:8181=mcp-sandbox', '[::1]:8182=mcp-sandbox']\n",
        );
        until("it listens", || std::net::TcpStream::connect("[::1]:8182").is_ok());
        daemon.create("lab", &["--network", "all", "--allow", "host:3000"]);
        daemon.create("wide", &["--network", "all", "--allow", "host", "--allow", "loopback"]);
        let host =
            |name: &str, port: u16| curl(&daemon, name, &format!("http://host.warren.internal:{port}/"));
        assert!(host("lab", 3000).contains("heard: GET / HTTP/1.1"));
        assert_eq!(host("lab", 3001), "exit 7");
        assert!(host("wide", 3001).contains("heard"));
        for name in ["lab", "wide"] {
            assert_eq!([host(name, 8181), host(name, 8182)], ["exit 7", "exit 7"]);
        }
        until("it is in the log", || {
            log(&daemon, "wide")
                .iter()
                .any(|line| line.ends_with("8181 denied: the sandbox manager itself listens there"))
        });
    });
}

#[test]
fn another_sandbox_is_reached_by_its_name_only() {
    in_a_world(|| {
        let daemon = Daemon::start();
        daemon.create("db", &["--network", "none"]);
        daemon.ok(["exec", "--detach", "db", "python3", "-m", "http.server", "-b", "127.0.0.1", "5432"]);
        daemon.ok(["port", "db", "5432", "--publish", "15432"]);
        daemon.create("friend", &["--network", "none", "--allow", "sandbox:db:5432"]);
        daemon.create("stranger", &["--network", "all", "--allow", "host", "--allow", "host:15432"]);
        let url =
            "-o /dev/null -w '%{http_code}' --retry 20 --retry-delay 1 http://host.warren.internal:15432/";
        assert_eq!(curl(&daemon, "friend", &format!("{url} --retry-all-errors")), "200");
        assert_eq!(curl(&daemon, "stranger", url), "exit 7");
        // The stranger has no other way: neither by another address of the host nor straight into the other namespace.
        assert_eq!(curl(&daemon, "stranger", "http://127.0.0.1:15432/"), "exit 7");
        assert_eq!(curl(&daemon, "stranger", "http://127.0.0.1:5432/"), "exit 7");
    });
}

#[test]
fn an_ordinary_users_daemon_holds_the_same_policy() {
    in_a_world(|| {
        let _zone = Zone::start("api.example 93.184.216.34, other.example 93.184.216.34");
        serve("93.184.216.34:80", http("server"));
        serve("10.1.2.3:80", http("server"));
        let Some(daemon) = Daemon::of_ordinary_user() else { return };
        daemon.create("lab", &["--network", "none", "--allow", "api.example"]);
        assert!(curl(&daemon, "lab", "http://api.example/").contains("heard"));
        assert_eq!(curl(&daemon, "lab", "http://other.example/"), "exit 6");
        assert_eq!(curl(&daemon, "lab", "http://10.1.2.3/"), "exit 7");
    });
}
