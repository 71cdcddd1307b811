//! The sandbox's end of its network, with a tiny edge (`tests/network/edge.py`) at the other one.

use std::{
    io::{BufRead as _, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use backends::namespace::CreateCosts;
use guest_protocol::Request;
use sandbox::{
    Backend as _, Capability, Instance, NetworkHold, SandboxPlan, SandboxSpec,
    network::{NetworkSockets, NetworkSpec, Preset},
};

use crate::world::{Client, World, run, sh};

const EDGE: &str = include_str!("../../../../tests/network/edge.py");
const CLIENT: &str = include_str!("../../../../tests/network/client.py");

async fn python(instance: &dyn Instance, lines: &str) -> String {
    let output = run(instance, &["python3", "-c", lines]).await;
    assert_eq!(output.code(), Some(0), "{}", output.stderr);
    output.stdout
}

fn plan(world: &World, preset: Preset) -> SandboxPlan {
    let network = NetworkSpec { preset: Some(preset), ..NetworkSpec::default() };
    world.plan_with(&SandboxSpec { network, ..SandboxSpec::default() })
}

/// Where no network can be made, the back end says why, and makes no sandbox that needs one.
async fn is_missing(world: &World) -> bool {
    let can = world.backend.probe().await.unwrap();
    if can.has(Capability::Network) {
        return false;
    }
    assert!(can.missing.iter().any(|why| why.starts_with("Sandboxes reach nothing")), "{:?}", can.missing);
    assert!(world.backend.create(&plan(world, Preset::All)).await.is_err());
    println!("skipped: no network can be made here");
    true
}

/// A process that serves the sockets of one sandbox.
struct Edge {
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Edge {
    fn start(sockets: &NetworkSockets) -> Self {
        let descriptors = sockets.descriptors();
        let mut command = Command::new("python3");
        command.args(["-c", EDGE, "3", &descriptors.len().to_string()]).stdout(Stdio::piped());
        jail::inherit(&mut command, &descriptors).unwrap();
        let mut process = command.spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "ready");
        Self { process, said }
    }

    /// The ports of the first packets that it saw.
    fn stop(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.said.map(|line| line.unwrap()).collect()
    }
}

fn expected(outside: &str, spoofed: &str) -> String {
    format!(
        "tcp {outside} 443 hello at once\n\
         refused ECONNREFUSED at once\n\
         silent timed out at once\n\
         udp {outside} 53 hello at once\n\
         unreachable ECONNREFUSED at once\n\
         nobody here ECONNREFUSED at once\n\
         proxy's port here ECONNREFUSED at once\n\
         own server {outside} 443 hello mine at once\n\
         spoofed {spoofed} at once\n"
    )
}

async fn sockets_of(world: &World, plan: &SandboxPlan) -> NetworkSockets {
    world.backend.network_sockets(&plan.id).await.unwrap().expect("it has a network")
}

pub(crate) async fn programs_reach_whoever_holds_the_sockets(world: Arc<World>) {
    if is_missing(&world).await {
        return;
    }
    let plan = plan(&world, Preset::All);
    let instance = world.create(&plan).await;
    assert_eq!(instance.isolation().network, NetworkHold::Edge);
    let sockets = sockets_of(&world, &plan).await;
    let edge = Edge::start(&sockets);
    let seen = run(&*instance, &["python3", "-c", CLIENT, "4"]).await;
    assert_eq!(seen.stdout, expected("93.184.216.34", "timed out"), "{}", seen.stderr);
    let by_v6 = run(&*instance, &["python3", "-c", CLIENT, "6"]).await;
    let mut ports = edge.stop();
    let has_v6 = sockets.raw6.is_some();
    if has_v6 {
        assert_eq!(by_v6.stdout, expected("2606:4700::1", "EADDRNOTAVAIL"), "{}", by_v6.stderr);
        assert_eq!(ports.split_off(4), ["syn 443", "syn 81", "syn 9", "syn 443"]);
    } else {
        assert!(by_v6.stdout.starts_with("tcp ENETUNREACH at once\n"), "{by_v6:?}");
    }
    // The story of IPv6 has a route for it.
    assert_eq!(has_v6, std::env::var(crate::WHO).is_ok_and(|who| who == "ipv6") || host_has_v6());
    assert_eq!(ports, ["syn 443", "syn 81", "syn 9", "syn 443"]);
    instance.stop().await.unwrap();
}

fn host_has_v6() -> bool {
    let routes = std::fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    routes
        .lines()
        .any(|line| line.starts_with(&format!("{} 00 ", "0".repeat(32))) && !line.contains("00200200"))
}

pub(crate) async fn what_serves_a_network_may_come_later_and_again(world: Arc<World>) {
    if is_missing(&world).await {
        return;
    }
    let plan = plan(&world, Preset::Public);
    let instance = world.create(&plan).await;
    // Nobody serves yet, and the program waits.
    let connect = "import socket\ns = socket.create_connection(('93.184.216.34', 443), 30)\n\
        s.send(b'x'); print(s.recv(99).decode())";
    let begin = async { python(&*instance, connect).await };
    let serve = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let first = Edge::start(&sockets_of(&world, &plan).await);
        tokio::time::sleep(Duration::from_millis(300)).await;
        first
    };
    let (answer, first) = tokio::join!(begin, serve);
    assert_eq!(answer, "93.184.216.34 443 x\n");
    assert_eq!(first.stop(), ["syn 443"]);
    // A daemon that finds the sandbox gets the same sockets.
    let adopted = world.backend.adopt(&plan).await.unwrap().expect("it lives");
    let second = Edge::start(&sockets_of(&world, &plan).await);
    assert_eq!(python(&*adopted, connect).await, "93.184.216.34 443 x\n");
    assert_eq!(second.stop(), ["syn 443"]);
    instance.stop().await.unwrap();
}

pub(crate) async fn without_a_policy_that_needs_it_there_is_no_network(world: Arc<World>) {
    for (preset, hold) in [(Preset::None, NetworkHold::Loopback), (Preset::Packages, NetworkHold::Packages)] {
        let plan = plan(&world, preset);
        let instance = world.create(&plan).await;
        assert_eq!(instance.isolation().network, hold);
        assert!(world.backend.network_sockets(&plan.id).await.unwrap().is_none());
        let mut client = Client::connect(&*instance).await;
        assert!(client.try_ask(&Request::NetworkSockets).await.is_none());
        let connect = "import errno, socket\n\
            try: socket.create_connection(('93.184.216.34', 443), 2)\n\
            except OSError as error: print(errno.errorcode[error.errno])";
        assert_eq!(python(&*instance, connect).await, "ENETUNREACH\n");
        instance.stop().await.unwrap();
    }
}

/// The attempts of programs inside at what only the other end may do.
const ATTEMPTS: &str = r"
import ctypes, errno, os, socket

def attempt(name, work):
    try: work(); print(name, 'done')
    except OSError as error: print(name, errno.errorcode[error.errno])

def fetch(pidfd):
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(64):
        if libc.syscall(438, pidfd, number, 0) >= 0: return
    raise OSError(ctypes.get_errno(), '')

tcp, udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt('mark', lambda: udp.setsockopt(socket.SOL_SOCKET, 36, 0x77617272))
attempt('transparent', lambda: tcp.setsockopt(socket.SOL_IP, 19, 1))
attempt('transparent v6', lambda: socket.socket(socket.AF_INET6).setsockopt(socket.IPPROTO_IPV6, 75, 1))
attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
attempt('raw TCP', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP))
attempt('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM))
attempt('netfilter', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12))
attempt('descriptors', lambda: os.listdir('/proc/1/fd'))
attempt('pidfd_getfd', lambda: fetch(os.pidfd_open(1)))
attempt('port of the proxy', lambda: tcp.bind(('192.0.2.1', 61443)))
attempt('port of the proxy, everywhere', lambda: tcp.bind(('0.0.0.0', 61443)))
";

pub(crate) async fn the_sockets_of_a_network_are_out_of_reach_inside(world: Arc<World>) {
    if is_missing(&world).await {
        return;
    }
    let instance = world.create(&plan(&world, Preset::All)).await;
    let attempts = python(&*instance, ATTEMPTS).await;
    let expected = "mark EPERM\ntransparent EPERM\ntransparent v6 EPERM\nraw EPROTONOSUPPORT\nraw TCP EPERM\npacket EAFNOSUPPORT\n\
        netfilter EPROTONOSUPPORT\ndescriptors EACCES\npidfd_getfd EPERM\nport of the proxy EADDRINUSE\n\
        port of the proxy, everywhere EADDRINUSE\n";
    assert_eq!(attempts, expected);
    // Commands do not inherit them.
    let open = sh(&*instance, "ls /proc/self/fd").await.stdout;
    assert_eq!(open.split_ascii_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    // The rules and routes cannot be changed, and there is no other link.
    let changed = "import errno, socket, struct\n\
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\n\
        body = struct.pack('BBBBBBBBI', 2, 0, 0, 0, 254, 3, 254, 2, 0)\n\
        s.send(struct.pack('IHHII', 16 + len(body), 25, 5, 1, 0) + body)\n\
        print(errno.errorcode[-struct.unpack('i', s.recv(999)[16:20])[0]], socket.if_nameindex())";
    assert_eq!(python(&*instance, changed).await, "EPERM [(1, 'lo')]\n");
    instance.stop().await.unwrap();
}

/// The sockets of the network are not paid for by the workload's budget.
pub(crate) async fn a_network_takes_nothing_of_the_budget_for_sockets(world: Arc<World>) {
    if is_missing(&world).await {
        return;
    }
    let most = "import socket\nkept = []\n\
        try:\n  while len(kept) < 4000: kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))\n\
        except OSError: pass\nprint(len(kept))";
    let mut counts = Vec::new();
    for preset in [Preset::None, Preset::All] {
        let instance = world.create(&plan(&world, preset)).await;
        counts.push(python(&*instance, most).await);
        instance.stop().await.unwrap();
    }
    assert_eq!(counts[0], counts[1], "without and with a network");
}

fn step(costs: &CreateCosts, name: &str) -> Option<Duration> {
    costs.steps.iter().find(|(step, _)| step == name).map(|(_, took)| *took)
}

pub(crate) async fn a_network_is_made_quickly(world: Arc<World>) {
    if is_missing(&world).await {
        return;
    }
    let mut medians = Vec::new();
    for (preset, name) in [(Preset::None, "loopback"), (Preset::All, "network")] {
        let (mut steps, mut all) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            let (instance, costs) = world.backend.create_measured(&plan(&world, preset)).await.unwrap();
            steps.push(step(&costs, name).unwrap());
            all.push(costs.begin + costs.cage);
            instance.stop().await.unwrap();
        }
        steps.sort_unstable();
        all.sort_unstable();
        println!(
            "{name}: step {:?} (best {:?}), create {:?} (best {:?})",
            steps[10], steps[0], all[10], all[0]
        );
        medians.push(steps[10]);
    }
    // A guard against something slow on the way, not a benchmark.
    assert!(medians[1] < medians[0] + Duration::from_millis(20), "{medians:?}");
}
