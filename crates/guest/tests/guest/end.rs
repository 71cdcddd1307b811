//! Killing everything, shutting down, and what an idle guest holds.

use std::time::Instant;

use guest_protocol::{ExecEvent, ExitReport, FailureKind, Request, Response};

use crate::support::{TestGuest, eventually, exited, is_alive, killed, shell};

#[test]
fn kill_all_ends_the_workload_and_the_guest_stays() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let pid = host.start(&shell("a", "sleep 1000 & sleep 1000"));
    assert_eq!(host.ask(&Request::KillAll { disk: true }), Ok(Response::Done));
    assert!(!is_alive(pid));
    let ran = guest.connect().follow("a");
    assert_eq!(ran.report, ExitReport { disk_limit: true, ..killed(9) });
    host.start(&shell("b", "sleep 1000"));
    assert_eq!(host.ask(&Request::KillAll { disk: false }), Ok(Response::Done));
    assert_eq!(guest.connect().follow("b").report, killed(9));
    assert_eq!(host.ask(&Request::Ping), Ok(Response::Done));
}

#[test]
fn shutdown_is_graceful_and_the_last_events_arrive() {
    let mut guest = TestGuest::start();
    guest
        .connect()
        .start(&shell("polite", "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done"));
    let mut events = guest.connect();
    events.attach("polite", 1);
    events.wait_for("ready");
    let mut host = guest.connect();
    host.request(&Request::Shutdown { grace_ms: 20_000, signal: None });
    events.wait_for("bye");
    let (number, event) = events.event();
    assert_eq!(event, ExecEvent::Exited(ExitReport { shutdown: true, ..exited(7) }));
    events.ack(number);
    let (number, event) = events.event();
    assert_eq!(event, ExecEvent::Closed);
    events.ack(number);
    assert_eq!(host.answer(), Ok(Response::Done));
    assert!(guest.child.wait().unwrap().success());
}

#[test]
fn shutdown_kills_what_will_not_go() {
    let mut guest = TestGuest::start();
    let pid =
        guest.connect().start(&shell("stubborn", "trap '' TERM; echo ready; while :; do sleep 0.01; done"));
    let mut events = guest.connect();
    events.attach("stubborn", 1);
    events.wait_for("ready");
    let begin = Instant::now();
    let mut host = guest.connect();
    host.request(&Request::Shutdown { grace_ms: 100, signal: None });
    let report = loop {
        let (number, event) = events.event();
        events.ack(number);
        match event {
            ExecEvent::Exited(report) => break report,
            _ => assert!(is_alive(pid)),
        }
    };
    assert_eq!(report, ExitReport { shutdown: true, ..killed(9) });
    let late = guest.connect().ask(&Request::ExecStart(shell("late", "true")));
    assert!(late.is_err_and(|failure| failure.kind == FailureKind::WrongState));
    let (number, event) = events.event();
    assert_eq!(event, ExecEvent::Closed);
    events.ack(number);
    assert_eq!(host.answer(), Ok(Response::Done));
    assert!(begin.elapsed().as_secs() < 10);
    assert!(guest.child.wait().unwrap().success());
}

#[test]
fn a_host_that_never_acknowledges_delays_the_end_only_a_little() {
    let mut guest = TestGuest::start();
    guest.connect().start(&shell("e", "sleep 1000"));
    let mut events = guest.connect();
    events.attach("e", 1);
    let begin = Instant::now();
    assert_eq!(guest.connect().ask(&Request::Shutdown { grace_ms: 5000, signal: None }), Ok(Response::Done));
    assert!(begin.elapsed().as_secs() < 5);
    assert!(guest.child.wait().unwrap().success());
}

#[test]
fn an_idle_guest_holds_less_than_a_mebibyte() {
    let guest = TestGuest::start();
    // Also after some work of each kind.
    for n in 0..20 {
        guest.shell(&format!("e{n}"), "seq 1 20000");
    }
    let mut host = guest.connect();
    let write = Request::Write {
        path: guest.path("big"),
        write: guest_protocol::WriteMode::Replace,
        mode: None,
        parents: false,
    };
    host.ask_with_body(&write, &vec![7; 32 * 1024 * 1024]).unwrap();
    assert!(host.ask(&Request::Read { path: guest.path("big"), offset: 0, length: None }).is_ok());
    host.body();
    drop(host);
    eventually("memory is given back", || guest.private_bytes() < 1024 * 1024);
    println!("private bytes of an idle guest: {}", guest.private_bytes());
}
