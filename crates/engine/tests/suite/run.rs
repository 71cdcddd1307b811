//! Following execs to their end, and sandboxes created and started on demand.

use std::time::Duration;

use engine::{Ensured, Entry, Run, RunEnd, RunOptions, SandboxIdentity};
use futures_util::{FutureExt, future::BoxFuture};
use sandbox::{Error, ErrorKind, ExecOutcome, ExecSpec, KillReason, SandboxSpec, SandboxState};
use tokio_util::sync::CancellationToken;

use super::support::{EntryKind, World, in_time, text};

/// All entries, and the end.
async fn to_the_end(mut run: Run) -> (Vec<Entry>, RunEnd) {
    let mut entries = Vec::new();
    while let Some(entry) = in_time(run.next()).await {
        entries.push(entry.unwrap());
    }
    (entries, in_time(run.end()).await.unwrap())
}

#[tokio::test]
async fn a_run_is_fed_and_hands_over_all_that_happens() {
    let world = World::new().await;
    let which = world.create().await;
    let spec = ExecSpec { stdin: true, request_id: Some("r-1".parse().unwrap()), ..ExecSpec::argv(["cat"]) };
    // A repeated request follows the same exec, and does not write to it again.
    for _ in 0..2 {
        let exec = world.engine.exec(&world.who, &which, spec.clone()).await.unwrap();
        let options = RunOptions { stdin: Some("fed\n".into()), ..RunOptions::default() };
        let run = world.engine.run_to_end(&world.who, &exec, options).await.unwrap();
        let (entries, end) = to_the_end(run).await;
        assert_eq!(text(&entries, EntryKind::Stdin), "fed\n");
        assert_eq!(text(&entries, EntryKind::Stdout), "fed\n");
        assert_eq!(end, RunEnd::Ended(ExecOutcome::exited(0)));
    }
}

#[tokio::test]
async fn a_run_that_is_cancelled_ends_its_exec_also_when_its_key_was_revoked() {
    let world = World::new().await;
    let which = world.create().await;
    let made = world.engine.create_key(&world.who, Default::default()).await.unwrap();
    let who = world.engine.authenticate_key(&made.secret).await.unwrap();
    let exec = world.engine.exec(&who, &which, ExecSpec::shell("echo begun; sleep 1000")).await.unwrap();
    let token = CancellationToken::new();
    let options = RunOptions { cancelled: Some(token.clone()), ..RunOptions::default() };
    let mut run = world.engine.run_to_end(&who, &exec, options).await.unwrap();
    while in_time(run.next()).await.is_some_and(|entry| entry.unwrap().output().is_none()) {}
    world.engine.revoke_key(&world.who, made.key.id.as_str()).await.unwrap();
    token.cancel();
    let (_, end) = to_the_end(run).await;
    assert_eq!(end, RunEnd::Cancelled(Some(ExecOutcome::Killed { reason: KillReason::Request })));
}

#[tokio::test]
async fn who_leaves_a_run_leaves_it_running() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.start_exec(&which, "sleep 1000").await;
    let options = RunOptions { leave_after: Some(Duration::ZERO), ..RunOptions::default() };
    let run = world.engine.run_to_end(&world.who, &exec, options).await.unwrap();
    assert_eq!(to_the_end(run).await.1, RunEnd::Left);
    let view = world.engine.exec_view(&world.who, &which, &exec.id).await.unwrap();
    assert_eq!(view.outcome, None);
}

#[tokio::test]
async fn a_run_whose_log_was_lost_ends_as_its_record_says() {
    let world = World::new().await;
    let view = world.create_named("box").await;
    let which = (&view.id).into();
    let exec = world.run(&which, "exit 3").await;
    std::fs::remove_dir_all(world.directory(&view).join("logs").join(exec.id.as_str())).unwrap();
    let world = world.restart().await;
    let mut run = world.engine.run_to_end(&world.who, &exec, RunOptions::default()).await.unwrap();
    assert!(in_time(run.next()).await.unwrap().is_err(), "what is missing is an error in its place");
    assert_eq!(to_the_end(run).await.1, RunEnd::Ended(ExecOutcome::exited(3)));
}

#[tokio::test]
async fn a_stopped_sandbox_is_started_for_an_exec() {
    let world = World::new().await;
    let which = world.create().await;
    assert!(world.engine.ensure_running(&world.who, &which).await.unwrap().is_none(), "it runs already");
    world.stop(&which).await;
    let exec = world.engine.exec(&world.who, &which, ExecSpec::shell("true")).await.unwrap_err();
    assert_eq!(exec.kind(), ErrorKind::WrongState);
    let spec = ExecSpec::shell("true");
    let (exec, started) = world.engine.exec_ensuring_running(&world.who, &which, spec).await.unwrap();
    assert_eq!(started.map(|view| view.state), Some(SandboxState::Running));
    assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some(0));
}

#[tokio::test]
async fn callers_with_one_request_make_one_sandbox() {
    let world = World::new().await;
    let identity = SandboxIdentity { request_id: Some("r-1".parse().unwrap()), ..Default::default() };
    let (one, other) =
        in_time(async { tokio::join!(ensure(&world, &identity), ensure(&world, &identity)) }).await;
    assert_eq!(one.view.id, other.view.id);
    assert!(one.is_new != other.is_new, "one of them made it");
    // The turns are the engine's, not the process's.
    let elsewhere = World::new().await;
    assert!(in_time(ensure(&elsewhere, &identity)).await.is_new);
}

/// On the heap: making a sandbox is a large future, and a test's stack is small.
fn ensure<'a>(world: &'a World, identity: &'a SandboxIdentity) -> BoxFuture<'a, Ensured> {
    let spec = SandboxSpec { request_id: identity.request_id.clone(), ..SandboxSpec::default() };
    let make = async move {
        let view = world.engine.create_sandbox(&world.who, spec).await?;
        Ok::<_, Error>(Ensured { view, is_new: true })
    };
    let make = make.boxed();
    async move { world.engine.ensure_exists(&world.who, identity, make).await.unwrap() }.boxed()
}

#[tokio::test]
async fn a_sandbox_of_the_wanted_name_is_used_and_nothing_is_made() {
    let world = World::new().await;
    let known = world.create_named("box").await;
    let identity = SandboxIdentity { which: Some("box".parse().unwrap()), ..Default::default() };
    let never = async { Err(Error::invalid("made again")) };
    let found = world.engine.ensure_exists(&world.who, &identity, never).await.unwrap();
    assert_eq!((found.view.id, found.is_new), (known.id, false));
    let identity = SandboxIdentity { which: Some("other".parse().unwrap()), ..Default::default() };
    let refused = async { Err(Error::invalid("not made")) };
    let error = world.engine.ensure_exists(&world.who, &identity, refused).await.unwrap_err();
    assert_eq!(error.to_string(), "not made");
    // Another caller was faster, which is just as good.
    let identity = SandboxIdentity { which: Some("late".parse().unwrap()), ..Default::default() };
    let taken = async {
        world.create_named("late").await;
        Err(Error::new(ErrorKind::AlreadyExists, "taken"))
    };
    assert!(!world.engine.ensure_exists(&world.who, &identity, taken).await.unwrap().is_new);
}
