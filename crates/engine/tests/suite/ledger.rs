use engine::{EntryKind, Follow, Item};
use sandbox::{ErrorKind, EventKind};

use super::support::{World, in_time, kinds, text};

/// A ledger that is full after a few hundred KiB.
async fn small() -> World {
    World::with(|config| {
        config.ledger.per_sandbox_bytes = 512 << 10;
        config.ledger.segment_bytes = 64 << 10;
    })
    .await
}

#[tokio::test]
async fn a_reader_is_told_what_the_cap_took_away() {
    let world = small().await;
    let which = world.create().await;
    let exec = world.run(&which, "seq 400000; echo the end").await;
    let entries = world.entries(&which, &exec.id, Follow::Yes).await;
    let Some(Item::Trimmed { from: 1, through }) = entries.first() else { panic!("{:?}", entries.first()) };
    let Some(Item::Entry(next)) = entries.get(1) else { panic!("{entries:?}") };
    assert_eq!(next.number, through + 1);
    assert!(text(&entries, EntryKind::Stdout).ends_with("400000\nthe end\n"));
    assert_eq!(kinds(&entries).last(), Some(&EntryKind::Exited));
    world.event(EventKind::LedgerTrimmed).await;
}

#[tokio::test]
async fn the_oldest_finished_execs_go_first_and_their_records_with_them() {
    let world = small().await;
    let which = world.create().await;
    // What is older is told by the clock.
    let tick = || world.clock.advance(std::time::Duration::from_secs(1));
    let first = world.run(&which, "seq 20000").await;
    tick();
    let running = world.start_exec(&which, "echo early; sleep").await;
    let mut last = world.run(&which, "seq 20000").await;
    for _ in 0..8 {
        tick();
        last = world.run(&which, "seq 20000").await;
    }
    in_time(async {
        while world.engine.exec_view(&world.who, &which, &first.id).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let error = world.engine.exec_view(&world.who, &which, &first.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.hint().unwrap().contains("old"), "{error:?}");
    assert_eq!(world.output(&which, &last.id).await.lines().last(), Some("20000"));
    // What runs keeps its output while others can go.
    let entries = world.entries(&which, &running.id, Follow::No).await;
    assert_eq!(text(&entries, EntryKind::Stdout), "early\n");
}

#[tokio::test]
async fn a_ledger_that_cannot_be_opened_refuses_the_exec_and_leaves_no_record() {
    let world = World::new().await;
    let view = world.create_named("box").await;
    let which = view.id.clone().into();
    world.run(&which, "true").await;
    let logs = world.directory(&view).join("logs");
    let aside = logs.with_file_name("aside");
    std::fs::rename(&logs, &aside).unwrap();
    std::fs::write(&logs, "not a directory").unwrap();
    let error = world.engine.exec(&world.who, &which, sandbox::ExecSpec::shell("true")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    std::fs::remove_file(&logs).unwrap();
    std::fs::rename(&aside, &logs).unwrap();
    assert_eq!(world.engine.execs(&world.who, &which).await.unwrap().len(), 1);
    assert_eq!(world.run(&which, "true").await.exit_code, Some(0));
}
