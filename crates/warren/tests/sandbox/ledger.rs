//! No byte of output is lost, whoever dies.

use crate::harness::{Daemon, until};

const LINES: usize = 1_000_000;

#[test]
fn a_daemon_killed_in_the_middle_of_a_million_lines_loses_none() {
    let mut daemon = Daemon::start();
    daemon.create("scribe", &[]);
    // The last fifth is held back until a file is there, so that no kill comes too late to matter.
    let script = format!(
        "fifth=$(({LINES} / 5)); i=0; while [ $i -lt 5 ]; do seq $((i * fifth + 1)) $(((i + 1) * fifth)); i=$((i + 1)); \
         while [ $i -eq 4 ] && ! [ -e /tmp/go ]; do sleep 0.01; done; done; exit 7"
    );
    let exec = daemon.json(["exec", "--detach", "--json", "scribe", "/bin/sh", "-c", &script]);
    let exec = exec["id"].as_str().unwrap().to_owned();

    until("output is in the ledger", || daemon.exec_view("scribe", &exec)["lastEntry"].as_u64() > Some(1));
    for _ in 0..3 {
        daemon.kill();
        daemon.serve();
    }
    daemon.sh_ok("scribe", "touch /tmp/go");
    daemon.kill();
    daemon.serve();

    assert_eq!(daemon.output(["wait", "scribe", &exec]).status.code(), Some(7));
    let output = daemon.ok(["logs", "scribe", &exec]);
    let mut expected = 1;
    for line in output.lines() {
        assert_eq!(line.parse(), Ok(expected), "after line {}", expected - 1);
        expected += 1;
    }
    assert_eq!(expected, LINES + 1);
}

#[test]
fn output_of_a_process_left_behind_is_kept_and_the_exec_still_ends() {
    let daemon = Daemon::start();
    daemon.create("host", &[]);
    let (code, out, _) = daemon.sh("host", "echo first; (sleep 0.2; echo late) & exit 3");
    assert_eq!((code, out.lines().next()), (3, Some("first")));
    until("the late line is in the log", || daemon.ok(["logs", "host"]).contains("late"));
}

#[test]
fn stdout_and_stderr_stay_apart_and_bytes_stay_bytes() {
    let daemon = Daemon::start();
    daemon.create("raw", &[]);
    let output = daemon.output(["exec", "raw", "/bin/sh", "-c", "printf '\\000\\377a'; printf 'oops' >&2"]);
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"\x00\xffa"[..], &b"oops"[..]));
}
