//! Commands that may or may not have begun.

use engine::{Follow, SandboxRef};
use sandbox::{ErrorKind, ExecOutcome, ExecSpec, ExecState, KillReason, NotStarted, SandboxState};
use test_backend::Hostility;

use super::support::{EntryKind, World, in_time, text};

async fn only_exec(world: &World, which: &SandboxRef) -> engine::ExecView {
    in_time(async {
        loop {
            if let [exec] = &world.engine.execs(&world.who, which).await.unwrap()[..] {
                return exec.clone();
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn a_command_that_began_without_a_word_is_killed_and_its_end_is_told() {
    let world = World::impatient().await;
    let which = world.create().await;
    world.backend.be_hostile(Hostility::SilentStart, 1);
    let spec = ExecSpec::shell("echo begun; sleep 1000");
    let error = in_time(world.engine.exec(&world.who, &which, spec)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");

    let exec = only_exec(&world, &which).await;
    let done = world.wait(&which, &exec.id).await;
    assert_eq!(done.outcome, Some(ExecOutcome::Killed { reason: KillReason::Request }));
    let entries = world.entries(&which, &exec.id, Follow::Yes).await;
    assert_eq!(text(&entries, EntryKind::Stdout), "begun\n");
    let mut processes = world.engine.processes(&world.who, &which).await.unwrap();
    processes.retain(|process| process.pid != 1);
    assert_eq!(processes, [], "nothing but the guest");
}

#[tokio::test]
async fn a_command_that_never_began_is_settled_when_the_guest_can_say_so() {
    let world = World::impatient().await;
    let which = world.create().await;
    world.backend.be_hostile(Hostility::SilenceAfterHello, 1_000_000);
    let failed = in_time(world.engine.exec(&world.who, &which, ExecSpec::shell("echo begun"))).await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unavailable);
    // As long as the guest is silent nothing is claimed.
    let exec = only_exec(&world, &which).await;
    assert_eq!((exec.state, exec.outcome), (ExecState::Starting, None));

    world.backend.be_hostile(Hostility::SilenceAfterHello, 0);
    let outcome = world.wait(&which, &exec.id).await.outcome.unwrap();
    assert!(matches!(outcome, ExecOutcome::NotStarted { reason: NotStarted::Lost, .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_pause_waits_for_a_command_that_is_starting() {
    let world = World::impatient().await;
    let which = world.create().await;
    world.backend.be_hostile(Hostility::Slow, 1);
    let exec = world.engine.exec(&world.who, &which, ExecSpec::shell("echo on; exit 3"));
    let pause = async {
        assert_eq!(only_exec(&world, &which).await.state, ExecState::Starting);
        let paused = world.engine.pause_sandbox(&world.who, &which).await.unwrap();
        assert_eq!(paused.state, SandboxState::Paused);
        assert_ne!(only_exec(&world, &which).await.state, ExecState::Starting);
    };
    let (exec, ()) = in_time(async { tokio::join!(exec, pause) }).await;
    let exec = exec.unwrap();
    world.engine.resume_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some(3));
}
