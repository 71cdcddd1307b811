//! Replacing a sandbox: one of the two always exists.

use std::time::Duration;

use engine::{Progress, SandboxRef, SandboxView};
use sandbox::{BackendError, ErrorKind, Patch, Result, SandboxSpec, SandboxState};

use super::support::{World, in_time};

fn named(name: &str) -> SandboxSpec {
    SandboxSpec { name: Some(name.parse().unwrap()), ..SandboxSpec::default() }
}

fn reference(name: &str) -> SandboxRef {
    SandboxRef::new(name, None).unwrap()
}

async fn replace(world: &World, spec: SandboxSpec) -> Result<SandboxView> {
    let (which, grace) = (reference("web"), Some(Duration::from_secs(1)));
    world.engine.replace_sandbox(&world.who, spec, &which, grace, Progress::none()).await
}

/// Goes away when the earlier one is set aside and the new one does not run yet.
async fn begin_to_replace(world: &World) {
    let is_put_aside = async {
        // Its record, and that of its replacement in the making.
        while world.store.sandboxes(None).await.unwrap().records.len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    in_time(async {
        tokio::select! { made = replace(world, named("web")) => panic!("{made:?}"), () = is_put_aside => {} }
    })
    .await;
}

/// Records that the old one had the new one's name.
async fn put_aside(world: &World, old: &SandboxView, new: &SandboxView) {
    let mut record = world.store.sandbox(old.id.clone()).await.unwrap().unwrap();
    record.spec.name = Some(new.name.clone());
    world.store.update_sandbox(record).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_takes_the_place_of_another_even_where_there_is_room_for_one() {
    let world = World::with(|config| config.max_sandboxes = 1).await;
    // The first has nothing to replace.
    let first = replace(&world, named("web")).await.unwrap();
    world.write(&reference("web"), "/root/a", "1").await;
    let second = replace(&world, named("web")).await.unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(world.view(&reference("web")).await.id, second.id);
    assert_eq!(world.backend.live(), std::slice::from_ref(&second.id));
    assert_eq!(world.store.sandboxes(None).await.unwrap().records.len(), 1);
    assert!(!world.directory(&first).exists());
    world.remove(&second.id.into()).await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn one_that_cannot_be_made_does_not_cost_the_one_it_would_replace() {
    let world = World::new().await;
    let old = world.create_named("web").await;
    world.write(&reference("web"), "/root/a", "1").await;
    let file = |content: &str| Patch::Text {
        path: "/root/b".to_owned(),
        content: content.to_owned(),
        mode: None,
        replace: false,
    };
    let missing = r#"{"name":"web","mounts":[{"kind":"named","guestPath":"/d","name":"none"}]}"#;
    for (spec, kind) in [
        // Found before anything happens, by the back end, and only inside.
        (serde_json::from_str(missing).unwrap(), ErrorKind::NotFound),
        (named("web"), ErrorKind::LimitReached),
        (SandboxSpec { patches: vec![file("1"), file("2")], ..named("web") }, ErrorKind::AlreadyExists),
    ] {
        if kind == ErrorKind::LimitReached {
            let what = "no memory is left".to_owned();
            world.backend.fail_next_create(BackendError::Exhausted { what, next: None });
        }
        assert_eq!(replace(&world, spec).await.unwrap_err().kind(), kind);
        let now = world.view(&reference("web")).await;
        assert_eq!((&now.id, now.state), (&old.id, SandboxState::Running));
        assert_eq!(world.read(&reference("web"), "/root/a").await, "1");
        assert_eq!(world.store.sandboxes(None).await.unwrap().records.len(), 1);
    }
}

#[tokio::test]
async fn those_who_replace_the_same_one_at_once_take_turns() {
    let world = World::new().await;
    world.create_named("web").await;
    let all = futures_util::future::join_all((0..4).map(|_| replace(&world, named("web")))).await;
    for made in &all {
        assert!(!format!("{:?}", made.as_ref().unwrap().warnings).contains("still there"), "{made:?}");
    }
    assert_eq!(world.store.sandboxes(None).await.unwrap().records.len(), 1);
    assert_eq!(world.backend.live(), [world.view(&reference("web")).await.id]);
}

#[tokio::test]
async fn a_caller_who_goes_away_in_the_middle_leaves_the_new_one() {
    let world = World::new().await;
    let old = world.create_named("web").await;
    world.backend.delay_starts(Duration::from_millis(50));
    begin_to_replace(&world).await;
    in_time(async {
        while world.store.sandbox(old.id.clone()).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let now = world.view(&reference("web")).await;
    assert_eq!((now.id != old.id, now.state), (true, SandboxState::Running));
}

#[tokio::test]
async fn one_that_was_replaced_is_gone_wherever_the_daemon_dies() {
    let world = World::new().await;
    let (old, new) = (world.create_named("web-replaced-1").await, world.create_named("web").await);
    // As left by a daemon that dies when the new one runs and the earlier one is not removed yet.
    put_aside(&world, &old, &new).await;
    let mut record = world.store.sandbox(new.id.clone()).await.unwrap().unwrap();
    record.replaces = Some(old.id.clone());
    world.store.update_sandbox(record).await.unwrap();
    let world = world.crash().await;
    assert_eq!(world.view(&reference("web")).await.id, new.id);
    assert_eq!(world.backend.live(), std::slice::from_ref(&new.id));
    assert_eq!(world.store.sandboxes(None).await.unwrap().records.len(), 1);
    assert!(!world.directory(&old).exists());
}

#[tokio::test]
async fn one_that_was_replaced_and_cannot_be_removed_is_told_of_and_never_takes_the_name_again() {
    let world = World::new().await;
    let old = world.create_named("web").await;
    world.backend.fail_next_removal(BackendError::Failed { what: "no way".to_owned(), source: None });
    let new = replace(&world, named("web")).await.unwrap();
    let kept = world.view(&SandboxRef::from(&old.id)).await.name;
    assert!(new.warnings.iter().any(|warning| warning.contains(kept.as_str())), "{:?}", new.warnings);
    world.remove(&reference("web")).await;
    let world = world.crash().await;
    assert_eq!(world.view(&SandboxRef::from(&old.id)).await.name, kept);
    let gone = world.engine.sandbox(&world.who, &reference("web")).await;
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn one_whose_name_was_taken_before_it_could_be_given_back_goes_by_the_other() {
    let world = World::new().await;
    let (old, new) = (world.create_named("old").await, world.create_named("web").await);
    put_aside(&world, &old, &new).await;
    let world = world.crash().await;
    assert_eq!(world.view(&reference("web")).await.id, new.id);
    world.remove(&reference("web")).await;
    let world = world.crash().await;
    assert_eq!(world.view(&reference("old")).await.id, old.id);
    let gone = world.engine.sandbox(&world.who, &reference("web")).await;
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_daemon_that_dies_in_the_middle_leaves_the_earlier_one_under_its_own_name() {
    let world = World::new().await;
    let old = world.create_named("web").await;
    world.write(&reference("web"), "/root/a", "1").await;
    world.backend.delay_starts(Duration::from_secs(600));
    begin_to_replace(&world).await;
    let kept = world.store.sandbox(old.id.clone()).await.unwrap().unwrap();
    assert!(kept.name.as_str().starts_with("web-replaced-"), "{}", kept.name);

    let world = world.crash().await;
    // Not earlier: the unfinished one must never run.
    world.backend.delay_starts(Duration::ZERO);
    in_time(world.engine.settled()).await;
    let now = world.view(&reference("web")).await;
    assert_eq!((&now.id, now.state), (&old.id, SandboxState::Stopped));
    world.engine.start_sandbox(&world.who, &reference("web")).await.unwrap();
    assert_eq!(world.read(&reference("web"), "/root/a").await, "1");
    assert_eq!(world.store.sandboxes(None).await.unwrap().records.len(), 1);
}
