//! The daemon's reports to those who look on: events as they come, and a log that programs can read.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{PATIENCE, World, finish, until};

/// A command that goes on printing.
struct Follower {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    fn new(world: &World, args: &[&str]) -> Self {
        let mut child = world.command(args).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "it ended: {line:?}");
        line
    }

    fn event(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// The reader goes away, as `head` does.
    fn leave(self) {
        drop(self.lines);
        let ended = finish(self.child);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    }
}

#[test]
fn who_follows_ends_with_its_reader_and_not_with_the_next_line() {
    let world = World::with_dev();
    let mut events = Follower::new(&world, &["events", "-f", "--from", "1"]);
    assert!(events.line().contains("sandbox_created"));
    events.leave();

    world.run(&["exec", "-d", "dev", "sh", "-c", "echo first; exec sleep 1000"]).expect(0);
    let mut logs = Follower::new(&world, &["logs", "-f", "dev"]);
    assert_eq!(logs.line(), "first\n");
    logs.leave();
}

#[test]
fn events_are_chosen_by_sandbox_kind_and_time() {
    let world = World::with_dev();
    world.run(&["create", "--name", "other"]).expect(0);
    world.run(&["exec", "dev", "true"]).expect(0);
    world.run(&["rm", "-f", "other"]).expect(0);
    let kinds = |args: &[&str]| -> Vec<String> {
        let text = world.run(&[&["events", "--json"], args].concat()).expect(0).text();
        let kind =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()["kind"].as_str().unwrap().to_owned();
        text.lines().map(kind).collect()
    };
    assert_eq!(
        kinds(&["--sandbox", "other"]),
        ["sandbox_created", "sandbox_started", "sandbox_stopped", "sandbox_removed"],
        "one that is gone"
    );
    assert_eq!(kinds(&["--kind", "exec_started,exec_ended"]), ["exec_started", "exec_ended"]);
    assert_eq!(kinds(&["--kind", "sandbox_created", "--kind", "sandbox_removed"]).len(), 3);
    assert_eq!(kinds(&["--since", "1h"]).len(), kinds(&[]).len());
    assert!(kinds(&["--since", "2999-01-01T00:00:00Z"]).is_empty());
    let refused = world.run(&["events", "--kind", "sandbox_eaten"]).expect(2);
    assert!(refused.stderr.contains("sandbox_created"), "{refused:?}");
    let refused = world.run(&["events", "--since", "yesterday"]).expect(2);
    assert!(refused.stderr.contains("10m"), "{refused:?}");
}

#[test]
fn who_follows_events_goes_on_with_the_next_daemon() {
    let world = World::with_dev();
    let mut events = Follower::new(&world, &["events", "-f", "--json", "--from", "1"]);
    let mut numbers = vec![events.event()["number"].as_u64().unwrap()];
    let first = world.daemon().unwrap();
    first.signal(Signal::KILL);
    assert!(first.ends_within(PATIENCE));
    // Another command starts the next one.
    world.run(&["exec", "dev", "true"]).expect(0);
    while numbers.len() < 3 || !matches!(numbers.last(), Some(n) if *n >= 4) {
        numbers.push(events.event()["number"].as_u64().unwrap());
    }
    let expected: Vec<_> = (numbers[0]..).take(numbers.len()).collect();
    assert_eq!(numbers, expected, "none twice, none missing");
    events.leave();
}

#[test]
fn every_line_of_a_json_log_has_the_same_fields() {
    let world = World::new();
    let mut child = world.command(&["serve", "--log-format", "json", "--log", "debug"]).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let log = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text).unwrap()
    });
    until("it serves", || world.socket().exists());
    world.run(&["create", "--name", "dev"]).expect(0);
    world.run(&["exec", "dev", "echo", "a\u{1b}[31m\"b\nc"]).expect(0);
    world.run(&["create", "--name", "dev"]).expect(125);
    world.run(&["rm", "-f", "dev"]).expect(0);
    world.daemon().unwrap().signal(Signal::TERM);
    finish(child).expect(0);
    let text = log.join().unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for line in &lines {
        for name in ["time", "level", "target", "message"] {
            assert!(line[name].is_string(), "{line}");
        }
        assert!(line["fields"].is_object(), "{line}");
        assert!(["error", "warn", "info", "debug"].contains(&line["level"].as_str().unwrap()), "{line}");
        assert!(line["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{line}");
        let known = ["time", "level", "target", "message", "fields", "sandbox", "request"];
        assert!(line.as_object().unwrap().keys().all(|name| known.contains(&name.as_str())), "{line}");
    }
    let about = |message: &str| lines.iter().find(|line| line["message"] == message).unwrap();
    assert!(about("ready")["fields"]["backends"].as_str().unwrap().starts_with("namespace"));
    assert!(about("cage stands")["sandbox"].as_str().unwrap().starts_with("sbx-"));
    // Of the request that made the sandbox: the back end knows nothing of requests.
    assert!(about("cage stands")["request"].as_str().unwrap().starts_with("req-"));
    assert!(about("answered")["request"].is_string());
    let refused = world.run(&["serve", "--log-format", "xml"]).expect(2);
    assert!(refused.stderr.contains("journald"), "{refused:?}");
}

#[test]
fn an_address_for_metrics_that_is_taken_ends_the_start() {
    let world = World::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = world.files().join("config.toml");
    std::fs::write(&config, format!("[metrics]\nlisten = \"{}\"\n", taken.local_addr().unwrap())).unwrap();
    let config = config.to_str().unwrap();
    let said = world.fails_to_serve(&["--config", config]);
    assert!(said.contains("metrics"), "{said}");
    // A daemon that a command starts serves nobody on the network.
    finish(world.command(&["ps"]).env("WARREN_CONFIG", config).spawn().unwrap()).expect(0);
}
