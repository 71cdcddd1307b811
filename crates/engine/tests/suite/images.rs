//! Sandboxes on images.

use std::{io::Cursor, os::unix::fs::MetadataExt as _, time::Duration};

use engine::{
    BuildSpec, Digest, DockerfileSource, Force, ImageConfig, ImageOptions, Platform, Principal, Progress,
    PullOptions, Reference, RestoreSpec, SandboxRef, SnapshotSpec,
};
use sandbox::{
    ErrorKind, FileIdentity, ImageRef, Next, PullPolicy, RootfsPlan, RootfsSpec, SandboxSpec, Setting,
};

use super::support::{World, bytes, in_time};

async fn with_images() -> World {
    World::with(|config| {
        let mut options = ImageOptions { durable: false, ..ImageOptions::default() };
        options.retry.attempts = 1;
        options.timeouts.connect = Duration::from_secs(5);
        config.images = Some(options);
    })
    .await
}

/// Imports an image of one file.
async fn import(world: &World, name: &str, config: ImageConfig) -> Digest {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(name.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "name", name.as_bytes()).unwrap();
    let root = Cursor::new(tar.into_inner().unwrap());
    let reference: Reference = name.parse().unwrap();
    let made =
        world.engine.import_image(&world.who, root, config, Platform::host(), reference).await.unwrap();
    made.summary.digest
}

/// Layers on disk, without that of image `host`.
fn n_image_layers(world: &World) -> usize {
    let layers = std::fs::read_dir(world.home.path().join("layers")).unwrap();
    layers.filter(|layer| !layer.as_ref().unwrap().file_name().to_string_lossy().starts_with("host-")).count()
}

fn on(image: &str, name: &str) -> SandboxSpec {
    let (image, name) = (image.parse().unwrap(), Some(name.parse().unwrap()));
    SandboxSpec { image, name, ..SandboxSpec::default() }
}

/// The file `name` in the topmost layer of a sandbox's base, as its back end finds it.
fn marker(world: &World, plan: &sandbox::SandboxPlan) -> Vec<u8> {
    let digest = plan.image_digest.as_ref().unwrap().parse().unwrap();
    let layers = images::lower_directories(world.home.path(), &digest).unwrap();
    std::fs::read(layers[0].join("name")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_image_makes_good_is_refused_before_one_is_looked_for() {
    let world = with_images().await;
    let missing = || SandboxSpec { pull: PullPolicy::Never, ..on("nobody/has:this", "box") };
    let refused = async |spec| world.engine.create_sandbox(&world.who, spec).await.unwrap_err().kind();
    assert_eq!(refused(missing()).await, ErrorKind::NotFound);
    let tmpfs = |guest_path: &str, size| sandbox::MountSpec {
        guest_path: guest_path.to_owned(),
        source: sandbox::MountSource::Tmpfs { size },
        readonly: false,
        noexec: false,
    };
    let limits = sandbox::Limits { pids: Some(1), ..sandbox::Limits::default() };
    for spec in [
        SandboxSpec { limits, ..missing() },
        SandboxSpec { mounts: vec![tmpfs("/data", Some(sandbox::ByteSize::gib(8)))], ..missing() },
        SandboxSpec { mounts: vec![tmpfs("/proc/x", None)], ..missing() },
        SandboxSpec { env: [("a=b".to_owned(), String::new())].into(), ..missing() },
        SandboxSpec { cwd: Some("here".to_owned()), ..missing() },
    ] {
        assert_eq!(refused(spec.clone()).await, ErrorKind::InvalidRequest, "{spec:?}");
    }
    let spec = SandboxSpec { backend: Some(sandbox::BackendKind::Gvisor), ..missing() };
    assert_eq!(refused(spec).await, ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_decides_what_nobody_asked_for() {
    let world = with_images().await;
    let config = ImageConfig {
        env: vec!["A=image".to_owned(), "B=image".to_owned(), "nonsense".to_owned()],
        user: Some("ana".to_owned()),
        working_dir: Some("/data".to_owned()),
        entrypoint: vec!["/bin/app".to_owned()],
        cmd: vec!["serve".to_owned()],
        stop_signal: Some("SIGINT".to_owned()),
        ..ImageConfig::default()
    };
    let digest = import(&world, "app:1", config).await;
    let mut spec = on("app:1", "web");
    spec.env.insert("B".to_owned(), "asked".to_owned());
    let view = world.engine.create_sandbox(&world.who, spec).await.unwrap();
    let plan = &view.plan;
    assert_eq!((plan.env["A"].as_str(), plan.env["B"].as_str()), ("image", "asked"));
    assert_eq!((plan.user.as_str(), plan.cwd.as_str()), ("ana", "/data"));
    assert_eq!(plan.image_digest.as_deref(), Some(digest.as_str()));
    assert_eq!(
        (plan.config.entrypoint.as_slice(), plan.config.cmd.as_slice()),
        (&["/bin/app".to_owned()][..], &["serve".to_owned()][..])
    );
    assert_eq!(plan.config.stop_signal.as_deref(), Some("SIGINT"));
    assert_eq!(plan.rootfs, RootfsPlan::Image);
    assert_eq!(marker(&world, plan), b"app:1");

    // An oversized configuration would fill the records of all its sandboxes.
    let env = (0..10_000).map(|number| format!("VARIABLE_{number}=some text or other")).collect();
    let long = Some(format!("/{}", "d/".repeat(4096)));
    import(&world, "wordy:1", ImageConfig { env, ..ImageConfig::default() }).await;
    let error = world.engine.create_sandbox(&world.who, on("wordy:1", "wordy")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    import(&world, "deep:1", ImageConfig { working_dir: long, ..ImageConfig::default() }).await;
    let view = world.engine.create_sandbox(&world.who, on("deep:1", "deep")).await.unwrap();
    assert_eq!(view.plan.cwd, "/");

    // An image without a configuration begins at the root, as root.
    import(&world, "silent:1", ImageConfig::default()).await;
    let view = world.engine.create_sandbox(&world.who, on("silent:1", "silent")).await.unwrap();
    assert_eq!((view.plan.user.as_str(), view.plan.cwd.as_str()), ("0:0", "/"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_stays_while_a_sandbox_is_made_on_it() {
    let world = with_images().await;
    let digest = import(&world, "app:1", ImageConfig::default()).await;
    for name in ["web", "worker"] {
        world.engine.create_sandbox(&world.who, on("app:1", name)).await.unwrap();
    }
    let users = ["sandbox web", "sandbox worker"];
    // Another daemon knows it from the records.
    let world = world.crash().await;
    assert_eq!(world.engine.images(&world.who).await.unwrap()[0].used_by, users);
    let error = world.engine.remove_image(&world.who, "app:1", Force::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongState);
    assert!(users.iter().all(|user| error.to_string().contains(user)), "{error}");
    assert_eq!(world.engine.prune_images(&world.who).await.unwrap().images, []);

    // By force only its name is removed, and the rest with the last sandbox.
    world.engine.remove_image(&world.who, "app:1", Force::Yes).await.unwrap();
    assert_eq!(world.engine.image(&world.who, digest.as_str()).await.unwrap().summary.names, []);
    for (name, n_left) in [("web", 1), ("worker", 0)] {
        let which: SandboxRef = name.parse().unwrap();
        world.engine.remove_sandbox(&world.who, &which, Force::Yes).await.unwrap();
        // In the background: it has no event of its own.
        in_time(async {
            while world.engine.images(&world.who).await.unwrap().len() != n_left {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
    in_time(async {
        while n_image_layers(&world) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_stays_while_one_without_a_record_may_be_made_on_it() {
    let world = with_images().await;
    import(&world, "app:1", ImageConfig::default()).await;
    let lost = world.engine.create_sandbox(&world.who, on("app:1", "lost")).await.unwrap();
    world.engine.create_sandbox(&world.who, on("app:1", "web")).await.unwrap();
    world.engine.remove_image(&world.who, "app:1", Force::Yes).await.unwrap();
    world.store.remove_sandbox(lost.id.clone()).await.unwrap();
    let manifest = world.directory(&lost).join("manifest.json");
    let world = world.with_database(|_| std::fs::write(manifest, "{}").unwrap()).await;
    assert_eq!(world.engine.images(&world.who).await.unwrap().len(), 1);
    // The last known user is removed.
    let which: SandboxRef = "web".parse().unwrap();
    world.engine.remove_sandbox(&world.who, &which, Force::Yes).await.unwrap();
    // It finishes its background work before it ends.
    let world = world.restart().await;
    assert_eq!(world.engine.images(&world.who).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cap_never_takes_what_a_sandbox_or_a_snapshot_uses() {
    // An image is its manifest, its configuration, its blob and one file: a bit more than 6 KiB. Four fit, five do not.
    let world = World::with(|config| {
        let options = ImageOptions { durable: false, disk_cap: Some(30 * 1024), ..ImageOptions::default() };
        config.images = Some(options);
    })
    .await;
    let names = async |world: &World| {
        let images = world.engine.images(&world.who).await.unwrap();
        images.iter().flat_map(|image| image.names.iter().map(Reference::familiar)).collect::<Vec<_>>()
    };
    import(&world, "stopped:1", ImageConfig::default()).await;
    let stopped: SandboxRef = (&world.create_from(on("stopped:1", "stopped")).await.id).into();
    world.stop(&stopped).await;
    // Its sandbox is gone.
    import(&world, "kept:1", ImageConfig::default()).await;
    let source: SandboxRef = (&world.create_from(on("kept:1", "source")).await.id).into();
    let snapshot = SnapshotSpec { name: Some("kept".parse().unwrap()), ..SnapshotSpec::new(source.clone()) };
    world.engine.create_snapshot(&world.who, snapshot).await.unwrap();
    world.remove(&source).await;

    for name in ["a:1", "b:1"] {
        import(&world, name, ImageConfig::default()).await;
    }
    assert_eq!(names(&world).await, ["a:1", "b:1", "kept:1", "stopped:1"]);
    import(&world, "c:1", ImageConfig::default()).await;
    assert_eq!(names(&world).await, ["b:1", "c:1", "kept:1", "stopped:1"]);
    // The next daemon knows it from the records, including images whose names are gone.
    for name in ["stopped:1", "kept:1"] {
        world.engine.remove_image(&world.who, name, Force::Yes).await.unwrap();
    }
    let world = world.crash().await;
    for name in ["d:1", "e:1"] {
        import(&world, name, ImageConfig::default()).await;
    }
    assert_eq!(names(&world).await, ["d:1", "e:1"]);
    assert_eq!(world.engine.prune_images(&world.who).await.unwrap().images.len(), 2);
    assert_eq!(world.engine.images(&world.who).await.unwrap().len(), 2);
    world.engine.start_sandbox(&world.who, &stopped).await.unwrap();
    let restore = RestoreSpec { name: Some("restored".parse().unwrap()), ..RestoreSpec::default() };
    let restored =
        world.engine.restore_snapshot(&world.who, &"kept".parse().unwrap(), restore).await.unwrap();
    assert_eq!(marker(&world, &restored.plan), b"kept:1");

    // With both gone, so are their images.
    for user in [stopped, (&restored.id).into()] {
        world.remove(&user).await;
    }
    world.engine.remove_snapshot(&world.who, &"kept".parse().unwrap(), Force::No).await.unwrap();
    in_time(async {
        while !world.engine.images(&world.who).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_made_on_a_whole_image_or_not_at_all() {
    let world = with_images().await;
    let (engine, who) = (&world.engine, &world.who);
    let mut n_made = 0;
    for turn in 0..30 {
        import(&world, "app:1", ImageConfig::default()).await;
        let name = format!("app-{turn}");
        let spec = SandboxSpec { pull: PullPolicy::Never, ..on("app:1", &name) };
        // Whatever happens to the image meanwhile.
        let (made, ()) = tokio::join!(engine.create_sandbox(who, spec), async {
            match turn % 3 {
                0 => drop(engine.prune_images(who).await),
                1 => drop(engine.remove_image(who, "app:1", Force::Yes).await),
                _ => {
                    // The name moves on to another image.
                    let other = ImageConfig { env: vec![format!("TURN={turn}")], ..ImageConfig::default() };
                    import(&world, "app:1", other).await;
                }
            }
        });
        match made {
            Ok(view) => {
                assert_eq!(marker(&world, &view.plan), b"app:1", "turn {turn}");
                let digest = view.plan.image_digest.unwrap();
                engine.image(who, &digest).await.unwrap();
                n_made += 1;
                world.remove(&(&view.id).into()).await;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "turn {turn}: {error}"),
        }
    }
    assert!(n_made > 0);
    engine.prune_images(who).await.unwrap();
    in_time(async {
        while n_image_layers(&world) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_here_is_pulled_only_when_that_was_asked() {
    let world = with_images().await;
    let mut spec = on("127.0.0.1:1/nobody/listens:1", "web");
    spec.pull = PullPolicy::Never;
    let error = world.engine.create_sandbox(&world.who, spec.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    for pull in [PullPolicy::IfMissing, PullPolicy::Always] {
        let spec = SandboxSpec { pull, ..spec.clone() };
        let error = world.engine.create_sandbox(&world.who, spec).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert_eq!(world.engine.sandboxes(&world.who, &Default::default()).await.unwrap(), []);
    // A stored image needs no registry, unless the policy is to ask every time.
    import(&world, "127.0.0.1:1/nobody/listens:1", ImageConfig::default()).await;
    let pull = PullPolicy::Always;
    let error =
        world.engine.create_sandbox(&world.who, SandboxSpec { pull, ..spec.clone() }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    world.engine.create_sandbox(&world.who, spec).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_stands_in_for_interpreters_only_if_asked_and_says_so() {
    let world = World::new().await;
    let error = world.engine.create_sandbox(&world.who, on("python:3.12-slim", "py")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let Some(Next::HostImage(host)) = error.next() else { panic!("{error:?}") };
    assert!(host.can_stand_in && host.listed().contains("python3"), "{host:?}");
    assert_eq!(world.engine.sandboxes(&world.who, &Default::default()).await.unwrap(), []);
    let falls_back = |image, name| SandboxSpec { image_fallback: true, ..on(image, name) };
    let view = world.engine.create_sandbox(&world.who, falls_back("python:3.12-slim", "py")).await.unwrap();
    assert_eq!((view.spec.image.as_str(), view.plan.image.as_str()), ("python:3.12-slim", ImageRef::HOST));
    assert_eq!(view.plan.rootfs, RootfsPlan::Host);
    assert!(view.warnings.iter().any(|warning| warning.contains("python:3.12-slim")), "{:?}", view.warnings);
    let error = world.engine.create_sandbox(&world.who, falls_back("alpine", "alp")).await.unwrap_err();
    let Some(Next::HostImage(host)) = error.next() else { panic!("{error:?}") };
    assert!(error.kind() == ErrorKind::Unsupported && !host.can_stand_in, "{host:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_of_the_host_are_the_owners_or_were_allowed_by_who_asked() {
    let world = World::new().await;
    let root = tempfile::tempdir().unwrap();
    let spec = |name: &str, allowed| {
        let path = root.path().to_owned();
        let rootfs = Some(RootfsSpec::Directory { path, no_links: false, allowed });
        SandboxSpec { name: Some(name.parse().unwrap()), rootfs, ..SandboxSpec::default() }
    };
    let stranger = Principal::developer("somebody");
    let error = world.engine.create_sandbox(&stranger, spec("no", None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    let found = std::fs::metadata(root.path()).unwrap();
    let identity = FileIdentity { device: found.dev(), inode: found.ino() };
    let view = world.engine.create_sandbox(&stranger, spec("allowed", Some(identity))).await.unwrap();
    let RootfsPlan::Directory { identity: planned, .. } = view.plan.rootfs else { panic!("{:?}", view.plan) };
    assert_eq!(planned, Some(identity));
    world.engine.create_sandbox(&world.who, spec("own", None)).await.unwrap();
    // A request cannot claim it.
    let claimed = r#"{"kind":"directory","path":"/","allowed":{"device":1,"inode":2}}"#;
    let read: RootfsSpec = serde_json::from_str(claimed).unwrap();
    assert_eq!(read, RootfsSpec::Directory { path: "/".into(), no_links: false, allowed: None });
}

/// Counts connections to a port of this host.
struct Inside {
    listener: tokio::net::TcpListener,
}

impl Inside {
    async fn new() -> Self {
        Self { listener: tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    fn image(&self) -> String {
        format!("{}/x/y:1", self.listener.local_addr().unwrap())
    }

    fn was_asked(&self) -> bool {
        futures_util::FutureExt::now_or_never(self.listener.accept()).is_some()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_operator_reaches_registries_of_the_hosts_own_network() {
    let world = with_images().await;
    let inside = Inside::new().await;
    let image = inside.image();
    let reference: Reference = image.parse().unwrap();
    let tenant = Principal::of_namespace("tenant", "team".parse().unwrap());
    let everywhere = Principal::developer("developer");
    for who in [&tenant, &everywhere] {
        let pull = world.engine.pull_image(who, &reference, PullOptions::default(), Progress::none());
        assert_eq!(in_time(pull).await.unwrap_err().kind(), ErrorKind::Denied);
        let namespace = who.home_namespace();
        let spec = SandboxSpec { namespace, ..on(&image, "web") };
        let created = in_time(world.engine.create_sandbox(who, spec)).await.unwrap_err();
        assert_eq!(created.kind(), ErrorKind::Denied, "{created}");
        assert_eq!(created.next(), Some(&Next::Configure(Setting::Registries)), "{created}");
    }
    let dockerfile = DockerfileSource::Text(format!("FROM {image}\n"));
    let (events, _told) = tokio::sync::mpsc::channel(100);
    let spec = BuildSpec { dockerfile, ..BuildSpec::default() };
    let built = world.engine.build_image(&everywhere, spec, bytes(""), events, Progress::none());
    assert_eq!(in_time(built).await.unwrap_err().kind(), ErrorKind::Denied);
    assert!(!inside.was_asked());

    let pull = world.engine.pull_image(&world.who, &reference, PullOptions::default(), Progress::none());
    tokio::select! {
        pulled = pull => panic!("nobody answers, and it has ended: {pulled:?}"),
        asked = in_time(inside.listener.accept()) => drop(asked.unwrap()),
    }
}
