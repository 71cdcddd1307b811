//! Escapes that worked elsewhere: the classes of public escape benchmarks and of runc's CVEs.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileTypeExt as _, symlink},
    },
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, StatVfsMountFlags, makedev, mknodat, statvfs};

use crate::{
    attempts::{numbers, open_to_write, text},
    report::Report,
    settings::padded,
    sys::{Argument, NONSENSE, call},
};

/// Descriptors that the host's processes forgot to close (CVE-2024-21626).
pub(crate) fn descriptors() -> Report {
    let mut report = Report::new();
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let number: i32 = entry.file_name().to_string_lossy().parse().unwrap_or(-1);
        let target = fs::read_link(entry.path()).unwrap_or_default();
        // The listing's own descriptor.
        let is_listing = target.starts_with("/proc");
        report.must(format!("descriptor {number}"), number <= 2 || is_listing, target.display());
    }
    report
}

/// `working-directory CANARY`: run with a working directory of the attacker's choice.
pub(crate) fn working_directory(arguments: &[String]) -> Report {
    let mut report = Report::new();
    let here = fs::read_link("/proc/self/cwd").unwrap_or_default();
    report.must("working directory", here.starts_with("/"), here.display());
    let Some(canary) = arguments.first() else { return report };
    for depth in 0..12 {
        let path = format!("{}{}", "../".repeat(depth), canary.trim_start_matches('/'));
        report.must_fail(path.clone(), fs::metadata(&path));
    }
    report
}

/// Sockets of container engines, which obey any client.
pub(crate) fn engine_sockets() -> Report {
    let mut report = Report::new();
    for path in [
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/podman/podman.sock",
        "/run/crio/crio.sock",
        "/run/warren/warren.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/run/systemd/notify",
        "/run/snapd.socket",
        "/run/user",
        "/tmp/.X11-unix",
        "/var/run/secrets/kubernetes.io",
        "/var/lib/kubelet",
        "/etc/kubernetes",
    ] {
        report.must_fail(path, fs::metadata(path));
    }
    report
}

/// `host-mounts DIRECTORY…`: no mount names a host directory, except in the labels of overlays.
pub(crate) fn host_mounts(arguments: &[String]) -> Report {
    let mut report = Report::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.lines().filter(|line| !line.contains(" - overlay ")) {
        let named = arguments.iter().find(|directory| line.contains(directory.as_str()));
        report.must(named.cloned().unwrap_or_default(), named.is_none(), line);
    }
    for directory in arguments {
        report.must_fail(directory.clone(), fs::read_dir(directory));
    }
    report
}

/// `read-only-mount DIRECTORY`: a host directory, mounted read-only, with a file that everybody may write to.
pub(crate) fn read_only_mount(arguments: &[String]) -> Report {
    let Some(directory) = arguments.first().map(Path::new) else { return Report::skip("no directory") };
    let file = directory.join("file");
    let Ok(opened) = fs::File::open(&file) else { return Report::skip("the mount cannot be read") };
    let mut report = Report::new();
    report.must_fail("open to write", open_to_write(&file));
    let again = format!("/proc/self/fd/{}", opened.as_raw_fd());
    report.must_fail("open again to write", open_to_write(again));
    report.must_fail("truncate", rustix::fs::ftruncate(&opened, 0));
    report.must_fail("chmod", rustix::fs::fchmod(&opened, Mode::from_raw_mode(0o600)));
    report.must_fail("make a file", fs::write(directory.join("attack-new"), "x"));
    report.must_fail("make a link", symlink("/", directory.join("attack-link")));
    report.must_fail("rename", fs::rename(&file, directory.join("attack-renamed")));
    report.must_fail("remove", fs::remove_file(&file));
    report.must_fail("link out", fs::hard_link(&file, "/root/attack-out"));
    write_through_pipe(&opened);
    report
}

/// CVE-2022-0847: a pipe whose pages may be merged takes a page of the file, and the next write lands in that page. The
/// calls are all allowed; the other side checks whether the file changed.
fn write_through_pipe(file: &fs::File) {
    const PIPE_BYTES: usize = 65536;
    let Ok((mut reader, mut writer)) = std::io::pipe() else { return };
    let mut bytes = vec![0; PIPE_BYTES];
    if writer.write_all(&bytes).is_err() || reader.read_exact(&mut bytes).is_err() {
        return;
    }
    let spliced = [file.as_raw_fd().into(), 0, writer.as_raw_fd().into(), 0, 1, 0];
    if numbers(libc::SYS_splice, spliced).is_ok() {
        writer.write_all(b"overwritten").ok();
    }
}

/// Opens files by handle, bypassing every directory (the "shocker" of CAP_DAC_READ_SEARCH).
pub(crate) fn file_handles() -> Report {
    let mut report = Report::new();
    for inode in [2_u8, 1, 128] {
        let mut handle = [0_u8; 32];
        handle[0] = 8;
        handle[4] = 1;
        handle[8] = inode;
        let words =
            [Argument::Number(libc::AT_FDCWD.into()), Argument::Memory(&mut handle), Argument::Number(0)];
        report.must_fail(format!("open inode {inode}"), call(libc::SYS_open_by_handle_at, padded(words)));
    }
    report
}

pub(crate) fn kernel_modules() -> Report {
    let mut report = Report::new();
    report.must_fail("init_module", numbers(libc::SYS_init_module, [NONSENSE, 0, NONSENSE]));
    report.must_fail("finit_module", numbers(libc::SYS_finit_module, [NONSENSE, NONSENSE, 0]));
    report.must_fail("delete_module", numbers(libc::SYS_delete_module, [NONSENSE, 0]));
    report.must_fail("kexec_load", numbers(libc::SYS_kexec_load, [0, 0, NONSENSE, 0]));
    report.must_fail("modprobe", open_to_write("/proc/sys/kernel/modprobe"));
    report
}

/// A host handler that a crash inside would start.
pub(crate) fn core_pattern() -> Report {
    writes_refused(&[
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/core_pipe_limit",
        "/proc/sys/kernel/hotplug",
        "/proc/sys/kernel/poweroff_cmd",
        "/proc/sys/fs/suid_dumpable",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/kernel/panic_on_oops",
    ])
}

fn writes_refused(paths: &[&str]) -> Report {
    let mut report = Report::new();
    for path in paths {
        report.must_fail(format!("open {path} to write"), open_to_write(path));
    }
    report
}

/// A host program that the end of a cgroup would start.
pub(crate) fn release_agent() -> Report {
    let mut report = writes_refused(&[
        "/sys/fs/cgroup/release_agent",
        "/sys/fs/cgroup/memory/release_agent",
        "/sys/fs/cgroup/rdma/release_agent",
        "/sys/fs/cgroup/cgroup.procs",
    ]);
    let directory = "/tmp/attack-cgroup";
    fs::create_dir(directory).ok();
    for kind in ["cgroup", "cgroup2"] {
        let (mut source, mut target, mut kind_text) = (text("none"), text(directory), text(kind));
        let words =
            [Argument::Memory(&mut source), Argument::Memory(&mut target), Argument::Memory(&mut kind_text)];
        report.must_fail(format!("mount {kind}"), call(libc::SYS_mount, padded(words)));
    }
    fs::remove_dir(directory).ok();
    report
}

pub(crate) fn uevent_helper() -> Report {
    writes_refused(&["/sys/kernel/uevent_helper", "/sys/kernel/mm/ksm/run", "/sys/power/state"])
}

pub(crate) fn binfmt_misc() -> Report {
    writes_refused(&["/proc/sys/fs/binfmt_misc/register", "/proc/sys/fs/binfmt_misc/status"])
}

/// The nodes of an ordinary sandbox.
const USUAL_NODES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"];

pub(crate) fn device_nodes() -> Report {
    let mut report = Report::new();
    for entry in fs::read_dir("/dev").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type();
        let is_device = kind.is_ok_and(|kind| kind.is_char_device() || kind.is_block_device());
        report.must(format!("/dev/{name}"), !is_device || USUAL_NODES.contains(&name.as_str()), "there");
    }
    let kinds = [
        ("memory", FileType::CharacterDevice, 1, 1),
        ("kernel log", FileType::CharacterDevice, 1, 11),
        ("fuse", FileType::CharacterDevice, 10, 229),
        ("tun", FileType::CharacterDevice, 10, 200),
        ("first disk", FileType::BlockDevice, 8, 0),
        ("virtual disk", FileType::BlockDevice, 254, 0),
        ("loop", FileType::BlockDevice, 7, 0),
    ];
    for directory in ["/root", "/tmp", "/dev/shm", "/usr"] {
        for (what, kind, major, minor) in kinds {
            let path = format!("{directory}/attack-node");
            let made = mknodat(CWD, path.as_str(), kind, Mode::RUSR, makedev(major, minor));
            if made.is_ok() {
                report.must_fail(format!("open a node of {what} in {directory}"), fs::File::open(&path));
                fs::remove_file(&path).ok();
            } else {
                report.held();
            }
        }
    }
    report
}

/// Writes to the cgroup tree, which could change limits and move processes.
pub(crate) fn cgroup_writes() -> Report {
    let mut report = Report::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.lines().filter(|line| line.contains(" - cgroup")) {
        let target = line.split(' ').nth(4).unwrap_or_default();
        let procs = Path::new(target).join("cgroup.procs");
        report.must_fail(format!("open {} to write", procs.display()), open_to_write(&procs));
    }
    report.must_fail("make a cgroup", fs::create_dir("/sys/fs/cgroup/attack"));
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    report.must("path of the own cgroup", !own.contains("warren"), own.trim());
    report
}

pub(crate) fn join_namespaces() -> Report {
    let mut report = Report::new();
    for kind in ["mnt", "pid", "net", "user", "cgroup", "ipc", "uts"] {
        report.must_fail(format!("open {kind} of the guest"), fs::File::open(format!("/proc/1/ns/{kind}")));
        if let Ok(own) = fs::File::open(format!("/proc/self/ns/{kind}")) {
            report.must_fail(format!("setns {kind}"), numbers(libc::SYS_setns, [own.as_raw_fd().into(), 0]));
        }
    }
    report
}

pub(crate) fn kernel_log() -> Report {
    let mut report = Report::new();
    let mut text = [0_u8; 512];
    let words = [Argument::Number(3), Argument::Memory(&mut text), Argument::Number(512)];
    report.must_fail("syslog", call(libc::SYS_syslog, padded(words)));
    report.must_fail("/dev/kmsg", fs::File::open("/dev/kmsg"));
    report
}

/// A set-user-id bit must have no effect wherever a program can set one.
pub(crate) fn set_user_id() -> Report {
    let mut report = Report::new();
    for path in ["/", "/root", "/tmp", "/usr/bin", "/dev/shm", "/run", "/home"] {
        let Ok(found) = statvfs(path) else { continue };
        report.must(path, found.f_flag.contains(StatVfsMountFlags::NOSUID), "set-user-id bits count");
    }
    report
}

/// Injects characters into a terminal as if somebody had typed them.
pub(crate) fn terminal_input() -> Report {
    let mut report = Report::new();
    let Ok(terminal) = open_to_write("/dev/ptmx") else { return Report::skip("no terminals") };
    let mut character = [b'x'; 8];
    let words = [
        Argument::Number(terminal.as_raw_fd().into()),
        Argument::Number(libc::TIOCSTI as i64),
        Argument::Memory(&mut character),
    ];
    report.must_fail("TIOCSTI", call(libc::SYS_ioctl, padded(words)));
    // A link in place of the console (CVE-2025-52565) has no effect: /dev cannot be changed.
    report.must_fail("replace /dev/console", symlink("/proc/sys/kernel/core_pattern", "/dev/console"));
    report
}
