//! The same binary with real sandboxes.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::CommandExt as _,
};

use rustix::process::Signal;

use crate::support::{PATIENCE, World, finish, real_sandboxes};

const NOBODY: u32 = 65_534;

#[test]
fn real_programs_run_and_their_ends_pass_through() {
    let Some(world) = real_sandboxes() else { return };
    assert_eq!(world.run(&["run", "sh", "-c", "echo hello; exit 3"]).expect(3).text(), "hello\n");
    assert_eq!(world.run_with_input(&["run", "-i", "wc", "-c"], b"12345").expect(0).text().trim(), "5");
    world.run(&["run", "no-such-program"]).expect(127);
    world.run(&["run", "/etc"]).expect(126);
    world.run(&["run", "sh", "-c", "kill -9 $$"]).expect(137);
    world.run(&["run", "--timeout", "200ms", "sleep", "60"]).expect(124);
    assert_eq!(world.run(&["ps", "-aq"]).expect(0).text(), "");
}

#[test]
fn python_is_found_by_either_name() {
    let Some(world) = real_sandboxes() else { return };
    if !std::path::Path::new("/usr/bin/python3").exists() {
        println!("skipped: this host has no python3");
        return;
    }
    assert_eq!(world.run(&["run", "python", "-c", "print(6 * 7)"]).expect(0).text(), "42\n");
}

#[test]
fn a_command_outlives_the_daemon_and_its_reader_misses_nothing() {
    let Some(world) = real_sandboxes() else { return };
    const LINES: usize = 200_000;
    world.run(&["create", "--name", "dev"]).expect(0);
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
fn the_second_signal_is_for_us() {
    let Some(world) = real_sandboxes() else { return };
    world.run(&["create", "--name", "dev"]).expect(0);
    let script = "trap 'echo again' INT; echo ready; while :; do sleep 1; done";
    let mut child = world.command(&["exec", "dev", "sh", "-c", script]).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "again");
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    finish(child).expect(130);
    let listed = world.run(&["ps", "--json"]).expect(0).json();
    assert_eq!(listed["sandboxes"][0]["runningExecs"], 1, "the command itself goes on");
}

#[test]
fn an_ordinary_user_gets_sandboxes_too() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: these tests run as an ordinary user already");
        return;
    }
    let world = World::on("namespace");
    world.give_to(NOBODY);
    let as_nobody = |args: &[&str]| {
        let mut command = world.command(args);
        command.uid(NOBODY).gid(NOBODY);
        finish(command.spawn().unwrap())
    };
    assert_eq!(as_nobody(&["run", "sh", "-c", "echo hi; exit 4"]).expect(4).text(), "hi\n");
    // Root may use anyone's daemon; the walls of the sandbox say that it is rootless.
    let made = as_nobody(&["--json", "create", "--name", "mine"]).expect(0).json();
    assert_eq!(made["isolation"]["rootless"], true);
    as_nobody(&["rm", "-f", "mine"]).expect(0);
}
