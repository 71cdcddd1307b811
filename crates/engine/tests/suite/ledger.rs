use engine::{Entry, EntryBody, Follow};
use futures_util::StreamExt;
use sandbox::{ErrorKind, EventKind, ExecSpec, Next, Thing};

use super::support::{EntryKind, WAIT_FOR_GO, World, in_time, kinds, text};

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
    let Some(Entry { number: through, body: EntryBody::Trimmed { from: 1 }, .. }) = entries.first() else {
        panic!("{:?}", entries.first())
    };
    let Some(next) = entries.get(1) else { panic!("{entries:?}") };
    assert_eq!(next.number, through + 1);
    assert!(text(&entries, EntryKind::Stdout).ends_with("400000\nthe end\n"));
    assert_eq!(kinds(&entries).last(), Some(&EntryKind::Exited));
    world.event(EventKind::LedgerTrimmed).await;
}

#[tokio::test]
async fn a_repeated_request_is_answered_when_its_input_was_trimmed() {
    let world = small().await;
    let which = world.create().await;
    let spec = ExecSpec {
        request_id: Some("r1".parse().unwrap()),
        stdin: true,
        ..ExecSpec::shell("read first; seq 400000; read second; echo the end")
    };
    let exec = world.engine.exec(&world.who, &which, spec).await.unwrap();
    let feed = async |line: &'static str| {
        let line = futures_util::stream::iter([Ok(line.into())]).boxed();
        world.engine.exec_stdin(&world.who, &which, &exec.id, line, false).await.unwrap();
    };
    feed("first\n").await;
    world.printed(&which, &exec.id, "400000").await;
    feed("second\n").await;
    let exec = world.wait(&which, &exec.id).await;
    let entries = world.entries(&which, &exec.id, Follow::No).await;
    assert!(matches!(entries[0].body, EntryBody::Trimmed { from: 1 }), "{:?}", entries[0]);
    assert_eq!(text(&entries, EntryKind::Stdin), "second\n");
    assert!(world.engine.is_fed(&world.who, &exec, b"first\n").await.unwrap());
}

#[tokio::test]
async fn the_oldest_finished_execs_go_first_and_their_records_with_them() {
    let world = small().await;
    let which = world.create().await;
    // The clock decides which is older.
    let tick = || world.clock.advance(std::time::Duration::from_secs(1));
    let first = world.run(&which, "seq 20000").await;
    tick();
    let running = world.start_exec(&which, "echo early; sleep 1000").await;
    world.printed(&which, &running.id, "early").await;
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
    assert!(error.next() == Some(&Next::List(Thing::Exec)), "{error:?}");
    assert_eq!(world.output(&which, &last.id).await.lines().last(), Some("20000"));
    // A running exec keeps its output while others can be trimmed.
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

/// The entries of an exec that a reader gets, up to their end.
async fn read_all(
    world: &World,
    which: &engine::SandboxRef,
    exec: &sandbox::ExecId,
) -> Vec<sandbox::Result<Entry>> {
    let entries = world.engine.exec_entries(&world.who, which, exec, 1, Follow::Yes).await.unwrap();
    in_time(entries.collect()).await
}

#[tokio::test]
async fn a_ledger_that_was_cut_or_deleted_is_not_taken_for_a_whole_one() {
    type Harm = fn(&std::path::Path);
    let cut: Harm = |directory| {
        let segment = directory.join("00000000000000000001.seg");
        let file = std::fs::OpenOptions::new().write(true).open(segment).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    };
    // Between two entries, where no checksum shows it.
    let cut_clean: Harm = |directory| {
        let segment = directory.join("00000000000000000001.seg");
        std::fs::OpenOptions::new().write(true).open(segment).unwrap().set_len(32).unwrap();
    };
    let delete_segment: Harm =
        |directory| std::fs::remove_file(directory.join("00000000000000000001.seg")).unwrap();
    let delete: Harm = |directory| std::fs::remove_dir_all(directory).unwrap();
    for (n, harm) in [cut, cut_clean, delete_segment, delete].into_iter().enumerate() {
        let world = World::new().await;
        let view = world.create_named("dev").await;
        let which = view.id.clone().into();
        let exec = world.run(&which, "seq 2000").await;
        let other = world.run(&which, "echo fine").await;
        world.event(EventKind::ExecEnded).await;
        let logs = world.directory(&view).join("logs");
        let world = world.restart().await.with_database(|_| harm(&logs.join(exec.id.as_str()))).await;
        let items = read_all(&world, &which, &exec.id).await;
        let errors: Vec<_> = items.iter().filter_map(|item| item.as_ref().err()).collect();
        assert_eq!(errors.len(), 1, "harm {n}: {errors:?}");
        assert_eq!(errors[0].kind(), ErrorKind::Internal);
        assert!(errors[0].to_string().contains("missing"), "{errors:?}");
        assert_eq!(world.output(&which, &other.id).await, "fine\n");
    }
}

#[tokio::test]
async fn a_ledger_that_is_cut_while_its_exec_runs_is_told_too() {
    let world = World::new().await;
    let view = world.create_named("dev").await;
    let which = view.id.clone().into();
    let exec = world.start_exec(&which, "seq 2000; sleep 1000").await;
    let entries = world.engine.exec_entries(&world.who, &which, &exec.id, 2, Follow::Yes).await.unwrap();
    in_time(entries.take(1).for_each(|item| async move { drop(item.unwrap()) })).await;
    let segment = world.directory(&view).join("logs").join(exec.id.as_str()).join("00000000000000000001.seg");
    std::fs::OpenOptions::new().write(true).open(segment).unwrap().set_len(32).unwrap();
    let entries = world.engine.exec_entries(&world.who, &which, &exec.id, 1, Follow::No).await.unwrap();
    let items: Vec<_> = in_time(entries.collect()).await;
    let is_told = |item: &sandbox::Result<Entry>| {
        item.as_ref().is_err_and(|error| error.to_string().contains("missing"))
    };
    assert!(items.iter().any(is_told), "{items:?}");
}

#[tokio::test]
async fn an_end_that_was_taken_from_the_ledger_says_how_long_that_was() {
    let world = World::new().await;
    let view = world.create_named("dev").await;
    let which = view.id.clone().into();
    let exec = world.run(&which, "seq 2000").await;
    world.event(EventKind::ExecEnded).await;
    // The daemon dies between the ledger's entry and the record.
    let record = world.store.exec(exec.id.clone()).await.unwrap().unwrap();
    let (state, last_entry) = (sandbox::ExecState::Running, None);
    let unfinished = store::ExecRecord { state, outcome: None, ended_at: None, last_entry, ..record };
    world.store.update_exec(unfinished).await.unwrap();
    let world = world.crash().await;
    assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some(0));
    let segment = world.directory(&view).join("logs").join(exec.id.as_str()).join("00000000000000000001.seg");
    let cut = |_home: &std::path::Path| {
        std::fs::OpenOptions::new().write(true).open(&segment).unwrap().set_len(32).unwrap();
    };
    let world = world.restart().await.with_database(cut).await;
    let items = read_all(&world, &which, &exec.id).await;
    assert!(items.iter().any(Result::is_err), "{items:?}");
}

#[tokio::test]
async fn output_that_only_the_ledger_had_is_told_as_lost_when_that_is_cut() {
    let world = World::new().await;
    let view = world.create_named("dev").await;
    let which = view.id.clone().into();
    let script = format!("seq 2000; {WAIT_FOR_GO}; echo afterwards");
    let exec = world.start_exec(&which, &script).await;
    let entries = world.engine.exec_entries(&world.who, &which, &exec.id, 2, Follow::Yes).await.unwrap();
    in_time(entries.take(1).for_each(|item| async move { drop(item.unwrap()) })).await;
    // By then the guest was told that it is stored, and has forgotten it.
    let segment = world.directory(&view).join("logs").join(exec.id.as_str()).join("00000000000000000001.seg");
    let cut = |_home: &std::path::Path| {
        std::fs::OpenOptions::new().write(true).open(&segment).unwrap().set_len(32).unwrap();
    };
    let world = world.with_database(cut).await;
    world.go(&which).await;
    let items = read_all(&world, &which, &exec.id).await;
    let errors: Vec<_> = items.iter().filter_map(|item| item.as_ref().err()).collect();
    assert!(errors.len() == 1 && errors[0].to_string().contains("lost"), "{errors:?}");
    let items: Vec<_> = items.into_iter().flatten().collect();
    assert!(text(&items, EntryKind::Stdout).ends_with("afterwards\n"), "{items:?}");
}
