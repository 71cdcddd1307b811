use std::time::Duration;

use engine::{SandboxRef, SandboxView, SignalScope};
use sandbox::{ErrorKind, EventKind, ExecSpec, Lifetime, OnExpiry, SandboxSpec, SandboxState};

use super::support::{World, in_time};

const MINUTE: Duration = Duration::from_secs(60);

fn lifetime(ttl: Option<Duration>, idle: Option<Duration>, on_expiry: OnExpiry) -> SandboxSpec {
    SandboxSpec { lifetime: Lifetime { ttl, idle, on_expiry }, ..SandboxSpec::default() }
}

async fn gone(world: &World, which: &SandboxRef) {
    in_time(async {
        while world.engine.sandbox(&world.who, which).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Lets drivers check the clock, then returns whether the sandbox still runs.
async fn still_runs(world: &World, which: &SandboxRef) -> bool {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    // A round trip to the guest gives a pending probe time to return.
    world.engine.processes(&world.who, which).await.is_ok()
        && world.state(which).await == SandboxState::Running
}

#[tokio::test]
async fn a_sandbox_stops_when_its_time_is_up_and_keeps_its_files() {
    let world = World::new().await;
    let view = world.create_from(lifetime(Some(10 * MINUTE), None, OnExpiry::Stop)).await;
    let which: SandboxRef = view.id.clone().into();
    world.write(&which, "/root/kept", "yes").await;
    world.start_exec(&which, "sleep 1000").await;
    assert_eq!(view.expires_at, Some("2026-01-01T00:10:00Z".parse().unwrap()));

    world.clock.advance(9 * MINUTE);
    assert!(still_runs(&world, &which).await);
    world.clock.advance(MINUTE);
    let view = world.wait_for(&which, SandboxState::Stopped).await;
    assert!(view.reason.unwrap().contains("time"));
    assert_eq!(view.expires_at, None);
    assert_eq!(world.event(EventKind::SandboxExpired).await.sandbox, Some(view.id));
    // A new start begins a new lifetime.
    let view = world.engine.start_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(view.expires_at, Some("2026-01-01T00:20:00Z".parse().unwrap()));
    assert_eq!(world.read(&which, "/root/kept").await, "yes");
}

#[tokio::test]
async fn a_sandbox_can_be_removed_when_its_time_is_up() {
    let world = World::new().await;
    let which = world.create_from(lifetime(Some(MINUTE), None, OnExpiry::Remove)).await.id.into();
    let stopped = world.create_from(lifetime(Some(MINUTE), None, OnExpiry::Remove)).await.id.into();
    world.stop(&stopped).await;
    world.clock.advance(MINUTE);
    gone(&world, &which).await;
    gone(&world, &stopped).await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn lifetimes_survive_the_daemon() {
    let world = World::new().await;
    let ttl: SandboxRef =
        world.create_from(lifetime(Some(10 * MINUTE), None, OnExpiry::Stop)).await.id.into();
    let idle: SandboxRef =
        world.create_from(lifetime(None, Some(10 * MINUTE), OnExpiry::Stop)).await.id.into();
    world.clock.advance(5 * MINUTE);
    let world = world.crash().await;
    assert!(still_runs(&world, &ttl).await && still_runs(&world, &idle).await);
    // The time without a daemon counts.
    let clock = world.clock.clone();
    clock.advance(5 * MINUTE);
    let world = world.crash().await;
    world.wait_for(&ttl, SandboxState::Stopped).await;
    world.wait_for(&idle, SandboxState::Stopped).await;
}

#[tokio::test]
async fn an_idle_sandbox_stops_and_a_used_one_does_not() {
    let world = World::new().await;
    let which: SandboxRef =
        world.create_from(lifetime(None, Some(10 * MINUTE), OnExpiry::Stop)).await.id.into();
    for _ in 0..5 {
        world.clock.advance(9 * MINUTE);
        assert!(still_runs(&world, &which).await);
        world.run(&which, "true").await;
    }
    // A running command counts as use.
    let exec = world.start_exec(&which, "sleep 1000").await;
    for _ in 0..5 {
        world.clock.advance(20 * MINUTE);
        assert!(still_runs(&world, &which).await);
    }
    world.engine.exec_signal(&world.who, &which, &exec.id, 9, SignalScope::Group).await.unwrap();
    world.wait(&which, &exec.id).await;
    assert!(world.view(&which).await.idle_since.is_some());
    let view = stopped_when_idle(&world, &which).await;
    assert!(view.reason.unwrap().contains("idle"));
}

/// Lets ten minutes pass, and ten more, until the sandbox has stopped: the last sign of work may come in the midst of
/// them.
async fn stopped_when_idle(world: &World, which: &SandboxRef) -> SandboxView {
    in_time(async {
        loop {
            world.clock.advance(10 * MINUTE);
            let patience = Some(Duration::from_secs(5));
            let waited = world.engine.wait_sandbox(&world.who, which, SandboxState::Stopped, patience).await;
            if let Ok(view) = waited {
                return view;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_process_left_in_the_background_is_work() {
    let world = World::new().await;
    let which: SandboxRef =
        world.create_from(lifetime(None, Some(10 * MINUTE), OnExpiry::Stop)).await.id.into();
    let exec = world.run(&which, "sleep 1000 & echo started").await;
    assert_eq!(exec.exit_code, Some(0));
    for _ in 0..5 {
        world.clock.advance(20 * MINUTE);
        assert!(still_runs(&world, &which).await);
    }
    // An open stream counts as work too, with nothing else alive.
    let other: SandboxRef =
        world.create_from(lifetime(None, Some(10 * MINUTE), OnExpiry::Stop)).await.id.into();
    let stream = world.engine.watch(&world.who, &other, "/root", false).await.unwrap();
    world.clock.advance(60 * MINUTE);
    assert!(still_runs(&world, &other).await);
    drop(stream);
    stopped_when_idle(&world, &other).await;
}

#[tokio::test]
async fn a_guest_that_cannot_answer_is_no_idle_guest_until_it_failed_for_long() {
    let world = World::impatient().await;
    world.backend.be_hostile(test_backend::Hostility::NoHello, 1_000_000);
    let which: SandboxRef =
        world.create_from(lifetime(None, Some(20 * MINUTE), OnExpiry::Stop)).await.id.into();
    let mut n_limits = 0;
    in_time(async {
        while world.state(&which).await == SandboxState::Running {
            world.clock.advance(20 * MINUTE);
            n_limits += 1;
            for _ in 0..2000 {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    // It does not live forever, but survives a single failed probe.
    assert!(n_limits >= 4, "gone after {n_limits}");
    let view = world.wait_for(&which, SandboxState::Stopped).await;
    assert!(view.reason.unwrap().contains("idle"));
}

#[tokio::test]
async fn renewing_counts_from_now() {
    let world = World::new().await;
    let which: SandboxRef =
        world.create_from(lifetime(Some(10 * MINUTE), None, OnExpiry::Stop)).await.id.into();
    world.clock.advance(9 * MINUTE);
    let renewed = Lifetime { ttl: Some(10 * MINUTE), ..Lifetime::default() };
    let view = world.engine.renew_sandbox(&world.who, &which, renewed).await.unwrap();
    assert_eq!(view.expires_at, Some("2026-01-01T00:19:00Z".parse().unwrap()));
    world.clock.advance(9 * MINUTE);
    assert!(still_runs(&world, &which).await);
    world.event(EventKind::SandboxRenewed).await;
    let view = world.engine.renew_sandbox(&world.who, &which, Lifetime::default()).await.unwrap();
    assert_eq!(view.expires_at, None);
    world.clock.advance(1000 * MINUTE);
    assert!(still_runs(&world, &which).await);
}

#[tokio::test]
async fn lifetimes_of_no_length_are_refused() {
    let world = World::new().await;
    for (ttl, idle) in [(Some(Duration::ZERO), None), (None, Some(Duration::ZERO))] {
        let spec = lifetime(ttl, idle, OnExpiry::Stop);
        let error = world.engine.create_sandbox(&world.who, spec.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        let which = world.create().await;
        let error = world.engine.renew_sandbox(&world.who, &which, spec.lifetime).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
    // The longest possible values overflow nothing.
    let spec = lifetime(Some(Duration::MAX), Some(Duration::from_millis(u64::MAX)), OnExpiry::Stop);
    let which = world.create_from(spec).await.id.into();
    world.clock.advance(1000 * MINUTE);
    assert!(still_runs(&world, &which).await);
    world.engine.exec(&world.who, &which, ExecSpec::shell("true")).await.unwrap();
}

#[tokio::test]
async fn a_renewal_that_comes_too_late_is_refused() {
    for on_expiry in [OnExpiry::Stop, OnExpiry::Remove] {
        let world = World::new().await;
        let which: SandboxRef = world.create_from(lifetime(Some(MINUTE), None, on_expiry)).await.id.into();
        // Makes the stop take a while.
        let exec = world.start_exec(&which, "trap '' TERM; echo stubborn; sleep 1000").await;
        world.printed(&which, &exec.id, "stubborn").await;
        world.clock.advance(MINUTE);
        world.wait_for(&which, SandboxState::Stopping).await;
        let renewed = Lifetime { ttl: Some(10 * MINUTE), ..Lifetime::default() };
        let error = world.engine.renew_sandbox(&world.who, &which, renewed.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongState);
        assert!(error.to_string().contains("its lifetime ended"), "{error}");
        match on_expiry {
            OnExpiry::Stop => {
                world.engine.stop_sandbox(&world.who, &which, Some(Duration::ZERO)).await.unwrap();
                let error =
                    world.engine.renew_sandbox(&world.who, &which, renewed.clone()).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::WrongState);
                // It can be started again.
                world.engine.start_sandbox(&world.who, &which).await.unwrap();
                world.engine.renew_sandbox(&world.who, &which, renewed).await.unwrap();
                assert!(still_runs(&world, &which).await);
            }
            OnExpiry::Remove => {
                drop(world.engine.remove_sandbox(&world.who, &which, engine::Force::Yes).await);
                gone(&world, &which).await;
                let error = world.engine.renew_sandbox(&world.who, &which, renewed).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NotFound);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_answered_holds() {
    let world = World::new().await;
    let mut all: Vec<SandboxRef> = Vec::new();
    for n in 0..40 {
        let on_expiry = if n % 2 == 0 { OnExpiry::Stop } else { OnExpiry::Remove };
        all.push(world.create_from(lifetime(Some(MINUTE), None, on_expiry)).await.id.into());
    }
    let renewed = || Lifetime { ttl: Some(10 * MINUTE), ..Lifetime::default() };
    let renewals: Vec<_> = all
        .iter()
        .map(|which| {
            let (engine, who, which) = (world.engine.clone(), world.who.clone(), which.clone());
            tokio::spawn(async move {
                let renewal = engine.renew_sandbox(&who, &which, renewed()).await;
                (which, renewal)
            })
        })
        .collect();
    world.clock.advance(MINUTE);
    for renewal in renewals {
        let (which, renewal) = in_time(renewal).await.unwrap();
        match renewal {
            Ok(_) => assert!(still_runs(&world, &which).await),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WrongState | ErrorKind::NotFound), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_renewal_waits_for_a_start_that_is_on_its_way() {
    let world = World::new().await;
    let which: SandboxRef = world.create_from(lifetime(Some(MINUTE), None, OnExpiry::Stop)).await.id.into();
    world.stop(&which).await;
    world.backend.delay_starts(Duration::from_millis(100));
    for does_start in [false, true] {
        if !does_start {
            let what = "it broke".to_owned();
            world.backend.fail_next_create(sandbox::BackendError::Failed { what, source: None });
        }
        let (engine, who, name) = (world.engine.clone(), world.who.clone(), which.clone());
        let start = tokio::spawn(async move { engine.start_sandbox(&who, &name).await });
        world.wait_for(&which, SandboxState::Creating).await;
        let renewed = Lifetime { ttl: Some(10 * MINUTE), ..Lifetime::default() };
        let renewal = in_time(world.engine.renew_sandbox(&world.who, &which, renewed)).await;
        assert_eq!(in_time(start).await.unwrap().is_ok(), does_start);
        // A renewed sandbox is found running.
        match renewal {
            Ok(view) => assert!(does_start && view.state == SandboxState::Running, "{view:?}"),
            Err(error) => assert!(!does_start && error.kind() == ErrorKind::WrongState, "{error}"),
        }
    }
}
