//! A sandbox and its first command in one request.

use std::time::Duration;

use engine::{CreateRequest, FirstExec, Follow, NewRun, Progress, SandboxRef};
use futures_util::StreamExt;
use sandbox::{
    BackendError, CellSpec, ErrorKind, EventKind, ExecOutcome, ExecSpec, Language, NotStarted, SandboxSpec,
    SandboxState,
};
use test_backend::Hostility;

use super::support::{World, in_time};

async fn run(world: &World, first: impl Into<FirstExec>) -> sandbox::Result<NewRun> {
    let request = CreateRequest::default();
    in_time(world.engine.create_and_exec(&world.who, request, first.into(), Progress::none())).await
}

#[tokio::test]
async fn it_runs_as_if_it_had_been_asked_for_afterwards() {
    let world = World::new().await;
    let NewRun { sandbox, exec, is_new } = run(&world, ExecSpec::shell("echo first; pwd")).await.unwrap();
    let which = SandboxRef::from(&sandbox.id);
    assert!(is_new && sandbox.state == SandboxState::Running);
    assert_eq!(world.wait(&which, &exec.id).await.outcome, Some(ExecOutcome::exited(0)));
    assert_eq!(world.output(&which, &exec.id).await, format!("first\n{}\n", sandbox.plan.cwd));
    assert_eq!(world.engine.execs(&world.who, &which).await.unwrap().len(), 1);
    // Both are on record, and outlast the daemon.
    let world = world.crash().await;
    assert_eq!(world.output(&which, &exec.id).await, format!("first\n{}\n", sandbox.plan.cwd));
    assert_eq!(world.state(&which).await, SandboxState::Running);
}

#[tokio::test]
async fn events_come_in_the_order_of_what_they_tell() {
    let world = World::new().await;
    run(&world, ExecSpec::shell("true")).await.unwrap();
    let events = world.engine.events(&world.who, Some(0), Follow::Yes).await.unwrap();
    let kinds: Vec<_> = in_time(events.take(4).map(|event| event.unwrap().kind).collect()).await;
    let expected =
        [EventKind::SandboxCreated, EventKind::SandboxStarted, EventKind::ExecStarted, EventKind::ExecEnded];
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_made_leaves_no_command_either() {
    let world = World::new().await;
    world.backend.fail_next_create(BackendError::Failed { what: "could not mount".into(), source: None });
    let error = run(&world, ExecSpec::shell("true")).await.unwrap_err();
    assert!(error.to_string().contains("could not mount"), "{error}");
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_command_that_cannot_begin_leaves_no_sandbox_and_one_that_is_not_there_does() {
    let world = World::impatient().await;
    let missing = ExecSpec::argv(["/no/such/program"]);
    let NewRun { sandbox, exec, .. } = run(&world, missing).await.unwrap();
    assert!(matches!(exec.outcome, Some(ExecOutcome::NotStarted { reason: NotStarted::NotFound, .. })));
    world.remove(&SandboxRef::from(&sandbox.id)).await;

    world.backend.be_hostile(Hostility::SilenceAfterHello, 1_000_000);
    let error = run(&world, ExecSpec::shell("true")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    world.backend.be_hostile(Hostility::SilenceAfterHello, 0);
    world.assert_nothing_left().await;

    // What cannot be asked makes nothing.
    let error = run(&world, ExecSpec::argv(["a\0b"])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    world.assert_nothing_left().await;
}

/// Whether everything on disk that a sandbox and its command begin with is there.
fn has_files(world: &World, sandbox: &str, exec: &str) -> bool {
    let directory = world.home.path().join("sandboxes").join(sandbox);
    directory.join("manifest.json").exists() && directory.join("logs").join(exec).exists()
}

#[tokio::test]
async fn a_daemon_that_dies_while_it_makes_both_leaves_neither() {
    let world = World::new().await;
    world.backend.delay_starts(Duration::from_secs(3600));
    let request = CreateRequest::default();
    let first = FirstExec::from(ExecSpec::shell("true"));
    let making = world.engine.create_and_exec(&world.who, request, first, Progress::none());
    let recorded = async {
        loop {
            let all = world.store.sandboxes(None).await.unwrap();
            // A thread that still makes files would outlive this daemon's tasks; it would not outlive a killed daemon.
            if let [record] = &all.records[..]
                && let [exec] = &world.store.execs(record.id.clone()).await.unwrap()[..]
                && has_files(&world, record.id.as_str(), exec.id.as_str())
            {
                return (record.state, exec.outcome.clone());
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        made = making => panic!("{made:?}"),
        recorded = in_time(recorded) => assert_eq!(recorded, (SandboxState::Creating, None)),
    }
    world.backend.delay_starts(Duration::ZERO);
    let world = world.crash().await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn the_same_request_again_finds_both() {
    let world = World::new().await;
    let ask = || {
        let spec = SandboxSpec { request_id: Some("req-1".parse().unwrap()), ..SandboxSpec::default() };
        let first =
            ExecSpec { request_id: Some("run-1".parse().unwrap()), ..ExecSpec::shell("echo once >> /tmp/n") };
        world.engine.create_and_exec(&world.who, spec.into(), first.into(), Progress::none())
    };
    let first = in_time(ask()).await.unwrap();
    let again = in_time(ask()).await.unwrap();
    assert!(first.is_new && !again.is_new);
    assert_eq!((again.sandbox.id, again.exec.id), (first.sandbox.id.clone(), first.exec.id.clone()));
    let which = SandboxRef::from(&first.sandbox.id);
    world.wait(&which, &first.exec.id).await;
    assert_eq!(world.read(&which, "/tmp/n").await, "once\n");
}

#[tokio::test]
async fn code_and_command_lines_for_the_default_shell_run_too() {
    let world = World::new().await;
    let cell = CellSpec { language: Language::Bash, context: None, code: "echo $((6 * 7))".to_owned() };
    let NewRun { sandbox, exec, .. } =
        run(&world, ExecSpec { cell: Some(cell), ..ExecSpec::default() }).await.unwrap();
    let which = SandboxRef::from(&sandbox.id);
    world.wait(&which, &exec.id).await;
    assert_eq!(world.output(&which, &exec.id).await, "42\n");

    let spec = ExecSpec::argv(["sh", "-c", "echo $0"]);
    let NewRun { sandbox, exec, .. } = run(&world, FirstExec { spec, in_default_shell: true }).await.unwrap();
    let which = SandboxRef::from(&sandbox.id);
    let shell = world.engine.shell(&world.who, &which).await.unwrap();
    let done = world.wait(&which, &exec.id).await;
    assert_eq!(done.command[0], shell);
    assert_eq!(world.output(&which, &exec.id).await, format!("{shell}\n"));
}
