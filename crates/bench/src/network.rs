//! The cost of a sandbox's network: Warren's edge beside a veth pair with masquerade, `pasta` and `slirp4netns`.
//!
//! It runs in namespaces of its own, which have no way out: a "host" where everything is done, and behind a veth pair a
//! server. Each way leads from a network namespace of its own through the host to that server. `iperf3` measures
//! streams, a few lines of Python measure connections; all ways in turns. The sandbox may use every processor, as the
//! peers' namespaces do.

mod edge;
mod secret;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{
    daemon::{Daemon, machine},
    progress,
    report::Report,
    samples::Samples,
};

/// Set in the process that runs in the namespaces.
const INSIDE: &str = "WARREN_BENCH_NETWORK";
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Kernels count processor time in these.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many streams are measured each way and direction
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// How many seconds each stream takes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// How many connections are made in a row, each way and run
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connects: u32,
    /// How many sandboxes with a network are made to see what the edge needs
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=2000))]
    sandboxes: u32,
}

/// The host, the server behind it, and the namespaces of the peers. The server's address is of the internet.
const SETUP: &str = "
set -e
mkdir -p /run/netns && mount -t tmpfs none /run/netns
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
for name in server veth pasta slirp; do ip netns add $name; ip -n $name link set lo up; done
ip link add to-server type veth peer name eth0 netns server
ip address add 10.88.0.1/30 dev to-server && ip link set to-server up
ip -n server address add 10.88.0.2/30 dev eth0
ip -n server address add 93.184.216.34/32 dev lo
ip -n server link set eth0 up
ip route add default via 10.88.0.2
ip link add to-veth type veth peer name eth0 netns veth
ip address add 10.77.0.1/30 dev to-veth && ip link set to-veth up
ip -n veth address add 10.77.0.2/30 dev eth0 && ip -n veth link set eth0 up
ip -n veth route add default via 10.77.0.1
nft -f - <<'END'
table ip nat {
    chain post {
        type nat hook postrouting priority 100;
        oifname to-server masquerade
    }
}
END
";

/// Answers every connection to any of its ports with a byte, in a few processes.
const SERVER: &str = "
import os, select, socket
ready, all = select.epoll(), {}
for port in range(7000, 7400):
    s = socket.create_server(('93.184.216.34', port), backlog=4096)
    s.setblocking(False)
    all[s.fileno()] = s
os.fork()
ready = select.epoll()
for number in all: ready.register(number, select.EPOLLIN | select.EPOLLEXCLUSIVE)
while True:
    for number, _ in ready.poll():
        try: c, _ = all[number].accept()
        except BlockingIOError: continue
        c.send(b'x')
        c.close()
";
/// Each measurement has a port of its own: what is left of earlier connections, in the tables of the host's NAT and of
/// the server, is in nobody's way then.
const FIRST_PORT: u32 = 7000;
const N_PORTS: u32 = 400;

/// Connects in a row and prints each time in seconds; refusals count too.
const CONNECTS: &str = "
import socket, sys, time
for _ in range(int(sys.argv[3])):
    begin = time.perf_counter()
    s = socket.socket()
    try:
        s.connect((sys.argv[1], int(sys.argv[2])))
        s.recv(1)
    except ConnectionRefusedError: pass
    print(time.perf_counter() - begin)
    s.close()
";

/// Connects to a server of its own process by loopback, and prints each time in seconds. Nothing of this leaves the
/// sandbox: what it costs more than outside is the sandbox's filter of system calls.
const LOOPBACK: &str = "
import socket, sys, threading, time
server = socket.create_server(('127.0.0.1', 0), backlog=128)
def serve():
    while True:
        c, _ = server.accept()
        c.send(b'x')
        c.close()
threading.Thread(target=serve, daemon=True).start()
for _ in range(int(sys.argv[1])):
    begin = time.perf_counter()
    s = socket.create_connection(server.getsockname())
    s.recv(1)
    print(time.perf_counter() - begin)
    s.close()
";

/// Connects from four processes at once and prints how many connections they made in a second.
const RATE: &str = "
import os, socket, sys, time
end, pipes = time.time() + float(sys.argv[1]), []
for _ in range(4):
    r, w = os.pipe()
    if os.fork() == 0:
        n = 0
        while time.time() < end:
            s = socket.create_connection(('93.184.216.34', int(sys.argv[2])))
            s.recv(1)
            s.close()
            n += 1
        os.write(w, str(n).encode())
        os._exit(0)
    os.close(w)
    pipes.append(r)
print(sum(int(os.read(r, 99)) for r in pipes) / float(sys.argv[1]))
";

pub(crate) async fn measure(program: &Path, options: &Options) -> Result<Option<Report>> {
    if env::var_os(INSIDE).is_none() {
        ensure!(rustix::process::geteuid().is_root(), "this suite needs root, for the peers");
        let place = tempfile::tempdir()?;
        let script = format!("{SETUP}{}exec \"$@\"", secret::SETUP);
        let status = Command::new("unshare")
            .args(["-nmpf", "--mount-proc", "--kill-child", "sh", "-c", &script, "sh"])
            .arg(env::current_exe()?)
            .args(env::args_os().skip(1))
            .env(INSIDE, "1")
            .envs(secret::variables(place.path()))
            .status()
            .await?;
        ensure!(status.success(), "the bench failed in its namespaces");
        return Ok(None);
    }
    let _iperf = start("ip", &["netns", "exec", "server", "iperf3", "-s", "-B", "93.184.216.34"])?;
    let _server = start("ip", &["netns", "exec", "server", "python3", "-c", SERVER])?;
    let place = secret::place().context("no place for certificates")?;
    let _servers = secret::servers(&place)?;
    let daemon = Daemon::start(program, &[]).await?;
    let measured = compare(&daemon, options).await;
    daemon.stop().await;
    measured.map(Some)
}

/// A way from somewhere to the server.
struct Way<'a> {
    name: &'static str,
    place: Place<'a>,
    /// The process that carries the bytes, where it is not the kernel alone.
    carrier: Option<u32>,
    _process: Option<Child>,
}

enum Place<'a> {
    Namespace(&'static str),
    Sandbox(&'a Daemon, String),
    /// The network of this process, and nothing else of it: no filter of system calls asks about each connection.
    NetworkOf(u32),
}

impl Way<'_> {
    async fn run(&self, command: &[&str]) -> Result<String> {
        let mut enter = match &self.place {
            Place::Sandbox(daemon, id) => return daemon.exec(id, command).await,
            Place::Namespace(namespace) => {
                let mut ip = Command::new("ip");
                ip.args(["netns", "exec", namespace]);
                ip
            }
            Place::NetworkOf(pid) => {
                let mut nsenter = Command::new("nsenter");
                nsenter.args(["--net", "--target", &pid.to_string()]);
                nsenter
            }
        };
        let done = enter.args(command).output().await?;
        ensure!(
            done.status.success(),
            "{}: {command:?}: {}",
            self.name,
            String::from_utf8_lossy(&done.stderr)
        );
        Ok(String::from_utf8(done.stdout)?)
    }

    /// One stream; Gbit/s, and processor seconds for a GB of the client, the server and whoever carries it.
    async fn stream(&self, seconds: u32, is_down: bool) -> Result<(f64, f64)> {
        let time = seconds.to_string();
        let mut command = vec!["iperf3", "-J", "-c", "93.184.216.34", "-t", &time];
        command.extend(is_down.then_some("-R"));
        let before = self.carrier.map_or(0.0, processor_seconds);
        let told: Value = serde_json::from_str(&self.run(&command).await?)?;
        let carrier = self.carrier.map_or(0.0, processor_seconds) - before;
        let number = |pointer: &str| {
            told.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no {pointer} of iperf3"))
        };
        let (bits, took) =
            (number("/end/sum_received/bits_per_second")?, number("/end/sum_received/seconds")?);
        let ends = number("/end/cpu_utilization_percent/host_total")?
            + number("/end/cpu_utilization_percent/remote_total")?;
        let gigabytes = number("/end/sum_received/bytes")? / 1e9;
        Ok((bits / 1e9, (ends / 100.0 * took + carrier) / gigabytes))
    }

    async fn connects(&self, address: &str, port: u32, count: u32) -> Result<Vec<Duration>> {
        let (port, count) = (port.to_string(), count.to_string());
        durations(&self.run(&["python3", "-c", CONNECTS, address, &port, &count]).await?)
    }

    async fn loopback(&self, count: u32) -> Result<Vec<Duration>> {
        durations(&self.run(&["python3", "-c", LOOPBACK, &count.to_string()]).await?)
    }

    async fn rate(&self, port: u32) -> Result<f64> {
        Ok(self.run(&["python3", "-c", RATE, "1.5", &port.to_string()]).await?.trim().parse()?)
    }

    async fn is_ready(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.connects("93.184.216.34", FIRST_PORT, 1).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }
}

/// Seconds, one in each line.
fn durations(told: &str) -> Result<Vec<Duration>> {
    told.lines().map(|line| Ok(Duration::try_from_secs_f64(line.parse()?)?)).collect()
}

async fn compare(daemon: &Daemon, options: &Options) -> Result<Report> {
    let mut report = machine();
    let limits = json!({ "connectsPerSecond": 100_000, "connections": 4096 });
    let open = json!({ "preset": "public", "limits": limits });
    let id = daemon
        .create(json!({ "name": "bench", "network": open, "limits": { "cpus": processors() } }))
        .await?;
    // It is started with the first sandbox that needs it, and served by the time that one is.
    daemon.exec(&id, &["python3", "-c", CONNECTS, "93.184.216.34", "7000", "1"]).await?;
    let edge = edge::find().context("no edge runs")?;
    edge::report(&mut report, edge, "one sandbox").await;
    let mut ways = vec![
        Way { name: "veth", place: Place::Namespace("veth"), carrier: None, _process: None },
        Way {
            name: "warren",
            place: Place::Sandbox(daemon, id.clone()),
            carrier: Some(edge),
            _process: None,
        },
    ];
    let pasta = ["-f", "-q", "--runas", "0", "--config-net", "--netns-only", "--netns", "/run/netns/pasta"];
    let slirp = ["--configure", "--mtu=65520", "--netns-type=path", "/run/netns/slirp", "tap0"];
    for (name, program, arguments) in
        [("pasta", "pasta", &pasta[..]), ("slirp4netns", "slirp4netns", &slirp[..])]
    {
        let namespace = if name == "pasta" { "pasta" } else { "slirp" };
        let Ok(process) = start(program, arguments) else { continue };
        let way =
            Way { name, place: Place::Namespace(namespace), carrier: process.id(), _process: Some(process) };
        // One that is installed but does not work here is left out.
        match way.is_ready().await {
            Ok(()) => ways.push(way),
            Err(error) => progress(&format!("{name} is left out: {error}"), 0, 1),
        }
    }
    ways[0].is_ready().await?;
    streams(&mut report, &ways, options).await?;
    let guest = daemon.guest(&id).context("the sandbox has no guest")?;
    ways.push(Way {
        name: "warren, client without the filter",
        place: Place::NetworkOf(guest),
        carrier: None,
        _process: None,
    });
    connections(&mut report, &ways, options).await?;
    // A client that had to wait for its quota would be measured, not its network.
    if let Some(count) = throttled(&id) {
        report.fact("times the sandbox used up its processor quota", count, "");
    }
    gate(&mut report, daemon, &ways[0], options).await?;
    secret::measure(&mut report, daemon, options.connects).await?;
    creates(&mut report, daemon, options).await?;
    kernel_memory(&mut report, daemon, options.runs).await?;
    many(&mut report, daemon, edge, options.sandboxes).await?;
    Ok(report)
}

/// As many processors as the machine has.
fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// How often the kernel made a sandbox's processes wait for their next share of the processors; absent where nothing
/// limits them.
fn throttled(sandbox: &str) -> Option<f64> {
    let group = directory_named(Path::new("/sys/fs/cgroup"), sandbox, GROUP_DEPTH)?;
    let counts = fs::read_to_string(group.join("cpu.stat")).ok()?;
    let line = counts.lines().find_map(|line| line.strip_prefix("nr_throttled "))?;
    line.trim().parse().ok()
}

/// Hierarchies of cgroups are beneath each other at most so deep here.
const GROUP_DEPTH: u32 = 6;

/// A directory of that name that has the counts of a processor quota.
fn directory_named(place: &Path, name: &str, depth: u32) -> Option<PathBuf> {
    let own = place.join(name);
    if own.join("cpu.stat").exists() {
        return Some(own);
    }
    let inner =
        fs::read_dir(place).ok()?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut inner = inner.filter(|_entry| depth > 0);
    inner.find_map(|entry| directory_named(&entry.path(), name, depth - 1))
}

/// Measures what the sandbox's filter of system calls adds to connections that stay inside, beside the same in a plain
/// namespace.
async fn gate(report: &mut Report, daemon: &Daemon, plain: &Way<'_>, options: &Options) -> Result<()> {
    let spec = json!({ "network": { "preset": "none" }, "limits": { "cpus": processors() } });
    let id = daemon.create(spec).await?;
    let inside =
        Way { name: "inside", place: Place::Sandbox(daemon, id.clone()), carrier: None, _process: None };
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..options.runs {
        for (way, times) in [plain, &inside].iter().zip(&mut times) {
            times.extend(way.loopback(options.connects).await?);
        }
    }
    daemon.remove(&id).await?;
    let named = ["plain namespace", "sandbox without a network"].map(str::to_owned).into_iter();
    report.compare("connect by loopback + 1 byte", named.zip(times.map(Samples::from)).collect());
    Ok(())
}

async fn streams(report: &mut Report, ways: &[Way<'_>], options: &Options) -> Result<()> {
    for (direction, is_down) in [("up", false), ("down", true)] {
        let mut measured = vec![(Vec::new(), Vec::new()); ways.len()];
        for run in 0..options.runs {
            for (way, (rates, costs)) in ways.iter().zip(&mut measured) {
                let (rate, cost) = way.stream(options.seconds, is_down).await?;
                rates.push(rate);
                costs.push(cost);
            }
            progress(direction, run as usize, options.runs as usize);
        }
        let medians: Vec<_> =
            measured.into_iter().map(|(rates, costs)| (median(rates), median(costs))).collect();
        for (way, (rate, cost)) in ways.iter().zip(&medians) {
            let name = way.name;
            report.fact(format!("one stream {direction}, {name}"), *rate, "Gbit/s");
            report.fact(format!("one stream {direction}, {name} beside veth"), rate / medians[0].0, "×");
            report.fact(format!("processor for a GB {direction}, {name}"), *cost, "s");
        }
    }
    Ok(())
}

async fn connections(report: &mut Report, ways: &[Way<'_>], options: &Options) -> Result<()> {
    let mut times = vec![Vec::new(); ways.len()];
    let mut rates = vec![Vec::new(); ways.len()];
    let mut denied = Vec::new();
    let mut ports = (FIRST_PORT..FIRST_PORT + N_PORTS).cycle();
    let mut port = || ports.next().unwrap_or(FIRST_PORT);
    for run in 0..options.runs {
        for ((way, times), rates) in ways.iter().zip(&mut times).zip(&mut rates) {
            times.extend(way.connects("93.184.216.34", port(), options.connects).await?);
            rates.push(way.rate(port()).await?);
            if matches!(way.place, Place::Sandbox(..)) {
                denied.extend(way.connects("10.99.0.1", FIRST_PORT, options.connects).await?);
            }
        }
        progress("connections", run as usize, options.runs as usize);
    }
    let named = ways.iter().map(|way| way.name.to_owned());
    report.compare("connect + 1 byte", named.zip(times.into_iter().map(Samples::from)).collect());
    report.compare("denied connect", vec![("warren".to_owned(), Samples::from(denied))]);
    for (way, rates) in ways.iter().zip(rates) {
        report.fact(format!("connections a second, {}", way.name), median(rates), "/s");
    }
    Ok(())
}

async fn creates(report: &mut Report, daemon: &Daemon, options: &Options) -> Result<()> {
    let presets = ["none", "public"];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..options.runs * 10 {
        for (preset, times) in presets.iter().zip(&mut times) {
            let began = Instant::now();
            let id = daemon.create(json!({ "network": { "preset": preset } })).await?;
            times.push(began.elapsed());
            daemon.remove(&id).await?;
        }
    }
    let named = presets.iter().map(|preset| format!("network {preset}"));
    report.compare("create", named.zip(times.map(Samples::from)).collect());
    Ok(())
}

/// Sandboxes of one measurement of the kernel's memory.
const BATCH: u32 = 30;

/// Measures the kernel's memory for the network of an idle sandbox: sandboxes with and without one, in turns. Whatever
/// else the machine does is in these numbers too.
async fn kernel_memory(report: &mut Report, daemon: &Daemon, runs: u32) -> Result<()> {
    let presets = ["none", "public"];
    let mut needed = [Vec::new(), Vec::new()];
    for run in 0..runs {
        for (preset, needed) in presets.iter().zip(&mut needed) {
            let (before, mut all) = (kernel_kib(), Vec::new());
            for _ in 0..BATCH {
                all.push(daemon.create(json!({ "network": { "preset": preset } })).await?);
            }
            needed.push((kernel_kib() - before) / f64::from(BATCH));
            for id in all {
                daemon.remove(&id).await?;
            }
        }
        progress("kernel memory", run as usize, runs as usize);
    }
    let [without, with] = needed.map(median);
    report.fact("kernel memory of an idle sandbox without a network", without, "KiB");
    report.fact("of its network", with - without, "KiB");
    Ok(())
}

/// Returns the memory that the kernel uses for itself.
fn kernel_kib() -> f64 {
    let counted = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    ["Slab:", "Percpu:", "KernelStack:", "PageTables:", "VmallocUsed:"]
        .iter()
        .filter_map(|field| crate::daemon::kib_field(&counted, field))
        .map(|bytes| f64::from(u32::try_from(bytes / 1024).unwrap_or(u32::MAX)))
        .sum()
}

/// Measures the edge's needs for many idle sandboxes with a network.
async fn many(report: &mut Report, daemon: &Daemon, edge: u32, count: u32) -> Result<()> {
    let mut all = Vec::new();
    for made in 0..count {
        all.push(daemon.create(json!({ "network": { "preset": "public" } })).await?);
        progress("sandboxes", made as usize, count as usize);
    }
    // The last one is served once its traffic is decided.
    let last = all.last().context("none was made")?;
    daemon.exec(last, &["python3", "-c", CONNECTS, "93.184.216.34", "7000", "1"]).await?;
    edge::report(report, edge, &format!("{count} sandboxes")).await;
    for id in all {
        daemon.remove(&id).await?;
    }
    Ok(())
}

fn start(program: &str, arguments: &[&str]) -> Result<Child> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command.spawn().with_context(|| format!("could not start {program}"))
}

fn processor_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
    // In user mode and in the kernel.
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS_PER_SECOND
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
