//! The sandbox's settings, seen from inside: masks, read-only mounts, capabilities, flags.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use crate::{
    attempts::{errno_name, open_to_write, status_field, text},
    report::Report,
    sys::{Argument, call},
};

/// Paths that reveal the host or change it. They must be absent, empty or covered.
const MASKED: &[&str] = &[
    "/proc/kcore",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/kmsg",
    "/proc/interrupts",
    "/proc/acpi",
    "/proc/scsi",
    "/proc/asound",
    "/proc/sched_debug",
    "/proc/latency_stats",
    "/proc/pressure",
    "/sys/firmware",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
    "/sys/kernel/security",
    "/sys/fs/bpf",
    "/sys/fs/cgroup",
    "/sys/fs/pstore",
    "/sys/devices/virtual/powercap",
];

pub(crate) fn masks() -> Report {
    let mut report = Report::new();
    for path in MASKED {
        match contents(Path::new(path)) {
            Ok(n) if n > 0 => report.breach(*path, format!("{n} bytes or entries can be read")),
            _ => report.held(),
        }
    }
    report
}

/// Bytes or entries that can be read there, up to a limit.
fn contents(path: &Path) -> io::Result<usize> {
    use std::io::Read as _;
    let found = fs::metadata(path)?;
    if found.is_dir() {
        return Ok(fs::read_dir(path)?.count());
    }
    let mut first = [0; 16];
    let file = fs::File::open(path)?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::NONBLOCK).ok();
    (&file).read(&mut first)
}

/// Most files examined below one path.
const MAX_LOOKED_AT: usize = 60_000;

pub(crate) fn proc_writes() -> Report {
    let mut report = Report::new();
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if !is_process(&entry.file_name().to_string_lossy()) {
            no_writes(&mut report, entry.path());
        }
    }
    report.must_fail("open /proc/sysrq-trigger to write", open_to_write("/proc/sysrq-trigger"));
    report
}

pub(crate) fn sys_writes() -> Report {
    let mut report = Report::new();
    no_writes(&mut report, "/sys".into());
    report.must_fail("make a file in /sys", fs::write("/sys/attack", ""));
    report
}

/// No file below a path may be opened for writing. Links are not followed; nothing is written.
fn no_writes(report: &mut Report, root: PathBuf) {
    let mut left = vec![root];
    let mut n_looked_at = 0;
    while let Some(path) = left.pop() {
        n_looked_at += 1;
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        if n_looked_at > MAX_LOOKED_AT || found.is_symlink() {
            continue;
        }
        if found.is_dir() {
            left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if is_stand_in(&found) || access(&path, Access::WRITE_OK).is_err() {
            report.held();
        } else {
            report.must_fail(format!("open {} to write", path.display()), open_to_write(&path));
        }
    }
}

/// Whether this is `/dev/null`, which covers masked files.
fn is_stand_in(found: &fs::Metadata) -> bool {
    found.file_type().is_char_device() && found.rdev() == rustix::fs::makedev(1, 3)
}

/// Every trigger written to these files creates kernel work that outlives the writer. Opened, never written.
pub(crate) fn pressure() -> Report {
    let mut report = Report::new();
    for name in ["cpu", "io", "memory", "irq"] {
        let path = format!("/proc/pressure/{name}");
        match fs::metadata(&path) {
            Ok(found) if !is_stand_in(&found) => report.must_fail(path.clone(), open_to_write(&path)),
            _ => report.held(),
        }
    }
    report
}

/// The old and the new ways to change a mount.
pub(crate) fn remount() -> Report {
    const MS_REMOUNT_BIND: i64 = (libc::MS_REMOUNT | libc::MS_BIND) as i64;
    let mut report = Report::new();
    for path in ["/proc/sys", "/sys", "/dev", "/proc", "/"] {
        let (mut target, mut none) = (text(path), text("none"));
        let tried = call(
            libc::SYS_mount,
            [
                Argument::Memory(&mut none),
                Argument::Memory(&mut target),
                Argument::Number(0),
                Argument::Number(MS_REMOUNT_BIND),
                Argument::Number(0),
                Argument::Number(0),
            ],
        );
        report.must_fail(format!("remount {path} writable"), tried);
    }
    for path in ["/proc/keys", "/proc/sys", "/sys/firmware", "/tmp"] {
        let tried = with_path(libc::SYS_umount2, path, libc::MNT_DETACH.into());
        report.must_fail(format!("unmount {path}"), tried);
    }
    report.must_fail("fsopen tmpfs", with_path(libc::SYS_fsopen, "tmpfs", 0));
    report.must_fail("chroot", with_path(libc::SYS_chroot, "/tmp", 0));
    let (mut new, mut old) = (text("/tmp"), text("/tmp"));
    let paths = [Argument::Memory(&mut new), Argument::Memory(&mut old)];
    report.must_fail("pivot_root", call(libc::SYS_pivot_root, padded(paths)));
    let mut root = text("/");
    let from = [Argument::Number(libc::AT_FDCWD.into()), Argument::Memory(&mut root), Argument::Number(1)];
    report.must_fail("open_tree", call(libc::SYS_open_tree, padded(from)));
    report
}

fn with_path(number: libc::c_long, path: &str, flags: i64) -> Result<i64, i32> {
    let mut path = text(path);
    call(number, padded([Argument::Memory(&mut path), Argument::Number(flags)]))
}

pub(crate) fn padded<'a, const N: usize>(given: [Argument<'a>; N]) -> [Argument<'a>; 6] {
    let mut given = given.into_iter();
    [0; 6].map(|_: i32| given.next().unwrap_or(Argument::Number(0)))
}

/// Mounts that must not be writable, and flags that every mount must have.
pub(crate) fn mount_flags() -> Report {
    let mut report = Report::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let (mut has_proc_sys, mut has_sys) = (false, false);
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (Some(target), Some(flags)) = (fields.get(4), fields.get(5)) else { continue };
        let flags: Vec<&str> = flags.split(',').collect();
        let is_read_only = flags.contains(&"ro");
        has_proc_sys |= *target == "/proc/sys" && is_read_only;
        has_sys |= *target == "/sys" && is_read_only;
        report.must(format!("{target} without nosuid"), flags.contains(&"nosuid"), flags.join(","));
        if ["/", "/tmp", "/dev/shm", "/run", "/usr"].contains(target) {
            report.must(format!("{target} without nodev"), flags.contains(&"nodev"), flags.join(","));
        }
    }
    report.must("/proc/sys is a read-only mount", has_proc_sys, "no such mount");
    report.must("/sys is a read-only mount", has_sys, "no such mount");
    report
}

/// CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID NET_BIND_SERVICE, as SECURITY.md says.
const CAPABILITIES: u64 = 0x4fb;

fn capability_set(name: &str) -> u64 {
    let field = status_field("self", name).unwrap_or_default();
    u64::from_str_radix(&field, 16).unwrap_or(u64::MAX)
}

pub(crate) fn capabilities() -> Report {
    let mut report = Report::new();
    for name in ["CapEff", "CapPrm", "CapBnd"] {
        let found = capability_set(name);
        report.must(name, found & !CAPABILITIES == 0, format!("{found:x}"));
    }
    report
}

/// Inheritable capabilities survive an exec by another user (CVE-2022-29162).
pub(crate) fn inheritable() -> Report {
    let mut report = Report::new();
    for name in ["CapInh", "CapAmb"] {
        let found = capability_set(name);
        report.must(name, found == 0, format!("{found:x}"));
    }
    report
}

pub(crate) fn no_new_privileges() -> Report {
    let mut report = Report::new();
    let found = status_field("self", "NoNewPrivs").unwrap_or_default();
    report.must("NoNewPrivs", found == "1", found);
    report
}

pub(crate) fn seccomp_mode() -> Report {
    let mut report = Report::new();
    for pid in ["self", "1"] {
        let found = status_field(pid, "Seccomp").unwrap_or_default();
        // The guest itself may run without a filter: it is part of the wall.
        report.must(format!("Seccomp of {pid}"), found == "2" || pid == "1", &found);
    }
    report
}

/// A process that lowers its score makes the kernel kill another one first.
pub(crate) fn out_of_memory_score() -> Report {
    let mut report = Report::new();
    report.must_fail("oom_score_adj -1000", fs::write("/proc/self/oom_score_adj", "-1000"));
    report.must_fail("oom_score_adj of the guest", fs::write("/proc/1/oom_score_adj", "1000"));
    report
}

/// A crash must not start the host's handler of core dumps. A limit of 1 byte keeps a pipe handler from starting.
pub(crate) fn core_dumps() -> Report {
    let mut report = Report::new();
    let limit = crate::sys::hard_limit(libc::RLIMIT_CORE);
    // With a limit of 0 the kernel still starts a handler behind a pipe.
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    report.must("limit of core files", limit == 1 || !pattern.starts_with('|'), limit);
    match open_to_write("/proc/sys/kernel/core_pattern") {
        Ok(_) => report.breach("open core_pattern to write", "done"),
        Err(error) => {
            report.fact("corePattern", errno_name(error.raw_os_error().unwrap_or(0)));
            report.held();
        }
    }
    report
}
