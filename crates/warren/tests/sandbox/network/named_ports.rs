//! The form of named ports, as on a kernel without tproxy for nftables. Debug builds take it on request.

use std::{net::UdpSocket, thread};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::{
    faults::edge_of,
    policy::Talk,
    servers::{echo, http, serve},
    world::{curl, in_a_world, log},
    zone::Zone,
};
use crate::harness::{Daemon, until};

const FORM: &str = "edge (named ports)";

/// Says how a connection to an address and port goes.
fn connect(daemon: &Daemon, name: &str, address: &str, port: u16) -> String {
    let script = format!(
        "import socket\n\
         try:\n\
         \x20 s = socket.create_connection(('{address}', {port}), 60); s.settimeout(60)\n\
         \x20 s.sendall(b'x'); print(s.recv(9).decode() or 'ended')\n\
         except OSError as error: print(type(error).__name__)"
    );
    daemon.ok(["exec", name, "python3", "-c", &script]).trim().to_owned()
}

#[test]
fn presets_and_rules_hold_for_the_ports_that_are_named() {
    in_a_world(|| {
        let zone =
            Zone::start("api.example 93.184.216.34, api.example 2606:4700::1, other.example 93.184.216.34");
        for at in ["93.184.216.34:80", "[2606:4700::1]:80", "10.1.2.3:80"] {
            serve(at, http("server"));
        }
        for at in ["93.184.216.34:443", "93.184.216.34:7000", "93.184.216.34:7001"] {
            serve(at, echo);
        }
        let daemon = Daemon::by_named_ports();
        daemon.create("none", &["--network", "none"]);
        assert_eq!(connect(&daemon, "none", "93.184.216.34", 80), "OSError");

        daemon.create(
            "public",
            &["--network", "public", "--allow", "93.184.216.34:7000", "--deny", "**.other.example"],
        );
        let isolation = daemon.inspect("public")["isolation"].clone();
        assert_eq!(isolation["network"], FORM);
        let warnings = isolation["warnings"].to_string();
        assert!(warnings.contains("22,53,80,443,7000 (TCP) and 53 (UDP)"), "{warnings}");
        assert!(curl(&daemon, "public", "http://api.example/hello").contains("heard: GET /hello"));
        assert!(curl(&daemon, "public", "-6 http://api.example/hello").contains("heard: GET /hello"));
        assert_eq!(connect(&daemon, "public", "93.184.216.34", 7000), "x");
        // A name that is denied is not asked for.
        assert_eq!(curl(&daemon, "public", "http://other.example/"), "exit 6");
        assert!(!zone.asked().iter().any(|question| question.starts_with("other")), "{:?}", zone.asked());
        // Another address is accepted and then reset; another port is refused. Neither gets an answer.
        assert_eq!(connect(&daemon, "public", "10.1.2.3", 80), "ConnectionResetError");
        assert_eq!(connect(&daemon, "public", "93.184.216.34", 7001), "ConnectionRefusedError");
        // Nothing answers on the sandbox's own addresses, where nobody inside listens.
        for own in ["127.0.0.1", "10.83.66.1"] {
            assert_eq!(connect(&daemon, "public", own, 80), "ConnectionResetError", "{own}");
        }
        until("all of it is told", || {
            let told = log(&daemon, "public");
            [
                "allowed api.example",
                "denied 10.1.2.3 80",
                "denied 93.184.216.34 7001 denied: the host's kernel",
            ]
            .iter()
            .all(|entry| told.iter().any(|line| line.starts_with(entry)))
        });

        daemon.create("named", &["--network", "none", "--allow", "api.example"]);
        assert_eq!(
            connect(&daemon, "named", "93.184.216.34", 80),
            "ConnectionResetError",
            "nobody resolved it"
        );
        assert!(curl(&daemon, "named", "http://api.example/").contains("server heard"));
        assert_eq!(curl(&daemon, "named", "http://other.example/"), "exit 6");
        assert!(
            curl(&daemon, "named", "http://other.example/ --connect-to other.example:80:api.example:80")
                .contains("does not allow")
        );
        // Not TLS, where a name must be said.
        assert_ne!(connect(&daemon, "named", "93.184.216.34", 443), "x");
    });
}

/// Says over UDP whether somebody answers.
const DATAGRAM: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
s.connect((sys.argv[1], int(sys.argv[2])))
s.send(b'x')
try: print(s.recv(9))
except OSError as error: print(type(error).__name__)
";

#[test]
fn datagrams_pass_to_the_ports_that_are_named() {
    in_a_world(|| {
        let zone = Zone::start("api.example 93.184.216.34");
        for at in ["93.184.216.34:123", "93.184.216.34:124"] {
            let socket = UdpSocket::bind(at).unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 99];
                while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    socket.send_to(&buffer[..length], from).unwrap();
                }
            });
        }
        let daemon = Daemon::by_named_ports();
        daemon.create("lab", &["--network", "all", "--allow", "udp@93.184.216.34:123"]);
        let send = |address: &str, port: &str| {
            daemon.ok(["exec", "lab", "python3", "-c", DATAGRAM, address, port]).trim().to_owned()
        };
        assert_eq!(send("93.184.216.34", "123"), "b'x'");
        assert_eq!(send("93.184.216.34", "124"), "ConnectionRefusedError", "no rule names it");
        assert_eq!(send("169.254.169.254", "123"), "ConnectionRefusedError", "no preset reaches it");
        // DNS is answered on every address, over TCP too.
        let ask = "import socket\nprint(socket.gethostbyname('api.example'))";
        assert_eq!(daemon.ok(["exec", "lab", "python3", "-c", ask]), "93.184.216.34\n");
        if daemon.sh("lab", "command -v dig").0 == 0 {
            for arguments in ["@8.8.8.8", "+tcp @10.83.66.53", "@93.184.216.99"] {
                let told = daemon.sh_ok("lab", &format!("dig +short {arguments} api.example"));
                assert_eq!(told.trim(), "93.184.216.34", "{arguments}");
            }
        }
        assert!(!zone.asked().is_empty());
    });
}

#[test]
fn what_this_form_cannot_hold_is_refused_or_waits_for_the_next_start() {
    in_a_world(|| {
        serve("93.184.216.34:80", http("server"));
        serve("93.184.216.34:7000", echo);
        let daemon = Daemon::by_named_ports();
        for (rule, why) in
            [("93.184.216.34:1000-1100", "more than 32 ports"), ("udp@93.184.216.34", "names no port")]
        {
            let (_, told) = daemon.fails(["create", "--name", "bad", "--network", "none", "--allow", rule]);
            assert!(told.contains(why), "{rule}: {told}");
        }
        daemon.create("lab", &["--network", "public", "--deny", "93.184.216.34:7000"]);
        assert_eq!(connect(&daemon, "lab", "93.184.216.34", 7000), "ConnectionRefusedError");
        let view = daemon.json([
            "network",
            "lab",
            "--remove",
            "deny 93.184.216.34:7000",
            "--allow",
            "93.184.216.34:7000",
            "--json",
        ]);
        assert_eq!(view["pending"], Value::Bool(true), "{view}");
        assert_eq!(connect(&daemon, "lab", "93.184.216.34", 7000), "ConnectionRefusedError");
        // A change that closes something takes effect at once.
        let view = daemon.json(["network", "lab", "--deny", "93.184.216.34:80", "--json"]);
        assert_eq!(view["pending"], Value::Bool(true), "{view}");
        assert_eq!(connect(&daemon, "lab", "93.184.216.34", 80), "ConnectionResetError");
        daemon.ok(["restart", "lab"]);
        assert_eq!(connect(&daemon, "lab", "93.184.216.34", 7000), "x");
        assert_eq!(daemon.json(["network", "lab", "--json"])["pending"], Value::Null);
        let (_, told) = daemon.fails(["network", "lab", "--allow", "93.184.216.34:1000-1100"]);
        assert!(told.contains("more than 32 ports"), "{told}");
    });
}

/// Holds a connection, and says when it ends.
const HELD: &str = "
import socket
s = socket.create_connection(('93.184.216.34', 443), 60)
s.settimeout(None)
s.sendall(b'x')
print('open', s.recv(1).decode())
try: print('ended', s.recv(1))
except OSError as error: print('ended', type(error).__name__)
";

#[test]
fn an_edge_that_dies_and_a_daemon_that_is_replaced_leave_the_policy_as_it_was() {
    in_a_world(|| {
        serve("93.184.216.34:443", echo);
        serve("10.1.2.3:443", echo);
        let mut daemon = Daemon::by_named_ports();
        daemon.create("lab", &["--network", "public"]);
        // One that gets its network while it runs has the same form.
        daemon.create("late", &["--network", "none"]);
        let view = daemon.json(["network", "late", "--preset", "public", "--json"]);
        assert_eq!((&view["pending"], view["heldBy"].as_str()), (&Value::Null, Some(FORM)), "{view}");
        let holds = |daemon: &Daemon| {
            for name in ["lab", "late"] {
                assert_eq!(connect(daemon, name, "93.184.216.34", 443), "x", "{name}");
                assert_eq!(connect(daemon, name, "10.1.2.3", 443), "ConnectionResetError", "{name}");
            }
        };
        holds(&daemon);
        let mut held = Talk::start(&daemon, "lab", HELD);
        assert_eq!(held.next(), "open x");
        kill_process(edge_of(&daemon), Signal::KILL).unwrap();
        assert!(held.next().starts_with("ended"));
        holds(&daemon);
        daemon.kill();
        daemon.serve();
        holds(&daemon);
    });
}

#[test]
fn the_form_is_told_by_the_doctor() {
    in_a_world(|| {
        let daemon = Daemon::by_named_ports();
        let told = String::from_utf8(daemon.output(["doctor", "--json"]).stdout).unwrap();
        assert!(told.contains("named ports only"), "{told}");
    });
}
