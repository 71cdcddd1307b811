//! Stories that every back end passes alike, or refuses with a reason.

use std::{future::Future, path::PathBuf, pin::Pin};

use guest_protocol::{ExecStart, Request, Response, StartFailure};
use sandbox::{
    BackendError, ByteSize, Capability, Enforcement, Instance, LimitKind, Limits, MountOrigin, MountPlan,
    RootfsPlan, SandboxPlan, SandboxSpec, Walls,
};

use crate::{
    client::{Client, PATIENCE, run_as, sh},
    world::World,
};

type StoryFuture<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Story = (&'static str, for<'a> fn(&'a mut World) -> StoryFuture<'a>);

macro_rules! stories {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), |world| Box::pin($name(world)))),*] };
}

pub(crate) const STORIES: &[Story] = stories![
    a_command_runs_with_output_and_exit_code,
    environment_directory_and_user_are_as_asked,
    files_written_by_the_host_are_seen_inside_and_back,
    a_restart_keeps_files_and_nothing_else,
    a_new_daemon_adopts_what_lives,
    a_sweep_takes_away_what_is_not_alive,
    the_end_is_noticed_however_it_comes,
    a_stopped_sandbox_is_gone_for_good,
    a_workload_out_of_memory_dies_and_the_guest_lives,
    limits_are_held_as_stated,
    a_hard_disk_limit_is_held_or_refused,
    a_pause_holds_or_is_refused,
    usage_is_told,
    walls_are_as_stated,
    a_directory_of_the_host_is_shown_or_refused,
    a_root_without_any_library_is_used_or_refused,
    image_host_follows_the_host,
    hostile_plans_do_no_harm,
];

/// How a limit of a live sandbox is enforced.
fn held(instance: &dyn Instance, limit: LimitKind) -> Enforcement {
    instance.isolation().limits.iter().find(|statement| statement.limit == limit).unwrap().enforcement
}

fn limited(world: &World, limits: Limits) -> SandboxPlan {
    world.plan_with(&SandboxSpec { limits, ..SandboxSpec::default() })
}

/// A refusal must say what is refused, by whom, and what to do instead.
fn is_in_words(error: &BackendError, world: &World) {
    let BackendError::Unsupported { what, next } = error else { panic!("{error:?}") };
    assert!(what.contains(world.backend().kind().as_str()) || what.contains("here"), "{what}");
    assert!(next.is_some(), "{what}");
}

async fn a_command_runs_with_output_and_exit_code(world: &mut World) {
    let instance = world.create(&world.plan()).await;
    let output = sh(&*instance, "echo out; echo err >&2; exit 7").await;
    assert_eq!((output.stdout.as_str(), output.stderr.as_str(), output.code()), ("out\n", "err\n", Some(7)));
    let killed = sh(&*instance, "kill -9 $$").await;
    assert_eq!((killed.report.code, killed.report.signal), (None, Some(9)));
    let long = sh(&*instance, "seq 100000").await.stdout;
    assert_eq!(long.lines().count(), 100_000);
    instance.stop().await.unwrap();
}

async fn environment_directory_and_user_are_as_asked(world: &mut World) {
    let instance = world.create(&world.plan()).await;
    let mut client = Client::connect(&*instance).await;
    let start = ExecStart {
        id: "asked".to_owned(),
        command: ["/bin/sh", "-c", "echo \"$GREETING\"; pwd; id -u"].map(str::to_owned).to_vec(),
        env: [("GREETING", "good day"), ("PATH", "/usr/bin:/bin")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        cwd: "/tmp".to_owned(),
        user: "0:0".to_owned(),
        ..ExecStart::default()
    };
    assert!(matches!(client.ask(&Request::ExecStart(start.clone())).await, Response::Started { .. }));
    assert_eq!(client.follow("asked").await.stdout, format!("good day\n/tmp\n{}\n", world.root_uid()));
    // A daemon without root may have only its own id to give.
    if instance.isolation().id_map != "single" && rustix::process::geteuid().is_root() {
        assert_eq!(run_as(&*instance, "1000:1000", &["id", "-u"]).await.stdout, "1000\n");
    }
    let mut client = Client::connect(&*instance).await;
    let nowhere = ExecStart { id: "nowhere".to_owned(), cwd: "/no/such".to_owned(), ..start };
    let answer = client.ask(&Request::ExecStart(nowhere)).await;
    let Response::NotStarted { reason: StartFailure::BadWorkingDirectory, .. } = answer else {
        panic!("{answer:?}")
    };
    instance.stop().await.unwrap();
}

async fn files_written_by_the_host_are_seen_inside_and_back(world: &mut World) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let home = world.root_home(&plan);
    let mut client = Client::connect(&*instance).await;
    client.write("/root/blob", 300_000).await.unwrap();
    let seen = sh(&*instance, &format!("cd {home} && wc -c < blob && tr -d x < blob | wc -c")).await;
    assert_eq!(seen.stdout, "300000\n0\n", "{seen:?}");
    let made = format!("cd {home} && mkdir deep && ln -s ../blob deep/link && echo made > deep/note");
    assert_eq!(sh(&*instance, &made).await.code(), Some(0));
    let entries =
        client.ask(&Request::List { path: "/root/deep".to_owned(), recursive: true, limit: 9 }).await;
    let Response::Entries { entries, .. } = entries else { panic!("{entries:?}") };
    let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, [format!("{home}/deep/link"), format!("{home}/deep/note")]);
    instance.stop().await.unwrap();
}

async fn a_restart_keeps_files_and_nothing_else(world: &mut World) {
    let plan = world.plan();
    let note = format!("{}/note", world.root_home(&plan));
    let instance = world.create(&plan).await;
    sh(&*instance, &format!("echo kept > {note}; sleep 1000 < /dev/null > /dev/null 2>&1 &")).await;
    if world.has_root() {
        sh(&*instance, "echo lost > /tmp/note; echo usr > /usr/local/note").await;
    }
    instance.stop().await.unwrap();
    drop(instance);
    let instance = world.create(&plan).await;
    assert_eq!(sh(&*instance, &format!("cat {note}")).await.stdout, "kept\n");
    if world.has_root() {
        let found = sh(&*instance, "cat /usr/local/note; ls /tmp/note").await;
        assert_eq!((found.stdout.as_str(), found.code()), ("usr\n", Some(2)));
    }
    instance.stop().await.unwrap();
}

async fn a_new_daemon_adopts_what_lives(world: &mut World) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let note = if world.has_root() { "/tmp/note".to_owned() } else { world.root_home(&plan) + "/note" };
    sh(&*instance, &format!("echo here > {note}")).await;
    let isolation = instance.isolation().clone();
    drop(instance);
    world.restart().await;
    let adopted = world.backend().adopt(&plan).await.unwrap().expect("it lives");
    assert_eq!(sh(&*adopted, &format!("cat {note}")).await.stdout, "here\n");
    assert_eq!(*adopted.isolation(), isolation);
    adopted.stop().await.unwrap();
    assert!(world.backend().adopt(&plan).await.unwrap().is_none());
    assert!(world.backend().adopt(&world.plan()).await.unwrap().is_none());
}

async fn a_sweep_takes_away_what_is_not_alive(world: &mut World) {
    // Files of earlier stories.
    world.backend().sweep(&[], &[]).await.unwrap();
    let (kept, dropped) = (world.plan(), world.plan());
    drop(world.create(&kept).await);
    drop(world.create(&dropped).await);
    world.restart().await;
    let instance = world.backend().adopt(&kept).await.unwrap().expect("it lives");
    let (alive, known) = ([kept.id.clone()], [kept.id.clone(), dropped.id.clone()]);
    let swept = world.backend().sweep(&alive, &known).await.unwrap();
    assert_eq!(swept, std::slice::from_ref(&dropped.id));
    assert!(world.backend().adopt(&dropped).await.unwrap().is_none());
    assert!(world.files_of(&dropped.id).exists());
    assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
    // Its files are removed once nobody knows it any more.
    assert_eq!(world.backend().sweep(&alive, &alive).await.unwrap(), std::slice::from_ref(&dropped.id));
    assert!(!world.files_of(&dropped.id).exists() && world.files_of(&kept.id).exists());
    instance.stop().await.unwrap();
}

async fn the_end_is_noticed_however_it_comes(world: &mut World) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let mut client = Client::connect(&*instance).await;
    let leave = Request::Shutdown { grace_ms: 1000, signal: None };
    let (_, ended) = tokio::join!(client.try_ask(&leave), tokio::time::timeout(PATIENCE, instance.ended()));
    ended.unwrap();
    instance.stop().await.unwrap();
    let instance = world.create(&plan).await;
    let (stopped, ended) = tokio::join!(instance.stop(), tokio::time::timeout(PATIENCE, instance.ended()));
    stopped.unwrap();
    ended.unwrap();
}

async fn a_stopped_sandbox_is_gone_for_good(world: &mut World) {
    world.backend().sweep(&[], &[]).await.unwrap();
    let plan = world.plan();
    let instance = world.create(&plan).await;
    instance.stop().await.unwrap();
    instance.stop().await.unwrap();
    assert!(matches!(instance.connect().await.err(), Some(BackendError::Gone(_))));
    drop(instance);
    assert!(world.backend().adopt(&plan).await.unwrap().is_none());
    world.restart().await;
    assert_eq!(world.backend().sweep(&[], std::slice::from_ref(&plan.id)).await.unwrap(), []);
}

/// Takes memory without end, and reports when it is refused.
const HOG: &str = "python3 -c '\na = []\nwhile True: a.append(bytearray(b\"x\" * (1 << 20)))\n'";

async fn a_workload_out_of_memory_dies_and_the_guest_lives(world: &mut World) {
    let limits = Limits { memory: Some(ByteSize::mib(128)), ..Limits::default() };
    let instance = world.create(&limited(world, limits)).await;
    if matches!(held(&*instance, LimitKind::Memory), Enforcement::NotHeld) {
        return instance.stop().await.unwrap();
    }
    if world.backend().kind().as_str() == "gvisor" {
        // The kernel inside is the process that is killed. The sandbox says so beforehand, and its end is noticed.
        assert!(instance.isolation().warnings.iter().any(|warning| warning.contains("out of memory")));
        let mut client = Client::connect(&*instance).await;
        let start = ExecStart {
            id: "hog".to_owned(),
            command: ["/bin/sh", "-c", HOG].map(str::to_owned).to_vec(),
            env: sandbox::Defaults::default().env,
            cwd: "/".to_owned(),
            user: "0:0".to_owned(),
            ..ExecStart::default()
        };
        client.ask(&Request::ExecStart(start)).await;
        tokio::time::timeout(PATIENCE, instance.ended()).await.expect("it has no memory left");
        return instance.stop().await.unwrap();
    }
    let hog = sh(&*instance, HOG).await;
    assert_ne!(hog.code(), Some(0), "{hog:?}");
    assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
    instance.stop().await.unwrap();
}

async fn limits_are_held_as_stated(world: &mut World) {
    let limits =
        Limits { tmp: Some(ByteSize::mib(2)), open_files: Some(64), pids: Some(64), ..Limits::default() };
    let instance = world.create(&limited(world, limits)).await;
    if held(&*instance, LimitKind::Tmp) == Enforcement::FileSystem {
        let filled = sh(&*instance, "head -c 3000000 /dev/zero > /tmp/fill").await;
        assert_ne!(filled.code(), Some(0), "{filled:?}");
    }
    if held(&*instance, LimitKind::OpenFiles) == Enforcement::Rlimit {
        assert_eq!(sh(&*instance, "ulimit -n; ulimit -c").await.stdout, "64\n0\n");
    }
    if matches!(held(&*instance, LimitKind::Pids), Enforcement::CgroupV1 | Enforcement::CgroupV2) {
        let many = sh(&*instance, "for i in $(seq 200); do sleep 30 & done; echo all").await;
        assert_ne!((many.stdout.as_str(), many.stderr.is_empty()), ("all\n", true), "{many:?}");
    }
    instance.stop().await.unwrap();
}

async fn a_hard_disk_limit_is_held_or_refused(world: &mut World) {
    let plan = limited(world, Limits { disk: Some(ByteSize::mib(32)), ..Limits::default() });
    match world.backend().create(&plan).await {
        Ok(instance) => {
            assert_ne!(held(&*instance, LimitKind::Disk), Enforcement::NotHeld);
            instance.stop().await.unwrap();
        }
        Err(error) => is_in_words(&error, world),
    }
}

async fn a_pause_holds_or_is_refused(world: &mut World) {
    let instance = world.create(&world.plan()).await;
    let can_pause = world.backend().probe().await.unwrap().has(Capability::Pause);
    match instance.pause().await {
        Ok(()) => {
            assert!(can_pause);
            // The guest stays awake while the workload stands still.
            let mut client = Client::connect(&*instance).await;
            assert_eq!(client.ask(&Request::Ping).await, Response::Done);
            instance.resume().await.unwrap();
        }
        Err(error) => {
            assert!(!can_pause, "{error}");
            is_in_words(&error, world);
        }
    }
    assert_eq!(sh(&*instance, "echo awake").await.stdout, "awake\n");
    if can_pause {
        instance.pause().await.unwrap();
    }
    // Nothing is left of a paused sandbox either.
    instance.stop().await.unwrap();
}

async fn usage_is_told(world: &mut World) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    sh(&*instance, &format!("head -c 4000000 /dev/zero > {}/big", world.root_home(&plan))).await;
    let usage = instance.usage().await.unwrap();
    assert!(usage.disk_bytes.is_some_and(|bytes| bytes >= 4_000_000), "{usage:?}");
    if held(&*instance, LimitKind::Memory) != Enforcement::NotHeld {
        assert!(usage.memory_bytes.is_some(), "{usage:?}");
    }
    instance.stop().await.unwrap();
}

async fn walls_are_as_stated(world: &mut World) {
    let secret = world.directories.home.join("secret");
    std::fs::write(&secret, "of the host").unwrap();
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let isolation = instance.isolation().clone();
    assert_eq!(isolation.backend, world.backend().kind());
    let looked = sh(&*instance, &format!("cat {}", secret.display())).await;
    let has = |name: &str| isolation.namespaces.iter().any(|own| own == name);
    assert_eq!(looked.stdout.is_empty(), has("mnt"), "{looked:?}");
    if !has("mnt") {
        assert!(!isolation.warnings.is_empty(), "no walls, and not a word about it");
        return instance.stop().await.unwrap();
    }
    // Its own processes, its own name, loopback only, no devices, nothing to gain.
    let inside = sh(&*instance, "cat /proc/1/comm > /dev/null; hostname; ls /sys/class/net /proc/sys/net/ipv4/conf 2>/dev/null | grep -c eth").await;
    assert_eq!(inside.stdout, "box\n0\n", "{inside:?}");
    let escapes = "mknod /root/disk b 8 0 || mount -t tmpfs none /mnt || unshare -m true || echo refused";
    assert_eq!(sh(&*instance, &format!("({escapes}) 2>/dev/null")).await.stdout, "refused\n");
    if isolation.walls == Walls::SharedKernel {
        // The same filter and the same hidden files in every back end.
        assert_eq!(isolation.seccomp.as_deref(), Some(jail::FILTER_NAME));
        let sockets = "import socket\nfor family in (socket.AF_ALG, socket.AF_VSOCK, socket.AF_PACKET):\n    \
                       try: socket.socket(family, socket.SOCK_RAW)\n    except OSError: print('refused')";
        let probes =
            format!("cat /proc/pressure/memory /proc/cmdline; ls /sys/firmware; python3 -c \"{sockets}\"");
        assert_eq!(sh(&*instance, &format!("({probes}) 2>/dev/null")).await.stdout, "refused\n".repeat(3));
        let buffers = sh(&*instance, "cat /proc/sys/net/ipv4/tcp_rmem").await.stdout;
        // A share of its memory, within bounds.
        let most = (plan.limits.memory.bytes() / 8 / 1024).clamp(65_536, 131_072);
        assert_eq!(buffers.split_whitespace().last(), Some(&*most.to_string()), "{buffers}");
    }
    instance.stop().await.unwrap();
}

async fn a_directory_of_the_host_is_shown_or_refused(world: &mut World) {
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("note"), "from outside\n").unwrap();
    let mut plan = world.plan();
    let source = MountOrigin::Path { path: shared.path().to_owned(), identity: None };
    let mount =
        MountPlan { guest_path: "/shared".to_owned(), source, readonly: true, noexec: true, quota: None };
    plan.mounts = vec![mount];
    match world.backend().create(&plan).await {
        Ok(instance) => {
            let seen = sh(&*instance, "cat /shared/note; echo x > /shared/other || echo read-only").await;
            assert_eq!(seen.stdout, "from outside\nread-only\n");
            instance.stop().await.unwrap();
        }
        Err(error) => is_in_words(&error, world),
    }
    assert_eq!(std::fs::read_dir(shared.path()).unwrap().count(), 1);
}

async fn a_root_without_any_library_is_used_or_refused(world: &mut World) {
    let busybox = std::path::Path::new("/usr/bin/busybox");
    if !busybox.exists() {
        println!("skipped: busybox (busybox-static) is missing");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    std::fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for directory in ["bin", "root"] {
        std::fs::create_dir(root.path().join(directory)).unwrap();
    }
    std::fs::copy(busybox, root.path().join("bin/sh")).unwrap();
    let mut plan = world.plan();
    plan.rootfs = RootfsPlan::Directory { path: root.path().to_owned(), identity: None, no_links: false };
    match world.backend().create(&plan).await {
        Ok(instance) => {
            let output = sh(&*instance, "echo /bin/* /lib*; echo mine > /root/note").await;
            assert_eq!(output.stdout, "/bin/sh /lib*\n", "{output:?}");
            instance.stop().await.unwrap();
        }
        Err(error) => is_in_words(&error, world),
    }
    // What is written inside stays inside.
    assert_eq!(std::fs::read_dir(root.path().join("root")).unwrap().count(), 0);
}

async fn image_host_follows_the_host(world: &mut World) {
    if !world.has_root() || !rustix::process::geteuid().is_root() {
        return println!("not tested: no root file system of its own, or no root to change the host with");
    }
    let look = "cat /etc/alternatives/badger";
    let old = world.create(&world.plan()).await;
    assert_eq!(sh(&*old, look).await.stdout, "");
    assert_eq!(old.remarks().await, Vec::<String>::new());
    let changed = world.change_alternatives("badger");
    let new = world.create(&world.plan()).await;
    assert_eq!(sh(&*new, look).await.stdout, "badger");
    assert_eq!(new.remarks().await, Vec::<String>::new());
    assert!(old.remarks().await[0].contains("packages changed"));
    assert_eq!(sh(&*old, look).await.stdout, "");
    drop(changed);
    new.stop().await.unwrap();
    old.stop().await.unwrap();
}

/// Breaks a plan.
type Spoil = fn(&mut SandboxPlan);

async fn hostile_plans_do_no_harm(world: &mut World) {
    let canary = tempfile::tempdir().unwrap();
    std::fs::write(canary.path().join("note"), "untouched").unwrap();
    let spoils: [(&str, Spoil); 8] = [
        ("an image that is missing", |plan| {
            plan.rootfs = RootfsPlan::Image;
            plan.image_digest = Some(format!("sha256:{}", "0".repeat(64)));
        }),
        ("an image without a digest", |plan| plan.rootfs = RootfsPlan::Image),
        ("a digest with a path in it", |plan| {
            plan.rootfs = RootfsPlan::Image;
            plan.image_digest = Some("sha256:../../usr,upperdir=/etc:/root".to_owned());
        }),
        ("a root that is a file", |plan| {
            plan.rootfs =
                RootfsPlan::Directory { path: "/etc/passwd".into(), identity: None, no_links: false };
        }),
        ("a root that is missing", |plan| {
            plan.rootfs =
                RootfsPlan::Directory { path: "/no/such/root".into(), identity: None, no_links: false };
        }),
        ("a name that is no name", |plan| plan.hostname = format!("a b\n{}", "c".repeat(300))),
        ("a mount of what is missing", |plan| {
            let source = MountOrigin::Path { path: PathBuf::from("/no/such/source"), identity: None };
            plan.mounts = vec![mount_at("/shared", source)];
        }),
        ("a mount outside", |plan| {
            let source = MountOrigin::Tmpfs { size: ByteSize::mib(1) };
            plan.mounts = vec![mount_at("/../../../../../../tmp", source)];
        }),
    ];
    for (name, spoil) in spoils {
        let mut plan = world.plan();
        spoil(&mut plan);
        // Refused or made, in time, and never with harm.
        match tokio::time::timeout(PATIENCE, world.backend().create(&plan)).await.unwrap() {
            Ok(instance) => instance.stop().await.unwrap(),
            Err(error) => assert!(!error.to_string().is_empty(), "{name}"),
        }
        assert!(world.backend().adopt(&plan).await.unwrap().is_none(), "{name}");
    }
    assert_eq!(std::fs::read(canary.path().join("note")).unwrap(), b"untouched");
    // Nothing of any of them is alive, and a valid one can still be made.
    world.backend().sweep(&[], &[]).await.unwrap();
    let instance = world.create(&world.plan()).await;
    assert_eq!(sh(&*instance, "echo fine").await.stdout, "fine\n");
    instance.stop().await.unwrap();
}

fn mount_at(guest_path: &str, source: MountOrigin) -> MountPlan {
    let guest_path = guest_path.to_owned();
    MountPlan { guest_path, source, readonly: false, noexec: false, quota: None }
}
