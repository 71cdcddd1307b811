//! The same binary with real sandboxes.

use std::io::Read as _;

use rustix::process::Signal;

use crate::support::{PATIENCE, finish, real_sandboxes};

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
