//! Enforced limits, and the statement about them.

use std::{sync::Arc, time::Duration};

use sandbox::{
    Backend as _, BackendError, ByteSize, Capability, CpuCount, Enforcement, Instance, LimitKind, Limits,
    SandboxPlan, SandboxSpec,
};

use crate::world::{World, run, sh};

fn plan_with(world: &World, limits: Limits) -> SandboxPlan {
    world.plan_with(&SandboxSpec { limits, ..SandboxSpec::default() })
}

fn held(instance: &dyn Instance, kind: LimitKind) -> (Enforcement, u64) {
    let found = instance.isolation().limits.iter().find(|held| held.limit == kind).unwrap();
    (found.enforcement, found.value)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

const HOG: &str =
    "import sys\nhog = []\nfor _ in range(400): hog.append(bytearray(b'x' * (1 << 20)))\nprint('had it')";

pub(crate) async fn a_memory_hog_dies_and_the_guest_lives(world: Arc<World>) {
    let plan = plan_with(&world, Limits { memory: Some(ByteSize::mib(64)), ..Limits::default() });
    let instance = world.create(&plan).await;
    let output = sh(&*instance, &format!("exec python3 -c \"{HOG}\"")).await;
    assert!(!output.stdout.contains("had it"), "{output:?}");
    if held(&*instance, LimitKind::Memory).0 == Enforcement::Rlimit {
        assert!(output.stderr.contains("MemoryError"), "{output:?}");
    } else {
        assert_eq!(output.report.signal, Some(9));
        assert!(output.report.oom_kills >= 1, "{output:?}");
        assert!(instance.usage().await.unwrap().oom_kills >= Some(1));
    }
    assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
    instance.stop().await.unwrap();
}

pub(crate) async fn a_fork_bomb_stays_inside(world: Arc<World>) {
    let plan = plan_with(&world, Limits { pids: Some(30), ..Limits::default() });
    let (instance, neighbour_plan) = (world.create(&plan).await, world.plan());
    let neighbour = world.create(&neighbour_plan).await;
    let script = "import os, time\nn = 0\n\
        try:\n  while n < 200:\n    n += 1\n    if os.fork() == 0: time.sleep(100)\n\
        except OSError as error: print(n, error.errno)";
    let output = sh(&*instance, &format!("exec python3 -c \"{script}\"")).await;
    let (count, errno) = output.stdout.trim().split_once(' ').unwrap_or_else(|| panic!("{output:?}"));
    assert!(count.parse::<u32>().unwrap() <= 30, "{output:?}");
    assert_eq!(errno, libc::EAGAIN.to_string());
    assert_eq!(sh(&*neighbour, "echo alive").await.stdout, "alive\n");
    instance.stop().await.unwrap();
    neighbour.stop().await.unwrap();
}

pub(crate) async fn sizes_of_the_small_file_systems_hold(world: Arc<World>) {
    let limits = Limits {
        tmp: Some(ByteSize::mib(2)),
        shm: Some(ByteSize::mib(1)),
        open_files: Some(64),
        ..Limits::default()
    };
    let plan = plan_with(&world, limits);
    let instance = world.create(&plan).await;
    for (place, bytes) in [("/tmp", 2 << 20), ("/dev/shm", 1 << 20)] {
        let filled = sh(&*instance, &format!("cat /dev/zero > {place}/big; stat -c %s {place}/big")).await;
        assert_eq!(filled.stdout.trim(), bytes.to_string(), "{place}");
    }
    assert_eq!(sh(&*instance, "ulimit -n; ulimit -c").await.stdout, "64\n0\n");
    instance.stop().await.unwrap();
}

pub(crate) async fn cpu_time_is_held_where_it_can_be(world: Arc<World>) {
    let plan = plan_with(&world, Limits { cpus: Some(CpuCount { millis: 200 }), ..Limits::default() });
    let instance = world.create(&plan).await;
    let script =
        "import time\nwall = time.time() + 1\nwhile time.time() < wall: pass\nprint(time.process_time())";
    let used: f64 =
        sh(&*instance, &format!("exec python3 -c \"{script}\"")).await.stdout.trim().parse().unwrap();
    match held(&*instance, LimitKind::Cpus) {
        (Enforcement::CgroupV1 | Enforcement::CgroupV2, 200) => assert!(used < 0.5, "{used}"),
        (Enforcement::Affinity, 200) => assert_eq!(sh(&*instance, "nproc").await.stdout, "1\n"),
        (Enforcement::NotHeld, 200) => {
            println!("skipped: cpu limits need a cpu cgroup or more than one processor");
        }
        other => panic!("{other:?}"),
    }
    instance.stop().await.unwrap();
}

pub(crate) async fn a_hard_disk_limit_is_a_file_system(world: Arc<World>) {
    let plan = plan_with(&world, Limits { disk: Some(ByteSize::mib(32)), ..Limits::default() });
    let instance = world.create(&plan).await;
    let can = world.backend.probe().await.unwrap().has(Capability::HardDiskLimit);
    assert_eq!(can, is_root(), "mkfs.ext4 and loop devices are needed as root");
    let (enforcement, _) = held(&*instance, LimitKind::Disk);
    if !can {
        assert_eq!(enforcement, Enforcement::Accounting);
        instance.stop().await.unwrap();
        return;
    }
    assert_eq!(enforcement, Enforcement::FileSystem);
    let output = sh(&*instance, "echo kept > /root/note; for n in 1 2 3; do head -c 20000000 /dev/zero > /usr/big$n || echo full; done").await;
    assert!(output.stdout.contains("full"), "{output:?}");
    assert!(output.stderr.contains("No space left"), "{output:?}");
    instance.stop().await.unwrap();

    let instance = world.create(&plan).await;
    assert_eq!(sh(&*instance, "cat /root/note; ls /usr | grep -c big").await.stdout, "kept\n3\n");
    assert!(instance.usage().await.unwrap().disk_bytes.is_some_and(|bytes| bytes <= 34 << 20));
    instance.stop().await.unwrap();
}

pub(crate) async fn a_disk_filler_is_stopped_by_accounting(world: Arc<World>) {
    let mut plan = plan_with(&world, Limits { disk: Some(ByteSize::mib(20)), ..Limits::default() });
    plan.limits.disk_is_hard = false;
    let instance = world.create(&plan).await;
    assert_eq!(held(&*instance, LimitKind::Disk), (Enforcement::Accounting, 20 << 20));
    let filler = "n=0; while true; do n=$((n+1)); head -c 4000000 /dev/zero > /root/$n || exit 3; done";
    let output = tokio::time::timeout(Duration::from_secs(50), sh(&*instance, filler)).await.unwrap();
    assert!(output.report.disk_limit, "{output:?}");
    // A single file never exceeds the limit.
    let one = sh(
        &*instance,
        "rm -f /root/*; sleep 1; head -c 30000000 /dev/zero > /root/one; stat -c %s /root/one",
    )
    .await;
    assert_eq!(one.stdout.trim(), (20 << 20).to_string(), "{one:?}");
    instance.stop().await.unwrap();
}

/// A sandbox with 20 MiB of disk, enforced by measuring.
async fn small_accounted(world: &World) -> Box<dyn Instance> {
    let mut plan = plan_with(world, Limits { disk: Some(ByteSize::mib(20)), ..Limits::default() });
    plan.limits.disk_is_hard = false;
    let instance = world.create(&plan).await;
    assert_eq!(held(&*instance, LimitKind::Disk), (Enforcement::Accounting, 20 << 20));
    instance
}

async fn is_stopped_by_accounting(world: &World, script: &str) {
    let instance = small_accounted(world).await;
    let command = ["/usr/bin/env", "python3", "-c", script];
    let output = tokio::time::timeout(Duration::from_secs(50), run(&*instance, &command)).await.unwrap();
    assert!(output.report.disk_limit, "{output:?}");
    assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
    instance.stop().await.unwrap();
}

pub(crate) async fn a_deep_tree_is_measured_to_its_bottom(world: Arc<World>) {
    let script = "import os, time\nos.chdir('/root')\n\
        for n in range(600): os.mkdir('d'); os.chdir('d')\n\
        for n in range(30): open(str(n), 'wb').write(b'x' * 1000000)\n\
        while True: time.sleep(0.05); open('more', 'ab').write(b'x' * 5000)";
    is_stopped_by_accounting(&world, script).await;
}

pub(crate) async fn empty_files_are_not_free(world: Arc<World>) {
    let script = "import os\nn = 0\nwhile True:\n  n += 1\n  os.close(os.open(f'/root/{n}', os.O_CREAT))";
    is_stopped_by_accounting(&world, script).await;
}

pub(crate) async fn deleted_files_count_while_they_are_open(world: Arc<World>) {
    let script = "import os, time\nkept = []\nn = 0\nwhile True:\n\
        \x20 n += 1\n  kept.append(open(f'/usr/{n}', 'wb', buffering=0))\n  os.unlink(f'/usr/{n}')\n\
        \x20 kept[-1].write(b'x' * 1000000)\n  time.sleep(0.01)";
    is_stopped_by_accounting(&world, script).await;
}

pub(crate) async fn deleted_files_count_while_they_are_mapped(world: Arc<World>) {
    if !is_root() {
        println!("skipped: seeing a file that is only mapped needs root");
        return;
    }
    // Python's own mappings keep a descriptor; those of the C library do not.
    let script = "import os, time, ctypes\nmap = ctypes.CDLL(None).mmap\nsize = ctypes.c_size_t\nn = 0\nwhile True:\n\
        \x20 n += 1\n  f = open(f'/root/{n}', 'w+b', buffering=0)\n  f.write(b'x' * 1000000)\n\
        \x20 map(None, size(4096), 1, 2, f.fileno(), size(0))\n  f.close()\n\
        \x20 os.unlink(f'/root/{n}')\n  time.sleep(0.01)";
    is_stopped_by_accounting(&world, script).await;
}

/// Whether a living process shares the pid namespace of this guest.
fn has_live_neighbour(guest: i32) -> bool {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let its_own = namespace(&guest.to_string()).unwrap();
    let names = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| *name != guest.to_string() && namespace(name).as_ref() == Some(&its_own)).any(
        |name| {
            let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, after)| !after.starts_with('Z'))
        },
    )
}

pub(crate) async fn a_deaf_guest_does_not_save_a_disk_filler(world: Arc<World>) {
    let mut plan = plan_with(&world, Limits { disk: Some(ByteSize::mib(20)), ..Limits::default() });
    plan.limits.disk_is_hard = false;
    let instance = world.create(&plan).await;
    let filler = "(while [ ! -e /root/go ]; do sleep 0.1; done; n=0; \
        while true; do n=$((n + 1)); head -c 1000000 /dev/zero > /root/$n; done) > /dev/null 2>&1 &";
    sh(&*instance, filler).await;
    let text = std::fs::read_to_string(world.run_directory(&plan.id).join("pid")).unwrap();
    let pid = text.split(' ').next().unwrap().parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
    let guest = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    sh(&*instance, "touch /root/go").await;
    rustix::process::pidfd_send_signal(&guest, rustix::process::Signal::STOP).unwrap();
    // With a cgroup the workload is killed, and the guest can be woken; without one, the whole sandbox is.
    let has_cgroup = world.backend.probe().await.unwrap().has(Capability::PidsLimit);
    let end = async {
        if has_cgroup {
            while has_live_neighbour(pid.as_raw_pid()) {
                tokio::task::yield_now().await;
            }
        } else {
            instance.ended().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(50), end).await.expect("the filler was stopped");
    if has_cgroup {
        rustix::process::pidfd_send_signal(&guest, rustix::process::Signal::CONT).unwrap();
        // It first finds the request to kill everything in its queue.
        while sh(&*instance, "echo alive").await.stdout != "alive\n" {}
    }
    instance.stop().await.unwrap();
}

pub(crate) async fn a_paused_sandbox_stands_still_and_goes_on(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    if !world.backend.probe().await.unwrap().has(Capability::Pause) {
        assert!(matches!(instance.pause().await, Err(BackendError::Unsupported { .. })));
        println!("skipped: pausing needs a freezer cgroup");
        instance.stop().await.unwrap();
        return;
    }
    sh(&*instance, "echo x > /tmp/ticks; while true; do echo x >> /tmp/ticks; done &").await;
    instance.pause().await.unwrap();
    let read = async || {
        let mut client = crate::world::Client::connect(&*instance).await;
        let path = "/tmp/ticks".to_owned();
        match client.ask(&guest_protocol::Request::Stat { path, follow: true }).await {
            guest_protocol::Response::Entry { entry } => entry.size,
            other => panic!("{other:?}"),
        }
    };
    let frozen = read().await;
    assert_eq!(read().await, frozen);
    instance.resume().await.unwrap();
    while read().await == frozen {}
    // A paused sandbox can be stopped, too.
    instance.pause().await.unwrap();
    instance.stop().await.unwrap();
}

pub(crate) async fn usage_is_told(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    sh(&*instance, "head -c 3000000 /dev/zero > /root/big; sleep 1000 & python3 -c 'sum(range(3000000))'")
        .await;
    let usage = instance.usage().await.unwrap();
    assert!(usage.memory_bytes > Some(0), "{usage:?}");
    assert!(usage.pids >= Some(1), "{usage:?}");
    assert!(usage.disk_bytes >= Some(3_000_000), "{usage:?}");
    assert!(usage.cpu_micros.is_some(), "{usage:?}");
    instance.stop().await.unwrap();
}

pub(crate) async fn the_statement_matches_the_host(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let isolation = instance.isolation();
    assert_eq!(isolation.rootless, !is_root());
    assert_eq!(isolation.namespaces.join(" "), "user mnt pid net ipc uts cgroup");
    assert_eq!(isolation.limits.len(), 8);
    let inside = sh(&*instance, "cat /proc/self/uid_map").await.stdout;
    let ids: u64 = inside
        .lines()
        .map(|line| line.split_ascii_whitespace().nth(2).unwrap().parse::<u64>().unwrap())
        .sum();
    let expected = match ids {
        1 => "single",
        _ if is_root() => "own-range",
        _ => "subordinate",
    };
    assert_eq!(isolation.id_map, expected);
    for held in isolation.not_held() {
        assert!(held.note.is_some(), "{held:?}");
    }
    // The kernel agrees that each namespace is another one.
    for namespace in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let ours = std::fs::read_link(format!("/proc/self/ns/{namespace}")).unwrap();
        let theirs = sh(&*instance, &format!("readlink /proc/self/ns/{namespace}")).await.stdout;
        assert_ne!(ours.to_str().unwrap(), theirs.trim(), "{namespace}");
    }
    instance.stop().await.unwrap();
}
