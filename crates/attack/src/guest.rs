//! Our own program inside, process 1, as a target: it runs as the workload's user.

use std::{fs, io};

use crate::{
    attempts::{numbers, open_to_write},
    report::Report,
    settings::padded,
    sys::{Argument, call},
};

pub(crate) fn memory() -> Report {
    let mut report = Report::new();
    for name in
        ["mem", "environ", "maps", "smaps", "auxv", "syscall", "stack", "io", "pagemap", "timerslack_ns"]
    {
        let path = format!("/proc/1/{name}");
        report.must_fail(path.clone(), read_some(&path));
    }
    for name in ["root", "cwd", "exe", "ns/mnt", "ns/user"] {
        let path = format!("/proc/1/{name}");
        report.must_fail(path.clone(), fs::read_link(&path));
    }
    for name in ["fd", "fdinfo", "map_files"] {
        let path = format!("/proc/1/{name}");
        report.must_fail(
            path.clone(),
            fs::read_dir(&path)
                .and_then(|mut listed| listed.next().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))),
        );
    }
    for name in ["mem", "clear_refs", "coredump_filter", "uid_map", "setgroups"] {
        let path = format!("/proc/1/{name}");
        report.must_fail(format!("{path}, to write"), open_to_write(&path));
    }
    report
}

fn read_some(path: &str) -> io::Result<()> {
    use std::io::Read as _;
    let mut byte = [0];
    match fs::File::open(path)?.read(&mut byte)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

pub(crate) fn trace() -> Report {
    let mut report = Report::new();
    for (name, request) in [("PTRACE_ATTACH", 16), ("PTRACE_SEIZE", 0x4206)] {
        report.must_fail(name, numbers(libc::SYS_ptrace, [request, 1, 0, 0]));
    }
    let (mut memory, mut local, mut remote) = ([0_u8; 64], [0_u8; 16], [0_u8; 16]);
    local[..8].copy_from_slice(&(memory.as_mut_ptr() as u64).to_ne_bytes());
    local[8..].copy_from_slice(&8_u64.to_ne_bytes());
    remote[..8].copy_from_slice(&0x40_0000_u64.to_ne_bytes());
    remote[8..].copy_from_slice(&8_u64.to_ne_bytes());
    for (name, number) in
        [("process_vm_readv", libc::SYS_process_vm_readv), ("process_vm_writev", libc::SYS_process_vm_writev)]
    {
        let tried = call(
            number,
            [
                Argument::Number(1),
                Argument::Memory(&mut local),
                Argument::Number(1),
                Argument::Memory(&mut remote),
                Argument::Number(1),
                Argument::Number(0),
            ],
        );
        report.must_fail(name, tried);
    }
    if let Ok(pidfd) = numbers(libc::SYS_pidfd_open, [1, 0]) {
        for descriptor in 0..5 {
            report.must_fail(
                format!("pidfd_getfd {descriptor}"),
                numbers(libc::SYS_pidfd_getfd, [pidfd, descriptor, 0]),
            );
        }
        report.must_fail("setns by pidfd", numbers(libc::SYS_setns, [pidfd, libc::CLONE_NEWNS.into()]));
    }
    report
}

/// Signals that end or stop a process. The other side checks that the guest still serves.
pub(crate) fn signals() -> Report {
    let mut report = Report::new();
    for signal in [libc::SIGSTOP, libc::SIGTERM, libc::SIGSEGV, libc::SIGKILL] {
        numbers(libc::SYS_kill, [1, signal.into()]).ok();
    }
    let state = crate::attempts::status_field("1", "State").unwrap_or_default();
    report.must("state of the guest", state.starts_with('S') || state.starts_with('R'), state);
    report
}

/// The guest's limits and its share of the machine.
pub(crate) fn limits() -> Report {
    let mut report = Report::new();
    let tasks = fs::read_dir("/proc/1/task").into_iter().flatten().flatten();
    let tasks = tasks.filter_map(|task| task.file_name().to_str()?.parse::<i64>().ok());
    for task in tasks {
        let (mut few, mut mask) = ([1_u8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], [1_u8; 8]);
        let limit = padded([
            Argument::Number(task),
            Argument::Number(i64::from(libc::RLIMIT_NOFILE)),
            Argument::Memory(&mut few),
            Argument::Number(0),
        ]);
        report.must_fail(format!("prlimit64 of {task}"), call(libc::SYS_prlimit64, limit));
        let affinity = padded([Argument::Number(task), Argument::Number(8), Argument::Memory(&mut mask)]);
        report.must_fail(format!("sched_setaffinity of {task}"), call(libc::SYS_sched_setaffinity, affinity));
        report.must_fail(format!("setpriority of {task}"), numbers(libc::SYS_setpriority, [0, task, 19]));
        report.must_fail(format!("ioprio_set of {task}"), numbers(libc::SYS_ioprio_set, [1, task, 3 << 13]));
    }
    report
}
