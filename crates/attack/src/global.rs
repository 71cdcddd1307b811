//! Five of each resource that the whole machine shares, held while the other side measures their cost on the host.

use std::{
    fs::{self, File},
    os::{fd::AsRawFd as _, unix::net::UnixDatagram},
};

use rustix::fs::inotify;

use crate::{
    attempts::{numbers, open_to_write, text},
    hold::hold,
    report::Report,
    settings::padded,
    sys::{self, Argument, NONSENSE, call},
};

/// How many of each.
const FEW: usize = 5;
/// The number of open files changes all the time on every machine, so a few would not be noticed. Every machine allows
/// tens of thousands.
const FILES: usize = 200;

fn number_in(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

pub(crate) fn inotify(arguments: &[String]) -> Report {
    let mut report = Report::new();
    let mut kept = Vec::new();
    for _ in 0..FEW {
        let Ok(instance) = inotify::init(inotify::CreateFlags::CLOEXEC) else { break };
        inotify::add_watch(&instance, "/tmp", inotify::WatchFlags::CREATE).ok();
        kept.push(instance);
    }
    report.fact("made", kept.len());
    for (name, path) in [
        ("instances", "/proc/sys/user/max_inotify_instances"),
        ("watches", "/proc/sys/user/max_inotify_watches"),
    ] {
        report.fact(name, number_in(path));
    }
    hold(arguments);
    report
}

/// Contexts of asynchronous I/O; the whole machine has 65,536 events.
pub(crate) fn aio(arguments: &[String]) -> Report {
    let mut report = Report::new();
    for _ in 0..FEW {
        let mut context = [0_u8; 8];
        let words = padded([Argument::Number(64), Argument::Memory(&mut context)]);
        report.must_fail("io_setup", call(libc::SYS_io_setup, words));
    }
    hold(arguments);
    report
}

/// Terminals; the whole machine has a few thousand, so the sandbox's own devpts must have a limit.
pub(crate) fn ptys(arguments: &[String]) -> Report {
    let mut report = Report::new();
    let kept: Vec<_> = (0..FEW).filter_map(|_| open_to_write("/dev/ptmx").ok()).collect();
    report.fact("made", kept.len());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let line = mounts.lines().find(|line| line.contains(" - devpts ")).unwrap_or_default();
    let most = line.rsplit(' ').next().unwrap_or_default().split(',');
    let most = most.filter_map(|option| option.strip_prefix("max=")?.parse::<u64>().ok()).next();
    let machine = number_in("/proc/sys/kernel/pty/max").unwrap_or(4096);
    let is_share = most.is_some_and(|most| most <= machine / 4);
    report.must("terminals of this sandbox", is_share, most.map_or("no limit".to_owned(), |n| n.to_string()));
    hold(arguments);
    report
}

pub(crate) fn open_files(arguments: &[String]) -> Report {
    let mut report = Report::new();
    let kept: Vec<_> = (0..FILES).filter_map(|_| File::open("/dev/null").ok()).collect();
    report.fact("made", kept.len());
    report.fact("openFiles", sys::hard_limit(libc::RLIMIT_NOFILE));
    report.fact("machine", number_in("/proc/sys/fs/file-max"));
    report.must_fail("raise the machine's limit", open_to_write("/proc/sys/fs/file-max"));
    hold(arguments);
    report
}

/// POSIX message queues, whose bytes the kernel charges to a user.
pub(crate) fn queues(arguments: &[String]) -> Report {
    let mut report = Report::new();
    let n_made = (0..FEW).filter(|n| open_queue(&format!("attack-few-{n}"), NEW_QUEUE).is_ok()).count();
    report.fact("made", n_made);
    hold(arguments);
    report
}

pub(crate) const NEW_QUEUE: i32 = libc::O_RDWR | libc::O_CREAT;

/// Opens a queue; a new one has the usual size.
pub(crate) fn open_queue(name: &str, flags: i32) -> Result<i64, i32> {
    let mut name = text(name);
    let words = [Argument::Memory(&mut name), Argument::Number(flags.into()), Argument::Number(0o666)];
    call(libc::SYS_mq_open, padded(words))
}

/// Whether the calling user can still make a queue. It is removed again.
pub fn can_make_queue() -> bool {
    let name = format!("warren-attack-{}", std::process::id());
    let Ok(queue) = open_queue(&name, NEW_QUEUE) else { return false };
    drop(sys::own(queue));
    let mut name = text(&name);
    call(libc::SYS_mq_unlink, padded([Argument::Memory(&mut name)])).is_ok()
}

/// Timers and queued signals are charged to a user.
pub(crate) fn timers() -> Report {
    let mut report = Report::new();
    let mut n_made = 0;
    for _ in 0..FEW {
        let mut id = [0_u8; 8];
        let words = [Argument::Number(1), Argument::Number(0), Argument::Memory(&mut id)];
        n_made += usize::from(call(libc::SYS_timer_create, padded(words)).is_ok());
    }
    report.fact("made", n_made);
    report.fact("pendingSignals", sys::hard_limit(libc::RLIMIT_SIGPENDING));
    report
}

/// Keyrings belong to users of the host.
pub(crate) fn keyrings(arguments: &[String]) -> Report {
    let mut report = Report::new();
    for _ in 0..FEW {
        let (mut kind, mut name, mut data) = (text("user"), text("attack"), [1_u8; 8]);
        let add = [
            Argument::Memory(&mut kind),
            Argument::Memory(&mut name),
            Argument::Memory(&mut data),
            Argument::Number(8),
            Argument::Number(-3),
        ];
        report.must_fail("add_key", call(libc::SYS_add_key, padded(add)));
    }
    report.must_fail("keyctl", numbers(libc::SYS_keyctl, [0, -3, 1]));
    report.must_fail("request_key", numbers(libc::SYS_request_key, [NONSENSE, NONSENSE, 0, -3]));
    hold(arguments);
    report
}

/// Socket filters are compiled into memory of which the machine has a fixed amount.
pub(crate) fn bpf_filters(arguments: &[String]) -> Report {
    let mut report = Report::new();
    let mut kept = Vec::new();
    for (name, option) in [("SO_ATTACH_FILTER", 26), ("SO_ATTACH_BPF", 50), ("SO_ATTACH_REUSEPORT_CBPF", 51)]
    {
        for _ in 0..FEW {
            let Ok(socket) = UnixDatagram::unbound() else { break };
            report.must_fail(name, attach_filter(&socket, option));
            kept.push(socket);
        }
    }
    report.must_fail("bpf", numbers(libc::SYS_bpf, [0, NONSENSE, 0]));
    hold(arguments);
    report
}

fn attach_filter(socket: &UnixDatagram, option: i64) -> Result<i64, i32> {
    // One instruction: return 0.
    let mut instruction = [6_u8, 0, 0, 0, 0, 0, 0, 0];
    let mut program = [0_u8; 16];
    program[0] = 1;
    program[8..].copy_from_slice(&(instruction.as_mut_ptr() as u64).to_ne_bytes());
    let words = [
        Argument::Number(socket.as_raw_fd().into()),
        Argument::Number(libc::SOL_SOCKET.into()),
        Argument::Number(option),
        Argument::Memory(&mut program),
        Argument::Number(16),
    ];
    call(libc::SYS_setsockopt, padded(words))
}

/// Whether the caller can still make the kernel compile a socket filter.
pub fn can_attach_filter() -> bool {
    UnixDatagram::unbound().is_ok_and(|socket| attach_filter(&socket, libc::SO_ATTACH_FILTER.into()).is_ok())
}

pub(crate) fn user_namespaces(arguments: &[String]) -> Report {
    let mut report = Report::new();
    for _ in 0..FEW {
        let ended =
            sys::in_child(|| i32::from(numbers(libc::SYS_unshare, [libc::CLONE_NEWUSER.into()]).is_err()));
        report.must("unshare", ended.is_ok_and(|ended| ended != sys::Ended::Exited(0)), "done");
    }
    // Creation must be forbidden altogether, not just limited by a count.
    for name in ["max_user_namespaces", "max_mnt_namespaces", "max_net_namespaces"] {
        report.fact(name, number_in(&format!("/proc/sys/user/{name}")));
    }
    hold(arguments);
    report
}

/// Other ways to make the kernel watch things.
pub(crate) fn watchers() -> Report {
    let mut report = Report::new();
    report.must_fail("fanotify_init", numbers(libc::SYS_fanotify_init, [0, 0]));
    report.must_fail("userfaultfd", numbers(libc::SYS_userfaultfd, [0]));
    let mut attributes = [0_u8; 128];
    attributes[4] = 128;
    let words = [
        Argument::Memory(&mut attributes),
        Argument::Number(0),
        Argument::Number(-1),
        Argument::Number(-1),
        Argument::Number(0),
    ];
    report.must_fail("perf_event_open", call(libc::SYS_perf_event_open, padded(words)));
    let mut parameters = [0_u8; 256];
    let words = [Argument::Number(1), Argument::Memory(&mut parameters)];
    report.must_fail("io_uring_setup", call(libc::SYS_io_uring_setup, padded(words)));
    report
}
