//! From creation to the end, which leaves nothing behind.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use backends::namespace::{Directories, NamespaceBackend};
use guest_protocol::{Request, Response};
use sandbox::{Backend as _, BackendError, ByteSize, Limits, SandboxId, SandboxSpec};

use crate::world::{Client, World, fresh_id, sh};

pub(crate) async fn a_sandbox_is_made_runs_a_command_and_goes(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let output = sh(&*instance, "hostname; cat /etc/hostname; id -u; echo $$ > /tmp/x; cat /tmp/x").await;
    assert!(output.stdout.starts_with("box\nbox\n0\n"), "{output:?}");
    instance.stop().await.unwrap();
    instance.stop().await.unwrap();
    instance.ended().await;
    assert!(matches!(instance.connect().await, Err(BackendError::Gone(_))));
    world.backend.remove(&plan.id).await.unwrap();
    world.backend.remove(&plan.id).await.unwrap();
    assert!(!world.directory(&plan).exists());
}

pub(crate) async fn a_stopped_sandbox_keeps_its_files(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    assert_eq!(
        sh(&*instance, "echo kept > /root/note; echo gone > /tmp/note; rm -r /srv; mkdir /usr/local/new")
            .await
            .code(),
        Some(0)
    );
    instance.stop().await.unwrap();

    let instance = world.create(&plan).await;
    let found = sh(&*instance, "cat /root/note /tmp/note; ls -d /srv /usr/local/new").await;
    assert_eq!(found.stdout, "kept\n/usr/local/new\n");
    instance.stop().await.unwrap();
}

pub(crate) async fn nothing_is_left_on_the_host(world: Arc<World>) {
    sweep_all(&world).await;
    let before = Traces::now(&world, &[]);
    let mut ids = Vec::new();
    for disk in [None, Some(ByteSize::mib(16)), None] {
        let limits = Limits { disk, ..Limits::default() };
        let plan = world.plan_with(&SandboxSpec { limits, ..SandboxSpec::default() });
        let instance = world.create(&plan).await;
        sh(&*instance, "sleep 1000 & setsid sleep 1000 & mkdir -m 000 /root/locked").await;
        instance.stop().await.unwrap();
        world.backend.remove(&plan.id).await.unwrap();
        ids.push(plan.id);
    }
    // The cleanup continues after `stop`; once it is done, a sweep finds nothing.
    sweep_all(&world).await;
    assert_eq!(Traces::now(&world, &ids), before);
    for id in ids {
        assert!(!world.run_directory(&id).exists());
    }
}

/// Removes leftovers of other stories. A cleanup after a stop may still run, so repeats until nothing is left.
async fn sweep_all(world: &World) {
    while !world.backend.sweep(&[], &[]).await.unwrap().is_empty() {}
}

/// Everything on the host that could belong to a sandbox. Others may use the host meanwhile, so only possible traces of
/// ours count.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    entries: BTreeSet<String>,
    loops: BTreeSet<String>,
}

impl Traces {
    fn now(world: &World, ids: &[SandboxId]) -> Self {
        let home = world.directories.home.display().to_string();
        let run = world.directories.run.display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let names = |directory: &Path| {
            let read = fs::read_dir(directory).into_iter().flatten().flatten();
            read.map(|entry| entry.path().display().to_string()).collect::<BTreeSet<_>>()
        };
        let cgroups = ["memory", "cpu", "pids", "freezer", "cpuacct", "unified"]
            .iter()
            .flat_map(|controller| names(&Path::new("/sys/fs/cgroup").join(controller)))
            .filter(|path| path.contains("/warren-"))
            .flat_map(|path| names(Path::new(&path)))
            .filter(|path| ids.iter().any(|id| path.ends_with(id.as_str())))
            .collect();
        let entries =
            names(&world.directories.run).into_iter().chain(names(&world.directories.home.join("sandboxes")));
        let backing = names(Path::new("/sys/block"))
            .into_iter()
            .filter_map(|path| fs::read_to_string(Path::new(&path).join("loop/backing_file")).ok())
            .filter(|file| file.contains(&home));
        let is_ours = |line: &&str| line.contains(&home) || line.contains(&run);
        Self {
            mounts: mounts.lines().filter(is_ours).map(str::to_owned).collect(),
            cgroups,
            entries: entries.collect(),
            loops: backing.collect(),
        }
    }
}

pub(crate) async fn a_sandbox_that_ends_by_itself_is_noticed(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let mut client = Client::connect(&*instance).await;
    let answer = client.ask(&Request::Shutdown { grace_ms: 0, signal: None }).await;
    assert_eq!(answer, Response::Done);
    tokio::time::timeout(Duration::from_secs(20), instance.ended()).await.unwrap();
    instance.stop().await.unwrap();
}

pub(crate) async fn a_new_daemon_finds_what_lives_and_sweeps_the_rest(world: Arc<World>) {
    let (kept, dropped) = (world.plan(), world.plan());
    let kept_instance = world.create(&kept).await;
    drop(world.create(&dropped).await);
    sh(&*kept_instance, "echo here > /tmp/note").await;
    drop(kept_instance);

    let adopted = world.backend.adopt(&kept).await.unwrap().expect("it lives");
    assert_eq!(sh(&*adopted, "cat /tmp/note").await.stdout, "here\n");
    let swept =
        world.backend.sweep(std::slice::from_ref(&kept.id), std::slice::from_ref(&kept.id)).await.unwrap();
    assert!(swept.contains(&dropped.id) && !swept.contains(&kept.id), "{swept:?}");
    assert!(!world.directory(&dropped).exists() && world.directory(&kept).exists());
    assert!(world.backend.adopt(&dropped).await.unwrap().is_none());
    assert_eq!(sh(&*adopted, "cat /tmp/note").await.stdout, "here\n");
    adopted.stop().await.unwrap();
    assert!(world.backend.adopt(&kept).await.unwrap().is_none());
}

/// A second back end with its own home and our run directory.
async fn second(world: &World) -> (tempfile::TempDir, NamespaceBackend) {
    let home = tempfile::tempdir().unwrap();
    let directories = Directories { home: home.path().to_owned(), run: world.directories.run.clone() };
    (home, NamespaceBackend::new(directories, None).await.unwrap())
}

/// The spawner of a home, as noted in its lock.
fn spawner_of(home: &Path) -> Option<rustix::process::Pid> {
    let note = fs::read_to_string(home.join("spawner.lock")).unwrap();
    rustix::process::Pid::from_raw(note.split(' ').next()?.parse().ok()?)
}

pub(crate) async fn a_daemon_with_another_home_leaves_ours_alone(world: Arc<World>) {
    let (plan, unreadable) = (world.plan(), world.plan());
    let (instance, other) = (world.create(&plan).await, world.create(&unreadable).await);
    fs::write(world.run_directory(&unreadable.id).join("place.json"), "torn").unwrap();
    let (_home, stranger) = second(&world).await;
    assert_eq!(stranger.sweep(&[], &[]).await.unwrap(), []);
    assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
    assert_eq!(sh(&*other, "echo alive").await.stdout, "alive\n");
    // We ourselves sweep both.
    let swept = world.backend.sweep(&[], &[]).await.unwrap();
    assert!(swept.contains(&plan.id) && swept.contains(&unreadable.id), "{swept:?}");
    instance.ended().await;
    other.ended().await;
}

pub(crate) async fn a_dead_spawner_is_replaced_and_sandboxes_live_on(world: Arc<World>) {
    let (home, backend) = second(&world).await;
    let kept = world.plan();
    let instance = backend.create(&kept).await.unwrap();
    let plans: Vec<_> = (0..24).map(|_| world.plan()).collect();
    for some in plans.chunks(8) {
        let first = spawner_of(home.path()).unwrap();
        let makes = some.iter().map(|plan| backend.create(plan));
        let (made, ()) = tokio::join!(futures_util::future::join_all(makes), async {
            tokio::time::sleep(Duration::from_millis(3)).await;
            rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
        });
        for (plan, made) in some.iter().zip(made) {
            match made {
                Ok(instance) => instance.stop().await.unwrap(),
                Err(error) => assert!(matches!(error, BackendError::Unavailable { .. }), "{error:?}"),
            }
            // The same again works, with the next spawner; so does a removal, whichever process dies meanwhile.
            let instance = backend.create(plan).await.unwrap();
            assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
            instance.stop().await.unwrap();
        }
        let second = spawner_of(home.path()).unwrap();
        assert_ne!(first, second);
        let removals = some.iter().map(|plan| backend.remove(&plan.id));
        let (removed, ()) = tokio::join!(futures_util::future::join_all(removals), async {
            rustix::process::kill_process(second, rustix::process::Signal::KILL).unwrap();
        });
        removed.into_iter().for_each(|removed| removed.unwrap());
        let files = |plan: &sandbox::SandboxPlan| home.path().join("sandboxes").join(plan.id.as_str());
        assert!(some.iter().all(|plan| !files(plan).exists()));
        // Not while the next one is starting: each of them is killed by its own number.
        drop(backend.create(&world.plan()).await.unwrap());
    }
    assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
    backend.sweep(&[], &[]).await.unwrap();
    instance.ended().await;
}

pub(crate) async fn a_guest_without_a_run_directory_is_found_and_ended(world: Arc<World>) {
    let (home, backend) = second(&world).await;
    let [started, restarted, swept] = [0, 1, 2].map(|_| world.plan());
    for plan in [&started, &restarted, &swept] {
        drop(backend.create(plan).await.unwrap());
    }
    let mark = fs::read(format!("/proc/{}/cmdline", pid_of(&world, &started.id))).unwrap();
    let title = String::from_utf8(mark).unwrap().trim_end_matches('\0').to_owned();
    assert!(title.starts_with(&format!("warren: {} warren-", started.id)), "{title}");
    let stranger = fresh_id();
    let pretender = pretend(&title.replace(started.id.as_str(), stranger.as_str()));
    while pretender.is_some() && guests_of(&stranger) == 0 {
        tokio::task::yield_now().await;
    }
    for id in [&started.id, &restarted.id, &swept.id] {
        fs::remove_dir_all(world.run_directory(id)).unwrap();
    }
    drop(backend);
    let directories = Directories { home: home.path().to_owned(), run: world.directories.run.clone() };
    let next = NamespaceBackend::new(directories, None).await.unwrap();
    assert!(next.adopt(&started).await.unwrap().is_none());
    assert_eq!((guests_of(&started.id), guests_of(&swept.id)), (0, 1));
    let again = next.create(&started).await.unwrap();
    assert_eq!(guests_of(&started.id), 1);
    // This one counts as stopped, so nobody looks for its guest before it is started.
    drop(next.create(&restarted).await.unwrap());
    assert_eq!(guests_of(&restarted.id), 1);
    let alive = [started.id.clone(), restarted.id.clone()];
    let known = [started.id.clone(), restarted.id.clone(), swept.id.clone()];
    let removed = next.sweep(&alive, &known).await.unwrap();
    assert_eq!(removed, std::slice::from_ref(&swept.id));
    assert_eq!(guests_of(&swept.id), 0);
    assert_eq!(sh(&*again, "echo alive").await.stdout, "alive\n");
    next.sweep(&[], &[]).await.unwrap();
    assert_eq!((guests_of(&started.id), guests_of(&swept.id)), (0, 0));
    if let Some(mut pretender) = pretender {
        assert_eq!(guests_of(&stranger), 1, "what is not ours was ended");
        pretender.kill().unwrap();
        pretender.wait().unwrap();
    }
}

/// A host process that looks like our guest except for its user and cgroup. Only root can make one: without cgroups, an
/// ordinary user's guests are recognized by their user.
fn pretend(title: &str) -> Option<Child> {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "bash", "-c", "exec -a \"$0\" cat", title]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    rustix::process::geteuid().is_root().then(|| command.spawn().unwrap())
}

fn pid_of(world: &World, id: &SandboxId) -> String {
    let written = fs::read_to_string(world.run_directory(id).join("pid")).unwrap();
    written.split(' ').next().unwrap().to_owned()
}

/// Processes whose title names them the guest of a sandbox.
fn guests_of(id: &SandboxId) -> usize {
    let title = format!("warren: {id} ");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let titles = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    titles.filter(|words| words.starts_with(title.as_bytes())).count()
}

pub(crate) async fn what_a_removal_that_was_cut_short_left_is_swept(world: Arc<World>) {
    sweep_all(&world).await;
    let (plan, ghost) = (world.plan(), world.plan());
    let instance = world.create(&plan).await;
    // As in the middle of a removal: its record is gone, its files and cgroups too.
    fs::create_dir(world.run_directory(&ghost.id)).unwrap();
    fs::write(world.run_directory(&ghost.id).join("pid"), "1 1\n").unwrap();
    let swept = world.backend.sweep(std::slice::from_ref(&plan.id), &[]).await.unwrap();
    assert_eq!(swept, std::slice::from_ref(&ghost.id));
    assert!(!world.run_directory(&ghost.id).exists());
    assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
    instance.stop().await.unwrap();
}

/// A guest's program is a mount that nobody can write to, whoever they are.
pub(crate) async fn our_own_program_cannot_be_changed_from_inside(world: Arc<World>) {
    let facts = || {
        // Not by its path, which may lead through directories of another user.
        let found = fs::metadata("/proc/self/exe").unwrap();
        (found.mode(), found.mtime_nsec(), found.ctime(), found.ctime_nsec(), found.len(), found.nlink())
    };
    let before = facts();
    let plan = world.plan();
    let instance = world.create(&plan).await;
    let guest = pid_of(&world, &plan.id);
    let shown = format!("/proc/{guest}/exe");
    if rustix::process::geteuid().is_root() {
        let refused = fs::set_permissions(&shown, std::os::unix::fs::PermissionsExt::from_mode(0o777));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EROFS));
        assert!(fs::OpenOptions::new().write(true).open(&shown).is_err());
    }
    instance.stop().await.unwrap();
    assert_eq!(facts(), before);
}

pub(crate) async fn a_create_that_is_given_up_leaves_no_guest(world: Arc<World>) {
    sweep_all(&world).await;
    let plans: Vec<_> = (0..30).map(|_| world.plan()).collect();
    for (number, plan) in plans.iter().enumerate() {
        let patience = Duration::from_micros(500 * number as u64);
        if let Ok(made) = tokio::time::timeout(patience, world.backend.create(plan)).await {
            made.unwrap().stop().await.unwrap();
        }
    }
    // The undo continues in the background; a create of the same sandbox waits for it, and works.
    for plan in &plans {
        let instance = world.create(plan).await;
        assert_eq!(sh(&*instance, "echo alive").await.stdout, "alive\n");
        instance.stop().await.unwrap();
    }
    sweep_all(&world).await;
    for plan in &plans {
        assert!(!has_process_named(plan.id.as_str()), "{}", plan.id);
    }
}

/// Whether a guest is alive. It is named by its sandbox's id, as far as the kernel keeps names; the dead may wait to be
/// reaped.
fn has_process_named(name: &str) -> bool {
    let named = format!("({}) ", &name[..name.len().min(15)]);
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        stat.split_once(&named).is_some_and(|(_, after)| !after.starts_with(['Z', 'X']))
    })
}

pub(crate) async fn a_recycled_pid_is_never_taken_for_a_guest(world: Arc<World>) {
    let plan = world.plan();
    let instance = world.create(&plan).await;
    // The pid file of a sandbox now names a live process that is not its guest.
    let file = world.run_directory(&plan.id).join("pid");
    let true_pid = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{} 1\n", std::process::id())).unwrap();
    assert!(world.backend.adopt(&plan).await.unwrap().is_none());
    fs::write(&file, true_pid).unwrap();
    instance.stop().await.unwrap();
}

pub(crate) async fn a_create_that_fails_leaves_nothing(world: Arc<World>) {
    sweep_all(&world).await;
    let mut plan = world.plan();
    plan.rootfs =
        sandbox::RootfsPlan::Directory { path: "/does/not/exist".into(), identity: None, no_links: false };
    let error = world.backend.create(&plan).await.expect_err("no such directory");
    assert!(error.to_string().contains(plan.id.as_str()), "{error}");
    assert!(!world.run_directory(&plan.id).exists());
    world.backend.remove(&plan.id).await.unwrap();
    assert_eq!(world.backend.sweep(&[], &[]).await.unwrap(), []);
}

pub(crate) async fn a_root_with_any_name(world: Arc<World>) {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("b,c:d");
    for directory in ["dev", "proc", "sys", "tmp", "run", "etc"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::write(root.join("below"), "below").unwrap();
    let mut plan = world.plan();
    plan.rootfs = sandbox::RootfsPlan::Directory { path: root, identity: None, no_links: false };
    let instance = world.create(&plan).await;
    let mut client = Client::connect(&*instance).await;
    let Response::Entry { entry } = client.ask(&Request::Stat { path: "/below".into(), follow: false }).await
    else {
        panic!("no entry");
    };
    assert_eq!((entry.size, entry.uid), (5, 0));
    instance.stop().await.unwrap();
}

pub(crate) async fn many_at_once(world: Arc<World>) {
    let plans: Vec<_> = (0..20).map(|_| world.plan_with(&SandboxSpec::default())).collect();
    let made = futures_util::future::join_all(plans.iter().map(|plan| world.create(plan))).await;
    let outputs =
        futures_util::future::join_all(made.iter().map(|instance| sh(&**instance, "echo $((6 * 7))"))).await;
    assert!(outputs.iter().all(|output| output.stdout == "42\n"));
    for stopped in futures_util::future::join_all(made.iter().map(|instance| instance.stop())).await {
        stopped.unwrap();
    }
}

pub(crate) async fn what_is_needed_is_found_by_trying(world: Arc<World>) {
    let checks = jail::probe::run(&world.directories.home);
    for check in &checks {
        assert!(check.works || !check.is_needed, "{check:?}");
        assert!(
            check.works
                || check.fix.is_some()
                || check.check.contains("limits")
                || check.check.contains("pause"),
            "{check:?}"
        );
    }
    let has = |name: &str| checks.iter().any(|check| check.check == name);
    assert!(
        has("user namespaces") && has("overlay in a user namespace") && has("memory limits"),
        "{checks:?}"
    );
    assert_eq!(has("subordinate ids"), !rustix::process::geteuid().is_root());
}

pub(crate) async fn a_plan_can_be_explained(world: Arc<World>) {
    let steps = world.backend.explain(&world.plan());
    for part in ["once: unshare", "overlay", "pivot to", "capabilities CHOWN", "seccomp warren-default"] {
        assert!(steps.iter().any(|step| step.contains(part)), "{part}");
    }
}
