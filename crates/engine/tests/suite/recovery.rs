//! The database is lost, damaged or old: nothing of the home is lost, and records are restored from the files beside
//! it.

use std::{fs, path::Path};

use engine::{Engine, ForkSpec, SandboxRef, Store, VolumeRef};
use sandbox::{ErrorKind, SandboxSpec, SandboxState, VolumeSpec};
use serde_json::json;

use super::{
    snapshots::which as snapshot_called,
    support::{World, bytes, collect, in_time, open},
};

impl World {
    /// The daemon dies; something happens to its database; another daemon starts over the same home and sandboxes.
    pub(crate) async fn with_database(self, happens: impl FnOnce(&Path)) -> Self {
        let Self { engine, store, backend, clock, who, config, home } = self;
        drop(engine);
        store.close().await;
        happens(home.path());
        let store = Store::open(home.path()).unwrap();
        let engine = open(&config, &store, &backend, &clock).await.unwrap();
        Self { engine, store, backend, clock, who, config, home }
    }

    fn warnings(&self) -> String {
        self.engine.warnings(&self.who).join("\n")
    }
}

fn lose(home: &Path) {
    for name in ["warren.db", "warren.db-wal", "warren.db-shm"] {
        fs::remove_file(home.join(name)).ok();
    }
}

fn truncate(home: &Path) {
    fs::write(home.join("warren.db"), "").unwrap();
}

fn by_name(name: &str) -> SandboxRef {
    name.parse().unwrap()
}

async fn volume(engine: &Engine, world: &World, name: &str) -> VolumeRef {
    let spec: VolumeSpec = serde_json::from_value(json!({ "name": name })).unwrap();
    engine.create_volume(&world.who, spec).await.unwrap();
    VolumeRef { namespace: None, name: name.parse().unwrap() }
}

async fn check_nothing_is_lost(happens: fn(&Path)) {
    let world = World::new().await;
    let labelled = SandboxSpec {
        name: Some("live".parse().unwrap()),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        ..SandboxSpec::default()
    };
    let live = world.create_from(labelled).await;
    let which: SandboxRef = live.id.clone().into();
    let ended = world.run(&which, "echo before; exit 3").await;
    let running = world.start_exec(&which, "echo begun; sleep 0.2; echo afterwards").await;
    world.write(&which, "/root/file", "kept").await;
    let paused: SandboxRef = world.create_named("paused").await.id.into();
    world.engine.pause_sandbox(&world.who, &paused).await.unwrap();
    let stopped: SandboxRef = world.create_named("stopped").await.id.into();
    world.write(&stopped, "/root/file", "kept too").await;
    world.stop(&stopped).await;
    world.snapshot(&stopped, "snap").await;
    let disk = volume(&world.engine, &world, "models").await;
    world.engine.write_file(&world.who, &disk, "/a", Default::default(), bytes("text")).await.unwrap();

    let world = world.with_database(happens).await;

    assert!(world.warnings().contains("3 sandboxes, 1 volumes, 1 snapshots"), "{}", world.warnings());
    let found = world.view(&by_name("live")).await;
    assert_eq!((found.id, found.spec, found.plan), (live.id.clone(), live.spec, live.plan));
    assert_eq!((found.state, found.created_at), (SandboxState::Running, live.created_at));
    assert_eq!(found.isolation, live.isolation);
    assert_eq!(world.state(&paused).await, SandboxState::Paused);
    assert_eq!(world.state(&by_name("stopped")).await, SandboxState::Stopped);
    assert_eq!(world.read(&which, "/root/file").await, "kept");
    world.engine.start_sandbox(&world.who, &stopped).await.unwrap();
    assert_eq!(world.read(&stopped, "/root/file").await, "kept too");
    let (_, content) = world.engine.read_file(&world.who, &disk, "/a", 0, None).await.unwrap();
    assert_eq!(collect(content).await.unwrap(), "text");
    world.engine.snapshot(&world.who, &snapshot_called("snap")).await.unwrap();
    // The ledgers have the outcomes of execs.
    assert_eq!(world.wait(&which, &ended.id).await.exit_code, Some(3));
    assert_eq!(world.output(&which, &ended.id).await, "before\n");
    assert_eq!(world.wait(&which, &running.id).await.exit_code, Some(0));
    assert_eq!(world.output(&which, &running.id).await, "begun\nafterwards\n");
    // From then on it is as if nothing had happened.
    let world = world.crash().await;
    let world = world.restart().await;
    assert_eq!(world.warnings(), "");
    for name in ["live", "paused", "stopped"] {
        world.remove(&by_name(name)).await;
    }
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_lost_database_loses_no_sandbox() {
    check_nothing_is_lost(lose).await;
}

#[tokio::test]
async fn an_empty_database_loses_no_sandbox() {
    check_nothing_is_lost(truncate).await;
}

#[tokio::test]
async fn an_old_copy_of_the_database_loses_no_newer_sandbox() {
    let world = World::new().await;
    let gone = world.create_named("dev").await;
    let renamed = world.create_named("other").await;
    let copy = tempfile::NamedTempFile::new().unwrap();
    // A clean shutdown, so that the copy is complete.
    let world = world.restart().await;
    let world =
        world.with_database(|home| assert!(fs::copy(home.join("warren.db"), copy.path()).is_ok())).await;
    world.remove(&gone.id.clone().into()).await;
    let newer = world.create_named("dev").await;
    let newest = world.create_named("newest").await;
    let world = world
        .with_database(|home| {
            lose(home);
            fs::copy(copy.path(), home.join("warren.db")).unwrap();
        })
        .await;
    assert_eq!(world.backend.live().len(), 3);
    assert_eq!(world.view(&by_name("newest")).await.id, newest.id);
    assert_eq!(world.view(&by_name("other")).await.id, renamed.id);
    // The record of a removed one does not keep the name from the existing one.
    assert_eq!(world.view(&by_name("dev")).await.id, newer.id);
    let error = world.engine.sandbox(&world.who, &gone.id.into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn what_has_no_manifest_is_swept_by_the_homes_own_database_only() {
    let world = World::new().await;
    let kept = world.create_named("kept").await;
    let strange = [
        world.home.path().join("sandboxes").join(sandbox::SandboxId::from_random([7; 8]).as_str()),
        world.home.path().join("volumes").join(sandbox::VolumeId::from_random([7; 8]).as_str()),
    ];
    let plant = || strange.iter().for_each(|path| fs::create_dir_all(path.join("data")).unwrap());
    plant();
    fs::remove_file(world.directory(&kept).join("manifest.json")).unwrap();

    let world = world.with_database(lose).await;
    assert_eq!(world.backend.live(), std::slice::from_ref(&kept.id), "its guest lives");
    assert!(strange.iter().all(|path| path.exists()) && world.directory(&kept).exists());
    let warnings = world.warnings();
    assert!(warnings.contains(kept.id.as_str()) && warnings.contains("doctor --recover"), "{warnings}");
    // Nor by a later daemon, however often one starts.
    let world = world.restart().await;
    let other = world.create_named("other").await;
    let world = world.restart().await;
    assert_eq!(world.backend.live().len(), 2);
    assert!(strange.iter().all(|path| path.exists()) && world.directory(&kept).exists());

    // Set aside, they are out of the way for good, and still exist.
    let recovery = engine::recover(
        world.home.path(),
        &world.store,
        jiff::Timestamp::UNIX_EPOCH,
        engine::CorruptRecords::Mend,
    );
    let recovery = recovery.await.unwrap();
    assert_eq!(recovery.unknown.len(), 3, "{recovery:?}");
    let lost = engine::put_aside(world.home.path(), &world.store, &recovery, "now").await.unwrap().unwrap();
    assert!(lost.join("sandboxes").join(kept.id.as_str()).is_dir() && lost.join("volumes").is_dir());
    plant();
    let world = world.restart().await;
    assert_eq!(world.warnings(), "");
    assert_eq!(world.backend.live(), [other.id]);
    // The back end has a home of its own here, and so sweeps none of the sandboxes'.
    in_time(async {
        while strange[1].exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_keeps_its_files() {
    let world = World::new().await;
    let (good, bad) = (world.create_named("good").await, world.create_named("bad").await);
    fs::write(world.directory(&bad).join("manifest.json"), "{}").unwrap();
    let world = world.with_database(lose).await;
    assert_eq!(world.view(&by_name("good")).await.id, good.id);
    assert_eq!(world.backend.live().len(), 2);
    assert!(world.directory(&bad).exists());
    assert!(world.warnings().contains("cannot read its manifest"), "{}", world.warnings());
}

#[tokio::test]
async fn a_name_that_another_has_by_now_is_not_taken_from_it() {
    let world = World::new().await;
    let first = world.create_named("dev").await;
    let aside = tempfile::tempdir().unwrap();
    let away = aside.path().join("files");
    let directory = world.directory(&first);
    let world = world
        .with_database(|home| {
            lose(home);
            fs::rename(&directory, &away).unwrap();
        })
        .await;
    let second = world.create_named("dev").await;
    let world = world.with_database(|_| fs::rename(&away, &directory).unwrap()).await;
    assert_eq!(world.view(&by_name("dev")).await.id, second.id);
    let recovered = world.view(&first.id.into()).await.name;
    assert!(recovered.as_str().starts_with("dev-recovered-"), "{recovered}");
    // And it keeps that name.
    let world = world.restart().await;
    assert_eq!(world.view(&by_name("dev")).await.id, second.id);
    world.view(&by_name(recovered.as_str())).await;
}

#[tokio::test]
async fn what_changes_in_a_record_changes_in_its_manifest() {
    let world = World::new().await;
    let view = world.create_named("dev").await;
    let which: SandboxRef = view.id.clone().into();
    let lifetime = sandbox::Lifetime { ttl: Some(std::time::Duration::from_secs(600)), ..Default::default() };
    let renewed = world.engine.renew_sandbox(&world.who, &which, lifetime.clone()).await.unwrap();
    let labels = [("team".to_owned(), Some("x".to_owned())), ("gone".to_owned(), None)].into();
    world.engine.relabel_sandbox(&world.who, &which, labels).await.unwrap();
    let world = world.with_database(lose).await;
    let found = world.view(&which).await;
    assert_eq!(found.spec.labels, [("team".to_owned(), "x".to_owned())].into());
    assert_eq!((found.lifetime.clone(), found.expires_at), (lifetime, renewed.expires_at));
    let mode = fs::metadata(world.directory(&found).join("manifest.json")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
}

#[tokio::test]
async fn nothing_is_ended_on_the_word_of_a_database_that_does_not_know_all() {
    let world = World::new().await;
    let (kept, bare) = (world.create_named("kept").await, world.create_named("bare").await);
    fs::remove_file(world.directory(&kept).join("manifest.json")).unwrap();
    // Only its guest shows that this one exists.
    fs::remove_dir_all(world.directory(&bare)).unwrap();
    let snapshot = sandbox::SnapshotId::from_random([7; 8]);
    let half_made = world.home.path().join("snapshots").join(snapshot.as_str());
    fs::create_dir_all(half_made.join("tree")).unwrap();
    let mut world = world.with_database(lose).await;
    for _start in 0..2 {
        assert_eq!(world.backend.live().len(), 2);
        assert!(world.directory(&kept).exists() && half_made.exists());
        world = world.restart().await;
    }
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_keeps_its_files_from_the_homes_own_database_too() {
    let world = World::new().await;
    let bad = world.create_named("bad").await;
    volume(&world.engine, &world, "models").await;
    let models = world.store.volumes().await.unwrap().records.remove(0).id;
    world.store.remove_sandbox(bad.id.clone()).await.unwrap();
    world.store.remove_volume(models.clone()).await.unwrap();
    let directories = [world.directory(&bad), world.home.path().join("volumes").join(models.as_str())];
    let world = world
        .with_database(|_| {
            directories.iter().for_each(|path| fs::write(path.join("manifest.json"), "{}").unwrap());
        })
        .await;
    assert_eq!(world.backend.live(), [bad.id]);
    assert!(directories.iter().all(|path| path.exists()));
    let world = world.restart().await;
    assert!(directories.iter().all(|path| path.exists()));
    assert_eq!(world.warnings().matches("cannot read its manifest").count(), 2, "{}", world.warnings());
}

#[tokio::test]
async fn a_snapshot_stays_while_one_without_a_record_may_be_made_on_it() {
    let world = World::new().await;
    let source = world.create().await;
    let fork = world.engine.fork_sandbox(&world.who, &source, ForkSpec::default()).await.unwrap().remove(0);
    let snapshot = world.home.path().join("snapshots").join(fork.plan.above[0].as_str());
    assert!(snapshot.exists());
    // Like a daemon that wrote no manifests.
    let manifest = world.directory(&fork).join("manifest.json");
    let lose_both = |home: &Path| {
        lose(home);
        fs::remove_file(manifest).unwrap();
    };
    let world = world.with_database(lose_both).await;
    assert!(world.warnings().contains(fork.id.as_str()), "{}", world.warnings());
    world.remove(&source).await;
    let world = world.restart().await;
    assert!(snapshot.exists() && world.backend.live() == [fork.id]);
}

#[tokio::test]
async fn a_volume_of_a_daemon_that_wrote_no_manifests_gets_one() {
    let world = World::new().await;
    volume(&world.engine, &world, "models").await;
    let id = world.store.volumes().await.unwrap().records.remove(0).id;
    let manifest = world.home.path().join("volumes").join(id.as_str()).join("manifest.json");
    fs::remove_file(&manifest).unwrap();
    let _world = world.restart().await;
    in_time(async {
        while !manifest.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
