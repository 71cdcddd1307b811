//! Other sandboxes and the host, through resources that might be shared.

use std::{
    fs::{self, File, OpenOptions},
    net::{SocketAddr, TcpStream},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{fs::MetadataExt as _, net},
    },
    time::Duration,
};

use rustix::fs::{FlockOperation, Mode, flock, inotify};

use crate::{
    attempts::{numbers, text},
    global::{NEW_QUEUE, open_queue},
    hold::hold,
    report::Report,
    settings::padded,
    sys::{Argument, call},
};

const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Locks on device nodes, held while the host locks its own.
pub(crate) fn device_locks(arguments: &[String]) -> Report {
    let mut report = Report::new();
    let mut kept = Vec::new();
    for path in DEVICES {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            kept.push(file);
        }
    }
    report.fact("locked", kept.len());
    hold(arguments);
    report
}

/// Watches on a node that nobody inside opens, while the host opens its own.
pub(crate) fn device_watches(arguments: &[String]) -> Report {
    let mut report = Report::new();
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let Ok(instance) = inotify::init(flags) else { return Report::skip("no inotify") };
    let events = inotify::WatchFlags::OPEN | inotify::WatchFlags::CLOSE | inotify::WatchFlags::ACCESS;
    if inotify::add_watch(&instance, "/dev/full", events).is_err() {
        report.held();
        return report;
    }
    hold(arguments);
    let mut seen = [0_u8; 4096];
    match rustix::io::read(&instance, &mut seen) {
        Ok(n) if n > 0 => report.breach("watch of /dev/full", "saw the host open it"),
        _ => report.held(),
    }
    report
}

/// Sets modes of device nodes to their current values. The other side compares the nodes with its own.
pub(crate) fn device_changes() -> Report {
    let mut report = Report::new();
    let mut changed = Vec::new();
    for path in DEVICES {
        let (Ok(file), Ok(found)) = (File::open(path), fs::metadata(path)) else { continue };
        let mode = Mode::from_raw_mode(found.mode() & 0o7777);
        if rustix::fs::fchmod(&file, mode).is_ok() {
            changed.push(format!("{path}={}:{}", found.dev(), found.ino()));
        }
    }
    report.fact("changed", changed);
    report
}

/// `abstract-sockets NAME…`: none of them may answer.
pub(crate) fn abstract_sockets(names: &[String]) -> Report {
    let mut report = Report::new();
    for name in names {
        let Ok(address) = net::SocketAddr::from_abstract_name(name) else { continue };
        report.must_fail(format!("connect to @{name}"), net::UnixStream::connect_addr(&address));
    }
    report
}

const CONNECT_TIME: Duration = Duration::from_millis(700);

/// `loopback PORT…`: ports of the host and of neighbours, none of which may answer.
pub(crate) fn loopback(ports: &[String]) -> Report {
    let mut report = Report::new();
    for port in ports.iter().filter_map(|port| port.parse::<u16>().ok()) {
        for host in ["127.0.0.1", "[::1]"] {
            let Ok(address) = format!("{host}:{port}").parse::<SocketAddr>() else { continue };
            report.must_fail(address.to_string(), TcpStream::connect_timeout(&address, CONNECT_TIME));
        }
    }
    report
}

/// Nothing outside answers, not even the address where clouds keep credentials.
pub(crate) fn network_out() -> Report {
    let mut report = Report::new();
    for address in ["192.0.2.1:80", "169.254.169.254:80", "10.0.0.1:53", "[2001:db8::1]:80", "[fe80::1]:80"] {
        let Ok(address) = address.parse::<SocketAddr>() else { continue };
        report.must_fail(address.to_string(), TcpStream::connect_timeout(&address, CONNECT_TIME));
    }
    let interfaces = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    for line in interfaces.lines().skip(2) {
        let name = line.split(':').next().unwrap_or_default().trim();
        report.must(format!("interface {name}"), name == "lo", "there");
    }
    report
}

/// Processes that a sandbox of this kind can have.
const MAX_PROCESSES: usize = 64;

/// `processes PID…`: those of the host, by its own numbers.
pub(crate) fn processes(pids: &[String]) -> Report {
    let mut report = Report::new();
    for pid in pids.iter().filter_map(|pid| pid.parse::<i64>().ok()) {
        // A small number may be one of our own processes.
        if pid > 1000 {
            report.must(format!("/proc/{pid}"), fs::metadata(format!("/proc/{pid}")).is_err(), "there");
            report.must_fail(format!("signal 0 to {pid}"), numbers(libc::SYS_kill, [pid, 0]));
        }
    }
    let seen = fs::read_dir("/proc").into_iter().flatten().flatten();
    let seen = seen.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok()).count();
    report.must("processes to be seen", seen <= MAX_PROCESSES, seen);
    report
}

const KEY: i64 = 0x5741_5252;
const NAME: &str = "attack-shared";

/// Named IPC objects, for a neighbour to find.
pub(crate) fn ipc_make(arguments: &[String]) -> Report {
    let mut report = Report::new();
    let flags = i64::from(libc::IPC_CREAT | 0o666);
    let made = [
        numbers(libc::SYS_shmget, [KEY, 4096, flags]).is_ok(),
        numbers(libc::SYS_msgget, [KEY, flags]).is_ok(),
        numbers(libc::SYS_semget, [KEY, 1, flags]).is_ok(),
        open_queue(NAME, NEW_QUEUE).is_ok(),
        fs::write(format!("/dev/shm/{NAME}"), "x").is_ok(),
        fs::write(format!("/tmp/{NAME}"), "x").is_ok(),
        fs::write(format!("/run/{NAME}"), "x").is_ok(),
    ];
    report.fact("made", made.iter().filter(|made| **made).count());
    hold(arguments);
    report
}

pub(crate) fn ipc_look(_: &[String]) -> Report {
    let mut report = Report::new();
    report.must_fail("shared memory by key", numbers(libc::SYS_shmget, [KEY, 0, 0]));
    report.must_fail("messages by key", numbers(libc::SYS_msgget, [KEY, 0]));
    report.must_fail("semaphores by key", numbers(libc::SYS_semget, [KEY, 0, 0]));
    report.must_fail("queue by name", open_queue(NAME, libc::O_RDWR));
    for directory in ["/dev/shm", "/tmp", "/run"] {
        let path = format!("{directory}/{NAME}");
        report.must_fail(path.clone(), fs::metadata(&path));
    }
    report
}

/// `hostname HOST`: the host's own name is neither visible nor changeable.
pub(crate) fn hostname(arguments: &[String]) -> Report {
    let mut report = Report::new();
    let mut name = text("attacked");
    let words = [Argument::Memory(&mut name), Argument::Number(8)];
    report.must_fail("sethostname", call(libc::SYS_sethostname, padded(words)));
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    report.must("host name", arguments.first() != Some(&own), own);
    report
}

const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// `namespaces NAME…`: those of the host and of neighbours, none of which may be ours. Ours are reported as facts.
pub(crate) fn namespaces(others: &[String]) -> Report {
    let mut report = Report::new();
    let mut own = Vec::new();
    for kind in NAMESPACES {
        let Ok(found) = fs::read_link(format!("/proc/self/ns/{kind}")) else { continue };
        let found = found.display().to_string();
        report.must(format!("{kind} namespace"), !others.contains(&found), &found);
        own.push(found);
    }
    report.must("namespaces", own.len() == NAMESPACES.len(), own.len());
    report.fact("own", own);
    report
}
