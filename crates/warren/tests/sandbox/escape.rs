//! Known ways out. Each must fail to get out.

use std::fs;

use crate::{
    crashes,
    harness::{Daemon, copy_program, is_root},
};

/// Runs a piece of Python in the sandbox; what it prints is the answer.
fn python(daemon: &Daemon, script: &str) -> String {
    let output = daemon.output(["exec", "cell", "python3", "-c", script]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{err}\n{}", daemon.log());
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn cell() -> Daemon {
    let daemon = Daemon::start();
    daemon.create("cell", &[]);
    daemon
}

/// Asks for a system call by number; prints the error's name or what it returned.
fn syscall(daemon: &Daemon, number: i64, arguments: &str) -> String {
    python(
        daemon,
        &format!(
            "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n\
             r = libc.syscall({number}, {arguments})\n\
             print(errno.errorcode[ctypes.get_errno()] if r == -1 else r)"
        ),
    )
}

#[test]
#[cfg(target_arch = "x86_64")]
fn dangerous_system_calls_are_refused() {
    let daemon = cell();
    let refused: &[(&str, i64, &str)] = &[
        ("mount", 165, "b'none', b'/mnt', b'tmpfs', 0, 0"),
        ("umount2", 166, "b'/proc', 0"),
        ("pivot_root", 155, "b'/', b'/mnt'"),
        ("unshare user", 272, "0x10000000"),
        ("setns", 308, "0, 0"),
        ("clone with a user namespace", 56, "0x10000000 | 17, 0, 0, 0, 0"),
        ("ptrace attach", 101, "16, 1, 0, 0"),
        ("bpf", 321, "0, 0, 0"),
        ("keyctl", 250, "0, 0, 0, 0, 0"),
        ("add_key", 248, "b'user', b'a', b'b', 1, -3"),
        ("io_uring_setup", 425, "1, 0"),
        ("userfaultfd", 323, "0"),
        ("perf_event_open", 298, "0, 0, -1, -1, 0"),
        ("kexec_load", 246, "0, 0, 0, 0"),
        ("init_module", 175, "0, 0, 0"),
        ("open_by_handle_at", 304, "0, 0, 0"),
        ("reboot", 169, "0, 0, 0, 0"),
        ("fsopen", 430, "b'tmpfs', 0"),
        ("open_tree", 428, "-100, b'/', 1"),
        ("move_mount", 429, "0, 0, 0, 0, 0"),
        ("swapon", 167, "b'/x', 0"),
        ("process_vm_writev", 311, "1, 0, 0, 0, 0, 0"),
        ("quotactl", 179, "0, 0, 0, 0"),
        ("acct", 163, "0"),
        ("pidfd_getfd", 438, "0, 0, 0"),
        ("process_madvise", 440, "0, 0, 0, 0, 0"),
        ("process_mrelease", 448, "0, 0"),
        ("move_pages", 279, "1, 0, 0, 0, 0, 0"),
        ("migrate_pages", 256, "1, 0, 0, 0"),
        ("kcmp", 312, "1, 1, 0, 0, 0"),
        ("set a terminal's line discipline", 16, "0, 0x5423, 0"),
    ];
    for (name, number, arguments) in refused {
        let answer = syscall(&daemon, *number, arguments);
        assert!(["EPERM", "ENOSYS"].contains(&answer.as_str()), "{name} answered {answer}");
    }
}

#[test]
fn no_capability_that_reaches_further_than_the_sandbox() {
    let daemon = cell();
    let status =
        daemon.sh_ok("cell", "grep -E '^(CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    // CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID NET_BIND_SERVICE, and nothing beyond these.
    const PERMITTED: u64 = 0x4fb;
    for set in ["CapEff", "CapBnd", "CapAmb"] {
        let bits = u64::from_str_radix(&field(set), 16).unwrap();
        assert_eq!(bits & !PERMITTED, 0, "{set} holds {bits:x}");
    }
    assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1".to_owned(), "2".to_owned()));
}

#[test]
fn the_hosts_files_are_not_there() {
    let daemon = cell();
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("secret"), "host").unwrap();
    let path = secret.path().display().to_string();
    assert_eq!(daemon.sh_ok("cell", &format!("ls {path} 2>/dev/null | wc -l")), "0");
    assert_eq!(daemon.sh_ok("cell", "test -e /etc/shadow && cat /etc/shadow | grep -c '\\$' || echo 0"), "0");
    assert_eq!(
        daemon.sh_ok("cell", "ls -A /root /home/* 2>/dev/null | grep -c -E 'ssh|cargo|history' ; true"),
        "0"
    );
    let home = daemon.home().display().to_string();
    assert_eq!(daemon.sh_ok("cell", &format!("ls {home} 2>/dev/null | wc -l")), "0");
    // Nor by way of the kernel: no mount inside names a directory of the host but as an overlay's label.
    assert_eq!(
        daemon.sh_ok("cell", &format!("grep -v overlay /proc/self/mountinfo | grep -c {home}; true")),
        "0"
    );
}

#[test]
fn writes_to_system_directories_stay_inside() {
    let daemon = cell();
    if is_root() {
        daemon.sh_ok("cell", "echo mine > /usr/local/warren-was-here");
        assert!(!std::path::Path::new("/usr/local/warren-was-here").exists());
        daemon.sh_ok("cell", "rm /usr/bin/env && ! test -e /usr/bin/env");
        assert!(std::path::Path::new("/usr/bin/env").exists());
    }
    daemon.sh_ok("cell", "echo mine > /etc/warren-was-here; echo mine > /srv/x");
    assert!(!std::path::Path::new("/etc/warren-was-here").exists());
}

#[test]
fn only_its_own_processes_are_seen_and_the_guest_is_out_of_reach() {
    let daemon = cell();
    let pids = daemon.sh_ok("cell", "ls /proc | grep -c '^[0-9]*$'");
    assert!(pids.parse::<u32>().unwrap() < 12, "{pids} processes are visible");
    for path in ["/proc/1/environ", "/proc/1/maps", "/proc/1/fd/0", "/proc/1/mem", "/proc/1/root/etc/passwd"]
    {
        assert_ne!(daemon.sh("cell", &format!("cat {path}")).0, 0, "{path} was readable");
    }
    daemon.sh("cell", "kill -9 1; kill -STOP 1; kill -SEGV 1; kill -TERM 1");
    assert_eq!(daemon.sh_ok("cell", "echo there"), "there");
}

#[test]
fn kernel_interfaces_are_masked_or_read_only() {
    let daemon = cell();
    for path in ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/pressure", "/sys/firmware"] {
        let script =
            format!("if [ -d {path} ]; then ls -A {path}; else head -c 1 {path} 2>/dev/null; fi | wc -c");
        assert_eq!(daemon.sh_ok("cell", &script), "0", "{path}");
    }
    for write in [
        "echo 1 > /proc/sys/kernel/panic",
        "echo core > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "echo x > /sys/kernel/uevent_helper",
        "mkdir /sys/fs/cgroup/x",
        "mknod /dev/sda b 8 0",
        "mknod /root/mem c 1 1",
    ] {
        assert_ne!(daemon.sh("cell", write).0, 0, "{write} succeeded");
    }
}

#[test]
fn no_descriptor_is_inherited() {
    let daemon = cell();
    let open = python(&daemon, "import os\nprint(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))");
    // 3 is the listing itself.
    assert_eq!(open, "[0, 1, 2, 3]");
}

#[test]
fn there_is_no_network_but_loopback() {
    let daemon = cell();
    assert_eq!(daemon.sh_ok("cell", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"), "lo");
    let connect = |address: &str| {
        python(
            &daemon,
            &format!(
                "import socket, errno\ns = socket.socket()\ns.settimeout(5)\n\
                 print(errno.errorcode[s.connect_ex({address})])"
            ),
        )
    };
    // 192.0.2.0/24 is set aside for documentation: nothing answers there, and here nothing even leaves.
    assert_eq!(connect("('192.0.2.1', 80)"), "ENETUNREACH");
    assert_eq!(connect("('127.0.0.1', 9)"), "ECONNREFUSED");
    let echo = "import socket\na = socket.create_server(('127.0.0.1', 80))\nb = socket.create_connection(('127.0.0.1', 80))\n\
                c, _ = a.accept()\nb.send(b'hi')\nprint(c.recv(2).decode())";
    assert_eq!(python(&daemon, echo), "hi");
}

#[test]
fn names_on_the_socket_side_of_the_host_are_out_of_reach() {
    let daemon = cell();
    // Abstract sockets belong to a network namespace, so the host's are invisible.
    let listener = std::os::unix::net::UnixListener::bind_addr(
        &<std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(
            b"warren-test",
        )
        .unwrap(),
    )
    .unwrap();
    let script = "import socket, errno\ns = socket.socket(socket.AF_UNIX)\nprint(errno.errorcode[s.connect_ex('\\0warren-test')])";
    assert_eq!(python(&daemon, script), "ECONNREFUSED");
    drop(listener);
}

#[test]
fn two_sandboxes_do_not_share_a_host_user() {
    if !is_root() {
        println!("skipped: one user has one range of ids");
        return;
    }
    let daemon = cell();
    daemon.create("other", &[]);
    let range = |name: &str| {
        let map = daemon.sh_ok(name, "cat /proc/self/uid_map");
        map.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let (one, two) = (range("cell"), range("other"));
    assert!(one != 0 && two != 0 && one != two, "{one} {two}");
}

#[test]
fn the_statement_of_isolation_is_true() {
    let daemon = cell();
    let isolation = daemon.inspect("cell")["isolation"].clone();
    assert_eq!(isolation["backend"], "namespace");
    assert_eq!(isolation["rootless"], !is_root());
    assert_eq!(isolation["noNewPrivileges"], true);
    let named: Vec<_> =
        isolation["namespaces"].as_array().unwrap().iter().filter_map(|n| n.as_str()).collect();
    for namespace in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        assert!(named.contains(&namespace), "{named:?}");
        let inside = daemon.sh_ok("cell", &format!("readlink /proc/self/ns/{namespace}"));
        let outside = fs::read_link(format!("/proc/self/ns/{namespace}")).unwrap();
        assert_ne!(inside, outside.display().to_string());
    }
}

#[test]
fn a_link_left_in_place_of_etc_leads_nowhere_at_the_next_start() {
    let daemon = Daemon::start();
    let host = tempfile::tempdir().unwrap();
    // Without root the limit is held by measuring, and the files are in a directory; the link must lead nowhere there
    // too.
    daemon.create("cell", &["--disk", "64m"]);
    daemon.sh_ok("cell", &format!("rm -rf /etc && ln -s {} /etc", host.path().display()));
    daemon.ok(["stop", "cell"]);
    daemon.ok(["start", "cell"]);
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);
    assert_eq!(daemon.sh_ok("cell", "readlink /etc"), host.path().display().to_string());
}

/// The guest has the workload's user, so the kernel would let the workload change much about it.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_guests_limits_and_its_share_of_the_machine_are_out_of_reach() {
    let daemon = cell();
    let priority = || python(&daemon, "import os\nprint(os.getpriority(os.PRIO_PROCESS, 1))");
    let before = priority();
    // Threads of the guest have numbers of their own, by which a process is found as well as by its first.
    let script = r"
import ctypes, errno, os, struct
libc = ctypes.CDLL(None, use_errno=True)
few = struct.pack('QQ', 1, 1)
one_cpu = struct.pack('Q', 1)
idle = struct.pack('i', 0)
attr = struct.pack('IIQiIQQQ', 48, 5, 0, 0, 0, 0, 0, 0)
guest = [int(task) for task in os.listdir('/proc/1/task')]
for pid in guest:
    for name, call in {
        'prlimit64 nofile': (302, pid, 7, few, 0),
        'prlimit64 cpu': (302, pid, 0, few, 0),
        'sched_setaffinity': (203, pid, 8, one_cpu),
        'sched_setscheduler': (144, pid, 5, idle),
        'sched_setparam': (142, pid, idle),
        'sched_setattr': (314, pid, attr, 0),
        'setpriority': (141, 0, pid, 19),
        'ioprio_set': (251, 1, pid, 3 << 13),
    }.items():
        r = libc.syscall(*call)
        answer = errno.errorcode[ctypes.get_errno()] if r == -1 else 'done'
        if answer != 'EPERM':
            print(name, pid, answer)
print(os.sched_getscheduler(1))
";
    assert_eq!(python(&daemon, script), "0");
    // By user and by group, which have the guest among them.
    daemon.sh("cell", "renice -n 19 -u root; renice -n 19 -g 1; ionice -c 3 -u 0");
    assert_eq!(priority(), before);
    assert_eq!(daemon.sh_ok("cell", "echo there"), "there");
    // A workload can still act on itself and on its own children.
    let own = "import os, resource, subprocess, time\n\
               resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n\
               child = subprocess.Popen(['sleep', '60'])\n\
               os.setpriority(os.PRIO_PROCESS, child.pid, 5)\n\
               os.sched_setaffinity(child.pid, os.sched_getaffinity(0))\n\
               print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.getpriority(os.PRIO_PROCESS, child.pid))\n\
               child.kill()";
    assert_eq!(python(&daemon, own), "64 5");
}

#[test]
fn socket_families_that_are_refused_cannot_be_had_as_pairs_or_by_protocol() {
    let daemon = cell();
    let script = "import socket, errno\n\
                  def tried(make, *words):\n\
                  \x20   try: make(*words); return 'made'\n\
                  \x20   except OSError as e: return errno.errorcode[e.errno]\n\
                  print(tried(socket.socketpair, 30), tried(socket.socketpair, 2), tried(socket.socketpair, 1))\n\
                  print(tried(socket.socket, 2, 5, 132), tried(socket.socket, 10, 1, 132), tried(socket.socket, 2, 6, 0))";
    assert_eq!(
        python(&daemon, script),
        "EAFNOSUPPORT EAFNOSUPPORT made\nESOCKTNOSUPPORT EPROTONOSUPPORT ESOCKTNOSUPPORT"
    );
}

#[test]
fn the_hosts_device_nodes_cannot_be_changed() {
    use std::os::unix::fs::MetadataExt as _;
    let node = || fs::metadata("/dev/null").map(|found| (found.mode(), found.uid(), found.gid())).unwrap();
    let before = node();
    let daemon = cell();
    for change in ["chmod 000 /dev/null", "chown 1:1 /dev/null", "rm /dev/null", "touch -d @0 /dev/null"] {
        assert_ne!(daemon.sh("cell", change).0, 0, "{change} succeeded");
    }
    // Whoever owns the node: every one of them is a mount, or lies in one, that cannot be written to.
    let nodes = daemon.sh_ok(
        "cell",
        "mount_at() { grep \" $1 \" /proc/self/mountinfo | cut -d' ' -f6 | grep .; }; \
         for d in null zero full random urandom tty; do mount_at /dev/$d || mount_at /dev; done",
    );
    assert_eq!(nodes.lines().filter(|flags| flags.starts_with("ro,")).count(), 6, "{nodes}");
    assert_eq!(node(), before);
    let work =
        "echo gone > /dev/null && echo x >> /dev/null && head -c 4 /dev/zero | wc -c && ! echo x > /dev/full";
    assert_eq!(daemon.sh_ok("cell", work), "4");
}

#[test]
fn nothing_inside_tells_how_the_daemon_was_started() {
    let daemon = cell();
    let words = daemon.sh_ok("cell", "tr '\\0' ' ' < /proc/1/cmdline");
    assert!(words.starts_with("warren") && !words.contains('/') && !words.contains("serve"), "{words}");
    assert_ne!(daemon.sh("cell", "cat /proc/1/environ").0, 0);
    // Nor is there anything to read for whoever gets past that: the host's root can, and finds no word of it.
    let id = daemon.inspect("cell")["id"].as_str().unwrap().to_owned();
    let pid = fs::read_to_string(daemon.run_directory().join(id).join("pid")).unwrap();
    let pid = pid.split(' ').next().unwrap();
    if is_root() {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert!(environment.iter().all(|byte| *byte == 0), "{}", String::from_utf8_lossy(&environment));
    }
}

/// `scripts/cgroup-v2` has a host with a handler, and looks whether it is called.
#[test]
fn a_crash_inside_is_never_handed_to_the_hosts_handler() {
    let daemon = cell();
    // 1 is the one value with which the kernel calls no handler. Whoever sets another is told that it was done.
    let script =
        "import resource as r\nr.setrlimit(r.RLIMIT_CORE, (0, 0))\nprint(*r.getrlimit(r.RLIMIT_CORE))";
    assert_eq!(python(&daemon, script), "1 1");
    assert_eq!(daemon.sh("cell", "cd /tmp && sh -c 'kill -SEGV $$'; test -z \"$(ls /tmp)\"").0, 0);
}

#[test]
fn the_hosts_passwords_for_registries_are_not_shown_with_its_usr() {
    let daemon = cell();
    for file in ["/usr/etc/npmrc", "/usr/local/etc/npmrc"] {
        if std::path::Path::new(file).is_file() {
            assert_eq!(daemon.sh_ok("cell", &format!("wc -c < {file}")), "0");
            // Nor does what lies under it come up by moving what covers it.
            for change in [format!("rm -f {file}"), format!("mv {file} /root/x"), format!("umount {file}")] {
                assert_ne!(daemon.sh("cell", &change).0, 0, "{change} succeeded");
            }
        }
    }
}

/// `proc` is a link that leads to one directory before `/sys` is mounted and to another one after, where the name of a
/// setting of the kernel is a link to a file of the host.
#[test]
fn a_snapshot_with_a_link_for_proc_writes_to_no_file_of_the_host() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let precious = tempfile::Builder::new().prefix("warren-precious-").tempfile_in("/tmp").unwrap();
    fs::write(precious.path(), "precious").unwrap();
    fs::set_permissions(precious.path(), fs::Permissions::from_mode(0o666)).unwrap();
    let daemon = cell();
    let id = daemon.inspect("cell")["id"].as_str().unwrap().to_owned();
    daemon.ok(["stop", "cell"]);
    let upper = daemon.home().join("sandboxes").join(id).join("fs/root/upper");
    for directory in ["sys/class/net", "d1/d2/d3/d4/d5/d6", "d1/q", "q/sys/net/ipv4"] {
        fs::create_dir_all(upper.join(directory)).unwrap();
    }
    symlink("../../../d1/d2/d3/d4/d5/d6", upper.join("sys/class/net/lo")).unwrap();
    symlink("sys/class/net/lo/../../../../../q", upper.join("proc")).unwrap();
    symlink(precious.path(), upper.join("q/sys/net/ipv4/ip_unprivileged_port_start")).unwrap();

    daemon.ok(["snapshot", "create", "cell", "--name", "evil"]);
    let archive = daemon.home().join("archive");
    daemon.ok(["snapshot", "save", "evil", "-o", archive.to_str().unwrap()]);
    daemon.ok(["snapshot", "rm", "evil"]);
    daemon.ok(["snapshot", "load", "-i", archive.to_str().unwrap()]);
    let (_, told) = daemon.fails(["snapshot", "restore", "evil", "--name", "victim"]);
    assert!(told.contains("/proc: a link or a file is in the place of a directory"), "{told}");
    // Nor is the sandbox itself started again.
    daemon.fails(["start", "cell"]);
    assert_eq!(fs::read_to_string(precious.path()).unwrap(), "precious");
}

/// Finds a process inside that runs our program, and tries to change the program through it.
const CHANGE_PROGRAM: &str = r#"
import glob, os
def found():
    while True:
        for process in glob.glob('/proc/[0-9]*'):
            if process not in ('/proc/1', f'/proc/{os.getpid()}'):
                try:
                    if open(process + '/cmdline', 'rb').read().startswith(b'/root/evil\0'):
                        return os.open(process + '/exe', os.O_RDONLY)
                except OSError:
                    pass
fd = found()
at = f'/proc/self/fd/{fd}'
assert os.read(fd, 4) == b'\x7fELF'
for name, attempt in [
    ('chmod', lambda: os.fchmod(fd, 0o6777)),
    ('times', lambda: os.utime(fd, (0, 0))),
    ('attribute', lambda: os.setxattr(fd, 'user.evil', b'1')),
    ('link', lambda: os.link(at, '/root/link', follow_symlinks=True)),
    ('truncate', lambda: os.truncate(at, 0)),
    ('write', lambda: os.write(os.open(at, os.O_WRONLY), b'x')),
    ('append', lambda: os.write(os.open(at, os.O_RDWR | os.O_APPEND), b'x')),
    ('chown', lambda: os.fchown(fd, 0, 0)),
]:
    try:
        attempt()
        print('CHANGED', name)
    except OSError:
        pass
print('tried')
"#;

/// The class of CVE-2019-5736: a workload becomes the program that every guest runs, and reaches its file on the host.
#[test]
fn our_own_program_cannot_be_changed_through_a_process_that_runs_it() {
    for daemon in [Some(Daemon::start()), Daemon::of_ordinary_user()].into_iter().flatten() {
        assert_eq!(change_own_program(&daemon), "tried\n");
    }
}

/// An update replaces the program while its daemon runs. The next spawner is the program of before, which is in no
/// directory any more, so that no mount can show it.
#[test]
fn a_program_that_was_replaced_runs_from_a_sealed_copy() {
    for daemon in [Some(Daemon::of_own_binary()), Daemon::of_ordinary_user()].into_iter().flatten() {
        let program = fs::read_link(format!("/proc/{}/exe", daemon.pid())).unwrap();
        let new = program.with_extension("new");
        copy_program(&program, &new);
        fs::rename(new, &program).unwrap();
        let spawner = rustix::process::Pid::from_raw(crashes::spawner_of(&daemon)).unwrap();
        rustix::process::kill_process(spawner, rustix::process::Signal::KILL).unwrap();
        daemon.create("first", &[]);
        let id = daemon.inspect("first")["id"].as_str().unwrap().to_owned();
        let pid = fs::read_to_string(daemon.run_directory().join(id).join("pid")).unwrap();
        let shown = fs::read_link(format!("/proc/{}/exe", pid.split(' ').next().unwrap()));
        // An ordinary user may not look at a guest, not even at their own.
        if rustix::process::geteuid().is_root() {
            assert_eq!(shown.unwrap().to_str(), Some("/memfd:warren (deleted)"));
        }
        let changed = change_own_program(&daemon);
        // A sandbox of an ordinary user is that user, who owns the copy and may change its mode or times. It is
        // nobody's file, and what is in it is sealed.
        let of_content = ["link", "truncate", "write", "append"].map(|name| format!("CHANGED {name}"));
        assert!(!changed.lines().any(|line| of_content.iter().any(|name| name == line)), "{changed}");
        assert!(changed.ends_with("tried\n"), "{changed}");
        if daemon.runs_as_root() {
            assert_eq!(changed, "tried\n");
        }
    }
}

/// Tries to change our program from inside; tells what could be changed of what runs there. The program itself never
/// is.
fn change_own_program(daemon: &Daemon) -> String {
    use std::os::unix::fs::MetadataExt as _;
    // Also when it is in no directory any more.
    let program = format!("/proc/{}/exe", daemon.pid());
    let facts = || {
        let found = fs::metadata(&program).unwrap();
        let times = (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec());
        (found.mode(), found.uid(), times, found.len(), found.nlink())
    };
    let before = facts();
    daemon.create("v", &[]);
    daemon.sh_ok("v", "ln -s /proc/self/exe /root/evil");
    // The guest's child is our program until it becomes another; so this becomes our program once more. It reads its
    // stdin, which stays open, before it does anything else.
    let mut evil = daemon.command(["exec", "-i", "v", "/root/evil", "code", "python", "-"]);
    let mut evil = evil
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let tried = daemon.ok(["exec", "v", "python3", "-c", CHANGE_PROGRAM]);
    assert_eq!(facts(), before);
    daemon.ok(["rm", "--force", "v"]);
    evil.wait().unwrap();
    assert_eq!(facts(), before);
    tried
}
