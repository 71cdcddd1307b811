//! Faults of the edge, the daemon and DNS servers. Nothing is ever open meanwhile.

use std::{
    fs,
    io::Write as _,
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    policy::{KEEP_OPEN, Talk},
    servers::{echo, http, serve},
    world::{curl, in_a_world},
    zone::{Mood, Zone},
};
use crate::harness::{Daemon, until};

/// The edge of a daemon.
pub(crate) fn edge_of(daemon: &Daemon) -> Pid {
    let parent = daemon.pid().to_string();
    let is_edge = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name: the state and the parent.
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
        stat.contains("(warren-edge)") && rest.split(' ').nth(1) == Some(&parent)
    };
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let found = all.filter(|name| is_edge(name)).find_map(|pid| Pid::from_raw(pid.parse().ok()?));
    found.unwrap()
}

/// A server that counts its connections.
fn counted(at: &str) -> Arc<AtomicUsize> {
    let count = Arc::<AtomicUsize>::default();
    let counting = Arc::clone(&count);
    serve(at, move |mut stream: TcpStream| {
        counting.fetch_add(1, Ordering::SeqCst);
        stream.write_all(b"x").ok();
    });
    count
}

/// Connects again and again, never for long.
const KNOCK: &str = "
import socket, time
while True:
    for address in ('93.184.216.34', '10.1.2.3'):
        try: socket.create_connection((address, 7001), 0.3).recv(1)
        except OSError: pass
        time.sleep(0.05)
";

/// Keeps a connection open; when it ends, says how many tries it takes until another one works. A try takes a tenth of
/// a second at most, and so does the pause after one that failed.
const COME_BACK: &str = "
import socket, time
def talk():
    s = socket.create_connection(('93.184.216.34', 7000), 0.1)
    s.sendall(b'x')
    return s if s.recv(1) else None
def tries():
    for n in range(1, 1000):
        try: return n, talk()
        except OSError: time.sleep(0.1)
_, kept = tries()
print('open', flush=True)
kept.settimeout(None)
try: kept.recv(1)
except OSError: pass
print(tries()[0])
";
/// Five tries make a second, and a busy machine may take that long several times over: far fewer than the 25 of five
/// seconds.
const MAX_TRIES: u32 = 25;

#[test]
fn another_edge_serves_within_a_few_tries() {
    in_a_world(|| {
        serve("93.184.216.34:7000", echo);
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "public"]);
        let mut all = Vec::new();
        for _ in 0..3 {
            let mut talk = Talk::start(&daemon, "lab", COME_BACK);
            assert_eq!(talk.next(), "open");
            kill_process(edge_of(&daemon), Signal::KILL).unwrap();
            all.push(talk.next().parse::<u32>().unwrap());
        }
        println!("measured: tries after the death of an edge, five in a second: {all:?}");
        assert!(all.iter().all(|tries| *tries <= MAX_TRIES), "{all:?}");
    });
}

/// Waits until somebody came through, again.
fn comes_through(count: &AtomicUsize) {
    let before = count.load(Ordering::SeqCst);
    until("a connection comes through", || count.load(Ordering::SeqCst) > before);
}

/// Looks on for a while that nobody comes through.
fn nobody_comes_through(count: &AtomicUsize) {
    // Traffic that was on its way has arrived by then.
    thread::sleep(Duration::from_millis(500));
    let before = count.load(Ordering::SeqCst);
    thread::sleep(Duration::from_millis(1000));
    assert_eq!(count.load(Ordering::SeqCst), before);
}

#[test]
fn an_edge_that_is_killed_takes_its_connections_along_and_another_one_serves() {
    in_a_world(|| {
        serve("93.184.216.34:7000", echo);
        serve("93.184.216.34:80", http("server"));
        let (public, private) = (counted("93.184.216.34:7001"), counted("10.1.2.3:7001"));
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "public"]);
        let mut talk = Talk::start(&daemon, "lab", KEEP_OPEN);
        assert_eq!(talk.next(), "open x");
        let first = edge_of(&daemon);
        kill_process(first, Signal::KILL).unwrap();
        assert!(talk.next().starts_with("ended"));
        assert!(curl(&daemon, "lab", "http://93.184.216.34/").contains("heard"));
        let second = edge_of(&daemon);
        assert_ne!(first, second);
        assert!(daemon.log().contains("ended=signal: 9 (SIGKILL)"), "{}", daemon.log());

        // A daemon that cannot start another one: nothing is open.
        daemon.ok(["exec", "--detach", "lab", "python3", "-c", KNOCK]);
        comes_through(&public);
        let pid = Pid::from_raw(daemon.pid().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        kill_process(second, Signal::KILL).unwrap();
        nobody_comes_through(&public);
        kill_process(pid, Signal::CONT).unwrap();
        comes_through(&public);
        assert_eq!(private.load(Ordering::SeqCst), 0, "the policy forbids it throughout");
    });
}

#[test]
fn traffic_is_counted_over_the_deaths_of_edges() {
    in_a_world(|| {
        serve("93.184.216.34:80", http("server"));
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "public"]);
        let counted = || daemon.json(["stats", "lab", "--json"])[0]["network"].clone();
        for n in 1..=3 {
            assert!(curl(&daemon, "lab", "http://93.184.216.34/").contains("heard"));
            assert_eq!(curl(&daemon, "lab", "http://10.1.2.3/"), "exit 7");
            until("everything is counted", || counted()["connections"] == n && counted()["denied"] == n);
            let before = counted()["receivedBytes"].as_u64().unwrap();
            kill_process(edge_of(&daemon), Signal::KILL).unwrap();
            assert_eq!(
                counted()["receivedBytes"].as_u64(),
                Some(before),
                "nothing is lost, nothing counted twice"
            );
        }
    });
}

/// Sends to a server that ended its side, and goes on after it is gone.
const SEND_ON: &str = "
import socket, time
s = socket.create_connection(('93.184.216.34', 7002))
s.send(b'never read')
assert s.recv(1) == b''
for _ in range(20):
    try: s.send(b'x')
    except OSError: break
    time.sleep(0.02)
print('sent')
";

#[test]
fn an_edge_outlives_servers_that_leave_while_it_writes_to_them() {
    in_a_world(|| {
        serve("93.184.216.34:80", http("server"));
        serve("93.184.216.34:7002", |stream: TcpStream| {
            // Something arrived that is never read: closing then resets the connection.
            stream.peek(&mut [0]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "public"]);
        assert!(curl(&daemon, "lab", "http://93.184.216.34/").contains("heard"));
        let edge = edge_of(&daemon);
        for _ in 0..5 {
            assert_eq!(daemon.ok(["exec", "lab", "python3", "-c", SEND_ON]).trim(), "sent");
        }
        assert!(curl(&daemon, "lab", "http://93.184.216.34/").contains("heard"));
        assert_eq!(edge_of(&daemon), edge, "it was not started again");
    });
}

#[test]
fn sandboxes_keep_their_policy_while_the_daemon_is_dead_and_after_it() {
    in_a_world(|| {
        let _zone = Zone::start("api.example 93.184.216.34");
        serve("93.184.216.34:80", http("server"));
        serve("10.1.2.3:80", http("server"));
        let (public, private) = (counted("93.184.216.34:7001"), counted("10.1.2.3:7001"));
        let mut daemon = Daemon::start();
        daemon
            .create("lab", &["--network", "none", "--allow", "api.example", "--allow", "93.184.216.34:7001"]);
        daemon.ok(["exec", "--detach", "lab", "python3", "-c", KNOCK]);
        comes_through(&public);
        daemon.ok(["network", "lab", "--deny", "93.184.216.0/24:81"]);
        daemon.kill();
        nobody_comes_through(&public);
        daemon.serve();
        comes_through(&public);
        assert!(curl(&daemon, "lab", "http://api.example/").contains("heard"));
        assert_eq!(curl(&daemon, "lab", "http://10.1.2.3/"), "exit 7");
        assert!(daemon.ok(["network", "lab"]).contains("deny 93.184.216.0/24:81"));
        assert_eq!(private.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_dns_server_that_is_silent_slow_or_impersonated() {
    in_a_world(|| {
        let zone =
            Zone::start("one.example 93.184.216.34, two.example 93.184.216.34, three.example 93.184.216.34");
        serve("93.184.216.34:80", http("server"));
        serve("93.184.216.66:80", http("thief"));
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "none", "--allow", "*.example"]);
        zone.becomes(Mood::Spoofed);
        assert!(curl(&daemon, "lab", "http://one.example/").starts_with("server heard"));
        zone.becomes(Mood::Slow(Duration::from_millis(500)));
        assert!(curl(&daemon, "lab", "http://two.example/").starts_with("server heard"));
        zone.becomes(Mood::Silent);
        assert_eq!(curl(&daemon, "lab", "http://three.example/"), "exit 6");
        assert!(
            curl(&daemon, "lab", "http://one.example/").starts_with("server heard"),
            "what is known stays known"
        );
        zone.becomes(Mood::Honest);
        assert!(curl(&daemon, "lab", "http://three.example/").starts_with("server heard"));
    });
}

/// Packets that any program sent in the world.
pub(crate) fn packets() -> u64 {
    let devices = fs::read_to_string("/proc/net/dev").unwrap();
    let sent = |line: &str| line.split_ascii_whitespace().nth(10)?.parse::<u64>().ok();
    devices.lines().skip(2).filter_map(sent).sum()
}

#[test]
fn without_a_network_not_one_packet_is_sent() {
    in_a_world(|| {
        let zone = Zone::start("api.example 93.184.216.34");
        serve("93.184.216.34:80", http("server"));
        let daemon = Daemon::start();
        daemon.create("none", &["--network", "none"]);
        daemon.create("packages", &["--network", "packages"]);
        let before = packets();
        for name in ["none", "packages"] {
            for url in
                ["http://93.184.216.34/", "http://[2606:4700::1]/", "http://api.example/", "http://10.1.2.3/"]
            {
                assert!(curl(&daemon, name, url).starts_with("exit"), "{name} {url}");
            }
            daemon.sh(name, "dig +tries=1 +timeout=1 @8.8.8.8 api.example; dig +tcp +tries=1 +timeout=1 @8.8.8.8 api.example");
            daemon.sh(
                name,
                "python3 -c 'import socket; socket.socket(2, 2).sendto(b\"x\", (\"93.184.216.34\", 123))'",
            );
        }
        assert_eq!(packets(), before);
        assert_eq!(zone.asked(), Vec::<String>::new());
        // They are counted, where there are any.
        daemon.create("public", &["--network", "public"]);
        assert!(curl(&daemon, "public", "http://api.example/").contains("heard"));
        assert!(packets() > before);
    });
}
