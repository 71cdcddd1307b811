//! A read-only caller changes nothing, by whatever method.

use std::{collections::BTreeSet, path::Path};

use engine::{
    Access, ContextSpec, Follow, Force, Principal, SandboxFilter, SandboxRef, SignalScope, SnapshotSpec,
    Target, VolumeRef,
};
use futures_util::{FutureExt, TryStreamExt, future::BoxFuture};
use sandbox::{
    ContextName, ErrorKind, ExecSpec, KeySpec, Language, Lifetime, NetworkRequestId, NetworkRequestSpec,
    PackageManager, PackageSpec, PortSpec, Result, SandboxSpec, SandboxState, TerminalSize, VolumeSpec,
    network::Protocol,
};

use super::support::{World, bytes};

/// Methods that change nothing, or that are not a caller's request.
const LOOKING: &[&str] = &[
    "accept",
    "authenticate_key",
    "authenticate_ssh_key",
    "calls",
    "close",
    "contexts",
    "diff_sandbox",
    "end",
    "events",
    "exec_entries",
    "exec_sandbox",
    "exec_stream",
    "exec_view",
    "execs",
    "exposed_ports",
    "fleet",
    "glob",
    "grep",
    "is_fed",
    "image",
    "images",
    "images_usage",
    "is_idle",
    "languages",
    "link_ended",
    "list",
    "live",
    "metrics",
    "network",
    "network_denials",
    "network_hosts",
    "network_log",
    "network_request",
    "network_requests",
    "next",
    "open",
    "open_all",
    "open_sftp",
    "open_with_clock",
    "pack",
    "package_job",
    "package_jobs",
    "principal_ended",
    "principal_named",
    "processes",
    "read_file",
    "read_link",
    "record_call",
    "record_unknown_call",
    "run_to_end",
    "sandbox",
    "sandboxes",
    "save_images",
    "save_snapshot",
    "search_output",
    "secret",
    "secrets",
    "settled",
    // What it may see, it may show, and stop showing.
    "revoke_share",
    "share",
    "shares",
    "shell",
    "sign_in",
    "snapshot",
    "snapshots",
    "ssh_key_removed",
    "ssh_keys",
    "stat",
    "usage",
    "verify_snapshot",
    "volume",
    "volumes",
    "wait_exec",
    "wait_package_job",
    "wait_sandbox",
    "watch",
    // A turn, which the caller takes for itself.
    "take",
];

const PORT: PortSpec =
    PortSpec { inside: 80, protocol: Protocol::Tcp, host: Some(0), address: None, public: true };

type Attempts<'a> = Vec<(&'static str, BoxFuture<'a, Result<()>>)>;

/// `name: call` for each; the results are dropped.
macro_rules! attempts {
    ($engine:expr, $($name:ident($($argument:expr),*)),* $(,)?) => {
        vec![$((stringify!($name), async move { $engine.$name($($argument),*).await.map(drop) }.boxed())),*]
    };
}

/// Every method that changes something, tried on a running sandbox with a running exec.
fn attempts<'a>(
    world: &'a World,
    who: &'a Principal,
    which: &'a SandboxRef,
    exec: &'a sandbox::ExecId,
) -> Attempts<'a> {
    attempts!(
        world.engine,
        create_sandbox(who, SandboxSpec::default()),
        create_sandbox_with(who, SandboxSpec::default(), engine::Progress::none()),
        create_and_exec(
            who,
            SandboxSpec::default().into(),
            sandbox::ExecSpec::argv(["true"]).into(),
            engine::Progress::none()
        ),
        // Nothing waits for its end: it is tried after all that does.
        exec_again(who, which, exec),
        replace_sandbox(who, SandboxSpec::default(), which, None, engine::Progress::none()),
        start_sandbox(who, which),
        stop_sandbox(who, which, None),
        pause_sandbox(who, which),
        resume_sandbox(who, which),
        restart_sandbox(who, which, None),
        remove_sandbox(who, which, Force::Yes),
        drain_sandbox(who, which, None),
        renew_sandbox(who, which, Lifetime::default()),
        rename_sandbox(who, which, "other".parse().unwrap()),
        change_limits(who, which, sandbox::Limits { pids: Some(64), ..Default::default() }),
        expose_port(who, which, &PORT),
        withdraw_port(who, which, 80),
        change_network(who, which, engine::NetworkChange::Replace(sandbox::NetworkSpec::default())),
        request_network(who, which, network_request()),
        grant_network_request(who, which, &request_id(), None),
        confirm_network_request(who, which, &request_id()),
        refuse_network_request(who, which, &request_id(), None),
        relabel_sandbox(who, which, [("kept".to_owned(), None)].into()),
        occupy_port(who, which, 80),
        may_connect(who, which),
        exec(who, which, ExecSpec::shell("touch /made")),
        exec_stdin(who, which, exec, bytes("x"), true),
        create_context(who, which, context_spec()),
        reset_context(who, which, &context_name()),
        fork_context(who, which, &context_name(), None, false),
        remove_context(who, which, &context_name()),
        exec_signal(who, which, exec, 9, SignalScope::Group),
        exec_resize(who, which, exec, TerminalSize { rows: 1, cols: 1 }),
        write_file(who, which, "/made", Default::default(), bytes("x")),
        mkdir(who, which, "/made", true, None),
        remove_path(who, which, "/kept", true),
        copy_path(who, which, "/kept", "/made", true),
        rename_path(who, which, "/kept", "/made", true),
        symlink(who, which, "/kept", "/made"),
        chmod(who, which, "/kept", 0o777, false),
        chown(who, which, "/kept", Some(1), None, false),
        unpack(who, which, "/", false, bytes("")),
        connect(who, which, Target::Tcp(80)),
        listen_inside(who, which, 80),
        install_packages(who, which, package_spec()),
        package_status(who, which, Some(PackageManager::Npm), "left-pad"),
        packages(who, which, None),
        pull_image(who, &alpine(), Default::default(), engine::Progress::none()),
        push_image(who, "alpine", &alpine(), Default::default(), engine::Progress::none()),
        check_registry_login(who, "registry.invalid", credentials(), false),
        load_images(who, std::io::empty(), Default::default()),
        import_image(who, std::io::empty(), Default::default(), Default::default(), alpine()),
        tag_image(who, "alpine", &alpine()),
        remove_image(who, "alpine", Force::Yes),
        prune_images(who),
        create_snapshot(who, SnapshotSpec::new(which.clone())),
        remove_snapshot(who, &"base".parse().unwrap(), Force::Yes),
        restore_snapshot(who, &"base".parse().unwrap(), Default::default()),
        reindex_snapshots(who),
        load_snapshot(who, &Default::default(), None, std::io::empty()),
        fork_sandbox(who, which, Default::default()),
        build_image(
            who,
            Default::default(),
            bytes(""),
            tokio::sync::mpsc::channel(1).0,
            engine::Progress::none()
        ),
        create_volume(who, volume_spec()),
        ensure_exists(who, &Default::default(), not_made()),
        ensure_running(who, which),
        exec_ensuring_running(who, which, ExecSpec::argv(["true"])),
        remove_volume(who, &volume()),
        set_secret(who, &secret(), secret_spec()),
        remove_secret(who, &secret(), Force::Yes),
        write_file(who, &volume(), "/made", Default::default(), bytes("x")),
        mkdir(who, &volume(), "/made", true, None),
        unpack(who, &volume(), "/", false, bytes("x")),
        remove_path(who, &volume(), "/kept", true),
        copy_path(who, &volume(), "/kept", "/made", true),
        rename_path(who, &volume(), "/kept", "/made", true),
        create_key(who, KeySpec::default()),
        keys(who),
        revoke_key(who, "ci"),
        add_ssh_key(who, "ci", "ssh-ed25519 AAAA"),
        remove_ssh_key(who, "ssh-0000000000000"),
    )
}

async fn not_made() -> Result<engine::Ensured> {
    Err(sandbox::Error::invalid("not made"))
}

fn alpine() -> engine::Reference {
    "alpine".parse().unwrap()
}

fn credentials() -> engine::Credentials {
    engine::Credentials { username: "ana".to_owned(), password: "secret".to_owned() }
}

fn volume() -> VolumeRef {
    VolumeRef { namespace: None, name: "models".parse().unwrap() }
}

fn secret() -> engine::SecretRef {
    engine::SecretRef { namespace: None, name: "TOKEN".parse().unwrap() }
}

fn secret_spec() -> engine::SecretSpec {
    let rules = serde_json::from_value(serde_json::json!({"hosts": ["api.example.org"]})).unwrap();
    engine::SecretSpec { rules, value: sandbox::SecretValue::new("value".to_owned()).unwrap() }
}

fn volume_spec() -> VolumeSpec {
    serde_json::from_value(serde_json::json!({"name": "models"})).unwrap()
}

fn network_request() -> NetworkRequestSpec {
    let (rules, reason) = (vec!["api.example".to_owned()], "a test".to_owned());
    NetworkRequestSpec { rules, reason, ..NetworkRequestSpec::default() }
}

fn request_id() -> NetworkRequestId {
    NetworkRequestId::from_random([1; 8])
}

fn context_name() -> ContextName {
    ContextName::of(Language::Bash)
}

fn context_spec() -> ContextSpec {
    ContextSpec { name: None, language: Language::Bash, env: Default::default(), cwd: None, user: None }
}

fn package_spec() -> PackageSpec {
    PackageSpec { packages: vec!["left-pad".to_owned()], ..PackageSpec::default() }
}

/// The names of all `pub async fn` in the engine's sources that belong to `Engine`.
fn methods_of_the_engine() -> BTreeSet<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut names = BTreeSet::new();
    // Only the folders that contain use cases.
    let files = std::fs::read_dir(&sources).unwrap().map(|entry| entry.unwrap().path());
    let folders = [
        "build/mod.rs",
        "feed/fleet.rs",
        "feed/listen.rs",
        "files/inside.rs",
        "metrics/measure.rs",
        "network/mod.rs",
        "network/requests.rs",
        "packages/mod.rs",
        "secrets/mod.rs",
        "sessions/mod.rs",
        "sessions/share.rs",
        "snapshots/mod.rs",
        "snapshots/diff.rs",
        "snapshots/fork.rs",
        "snapshots/reindex.rs",
        "snapshots/restore.rs",
        "snapshots/archive/load.rs",
        "snapshots/archive/save.rs",
    ];
    let files = files.filter(|path| path.is_file()).chain(folders.map(|path| sources.join(path)));
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let declared = text.lines().filter_map(|line| line.strip_prefix("    pub async fn "));
        names.extend(declared.map(|rest| rest.split(['(', '<']).next().unwrap().to_owned()));
    }
    names
}

async fn reader(world: &World) -> Principal {
    let spec = KeySpec { read_only: true, namespace: Some(Default::default()), ..KeySpec::default() };
    let made = world.engine.create_key(&world.who, spec).await.unwrap();
    world.engine.authenticate_key(&made.secret).await.unwrap()
}

#[tokio::test]
async fn a_read_only_key_is_refused_by_every_method_that_changes_something() {
    let world = World::new().await;
    let which = world.create().await;
    world.write(&which, "/kept", "as it was").await;
    let exec = world.start_exec(&which, "sleep 1000").await.id;
    let who = reader(&world).await;
    let before = (world.view(&which).await, world.read(&which, "/kept").await);
    let mut tried = BTreeSet::new();
    for (name, attempt) in attempts(&world, &who, &which, &exec) {
        let error = attempt.await.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Denied, "{name}: {error}");
        assert!(error.next().is_some(), "{name}");
        tried.insert(name.to_owned());
    }
    let mut after = (world.view(&which).await, world.read(&which, "/kept").await);
    // Reading a file counts as use.
    after.0.last_active_at = before.0.last_active_at;
    assert_eq!(after, before);
    assert!(world.engine.stat(&who, &which, "/made", false).await.is_err());
    assert_eq!(world.engine.sandboxes(&world.who, &SandboxFilter::default()).await.unwrap().len(), 1);
    assert_eq!(world.engine.keys(&world.who).await.unwrap().len(), 1);

    // A method in neither list was forgotten: decide which it is.
    let known: BTreeSet<_> = LOOKING.iter().map(|name| (*name).to_owned()).chain(tried).collect();
    assert_eq!(methods_of_the_engine(), known);
}

#[tokio::test]
async fn the_same_attempts_are_not_refused_to_who_may_write() {
    let world = World::new().await;
    let which = world.create().await;
    world.write(&which, "/kept", "as it was").await;
    let exec = world.start_exec(&which, "sleep 1000").await.id;
    // Nothing is denied for another reason; an impossible action fails in its own way.
    for (name, attempt) in attempts(&world, &world.who, &which, &exec).into_iter().rev() {
        if let Err(error) = attempt.await {
            assert_ne!(error.kind(), ErrorKind::Denied, "{name}: {error}");
        }
    }
}

#[tokio::test]
async fn a_read_only_key_sees_everything_in_its_namespace() {
    let world = World::new().await;
    let which = world.create().await;
    world.write(&which, "/file", "text").await;
    let exec = world.run(&which, "echo hello").await.id;
    let who = reader(&world).await;
    assert_eq!(who.access, Access::ReadOnly);
    let engine = &world.engine;
    assert_eq!(engine.sandbox(&who, &which).await.unwrap().state, SandboxState::Running);
    let (_, content) = engine.read_file(&who, &which, "/file", 0, None).await.unwrap();
    assert_eq!(super::support::collect(content).await.unwrap(), "text");
    assert!(!engine.list(&who, &which, "/", false, 10).await.unwrap().entries.is_empty());
    assert!(engine.exec_view(&who, &which, &exec).await.unwrap().outcome.is_some());
    let entries = engine.exec_entries(&who, &which, &exec, 1, Follow::No).await.unwrap();
    assert!(!entries.try_collect::<Vec<_>>().await.unwrap().is_empty());
    assert!(engine.pack(&who, &which, "/file").await.is_ok());
    assert!(engine.usage(&who, &which).await.is_ok() && engine.processes(&who, &which).await.is_ok());
    assert!(engine.watch(&who, &which, "/", false).await.is_ok());
}
