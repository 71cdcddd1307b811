//! Attempts that must not succeed inside.

use std::{fs, os::unix::fs::MetadataExt as _, sync::Arc};

use sandbox::{Instance, SandboxPlan};

use crate::world::{World, run, run_as, sh};

/// Runs lines of Python inside and returns their output.
async fn python(instance: &dyn Instance, lines: &str) -> String {
    let output = run(instance, &["python3", "-c", lines]).await;
    assert_eq!(output.code(), Some(0), "{}", output.stderr);
    output.stdout.trim().to_owned()
}

/// The error number of a raw system call.
async fn syscall_error(instance: &dyn Instance, number: i64, arguments: &str) -> String {
    let lines = format!(
        "import ctypes, os, errno\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         rc = libc.syscall({number}{arguments})\n\
         print(errno.errorcode[ctypes.get_errno()] if rc == -1 else 'allowed')"
    );
    python(instance, &lines).await
}

pub(crate) async fn capabilities_are_few_and_cannot_grow(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let status = sh(&*instance, "cat /proc/self/status").await.stdout;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        u64::from_str_radix(line.split_ascii_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    // CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID NET_BIND_SERVICE
    let expected = 0b0100_1111_1011;
    assert_eq!((field("CapEff"), field("CapPrm"), field("CapBnd")), (expected, expected, expected));
    assert_eq!((field("CapInh"), field("CapAmb")), (0, 0));
    assert_eq!((field("NoNewPrivs"), field("Seccomp:")), (1, 2));
    instance.stop().await.unwrap();
}

pub(crate) async fn dangerous_calls_are_refused(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let check = async |name: &str, number: i64, arguments: &str, expected: &str| {
        assert_eq!(syscall_error(&*instance, number, arguments).await, expected, "{name}");
    };
    check("mount", libc::SYS_mount, ", b'none', b'/mnt', b'tmpfs', 0, 0", "EPERM").await;
    check("umount2", libc::SYS_umount2, ", b'/proc', 2", "EPERM").await;
    check("unshare", libc::SYS_unshare, ", 0x10000000", "EPERM").await;
    check("setns", libc::SYS_setns, ", 0, 0", "EPERM").await;
    check("pivot_root", libc::SYS_pivot_root, ", b'/', b'/'", "EPERM").await;
    check("chroot", libc::SYS_chroot, ", b'/tmp'", "EPERM").await;
    check("fsopen", libc::SYS_fsopen, ", b'tmpfs', 0", "EPERM").await;
    check("open_tree", libc::SYS_open_tree, ", -100, b'/', 1", "EPERM").await;
    check("clone(NEWUSER)", libc::SYS_clone, ", 0x10000011, 0, 0, 0, 0", "EPERM").await;
    check("clone3", libc::SYS_clone3, ", 0, 0", "ENOSYS").await;
    check("keyctl", libc::SYS_keyctl, ", 0, -3, 0", "EPERM").await;
    check("add_key", libc::SYS_add_key, ", 0, 0, 0, 0, 0", "EPERM").await;
    check("bpf", libc::SYS_bpf, ", 0, 0, 0", "EPERM").await;
    check("io_uring_setup", libc::SYS_io_uring_setup, ", 1, 0", "ENOSYS").await;
    check("userfaultfd", libc::SYS_userfaultfd, ", 0", "EPERM").await;
    check("perf_event_open", libc::SYS_perf_event_open, ", 0, 0, 0, 0, 0", "EPERM").await;
    check("ptrace", libc::SYS_ptrace, ", 16, 1, 0, 0", "EPERM").await;
    check("process_vm_readv", libc::SYS_process_vm_readv, ", 1, 0, 0, 0, 0, 0", "EPERM").await;
    check("open_by_handle_at", libc::SYS_open_by_handle_at, ", 0, 0, 0", "EPERM").await;
    check("init_module", libc::SYS_init_module, ", 0, 0, 0", "EPERM").await;
    check("kexec_load", libc::SYS_kexec_load, ", 0, 0, 0, 0", "EPERM").await;
    check("reboot", libc::SYS_reboot, ", 0, 0, 0, 0", "EPERM").await;
    check("swapon", libc::SYS_swapon, ", 0, 0", "EPERM").await;
    check("personality", libc::SYS_personality, ", 0x0400000", "EPERM").await;
    check("socket(VSOCK)", libc::SYS_socket, ", 40, 1, 0", "EAFNOSUPPORT").await;
    check("socket(NETLINK, AUDIT)", libc::SYS_socket, ", 16, 3, 9", "EPROTONOSUPPORT").await;
    check("socket(INET, RAW)", libc::SYS_socket, ", 2, 3, 1", "EPERM").await;
    check("ioctl(TIOCSTI)", libc::SYS_ioctl, ", 0, 0x5412, b'x'", "EPERM").await;
    check("sethostname", libc::SYS_sethostname, ", b'x', 1", "EPERM").await;
    check("mknod(device)", libc::SYS_mknodat, ", -100, b'/tmp/sda', 0o60600, 0x800", "EPERM").await;
    instance.stop().await.unwrap();
}

/// Masked on every host that has it, whatever the list in the cage says.
const ALWAYS_MASKED: [&str; 12] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/kmsg",
    "/proc/interrupts",
    "/proc/pressure",
    "/proc/acpi",
    "/proc/scsi",
    "/proc/asound",
    "/proc/sched_debug",
    "/sys/firmware",
    "/sys/devices/virtual/block",
];

/// The walls in the sandbox's own list of steps that do not hold, as seen from inside. Empty if all do.
pub(crate) async fn open_walls(world: &World, plan: &SandboxPlan, instance: &dyn Instance) -> String {
    let steps = world.backend.explain(plan);
    let of_kernel = |path: &str| path.starts_with("/proc/") || path.starts_with("/sys/");
    let paths = |name: &str| {
        let paths = steps.iter().filter_map(|step| step.strip_prefix(name)).filter(|path| of_kernel(path));
        paths.collect::<Vec<_>>()
    };
    let (masked, read_only) = (paths("mask "), paths("read-only "));
    assert!(masked.len() >= 5 && read_only.contains(&"/proc/sys"), "{steps:?}");
    let mut script = String::from(
        "mounted() { grep -qE \"^([^ ]+ ){4}$1 $2\" /proc/self/mountinfo || echo \"$1 is not mounted as $2\"; }\n\
         masked() {\n\
           mounted $1 '.*ro,'\n\
           if [ -d $1 ]; then [ -z \"$(ls -A $1)\" ] || echo \"$1 is not empty\"\n\
           else [ -c $1 ] && [ \"$(head -c 1 $1 | wc -c)\" -eq 0 ] || echo \"$1 is not masked\"; fi\n\
         }\n\
         mounted /proc '.* - proc '; mounted /sys 'ro,.* - (sysfs|tmpfs) '; mounted /dev 'ro,.* - tmpfs '\n\
         mounted /dev/pts '.*max=256'; mounted /tmp '.* - tmpfs '; mounted /run '.* - tmpfs '\n",
    );
    script.extend(masked.iter().map(|path| format!("masked {path}\n")));
    script.extend(read_only.iter().map(|path| format!("mounted {path} ro,\n")));
    for setting in steps.iter().filter_map(|step| step.strip_prefix("setting ")) {
        let (path, value) = setting.split_once(" = ").unwrap();
        // The kernel shows several values with tabs between them.
        script +=
            &format!("[ \"$(tr '\\t' ' ' < {path})\" = \"{value}\" ] || echo \"{setting} is not set\"\n");
    }
    let output = sh(instance, &script).await;
    output.stdout + &output.stderr
}

pub(crate) async fn the_kernels_files_are_masked_or_read_only(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    assert_eq!(open_walls(&world, &plan, &*instance).await, "");
    for path in ALWAYS_MASKED {
        let output = sh(&*instance, &format!("[ -d {path} ] && ls -A {path} || head -c 16 {path}")).await;
        assert_eq!(output.stdout, "", "{path}");
    }
    // No kernel file can be opened for writing; a masked one is a device.
    let writable = "find /proc /sys -path '/proc/[0-9]*' -prune -o -type f -writable -print 2>/dev/null \
        | while read -r file; do [ -f $file ] && (: >> $file) 2>/dev/null && echo $file; done";
    assert_eq!(sh(&*instance, writable).await.stdout, "");
    for write in [
        "echo 1 > /proc/sys/kernel/core_pattern",
        "echo x > /proc/sys/kernel/hostname",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo h > /proc/sysrq-trigger",
        "mkdir /sys/fs/x",
        "mkdir /proc/sys/x",
        "touch /dev/x",
        "mknod /dev/sda b 8 0",
        "mknod /tmp/sda b 8 0",
        "echo 0 > /sys/kernel/mm/transparent_hugepage/enabled",
        "echo 0 > /proc/1/oom_score_adj",
    ] {
        assert_ne!(sh(&*instance, write).await.code(), Some(0), "{write}");
    }
    let listed = sh(&*instance, "ls -A /sys/firmware 2>/dev/null; ls /sys/fs/cgroup 2>/dev/null").await;
    assert_eq!(listed.stdout, "");
    // Files by which programs choose their size.
    for file in
        ["cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "vmstat", "sys/kernel/osrelease"]
    {
        let read = sh(&*instance, &format!("head -c 1 /proc/{file} | wc -c")).await;
        assert_eq!(read.stdout, "1\n", "{file}");
    }
    assert_eq!(
        sh(&*instance, "nproc && ls /sys/devices/system/cpu/cpu0 && ls /sys/class/net").await.code(),
        Some(0)
    );
    instance.stop().await.unwrap();
}

pub(crate) async fn device_nodes_are_nobody_elses_where_they_can_be_made(world: Arc<World>) {
    let plans = [world.plan(), world.plan()];
    let (one, other) = (world.create(&plans[0]).await, world.create(&plans[1]).await);
    let used = sh(
        &*one,
        "echo x > /dev/null && head -c 3 /dev/zero | wc -c && head -c 3 /dev/urandom | wc -c && ! echo x 2>/dev/null > /dev/full \
         && ls -d /dev/pts/ptmx /dev/shm /dev/stdin && ! chmod 600 /dev/null && ! touch /dev/x && ! rm /dev/null && ! touch -d 2020-01-01 /dev/null",
    )
    .await;
    assert_eq!(
        (used.stdout.as_str(), used.code()),
        ("3\n3\n/dev/pts/ptmx\n/dev/shm\n/dev/stdin\n", Some(0)),
        "{used:?}"
    );
    // The identity of a file decides whom a lock or a watch on it concerns. Masked files and directories count too.
    let which = "stat -c '%d:%i %t:%T %A' /dev/null /proc/kmsg; stat -c '%d:%i' /dev/pts /proc/pressure /sys/firmware";
    let (ours, theirs) = (sh(&*one, which).await.stdout, sh(&*other, which).await.stdout);
    let null = fs::metadata("/dev/null").unwrap();
    let hosts = format!("{}:{}", null.dev(), null.ino());
    assert!(ours.lines().next().unwrap().ends_with(" 1:3 crw-rw-rw-"), "{ours}");
    let is_warned = one.isolation().warnings.iter().any(|warning| warning.contains("/dev/null"));
    if rustix::process::geteuid().is_root() {
        let files = |text: &str| {
            text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let (ours, theirs) = (files(&ours), files(&theirs));
        assert!(
            ours.iter().all(|file| *file != hosts && !theirs.contains(file)),
            "{hosts}: {ours:?} {theirs:?}"
        );
        assert_eq!(sh(&*one, "stat -c %U:%G /dev/null").await.stdout, "root:root\n");
    } else {
        assert!(ours.starts_with(&hosts), "{hosts}: {ours}");
    }
    assert_eq!(is_warned, ours.starts_with(&hosts));
    for instance in [one, other] {
        instance.stop().await.unwrap();
    }
}

pub(crate) async fn the_hosts_files_are_not_there(world: Arc<World>) {
    let secret = tempfile::Builder::new().prefix("warren-secret-").tempfile_in("/tmp").unwrap();
    fs::write(secret.path(), "secret").unwrap();
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let looked = format!("cat {}", secret.path().display());
    assert_ne!(sh(&*instance, &looked).await.code(), Some(0));
    assert_eq!(sh(&*instance, "ls -A /root /mnt /opt /srv /media").await.stdout.matches('\n').count(), 9);
    assert_eq!(sh(&*instance, "ls /home").await.stdout, "sandbox\n");
    assert_ne!(
        sh(&*instance, "test -e /etc/shadow || test -e /etc/machine-id || test -e /etc/ssh").await.code(),
        Some(0)
    );
    // No mount of the host, by name or by path, beyond the layers themselves.
    let mounts = sh(&*instance, "cat /proc/self/mountinfo").await.stdout;
    for line in mounts.lines() {
        let (root, kind) = (line.split(' ').nth(3).unwrap(), line.split(" - ").nth(1).unwrap());
        let is_device = line.contains(" /dev/") && root.starts_with('/');
        assert!(!kind.starts_with("ext4") || is_device, "{line}");
    }
    assert!(!mounts.contains(" /sys/fs/cgroup"), "{mounts}");
    instance.stop().await.unwrap();
}

pub(crate) async fn only_loopback_and_only_its_own_processes(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let devices = sh(&*instance, "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '").await.stdout;
    assert!(devices.lines().any(|device| device == "lo"), "{devices}");
    let serve = "import socket\n\
        s = socket.socket(); s.bind(('127.0.0.1', 80)); s.listen()\n\
        c = socket.create_connection(('127.0.0.1', 80)); c.send(b'x'); print(s.accept()[0].recv(1))\n\
        try:\n  socket.create_connection(('192.0.2.1', 80), 2)\n\
        except OSError as error:\n  print(error.errno)";
    assert_eq!(python(&*instance, serve).await, format!("b'x'\n{}", libc::ENETUNREACH));
    let seen = sh(&*instance, "ls /proc | grep -c '^[0-9]'").await.stdout;
    assert!(seen.trim().parse::<u32>().unwrap() <= 6, "{seen}");
    instance.stop().await.unwrap();
}

pub(crate) async fn the_guest_cannot_be_looked_into_or_killed(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    for try_ in [
        "cat /proc/1/environ",
        "cat /proc/1/maps",
        "cat /proc/1/mem",
        "ls /proc/1/fd",
        "ls -l /proc/1/root/",
        "readlink /proc/1/exe",
    ] {
        assert_ne!(sh(&*instance, try_).await.code(), Some(0), "{try_}");
    }
    // Like any process 1, it ignores signals from inside that it has no handler for.
    sh(&*instance, "kill -9 1; kill -15 1; kill -STOP 1; kill -SEGV 1").await;
    assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
    // Commands get only their own three descriptors.
    let open = sh(&*instance, "ls /proc/self/fd").await.stdout;
    assert_eq!(
        open.split_ascii_whitespace().collect::<Vec<_>>(),
        ["0", "1", "2", "3"],
        "3 is the listing itself"
    );
    instance.stop().await.unwrap();
}

pub(crate) async fn root_inside_is_nobody_outside(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let ours = python(&*instance, "print(open('/proc/self/uid_map').read())").await;
    if rustix::process::geteuid().is_root() {
        let first: u32 = ours.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(first >= 0x7000_0000, "{ours}");
        let other_plan = world.plan();
        let other = world.create(&other_plan).await;
        assert_ne!(python(&*other, "print(open('/proc/self/uid_map').read())").await, ours);
        other.stop().await.unwrap();
    }
    // Files made inside by root and by another user are distinguished inside, and on disk have small numbers or the
    // user's own.
    if !ours.lines().all(|line| line.ends_with(" 1")) {
        let made = run_as(
            &*instance,
            "sandbox",
            &["sh", "-c", "id -un; touch /home/sandbox/mine; stat -c %U /home/sandbox/mine"],
        )
        .await;
        assert_eq!(made.stdout, "sandbox\nsandbox\n", "{}", made.stderr);
        assert_eq!(
            sh(&*instance, "chown 33:33 /home/sandbox/mine && stat -c %U:%G /home/sandbox/mine").await.stdout,
            "www-data:www-data\n"
        );
    }
    instance.stop().await.unwrap();
}

pub(crate) async fn usr_is_writable_inside_and_untouched_outside(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let script = "echo '#!/bin/sh\necho mine' > /usr/local/bin/warren-test-tool && chmod 755 /usr/local/bin/warren-test-tool && warren-test-tool";
    assert_eq!(sh(&*instance, script).await.stdout, "mine\n");
    assert!(!std::path::Path::new("/usr/local/bin/warren-test-tool").exists());
    if rustix::process::geteuid().is_root() {
        assert_eq!(
            sh(&*instance, "rm /usr/bin/env && ls /usr/bin/env 2>&1 | wc -l; stat -c %U /usr/bin")
                .await
                .stdout,
            "1\nroot\n"
        );
        assert!(std::path::Path::new("/usr/bin/env").exists());
    }
    instance.stop().await.unwrap();
}
