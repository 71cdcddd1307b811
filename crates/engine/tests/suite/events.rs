use engine::{Follow, Force};
use futures_util::{StreamExt, TryStreamExt, future::join_all};
use sandbox::{ErrorKind, EventKind};

use super::support::{World, in_time};

#[tokio::test]
async fn a_life_is_told_in_order_and_read_again_from_any_number() {
    let world = World::new().await;
    let which = world.create().await;
    world.engine.pause_sandbox(&world.who, &which).await.unwrap();
    world.engine.resume_sandbox(&world.who, &which).await.unwrap();
    world.stop(&which).await;
    world.remove(&which).await;
    world.event(EventKind::SandboxRemoved).await;

    let read = async |from| -> Vec<(u64, EventKind)> {
        let events = world.engine.events(&world.who, Some(from), Follow::No).await.unwrap();
        events.map_ok(|event| (event.number, event.kind)).try_collect().await.unwrap()
    };
    let all = read(0).await;
    let kinds: Vec<_> = all.iter().map(|(_, kind)| *kind).collect();
    assert_eq!(
        kinds,
        [
            EventKind::SandboxCreated,
            EventKind::SandboxStarted,
            EventKind::SandboxPaused,
            EventKind::SandboxResumed,
            EventKind::SandboxStopped,
            EventKind::SandboxRemoved
        ]
    );
    assert_eq!(read(all[3].0).await, all[3..]);
}

#[tokio::test]
async fn a_number_of_lost_records_is_refused() {
    let world = World::new().await;
    world.create().await;
    world.event(EventKind::SandboxStarted).await;
    let upcoming = world.engine.last_event_number() + 1;
    for follow in [Follow::Yes, Follow::No] {
        assert!(world.engine.events(&world.who, Some(upcoming), follow).await.is_ok());
        let refused = world.engine.events(&world.who, Some(upcoming + 1), follow).await;
        let error = refused.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().contains(&format!("the next one has the number {upcoming}")), "{error}");
    }
}

#[tokio::test]
async fn a_follower_gets_every_event_once_however_slowly_it_reads() {
    let world = World::new().await;
    let which = world.create().await;
    let mut events = world.engine.events(&world.who, Some(0), Follow::Yes).await.unwrap();
    // Far more than one read returns, while the follower does not read.
    in_time(join_all((0..300).map(|_| world.run(&which, "true")))).await;
    world.stop(&which).await;
    let mut numbers = Vec::new();
    in_time(async {
        while let Some(event) = events.next().await {
            let event = event.unwrap();
            numbers.push(event.number);
            if event.kind == EventKind::SandboxStopped {
                break;
            }
        }
    })
    .await;
    assert!(numbers.len() > 600);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "gaps or doubles");
}

#[tokio::test]
async fn from_now_on_means_from_now_on_also_after_a_restart() {
    let world = World::new().await;
    let which = world.create().await;
    world.run(&which, "true").await;
    world.event(EventKind::ExecEnded).await;
    let world = world.restart().await;
    let mut events = world.engine.events(&world.who, None, Follow::Yes).await.unwrap();
    world.engine.pause_sandbox(&world.who, &which).await.unwrap();
    // The adoption itself may still be reported; nothing older is.
    let first = in_time(events.next()).await.unwrap().unwrap();
    assert!(matches!(first.kind, EventKind::SandboxAdopted | EventKind::SandboxPaused), "{first:?}");
}

#[tokio::test]
async fn followers_end_when_the_engine_closes() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.start_exec(&which, "sleep 1000").await;
    let events = world.engine.events(&world.who, None, Follow::Yes).await.unwrap();
    let entries = world.engine.exec_entries(&world.who, &which, &exec.id, 1, Follow::Yes).await.unwrap();
    let close = world.engine.close();
    in_time(async { tokio::join!(events.count(), entries.count(), close) }).await;
}

#[tokio::test]
async fn errors_and_events_name_a_sandbox_by_its_new_name() {
    let world = World::new().await;
    let which = world.create().await;
    let before = world.engine.sandbox(&world.who, &which).await.unwrap().name;
    world.engine.rename_sandbox(&world.who, &which, "another".parse().unwrap()).await.unwrap();
    let error = world.engine.remove_sandbox(&world.who, &which, Force::No).await.unwrap_err();
    assert_eq!(error.subject().unwrap().name, "another", "{error}");
    assert!(error.to_string().contains("another"), "{error}");
    world.stop(&which).await;
    let events = world.engine.events(&world.who, Some(0), Follow::No).await.unwrap();
    let events: Vec<_> = events.try_collect().await.unwrap();
    let renamed = events.iter().find(|event| event.kind == EventKind::SandboxRenamed).unwrap();
    assert_eq!(renamed.name.as_ref().unwrap().as_str(), "another");
    assert_eq!(renamed.detail, format!("it was called {before}"));
    assert_eq!(events.last().unwrap().name.as_ref().unwrap().as_str(), "another");
}
