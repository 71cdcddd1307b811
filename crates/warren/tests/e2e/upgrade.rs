//! Data directories of released versions, opened by the program of today. `scripts/make-home-fixture` made them.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixListener,
    path::PathBuf,
    process::Command,
    thread,
};

use serde_json::Value;

use crate::support::{World, repository};

/// The data directories of all releases.
fn left_behind() -> Vec<PathBuf> {
    let entries =
        fs::read_dir(repository().join("tests/fixtures")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.filter(|path| path.to_string_lossy().contains("/home-")).collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

/// A world with that data directory, before any daemon saw it.
fn world_with(archive: &PathBuf) -> World {
    let world = World::bare();
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--zstd", "--preserve-permissions", "--xattrs", "--xattrs-include=*"]);
    // Sockets of another machine are not there, and devices are nodes that only root can make.
    tar.arg("--file").arg(archive).arg("--directory").arg(world.home().parent().unwrap());
    let unpacked = tar.output().unwrap();
    let is_root = rustix::process::geteuid().is_root();
    assert!(unpacked.status.success() || !is_root, "{}", String::from_utf8_lossy(&unpacked.stderr));
    world
}

fn names(list: &Value, field: &str) -> Vec<String> {
    let mut names: Vec<_> =
        list.as_array().unwrap().iter().filter_map(|one| one[field].as_str().map(str::to_owned)).collect();
    names.sort();
    names
}

#[test]
fn todays_program_has_the_records_of_every_release() {
    for archive in left_behind() {
        let world = world_with(&archive);
        let list = |args: &[&str]| world.run(args).expect(0).json();
        let sandboxes = list(&["ps", "--all", "--json"]);
        assert_eq!(names(&sandboxes["sandboxes"], "name"), ["child", "lab", "onhost"], "{sandboxes:#}");
        for sandbox in sandboxes["sandboxes"].as_array().unwrap() {
            assert_eq!(sandbox["state"], "stopped", "{sandbox:#}");
        }
        let volumes = list(&["volume", "ls", "--json"]);
        assert_eq!(names(&volumes["volumes"], "name"), ["models"], "{volumes:#}");
        let snapshots = list(&["snapshot", "ls", "--json"]);
        assert_eq!(names(&snapshots["snapshots"], "name"), ["ready"], "{snapshots:#}");
        let keys = list(&["key", "list", "--json"]);
        assert_eq!(names(&keys["keys"], "label"), ["ana"], "{keys:#}");
        let secrets = list(&["secret", "ls", "--json"]);
        assert_eq!(names(&secrets["secrets"], "name"), ["TOKEN"], "{secrets:#}");
        let lab = list(&["inspect", "lab", "--json"]);
        assert_eq!(
            (&lab["limits"]["memory"], &lab["env"]["GREETING"], &lab["labels"]["team"]),
            (&Value::from(256 << 20), &Value::from("hello"), &Value::from("a")),
            "{lab:#}"
        );
        let logs = world.run(&["logs", "lab"]).expect(0);
        assert_eq!((logs.text().as_str(), logs.stderr.as_str()), ("out\n", "err\n"));
        let checked = list(&["self-check", "--json"]);
        assert_eq!(checked["ok"], true, "{checked:#}");
    }
}

#[test]
fn todays_program_starts_the_sandboxes_of_every_release() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: files of root's sandboxes cannot be unpacked by others");
        return;
    }
    for archive in left_behind() {
        let world = world_with(&archive);
        let run = |args: &[&str]| world.run(args).expect(0).text();
        run(&["start", "lab", "child", "onhost"]);
        assert_eq!(run(&["exec", "lab", "cat", "/root/sum", "/models/a.bin"]), "43\nweights\n");
        assert_eq!(
            run(&["exec", "lab", "sh", "-c", "echo $GREETING; ls /etc/passwd || echo gone"]),
            "hello\ngone\n"
        );
        assert_eq!(run(&["exec", "child", "cat", "/root/sum"]), "43\n");
        assert_eq!(run(&["exec", "onhost", "echo", "here"]), "here\n");
        run(&["snapshot", "restore", "ready", "--name", "back"]);
        assert_eq!(run(&["exec", "back", "cat", "/root/sum"]), "42\n");
        // A new sandbox works beside it, on the old image.
        assert_eq!(run(&["run", "--image", "tiny:1", "echo", "new"]), "new\n");
    }
}

#[test]
fn records_of_a_newer_version_fail_the_check() {
    let world = World::bare();
    world.run(&["ps"]).expect(0);
    world.stop_daemon();
    // The schema's version in the header of an SQLite file.
    let (database, at) = (world.home().join("warren.db"), 60..64);
    let mut bytes = fs::read(&database).unwrap();
    bytes[at].copy_from_slice(&999_u32.to_be_bytes());
    fs::write(&database, bytes).unwrap();
    let refused = world.run(&["ps"]).expect(125).stderr;
    assert!(refused.contains("version 999") && refused.contains("newer warren"), "{refused}");
    for command in ["self-check", "doctor"] {
        let checked = world.run(&[command, "--json"]).expect(1).json();
        let records = checked["checks"].as_array().unwrap().iter().find(|one| one["name"] == "records");
        assert_eq!((&checked["ok"], &records.unwrap()["status"]), (&Value::from(false), &"missing".into()));
    }
    assert!(world.run(&["self-check"]).expect(1).text().contains("Not ready: records"));
}

/// Answers two requests as the daemon of an older commit would.
fn old_daemon(listener: UnixListener) {
    let (mut stream, _) = listener.accept().unwrap();
    for body in [
        r#"{"version":"0.1.0","build":"0.1.0 (0123456789ab 2020-02-02)","api":["v1"]}"#,
        r#"{"backend":"namespace","backends":["namespace"],"has":[],"missing":[]}"#,
    ] {
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        let server = concat!("warren/", env!("CARGO_PKG_VERSION"));
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nserver: {server}\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).unwrap();
    }
}

#[test]
fn a_daemon_of_an_older_commit_is_not_ready_and_not_broken() {
    let world = World::new();
    fs::create_dir_all(world.home().join("run")).unwrap();
    for (args, answer) in [
        (&["self-check"][..], "the running daemon is of another version"),
        (&["self-check", "--json"], "0123456789ab"),
    ] {
        fs::remove_file(world.socket()).ok();
        let listener = UnixListener::bind(world.socket()).unwrap();
        let answering = thread::spawn(move || old_daemon(listener));
        let checked = world.run(args).expect(3);
        assert!(checked.text().contains(answer), "{checked:?}");
        answering.join().unwrap();
    }
}
