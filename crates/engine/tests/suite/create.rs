use std::{os::unix::fs::PermissionsExt, time::Duration};

use engine::{Force, SandboxFilter, SandboxRef};
use futures_util::future::join_all;
use sandbox::{BackendError, BackendKind, ErrorKind, EventKind, Next, Patch, SandboxSpec, SandboxState};

use super::support::{World, in_time};

#[tokio::test]
async fn a_new_sandbox_runs_and_has_a_name_a_plan_and_a_private_directory() {
    let world = World::new().await;
    let view = world.create_from(SandboxSpec::default()).await;

    assert_eq!(view.state, SandboxState::Running);
    assert_eq!(view.plan.hostname, view.name.as_str());
    assert_eq!(view.isolation.as_ref().unwrap().backend, BackendKind::Namespace);
    assert_eq!(world.backend.live(), std::slice::from_ref(&view.id));
    let directory = world.directory(&view);
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(directory.join("logs").is_dir());
    assert_eq!(world.event(EventKind::SandboxStarted).await.sandbox, Some(view.id.clone()));
    let record = world.store.sandbox(view.id).await.unwrap().unwrap();
    assert_eq!(record.state, SandboxState::Running);
}

#[tokio::test]
async fn two_creates_with_one_name_at_once_give_one_sandbox_and_one_refusal() {
    let world = World::new().await;
    let spec = SandboxSpec { name: Some("twin".parse().unwrap()), ..SandboxSpec::default() };
    let create = || world.engine.create_sandbox(&world.who, spec.clone());
    let (one, two) = tokio::join!(create(), create());

    let error = match (&one, &two) {
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => error,
        both => panic!("{both:?}"),
    };
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("twin") && error.next().is_some(), "{error}");
    assert_eq!(world.backend.live().len(), 1);
    assert_eq!(world.engine.sandboxes(&world.who, &SandboxFilter::default()).await.unwrap().len(), 1);
    world.remove(&"twin".parse().unwrap()).await;
    world.assert_nothing_left().await;
}

/// Whoever needs a sandbox of a name makes it, and uses the one that another caller made meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_is_told_that_a_name_is_taken_finds_the_sandbox_that_has_it() {
    let world = World::new().await;
    let (spec, twin): (_, SandboxRef) = (
        SandboxSpec { name: Some("twin".parse().unwrap()), ..SandboxSpec::default() },
        "twin".parse().unwrap(),
    );
    for _ in 0..10 {
        let found =
            join_all((0..16).map(
                async |_| match world.engine.create_sandbox(&world.who, spec.clone()).await {
                    Ok(view) => view.id,
                    Err(_taken) => world.engine.sandbox(&world.who, &twin).await.unwrap().id,
                },
            ))
            .await;
        assert!(found.iter().all(|id| *id == found[0]), "{found:?}");
        world.remove(&twin).await;
    }
}

#[tokio::test]
async fn the_same_request_sent_many_times_at_once_makes_one_sandbox() {
    let world = World::new().await;
    world.backend.delay_starts(Duration::from_millis(30));
    let spec = SandboxSpec { request_id: Some("req-1".parse().unwrap()), ..SandboxSpec::default() };
    let all = join_all((0..20).map(|_| world.engine.create_sandbox(&world.who, spec.clone()))).await;

    let first = all[0].as_ref().unwrap();
    assert!(all.iter().all(|view| view.as_ref().unwrap().id == first.id));
    assert!(all.iter().all(|view| view.as_ref().unwrap().state == SandboxState::Running));
    assert_eq!(world.backend.live().len(), 1);
    // Also long after, and by another daemon.
    let world = world.crash().await;
    assert_eq!(world.create_from(spec).await.id, first.id);
}

#[tokio::test]
async fn another_sandbox_under_a_known_request_is_refused() {
    let world = World::new().await;
    let spec = SandboxSpec { request_id: Some("r1".parse().unwrap()), ..SandboxSpec::default() };
    let patched =
        |text: &str| SandboxSpec { patches: vec![Patch::script("hello", text.to_owned())], ..spec.clone() };
    let first = world.create_from(patched("echo one")).await;
    assert_eq!(world.create_from(patched("echo one")).await.id, first.id);
    let world = world.crash().await;
    for other in [patched("echo two"), spec.clone(), SandboxSpec { cwd: Some("/tmp".to_owned()), ..spec }] {
        let error = world.engine.create_sandbox(&world.who, other).await.unwrap_err();
        let said = (error.kind(), error.to_string());
        let expected = "requestId r1 belongs to another request".to_owned();
        assert_eq!(said, (ErrorKind::InvalidRequest, expected));
    }
}

#[tokio::test]
async fn a_create_that_fails_says_why_and_leaves_nothing() {
    let world = World::new().await;
    for (error, kind) in [
        (BackendError::Exhausted { what: "no processes left".into(), next: None }, ErrorKind::LimitReached),
        (
            BackendError::Unsupported {
                what: "no namespaces".into(),
                next: Some(Next::Advice("Enable them.".into())),
            },
            ErrorKind::Unsupported,
        ),
        (
            BackendError::TimedOut { what: "starting".into(), after: Duration::from_secs(1) },
            ErrorKind::TimedOut,
        ),
        (BackendError::Failed { what: "could not mount".into(), source: None }, ErrorKind::Internal),
    ] {
        let what = error.to_string();
        world.backend.fail_next_create(error);
        let error = world.engine.create_sandbox(&world.who, named("hapless")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(&what) && error.to_string().contains("hapless"), "{error}");
        world.assert_nothing_left().await;
    }
    // The name is free again.
    world.create_named("hapless").await;
}

#[tokio::test]
async fn whoever_waited_for_the_same_request_learns_of_its_failure() {
    let world = World::new().await;
    world.backend.delay_starts(Duration::from_millis(20));
    for _ in 0..2 {
        world.backend.fail_next_create(BackendError::Failed { what: "could not mount".into(), source: None });
    }
    let spec = SandboxSpec { request_id: Some("req-2".parse().unwrap()), ..SandboxSpec::default() };
    let create = || world.engine.create_sandbox(&world.who, spec.clone());
    let (one, two) = tokio::join!(create(), create());
    assert_eq!(one.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(two.unwrap_err().kind(), ErrorKind::Internal);
    world.backend.fail_next_connects(0);
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn the_limit_of_sandboxes_is_held_and_told() {
    let world = World::with(|config| config.max_sandboxes = 2).await;
    let first = world.create().await;
    world.create().await;
    let error = world.engine.create_sandbox(&world.who, SandboxSpec::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert!(error.to_string().contains('2') && error.next().is_some());
    world.remove(&first).await;
    world.create().await;
}

#[tokio::test]
async fn a_home_that_is_gone_is_a_clear_error_and_costs_no_other_sandbox() {
    let world = World::new().await;
    let keeper = world.create_named("keeper").await;
    let (sandboxes, aside) = (world.home.path().join("sandboxes"), world.home.path().join("aside"));
    std::fs::rename(&sandboxes, &aside).unwrap();
    std::fs::write(&sandboxes, "not a directory").unwrap();

    let error = world.engine.create_sandbox(&world.who, SandboxSpec::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("sandboxes"), "{error}");

    std::fs::remove_file(&sandboxes).unwrap();
    std::fs::rename(&aside, &sandboxes).unwrap();
    assert_eq!(world.backend.live(), std::slice::from_ref(&keeper.id));
    assert_eq!(world.run(&keeper.id.into(), "echo fine").await.exit_code, Some(0));
}

#[tokio::test]
async fn a_directory_lost_while_stopped_is_named_and_the_sandbox_can_be_removed() {
    let world = World::new().await;
    let view = world.create_named("bare").await;
    let which: SandboxRef = view.id.clone().into();
    world.stop(&which).await;
    std::fs::remove_dir_all(world.directory(&view)).unwrap();

    let error = world.engine.start_sandbox(&world.who, &which).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(view.id.as_str()), "{error}");
    let after = world.view(&which).await;
    assert_eq!(after.state, SandboxState::Stopped);
    assert!(after.reason.is_some());
    world.engine.remove_sandbox(&world.who, &which, Force::No).await.unwrap();
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn filters_select_by_state_label_and_part_of_the_name() {
    let world = World::new().await;
    let mut spec = named("web-1");
    spec.labels.insert("team".into(), "red".into());
    world.create_from(spec).await;
    world.clock.advance(Duration::from_secs(1));
    let other = world.create_named("db-1").await;
    world.stop(&other.id.into()).await;

    let names = async |filter: SandboxFilter| -> Vec<String> {
        let found = world.engine.sandboxes(&world.who, &filter).await.unwrap();
        found.iter().map(|view| view.name.to_string()).collect()
    };
    let all = SandboxFilter::default();
    assert_eq!(names(all.clone()).await, ["web-1", "db-1"]);
    assert_eq!(names(SandboxFilter { states: vec![SandboxState::Stopped], ..all.clone() }).await, ["db-1"]);
    assert_eq!(
        names(SandboxFilter { labels: vec!["team=red".parse().unwrap()], ..all.clone() }).await,
        ["web-1"]
    );
    assert_eq!(
        names(SandboxFilter { labels: vec!["team=blue".parse().unwrap()], ..all.clone() }).await,
        [""; 0]
    );
    assert_eq!(names(SandboxFilter { name_contains: Some("b-1".into()), ..all }).await, ["web-1", "db-1"]);
}

#[tokio::test]
async fn a_burst_of_a_hundred_creates_and_removes_leaves_nothing() {
    let world = World::new().await;
    let made =
        in_time(join_all((0..100).map(|_| world.engine.create_sandbox(&world.who, SandboxSpec::default()))))
            .await;
    let made: Vec<SandboxRef> = made.into_iter().map(|view| view.unwrap().id.into()).collect();
    assert_eq!(world.backend.live().len(), 100);
    in_time(join_all(made.iter().map(|which| world.remove(which)))).await;
    world.assert_nothing_left().await;
}

fn named(name: &str) -> SandboxSpec {
    SandboxSpec { name: Some(name.parse().unwrap()), ..SandboxSpec::default() }
}

#[tokio::test]
async fn a_name_that_is_taken_leaves_no_directory() {
    let world = World::new().await;
    let first = world.create_named("taken").await;
    let spec = SandboxSpec { name: Some("taken".parse().unwrap()), ..SandboxSpec::default() };
    let error = world.engine.create_sandbox(&world.who, spec).await.unwrap_err();
    assert_eq!(error.kind(), sandbox::ErrorKind::AlreadyExists);
    let directories = std::fs::read_dir(world.home.path().join("sandboxes")).unwrap();
    let left: Vec<_> = directories.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [std::ffi::OsString::from(first.id.as_str())]);
}
