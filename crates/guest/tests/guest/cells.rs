//! Cells in contexts: what runs, what is kept, and how it ends.

use guest_protocol::{
    ExecEvent, ExecStatus, ExitReport, FailureKind, Request, Response, Rich, StartFailure, StateLoss,
};

use rustix::process::{Signal, kill_process};

use crate::support::{
    Host, TestGuest, cell, cell_in, command, eventually, exited, interrupted, is_alive, kept, killed, lost,
    n_cells, pid_of,
};

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGUSR1: i32 = 10;

/// Starts a cell and waits for its first word; its events continue on the connection.
fn begin(guest: &TestGuest, start: &guest_protocol::ExecStart, word: &str) -> Host {
    guest.connect().start(start);
    let mut host = guest.connect();
    host.attach(&start.id, 1);
    host.wait_for(word);
    host
}

/// The remaining events of an attached cell.
fn rest(mut host: Host) -> (ExitReport, Vec<Rich>) {
    let mut rich = vec![];
    loop {
        let (number, event) = host.event();
        host.ack(number);
        match event {
            ExecEvent::Rich(bytes) => rich.extend_from_slice(&bytes),
            ExecEvent::Exited(report) => {
                let lines = rich.split(|byte| *byte == b'\n');
                return (report, lines.filter_map(|line| serde_json::from_slice(line).ok()).collect());
            }
            _ => {}
        }
    }
}

#[test]
fn a_cell_finds_what_the_one_before_left() {
    let guest = TestGuest::start();
    let ran = guest.connect().run_cell(&cell("a", "python", "x = 6\nprint('six')"));
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.report), ("six\n", "", exited(0)));
    assert_eq!(ran.rich, [kept()]);
    let ran = guest.connect().run_cell(&cell("b", "python", "print(x * 7)"));
    assert_eq!((ran.stdout.as_str(), ran.report), ("42\n", exited(0)));
    let ran = guest.connect().run_cell(&cell("c", "python", "1 / 0"));
    assert_eq!(ran.report, exited(1));
    assert!(
        matches!(&ran.rich[..], [Rich::Error { name, .. }, state] if name == "ZeroDivisionError" && *state == kept())
    );
    // A cell is closed when the next one begins.
    let mut host = guest.connect();
    host.attach("a", 1);
    assert_eq!(host.event().1, ExecEvent::Closed);
    // The last cell stays open for late output.
    let Ok(Response::Execs { execs }) = guest.connect().ask(&Request::ExecList) else { panic!() };
    let status = |id: &str| execs.iter().find(|exec| exec.id == id).map(|exec| exec.status);
    assert_eq!((status("b"), status("c")), (Some(ExecStatus::Closed), Some(ExecStatus::Exited)));
}

#[test]
fn the_same_id_twice_is_one_cell() {
    let guest = TestGuest::start();
    let start = cell("once", "python", "n = globals().get('n', 0) + 1; print(n)");
    let pid = guest.connect().start(&start);
    assert_eq!(guest.connect().start(&start), pid);
    assert_eq!(guest.connect().run_cell(&cell("then", "python", "print(n)")).stdout, "1\n");
    assert_eq!(guest.connect().start(&start), pid);
    assert_eq!(guest.connect().follow("once").stdout, "1\n");
}

#[test]
fn no_record_overtakes_what_was_printed_before_it() {
    let guest = TestGuest::start();
    let (begin_file, end_file) = (guest.path("begin"), guest.path("end"));
    let code = format!(
        "import os, time\nprint('go', flush=True)\nwhile not os.path.exists({begin_file:?}): time.sleep(0.001)\n\
         for i in range(50):\n    print(i, flush=True)\n    display(i)\nmarker = open({end_file:?}, 'w')"
    );
    let mut host = begin(&guest, &cell("o", "python", &code), "go");
    // The guest is stopped until all of it has been written.
    let guest_itself = pid_of(i32::try_from(guest.pid()).unwrap());
    kill_process(guest_itself, Signal::STOP).unwrap();
    std::fs::write(begin_file, "").unwrap();
    eventually("the cell has said everything", || std::path::Path::new(&end_file).exists());
    kill_process(guest_itself, Signal::CONT).unwrap();
    let (mut n_lines, mut n_records) = (0, 0);
    while n_records < 50 {
        match host.event().1 {
            ExecEvent::Stdout(bytes) => n_lines += bytes.iter().filter(|byte| **byte == b'\n').count(),
            ExecEvent::Rich(bytes) => n_records += bytes.iter().filter(|byte| **byte == b'\n').count(),
            other => panic!("{other:?}"),
        }
        assert!(n_records <= n_lines, "{n_records} records, {n_lines} lines");
    }
}

#[test]
fn cells_of_one_context_wait_for_their_turn() {
    let guest = TestGuest::start();
    let first = begin(
        &guest,
        &cell(
            "0",
            "python",
            "print('go', flush=True)\nimport time\nwhile 'go' not in globals(): time.sleep(0.001)\nl = [0]",
        ),
        "go",
    );
    for n in 1..=20 {
        guest.connect().start(&cell(&n.to_string(), "python", &format!("l.append({n}); print(l)")));
    }
    let context = guest.connect().contexts().remove(0);
    assert_eq!((context.queued, context.cells), (20, 0));
    // Another context is not affected.
    let other = guest.connect().run_cell(&cell_in("other", "another", "python", "print('free')"));
    assert_eq!(other.stdout, "free\n");
    assert_eq!(guest.connect().signal("0", SIGINT), Ok(Response::Done));
    assert_eq!(rest(first).1.last(), Some(&interrupted()));
    let second = guest.connect().follow_cell("1");
    assert_eq!(second.report, exited(1), "l was never made: {second:?}");
    assert!(guest.connect().follow_cell("20").report == exited(1));
    let context = guest.connect().contexts().into_iter().find(|context| context.name == "python").unwrap();
    assert_eq!((context.queued, context.cells), (0, 21));
}

#[test]
fn too_many_cells_are_refused() {
    let guest = TestGuest::start();
    let _first =
        begin(&guest, &cell("0", "python", "print('go', flush=True)\nimport time; time.sleep(1000)"), "go");
    let mut host = guest.connect();
    for n in 0..64 {
        host.start(&cell(&format!("w{n}"), "python", "pass"));
    }
    assert_eq!(host.fails(&Request::ExecStart(cell("more", "python", "pass"))), FailureKind::LimitReached);
    // Too much code is refused too, even in few cells.
    let long = "#".repeat(900 * 1024);
    for n in 0..9 {
        host.start(&cell_in(
            &format!("l{n}"),
            &format!("c{}", n % 2),
            "bash",
            if n < 2 { "sleep 1000" } else { "" },
        ));
    }
    let answers: Vec<bool> = (0..12)
        .map(|n| host.ask(&Request::ExecStart(cell_in(&format!("long{n}"), "c0", "bash", &long))).is_ok())
        .collect();
    assert!(answers[0] && !answers[11], "{answers:?}");
}

#[test]
fn a_cell_that_waits_and_is_signalled_never_runs() {
    let guest = TestGuest::start();
    let _first =
        begin(&guest, &cell("0", "python", "print('go', flush=True)\nimport time; time.sleep(1000)"), "go");
    let marker = guest.path("ran");
    for (id, signal) in [("int", SIGINT), ("kill", SIGKILL), ("term", SIGTERM)] {
        guest.connect().start(&cell(id, "python", &format!("open({marker:?}, 'w')")));
        assert_eq!(guest.connect().signal(id, SIGUSR1).unwrap_err().kind, FailureKind::WrongState);
        assert_eq!(guest.connect().signal(id, signal), Ok(Response::Done));
        let ran = guest.connect().follow(id);
        assert_eq!((ran.report, ran.rich), (exited(130), vec![interrupted()]));
        // The exec is forgotten by now, or has ended.
        assert!(guest.connect().signal(id, signal).is_err());
    }
    assert_eq!(guest.connect().signal("0", SIGINT), Ok(Response::Done));
    assert!(guest.connect().run_cell(&cell("after", "python", "pass")).is_kept());
    assert!(!std::path::Path::new(&marker).exists());
}

#[test]
fn an_interrupt_ends_the_cell_and_keeps_the_state() {
    let guest = TestGuest::start();
    let loops = "x = 5\nprint('go', flush=True)\nwhile True: pass";
    let first = begin(&guest, &cell("a", "python", loops), "go");
    assert_eq!(guest.connect().signal("a", SIGINT), Ok(Response::Done));
    let (report, rich) = rest(first);
    assert_eq!((report, rich.last()), (exited(130), Some(&interrupted())));
    assert_eq!(guest.connect().signal("a", SIGINT).unwrap_err().kind, FailureKind::WrongState);
    let ran = guest.connect().run_cell(&cell("b", "python", "print(x)"));
    assert_eq!((ran.stdout.as_str(), ran.warnings().len()), ("5\n", 0));
}

#[test]
fn a_cell_that_ignores_interrupts_is_killed_after_its_grace() {
    let guest = TestGuest::start();
    let code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('go', flush=True)\nwhile True: pass";
    let mut start = cell("a", "python", code);
    start.cell.as_mut().unwrap().grace_ms = 50;
    let first = begin(&guest, &start, "go");
    assert_eq!(guest.connect().signal("a", SIGINT), Ok(Response::Done));
    let (report, rich) = rest(first);
    assert_eq!(report, killed(SIGKILL));
    let state = Rich::State { kept: false, lost: Some(StateLoss::Killed), interrupted: true };
    assert_eq!(rich.last(), Some(&state));
    let ran = guest.connect().run_cell(&cell("b", "python", "print('new')"));
    assert_eq!(ran.stdout, "new\n");
    assert!(ran.warnings()[0].contains("killed"), "{ran:?}");
    // The warning is given once.
    assert_eq!(guest.connect().run_cell(&cell("c", "python", "")).rich, [kept()]);
}

#[test]
fn time_limits_count_from_the_cells_own_begin() {
    let guest = TestGuest::start();
    let first =
        begin(&guest, &cell("0", "python", "print('go', flush=True)\nimport time; time.sleep(1000)"), "go");
    let mut short = cell("short", "python", "x = 1\nwhile True: pass");
    short.timeout_ms = Some(100);
    let mut fine = cell("fine", "python", "print(x)");
    fine.timeout_ms = Some(20_000);
    guest.connect().start(&short);
    guest.connect().start(&fine);
    // Well past the time limit of the waiting cell.
    assert_eq!(guest.connect().run_cell(&cell_in("wait", "w", "bash", "sleep 0.3")).report, exited(0));
    let Ok(Response::Execs { execs }) = guest.connect().ask(&Request::ExecList) else { panic!() };
    assert!(execs.iter().any(|exec| exec.id == "short" && exec.status == ExecStatus::Running));
    guest.connect().signal("0", SIGINT).unwrap();
    rest(first);
    let ran = guest.connect().follow_cell("short");
    assert_eq!(ran.report, ExitReport { timed_out: true, ..exited(130) });
    assert_eq!(*ran.state(), interrupted());
    assert_eq!(guest.connect().follow_cell("fine").stdout, "1\n");
}

#[test]
fn the_death_of_an_interpreter_is_told_and_the_next_cell_gets_a_new_one() {
    let guest = TestGuest::start();
    for (n, (code, report, loss)) in [
        ("import os; os.kill(os.getpid(), 9)", killed(9), StateLoss::Crashed),
        (
            "import os, signal; signal.signal(11, signal.SIG_DFL); os.kill(os.getpid(), 11)",
            killed(11),
            StateLoss::Crashed,
        ),
        ("import os; print('last', flush=True); os._exit(3)", exited(3), StateLoss::Exited),
    ]
    .into_iter()
    .enumerate()
    {
        let made = guest.connect().run_cell(&cell(&format!("x{n}"), "python", "x = 1"));
        assert!(made.is_kept());
        let ran = guest.connect().run_cell(&cell(&format!("die{n}"), "python", code));
        assert_eq!((&ran.report, ran.state()), (&report, &lost(loss)), "{code}");
        let next = guest.connect().run_cell(&cell(&format!("next{n}"), "python", "print('x' in globals())"));
        assert_eq!(next.stdout, "False\n");
        assert_eq!(next.warnings().len(), 1, "{next:?}");
        assert_eq!(*next.state(), kept());
    }
    eventually("nobody is left", || guest.zombies().is_empty());
}

#[test]
fn cells_that_waited_behind_a_death_run_in_the_new_interpreter() {
    let guest = TestGuest::start();
    let first =
        begin(&guest, &cell("0", "python", "print('go', flush=True)\nimport time; time.sleep(1000)"), "go");
    guest.connect().start(&cell("1", "python", "x = 1; print('one')"));
    guest.connect().start(&cell("2", "python", "print(x)"));
    assert_eq!(guest.connect().signal("0", SIGKILL), Ok(Response::Done));
    assert_eq!(rest(first), (killed(9), vec![lost(StateLoss::Killed)]));
    let one = guest.connect().follow_cell("1");
    assert_eq!((one.stdout.as_str(), one.warnings().len()), ("one\n", 1));
    assert_eq!(guest.connect().follow_cell("2").stdout, "1\n");
}

#[test]
fn output_after_the_cell_belongs_to_it_until_the_next_begins() {
    let guest = TestGuest::start();
    let code =
        "import subprocess\np = subprocess.Popen('read x; echo late', shell=True, stdin=subprocess.PIPE)";
    let mut host = guest.connect();
    host.start(&cell("a", "python", code));
    host.attach("a", 1);
    while !matches!(host.event().1, ExecEvent::Exited(_)) {}
    // From outside, so that no cell begins.
    let pid = guest.connect().contexts()[0].pid.unwrap();
    let children = crate::support::children(pid.unsigned_abs());
    assert_eq!(children.len(), 1);
    std::fs::write(format!("/proc/{}/fd/0", children[0]), "\n").unwrap();
    assert_eq!(host.event().1, ExecEvent::Stdout("late\n".into()));
    guest.connect().run_cell(&cell("b", "python", "p.wait()"));
    assert_eq!(host.event().1, ExecEvent::Closed);
}

#[test]
fn a_language_whose_program_is_missing_is_told_by_name() {
    let guest = TestGuest::start();
    let mut start = cell("a", "python", "pass");
    start.env.insert("PATH".to_owned(), "/nowhere".to_owned());
    let (reason, message) = guest.connect().not_started(&start);
    assert_eq!(reason, StartFailure::NotFound);
    assert_eq!(message, "python needs the program python3 or python, which is not in the sandbox's PATH");
    // The answer is repeated, and no context remains.
    assert_eq!(guest.connect().not_started(&start).0, StartFailure::NotFound);
    assert_eq!(guest.connect().contexts(), []);
    let mut elsewhere = cell("b", "python", "pass");
    elsewhere.cwd = "/no/such/directory".to_owned();
    assert_eq!(guest.connect().not_started(&elsewhere).0, StartFailure::BadWorkingDirectory);
    let mut stranger = cell("c", "python", "pass");
    stranger.user = "nobody-we-know".to_owned();
    assert_eq!(guest.connect().not_started(&stranger).0, StartFailure::BadUser);
    let (reason, message) = guest.connect().not_started(&cell("d", "klingon", ""));
    assert!(reason == StartFailure::NotFound && message.contains("klingon"), "{message}");
    assert!(guest.connect().run_cell(&cell("e", "python", "pass")).is_kept());
}

#[test]
fn an_interpreter_that_ends_before_it_is_ready_ends_the_cell() {
    let guest = TestGuest::start();
    crate::support::write_file(guest.path("python3"), 0o755, "#!/bin/sh\necho broken >&2\nexit 4\n");
    let mut start = cell("a", "python", "pass");
    start.env.insert("PATH".to_owned(), guest.path(""));
    let ran = guest.connect().run_cell(&start);
    assert_eq!((ran.stderr.as_str(), ran.report), ("broken\n", exited(4)));
    assert_eq!(ran.rich, [lost(StateLoss::Exited)]);
    assert_eq!(guest.connect().ask(&Request::Ping), Ok(Response::Done));
}

#[test]
fn odd_cells_are_refused() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let mut check = |change: &dyn Fn(&mut guest_protocol::ExecStart)| {
        let mut start = cell("a", "python", "pass");
        change(&mut start);
        assert_eq!(host.fails(&Request::ExecStart(start)), FailureKind::InvalidRequest);
    };
    check(&|start| start.command = command("a", &["true"]).command);
    check(&|start| start.stdin = true);
    check(&|start| start.terminal = Some(guest_protocol::TerminalSize { rows: 1, cols: 1 }));
    check(&|start| start.timeout_ms = Some(0));
    check(&|start| start.id = String::new());
    check(&|start| start.cell.as_mut().unwrap().code = "a\0b".to_owned());
    check(&|start| start.cell.as_mut().unwrap().context = Some(String::new()));
    check(&|start| start.cell.as_mut().unwrap().context = Some("x".repeat(200)));
    check(&|start| start.cell.as_mut().unwrap().language = "perl".to_owned());
}

#[test]
fn kill_all_and_shutdown_end_cells_too() {
    let mut guest = TestGuest::start();
    let first =
        begin(&guest, &cell("a", "python", "print('go', flush=True)\nimport time; time.sleep(1000)"), "go");
    guest.connect().start(&cell("waits", "python", ""));
    let pid = guest.connect().contexts()[0].pid.unwrap();
    assert_eq!(guest.connect().ask(&Request::KillAll { disk: true }), Ok(Response::Done));
    assert!(!is_alive(pid));
    assert_eq!(rest(first), (ExitReport { disk_limit: true, ..killed(9) }, vec![lost(StateLoss::Killed)]));
    assert_eq!(guest.connect().follow("waits").report.code, Some(130));
    // The sandbox continues, and ends while one context is idle and one busy.
    assert_eq!(guest.connect().run_cell(&cell_in("idle", "i", "bash", "echo idle")).stdout, "idle\n");
    let code = "import signal, sys\nsignal.signal(15, lambda *_: sys.exit(7))\nprint('go', flush=True)\nsignal.pause()";
    let mut busy = begin(&guest, &cell("busy", "python", code), "go");
    let mut host = guest.connect();
    host.request(&Request::Shutdown { grace_ms: 20_000, signal: None });
    let report = loop {
        let (number, event) = busy.event();
        busy.ack(number);
        if let ExecEvent::Exited(report) = event {
            break report;
        }
    };
    assert!(report.shutdown, "{report:?}");
    drop(busy);
    assert_eq!(host.answer(), Ok(Response::Done));
    assert!(guest.child.wait().unwrap().success());
}

#[test]
fn processes_of_a_cell_know_it() {
    let guest = TestGuest::start();
    let _host = begin(
        &guest,
        &cell("a", "python", "import subprocess\nprint('go', flush=True)\nsubprocess.run(['sleep', '1000'])"),
        "go",
    );
    eventually("the child belongs to the cell", || {
        let Ok(Response::Processes { processes }) = guest.connect().ask(&Request::Processes) else {
            panic!()
        };
        let of_cell = processes.iter().filter(|process| process.exec.as_deref() == Some("a"));
        of_cell.count() == 2
    });
}

#[test]
fn many_cells_leave_nothing_behind() {
    let guest = TestGuest::start();
    let mut before: Option<Host> = None;
    let mut run = |n: usize| {
        let mut host = guest.connect();
        let ran = host.run_cell(&cell(&format!("n{n}"), "python", "x = 1"));
        assert_eq!(ran.report, exited(0));
        // This cell closed the previous one, which can now be forgotten.
        if let Some(mut before) = before.replace(host) {
            let (number, event) = before.event();
            assert_eq!(event, ExecEvent::Closed);
            before.ack(number);
        }
    };
    (0..500).for_each(&mut run);
    let bytes = guest.private_bytes();
    (500..n_cells()).for_each(&mut run);
    let grown = guest.private_bytes().saturating_sub(bytes);
    println!("private bytes after 500 cells: {bytes}, grown after all: {grown}");
    assert!(grown < 256 * 1024, "{grown} bytes more");
    eventually(
        "all but the last are forgotten",
        || matches!(guest.connect().ask(&Request::ExecList), Ok(Response::Execs { execs }) if execs.len() == 1),
    );
    assert_eq!(guest.connect().contexts()[0].cells, n_cells() as u64);
}
