use engine::{Force, Principal, SandboxRef};
use futures_util::future::join_all;
use sandbox::{
    ByteSize, Capabilities, Capability, ErrorKind, KeySpec, Limit, Limits, Namespace, Next, RequestId,
    SandboxId, SandboxSpec,
};
use serde_json::json;

use super::support::{World, in_time};

async fn holder(world: &World, max_sandboxes: Option<u32>, max_memory: Option<ByteSize>) -> Principal {
    let namespace = Some(Namespace::default());
    let spec = KeySpec { namespace, max_sandboxes, max_memory, ..KeySpec::default() };
    let made = world.engine.create_key(&world.who, spec).await.unwrap();
    world.engine.authenticate_key(&made.secret).await.unwrap()
}

fn of_memory(memory: ByteSize) -> SandboxSpec {
    SandboxSpec { limits: Limits { memory: Some(memory), ..Limits::default() }, ..SandboxSpec::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_at_once_get_exactly_what_the_quota_allows() {
    let world = World::new().await;
    let who = holder(&world, Some(10), None).await;
    let creates = (0..50).map(|_| {
        let (engine, who) = (world.engine.clone(), who.clone());
        tokio::spawn(async move { engine.create_sandbox(&who, SandboxSpec::default()).await })
    });
    let results = in_time(join_all(creates)).await;
    let (made, refused): (Vec<_>, Vec<_>) = results.into_iter().map(Result::unwrap).partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (10, 40));
    for error in refused.into_iter().map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::LimitReached);
        assert!(
            error.to_string().contains("10") && error.next() == Some(&Next::Raise(Limit::KeySandboxes)),
            "{error:?}"
        );
    }
    assert_eq!(world.backend.live().len(), 10);
    // Others are not limited by it.
    world.create().await;
    let other = holder(&world, Some(1), None).await;
    world.engine.create_sandbox(&other, SandboxSpec::default()).await.unwrap();
}

#[tokio::test]
async fn what_is_stopped_counts_and_what_is_removed_does_not() {
    let world = World::new().await;
    let who = holder(&world, Some(1), None).await;
    let made = world.engine.create_sandbox(&who, SandboxSpec::default()).await.unwrap();
    assert_eq!(made.owner, who.key);
    let which: SandboxRef = made.id.into();
    world.engine.stop_sandbox(&who, &which, None).await.unwrap();
    let full = world.engine.create_sandbox(&who, SandboxSpec::default()).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::LimitReached);
    world.engine.remove_sandbox(&who, &which, Force::No).await.unwrap();
    world.engine.create_sandbox(&who, SandboxSpec::default()).await.unwrap();
}

#[tokio::test]
async fn a_create_that_fails_gives_its_place_back() {
    let world = World::new().await;
    let who = holder(&world, Some(1), Some(ByteSize::gib(1))).await;
    world
        .backend
        .fail_next_create(sandbox::BackendError::Failed { what: "it broke".to_owned(), source: None });
    world.engine.create_sandbox(&who, SandboxSpec::default()).await.unwrap_err();
    let taken = SandboxSpec { name: Some("box".parse().unwrap()), ..SandboxSpec::default() };
    world.create_named("box").await;
    let error = world.engine.create_sandbox(&who, taken).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    world.engine.create_sandbox(&who, SandboxSpec::default()).await.unwrap();
}

#[tokio::test]
async fn memory_is_summed_over_all_that_the_key_made() {
    let world = World::new().await;
    let who = holder(&world, None, Some(ByteSize::gib(1))).await;
    let create = async |memory| world.engine.create_sandbox(&who, of_memory(memory)).await;
    let first = create(ByteSize::mib(600)).await.unwrap();
    let error = create(ByteSize::mib(425)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert!(error.to_string().contains("1GiB") && error.to_string().contains("600MiB"), "{error}");
    assert!(error.next() == Some(&Next::Raise(Limit::KeyMemory)), "{error:?}");
    create(ByteSize::mib(424)).await.unwrap();
    world.engine.remove_sandbox(&who, &first.id.into(), Force::Yes).await.unwrap();
    create(ByteSize::mib(600)).await.unwrap();
}

#[tokio::test]
async fn a_changed_limit_counts_for_whoever_made_the_sandbox() {
    let world = World::new().await;
    let who = holder(&world, None, Some(ByteSize::gib(1))).await;
    let first = world.engine.create_sandbox(&who, of_memory(ByteSize::mib(32))).await.unwrap();
    let second = world.engine.create_sandbox(&who, of_memory(ByteSize::mib(32))).await.unwrap();
    let change = async |who: &Principal, id: &SandboxId, memory| {
        let limits = of_memory(ByteSize::mib(memory)).limits;
        world.engine.change_limits(who, &id.into(), limits).await
    };
    change(&who, &first.id, 600).await.unwrap();
    let error = change(&who, &second.id, 600).await.unwrap_err();
    assert_eq!((error.kind(), error.next()), (ErrorKind::LimitReached, Some(&Next::Raise(Limit::KeyMemory))));
    let error = world.engine.create_sandbox(&who, of_memory(ByteSize::mib(400))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    // Another key of the namespace, whose own quota is free, does not help.
    let friend = holder(&world, None, None).await;
    assert_eq!(change(&friend, &second.id, 600).await.unwrap_err().kind(), ErrorKind::LimitReached);
    // What is given back is free again.
    change(&who, &first.id, 100).await.unwrap();
    change(&friend, &second.id, 900).await.unwrap();
    change(&world.who, &first.id, 600).await.unwrap();
}

#[tokio::test]
async fn swap_counts_as_memory_and_so_does_a_tmpfs_that_no_memory_limit_holds() {
    let world = World::new().await;
    let who = holder(&world, None, Some(ByteSize::gib(1))).await;
    let mut swapping = of_memory(ByteSize::mib(512));
    swapping.limits.swap = Some(ByteSize::mib(513));
    let error = world.engine.create_sandbox(&who, swapping.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    swapping.limits.swap = Some(ByteSize::mib(512));
    let made = world.engine.create_sandbox(&who, swapping).await.unwrap();
    world.engine.remove_sandbox(&who, &made.id.into(), Force::Yes).await.unwrap();

    let capabilities = world.engine.capabilities().clone();
    let has = capabilities.has.iter().copied().filter(|one| *one != Capability::MemoryLimit).collect();
    world.backend.set_capabilities(Capabilities { has, ..capabilities });
    let world = world.restart().await;
    // By default 256 MiB of /tmp and 64 MiB of /dev/shm are added.
    let error = world.engine.create_sandbox(&who, of_memory(ByteSize::mib(705))).await.unwrap_err();
    assert!(error.to_string().contains("1025MiB"), "{error}");
    world.engine.create_sandbox(&who, of_memory(ByteSize::mib(704))).await.unwrap();
}

#[tokio::test]
async fn a_tmpfs_that_is_mounted_is_no_larger_than_memory_and_counts_where_no_limit_holds_it() {
    let world = World::new().await;
    let capabilities = world.engine.capabilities().clone();
    let has = capabilities.has.iter().copied().filter(|one| *one != Capability::MemoryLimit).collect();
    world.backend.set_capabilities(Capabilities { has, ..capabilities });
    let world = world.restart().await;
    let who = holder(&world, None, Some(ByteSize::gib(1))).await;
    let create = async |memory: u64, size: u64| {
        let mounts = json!([{ "kind": "tmpfs", "guestPath": "/a", "size": ByteSize::mib(size).bytes() }]);
        let mounts = serde_json::from_value(mounts).unwrap();
        let spec = SandboxSpec { mounts, ..of_memory(ByteSize::mib(memory)) };
        world.engine.create_sandbox(&who, spec).await
    };
    let error = create(352, 353).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.to_string().contains("353MiB") && error.to_string().contains("352MiB"), "{error}");
    // By default 256 MiB of /tmp and 64 MiB of /dev/shm are added.
    let error = create(353, 352).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    assert!(error.to_string().contains("1025MiB"), "{error}");
    create(352, 352).await.unwrap();
}

#[tokio::test]
async fn the_next_daemon_knows_whose_sandboxes_they_are() {
    let world = World::new().await;
    let who = holder(&world, Some(2), Some(ByteSize::gib(1))).await;
    world.engine.create_sandbox(&who, of_memory(ByteSize::mib(512))).await.unwrap();
    let world = world.crash().await;
    let error = world.engine.create_sandbox(&who, of_memory(ByteSize::mib(513))).await.unwrap_err();
    assert!(error.to_string().contains("512MiB"), "{error}");
    world.engine.create_sandbox(&who, of_memory(ByteSize::mib(512))).await.unwrap();
    let world = world.restart().await;
    let error = world.engine.create_sandbox(&who, of_memory(ByteSize::mib(4))).await.unwrap_err();
    assert!(error.to_string().contains("may have 2 sandboxes and already has 2"), "{error}");
}

#[tokio::test]
async fn the_same_request_again_needs_no_second_place() {
    let world = World::new().await;
    let who = holder(&world, Some(1), None).await;
    let request_id: Option<RequestId> = Some("once".parse().unwrap());
    let spec = SandboxSpec { request_id, ..SandboxSpec::default() };
    let first = world.engine.create_sandbox(&who, spec.clone()).await.unwrap();
    assert_eq!(world.engine.create_sandbox(&who, spec.clone()).await.unwrap().id, first.id);
    // The id is the key's own.
    let friend = holder(&world, None, None).await;
    let other = world.engine.create_sandbox(&friend, spec.clone()).await.unwrap();
    assert_ne!(other.id, first.id);
    assert_eq!(world.engine.create_sandbox(&friend, spec).await.unwrap().id, other.id);
}

#[tokio::test]
async fn what_would_not_fit_in_anothers_place_is_told_before_that_one_goes() {
    let world = World::with(|config| config.max_sandboxes = 3).await;
    let (ana, ben) =
        (holder(&world, Some(1), Some(ByteSize::gib(1))).await, holder(&world, Some(1), None).await);
    let replace = async |who, name: &str, memory| {
        let spec = SandboxSpec { name: Some(name.parse().unwrap()), ..of_memory(memory) };
        let which = name.parse().unwrap();
        let made = world.engine.replace_sandbox(who, spec, &which, None, engine::Progress::none()).await;
        made.map_err(|error| error.kind())
    };
    replace(&ana, "web", ByteSize::mib(600)).await.unwrap();
    // Its own sandbox makes room for its successor, which must fit all the same.
    let large = replace(&ana, "web", ByteSize::gib(1)).await.unwrap();
    assert_eq!(replace(&ana, "web", ByteSize::mib(1025)).await.unwrap_err(), ErrorKind::LimitReached);
    // Another key's sandbox does not.
    world.engine.create_sandbox(&ben, SandboxSpec::default()).await.unwrap();
    assert_eq!(replace(&ben, "web", ByteSize::mib(64)).await.unwrap_err(), ErrorKind::LimitReached);
    assert_eq!(world.view(&"web".parse().unwrap()).await.id, large.id);
    // The daemon's own limit does not count the replaced one.
    world.create().await;
    replace(&ana, "web", ByteSize::mib(64)).await.unwrap();
    assert_eq!(replace(&world.who, "none", ByteSize::mib(64)).await.unwrap_err(), ErrorKind::LimitReached);
    let reader = Principal { access: engine::Access::ReadOnly, ..ana.clone() };
    assert_eq!(replace(&reader, "web", ByteSize::mib(64)).await.unwrap_err(), ErrorKind::Denied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_request_many_times_at_once_needs_one_place() {
    let world = World::new().await;
    let who = holder(&world, Some(1), None).await;
    let spec = SandboxSpec { request_id: Some("once".parse().unwrap()), ..SandboxSpec::default() };
    let creates = (0..50).map(|_| {
        let (engine, who, spec) = (world.engine.clone(), who.clone(), spec.clone());
        tokio::spawn(async move { engine.create_sandbox(&who, spec).await })
    });
    let made = in_time(join_all(creates)).await.into_iter().map(|made| made.unwrap().unwrap().id);
    let ids: std::collections::HashSet<_> = made.collect();
    assert_eq!((ids.len(), world.backend.live().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_request_many_times_at_once_for_a_name_that_is_taken_is_refused_each_time() {
    let world = World::new().await;
    let who = holder(&world, Some(1), None).await;
    world.create_named("box").await;
    let (name, request_id) = (Some("box".parse().unwrap()), Some("once".parse().unwrap()));
    let spec = SandboxSpec { name, request_id, ..SandboxSpec::default() };
    let creates = (0..10).map(|_| {
        let (engine, who, spec) = (world.engine.clone(), who.clone(), spec.clone());
        tokio::spawn(async move { engine.create_sandbox(&who, spec).await })
    });
    for result in in_time(join_all(creates)).await {
        assert_eq!(result.unwrap().unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
}
