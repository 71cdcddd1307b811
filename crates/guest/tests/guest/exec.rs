//! Commands, from start to end.

use std::time::Instant;

use crate::support::{TestGuest, command, eventually, exited, killed, shell, write_file};
use guest_protocol::{
    ExecEvent, ExecStatus, FailureKind, Request, Response, Rlimit, SignalScope, StartFailure, TerminalSize,
};

#[test]
fn a_command_says_something_and_ends() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done));
    let ran = guest.shell("e1", "echo out; echo err >&2; exit 3");
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(ran.report, exited(3));
    // Forgotten once its last event was acknowledged.
    eventually("the exec is forgotten", || {
        host.ask(&Request::ExecList) == Ok(Response::Execs { execs: vec![] })
    });
}

#[test]
fn the_environment_is_exactly_what_was_given_and_a_home() {
    let guest = TestGuest::start();
    let mut start = command("e", &["/usr/bin/env"]);
    let variables = [("A", "1 2"), ("B", ""), ("HOME", "/mine")];
    start.env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert_eq!(guest.connect().run(&start).stdout, "A=1 2\nB=\nHOME=/mine\n");
    // Without one, the user's default applies.
    start.id = "f".to_owned();
    start.env.remove("HOME");
    let told = guest.connect().run(&start).stdout;
    let home = told.strip_prefix("A=1 2\nB=\nHOME=").unwrap();
    assert!(home.starts_with('/') && home.lines().count() == 1, "{told}");
}

#[test]
fn the_child_has_a_clean_state() {
    let guest = TestGuest::start();
    let mut start =
        shell("e", "pwd; umask; ulimit -n; ls -l /proc/self/fd | wc -l; grep -h ^Sig /proc/self/status");
    start.cwd = "/usr".to_owned();
    start.rlimits = vec![Rlimit { resource: "nofile".to_owned(), soft: 99, hard: 99 }];
    let ran = guest.connect().run(&start);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    // "total 0", 0, 1, 2 and the directory itself: nothing of ours was inherited.
    assert_eq!(lines[..4], ["/usr", "0022", "99", "5"], "{}", ran.stdout);
    for line in &lines[4..] {
        let (name, mask) = line.split_once(":\t").unwrap();
        if ["SigBlk", "SigIgn", "SigPnd"].contains(&name) {
            assert_eq!(mask, "0000000000000000", "{name}");
        }
    }
}

#[test]
fn users_and_groups_are_those_of_the_sandbox() {
    let guest = TestGuest::start();
    let check = |user: &str, expected: &str| {
        let mut start = command(user, &["sh", "-c", "id -u; id -g; id -G"]);
        start.user = user.to_owned();
        let ran = guest.connect().run(&start);
        assert_eq!(ran.stdout.replace('\n', ","), expected, "{user}");
    };
    check("0:0", "0,0,0,");
    check("root", "0,0,0,");
    check("4242:4343", "4242,4343,4343,");
    check("nobody", "65534,65534,65534,");
}

#[test]
fn each_way_not_to_start_has_its_own_reason() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    write_file(guest.path("plain"), 0o644, "#!/bin/sh\n");
    write_file(guest.path("garbage"), 0o755, "\x7fELF nonsense\0\0");
    write_file(guest.path("lost"), 0o755, "#!/no/such/interpreter\n");
    let (plain, garbage, lost) = (guest.path("plain"), guest.path("garbage"), guest.path("lost"));
    let mut n = 0;
    let mut check =
        |program: &str, change: &dyn Fn(&mut guest_protocol::ExecStart), expected, names: &str| {
            n += 1;
            let mut start = command(&format!("e{n}"), &[program]);
            change(&mut start);
            let (reason, message) = host.not_started(&start);
            assert_eq!(reason, expected, "{program}: {message}");
            assert!(message.contains(names), "{message:?} does not name {names:?}");
            // A repeated request gets the first answer.
            assert_eq!(host.not_started(&start), (reason, message));
        };
    let same = &|_: &mut guest_protocol::ExecStart| {};
    check("no-such-program", same, StartFailure::NotFound, "no-such-program");
    check("/no/such/program", same, StartFailure::NotFound, "/no/such/program");
    check("/etc/passwd/x", same, StartFailure::NotFound, "/etc/passwd/x");
    check("/", same, StartFailure::NotExecutable, "/");
    check(&plain, same, StartFailure::NotExecutable, &plain);
    check(&garbage, same, StartFailure::NotExecutable, &garbage);
    check(&lost, same, StartFailure::NotExecutable, "interpreter");
    check("true", &|start| start.cwd = "/no/such".into(), StartFailure::BadWorkingDirectory, "/no/such");
    check(
        "true",
        &|start| start.cwd = "/etc/passwd".into(),
        StartFailure::BadWorkingDirectory,
        "/etc/passwd",
    );
    check("true", &|start| start.user = "nobody-here".into(), StartFailure::BadUser, "nobody-here");
    check("true", &|start| start.user = "0:no-group".into(), StartFailure::BadUser, "no-group");
    let too_high = Rlimit { resource: "nofile".into(), soft: u64::MAX - 1, hard: u64::MAX - 1 };
    check("true", &|start| start.rlimits = vec![too_high.clone()], StartFailure::LimitReached, "nofile");
    let huge = "x".repeat(3 * 1024 * 1024);
    check("true", &|start| start.command.push(huge.clone()), StartFailure::LimitReached, "true");
    assert_eq!(guest.zombies(), [0; 0]);
}

#[test]
fn malformed_requests_are_failures_and_the_connection_stays() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let good = command("e", &["true"]);
    for bad in [
        guest_protocol::ExecStart { command: vec![], ..good.clone() },
        guest_protocol::ExecStart { command: vec!["a\0b".into()], ..good.clone() },
        guest_protocol::ExecStart { cwd: "here".into(), ..good.clone() },
        guest_protocol::ExecStart { id: String::new(), ..good.clone() },
        guest_protocol::ExecStart {
            rlimits: vec![Rlimit { resource: "speed".into(), soft: 1, hard: 1 }],
            ..good.clone()
        },
    ] {
        assert_eq!(host.fails(&Request::ExecStart(bad)), FailureKind::InvalidRequest);
    }
    let signal = |id: &str, signal| Request::ExecSignal { id: id.into(), signal, scope: SignalScope::Group };
    assert_eq!(host.fails(&signal("e", 15)), FailureKind::NotFound);
    assert_eq!(host.fails(&Request::ExecAttach { id: "e".into(), from: 1 }), FailureKind::NotFound);
    host.start(&shell("s", "sleep 100"));
    assert_eq!(host.fails(&signal("s", 0)), FailureKind::InvalidRequest);
    assert_eq!(host.fails(&signal("s", 65)), FailureKind::InvalidRequest);
    assert_eq!(host.fails(&Request::ExecAttach { id: "s".into(), from: 3 }), FailureKind::InvalidRequest);
    assert_eq!(host.fails(&Request::ExecAttach { id: "s".into(), from: 0 }), FailureKind::InvalidRequest);
    let resize = Request::ExecResize { id: "s".into(), size: TerminalSize { rows: 1, cols: 1 } };
    assert_eq!(host.fails(&resize), FailureKind::WrongState);
}

#[test]
fn a_script_without_a_first_line_runs_in_the_shell() {
    let guest = TestGuest::start();
    write_file(guest.path("script"), 0o755, "echo ran $0 $1\n");
    let script = guest.path("script");
    let ran = guest.connect().run(&command("e", &[&script, "argument"]));
    assert_eq!(ran.stdout, format!("ran {script} argument\n"));
}

#[test]
fn the_same_id_starts_once() {
    let guest = TestGuest::start();
    let start = shell("once", "echo x; sleep 100");
    let pid = guest.connect().start(&start);
    assert_eq!(guest.connect().start(&start), pid);
    let mut host = guest.connect();
    host.attach("once", 1);
    assert_eq!(host.wait_for("x\n"), "x\n");
}

#[test]
fn a_million_lines_survive_lost_connections_once_and_in_order() {
    let guest = TestGuest::start();
    guest.connect().start(&command("seq", &["seq", "1", "1000000"]));
    let (mut last, mut output, mut finished, mut rounds) = (0, vec![], false, 0);
    while !finished {
        rounds += 1;
        let mut host = guest.connect();
        assert_eq!(host.attach("seq", last + 1), last + 1);
        // Acknowledge only part of what was taken, then vanish in the middle.
        for round in 0.. {
            let (number, event) = host.event();
            assert_eq!(number, last + 1);
            last = number;
            match event {
                ExecEvent::Stdout(bytes) => output.extend_from_slice(&bytes),
                ExecEvent::Exited(report) => assert_eq!(report, exited(0)),
                ExecEvent::Closed => finished = true,
                _ => {}
            }
            if round % 3 == 0 {
                host.ack(number.saturating_sub(2));
            }
            if finished || round == 25 {
                break;
            }
        }
    }
    assert!(rounds > 2, "the connection was never lost");
    let text = String::from_utf8(output).unwrap();
    assert!(text.lines().enumerate().all(|(n, line)| line == (n + 1).to_string()));
    assert_eq!(text.lines().count(), 1_000_000);
}

#[test]
fn the_exit_comes_after_everything_that_was_printed() {
    let guest = TestGuest::start();
    for n in 0..10 {
        let ran = guest.connect().run(&command(&format!("e{n}"), &["seq", "1", "300000"]));
        assert_eq!((ran.stdout.lines().count(), ran.late.as_str()), (300_000, ""));
    }
}

#[test]
fn a_second_attach_takes_over() {
    let guest = TestGuest::start();
    guest.connect().start(&shell("e", "echo one; read x; echo two"));
    let mut first = guest.connect();
    first.attach("e", 1);
    assert_eq!(first.event().0, 1);
    let mut second = guest.connect();
    second.attach("e", 1);
    assert_eq!(second.event().0, 1);
    while first.try_frame().is_some() {}
}

#[test]
fn a_writer_that_nobody_reads_waits_and_memory_stays_bounded() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let pid = host.start(&command("yes", &["yes"]));
    let held = |host: &mut crate::support::Host| match host.ask(&Request::ExecList) {
        Ok(Response::Execs { execs }) => execs[0].last_event,
        other => panic!("{other:?}"),
    };
    // Once pipe and window are full, it sleeps in write, and repeated checks show no change.
    let waits = || std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    let (mut last, mut since) = (0, std::time::Instant::now());
    eventually("yes waits on its pipe for good", || {
        let now = held(&mut host);
        let stands = now == last && ["pipe_write", "wait"].iter().any(|place| waits().contains(place));
        if !stands {
            since = std::time::Instant::now();
        }
        last = now;
        since.elapsed() > std::time::Duration::from_millis(500)
    });
    let before = held(&mut host);
    assert!(guest.private_bytes() < 4 * 1024 * 1024, "{}", guest.private_bytes());
    assert_eq!(held(&mut host), before);
    // Reading makes room again.
    let mut reader = guest.connect();
    reader.attach("yes", 1);
    for _ in 0..200 {
        let (number, _) = reader.event();
        reader.ack(number);
    }
    assert!(held(&mut host) > before);
}

#[test]
fn output_of_a_child_left_behind_follows_the_exit() {
    let guest = TestGuest::start();
    let fifo = guest.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let script = format!("(read x < {fifo}; echo late) & echo early");
    guest.connect().start(&shell("e", &script));
    let mut host = guest.connect();
    host.attach("e", 1);
    assert_eq!(host.wait_for("early\n"), "early\n");
    assert_eq!(host.event().1, ExecEvent::Exited(exited(0)));
    let status = match guest.connect().ask(&Request::ExecList) {
        Ok(Response::Execs { execs }) => execs[0].status,
        other => panic!("{other:?}"),
    };
    assert_eq!(status, ExecStatus::Exited);
    std::fs::write(&fifo, "go\n").unwrap();
    assert_eq!(host.event().1, ExecEvent::Stdout("late\n".into()));
    assert_eq!(host.event().1, ExecEvent::Closed);
}

#[test]
fn the_time_limit_kills_grandchildren_and_keeps_what_was_printed() {
    let guest = TestGuest::start();
    let mut start = shell("e", "echo begun; (setsid sleep 300 & echo $!; sleep 300) & wait");
    start.timeout_ms = Some(300);
    let begin = Instant::now();
    let ran = guest.connect().run(&start);
    assert!(begin.elapsed().as_secs() < 10);
    assert_eq!(ran.report, guest_protocol::ExitReport { timed_out: true, ..killed(9) });
    assert!(ran.stdout.starts_with("begun\n"), "{ran:?}");
}

#[test]
fn what_was_killed_before_it_was_started_never_runs() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let (marker, id) = (guest.path("ran"), "given-up".to_owned());
    let kill = Request::ExecSignal { id, signal: 9, scope: SignalScope::Group };
    assert_eq!(host.fails(&kill), FailureKind::NotFound);
    // The start took longer to arrive than the kill.
    let (reason, message) = host.not_started(&shell("given-up", &format!("touch {marker}")));
    assert_eq!(reason, StartFailure::Other);
    assert!(message.contains("killed"), "{message}");
    assert!(!std::path::Path::new(&marker).exists());
    // Any other id is not affected.
    assert_eq!(guest.shell("another", "true").report, exited(0));
}
