//! Code that means no good, and what becomes of it: a clear result, a sandbox that lives, a next cell that runs.

use std::process::Output;

use serde_json::Value;

use crate::harness::{Daemon, text, until};

fn run(daemon: &Daemon, language: &str, code: &str) -> Output {
    daemon.output(["code", language, "-s", "box", "-c", code])
}

/// A cell that works, as the last one before could not prevent.
fn next_works(daemon: &Daemon) {
    let output = run(daemon, "python", "print('next')");
    assert_eq!(text(&output.stdout), "next\n", "{}\n{}", text(&output.stderr), daemon.log());
    assert!(output.status.success());
}

fn in_json(daemon: &Daemon, more: &[&str], code: &str) -> (i32, Value) {
    let output =
        daemon.command(["--json", "code", "python", "-s", "box", "-c", code]).args(more).output().unwrap();
    let ran = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr)));
    (output.status.code().unwrap(), ran)
}

#[test]
fn a_fork_bomb_in_a_cell_harms_only_its_cell() {
    let daemon = Daemon::start();
    daemon.create("neighbour", &[]);
    daemon.create("box", &["--pids", "64"]);
    let bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass";
    let output =
        daemon.command(["code", "python", "-s", "box", "--timeout", "2s", "-c", bomb]).output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{}", text(&output.stderr));
    assert_eq!(daemon.sh_ok("neighbour", "echo alive"), "alive");
    // Its leftovers may take every process there is; a fresh start of the sandbox takes them away.
    if !run(&daemon, "python", "1").status.success() {
        daemon.ok(["restart", "--grace", "0s", "box"]);
    }
    next_works(&daemon);
}

#[test]
fn a_cell_without_memory_is_told_and_the_next_has_a_new_interpreter() {
    let daemon = Daemon::start();
    daemon.create("box", &["--memory", "96m"]);
    run(&daemon, "python", "x = 1");
    let (code, ran) = in_json(&daemon, &[], "held = []\nwhile True: held.append(bytearray(1 << 20))");
    assert_ne!(code, 0);
    if ran["stateKept"] == false {
        assert_eq!(ran["stateLost"], "outOfMemory", "{ran}");
        let (code, next) = in_json(&daemon, &[], "'x' in globals()");
        assert_eq!((code, &next["result"]), (0, &Value::from("False")), "{next}");
        let warnings = next["warnings"].to_string();
        assert!(warnings.contains("variables") || warnings.contains("state"), "{next}");
    } else {
        // Where a limit is one of addresses, Python hears of it itself.
        assert_eq!(ran["error"]["name"], "MemoryError", "{ran}");
    }
    next_works(&daemon);
}

#[test]
fn endless_output_is_cut_and_stopped() {
    let daemon = Daemon::start();
    daemon.create("box", &[]);
    let (code, ran) = in_json(&daemon, &["--timeout", "1s"], "while True: print('x' * 1000)");
    assert_eq!(
        (code, &ran["timedOut"], &ran["stateKept"]),
        (124, &Value::from(true), &Value::from(true)),
        "{code}"
    );
    assert!(ran["stdout"].as_str().unwrap().len() < 1_000_000);
    assert_eq!(ran["truncated"][0], "stdout");
    next_works(&daemon);
}

#[test]
fn a_time_limit_ends_the_cell_and_keeps_its_variables() {
    let daemon = Daemon::start();
    daemon.create("box", &[]);
    for (language, before, loops, after) in [
        ("python", "x = 5", "x = 6\nwhile True: pass", "x"),
        ("javascript", "let x = 5", "x = 6; while (true) {}", "x"),
        ("javascript", "x = 5", "x = 6; await new Promise(() => {})", "x"),
        ("bash", "x=5", "x=6; while :; do :; done", "echo $x"),
    ] {
        run(&daemon, language, before);
        let late = daemon
            .command(["code", language, "-s", "box", "--timeout", "500ms", "-c", loops])
            .output()
            .unwrap();
        let told = text(&late.stderr);
        assert_eq!(late.status.code(), Some(124), "{language}: {told}");
        assert!(told.contains("the code timed out; its variables are kept"), "{language}: {told}");
        assert_eq!(text(&run(&daemon, language, after).stdout), "6\n", "{language}");
    }
}

#[test]
fn a_daemon_killed_while_a_cell_runs_loses_nothing_and_the_context_lives_on() {
    let mut daemon = Daemon::start();
    daemon.create("box", &[]);
    run(&daemon, "python", "x = 41");
    let waits = "import os, time\nprint('begun', flush=True)\n\
                 while not os.path.exists('/tmp/go'): time.sleep(0.01)\nprint('done')\nx + 1";
    let child = daemon.command(["code", "python", "-s", "box", "-c", waits]);
    let child = { child }.stdout(std::process::Stdio::piped()).spawn().unwrap();
    until("the cell runs", || daemon.ok(["logs", "box"]).contains("begun"));
    daemon.kill();
    daemon.serve();
    daemon.sh_ok("box", "touch /tmp/go");
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("begun\ndone\n42\n", Some(0)));
    assert_eq!(text(&run(&daemon, "python", "x").stdout), "41\n");
}

/// Does something to every socket that the interpreter has: the driver's channel is one.
fn to_channel(what: &str) -> String {
    format!(
        "import os\nfor fd in map(int, os.listdir('/proc/self/fd')):\n    try:\n        \
         if os.readlink(f'/proc/self/fd/{{fd}}').startswith('socket:'): {what}\n    except OSError: pass"
    )
}

#[test]
fn what_a_cell_does_to_its_interpreter_is_told() {
    let daemon = Daemon::start();
    daemon.create("box", &[]);
    for (language, code) in [
        ("python", "import os; os.kill(os.getpid(), 9)"),
        ("python", &to_channel("os.write(fd, b'garbage\\n' * 100)")),
        ("python", &to_channel("os.close(fd)")),
        ("python", "import ctypes; ctypes.string_at(0)"),
        ("javascript", "process.abort()"),
        ("javascript", "require('fs').writeSync(3, 'garbage\\n')"),
        ("bash", "kill -9 $$"),
    ] {
        let output = run(&daemon, language, code);
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains("the variables are lost"), "{code}: {output:?}");
        let next = run(&daemon, language, if language == "bash" { "echo 1" } else { "1" });
        assert!(next.status.success(), "{code}: {}", text(&next.stderr));
    }
    // Its parent is the guest, which nobody inside can end.
    run(&daemon, "python", "import os\nfor pid in (os.getppid(), 1):\n  os.kill(pid, 9)");
    next_works(&daemon);
}

#[test]
fn a_figure_comes_back_as_a_picture() {
    let has = |module: &str| {
        let import = format!("import {module}");
        std::process::Command::new("/usr/bin/python3")
            .args(["-c", &import])
            .output()
            .unwrap()
            .status
            .success()
    };
    // Image `host` has what the host has.
    if !has("matplotlib") {
        return;
    }
    let daemon = Daemon::start();
    daemon.create("box", &[]);
    let plots = daemon.home().join("plots");
    let code = "import matplotlib.pyplot as plt\nline = plt.plot([1, 4, 9])";
    let output = daemon
        .command(["code", "python", "-s", "box", "-c", code, "--save-plots", plots.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stderr), daemon.log());
    let picture = std::fs::read(plots.join("plot-001.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 1000, "{} bytes", picture.len());
}

#[test]
fn what_is_no_code_is_refused_with_what_would_be() {
    let daemon = Daemon::start();
    daemon.create("box", &[]);
    let (code, told) = daemon.fails(["code", "klingon", "-s", "box", "-c", "1"]);
    assert_eq!(code, 125);
    assert!(told.contains("klingon") && told.contains("python") && told.contains("bash"), "{told}");
    let (code, told) = daemon.fails(["code", "python", "-s", "box", "-c", "def f(:\n  pass"]);
    assert_eq!(code, 1);
    assert!(told.contains("SyntaxError") && told.contains("line 1"), "{told}");
    let long = daemon.home().join("long.py");
    std::fs::write(&long, vec![b'#'; 10_000_000]).unwrap();
    let (code, told) = daemon.fails(["code", "python", "-s", "box", long.to_str().unwrap()]);
    assert_eq!(code, 125);
    assert!(told.contains("long.py"), "{told}");
    next_works(&daemon);
}
