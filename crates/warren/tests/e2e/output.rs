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
