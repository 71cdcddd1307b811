//! Bad input gets the right answer and leaves nothing behind.

use crate::harness::{Daemon, host_file, text};

#[test]
fn names_that_are_paths_or_worse_are_refused() {
    let daemon = Daemon::start();
    for name in ["..", ".", "../x", "/etc", "a/b", "-", "名前", "a b", "sbx-x", "", &"x".repeat(10_000)] {
        let output = daemon.command(["create", &format!("--name={name}")]).output().unwrap();
        let code = output.status.code();
        assert!(code == Some(2) || code == Some(125), "{name:?} answered {code:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains("error:"), "{stderr}");
    }
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

#[test]
fn absurd_limits_are_refused_by_name() {
    let daemon = Daemon::start();
    for (flag, value, named) in [
        ("--memory", "1", "memory"),
        ("--memory", "-5m", "-5m"),
        ("--memory", "99999999999999999999", "99999999999999999999"),
        ("--pids", "0", "pids"),
        ("--cpus", "0", "cpus"),
        ("--cpus", "-1", "cpus"),
        ("--cpus", "NaN", "cpus"),
        ("--disk", "1k", "disk"),
        ("--open-files", "1", "openFiles"),
    ] {
        let output = daemon.command(["create", &format!("{flag}={value}")]).output().unwrap();
        assert!(!output.status.success(), "{flag} {value}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(named), "{flag} {value}: {stderr}");
    }
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

#[test]
fn what_cannot_start_says_why() {
    let daemon = Daemon::start();
    daemon.create("strict", &[]);
    for (arguments, code, named) in [
        (&["strict", "no-such-program"][..], 127, "no-such-program"),
        (&["strict", "/no/such/program"], 127, "/no/such/program"),
        (&["strict", "/etc"], 126, "/etc"),
        (&["strict", "/etc/passwd"], 126, "/etc/passwd"),
        (&["--user", "nobody-here", "strict", "true"], 125, "nobody-here"),
        (&["--cwd", "/no/such/dir", "strict", "true"], 125, "/no/such/dir"),
        (&["--cwd", "/etc/passwd", "strict", "true"], 125, "/etc/passwd"),
        (&["nobody", "true"], 125, "nobody"),
    ] {
        let output = daemon.command(["exec"]).args(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(named), "{arguments:?}: {stderr}");
    }
}

#[test]
fn too_much_environment_is_refused_before_it_reaches_the_kernel() {
    let daemon = Daemon::start();
    daemon.create("crowded", &[]);
    let mut command = daemon.command(["exec"]);
    for number in 0..12 {
        command.arg("--env").arg(format!("V{number}={}", "x".repeat(100_000)));
    }
    let output = command.args(["crowded", "true"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("bytes"), "{stderr}");
}

#[test]
fn what_runs_is_not_removed_unless_forced() {
    let daemon = Daemon::start();
    daemon.create("alive", &[]);
    let (_, stderr) = daemon.fails(["rm", "alive"]);
    assert!(stderr.contains("alive") && stderr.contains("hint:"), "{stderr}");
    assert_eq!(daemon.sh_ok("alive", "echo still"), "still");
    daemon.ok(["rm", "--force", "alive"]);
}

#[test]
fn one_of_two_creates_with_one_name_wins() {
    let daemon = Daemon::start();
    let codes: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| daemon.output(["create", "--name", "only"]).status.code()))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
    assert_eq!(daemon.json(["ps", "--json"])["sandboxes"].as_array().unwrap().len(), 1);
}

#[test]
fn a_request_sent_twice_has_one_effect() {
    let daemon = Daemon::start();
    let one = daemon.json(["create", "--request-id", "r-1", "--json"]);
    let two = daemon.json(["create", "--request-id", "r-1", "--json"]);
    assert_eq!(one["id"], two["id"]);
}

/// Whether the answer or the end of the connection is noticed first is chance: one try shows little.
const TRIES: usize = 10;

#[test]
fn an_upload_that_is_refused_in_the_middle_is_told_why() {
    let daemon = Daemon::start();
    daemon.create("box", &[]);
    daemon.ok(["volume", "create", "data"]);
    let place = tempfile::tempdir().unwrap();
    let large = host_file(place.path(), "large", &vec![b'x'; 64 << 20]);
    let path = large.to_str().unwrap();
    for (arguments, named) in [
        (&["image", "import", path, "x:1", "--config", "{"][..], "invalid image configuration"),
        (&["build", "-t", "Bad Name", "-"], "Bad Name"),
        (&["cp", path, "nobody:/x"], "nobody"),
        (&["cp", path, "box:/missing/x"], "/missing"),
        (&["volume", "cp", path, "nothing:/x"], "nothing"),
        (&["load"], "error"),
    ] {
        for _ in 0..TRIES {
            let stdin = std::fs::File::open(&large).unwrap();
            let output = daemon.command(arguments).stdin(stdin).output().unwrap();
            let stderr = text(&output.stderr);
            assert!(!output.status.success(), "{arguments:?}");
            assert!(stderr.contains(named) && !stderr.contains("connection"), "{arguments:?}: {stderr}");
        }
    }
    assert!(daemon.sh_ok("box", "ls /").contains("etc"), "and all is well");
}
