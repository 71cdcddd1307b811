//! People's work all day: run, look, copy.

use std::{fs, io::Write, process::Stdio};

use crate::harness::{Daemon, host_file, is_root, text};

#[test]
fn run_prints_what_python_prints_and_passes_its_exit_code() {
    let daemon = Daemon::start();
    assert_eq!(daemon.ok(["run", "python3", "-c", "print(6 * 7)"]), "42\n");
    assert_eq!(daemon.output(["run", "python3", "-c", "raise SystemExit(9)"]).status.code(), Some(9));
    assert_eq!(daemon.output(["run", "/bin/sh", "-c", "kill -TERM $$"]).status.code(), Some(143));
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

#[test]
fn a_command_that_takes_too_long_is_killed_with_its_children_and_its_output_kept() {
    let daemon = Daemon::start();
    daemon.create("late", &[]);
    let output = daemon.output([
        "exec",
        "--timeout",
        "300ms",
        "late",
        "/bin/sh",
        "-c",
        "echo begun; sleep 1000 & sleep 1000",
    ]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(124), "begun\n".to_owned()));
    assert_eq!(daemon.sh_ok("late", "pgrep sleep | wc -l"), "0");
}

#[test]
fn stdin_reaches_the_command_and_its_end_too() {
    let daemon = Daemon::start();
    daemon.create("reader", &[]);
    let mut child = daemon
        .command(["exec", "-i", "reader", "wc", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&vec![b'x'; 3_000_000]).unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout).trim(), "3000000");
}

#[test]
fn environment_directory_and_user_are_as_asked() {
    let daemon = Daemon::start();
    daemon.create("room", &["--env", "COLOUR=green", "--cwd", "/srv"]);
    assert_eq!(daemon.sh_ok("room", "echo $COLOUR $PWD $(id -u) $(hostname)"), "green /srv 0 room");
    let output = daemon.output([
        "exec",
        "--env",
        "COLOUR=red",
        "--cwd",
        "/tmp",
        "room",
        "/bin/sh",
        "-c",
        "echo $COLOUR $PWD",
    ]);
    assert_eq!(text(&output.stdout), "red /tmp\n");
    if is_root() {
        let output = daemon.output(["exec", "--user", "sandbox", "room", "id", "-un"]);
        assert_eq!(text(&output.stdout), "sandbox\n", "{}", text(&output.stderr));
    }
}

#[test]
fn files_and_trees_go_in_and_come_out_unchanged() {
    let daemon = Daemon::start();
    daemon.create("mover", &[]);
    let host = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let file = host_file(host.path(), "blob", &bytes);
    daemon.ok(["cp", file.to_str().unwrap(), "mover:/root/blob"]);
    assert_eq!(daemon.sh_ok("mover", "wc -c < /root/blob"), "5000000");
    let back = host.path().join("back");
    daemon.ok(["cp", "mover:/root/blob", back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == bytes);

    let tree = host.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    host_file(&tree, "a/b/c.txt", b"deep");
    std::os::unix::fs::symlink("b/c.txt", tree.join("a/link")).unwrap();
    daemon.ok(["cp", tree.to_str().unwrap(), "mover:/srv/"]);
    assert_eq!(daemon.sh_ok("mover", "cat /srv/tree/a/link; readlink /srv/tree/a/link"), "deepb/c.txt");
    let out = host.path().join("out");
    daemon.ok(["cp", "mover:/srv/tree", out.to_str().unwrap()]);
    assert_eq!(fs::read(out.join("a/b/c.txt")).unwrap(), b"deep");

    let output = daemon.output(["cp", "mover:/srv/tree", "-"]);
    let mut archive = tar::Archive::new(output.stdout.as_slice());
    let names: Vec<_> =
        archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().display().to_string()).collect();
    assert!(names.iter().any(|name| name == "tree/a/b/c.txt"), "{names:?}");
}

#[test]
fn a_terminal_is_a_terminal() {
    let daemon = Daemon::start();
    daemon.create("tty", &[]);
    let warren = daemon.command(["exec"]).get_program().to_str().unwrap().to_owned();
    let line = format!("{warren} exec -it tty /bin/sh -c 'tty; stty size'");
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &format!("stty rows 33 cols 101; {line}"), "/dev/null"]);
    command.env("WARREN_HOME", daemon.home()).env("WARREN_RUN", daemon.run_directory()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let out = text(&output.stdout);
    assert!(out.contains("/dev/pts/0") && out.contains("33 101"), "{out}");
}

#[test]
fn what_runs_can_be_seen() {
    let daemon = Daemon::start();
    daemon.create("seen", &["--label", "team=blue"]);
    daemon.json(["exec", "--detach", "--json", "seen", "sleep", "1000"]);
    assert!(daemon.ok(["top", "seen"]).contains("sleep"));
    assert!(daemon.ok(["ps", "--filter", "label=team=blue"]).contains("seen"));
    assert!(!daemon.ok(["ps", "--filter", "label=team=red"]).contains("seen"));
    let stats = daemon.json(["stats", "seen", "--json"]);
    let stats = if stats.is_array() { stats[0].clone() } else { stats };
    if is_root() {
        assert!(
            stats["usage"]["memoryBytes"].as_u64().or(stats["memoryBytes"].as_u64()).unwrap() > 0,
            "{stats}"
        );
    }
    let events = daemon.ok(["events", "--from", "1", "--json"]);
    assert!(events.contains("sandbox_created") && events.contains("exec_started"), "{events}");
}
