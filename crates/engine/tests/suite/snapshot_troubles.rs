//! Snapshots and forks when something goes wrong: callers who go away, a daemon that closes, an image that is released,
//! a full disk.

use std::{io, sync::mpsc, time::Duration};

use engine::{Force, ForkSpec, ImageConfig, ImageOptions, Platform, Principal, SaveOptions, SnapshotSpec};
use sandbox::{ErrorKind, KeySpec, RootfsPlan, RootfsSpec, SandboxSpec, SandboxState};

use super::{
    disk_full::world_on_a_small_disk,
    snapshots::{named, which},
    support::{World, in_time},
};

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    in_time(async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_snapshot_that_nobody_waits_for_is_none() {
    let world = World::new().await;
    let source = world.create().await;
    let kept = world.snapshot(&source, "base").await;
    for (n_copies, name, replace) in [(2, "other", false), (3, "base", true)] {
        world.backend.hold_copies(true);
        let taking =
            world.engine.create_snapshot(&world.who, SnapshotSpec { replace, ..named(&source, name) });
        tokio::select! {
            _ = taking => panic!("the copy is held"),
            () = in_time(world.backend.copies_begun(n_copies)) => {}
        }
        world.backend.hold_copies(false);
        until(async || world.snapshots_on_disk() == [kept.path.clone()]).await;
    }
    // So the same can be requested again, and the snapshot to be replaced is unchanged.
    world.engine.verify_snapshot(&world.who, &which("base"), false).await.unwrap();
    world.snapshot(&source, "other").await;
    assert_eq!(world.state(&source).await, SandboxState::Running);
}

#[tokio::test]
async fn forks_that_nobody_waits_for_are_none() {
    let world = World::new().await;
    let source = world.create().await;
    let spec = ForkSpec { count: Some(20), ..ForkSpec::default() };
    // Cancelled in the middle of the copy, and in the middle of the creates.
    world.backend.hold_copies(true);
    let forking = world.engine.fork_sandbox(&world.who, &source, spec.clone());
    tokio::select! {
        _ = forking => panic!("the copy is held"),
        () = world.backend.copies_begun(1) => {}
    }
    world.backend.hold_copies(false);
    world.until_no_snapshots().await;
    let n_sandboxes = async || world.engine.sandboxes(&world.who, &Default::default()).await.unwrap().len();
    let forking = world.engine.fork_sandbox(&world.who, &source, spec);
    tokio::select! {
        _ = forking => panic!("it is given up before"),
        () = until(async || n_sandboxes().await > 1) => {}
    }
    until(async || n_sandboxes().await == 1).await;
    world.until_no_snapshots().await;
    assert_eq!(world.state(&source).await, SandboxState::Running);
}

#[tokio::test]
async fn a_daemon_that_closes_in_the_middle_of_a_copy_leaves_nothing_frozen() {
    let world = World::new().await;
    let source = world.create().await;
    let id = world.view(&source).await.id;
    world.backend.hold_copies(true);
    let (engine, who, spec) = (world.engine.clone(), world.who.clone(), named(&source, "base"));
    let taking = tokio::spawn(async move { engine.create_snapshot(&who, spec).await });
    in_time(world.backend.copies_begun(1)).await;
    assert!(world.backend.is_paused(&id));
    // It does not wait forever, and we do not wait as long as it does.
    tokio::time::pause();
    world.engine.close().await;
    tokio::time::resume();
    assert!(taking.await.unwrap().is_err());
    assert!(!world.backend.is_paused(&id));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_of_a_snapshot_is_used_from_the_first_moment() {
    let images = ImageOptions { durable: false, ..ImageOptions::default() };
    let world = World::with(|config| config.images = Some(images)).await;
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    tar.append_data(&mut header, "empty", io::empty()).unwrap();
    let root = io::Cursor::new(tar.into_inner().unwrap());
    let name = "app:1".parse().unwrap();
    let made = world.engine.import_image(&world.who, root, ImageConfig::default(), Platform::host(), name);
    made.await.unwrap();
    let spec = SandboxSpec { image: "app:1".parse().unwrap(), ..SandboxSpec::default() };
    let source = world.create_from(spec).await.id.into();
    world.engine.remove_image(&world.who, "app:1", Force::Yes).await.unwrap();
    let users = async || world.engine.images(&world.who).await.unwrap()[0].used_by.clone();

    world.backend.hold_copies(true);
    let (engine, who, spec) = (world.engine.clone(), world.who.clone(), named(&source, "base"));
    let taking = tokio::spawn(async move { engine.create_snapshot(&who, spec).await });
    in_time(world.backend.copies_begun(1)).await;
    assert!(users().await.contains(&"a snapshot that is being created".to_owned()), "{:?}", users().await);
    world.backend.hold_copies(false);
    taking.await.unwrap().unwrap();
    world.remove(&source).await;
    assert_eq!(users().await, ["snapshot base"]);
    assert_eq!(world.engine.prune_images(&world.who).await.unwrap().images, []);
    world.restore("base", "again").await;
    // The image is removed with its last user.
    let again = "again".parse().unwrap();
    world.remove(&again).await;
    world.engine.remove_snapshot(&world.who, &which("base"), Force::No).await.unwrap();
    until(async || world.engine.images(&world.who).await.unwrap().is_empty()).await;
}

/// An archive that never arrives. Reports that somebody waits for it.
struct Stuck(tokio::sync::mpsc::UnboundedSender<()>, mpsc::Receiver<()>);

impl io::Read for Stuck {
    fn read(&mut self, _into: &mut [u8]) -> io::Result<usize> {
        self.0.send(()).unwrap();
        Ok(self.1.recv().map_or(0, |()| 0))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_has_so_many_archives_under_way_and_no_more() {
    let world = World::new().await;
    let source = world.create().await;
    world.snapshot(&source, "base").await;
    let key = KeySpec { namespace: Some(Default::default()), ..KeySpec::default() };
    let secret = world.engine.create_key(&world.who, key).await.unwrap().secret;
    let slow = world.engine.authenticate_key(&secret).await.unwrap();
    let (begun, mut is_begun) = tokio::sync::mpsc::unbounded_channel();
    let load = |who: &Principal| {
        let (engine, who, (end, ended)) = (world.engine.clone(), who.clone(), mpsc::channel());
        let archive = Stuck(begun.clone(), ended);
        let work = async move { engine.load_snapshot(&who, &Default::default(), None, archive).await };
        (end, tokio::spawn(work))
    };
    let stuck: Vec<_> = (0..8).map(|_| load(&slow)).collect();
    for _ in &stuck {
        in_time(is_begun.recv()).await.unwrap();
    }
    let refused = async || {
        let options = SaveOptions::default();
        let saved = world.engine.save_snapshot(&slow, &which("base"), io::sink(), options).await;
        saved.is_err_and(|error| error.kind() == ErrorKind::LimitReached)
    };
    assert!(refused().await);
    // Others do not notice, and a caller who gave up may try again.
    world.save("base", SaveOptions::default()).await;
    for (end, loading) in stuck {
        drop(end);
        assert_eq!(loading.await.unwrap().unwrap_err().kind(), ErrorKind::InvalidRequest);
    }
    assert!(!refused().await);
}

#[tokio::test]
async fn on_a_full_disk_nothing_half_made_is_seen_and_the_sandbox_goes_on() {
    let Some((world, disk)) = world_on_a_small_disk().await else { return };
    let source = world.create().await;
    let id = world.view(&source).await.id;
    world.write(&source, "/note", &"x".repeat(100_000)).await;
    let kept = world.snapshot(&source, "kept").await;
    let archive = world.save("kept", SaveOptions::default()).await;
    disk.fill();
    let replaced = SnapshotSpec { replace: true, ..named(&source, "kept") };
    for (what, spec) in [("new", named(&source, "new")), ("replaced", replaced)] {
        let error = world.engine.create_snapshot(&world.who, spec).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Internal), "{what}: {error:?}");
    }
    world.engine.fork_sandbox(&world.who, &source, ForkSpec::default()).await.unwrap_err();
    world.load(archive.clone()).await.unwrap();
    let red = "red".parse().unwrap();
    let load = || {
        let archive = io::Cursor::new(archive.clone());
        in_time(world.engine.load_snapshot(&world.who, &red, None, archive))
    };
    load().await.unwrap_err();
    assert_eq!(world.state(&source).await, SandboxState::Running);
    assert!(!world.backend.is_paused(&id));
    assert_eq!(world.snapshot_names().await, [Some("kept".to_owned())]);
    assert_eq!(world.snapshots_on_disk(), [kept.path]);
    disk.free();
    world.engine.verify_snapshot(&world.who, &which("kept"), false).await.unwrap();
    world.snapshot(&source, "new").await;
    load().await.unwrap();
    world.engine.fork_sandbox(&world.who, &source, ForkSpec::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_a_name_over_while_it_is_held_leaves_nothing_behind() {
    let world = World::new().await;
    let source = world.create().await;
    let replace = || SnapshotSpec { replace: true, ..named(&source, "base") };
    let take = || world.engine.create_snapshot(&world.who, replace());
    for _ in 0..20 {
        let (one, other) = tokio::join!(take(), take());
        assert!(one.is_ok() || other.is_ok(), "{one:?} {other:?}");
    }
    until(async || world.snapshots_on_disk().len() == 1).await;
    assert_eq!(world.snapshot_names().await, [Some("base".to_owned())]);
}

#[tokio::test]
async fn a_snapshot_on_a_directory_of_the_host_is_for_those_who_may_use_that_and_stays_here() {
    let world = World::new().await;
    let root = tempfile::tempdir().unwrap();
    let rootfs = Some(RootfsSpec::Directory { path: root.path().to_owned(), no_links: false, allowed: None });
    let source = world.create_from(SandboxSpec { rootfs, ..SandboxSpec::default() }).await.id.into();
    world.snapshot(&source, "base").await;
    let restored = world.restore("base", "again").await;
    let view = world.view(&restored).await;
    let expected = RootfsPlan::Directory { path: root.path().to_owned(), identity: None, no_links: false };
    assert_eq!((view.plan.rootfs, view.plan.above.len()), (expected, 1));
    world.engine.fork_sandbox(&world.who, &restored, ForkSpec::default()).await.unwrap();
    // A key did not gain the right to name host paths.
    let stranger = Principal::of_namespace("ana", Default::default());
    let refused = world.engine.restore_snapshot(&stranger, &which("base"), Default::default()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Denied);
    let refused = world.engine.fork_sandbox(&stranger, &restored, ForkSpec::default()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Denied);
    let error =
        world.engine.save_snapshot(&world.who, &which("base"), io::sink(), SaveOptions::default()).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains(root.path().to_str().unwrap()), "{error}");
    let place = root.path().to_owned();
    drop(root);
    let refused = world.engine.restore_snapshot(&world.who, &which("base"), Default::default()).await;
    let error = refused.unwrap_err();
    assert!(
        error.kind() == ErrorKind::NotFound && error.to_string().contains(place.to_str().unwrap()),
        "{error}"
    );
}
