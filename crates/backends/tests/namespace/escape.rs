//! What must not be possible inside.

use std::{fs, sync::Arc};

use sandbox::Instance;

use crate::world::{World, run, run_as, sh};

/// Runs a line of Python inside and returns what it printed.
async fn python(instance: &dyn Instance, lines: &str) -> String {
    let output = run(instance, &["python3", "-c", lines]).await;
    assert_eq!(output.code(), Some(0), "{}", output.stderr);
    output.stdout.trim().to_owned()
}

/// The error number that a raw system call answers with.
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

pub(crate) async fn the_kernels_files_are_masked_or_read_only(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    for file in ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/kmsg", "/proc/interrupts"] {
        let output = sh(&*instance, &format!("cat {file} 2>/dev/null | head -c 16")).await;
        assert_eq!(output.stdout, "", "{file}");
    }
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
    instance.stop().await.unwrap();
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
    // No mount of the host, by name or by place, beyond the layers themselves.
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
    // As any process 1, it is deaf to signals from inside that it has no handler for.
    sh(&*instance, "kill -9 1; kill -15 1; kill -STOP 1; kill -SEGV 1").await;
    assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
    // And commands get no descriptors but their own three.
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
    // Files made inside by root and by another user are told apart inside, and on disk carry small numbers or the user's own.
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
