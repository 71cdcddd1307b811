//! A network for a sandbox that was started without one.

use std::{io::Write as _, net::TcpStream};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::{
    faults::edge_of,
    policy::Talk,
    servers::{http, serve},
    world::{curl, in_a_world},
    zone::Zone,
};
use crate::harness::Daemon;

/// Says when it reaches a server, which it tries for ever.
const WAIT_FOR_IT: &str = "
import socket, time
print('begun', flush=True)
while True:
    try:
        print(socket.create_connection(('93.184.216.34', 7000), 5).recv(1).decode(), flush=True)
        break
    except OSError: time.sleep(0.02)
";

#[test]
fn a_sandbox_that_was_started_without_a_network_gets_one_while_it_runs() {
    in_a_world(|| {
        let _zone = Zone::start("api.example 93.184.216.34");
        serve("93.184.216.34:80", http("server"));
        serve("93.184.216.34:7000", |mut stream: TcpStream| stream.write_all(b"x").unwrap());
        serve("10.1.2.3:80", http("server"));
        let mut daemon = Daemon::start();
        daemon.create("lab", &["--network", "none"]);
        let mut waiting = Talk::start(&daemon, "lab", WAIT_FOR_IT);
        assert_eq!(waiting.next(), "begun");
        assert!(curl(&daemon, "lab", "http://api.example/").starts_with("exit"));

        let view = daemon.json([
            "network",
            "lab",
            "--allow",
            "api.example",
            "--allow",
            "93.184.216.34:7000",
            "--json",
        ]);
        assert_eq!(
            (&view["pending"], view["heldBy"].as_str()),
            (&Value::Null, Some("edge (tproxy)")),
            "{view}"
        );
        assert_eq!(waiting.next(), "x", "a program that was there before");
        let holds = |daemon: &Daemon| {
            assert!(curl(daemon, "lab", "http://api.example/").starts_with("server heard"));
            assert_eq!(curl(daemon, "lab", "http://10.1.2.3/"), "exit 7");
            assert_eq!(daemon.inspect("lab")["isolation"]["network"], "edge (tproxy)");
        };
        holds(&daemon);
        // The guest has no sockets that a new edge could ask for.
        kill_process(edge_of(&daemon), Signal::KILL).unwrap();
        holds(&daemon);
        daemon.kill();
        daemon.serve();
        holds(&daemon);
        daemon.ok(["network", "lab", "--remove", "api.example"]);
        assert!(curl(&daemon, "lab", "http://api.example/").starts_with("exit"));
        daemon.ok(["network", "lab", "--allow", "api.example"]);
        daemon.ok(["restart", "lab"]);
        holds(&daemon);
    });
}

/// Takes the place of the sockets that a network would have.
const IN_THE_WAY: &str = "
import socket, time
s = socket.socket()
s.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND
s.bind(('192.0.2.1', 61443))
s.listen()
print('there', flush=True)
time.sleep(600)
";

#[test]
fn whoever_is_in_the_way_of_a_network_gets_none() {
    in_a_world(|| {
        let server = serve("93.184.216.34:80", http("server"));
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "none"]);
        let mut squatter = Talk::start(&daemon, "lab", IN_THE_WAY);
        assert_eq!(squatter.next(), "there");
        let view = daemon.json(["network", "lab", "--allow", "93.184.216.34", "--json"]);
        assert_eq!((&view["pending"], view["heldBy"].as_str()), (&Value::Bool(true), Some("none")), "{view}");
        assert_eq!(curl(&daemon, "lab", &format!("http://{server}/")), "exit 7");
        drop(squatter);
        daemon.ok(["restart", "lab"]);
        assert!(curl(&daemon, "lab", &format!("http://{server}/")).contains("heard"));
    });
}
