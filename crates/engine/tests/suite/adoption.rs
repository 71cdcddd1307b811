use std::sync::Arc;

use async_trait::async_trait;
use engine::{Engine, Follow, Force, SandboxRef};
use futures_util::StreamExt;
use sandbox::{
    Backend, BackendError, BackendKind, Capabilities, ErrorKind, EventKind, ExecId, ExecOutcome, ExecSpec,
    ExecState, Instance, KillReason, Next, NotStarted, SandboxId, SandboxPlan, SandboxSpec, SandboxState,
};
use store::{ExecRecord, SandboxRecord};
use test_backend::TestBackend;

use super::support::{EntryKind, World, assert_numbered, bytes, exit_entry, in_time, kinds, seq, text};

/// Reads until `n` entries of the exec are in the ledger.
async fn until_entries(world: &World, which: &SandboxRef, exec: &ExecId, n: usize) {
    let entries = world.engine.exec_entries(&world.who, which, exec, 1, Follow::Yes).await.unwrap();
    in_time(entries.take(n).for_each(|item| async move { drop(item.unwrap()) })).await;
}

#[tokio::test]
async fn every_line_is_there_once_though_the_daemon_died_three_times() {
    let mut world = World::new().await;
    let which = world.create().await;
    let exec = world.start_exec(&which, "seq 500000; exit 7").await;
    for n_entries in [3, 20, 45] {
        until_entries(&world, &which, &exec.id, n_entries).await;
        world = world.crash().await;
    }
    let done = world.wait(&which, &exec.id).await;
    assert_eq!(done.exit_code, Some(7));
    let entries = world.entries(&which, &exec.id, Follow::Yes).await;
    assert_numbered(&entries);
    assert!(text(&entries, EntryKind::Stdout) == seq(500_000), "lines are missing, doubled or out of order");
    assert_eq!(kinds(&entries).iter().filter(|kind| **kind == EntryKind::Exited).count(), 1);
    world.event(EventKind::SandboxAdopted).await;
}

#[tokio::test]
async fn a_command_that_ended_while_the_daemon_was_away_has_its_end() {
    let world = World::new().await;
    let which = world.create().await;
    let spec = ExecSpec { stdin: true, ..ExecSpec::argv(["cat"]) };
    let exec = world.engine.exec(&world.who, &which, spec).await.unwrap();
    world.engine.exec_stdin(&world.who, &which, &exec.id, bytes("last words"), true).await.unwrap();
    let world = world.crash().await;
    assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some(0));
    assert_eq!(world.output(&which, &exec.id).await, "last words");
}

#[tokio::test]
async fn a_graceful_restart_keeps_commands_running_and_usable() {
    let world = World::new().await;
    let which = world.create().await;
    let spec = ExecSpec { stdin: true, ..ExecSpec::argv(["cat"]) };
    let exec = world.engine.exec(&world.who, &which, spec).await.unwrap();
    let world = world.restart().await;
    assert_eq!(world.state(&which).await, SandboxState::Running);
    world.engine.exec_stdin(&world.who, &which, &exec.id, bytes("hello again"), true).await.unwrap();
    assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some(0));
    assert_eq!(world.output(&which, &exec.id).await, "hello again");
}

#[tokio::test]
async fn paused_stays_paused() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.start_exec(&which, "sleep 0.01; echo done").await;
    world.engine.pause_sandbox(&world.who, &which).await.unwrap();
    let world = world.crash().await;
    assert_eq!(world.state(&which).await, SandboxState::Paused);
    world.engine.resume_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some(0));
    assert_eq!(world.output(&which, &exec.id).await, "done\n");
}

#[tokio::test]
async fn what_vanished_while_the_daemon_was_away_is_stopped_and_its_commands_lost() {
    let world = World::new().await;
    let view = world.create_named("gone").await;
    let which: SandboxRef = view.id.clone().into();
    let exec = world.start_exec(&which, "echo seen; sleep 1000").await;
    until_entries(&world, &which, &exec.id, 2).await;
    let world = {
        let World { engine, store, backend, clock, who, config, home } = world;
        drop(engine);
        backend.vanish(&view.id);
        let engine = super::support::open(&config, &store, &backend, &clock).await.unwrap();
        World { engine, store, backend, clock, who, config, home }
    };
    let after = world.view(&which).await;
    assert_eq!(after.state, SandboxState::Stopped);
    assert!(after.reason.unwrap().contains("while the daemon was not running"));
    let done = world.wait(&which, &exec.id).await;
    assert_eq!(done.outcome, Some(ExecOutcome::Killed { reason: KillReason::SandboxLost }));
    let entries = world.entries(&which, &exec.id, Follow::Yes).await;
    assert_eq!(text(&entries, EntryKind::Stdout), "seen\n");
    assert_eq!(exit_entry(&entries).report, None);
    assert_eq!(world.engine.start_sandbox(&world.who, &which).await.unwrap().state, SandboxState::Running);
}

/// The record left by a daemon that died at this point.
async fn plant(world: &World, state: SandboxState, started: bool) -> SandboxRecord {
    let id = SandboxId::from_random([9; 8]);
    let name: sandbox::SandboxName = "half".parse().unwrap();
    let directory = world.home.path().join("sandboxes").join(id.as_str());
    std::fs::create_dir_all(directory.join("logs")).unwrap();
    let spec = SandboxSpec::default();
    let plan = sandbox::plan(
        &id,
        &name,
        &spec,
        &world.config.defaults,
        &sandbox::Base::host(),
        &[sandbox::Capabilities::all(sandbox::BackendKind::Namespace)],
    )
    .unwrap();
    let now = jiff::Timestamp::UNIX_EPOCH;
    let record = SandboxRecord {
        id,
        name,
        namespace: Default::default(),
        spec,
        plan,
        state,
        reason: None,
        isolation: None,
        created_at: now,
        started_at: started.then_some(now),
        stopped_at: None,
        expires_at: None,
        lifetime: Default::default(),
        last_active_at: now,
        owner: None,
        replaces: None,
        ports: Vec::new(),
        network_requests: Vec::new(),
        request_hash: None,
    };
    world.store.insert_sandbox(record.clone()).await.unwrap();
    record
}

#[tokio::test]
async fn a_create_cut_short_leaves_nothing() {
    let world = World::new().await;
    let record = plant(&world, SandboxState::Creating, false).await;
    // The instance was made, and nobody was told.
    sandbox::Backend::create(&world.backend, &record.plan).await.unwrap();
    let world = world.crash().await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_create_waits_for_the_name_of_one_that_was_cut_short() {
    let world = World::new().await;
    let record = plant(&world, SandboxState::Creating, false).await;
    let (backend, clock) = (world.backend.for_engine(), Arc::new(world.clock.clone()));
    let opened = Engine::open_with_clock(world.config.clone(), world.store.clone(), backend, clock);
    let engine = opened.await.unwrap();
    // Nobody can see that one, so nobody can be told that it has the name.
    let spec = SandboxSpec { name: Some(record.name.clone()), ..SandboxSpec::default() };
    let view = engine.create_sandbox(&world.who, spec).await.unwrap();
    assert_eq!(view.name, record.name);
}

#[tokio::test]
async fn a_start_cut_short_falls_back_to_stopped_and_keeps_the_files() {
    let world = World::new().await;
    let record = plant(&world, SandboxState::Creating, true).await;
    let world = world.crash().await;
    let which: SandboxRef = record.id.clone().into();
    let view = world.view(&which).await;
    assert_eq!(view.state, SandboxState::Stopped);
    assert!(view.reason.is_some() && world.directory(&view).is_dir());
    world.engine.start_sandbox(&world.who, &which).await.unwrap();
}

#[tokio::test]
async fn a_stop_cut_short_is_finished() {
    let world = World::new().await;
    let record = plant(&world, SandboxState::Stopping, true).await;
    sandbox::Backend::create(&world.backend, &record.plan).await.unwrap();
    let world = world.crash().await;
    assert_eq!(world.state(&record.id.into()).await, SandboxState::Stopped);
    assert_eq!(world.backend.live(), []);
}

#[tokio::test]
async fn execs_that_the_guest_never_heard_of_are_settled() {
    let world = World::new().await;
    let which = world.create().await;
    let sandbox = world.view(&which).await.id;
    let record = |byte: u8, state| ExecRecord {
        id: ExecId::from_random([byte; 8]),
        sandbox: sandbox.clone(),
        spec: ExecSpec::shell("true"),
        state,
        outcome: None,
        pid: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        started_at: None,
        ended_at: None,
        last_entry: None,
        n_lost: 0,
        asked_by: None,
        request_hash: None,
    };
    let (starting, running) = (record(1, ExecState::Starting), record(2, ExecState::Running));
    world.store.insert_exec(starting.clone()).await.unwrap();
    world.store.insert_exec(running.clone()).await.unwrap();
    let world = world.crash().await;
    let outcome = world.wait(&which, &starting.id).await.outcome.unwrap();
    assert!(matches!(outcome, ExecOutcome::NotStarted { reason: NotStarted::Lost, .. }), "{outcome:?}");
    let outcome = world.wait(&which, &running.id).await.outcome.unwrap();
    assert_eq!(outcome, ExecOutcome::Killed { reason: KillReason::SandboxLost });
    // And they stay settled.
    let world = world.crash().await;
    assert_eq!(world.wait(&which, &running.id).await.exit_code, Some(137));
}

#[tokio::test]
async fn an_end_that_reached_the_ledger_but_not_the_store_is_taken_from_the_ledger() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.run(&which, "echo out; exit 9").await;
    world.event(EventKind::ExecEnded).await;
    let mut record = world.store.exec(exec.id.clone()).await.unwrap().unwrap();
    (record.state, record.outcome, record.ended_at) = (ExecState::Running, None, None);
    world.store.update_exec(record).await.unwrap();
    let world = world.crash().await;
    assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some(9));
    let entries = world.entries(&which, &exec.id, Follow::No).await;
    assert_eq!(kinds(&entries).iter().filter(|kind| **kind == EntryKind::Exited).count(), 1);
}

#[tokio::test]
async fn late_output_is_followed_by_the_next_daemon_too() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.run(&which, "(sleep 0.05; echo afterwards) & echo now").await;
    world.event(EventKind::ExecEnded).await;
    let world = world.crash().await;
    let mut entries = world.entries(&which, &exec.id, Follow::Yes).await;
    let next = entries.len() as u64 + 1;
    let rest = world.engine.exec_entries(&world.who, &which, &exec.id, next, Follow::Yes).await.unwrap();
    entries.extend(in_time(rest.map(Result::unwrap).collect::<Vec<_>>()).await);
    assert_eq!(kinds(&entries).last(), Some(&EntryKind::Closed));
    assert_numbered(&entries);
    assert_eq!(text(&entries, EntryKind::Stdout), "now\nafterwards\n");
}

#[tokio::test]
async fn a_back_end_that_is_away_loses_nothing() {
    let world = World::new().await;
    let (kept, starting) =
        (world.create_named("kept").await, plant(&world, SandboxState::Creating, true).await);
    sandbox::Backend::create(&world.backend, &starting.plan).await.unwrap();
    let which: SandboxRef = kept.id.clone().into();
    let exec = world.start_exec(&which, "echo early; sleep 0.01; echo again; exit 5").await;
    world.backend.be_away(true);
    let world = world.crash().await;
    world.engine.settled().await;

    // It is as recorded, neither stopped nor swept.
    let view = world.view(&which).await;
    assert_eq!((view.state, view.unreachable), (SandboxState::Running, true));
    assert!(view.reason.unwrap().contains("away"));
    assert_eq!(world.backend.live().len(), 2);
    let error = world.engine.exec(&world.who, &which, sandbox::ExecSpec::shell("true")).await.unwrap_err();
    assert_eq!((error.kind(), error.next()), (ErrorKind::Unavailable, Some(&Next::Retry)));
    let record = world.store.sandbox(kept.id.clone()).await.unwrap().unwrap();
    assert_eq!((record.state, record.reason), (SandboxState::Running, None));

    world.backend.be_away(false);
    world.event(EventKind::SandboxAdopted).await;
    assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some(5));
    assert_eq!(world.output(&which, &exec.id).await, "early\nagain\n");
    assert!(!world.view(&which).await.unreachable);
    // The interrupted start is now ended, as it would have been then.
    let half: SandboxRef = starting.id.into();
    world.engine.wait_sandbox(&world.who, &half, SandboxState::Stopped, None).await.unwrap();
    assert_eq!(world.backend.live(), [kept.id]);
}

#[tokio::test]
async fn a_daemon_with_several_back_ends_asks_the_right_one() {
    let world = World::new().await;
    let other = Renamed(TestBackend::new());
    let open = |backends: Vec<Arc<dyn Backend>>| {
        let World { config, store, clock, .. } = &world;
        Engine::open_all(config.clone(), store.clone(), backends, Arc::new(clock.clone()))
    };
    let engine = open(vec![world.backend.for_engine(), Arc::new(other.clone())]).await.unwrap();
    let on = |backend| SandboxSpec { backend, ..SandboxSpec::default() };
    let first = engine.create_sandbox(&world.who, on(None)).await.unwrap();
    let second = engine.create_sandbox(&world.who, on(Some(BackendKind::Oci))).await.unwrap();
    assert_eq!((first.plan.backend, second.plan.backend), (BackendKind::Namespace, BackendKind::Oci));
    assert_eq!((world.backend.live(), other.0.live()), (vec![first.id.clone()], vec![second.id.clone()]));
    // A request that only the first supports goes there, or is refused with its name.
    let volume = sandbox::MountSource::Tmpfs { size: None };
    let mount =
        |source| sandbox::MountSpec { guest_path: "/data".into(), source, readonly: false, noexec: false };
    engine.create_sandbox(&world.who, SandboxSpec { mounts: vec![mount(volume)], ..on(None) }).await.unwrap();
    let named = mount(sandbox::MountSource::Named { name: "models".parse().unwrap() });
    let spec = SandboxSpec { mounts: vec![named], ..on(Some(BackendKind::Oci)) };
    let error = engine.create_sandbox(&world.who, spec).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.next()),
        (ErrorKind::Unsupported, Some(&Next::UseBackend(BackendKind::Namespace)))
    );
    drop(engine);

    // Without its back end a sandbox is unreachable, not gone.
    let engine = open(vec![world.backend.for_engine()]).await.unwrap();
    engine.settled().await;
    let which: SandboxRef = second.id.clone().into();
    let view = engine.sandbox(&world.who, &which).await.unwrap();
    assert_eq!((view.state, view.unreachable), (SandboxState::Running, true));
    drop(engine);
    let engine = open(vec![world.backend.for_engine(), Arc::new(other.clone())]).await.unwrap();
    engine.remove_sandbox(&world.who, &which, engine::Force::Yes).await.unwrap();
    assert!(other.0.live().is_empty() && world.backend.live().contains(&first.id));
}

/// Another back end, without special capabilities.
#[derive(Debug, Clone)]
struct Renamed(TestBackend);

#[async_trait]
impl Backend for Renamed {
    fn kind(&self) -> BackendKind {
        BackendKind::Oci
    }

    async fn probe(&self) -> Result<Capabilities, BackendError> {
        Ok(Capabilities { has: Vec::new(), ..Capabilities::all(self.kind()) })
    }

    async fn create(&self, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError> {
        self.0.create(plan).await
    }

    async fn adopt(&self, plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError> {
        self.0.adopt(plan).await
    }

    async fn sweep(&self, alive: &[SandboxId], known: &[SandboxId]) -> Result<Vec<SandboxId>, BackendError> {
        self.0.sweep(alive, known).await
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), BackendError> {
        Backend::remove(&self.0, id).await
    }
}

#[tokio::test]
async fn strangers_are_swept_and_our_own_are_not() {
    let world = World::new().await;
    let kept = world.create_named("kept").await;
    let mut stranger = kept.plan.clone();
    stranger.id = SandboxId::from_random([7; 8]);
    sandbox::Backend::create(&world.backend, &stranger).await.unwrap();
    let world = world.crash().await;
    assert_eq!(world.backend.live(), [kept.id]);
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_told_and_hurts_nobody_else() {
    let world = World::new().await;
    let (good, bad) = (world.create_named("good").await, world.create_named("bad").await);
    let exec = world.run(&good.id.clone().into(), "echo fine").await;
    world.event(EventKind::ExecEnded).await;
    let World { engine, store, backend, clock, who, config, home } = world;
    engine.close().await;
    drop((engine, store));
    damage(&home.path().join("warren.db"), bad.id.as_str());
    let store = engine::Store::open(home.path()).unwrap();
    let engine = super::support::open(&config, &store, &backend, &clock).await.unwrap();
    let world = World { engine, store, backend, clock, who, config, home };

    let warnings = world.engine.warnings(&world.who);
    assert!(warnings.len() == 1 && warnings[0].contains(bad.id.as_str()), "{warnings:?}");
    let ana = engine::Principal::of_namespace("ana", "default".parse().unwrap());
    assert_eq!(world.engine.warnings(&ana), [""; 0], "nobody knows whose it is");
    let which: SandboxRef = good.id.clone().into();
    assert_eq!(world.output(&which, &exec.id).await, "fine\n");
    assert_eq!(world.run(&which, "true").await.exit_code, Some(0));
    // Nothing of the damaged one was removed; it can be named and removed.
    assert_eq!(world.backend.live().len(), 2);
    let broken: SandboxRef = bad.id.clone().into();
    let error = world.engine.sandbox(&world.who, &broken).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.next() == Some(&Next::Replace(bad.id.to_string())));
    world.remove(&broken).await;
    world.remove(&which).await;
    assert_eq!(world.engine.warnings(&world.who), [""; 0]);
    world.assert_nothing_left().await;
}

/// Breaks one record as a bad disk would: by overwriting its text in the file.
fn damage(database: &std::path::Path, id: &str) {
    let database = rusqlite::Connection::open(database).unwrap();
    let n = database.execute("UPDATE sandboxes SET plan = '#' || plan WHERE id = ?1", [id]).unwrap();
    assert_eq!(n, 1, "the record");
}

#[tokio::test]
async fn many_sandboxes_are_adopted_together() {
    let world = World::new().await;
    let mut all = Vec::new();
    for n in 0..60 {
        let which = world.create().await;
        let exec = world.start_exec(&which, &format!("echo {n}; sleep 0.05; echo again")).await;
        all.push((which, exec.id));
    }
    let world = world.crash().await;
    for (n, (which, exec)) in all.iter().enumerate() {
        assert_eq!(world.wait(which, exec).await.exit_code, Some(0));
        assert_eq!(world.output(which, exec).await, format!("{n}\nagain\n"));
    }
}

#[tokio::test]
async fn a_sandbox_whose_back_end_stays_away_can_be_given_up() {
    let world = World::new().await;
    let (running, stopped) = (world.create_named("running").await, world.create_named("stopped").await);
    let (running, stopped): (SandboxRef, SandboxRef) = (running.id.into(), stopped.id.into());
    world.stop(&stopped).await;
    world.backend.be_away(true);
    let world = world.crash().await;
    world.engine.settled().await;

    for which in [&running, &stopped] {
        let error = world.engine.remove_sandbox(&world.who, which, Force::No).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(matches!(error.next(), Some(Next::GiveUp(_))), "{error:?}");
        // Still there, for somebody with more patience.
        world.view(which).await;
        world.remove(which).await;
        let error = world.engine.sandbox(&world.who, which).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    // What the back end still held is swept by the next daemon that it answers.
    assert_eq!(world.backend.live().len(), 1);
    world.backend.be_away(false);
    world.crash().await.assert_nothing_left().await;
}
