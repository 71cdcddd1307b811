use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::Stdio,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::{PATIENCE, World, finish, until};

#[test]
fn output_and_exit_codes_pass_through() {
    let world = World::with_dev();
    let check = |args: &[&str], code: i32, stdout: &str| {
        assert_eq!(world.run(args).expect(code).text(), stdout, "{args:?}");
    };
    check(&["exec", "dev", "echo", "hello"], 0, "hello\n");
    check(&["exec", "dev", "sh", "-c", "exit 42"], 42, "");
    check(&["exec", "dev", "no-such-program"], 127, "");
    check(&["exec", "dev", "/tmp"], 126, "");
    check(&["exec", "--timeout", "100ms", "dev", "sleep", "60"], 124, "");
    check(&["exec", "dev", "sh", "-c", "kill -TERM $$"], 143, "");
    check(&["exec", "dev", "sh", "-c", "kill -KILL $$"], 137, "");
    check(&["exec", "-e", "A=b c", "dev", "sh", "-c", "echo $A"], 0, "b c\n");
    check(&["exec", "-w", "/tmp", "dev", "pwd"], 0, "/tmp\n");
    check(&["exec", "dev", "--", "echo", "--json", "-i"], 0, "--json -i\n");
    check(&["exec", "nobody", "true"], 125, "");
    let both = world.run(&["exec", "dev", "sh", "-c", "echo out; echo err >&2"]).expect(0);
    assert_eq!((both.text().as_str(), both.stderr.as_str()), ("out\n", "err\n"));
    let missing = world.run(&["exec", "dev", "no-such-program"]);
    assert!(missing.stderr.contains("no-such-program"), "{missing:?}");
}

#[test]
fn run_makes_and_removes_a_sandbox() {
    let world = World::new();
    assert_eq!(world.run(&["run", "echo", "once"]).expect(0).text(), "once\n");
    world.run(&["run", "sh", "-c", "exit 3"]).expect(3);
    world.run(&["run", "no-such-program"]).expect(127);
    world.run(&["run", "--timeout", "200ms", "sleep", "60"]).expect(124);
    assert_eq!(world.run(&["ps", "-aq"]).expect(0).text(), "");
    world.run(&["run", "--name", "stays", "true"]).expect(0);
    world.run(&["run", "--name", "goes", "--rm", "true"]).expect(0);
    let kept = world.run(&["run", "--keep", "-l", "kept=1", "true"]).expect(0);
    assert!(kept.stderr.contains("warren exec -it "), "{kept:?}");
    let background = world.run(&["run", "-d", "sleep", "60"]).expect(0).text();
    assert!(!background.trim().is_empty());
    assert_eq!(world.run(&["ps", "-aq"]).expect(0).text().lines().count(), 3);
    world.run(&["run", "-d", "no-such-program"]).expect(127);
    // A command that cannot begin leaves no sandbox, even one with a name.
    for args in
        [["run", "--name", "x1", "no-such-program"].as_slice(), &["run", "--name", "x1", "-d", "/tmp"]]
    {
        assert_ne!(world.run(args).code, Some(0), "{args:?}");
    }
    let failed = world.run(&["run", "--json", "--name", "x1", "no-such-program"]).expect(127).json();
    assert_eq!(failed["removed"], true);
    assert_eq!(world.run(&["ps", "-aq"]).expect(0).text().lines().count(), 3);
    world.run(&["run", "--keep", "--name", "x1", "no-such-program"]).expect(127);
    assert_eq!(world.run(&["inspect", "x1"]).expect(0).json()["state"], "running");
}

#[test]
fn python_is_found_by_either_name() {
    let world = World::new();
    let root = crate::images::unpacked_root(&world);
    let missing = world.run(&["run", "--rootfs", root.to_str().unwrap(), "python", "-c", "1"]).expect(127);
    assert!(missing.stderr.contains("python3"), "{missing:?}");
    if !std::path::Path::new("/usr/bin/python3").exists() {
        println!("skipped in part: this host has no python3");
        return;
    }
    assert_eq!(world.run(&["run", "python", "-c", "print(6 * 7)"]).expect(0).text(), "42\n");
}

#[test]
fn stdin_is_passed_byte_for_byte() {
    let world = World::with_dev();
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let echoed = world.run_with_input(&["exec", "-i", "dev", "cat"], &bytes).expect(0);
    assert!(echoed.stdout == bytes, "{} of {} bytes", echoed.stdout.len(), bytes.len());
    assert_eq!(world.run_with_input(&["run", "-i", "cat"], b"").expect(0).text(), "");
    assert_eq!(world.run_with_input(&["run", "-i", "wc", "-c"], b"12345").expect(0).text().trim(), "5");
    let unread = world.run_with_input(&["exec", "-i", "dev", "true"], &bytes);
    assert_eq!(unread.expect(0).text(), "");
}

#[test]
fn json_shows_the_outcome_and_the_output() {
    let world = World::with_dev();
    let ran = world.run(&["--json", "exec", "dev", "sh", "-c", "echo hi; exit 5"]).expect(5).json();
    assert_eq!(ran["outcome"], json!({ "type": "exited", "code": 5, "memoryLimitHit": false }));
    assert_eq!((&ran["stdout"]["text"], &ran["exitCode"]), (&json!("hi\n"), &json!(5)));
    let ran = world.run(&["--json", "run", "echo", "x"]).expect(0).json();
    assert_eq!((&ran["exec"]["stdout"]["text"], &ran["removed"]), (&json!("x\n"), &json!(true)));
    assert_eq!(world.run(&["--json", "create"]).expect(0).json()["state"], "running");
    let failed = world.run(&["--json", "exec", "nobody", "true"]).expect(125);
    let error: serde_json::Value = serde_json::from_str(&failed.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "not_found");
    assert!(error["error"]["requestId"].as_str().is_some_and(|id| world.log().contains(id)), "{error}");
}

#[test]
fn the_commands_that_ran_are_listed() {
    let world = World::with_dev();
    world.run(&["exec", "dev", "echo", "first"]).expect(0);
    world.run(&["exec", "dev", "sh", "-c", "exit 3"]).expect(3);
    world.run(&["exec", "-d", "dev", "sleep", "60"]).expect(0);
    let shown = world.run(&["execs", "dev"]).expect(0).text();
    let commands: Vec<_> =
        shown.lines().skip(1).map(|line| line.split("  ").last().unwrap().trim()).collect();
    assert_eq!(commands, ["sleep 60", "sh -c exit 3", "echo first"], "{shown}");
    let one = world.run(&["execs", "dev", "-n", "1", "--json"]).expect(0).json();
    assert_eq!(
        (&one["execs"][0]["command"], one["execs"].as_array().unwrap().len()),
        (&json!(["sleep", "60"]), 1)
    );
    let running = world.run(&["execs", "--running", "-q"]).expect(0).text();
    assert_eq!(running.trim(), one["execs"][0]["id"]);
    // Completion describes them, and `attach` offers those that run.
    let offered =
        world.run(&["complete", "--described", "--", "warren", "attach", "dev", ""]).expect(0).text();
    assert_eq!(offered, format!("{}\tsleep 60\n", running.trim()));
    let begun = world.run(&["events", "--sandbox", "dev", "--kind", "exec_started"]).expect(0).text();
    assert!(begun.contains("echo first") && begun.contains("sleep 60"), "{begun}");
    assert!(world.run(&["ps", "dev"]).expect(2).stderr.contains("`warren execs dev`"));
}

#[test]
fn the_same_request_id_runs_once() {
    let world = World::with_dev();
    let run = || world.run(&["exec", "-d", "--requestId", "r1", "dev", "echo", "x"]).expect(0).text();
    assert_eq!(run(), run());
}

#[test]
fn logs_are_read_from_anywhere_and_followed() {
    let world = World::with_dev();
    // Standard error comes last in the log only if it was written after all else had been read.
    let script = "seq 1 100; read line; echo oops >&2";
    let mut child =
        world.command(&["exec", "-i", "dev", "sh", "-c", script]).stdin(Stdio::piped()).spawn().unwrap();
    let mut shown = BufReader::new(child.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
    assert!(shown.any(|line| line == "100"));
    writeln!(child.stdin.take().unwrap()).unwrap();
    finish(child).expect(0);
    let whole = world.run(&["logs", "dev"]).expect(0);
    let lines: String = (1..=100).map(|n| format!("{n}\n")).collect();
    assert_eq!((whole.text(), whole.stderr.as_str()), (lines, "oops\n"));
    let tail = world.run(&["logs", "--tail", "3", "dev"]).expect(0);
    assert_eq!((tail.text().as_str(), tail.stderr.as_str()), ("99\n100\n", "oops\n"));
    let json = world.run(&["logs", "--json", "dev"]).expect(0).text();
    let kinds: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&kinds[0]["kind"], &kinds[0]["number"]), (&json!("started"), &json!(1)));
    let from = kinds[2]["number"].to_string();
    let part = world.run(&["logs", "--json", "--from", &from, "dev"]).expect(0).text();
    assert_eq!(serde_json::from_str::<serde_json::Value>(part.lines().next().unwrap()).unwrap(), kinds[2]);
    // Of a command that has ended nothing more can come.
    for args in [["logs", "-f", "--tail", "3", "dev"], ["logs", "-f", "--from", "1000", "dev"]] {
        let followed = world.run(&args).expect(0);
        let whole = if args[2] == "--tail" { ("99\n100\n", "oops\n") } else { ("", "") };
        assert_eq!((followed.text().as_str(), followed.stderr.as_str()), whole, "{args:?}");
    }
    let stamped = world.run(&["logs", "--timestamps", "--tail", "1", "dev"]).expect(0);
    assert!(stamped.stderr.starts_with("20") && stamped.stderr.ends_with("Z oops\n"), "{stamped:?}");

    let exec = world.run(&["exec", "-d", "dev", "sh", "-c", "echo a; sleep 0.2; echo b"]).expect(0).text();
    assert_eq!(world.run(&["logs", "-f", "dev", exec.trim()]).expect(0).text(), "a\nb\n");
    world.run(&["create", "--name", "quiet"]).expect(0);
    let nothing = world.run(&["logs", "quiet"]).expect(125);
    assert!(nothing.stderr.contains("quiet"), "{nothing:?}");
}

#[test]
fn signals_are_passed_on() {
    let world = World::with_dev();
    let start = |script: &str| {
        let mut child = world.command(&["exec", "dev", "sh", "-c", script]).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(&ready, b"ready\n");
        (Pid::from_child(&child), child)
    };
    let (pid, child) = start("echo ready; exec sleep 60");
    kill_process(pid, Signal::INT).unwrap();
    finish(child).expect(130);
    let (pid, child) = start("echo ready; exec sleep 60");
    kill_process(pid, Signal::TERM).unwrap();
    finish(child).expect(143);
}

#[test]
fn a_command_outlives_the_daemon_and_its_reader_misses_nothing() {
    const LINES: usize = 200_000;
    let world = World::with_dev();
    let script = format!("seq 1 {LINES}; exit 9");
    let mut child = world.command(&["exec", "dev", "sh", "-c", &script]).spawn().unwrap();
    let mut begin = vec![0; 4096];
    child.stdout.as_mut().unwrap().read_exact(&mut begin).unwrap();
    let daemon = world.daemon().unwrap();
    daemon.signal(Signal::KILL);
    assert!(daemon.ends_within(PATIENCE));
    let mut ended = finish(child).expect(9);
    begin.append(&mut ended.stdout);
    let expected: String = (1..=LINES).map(|n| format!("{n}\n")).collect();
    assert!(begin == expected.as_bytes(), "{} of {} bytes", begin.len(), expected.len());
    assert_ne!(world.daemon().unwrap().pid, daemon.pid);
}

#[test]
fn stdin_goes_on_to_the_next_daemon_unless_some_of_it_may_be_lost() {
    let world = World::with_dev();
    let killed = || {
        let daemon = world.daemon().unwrap();
        daemon.signal(Signal::KILL);
        assert!(daemon.ends_within(PATIENCE));
    };
    let start = |script: &str| {
        let mut child = world
            .command(&["exec", "-i", "dev", "sh", "-c", script])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        (child, stdin)
    };
    // Nothing had been sent when the daemon died.
    let (child, mut stdin) = start("echo ready; cat");
    killed();
    stdin.write_all(b"late\n").unwrap();
    drop(stdin);
    assert_eq!(finish(child).expect(0).text(), "late\n");

    let (mut child, mut stdin) = start("echo ready; read line; echo \"$line\"; cat");
    stdin.write_all(b"first\n").unwrap();
    let mut first = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    killed();
    let ended = finish(child).expect(125);
    assert!(ended.stderr.contains("some of it may be lost"), "{ended:?}");
    until("the command has ended", || world.running_execs() == 0);
}

#[test]
fn the_second_signal_is_for_us() {
    let world = World::with_dev();
    let script = "trap 'echo again' INT; echo ready; while :; do sleep 1; done";
    let mut child = world.command(&["exec", "dev", "sh", "-c", script]).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "again");
    kill_process(pid, Signal::INT).unwrap();
    finish(child).expect(130);
    assert_eq!(world.running_execs(), 1, "the command itself goes on");
}
