use std::time::Duration;

use engine::{Force, SandboxRef, Target};
use futures_util::future::join_all;
use sandbox::{
    BackendError, ErrorKind, EventKind, ExecOutcome, ExecSpec, KillReason, Next, SandboxSpec, SandboxState,
};

use super::support::{World, in_time};

#[tokio::test]
async fn a_stopped_sandbox_keeps_its_files_and_starts_again() {
    let world = World::new().await;
    let which = world.create().await;
    world.write(&which, "/root/note.txt", "hello").await;

    let stopped = world.stop(&which).await;
    assert_eq!(stopped.state, SandboxState::Stopped);
    assert!(stopped.stopped_at.is_some());
    assert_eq!(world.backend.live(), []);
    let started = world.engine.start_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(started.state, SandboxState::Running);
    assert_eq!(world.read(&which, "/root/note.txt").await, "hello");

    world.remove(&which).await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn stopping_twice_at_once_or_later_is_fine() {
    let world = World::new().await;
    let which = world.create().await;
    let stop = || world.engine.stop_sandbox(&world.who, &which, None);
    let (one, two, three) = tokio::join!(stop(), stop(), stop());
    for view in [one, two, three] {
        assert_eq!(view.unwrap().state, SandboxState::Stopped);
    }
    assert_eq!(stop().await.unwrap().state, SandboxState::Stopped);
}

#[tokio::test]
async fn a_stop_ends_commands_and_keeps_what_they_printed() {
    let world = World::new().await;
    let which = world.create().await;
    let polite = world.start_exec(&which, "echo polite; sleep 1000").await;
    let stubborn = world.start_exec(&which, "trap '' TERM; echo stubborn; sleep 1000").await;
    world.printed(&which, &polite.id, "polite").await;
    world.printed(&which, &stubborn.id, "stubborn").await;
    world.engine.stop_sandbox(&world.who, &which, Some(Duration::from_millis(50))).await.unwrap();

    for (exec, word) in [(polite, "polite\n"), (stubborn, "stubborn\n")] {
        let done = world.wait(&which, &exec.id).await;
        assert_eq!(done.outcome, Some(ExecOutcome::Killed { reason: KillReason::SandboxStopped }));
        assert_eq!(world.output(&which, &exec.id).await, word);
    }
}

#[tokio::test]
async fn a_guest_that_will_not_end_is_ended_by_force() {
    let world = World::impatient().await;
    let which = world.create().await;
    let exec = world.start_exec(&which, "echo here; sleep 1000").await;
    // The guest cannot even be asked.
    world.engine.exec(&world.who, &which, ExecSpec::shell("true")).await.unwrap();
    world.backend.be_hostile(test_backend::Hostility::Silence, 100);
    let stopped = in_time(world.engine.stop_sandbox(&world.who, &which, Some(Duration::from_millis(20))))
        .await
        .unwrap();
    assert_eq!(stopped.state, SandboxState::Stopped);
    assert_eq!(world.backend.live(), []);
    let done = world.wait(&which, &exec.id).await;
    assert!(
        matches!(done.outcome, Some(ExecOutcome::Killed { reason: KillReason::SandboxStopped })),
        "{done:?}"
    );
}

#[tokio::test]
async fn pause_refuses_execs_and_allows_files() {
    let world = World::new().await;
    let which = world.create().await;
    world.write(&which, "/root/a", "1").await;
    let paused = world.engine.pause_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(paused.state, SandboxState::Paused);

    let error = world.engine.exec(&world.who, &which, ExecSpec::shell("true")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongState);
    assert!(error.to_string().contains("paused") && matches!(error.next(), Some(Next::Resume(_))), "{error}");
    assert_eq!(world.read(&which, "/root/a").await, "1");

    world.engine.resume_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(world.run(&which, "cat a").await.exit_code, Some(0));
}

#[tokio::test]
async fn a_paused_sandbox_is_thawed_to_stop() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.start_exec(&which, "echo one; sleep 1000").await;
    world.engine.pause_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(world.stop(&which).await.state, SandboxState::Stopped);
    let done = world.wait(&which, &exec.id).await;
    assert_eq!(done.outcome, Some(ExecOutcome::Killed { reason: KillReason::SandboxStopped }));
}

#[tokio::test]
async fn what_the_state_does_not_allow_is_refused_with_a_next_step() {
    let world = World::new().await;
    let which = world.create().await;
    let (engine, who) = (&world.engine, &world.who);
    let refused = |result: sandbox::Result<()>, state: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongState, "{error}");
        assert!(error.to_string().contains(state), "{error}");
        assert!(error.next().is_some(), "{error:?}");
    };
    refused(engine.start_sandbox(who, &which).await.map(drop), "running");
    refused(engine.resume_sandbox(who, &which).await.map(drop), "running");
    refused(engine.remove_sandbox(who, &which, Force::No).await, "running");
    world.stop(&which).await;
    refused(engine.pause_sandbox(who, &which).await.map(drop), "stopped");
    refused(engine.exec(who, &which, ExecSpec::shell("true")).await.map(drop), "stopped");
    refused(engine.stat(who, &which, "/", true).await.map(drop), "stopped");
    refused(engine.usage(who, &which).await.map(drop), "stopped");
    refused(engine.connect(who, &which, engine::Target::Tcp(7)).await.map(drop), "stopped");
}

#[tokio::test]
async fn a_restart_is_a_stop_and_a_start() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.start_exec(&which, "sleep 1000").await;
    world.write(&which, "/root/kept", "yes").await;
    let view = world.engine.restart_sandbox(&world.who, &which, None).await.unwrap();
    assert_eq!(view.state, SandboxState::Running);
    assert!(world.wait(&which, &exec.id).await.outcome.is_some());
    assert_eq!(world.read(&which, "/root/kept").await, "yes");
    // From stopped it is a start.
    world.stop(&which).await;
    let view = world.engine.restart_sandbox(&world.who, &which, None).await.unwrap();
    assert_eq!(view.state, SandboxState::Running);
}

#[tokio::test]
async fn a_start_that_fails_falls_back_to_stopped_with_the_reason() {
    let world = World::new().await;
    let which = world.create().await;
    world.write(&which, "/root/kept", "yes").await;
    world.stop(&which).await;
    world.backend.fail_next_create(BackendError::Failed { what: "could not mount".into(), source: None });
    let error = world.engine.start_sandbox(&world.who, &which).await.unwrap_err();
    assert!(error.to_string().contains("could not mount"), "{error}");
    let view = world.view(&which).await;
    assert_eq!(view.state, SandboxState::Stopped);
    assert!(view.reason.unwrap().contains("could not mount"));
    world.engine.start_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(world.read(&which, "/root/kept").await, "yes");
}

#[tokio::test]
async fn a_place_that_ends_by_itself_is_seen_and_its_commands_get_an_end() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.start_exec(&which, "echo before; sleep 1000").await;
    // Its output is in the ledger before the instance ends.
    world.printed(&which, &exec.id, "before").await;
    assert!(world.backend.vanish(&world.view(&which).await.id));

    let view = world.wait_for(&which, SandboxState::Stopped).await;
    assert!(view.reason.unwrap().contains("by itself"));
    let done = world.wait(&which, &exec.id).await;
    assert_eq!(done.outcome, Some(ExecOutcome::Killed { reason: KillReason::SandboxLost }));
    assert_eq!(world.output(&which, &exec.id).await, "before\n");
    world.event(EventKind::SandboxStopped).await;
    assert_eq!(world.engine.start_sandbox(&world.who, &which).await.unwrap().state, SandboxState::Running);
}

#[tokio::test]
async fn waiting_for_a_state_ends_with_it_or_with_the_time() {
    let world = World::new().await;
    let which = world.create().await;
    let wait = |time| world.engine.wait_sandbox(&world.who, &which, SandboxState::Stopped, time);
    let error = wait(Some(Duration::from_millis(10))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let (view, _) = tokio::join!(wait(None), world.stop(&which));
    assert_eq!(view.unwrap().state, SandboxState::Stopped);
    // A removed sandbox will never get there.
    let waiting = world.engine.wait_sandbox(&world.who, &which, SandboxState::Running, None);
    let (gone, ()) = tokio::join!(waiting, world.remove(&which));
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn draining_takes_no_new_commands_and_stops_after_the_last() {
    let world = World::new().await;
    let which = world.create().await;
    let spec = ExecSpec { stdin: true, ..ExecSpec::argv(["cat"]) };
    let exec = world.engine.exec(&world.who, &which, spec).await.unwrap();

    let error =
        world.engine.drain_sandbox(&world.who, &which, Some(Duration::from_millis(20))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(world.run(&which, "true").await.exit_code, Some(0));

    let drain = world.engine.drain_sandbox(&world.who, &which, None);
    let rest = async {
        while !world.view(&which).await.draining {
            tokio::task::yield_now().await;
        }
        let error = world.engine.exec(&world.who, &which, ExecSpec::shell("true")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongState);
        assert!(error.to_string().contains("draining"), "{error}");
        let end = super::support::bytes("bye");
        world.engine.exec_stdin(&world.who, &which, &exec.id, end, true).await.unwrap();
    };
    let (drained, ()) = in_time(async { tokio::join!(drain, rest) }).await;
    assert_eq!(drained.unwrap().state, SandboxState::Stopped);
    let done = world.wait(&which, &exec.id).await;
    assert_eq!(done.exit_code, Some(0));
    assert_eq!(world.output(&which, &exec.id).await, "bye");
}

#[tokio::test]
async fn removing_by_force_in_any_state_leaves_nothing() {
    let world = World::new().await;
    let running = world.create().await;
    world.start_exec(&running, "sleep 1000").await;
    let paused = world.create().await;
    world.engine.pause_sandbox(&world.who, &paused).await.unwrap();
    let stopped = world.create().await;
    world.stop(&stopped).await;
    for which in [running, paused, stopped] {
        world.remove(&which).await;
        let error = world.engine.sandbox(&world.who, &which).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_stop_or_remove_in_the_middle_of_a_create_waits_for_it() {
    let world = World::new().await;
    world.backend.delay_starts(Duration::from_millis(50));
    let spec = SandboxSpec { name: Some("slow".parse().unwrap()), ..SandboxSpec::default() };
    let create = world.engine.create_sandbox(&world.who, spec);
    let which: SandboxRef = "slow".parse().unwrap();
    let remove = async {
        while world.engine.sandbox(&world.who, &which).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.state(&which).await, SandboxState::Creating);
        world.engine.remove_sandbox(&world.who, &which, Force::Yes).await.unwrap();
    };
    let (created, ()) = in_time(async { tokio::join!(create, remove) }).await;
    created.unwrap();
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn closing_lets_go_of_sandboxes_and_refuses_politely() {
    let world = World::new().await;
    let which = world.create().await;
    in_time(world.engine.close()).await;
    assert_eq!(world.backend.live().len(), 1);
    let error = world.engine.exec(&world.who, &which, ExecSpec::shell("true")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_long_grace_is_shortened_by_whoever_cannot_wait() {
    let world = World::with(|config| config.stop_grace = Duration::from_millis(20)).await;
    let hour = Duration::from_secs(60 * 60);
    for is_removed in [false, true] {
        let which = world.create().await;
        let exec = world.start_exec(&which, "trap '' TERM; echo stubborn; sleep 1000").await;
        world.printed(&which, &exec.id, "stubborn").await;
        let patient = world.engine.stop_sandbox(&world.who, &which, Some(hour));
        let hasty = async {
            world.wait_for(&which, SandboxState::Stopping).await;
            if is_removed {
                world.engine.remove_sandbox(&world.who, &which, Force::Yes).await.unwrap();
            } else {
                // More grace than the first stop has no effect.
                let more = world.engine.stop_sandbox(&world.who, &which, Some(hour));
                let none = world.engine.stop_sandbox(&world.who, &which, Some(Duration::ZERO));
                let (more, none) = tokio::join!(more, none);
                assert_eq!(more.unwrap().state, SandboxState::Stopped);
                assert_eq!(none.unwrap().state, SandboxState::Stopped);
                // The guest had time to report how it ended.
                let done = world.wait(&which, &exec.id).await;
                assert_eq!(done.outcome, Some(ExecOutcome::Killed { reason: KillReason::SandboxStopped }));
            }
        };
        let (patient, ()) = in_time(async { tokio::join!(patient, hasty) }).await;
        patient.unwrap();
        assert_eq!(world.backend.live(), []);
    }
}

#[tokio::test]
async fn a_grace_without_end_is_refused() {
    let world = World::new().await;
    let which = world.create().await;
    let grace = Some(Duration::from_secs(10 * 60 * 60));
    for result in [
        world.engine.stop_sandbox(&world.who, &which, grace).await,
        world.engine.restart_sandbox(&world.who, &which, Some(Duration::MAX)).await,
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidRequest);
    }
    assert_eq!(world.state(&which).await, SandboxState::Running);
}

#[tokio::test]
async fn a_drain_that_is_given_up_leaves_the_other_one_waiting() {
    let world = World::new().await;
    let which = world.create().await;
    let spec = ExecSpec { stdin: true, ..ExecSpec::argv(["cat"]) };
    let exec = world.engine.exec(&world.who, &which, spec).await.unwrap();
    let patient = world.engine.drain_sandbox(&world.who, &which, None);
    let hasty = async {
        while !world.view(&which).await.draining {
            tokio::task::yield_now().await;
        }
        let time = Some(Duration::from_millis(20));
        let error = world.engine.drain_sandbox(&world.who, &which, time).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // The other caller still waits.
        let error = world.engine.exec(&world.who, &which, ExecSpec::shell("true")).await.unwrap_err();
        assert!(error.to_string().contains("draining"), "{error}");
        let end = super::support::bytes("bye");
        world.engine.exec_stdin(&world.who, &which, &exec.id, end, true).await.unwrap();
    };
    let (drained, ()) = in_time(async { tokio::join!(patient, hasty) }).await;
    assert_eq!(drained.unwrap().state, SandboxState::Stopped);
}

#[tokio::test]
async fn starts_that_come_at_once_are_one_start() {
    let world = World::new().await;
    let which = world.create().await;
    world.stop(&which).await;
    world.backend.delay_starts(Duration::from_millis(100));
    let started = join_all((0..5).map(|_| world.engine.start_sandbox(&world.who, &which))).await;
    assert!(started.iter().all(|view| view.as_ref().unwrap().state == SandboxState::Running), "{started:?}");
    assert_eq!(world.backend.live().len(), 1);

    // All of them learn of a failure, too.
    world.stop(&which).await;
    world.backend.fail_next_create(BackendError::Failed { what: "it broke".to_owned(), source: None });
    let (one, other) = tokio::join!(
        world.engine.start_sandbox(&world.who, &which),
        world.engine.start_sandbox(&world.who, &which)
    );
    assert!(one.is_err() && other.is_err());
}

#[tokio::test]
async fn labels_are_set_and_removed_or_nothing_changes() {
    let world = World::new().await;
    let which = world.create().await;
    let change = |key: &str, value: Option<&str>| {
        let changes = [(key.to_owned(), value.map(str::to_owned))].into();
        world.engine.relabel_sandbox(&world.who, &which, changes)
    };
    change("team", Some("x")).await.unwrap();
    for (key, value) in [("a b", "x"), ("", "x"), ("stage", "line\nbreak"), ("stage", &"x".repeat(2000))] {
        assert_eq!(change(key, Some(value)).await.unwrap_err().kind(), ErrorKind::InvalidRequest, "{key:?}");
    }
    assert_eq!(world.view(&which).await.spec.labels, [("team".to_owned(), "x".to_owned())].into());
    assert!(change("team", None).await.unwrap().spec.labels.is_empty());
}

#[tokio::test]
async fn a_port_accepts_connections_where_nothing_serves_it() {
    let world = World::new().await;
    let which = world.create().await;
    let connect = || world.engine.connect(&world.who, &which, Target::Tcp(44771));
    connect().await.unwrap_err();
    // The second time it is taken, by us.
    for _ in 0..2 {
        world.engine.occupy_port(&world.who, &which, 44771).await.unwrap();
    }
    drop(connect().await.unwrap());
}
