use std::time::Duration;

use engine::{Follow, RunOptions, SignalScope};
use futures_util::{StreamExt, future::join_all};
use sandbox::{
    ByteSize, Capability, CellSpec, ErrorKind, EventKind, ExecOutcome, ExecSpec, ExecState, KeySpec,
    KillReason, Language, MAX_RECORDED_CODE_BYTES, NotStarted, TerminalSize,
};

use super::support::{EntryKind, World, advice, assert_numbered, bytes, exit_entry, in_time, kinds, text};

#[tokio::test]
async fn a_command_runs_and_everything_it_did_is_in_the_ledger() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.run(&which, "echo out; echo err >&2; exit 3").await;

    assert_eq!((exec.state, exec.exit_code), (ExecState::Done, Some(3)));
    assert_eq!(exec.outcome, Some(ExecOutcome::exited(3)));
    assert!(exec.pid.is_some() && exec.started_at.is_some() && exec.ended_at.is_some());
    let entries = world.entries(&which, &exec.id, Follow::Yes).await;
    assert_numbered(&entries);
    // Which of two pipes is read first is anybody's guess.
    let found = kinds(&entries);
    assert_eq!((found.first(), found.last()), (Some(&EntryKind::Started), Some(&EntryKind::Exited)));
    assert!(found.len() == 4 && found.contains(&EntryKind::Stdout) && found.contains(&EntryKind::Stderr));
    assert_eq!(
        (text(&entries, EntryKind::Stdout), text(&entries, EntryKind::Stderr)),
        ("out\n".into(), "err\n".into())
    );
    let exit = exit_entry(&entries);
    assert_eq!((exit.outcome, exit.report.unwrap().code), (ExecOutcome::exited(3), Some(3)));
    assert_eq!(world.event(EventKind::ExecEnded).await.exec, Some(exec.id.clone()));

    let listed = world.engine.execs(&world.who, &which).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].exit_code, &listed[0].id), (Some(3), &exec.id));
}

#[tokio::test]
async fn an_exec_says_who_asked_for_it_and_the_next_daemon_does_too() {
    let world = World::new().await;
    let which = world.create().await;
    let key = KeySpec { label: Some("ana".to_owned()), ..KeySpec::default() };
    let key = world.engine.create_key(&world.who, key).await.unwrap().secret;
    let ana = world.engine.authenticate_key(&key).await.unwrap();
    let spec = ExecSpec { request_id: Some("r-1".parse().unwrap()), ..ExecSpec::argv(["true"]) };
    let exec = world.engine.exec(&ana, &which, spec.clone()).await.unwrap();
    assert_eq!(exec.asked_by.as_deref(), Some("key ana"));
    // The same request of another caller is still the first one's exec.
    assert_eq!(world.engine.exec(&world.who, &which, spec).await.unwrap().asked_by, exec.asked_by);
    world.wait(&which, &exec.id).await;
    let world = world.crash().await;
    let listed = world.engine.execs(&world.who, &which).await.unwrap();
    assert_eq!(listed[0].asked_by.as_deref(), Some("key ana"));
}

#[tokio::test]
async fn the_code_of_a_cell_is_in_the_ledger_and_only_its_beginning_in_the_store() {
    let world = World::new().await;
    let which = world.create().await;
    let code = format!("echo begun\n# {}\necho ended", "é".repeat(500_000));
    let cell = CellSpec { language: Language::Bash, context: None, code: code.clone() };
    let mut newest = None;
    for n in 0..20 {
        let request_id = Some(format!("cell-{n}").parse().unwrap());
        let spec = ExecSpec { cell: Some(cell.clone()), request_id, ..ExecSpec::default() };
        let exec = world.engine.exec(&world.who, &which, spec.clone()).await.unwrap();
        let done = world.wait(&which, &exec.id).await;
        assert_eq!(done.command, ["bash", "echo begun"]);
        assert_eq!(world.engine.exec(&world.who, &which, spec).await.unwrap().id, exec.id);
        newest = Some(exec.id);
    }
    // All of it ran, and all of it is recorded.
    let newest = newest.unwrap();
    let entries = world.entries(&which, &newest, Follow::Yes).await;
    assert_numbered(&entries);
    assert_eq!(text(&entries, EntryKind::Stdout), "begun\nended\n");
    assert_eq!(text(&entries, EntryKind::Stdin), code);
    let stored = world.store.execs(world.view(&which).await.id).await.unwrap();
    assert_eq!(stored.len(), 20);
    for record in stored {
        let kept = record.spec.cell.unwrap().code;
        assert!(kept.len() <= MAX_RECORDED_CODE_BYTES && code.starts_with(&kept), "{} bytes", kept.len());
    }
    let files = std::fs::read_dir(world.home.path()).unwrap().map(Result::unwrap);
    let database = files.filter(|file| file.file_name().to_string_lossy().starts_with("warren.db"));
    let n_bytes: u64 = database.map(|file| file.metadata().unwrap().len()).sum();
    assert!(n_bytes < 4 << 20, "the database has {n_bytes} bytes after 20 MB of code");
    // The next daemon knows the same.
    let world = world.crash().await;
    let view = world.engine.exec_view(&world.who, &which, &newest).await.unwrap();
    assert_eq!((view.exit_code, view.command), (Some(0), vec!["bash".to_owned(), "echo begun".to_owned()]));
}

#[tokio::test]
async fn a_finished_command_tells_its_last_entry_and_reads_from_any_number() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.run(&which, "echo a; echo b; echo c").await;
    // Started, lines as they were read, Exited; Closed follows at once.
    let entries = world.entries(&which, &exec.id, Follow::Yes).await;
    let exited = entries.len() as u64;
    let view = in_time(async {
        loop {
            let view = world.engine.exec_view(&world.who, &which, &exec.id).await.unwrap();
            if view.last_entry > exited {
                break view;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(view.last_entry, exited + 1);
    let last_line = exited - 1;
    let from_there =
        world.engine.exec_entries(&world.who, &which, &exec.id, last_line, Follow::Yes).await.unwrap();
    let items: Vec<_> = from_there.map(Result::unwrap).collect().await;
    assert_eq!(items[..2], entries[entries.len() - 2..]);
    assert!(text(&items, EntryKind::Stdout).ends_with("c\n"));
    let after_the_end =
        world.engine.exec_entries(&world.who, &which, &exec.id, exited + 1, Follow::Yes).await.unwrap();
    let items: Vec<_> = in_time(after_the_end.map(Result::unwrap).collect()).await;
    assert_eq!(kinds(&items), [EntryKind::Closed]);
    let beyond = world.engine.exec_entries(&world.who, &which, &exec.id, 99, Follow::Yes).await.unwrap();
    assert_eq!(in_time(beyond.count()).await, 0);
    assert_eq!(view.exit_code, Some(0));
}

#[tokio::test]
async fn what_cannot_start_is_an_outcome_and_ends_its_followers() {
    let world = World::new().await;
    let which = world.create().await;
    world.write(&which, "/root/plain.txt", "no program").await;
    let spec = |command: &str| ExecSpec::argv([command]);
    for (spec, reason, code) in [
        (spec("no-such-program"), NotStarted::NotFound, 127),
        (spec("/root"), NotStarted::NotExecutable, 126),
        (spec("/root/plain.txt"), NotStarted::NotExecutable, 126),
        (ExecSpec { cwd: Some("/nowhere".into()), ..spec("true") }, NotStarted::BadWorkingDirectory, 125),
        (ExecSpec { user: Some("mallory".into()), ..spec("true") }, NotStarted::BadUser, 125),
    ] {
        let exec = world.engine.exec(&world.who, &which, spec).await.unwrap();
        assert_eq!((exec.state, exec.exit_code), (ExecState::Done, Some(code)));
        assert!(
            matches!(&exec.outcome, Some(ExecOutcome::NotStarted { reason: found, .. }) if *found == reason),
            "{exec:?}"
        );
        let entries = world.entries(&which, &exec.id, Follow::Yes).await;
        assert_eq!(kinds(&entries), [EntryKind::Exited]);
        assert_eq!(Some(exit_entry(&entries).outcome), exec.outcome);
    }
}

#[tokio::test]
async fn ends_of_every_kind_are_told_apart() {
    let world = World::with(|config| {
        config.defaults.limits.memory = ByteSize::mib(64);
        config.defaults.limits.swap = ByteSize(0);
    })
    .await;
    let which = world.create().await;
    let killed = |reason| Some(ExecOutcome::Killed { reason });
    if world.has(Capability::MemoryLimit) {
        // A line without end, which `tail` keeps whole.
        let hog = world.run(&which, "exec tail /dev/zero").await;
        assert_eq!(hog.outcome, killed(KillReason::MemoryLimit));
        world.event(EventKind::OutOfMemory).await;
        let outcome = world.run(&which, "tail /dev/zero; exit 1").await.outcome;
        assert_eq!(outcome, Some(ExecOutcome::Exited { code: 1, memory_limit_hit: true }));
    }

    let spec =
        ExecSpec { timeout: Some(Duration::from_secs(2)), ..ExecSpec::shell("echo before; sleep 1000") };
    let exec = world.engine.exec(&world.who, &which, spec).await.unwrap();
    assert_eq!(world.wait(&which, &exec.id).await.outcome, killed(KillReason::TimeLimit));
    assert_eq!(world.output(&which, &exec.id).await, "before\n");

    let exec = world.start_exec(&which, "sleep 1000").await;
    world.engine.exec_signal(&world.who, &which, &exec.id, 15, SignalScope::Group).await.unwrap();
    assert_eq!(world.wait(&which, &exec.id).await.outcome, Some(ExecOutcome::Signaled { signal: 15 }));

    let exec = world.start_exec(&which, "sleep 1000").await;
    world.engine.exec_signal(&world.who, &which, &exec.id, 9, SignalScope::Group).await.unwrap();
    assert_eq!(world.wait(&which, &exec.id).await.outcome, killed(KillReason::Request));
}

#[tokio::test]
async fn stdin_goes_in_is_recorded_and_can_be_closed() {
    let world = World::new().await;
    let which = world.create().await;
    let spec = ExecSpec { stdin: true, ..ExecSpec::argv(["cat"]) };
    let exec = world.engine.exec(&world.who, &which, spec).await.unwrap();
    let feed = |part: &str, close| world.engine.exec_stdin(&world.who, &which, &exec.id, bytes(part), close);
    assert_eq!(feed("one\n", false).await.unwrap(), 4);
    assert_eq!(feed("two\n", true).await.unwrap(), 4);
    assert_eq!(world.wait(&which, &exec.id).await.exit_code, Some(0));
    let entries = world.entries(&which, &exec.id, Follow::No).await;
    assert_numbered(&entries);
    assert_eq!(text(&entries, EntryKind::Stdin), "one\ntwo\n");
    assert_eq!(text(&entries, EntryKind::Stdout), "one\ntwo\n");

    assert_eq!(feed("late", false).await.unwrap_err().kind(), ErrorKind::WrongState);
    let deaf = world.start_exec(&which, "sleep 1000").await;
    let error = world.engine.exec_stdin(&world.who, &which, &deaf.id, bytes("x"), false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongState);
    assert!(advice(&error).contains("stdin"), "{error:?}");
}

#[tokio::test]
async fn a_terminal_has_a_size_that_can_change() {
    let world = World::new().await;
    let which = world.create().await;
    let size = TerminalSize { rows: 30, cols: 100 };
    let spec = ExecSpec { terminal: Some(size), ..ExecSpec::shell("stty size; cat; stty size; echo $TERM") };
    let exec = world.engine.exec(&world.who, &which, spec).await.unwrap();
    let bigger = TerminalSize { rows: 50, cols: 120 };
    let mut entries = world.engine.exec_entries(&world.who, &which, &exec.id, 1, Follow::Yes).await.unwrap();
    in_time(async {
        while !entries
            .next()
            .await
            .is_some_and(|item| text(&[item.unwrap()], EntryKind::Stdout).contains("30 100"))
        {}
    })
    .await;
    world.engine.exec_resize(&world.who, &which, &exec.id, bigger).await.unwrap();
    world.engine.exec_stdin(&world.who, &which, &exec.id, bytes("\u{4}"), false).await.unwrap();
    let output = world.output(&which, &exec.id).await;
    assert!(output.contains("30 100") && output.contains("50 120") && output.contains("xterm"), "{output:?}");
    let error = world.engine.exec_resize(&world.who, &which, &exec.id, size).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongState);
}

#[tokio::test]
async fn the_same_request_runs_once() {
    let world = World::new().await;
    let which = world.create().await;
    let request = |id: &str| ExecSpec {
        request_id: Some(id.parse().unwrap()),
        ..ExecSpec::shell("echo x >> /root/count; sleep 0.02")
    };
    let all = join_all((0..10).map(|_| world.engine.exec(&world.who, &which, request("once")))).await;
    let first = all[0].as_ref().unwrap().id.clone();
    assert!(all.iter().all(|exec| exec.as_ref().unwrap().id == first), "{all:?}");
    world.wait(&which, &first).await;
    // Also after its end, however many ask.
    let again = join_all((0..10).map(|_| world.engine.exec(&world.who, &which, request("once"))));
    assert!(in_time(again).await.iter().all(|exec| exec.as_ref().unwrap().id == first));
    assert_eq!(world.engine.exec(&world.who, &which, request("once")).await.unwrap().id, first);
    assert_eq!(world.read(&which, "/root/count").await, "x\n");
    // Another sandbox has requests of its own.
    let other = world.create().await;
    assert_ne!(world.engine.exec(&world.who, &other, request("once")).await.unwrap().id, first);
}

#[tokio::test]
async fn another_request_with_a_known_id_is_refused() {
    let world = World::new().await;
    let which = world.create().await;
    let request = |line: &str| ExecSpec { request_id: Some("r1".parse().unwrap()), ..ExecSpec::shell(line) };
    let refused = async |world: &World, spec: ExecSpec| {
        let error = world.engine.exec(&world.who, &which, spec).await.unwrap_err();
        let said = (error.kind(), error.to_string());
        let expected = "requestId r1 belongs to another request".to_owned();
        assert_eq!(said, (ErrorKind::InvalidRequest, expected));
    };
    // Compared while it runs, once it has ended, and by the next daemon.
    let first = world.engine.exec(&world.who, &which, request("sleep 0.05; echo one")).await.unwrap();
    refused(&world, request("echo two")).await;
    world.wait(&which, &first.id).await;
    refused(&world, request("echo two")).await;
    refused(&world, ExecSpec { cwd: Some("/tmp".to_owned()), ..request("sleep 0.05; echo one") }).await;
    let world = world.crash().await;
    refused(&world, request("echo two")).await;
    // Which shell reads the line is no part of the request.
    let mut again = request("sleep 0.05; echo one");
    again.command[0] = "/bin/bash".to_owned();
    assert_eq!(world.engine.exec(&world.who, &which, again).await.unwrap().id, first.id);
    assert_eq!(world.engine.execs(&world.who, &which).await.unwrap().len(), 1);
}

#[tokio::test]
async fn another_input_for_a_known_request_is_refused() {
    let world = World::new().await;
    let which = world.create().await;
    let request = Some("r1".parse().unwrap());
    let spec = ExecSpec { request_id: request, stdin: true, ..ExecSpec::shell("cat") };
    let run = async |input: &'static str| {
        let exec = world.engine.exec(&world.who, &which, spec.clone()).await?;
        let options = RunOptions { stdin: Some(input.into()), ..RunOptions::default() };
        let mut run = world.engine.run_to_end(&world.who, &exec, options).await?;
        while run.next().await.is_some() {}
        run.end().await
    };
    run("one").await.unwrap();
    run("one").await.unwrap();
    assert_eq!(run("two").await.unwrap_err().to_string(), "requestId r1 belongs to another request");
}

#[tokio::test]
async fn an_exec_without_a_hash_answers_its_request_id_as_before() {
    let world = World::new().await;
    let which = world.create().await;
    let request = |line: &str| ExecSpec { request_id: Some("r1".parse().unwrap()), ..ExecSpec::shell(line) };
    let first = world.engine.exec(&world.who, &which, request("true")).await.unwrap();
    world.wait(&which, &first.id).await;
    let mut record = world.store.exec(first.id.clone()).await.unwrap().unwrap();
    assert_eq!(record.request_hash.take().map(|hash| hash.len()), Some(64));
    world.store.update_exec(record).await.unwrap();
    let again = world.engine.exec(&world.who, &which, request("echo two")).await.unwrap();
    assert_eq!(again.id, first.id);
}

#[tokio::test]
async fn two_hundred_commands_at_once_each_get_their_own_output() {
    let world = World::new().await;
    let which = world.create().await;
    let runs = (0..200_u32).map(|n| {
        let (world, which) = (&world, &which);
        async move {
            let exec = world.run(which, &format!("echo begin {n}; seq 50; exit {}", n % 100)).await;
            assert_eq!(exec.exit_code, Some((n % 100) as u8));
            let expected = format!("begin {n}\n{}", super::support::seq(50));
            assert_eq!(world.output(which, &exec.id).await, expected);
        }
    });
    in_time(join_all(runs)).await;
    assert_eq!(world.engine.execs(&world.who, &which).await.unwrap().len(), 200);
    assert_eq!(world.view(&which).await.n_running_execs, 0);
}

#[tokio::test]
async fn late_output_of_a_process_left_behind_is_kept_until_it_closes() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.run(&which, "(sleep 0.05; echo afterwards) & echo now").await;
    let entries = world.entries(&which, &exec.id, Follow::Yes).await;
    assert_eq!(text(&entries, EntryKind::Stdout), "now\n");
    assert_eq!(kinds(&entries).last(), Some(&EntryKind::Exited));

    let next = entries.len() as u64 + 1;
    let rest = world.engine.exec_entries(&world.who, &which, &exec.id, next, Follow::Yes).await.unwrap();
    let rest: Vec<_> = in_time(rest.map(Result::unwrap).collect()).await;
    assert_eq!(kinds(&rest), [EntryKind::Stdout, EntryKind::Closed]);
    assert_eq!(text(&rest, EntryKind::Stdout), "afterwards\n");
}

#[tokio::test]
async fn too_many_open_execs_are_refused_by_number() {
    let world = World::with(|config| config.defaults.limits.pids = 10_000).await;
    let which = world.create().await;
    let start = || world.engine.exec(&world.who, &which, ExecSpec::argv(["sleep", "1000"]));
    for _ in 0..8 {
        for exec in in_time(join_all((0..64).map(|_| start()))).await {
            exec.unwrap();
        }
    }
    for refused in in_time(join_all((0..8).map(|_| start()))).await {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
        assert!(error.to_string().contains("512"), "{error}");
    }
    in_time(world.stop(&which)).await;
}

#[tokio::test]
async fn waiting_with_a_time_shows_the_exec_as_it_is() {
    let world = World::new().await;
    let which = world.create().await;
    let exec = world.start_exec(&which, "sleep 1000").await;
    let time = Some(Duration::from_millis(10));
    let view = world.engine.wait_exec(&world.who, &which, &exec.id, time).await.unwrap();
    assert_eq!((view.state, view.outcome), (ExecState::Running, None));
}

#[tokio::test]
async fn an_exec_of_another_sandbox_does_not_exist_here() {
    let world = World::new().await;
    let (here, there) = (world.create().await, world.create().await);
    let exec = world.run(&there, "true").await;
    let error = world.engine.exec_view(&world.who, &here, &exec.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = world.engine.exec_entries(&world.who, &here, &exec.id, 1, Follow::No).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
