use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use crate::support::{World, finish};

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let world = World::with_dev();
    let mut child = world.command(&["exec", "dev", "seq", "1", "1000000"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "1");
    drop(lines);
    let ended = finish(child).expect(0);
    assert_eq!(ended.stderr, "");
    for args in [&["ps"][..], &["logs", "dev"], &["--help"], &["completions", "bash"], &["reference", "cli"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = world.command(args).stdout(Stdio::from(writer)).spawn().unwrap();
        let ended = finish(child);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn colours_need_a_terminal() {
    let world = World::new();
    let failed = world.run(&["inspect", "nobody"]).expect(125);
    assert!(!failed.stderr.contains('\u{1b}'), "{failed:?}");
}

#[test]
fn completions_and_versions_are_printed() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(world.run(&["completions", shell]).expect(0).text().contains("warren"), "{shell}");
    }
    assert!(world.run(&["version"]).expect(0).text().contains("daemon not running"));
    assert!(world.daemon().is_none(), "asking for a version starts nothing");
    world.run(&["ps"]).expect(0);
    let versions = world.run(&["version", "--json"]).expect(0).json();
    assert_eq!(versions["client"], versions["daemon"]["version"]);
    assert_eq!(versions["daemon"]["pid"], world.daemon().unwrap().pid);
}

#[test]
fn a_mistake_is_answered_with_the_next_step() {
    let world = World::with_dev();
    world.run(&["create", "--name", "still"]).expect(0);
    world.run(&["stop", "still"]).expect(0);
    world.run(&["create", "--name", "frozen"]).expect(0);
    let mut mistakes = vec![
        (&["exec", "nosuch", "ls"][..], 125, "nosuch", "warren ps -a"),
        (&["rm", "dev"], 125, "dev", "warren rm -f dev"),
        (&["exec", "still", "ls"], 125, "still", "warren start still"),
        (&["cp", "a", "b"], 125, "sandbox", "SANDBOX:PATH"),
        (&["run", "--bogus", "ls"], 2, "--bogus", "--help"),
        (&["exec", "--bogus", "dev", "ls"], 2, "--bogus", "--help"),
        (&["exec", "dev", "--bogus"], 2, "--bogus", "--help"),
        (&["run"], 2, "PROGRAM", "--help"),
        (&["fork", "dev", "--prefix", "a/b"], 125, "a/b", "63 letters"),
        (&["fork", "dev", "--name", "one", "--name", "one"], 125, "same name", "different name"),
        (&["fork", "dev", "-n", "0"], 125, "between 1", "one fork"),
        (&["diff", "dev", "--since", "../x"], 125, "../x", "hint:"),
        (&["volume", "cat", "nosuch:/x"], 125, "nosuch", "hint:"),
        (&["create", "--memory", "5"], 2, "memory", "5m?"),
        (&["create", "--memory", "1m"], 125, "memory", "4MiB"),
        (&["create", "--memory", "lots"], 2, "lots", "512m"),
    ];
    if world.can_pause("frozen") {
        world.run(&["pause", "frozen"]).expect(0);
        mistakes.push((&["exec", "frozen", "ls"], 125, "frozen", "warren resume frozen"));
    }
    for (args, code, named, step) in mistakes {
        let refused = world.run(args).expect(code);
        assert!(refused.stderr.contains(named) && refused.stderr.contains(step), "{args:?}: {refused:?}");
    }
    // Programs are told so in their own way.
    for args in
        [&["run", "--json", "--bogus", "ls"][..], &["create", "--json", "--memory", "lots"], &["--json"]]
    {
        let refused = world.run(args).expect(2);
        let told: serde_json::Value = serde_json::from_str(&refused.stderr).unwrap();
        assert_eq!(told["error"]["kind"], "invalid_request", "{refused:?}");
        assert!(told["error"]["hint"].as_str().unwrap().contains("--help"), "{refused:?}");
    }
    // Words behind the program are its own.
    assert_eq!(world.run(&["exec", "dev", "echo", "--bogus", "-x"]).expect(0).text(), "--bogus -x\n");
}

#[test]
fn one_look_at_the_statistics_has_percents() {
    let world = World::with_dev();
    let seen = world.run(&["stats", "--json"]).expect(0).json();
    assert!(seen[0]["cpuPercent"].is_number() || seen[0]["cpuMicros"].is_null(), "{seen}");
}

#[test]
fn a_sandbox_does_not_learn_where_things_are() {
    let world = World::new();
    let line = world.run(&["run", "sh", "-c", "cat /proc/1/cmdline || true"]).expect(0).text();
    assert!(!line.contains('/'), "{line:?}");
    let variables = world.run(&["run", "env"]).expect(0).text();
    assert!(!variables.contains("MALLOC") && !variables.contains("WARREN"), "{variables}");
}
