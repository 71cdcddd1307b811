//! Snapshots, restores and forks, on simulated sandboxes: permissions, records, and what a crash leaves.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use engine::{
    DiffSpec, Force, ForkSpec, Principal, Reindexed, RestoreSpec, SandboxRef, SaveOptions, Since,
    SnapshotFate, SnapshotRef, SnapshotSpec, SnapshotView,
};
use sandbox::{BackendError, ChangeKind, ErrorKind, EventKind, Next, RootfsSpec, SandboxSpec, SandboxState};

use super::support::{World, in_time};

pub(crate) fn named(from: &SandboxRef, name: &str) -> SnapshotSpec {
    SnapshotSpec { name: Some(name.parse().unwrap()), ..SnapshotSpec::new(from.clone()) }
}

pub(crate) fn which(name: &str) -> SnapshotRef {
    name.parse().unwrap()
}

fn called(name: &str) -> RestoreSpec {
    RestoreSpec { name: Some(name.parse().unwrap()), ..RestoreSpec::default() }
}

impl World {
    pub(crate) async fn snapshot(&self, from: &SandboxRef, name: &str) -> SnapshotView {
        self.engine.create_snapshot(&self.who, named(from, name)).await.unwrap()
    }

    pub(crate) async fn snapshot_names(&self) -> Vec<Option<String>> {
        let all = self.engine.snapshots(&self.who, None).await.unwrap();
        let mut names: Vec<_> = all.into_iter().map(|view| view.name.map(String::from)).collect();
        names.sort();
        names
    }

    pub(crate) async fn restore(&self, snapshot: &str, name: &str) -> SandboxRef {
        let made = self.engine.restore_snapshot(&self.who, &which(snapshot), called(name)).await.unwrap();
        SandboxRef::from(&made.id)
    }

    pub(crate) async fn save(&self, name: &str, options: SaveOptions) -> Vec<u8> {
        let bytes = Shared::default();
        self.engine.save_snapshot(&self.who, &which(name), bytes.clone(), options).await.unwrap();
        let bytes = bytes.0.lock().unwrap();
        bytes.clone()
    }

    pub(crate) async fn load(&self, bytes: Vec<u8>) -> sandbox::Result<SnapshotView> {
        let archive = io::Cursor::new(bytes);
        in_time(self.engine.load_snapshot(&self.who, &Default::default(), None, archive)).await
    }

    /// Unused snapshots are removed in the background.
    pub(crate) async fn until_no_snapshots(&self) {
        in_time(async {
            while !self.snapshots_on_disk().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// The directories in `snapshots/`.
    pub(crate) fn snapshots_on_disk(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir(self.home.path().join("snapshots"));
        all.map(|all| all.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_running_sandbox_goes_on_and_what_it_had_is_restored() {
    let world = World::new().await;
    let source = world.create().await;
    world.write(&source, "/note", "before").await;
    let exec = world.start_exec(&source, "sleep 1000").await;
    let taken = world.snapshot(&source, "base").await;
    assert!(taken.held_ms.is_some() && taken.digest.starts_with("sha256:") && taken.parent.is_none());
    assert_eq!(world.state(&source).await, SandboxState::Running);
    let view = world.view(&source).await;
    assert!(!world.backend.is_paused(&view.id) && view.n_running_execs == 1);
    assert_eq!(world.event(EventKind::SnapshotCreated).await.detail, "base");
    world.write(&source, "/note", "after").await;

    let restored = world.restore("base", "again").await;
    assert_eq!(world.read(&restored, "/note").await, "before");
    let check = world.engine.verify_snapshot(&world.who, &which("base"), true).await.unwrap();
    assert_eq!((check.digest, check.tree), (taken.digest.clone(), taken.tree.clone()));
    let found = world.engine.snapshot(&world.who, &which(&taken.digest[..15])).await.unwrap();
    assert_eq!(found.used_by, ["sandbox again"]);
    drop(exec);
}

#[tokio::test]
async fn stopped_and_paused_sandboxes_stay_as_they_are() {
    let world = World::new().await;
    let source = world.create().await;
    world.engine.pause_sandbox(&world.who, &source).await.unwrap();
    assert_eq!(world.snapshot(&source, "paused").await.held_ms, None);
    assert_eq!(world.state(&source).await, SandboxState::Paused);
    assert!(world.backend.is_paused(&world.view(&source).await.id));
    world.engine.resume_sandbox(&world.who, &source).await.unwrap();
    world.stop(&source).await;
    assert_eq!(world.snapshot(&source, "stopped").await.held_ms, None);
    assert_eq!(world.state(&source).await, SandboxState::Stopped);
}

#[tokio::test]
async fn a_copy_that_fails_lets_it_go_on_and_leaves_nothing() {
    let world = World::new().await;
    let source = world.create().await;
    let full = BackendError::Exhausted {
        what: "no space left".into(),
        next: Some(Next::Advice("Free some.".into())),
    };
    world.backend.fail_next_copy(full);
    let error = world.engine.create_snapshot(&world.who, named(&source, "base")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert_eq!(world.state(&source).await, SandboxState::Running);
    assert!(!world.backend.is_paused(&world.view(&source).await.id));
    assert!(world.snapshots_on_disk().is_empty(), "{:?}", world.snapshots_on_disk());
    world.snapshot(&source, "base").await;
}

#[tokio::test]
async fn nothing_else_happens_to_a_sandbox_while_it_is_copied() {
    let world = World::new().await;
    let source = world.create().await;
    world.write(&source, "/note", "before").await;
    world.backend.hold_copies(true);
    let spec = named(&source, "base");
    let taking = world.engine.create_snapshot(&world.who, spec);
    let meddling = async {
        world.backend.copies_begun(1).await;
        assert!(world.backend.is_paused(&world.view(&source).await.id));
        let writing = world.write(&source, "/note", "after");
        let running = world.run(&source, "echo x");
        let letting_go = async {
            // Both have had their chance to run before the copy does.
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            world.backend.hold_copies(false);
        };
        tokio::join!(writing, running, letting_go)
    };
    let (taken, _) = in_time(async { tokio::join!(taking, meddling) }).await;
    taken.unwrap();
    assert_eq!(world.read(&source, "/note").await, "after");
    let restored = world.restore("base", "again").await;
    assert_eq!(world.read(&restored, "/note").await, "before");
}

#[tokio::test]
async fn a_daemon_that_dies_in_the_middle_leaves_nothing_frozen_and_nothing_half_made() {
    let world = World::new().await;
    let source = world.create().await;
    world.backend.hold_copies(true);
    let (engine, who, spec) = (world.engine.clone(), world.who.clone(), named(&source, "base"));
    let taking = tokio::spawn(async move { engine.create_snapshot(&who, spec).await });
    in_time(world.backend.copies_begun(1)).await;
    let id = world.view(&source).await.id;
    assert!(world.backend.is_paused(&id));
    assert_eq!(world.snapshots_on_disk().len(), 1);
    taking.abort();
    drop(taking.await);
    let world = world.crash().await;
    world.backend.hold_copies(false);
    assert!(!world.backend.is_paused(&id));
    assert_eq!(world.state(&source).await, SandboxState::Running);
    assert!(world.snapshots_on_disk().is_empty(), "{:?}", world.snapshots_on_disk());
    assert_eq!(world.snapshot_names().await, []);
}

#[tokio::test]
async fn what_is_recorded_is_finished_and_what_is_half_removed_goes() {
    let world = World::new().await;
    let source = world.create().await;
    let (kept, gone) = (world.snapshot(&source, "kept").await, world.snapshot(&source, "gone").await);
    // As after a kill between the record and its description, and one between the removal of a record and of the files.
    std::fs::remove_file(kept.path.join("manifest.json")).unwrap();
    std::fs::remove_file(gone.path.join("manifest.json")).unwrap();
    world.store.remove_snapshot(gone.id.clone()).await.unwrap();
    std::fs::create_dir(kept.path.with_file_name("snp-0000000000000")).unwrap();
    let world = world.crash().await;
    assert_eq!(world.snapshot_names().await, [Some("kept".to_owned())]);
    assert_eq!(world.snapshots_on_disk(), [kept.path]);
    world.engine.verify_snapshot(&world.who, &which("kept"), false).await.unwrap();
}

#[tokio::test]
async fn what_an_earlier_version_left_unfinished_is_finished_or_swept() {
    let world = World::new().await;
    let kept = world.snapshot(&world.create().await, "kept").await;
    let beside = |name: &str| kept.path.with_file_name(name);
    std::fs::rename(&kept.path, beside(&format!(".making-{}", kept.id))).unwrap();
    for name in [".making-snp-0000000000000", ".removing-snp-0000000000001"] {
        std::fs::create_dir(beside(name)).unwrap();
        std::fs::write(beside(name).join("manifest.json"), "{}").unwrap();
    }
    let world = world.crash().await;
    assert_eq!(world.snapshots_on_disk(), [kept.path]);
    world.engine.verify_snapshot(&world.who, &which("kept"), false).await.unwrap();
}

#[tokio::test]
async fn removing_what_is_used_is_refused_by_name_and_by_force_it_loses_its_name() {
    let world = World::new().await;
    let source = world.create().await;
    let base = world.snapshot(&source, "base").await;
    let restored = world.restore("base", "again").await;
    let child = world.snapshot(&restored, "child").await;
    assert_eq!(child.parent, Some(base.digest));
    let error = world.engine.remove_snapshot(&world.who, &which("base"), Force::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongState);
    assert!(
        error.to_string().contains("sandbox again") && error.to_string().contains("snapshot child"),
        "{error}"
    );

    let fate = world.engine.remove_snapshot(&world.who, &which("base"), Force::Yes).await.unwrap();
    assert_eq!(fate, SnapshotFate::Unnamed);
    assert_eq!(world.snapshot_names().await, [None, Some("child".to_owned())]);
    world.remove(&restored).await;
    // Its child is still based on it.
    assert_eq!(world.snapshots_on_disk().len(), 2);
    let fate = world.engine.remove_snapshot(&world.who, &which("child"), Force::No).await.unwrap();
    assert_eq!((fate, world.snapshots_on_disk().len()), (SnapshotFate::Removed, 0));
    assert_eq!(
        world.engine.snapshot(&world.who, &which("child")).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[tokio::test]
async fn forks_go_apart_and_their_snapshot_goes_with_the_last_of_them() {
    let world = World::new().await;
    let mut spec = SandboxSpec { name: Some("source".parse().unwrap()), ..SandboxSpec::default() };
    spec.env.insert("COLOUR".into(), "red".into());
    spec.labels.insert("team".into(), "a".into());
    let source = SandboxRef::from(&world.create_from(spec).await.id);
    world.write(&source, "/note", "shared").await;
    let spec = ForkSpec { count: Some(3), name_prefix: Some("try".into()), ..ForkSpec::default() };
    let forks = world.engine.fork_sandbox(&world.who, &source, spec).await.unwrap();
    let names: Vec<_> = forks.iter().map(|fork| fork.name.as_str()).collect();
    assert_eq!(names, ["try-1", "try-2", "try-3"]);
    assert_eq!(world.snapshot_names().await, [None]);
    for fork in &forks {
        assert_eq!((fork.plan.env["COLOUR"].as_str(), fork.spec.labels["team"].as_str()), ("red", "a"));
        let fork = SandboxRef::from(&fork.id);
        assert_eq!(world.read(&fork, "/note").await, "shared");
        world.write(&fork, "/note", "mine").await;
    }
    assert_eq!(world.read(&source, "/note").await, "shared");

    // A fork of a fork is based on two snapshots.
    let first = SandboxRef::from(&forks[0].id);
    let deeper = world.engine.fork_sandbox(&world.who, &first, ForkSpec::default()).await.unwrap();
    assert_eq!(deeper[0].plan.above.len(), 2);
    let deeper = SandboxRef::from(&deeper[0].id);
    assert_eq!(world.read(&deeper, "/note").await, "mine");
    for fork in &forks {
        world.remove(&SandboxRef::from(&fork.id)).await;
    }
    assert_eq!(world.snapshots_on_disk().len(), 2);
    world.remove(&deeper).await;
    world.remove(&source).await;
    world.until_no_snapshots().await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn all_forks_or_none() {
    let world = World::new().await;
    let source = world.create().await;
    let failure = BackendError::Exhausted { what: "no processes left".into(), next: None };
    world.backend.fail_next_create(failure);
    let spec = ForkSpec { count: Some(4), name_prefix: Some("try".into()), ..ForkSpec::default() };
    let error = world.engine.fork_sandbox(&world.who, &source, spec.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert!(error.to_string().contains("3 of 4 forks"), "{error}");
    assert_eq!(world.engine.sandboxes(&world.who, &Default::default()).await.unwrap().len(), 1);
    world.until_no_snapshots().await;
    // A taken name is found before anything is copied.
    world.create_named("try-3").await;
    let error = world.engine.fork_sandbox(&world.who, &source, spec).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(world.snapshots_on_disk().is_empty());
}

#[tokio::test]
async fn a_chain_has_an_end() {
    let world = World::new().await;
    let mut at = world.create().await;
    for i in 0..sandbox::MAX_SNAPSHOT_CHAIN {
        let spec = ForkSpec { names: vec![format!("link-{i}").parse().unwrap()], ..ForkSpec::default() };
        at = SandboxRef::from(&world.engine.fork_sandbox(&world.who, &at, spec).await.unwrap()[0].id);
    }
    let error = world.engine.fork_sandbox(&world.who, &at, ForkSpec::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert!(error.to_string().contains("link-63"), "{error}");
}

#[tokio::test]
async fn archives_load_elsewhere_with_their_parents() {
    let (here, there) = (World::new().await, World::new().await);
    let source = here.create().await;
    here.write(&source, "/note", "one").await;
    let base = here.snapshot(&source, "base").await;
    let restored = here.restore("base", "again").await;
    here.write(&restored, "/more", "two").await;
    let top = here.snapshot(&restored, "top").await;

    let alone = SaveOptions { with_parents: false, ..SaveOptions::default() };
    let error = there.load(here.save("top", alone).await).await.unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains(&base.digest), "{error}");
    for plain in [false, true] {
        let archive = here.save("top", SaveOptions { plain, ..SaveOptions::default() }).await;
        let loaded = there.load(archive).await.unwrap();
        assert_eq!((&loaded.digest, loaded.name), (&top.digest, top.name.clone()));
    }
    assert_eq!(there.snapshot_names().await, [Some("base".to_owned()), Some("top".to_owned())]);
    let sandbox = there.restore("top", "elsewhere").await;
    assert_eq!(there.read(&sandbox, "/note").await, "one");
    assert_eq!(there.read(&sandbox, "/more").await, "two");
    there.engine.verify_snapshot(&there.who, &which("top"), true).await.unwrap();
    // Only the lowest, if the one above is known.
    let loaded = there.load(here.save("base", alone).await).await.unwrap();
    assert_eq!(loaded.digest, base.digest);
}

#[tokio::test]
async fn an_archive_that_was_changed_or_cut_leaves_nothing() {
    let (here, there) = (World::new().await, World::new().await);
    let source = here.create().await;
    here.write(&source, "/note", &"x".repeat(100)).await;
    here.snapshot(&source, "base").await;
    for plain in [false, true] {
        let archive = here.save("base", SaveOptions { plain, ..SaveOptions::default() }).await;
        let step = (archive.len() / 97).max(1);
        for at in (0..archive.len()).step_by(step).chain([archive.len() - 1]) {
            let mut changed = archive.clone();
            changed[at] ^= 1;
            let error = there.load(changed).await.expect_err("a changed byte was not noticed");
            assert!(matches!(error.kind(), ErrorKind::InvalidRequest), "byte {at}: {error}");
            let error = there.load(archive[..at].to_vec()).await.expect_err("an end was not missed");
            assert!(matches!(error.kind(), ErrorKind::InvalidRequest), "cut at {at}: {error}");
        }
        assert_eq!((there.snapshot_names().await, there.snapshots_on_disk()), (vec![], vec![]));
    }
    for hostile in [vec![], vec![0; 4096], b"not an archive".to_vec(), vec![0x28, 0xb5, 0x2f, 0xfd]] {
        assert_eq!(there.load(hostile).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    }
}

#[tokio::test]
async fn an_archive_may_unpack_to_so_much_and_no_more() {
    let here = World::new().await;
    let there = World::with(|config| config.max_snapshot_bytes = 4096).await;
    let source = here.create().await;
    here.write(&source, "/note", &"x".repeat(100_000)).await;
    here.snapshot(&source, "base").await;
    let archive = here.save("base", SaveOptions::default()).await;
    assert_eq!(there.load(archive).await.unwrap_err().kind(), ErrorKind::LimitReached);
    assert!(there.snapshots_on_disk().is_empty());
}

#[tokio::test]
async fn a_tree_that_was_touched_is_noticed() {
    let world = World::new().await;
    let source = world.create().await;
    let taken = world.snapshot(&source, "base").await;
    let touch = |path: &Path| {
        let mut text = std::fs::read(path).unwrap();
        let at = text.iter().rposition(|byte| *byte == b'0').unwrap();
        text[at] = b'1';
        std::fs::write(path, text).unwrap();
    };
    world.backend.damage_snapshot(&taken.id);
    let error = world.engine.verify_snapshot(&world.who, &which("base"), false).await.unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    let taken = world.snapshot(&source, "other").await;
    touch(&taken.path.join("manifest.json"));
    let error = world.engine.verify_snapshot(&world.who, &which("other"), false).await.unwrap_err();
    assert!(error.to_string().contains("manifest"), "{error}");
}

#[tokio::test]
async fn records_are_made_anew_from_the_disk() {
    let world = World::new().await;
    let source = world.create().await;
    let taken = world.snapshot(&source, "base").await;
    world.store.remove_snapshot(taken.id.clone()).await.unwrap();
    let world = world.crash().await;
    assert_eq!(world.snapshot_names().await, []);
    world.snapshot(&world.create().await, "other").await;
    for n_found in [1, 0] {
        let reindexed = world.engine.reindex_snapshots(&world.who).await.unwrap();
        assert_eq!(reindexed, Reindexed { n_known: 2, n_found });
    }
    assert_eq!(world.engine.snapshot(&world.who, &which("base")).await.unwrap(), taken);
}

#[tokio::test]
async fn a_name_is_taken_and_can_be_taken_over() {
    let world = World::new().await;
    let source = world.create().await;
    let first = world.snapshot(&source, "base").await;
    let error = world.engine.create_snapshot(&world.who, named(&source, "base")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let replaced = SnapshotSpec { replace: true, ..named(&source, "base") };
    let second = world.engine.create_snapshot(&world.who, replaced).await.unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(world.snapshots_on_disk(), [second.path]);
}

#[tokio::test]
async fn namespaces_and_numbers_are_kept() {
    let world = World::with(|config| config.max_snapshots = 2).await;
    let source = world.create().await;
    world.snapshot(&source, "one").await;
    let stranger = Principal::of_namespace("ana", "red".parse().unwrap());
    assert_eq!(world.engine.snapshots(&stranger, None).await.unwrap(), []);
    for text in ["one", &world.snapshot(&source, "two").await.digest] {
        let found = world.engine.snapshot(&stranger, &which(text)).await;
        assert_eq!(found.unwrap_err().kind(), ErrorKind::NotFound);
    }
    let rootfs = Some(RootfsSpec::Snapshot { snapshot: "one".into() });
    let spec = SandboxSpec { namespace: "red".parse().unwrap(), rootfs, ..SandboxSpec::default() };
    assert_eq!(world.engine.create_sandbox(&stranger, spec).await.unwrap_err().kind(), ErrorKind::NotFound);
    let error = world.engine.create_snapshot(&world.who, named(&source, "three")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
}

#[tokio::test]
async fn changes_are_told_since_the_image_and_since_a_snapshot() {
    let world = World::new().await;
    let source = world.create().await;
    world.write(&source, "/one", "1").await;
    world.snapshot(&source, "base").await;
    let restored = world.restore("base", "again").await;
    world.write(&restored, "/two", "2").await;
    let paths = |report: sandbox::DiffReport| -> Vec<_> {
        report.changes.into_iter().filter(|change| change.kind == ChangeKind::Added).map(|c| c.path).collect()
    };
    let diff = async |since| {
        let spec = DiffSpec { since, ..DiffSpec::default() };
        world.engine.diff_sandbox(&world.who, &restored, spec).await
    };
    assert_eq!(paths(diff(Since::Image).await.unwrap()), ["/one", "/two"]);
    assert_eq!(paths(diff(Since::Snapshot("base".into())).await.unwrap()), ["/two"]);
    assert_eq!(paths(diff(Since::Start).await.unwrap()), ["/two"]);
    world.snapshot(&source, "other").await;
    assert_eq!(paths(diff(Since::Snapshot("other".into())).await.unwrap()), ["/two"]);
    assert_eq!(diff(Since::Snapshot("none".into())).await.unwrap_err().kind(), ErrorKind::NotFound);
}
