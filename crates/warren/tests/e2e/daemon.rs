use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{
        fs::MetadataExt as _,
        net::{UnixListener, UnixStream},
        process::CommandExt as _,
    },
    process::Stdio,
    thread,
    time::Duration,
};

use rustix::process::Signal;

use crate::support::{PATIENCE, World, finish, until};

const NOBODY: u32 = 65_534;

#[test]
fn eight_commands_at_once_start_one_daemon() {
    let world = World::new();
    let children: Vec<_> =
        (0..8).map(|n| world.command(&["create", "--name", &format!("s{n}")]).spawn().unwrap()).collect();
    let ended: Vec<_> = children.into_iter().map(finish).collect();
    ended.into_iter().for_each(|ended| drop(ended.expect(0)));
    assert_eq!(world.run(&["ps", "-q"]).expect(0).text().lines().count(), 8);
    assert_eq!(world.log().matches(" ready ").count(), 1, "{}", world.log());
}

#[test]
fn a_second_daemon_is_told_about_the_first() {
    let world = World::new();
    let child = world.command(&["serve"]).spawn().unwrap();
    until("it serves", || world.socket().exists());
    let first = world.daemon().unwrap();
    let second = world.run(&["serve"]).expect(125);
    assert!(second.stderr.contains(&format!("pid {}", first.pid)), "{second:?}");
    assert!(second.stderr.contains("hint: "), "{second:?}");
    world.run(&["ps"]).expect(0);
    first.signal(Signal::TERM);
    finish(child).expect(0);
}

#[test]
fn a_daemon_that_a_command_started_gives_way_to_one_that_a_person_starts() {
    let world = World::new();
    world.run(&["create", "--name", "dev"]).expect(0);
    world.run(&["exec", "dev", "sh", "-c", "echo kept > /root/word"]).expect(0);
    let first = world.daemon().unwrap();
    let child = world.command(&["serve"]).spawn().unwrap();
    assert!(first.ends_within(PATIENCE));
    until("the other one serves", || {
        world.daemon().is_some_and(|next| next.pid != first.pid) && world.socket().exists()
    });
    let second = world.daemon().unwrap();
    assert_eq!(world.run(&["exec", "dev", "cat", "/root/word"]).expect(0).text(), "kept\n");
    assert_eq!(world.daemon().unwrap().pid, second.pid, "commands start no other one");
    second.signal(Signal::TERM);
    finish(child).expect(0);
}

#[test]
fn an_idle_daemon_leaves_and_the_next_command_starts_another() {
    let world = World::new();
    let start = || {
        finish(world.command(&["ps"]).env("WARREN_IDLE_EXIT", "50ms").spawn().unwrap()).expect(0);
    };
    start();
    if let Some(first) = world.daemon() {
        assert!(first.ends_within(PATIENCE));
    }
    assert!(!world.socket().exists());
    // One that comes while the last one leaves gets an answer too.
    (0..20).for_each(|_| start());
}

#[test]
fn a_daemon_with_something_alive_stays() {
    let world = World::new();
    finish(world.command(&["create", "--name", "dev"]).env("WARREN_IDLE_EXIT", "50ms").spawn().unwrap())
        .expect(0);
    let daemon = world.daemon().unwrap();
    assert!(!daemon.ends_within(Duration::from_millis(500)));
    world.run(&["rm", "-f", "dev"]).expect(0);
    assert!(daemon.ends_within(PATIENCE));
}

#[test]
fn a_stop_is_graceful() {
    let world = World::with_dev();
    let daemon = world.daemon().unwrap();
    // A stream of events without an end. The first line of the answer says that the daemon serves it.
    let mut stream = UnixStream::connect(world.socket()).unwrap();
    let ask = "GET /v1/events?follow=true HTTP/1.1\r\nhost: warren\r\naccept: text/event-stream\r\n\r\n";
    stream.write_all(ask.as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    let mut heard = String::new();
    stream.read_line(&mut heard).unwrap();
    assert!(heard.starts_with("HTTP/1.1 200"), "{heard}");
    daemon.signal(Signal::TERM);
    assert!(daemon.ends_within(PATIENCE));
    assert!(!world.socket().exists());
    assert!(world.log().contains("stopped"), "{}", world.log());
    stream.read_to_string(&mut heard).unwrap();
    // The sandbox did not notice.
    let listed = world.run(&["ps", "--json"]).expect(0).json();
    assert_eq!(listed["sandboxes"][0]["state"], "running");
    world.run(&["exec", "dev", "true"]).expect(0);
    assert_ne!(world.daemon().unwrap().pid, daemon.pid);
}

#[test]
fn a_daemon_that_was_killed_leaves_no_obstacle() {
    let world = World::new();
    world.run(&["ps"]).expect(0);
    let daemon = world.daemon().unwrap();
    daemon.signal(Signal::KILL);
    assert!(daemon.ends_within(PATIENCE));
    assert!(world.socket().exists(), "nobody could clean up");
    world.run(&["ps"]).expect(0);
}

#[test]
fn directories_and_socket_are_for_our_eyes_only() {
    let world = World::bare();
    world.run(&["ps"]).expect(0);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&world.home()), 0o700);
    assert_eq!(mode(&world.home().join("run")), 0o700);
    assert_eq!(mode(&world.socket()), 0o600);
    assert_eq!(mode(&world.home().join("daemon.log")), 0o600);
}

#[test]
fn places_that_cannot_work_are_named() {
    let world = World::new();
    let long = format!("{}/{}", world.files().display(), "x".repeat(120));
    let refused = world.run(&["--run-dir", &long, "ps"]).expect(125);
    assert!(refused.stderr.contains("107") && refused.stderr.contains("--run-dir"), "{refused:?}");
    let target = world.files().join("elsewhere");
    fs::create_dir(&target).unwrap();
    let link = world.files().join("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let refused = world.run(&["--run-dir", link.to_str().unwrap(), "ps"]).expect(125);
    assert!(refused.stderr.contains("link"), "{refused:?}");
    let file = world.files().join("file");
    fs::write(&file, "").unwrap();
    let refused = world.run(&["--home", file.join("home").to_str().unwrap(), "ps"]).expect(125);
    assert!(refused.stderr.contains("file"), "{refused:?}");
}

#[test]
fn a_daemon_in_the_foreground_is_stopped_by_ctrl_c() {
    let world = World::new();
    let mut child = world.command(&["serve", "--log", "info"]).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(log.by_ref().map_while(Result::ok).any(|line| line.contains("ready")));
    world.run(&["ps"]).expect(0);
    assert_eq!(world.daemon().unwrap().pid, pid.as_raw_nonzero().get());
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    assert!(log.by_ref().map_while(Result::ok).any(|line| line.contains("stopped")));
    finish(child).expect(0);
}

#[test]
fn a_daemon_of_another_version_is_noticed() {
    let world = World::new();
    let run = world.files().join("run");
    fs::create_dir(&run).unwrap();
    let listener = UnixListener::bind(run.join("warren.sock")).unwrap();
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let n = stream.read(&mut head).unwrap();
        assert!(head[..n].starts_with(b"GET /v1/sandboxes"));
        let answer =
            "HTTP/1.1 200 OK\r\nserver: warren/9.9.9\r\ncontent-length: 16\r\n\r\n{\"sandboxes\":[]}";
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let listed = world.run(&["--run-dir", run.to_str().unwrap(), "ps"]).expect(0);
    assert!(listed.stderr.contains("9.9.9") && listed.stderr.contains("kill"), "{listed:?}");
    answering.join().unwrap();
}

#[test]
fn two_homes_cannot_share_a_run_directory() {
    let world = World::new();
    world.run(&["ps"]).expect(0);
    let first = world.daemon().unwrap();
    let other = world.files().join("other");
    let run = world.home().join("run");
    let (other, run) = (other.to_str().unwrap(), run.to_str().unwrap());
    let refused = world.run(&["--home", other, "--run-dir", run, "serve"]).expect(125);
    let said = &refused.stderr;
    assert!(said.contains(&format!("pid {}", first.pid)), "{said}");
    assert!(said.contains(world.home().to_str().unwrap()), "the other home is named: {said}");
    assert!(said.contains("--run-dir"), "{said}");
    // The first one has lost nothing.
    world.run(&["create", "--name", "dev"]).expect(0);
    assert_eq!(world.daemon().unwrap().pid, first.pid);
}

/// Soft and hard limit of open files of a process.
fn open_files(pid: i32) -> (String, String) {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut words = line.split_whitespace().skip(3).map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

#[test]
fn the_daemon_may_open_as_many_files_as_the_host_lets_it_and_the_spawner_keeps_its_own() {
    let world = World::new();
    let mut shell = std::process::Command::new("sh");
    let command = world.command(&["ps"]);
    shell.arg("-c").arg("ulimit -Sn 200 && exec \"$0\" ps").arg(command.get_program());
    for (name, value) in command.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(shell.spawn().unwrap()).expect(0);
    let daemon = world.daemon().unwrap();
    let (soft, hard) = open_files(daemon.pid);
    assert_eq!(soft, hard);
    assert!(world.log().contains("raised the limit of open files"), "{}", world.log());
    // Any of its threads may have started it.
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid)).unwrap().flatten();
    let children: String =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    let spawner = children.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(open_files(spawner).0, "200");
}

#[test]
fn an_ordinary_user_gets_sandboxes_too() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: these tests run as an ordinary user already");
        return;
    }
    let world = World::bare();
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

#[test]
fn a_daemon_is_stopped_by_name_and_sandboxes_go_on() {
    let world = World::with_dev();
    world.run(&["exec", "-d", "dev", "sleep", "60"]).expect(0);
    let daemon = world.daemon().unwrap();
    assert!(world.run(&["serve", "--stop"]).expect(0).stderr.contains("sandboxes keep running"));
    assert!(daemon.ends_within(std::time::Duration::ZERO));
    assert!(world.run(&["serve", "--stop"]).expect(0).stderr.contains("no daemon runs"));
    assert_eq!(world.running_execs(), 1);
    // A daemon that cannot start says why, and not only where its log is.
    let daemon = world.daemon().unwrap();
    world.run(&["serve", "--stop"]).expect(0);
    assert!(daemon.ends_within(std::time::Duration::ZERO));
    let config = world.files().join("config.toml");
    std::fs::write(&config, "[defaults]\nidel = \"1h\"\n").unwrap();
    let failed = finish(world.command(&["ps"]).env("WARREN_CONFIG", &config).spawn().unwrap()).expect(125);
    assert!(failed.stderr.lines().next().unwrap().contains("idel"), "{failed:?}");
}
