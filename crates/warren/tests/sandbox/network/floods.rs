//! One sandbox floods the edge; its neighbour does not notice, and the edge stays small.

use std::{fs, io::Write as _, net::TcpStream};

use serde_json::json;

use super::{
    faults::edge_of,
    policy::Talk,
    servers::{http, serve},
    surfaces::rest,
    world::{curl, in_a_world, log},
    zone::Zone,
};
use crate::harness::{Daemon, is_root, until};

/// Sockets of the edge itself and of its only sandbox, and pipes that are kept for later (two for each of 32).
const MAX_IDLE_DESCRIPTORS: usize = 100;
/// Far above what the edge needs, far below what a flood would take without limits.
const MAX_EDGE_MIB: u64 = 96;

/// Opens 2,000 connections at once and reads nothing of what the server sends; then denials and questions, as fast as
/// can be; says each when it begins, and goes on for ever.
const FLOOD: &str = r"
import itertools, socket
kept = []
def begin(address, port):
    try:
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex((address, port))
        return s
    except OSError: return None
questions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
questions.setblocking(False)
for _ in range(2000): kept.append(begin('93.184.216.34', 7000))
print('connected', flush=True)
for n in itertools.count():
    begin('10.1.2.3', 1 + n % 60000)
    name = b'%08d' % n
    try: questions.sendto(b'\0\7\1\0\0\1\0\0\0\0\0\0\x08' + name + b'\7example\0\0\1\0\1', ('8.8.8.8', 53))
    except OSError: pass
    if n == 5000: print('flooding', flush=True)
";

/// Prints how long the slowest tenth of requests takes at least, in microseconds.
const REQUESTS: &str = "
import http.client, time
times = []
for _ in range(100):
    begin = time.perf_counter()
    c = http.client.HTTPConnection('api.example', timeout=60)
    c.request('GET', '/')
    assert b'heard' in c.getresponse().read()
    c.close()
    times.append(time.perf_counter() - begin)
print(int(sorted(times)[90] * 1e6))
";
/// A request of the neighbour may take so many times as long in the flood: two processors are shared by more then. One
/// that waits for the flood to end would take thousands of times as long.
const SLOWER: u64 = 40;
/// The least that a request takes for this comparison: less is luck.
const MIN_MICROS: u64 = 2_000;

fn request_micros(daemon: &Daemon, name: &str) -> u64 {
    daemon.ok(["exec", name, "python3", "-c", REQUESTS]).trim().parse().unwrap()
}

fn edge_mib(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", edge_of(daemon).as_raw_nonzero())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// `make soak` asks for 100,000 by `WARREN_CONNECTS`.
const CONNECTS: u32 = 20_000;

/// Connects again and again from a few processes, in different ways of ending.
const CONNECT: &str = r"
import os, socket, struct, sys
n, children = int(sys.argv[1]) // 4, []
for which in range(4):
    children.append(os.fork())
    if children[-1] == 0:
        for _ in range(n):
            s = socket.create_connection(('93.184.216.34', 7001), 60)
            if which == 1: s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            if which == 2: s.shutdown(socket.SHUT_WR)
            if which != 1: assert s.recv(9) == b'hello'
            s.close()
        os._exit(0)
sys.exit(max(os.waitpid(child, 0)[1] for child in children) != 0)
";

fn descriptors_of(edge: rustix::process::Pid) -> usize {
    fs::read_dir(format!("/proc/{}/fd", edge.as_raw_nonzero())).map_or(0, Iterator::count)
}

#[test]
fn many_connections_leave_nothing_behind() {
    in_a_world(|| {
        let asked = std::env::var("WARREN_CONNECTS").ok().and_then(|text| text.parse().ok());
        let count = asked.unwrap_or(CONNECTS);
        serve("93.184.216.34:7001", |mut stream: TcpStream| drop(stream.write_all(b"hello")));
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "public"]);
        // As fast as they come: with the usual 200 a second this would take minutes.
        let network = json!({ "preset": "public", "limits": { "connectsPerSecond": 100_000 } });
        rest(&daemon, "PUT", "/network", Some(&network));
        let script =
            |count: u32| daemon.output(["exec", "lab", "python3", "-c", CONNECT, &count.to_string()]);
        assert!(script(200).status.success());
        let edge = edge_of(&daemon);
        let before = edge_mib(&daemon);
        let done = script(count);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(edge_of(&daemon), edge, "it was not started again");
        let after = edge_mib(&daemon);
        assert!(after < MAX_EDGE_MIB, "{after} MiB");
        if is_root() {
            until("all connections are closed", || descriptors_of(edge) < MAX_IDLE_DESCRIPTORS);
        }
        println!("measured: edge {before} MiB, after {count} connections {after} MiB");
    });
}

#[test]
fn a_flood_is_bounded_and_the_neighbour_does_not_notice() {
    in_a_world(|| {
        let zone = Zone::start("api.example 93.184.216.34");
        serve("93.184.216.34:80", http("server"));
        serve("93.184.216.34:7000", |mut stream: TcpStream| while stream.write_all(&[0; 65_536]).is_ok() {});
        let daemon = Daemon::start();
        // The number of its sockets goes by its memory.
        daemon.create("loud", &["--network", "public", "--memory", "4GiB"]);
        daemon.create("quiet", &["--network", "none", "--allow", "api.example"]);
        let first = edge_of(&daemon);
        let before = edge_mib(&daemon);
        let alone = request_micros(&daemon, "quiet");
        let mut flood = Talk::start(&daemon, "loud", FLOOD);
        for stage in ["connected", "flooding"] {
            assert_eq!(flood.next(), stage);
            for _ in 0..10 {
                assert!(curl(&daemon, "quiet", "http://api.example/").contains("heard"), "{stage}");
            }
        }
        let beside = request_micros(&daemon, "quiet");
        assert!(beside < alone.max(MIN_MICROS) * SLOWER, "{beside} µs, {alone} µs without the flood");
        let during = edge_mib(&daemon);
        assert!(during < MAX_EDGE_MIB, "{during} MiB");
        assert_eq!(edge_of(&daemon), first, "it was not started again");
        let (asked, entries) = (zone.asked().len(), log(&daemon, "loud").len());
        println!(
            "measured: edge {before} MiB, in the flood {during} MiB; {asked} questions, {entries} in the log; \
             nine of ten of the neighbour's requests within {beside} µs, {alone} µs without the flood"
        );
        drop(flood);
        // Whoever made the flood is not shut out by it.
        daemon.ok(["stop", "loud"]);
        daemon.ok(["start", "loud"]);
        assert!(curl(&daemon, "loud", "http://api.example/").contains("heard"));
    });
}
