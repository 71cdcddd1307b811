//! Terminals and stdin.

use guest_protocol::{
    ExecEvent, FailureKind, Frame, FrameKind, Request, Response, SignalScope, TerminalMode, TerminalSize,
};

use crate::support::{Host, TestGuest, eventually, exited, is_alive, killed, shell, state};

fn feed(host: &mut Host, id: &str, bytes: &[u8], close: bool) -> Result<Response, FailureKind> {
    host.ask_with_body(&Request::ExecStdin { id: id.to_owned(), close }, bytes)
        .map_err(|failure| failure.kind)
}

#[test]
fn a_terminal_has_a_size_that_changes() {
    let guest = TestGuest::start();
    let mut start = shell("t", "trap 'stty size' WINCH; tty; stty size; while :; do sleep 0.01; done");
    start.terminal = Some(TerminalSize { rows: 33, cols: 101 });
    guest.connect().start(&start);
    let mut host = guest.connect();
    host.attach("t", 1);
    let begun = host.wait_for("33 101\r\n");
    assert!(begun.starts_with("/dev/pts/"), "{begun:?}");
    let mut other = guest.connect();
    let resize = |rows, cols| Request::ExecResize { id: "t".into(), size: TerminalSize { rows, cols } };
    assert_eq!(other.fails(&resize(0, 5)), FailureKind::InvalidRequest);
    assert_eq!(other.ask(&resize(10, 20)), Ok(Response::Done));
    host.wait_for("10 20\r\n");
    // ^C through the terminal, as typed by a person.
    assert!(feed(&mut other, "t", b"\x03", false).is_ok());
    let report = loop {
        if let ExecEvent::Exited(report) = host.event().1 {
            break report;
        }
    };
    assert_eq!(report, killed(2));
}

#[test]
fn a_terminal_begins_with_the_modes_that_are_asked_for() {
    let guest = TestGuest::start();
    let modes = [(53, 0), (3, 8), (10, 255), (42, 1), (72, 0), (0, 1), (254, 7), (128, 0)];
    let script = "stty -a | grep -oE '\\b(erase|susp) = [^;]*|-echo |iutf8|-onlcr'; echo over";
    let start = guest_protocol::ExecStart {
        terminal: Some(TerminalSize { rows: 24, cols: 80 }),
        terminal_modes: modes.map(|(opcode, value)| TerminalMode { opcode, value }).to_vec(),
        ..shell("modes", script)
    };
    guest.connect().start(&start);
    let ran = guest.connect().follow("modes");
    assert_eq!(ran.stdout, "erase = ^H\nsusp = <undef>\niutf8\n-onlcr\n-echo \nover\n");
}

#[test]
fn closing_a_terminals_stdin_is_its_end_of_file() {
    let guest = TestGuest::start();
    for (id, text) in [("whole", "line\n"), ("part", "part")] {
        let mut start = shell(id, "stty -echo; echo ready; cat; echo over");
        start.terminal = Some(TerminalSize { rows: 24, cols: 80 });
        guest.connect().start(&start);
        let mut host = guest.connect();
        host.attach(id, 1);
        host.wait_for("ready");
        let bytes = text.len() as u64;
        assert_eq!(feed(&mut guest.connect(), id, text.as_bytes(), true), Ok(Response::Written { bytes }));
        let seen = host.wait_for("over");
        assert!(seen.contains(text.trim_end()), "{seen:?}");
    }
}

#[test]
fn stdin_streams_and_closes() {
    let guest = TestGuest::start();
    let mut start = shell("cat", "cat; echo over");
    start.stdin = true;
    let mut host = guest.connect();
    host.start(&start);
    assert_eq!(feed(&mut host, "cat", b"one ", false), Ok(Response::Written { bytes: 4 }));
    assert_eq!(feed(&mut host, "cat", b"", false), Ok(Response::Written { bytes: 0 }));
    assert_eq!(feed(&mut host, "cat", b"two\n", true), Ok(Response::Written { bytes: 4 }));
    assert_eq!(feed(&mut host, "cat", b"more", false), Err(FailureKind::WrongState));
    let ran = guest.connect().follow("cat");
    assert_eq!((ran.stdout.as_str(), ran.report), ("one two\nover\n", exited(0)));
    assert_eq!(feed(&mut host, "cat", b"x", false), Err(FailureKind::NotFound));
    // Without stdin, it is empty.
    host.start(&shell("none", "cat; sleep 100"));
    assert_eq!(feed(&mut host, "none", &[b'x'; 1_000_000], false), Err(FailureKind::WrongState));
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done));
}

#[test]
fn much_stdin_waits_for_the_reader() {
    let guest = TestGuest::start();
    let mut start = shell("wc", "read x; wc -c");
    start.stdin = true;
    guest.connect().start(&start);
    let bytes = [b"go\n".as_slice(), &vec![b'x'; 5_000_000]].concat();
    let length = bytes.len() as u64;
    let written = feed(&mut guest.connect(), "wc", &bytes, true);
    assert_eq!(written, Ok(Response::Written { bytes: length }));
    assert_eq!(guest.connect().follow("wc").stdout.trim(), "5000000");
}

#[test]
fn stdin_of_a_process_that_closed_it_or_ended_is_refused() {
    let guest = TestGuest::start();
    let mut start = shell("deaf", "exec <&-; echo closed; sleep 100");
    start.stdin = true;
    guest.connect().start(&start);
    let mut host = guest.connect();
    host.attach("deaf", 1);
    host.wait_for("closed");
    let mut other = guest.connect();
    assert_eq!(feed(&mut other, "deaf", &vec![b'x'; 1_000_000], false), Err(FailureKind::WrongState));
    // The connection is still in step after the refused body.
    assert_eq!(other.ask(&Request::Ping), Ok(Response::Done));
}

#[test]
fn a_host_that_leaves_in_the_middle_of_stdin_blocks_nobody() {
    let guest = TestGuest::start();
    let mut start = shell("slow", "sleep 100");
    start.stdin = true;
    guest.connect().start(&start);
    let mut leaving = guest.connect();
    leaving.request(&Request::ExecStdin { id: "slow".into(), close: false });
    leaving.send(&Frame::new(FrameKind::Data, vec![b'x'; 200_000]));
    drop(leaving);
    // The next writer gets its turn: it waits for the pipe, and gets an answer when the process ends.
    let mut next = guest.connect();
    next.request(&Request::ExecStdin { id: "slow".into(), close: false });
    next.send_body(&[b'y'; 200_000]);
    let kill = Request::ExecSignal { id: "slow".into(), signal: 9, scope: SignalScope::Group };
    assert_eq!(guest.connect().ask(&kill), Ok(Response::Done));
    assert_eq!(next.answer().unwrap_err().kind, FailureKind::WrongState);
}

#[test]
fn signals_reach_the_process_or_its_group() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let script = "sleep 1000 & echo $!; trap 'echo got' USR1; echo ready; while :; do wait; done";
    let pid = host.start(&shell("s", script));
    let mut events = guest.connect();
    events.attach("s", 1);
    let begun = events.wait_for("ready\n");
    let child: i32 = begun.lines().next().unwrap().parse().unwrap();
    let signal = |signal, scope| Request::ExecSignal { id: "s".into(), signal, scope };
    assert_eq!(host.ask(&signal(10, SignalScope::Process)), Ok(Response::Done));
    events.wait_for("got\n");
    assert!(is_alive(child));
    assert_eq!(host.ask(&signal(19, SignalScope::Group)), Ok(Response::Done));
    eventually("both are stopped", || state(pid) == Some('T') && state(child) == Some('T'));
    assert_eq!(host.ask(&signal(9, SignalScope::Group)), Ok(Response::Done));
    let report = loop {
        if let ExecEvent::Exited(report) = events.event().1 {
            break report;
        }
    };
    assert_eq!(report, killed(9));
    eventually("the child is gone too", || !is_alive(child));
    assert_eq!(host.fails(&signal(9, SignalScope::Process)), FailureKind::WrongState);
}
