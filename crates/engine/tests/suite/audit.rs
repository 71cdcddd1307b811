use std::time::Duration;

use engine::{Call, CallFilter, CallRecord, Frontend, Principal};
use futures_util::{FutureExt, future::join_all};
use sandbox::{ErrorKind, KeySpec, SandboxSpec};

use super::support::{World, in_time};

fn call(action: &str) -> CallRecord {
    CallRecord {
        frontend: Frontend::Mcp,
        action: action.to_owned(),
        sandbox: None,
        namespace: None,
        outcome: Ok(()),
        duration: Duration::from_millis(12),
        client: Some("tester/1".to_owned()),
    }
}

async fn all(world: &World, who: &Principal) -> Vec<Call> {
    let filter = CallFilter { from: Some(1), limit: Some(u32::MAX), ..CallFilter::default() };
    world.engine.calls(who, filter).await.unwrap()
}

fn actions(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|call| call.action.as_str()).collect()
}

#[tokio::test]
async fn a_call_is_written_down_with_who_when_and_how_it_went() {
    let world = World::new().await;
    let made =
        world.engine.create_key(&world.who, KeySpec { label: Some("ci".to_owned()), ..KeySpec::default() });
    let who = world.engine.authenticate_key(&made.await.unwrap().secret).await.unwrap();
    let refused = CallRecord { outcome: Err("host_path_denied".to_owned()), ..call("sandbox_fs_copy") };
    world.engine.record_call(&who, refused).await;
    world
        .engine
        .record_unknown_call(CallRecord { frontend: Frontend::Rest, ..call("GET /v1/sandboxes") })
        .await;
    let calls = all(&world, &world.who).await;
    assert_eq!(actions(&calls), ["sandbox_fs_copy", "GET /v1/sandboxes"]);
    let first = &calls[0];
    assert_eq!((first.number, first.duration_ms, first.frontend), (1, 12, Frontend::Mcp));
    assert_eq!((first.who.as_deref(), &first.key), (Some("key ci"), &who.key));
    assert_eq!(
        (first.error.as_deref(), first.client.as_deref()),
        (Some("host_path_denied"), Some("tester/1"))
    );
    assert_eq!(first.at, "2026-01-01T00:00:00Z".parse().unwrap());
    assert_eq!((&calls[1].who, &calls[1].key, &calls[1].error), (&None, &None, &None));
}

#[tokio::test]
async fn a_principal_of_one_namespace_sees_the_calls_in_it() {
    let world = World::new().await;
    let red = Principal::of_namespace("ana", "red".parse().unwrap());
    let blue = Principal::of_namespace("ben", "blue".parse().unwrap());
    let spec = SandboxSpec { namespace: "red".parse().unwrap(), ..SandboxSpec::default() };
    let sandbox = world.create_from(spec).await.id.to_string();
    // Whatever namespace it names, it calls in its own.
    let foreign = CallRecord { namespace: Some("red".parse().unwrap()), ..call("blue asks for red") };
    world.engine.record_call(&blue, foreign).await;
    world.engine.record_call(&red, call("red asks")).await;
    world.engine.record_call(&world.who, call("the operator does something")).await;
    let about = CallRecord { sandbox: Some(sandbox), ..call("the operator does something to red") };
    world.engine.record_call(&world.who, about).await;
    let of_red = CallRecord { namespace: Some("red".parse().unwrap()), ..call("nobody asks red") };
    world.engine.record_unknown_call(of_red).await;

    assert_eq!(actions(&all(&world, &red).await), ["red asks", "the operator does something to red"]);
    assert_eq!(actions(&all(&world, &blue).await), ["blue asks for red"]);
    assert_eq!(all(&world, &world.who).await.len(), 5);
}

#[tokio::test]
async fn no_call_is_lost_however_many_come_at_once_and_a_close_writes_the_last() {
    let world = World::new().await;
    let n_calls = 5000;
    let calls = (0..n_calls).map(|n| world.engine.record_call(&world.who, call(&format!("call {n}"))));
    in_time(join_all(calls)).await;
    let world = world.restart().await;
    let calls = all(&world, &world.who).await;
    assert_eq!(calls.len(), n_calls);
    assert!(calls.windows(2).all(|pair| pair[1].number == pair[0].number + 1));
    let mut told: Vec<_> = actions(&calls);
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), n_calls);
}

#[tokio::test]
async fn callers_wait_while_the_store_refuses_and_nothing_is_missing_after() {
    let world = World::new().await;
    world.engine.record_call(&world.who, call("before")).await;
    assert_eq!(all(&world, &world.who).await.len(), 1);
    // Like on a full disk, the store accepts no more calls.
    let meddle = |sql: &str| {
        rusqlite::Connection::open(world.home.path().join("warren.db")).unwrap().execute_batch(sql).unwrap();
    };
    meddle("ALTER TABLE calls RENAME TO hidden");
    let n_calls = 3000;
    let actions: Vec<_> = (0..n_calls).map(|n| call(&format!("call {n}"))).collect();
    let calls = actions.into_iter().map(|call| world.engine.record_call(&world.who, call));
    let mut recording = Box::pin(join_all(calls));
    assert!(recording.as_mut().now_or_never().is_none(), "the queue has an end");
    // Some callers stop waiting; their entries are still stored.
    drop(recording);
    meddle("ALTER TABLE hidden RENAME TO calls");
    let is_complete = async {
        while all(&world, &world.who).await.len() <= n_calls {
            tokio::task::yield_now().await;
        }
    };
    in_time(is_complete).await;
    assert_eq!(all(&world, &world.who).await.len(), n_calls + 1);
}

#[tokio::test]
async fn lists_are_bounded_and_long_texts_are_cut() {
    let world = World::new().await;
    for n in 0..150 {
        world.engine.record_call(&world.who, call(&format!("call {n}"))).await;
    }
    let listed = world.engine.calls(&world.who, CallFilter::default()).await.unwrap();
    assert_eq!((listed.len(), listed[99].action.as_str()), (100, "call 149"));
    let long = CallRecord { sandbox: Some("é".repeat(100_000)), ..call(&"x".repeat(1_000_000)) };
    world.engine.record_call(&world.who, long).await;
    let last = CallFilter { limit: Some(1), ..CallFilter::default() };
    let last = world.engine.calls(&world.who, last).await.unwrap().remove(0);
    assert_eq!((last.action.len(), last.sandbox.unwrap().chars().count()), (256, 256));
    let by = CallFilter { who: Some("nobody".to_owned()), ..CallFilter::default() };
    assert!(world.engine.calls(&world.who, by).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_key_that_ended_reads_no_audit() {
    let world = World::new().await;
    let made = world.engine.create_key(&world.who, KeySpec::default()).await.unwrap();
    let who = world.engine.authenticate_key(&made.secret).await.unwrap();
    assert!(world.engine.calls(&who, CallFilter::default()).await.is_ok());
    world.engine.revoke_key(&world.who, made.key.id.as_str()).await.unwrap();
    let error = world.engine.calls(&who, CallFilter::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
}
