//! Snapshots, restores, forks, changes and archives of real sandboxes.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json};

use crate::{
    harness::{Daemon, is_root, text, until},
    oci::{Layer, Registry, TestImage},
};

/// Whether this host can hold a sandbox still while it runs. Without, those that run are refused by name, and told what to
/// do instead.
fn can_pause(daemon: &Daemon, name: &str) -> bool {
    let can = daemon.output(["pause", name]).status.success();
    if can {
        daemon.ok(["resume", name]);
        return true;
    }
    let (_, told) = daemon.fails(["snapshot", "create", name]);
    assert!(told.contains("cannot pause") && told.contains("Stop sandbox"), "{told}");
    false
}

/// Stops a sandbox where it cannot be copied while it runs.
fn hold(daemon: &Daemon, name: &str) {
    if !can_pause(daemon, name) {
        daemon.ok(["stop", name]);
    }
}

fn on_disk(daemon: &Daemon) -> Vec<PathBuf> {
    let all = fs::read_dir(daemon.home().join("snapshots")).into_iter().flatten();
    all.map(|entry| entry.unwrap().path()).collect()
}

/// Bytes that a directory takes, as far as they can be seen.
fn usage(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let of = |entry: fs::DirEntry| {
        let found = entry.metadata().unwrap();
        if found.is_dir() { usage(&entry.path()) } else { found.blocks() * 512 }
    };
    entries.map(|entry| of(entry.unwrap())).sum()
}

#[test]
fn a_running_writer_goes_on_and_its_snapshot_is_of_one_moment() {
    let daemon = Daemon::start();
    daemon.create("writer", &[]);
    if !can_pause(&daemon, "writer") {
        return;
    }
    // `b` follows `a`: at no moment is it ahead, nor more than one behind.
    let script = "cd /root; i=0; while :; do i=$((i+1)); echo $i > .n; mv .n a; echo $i > .n; mv .n b; done";
    daemon.sh_ok("writer", &format!("({script}) >/dev/null 2>&1 &"));
    let count = |name: &str| -> (u64, u64) {
        let text = daemon.sh_ok(name, "cat /root/a /root/b");
        let numbers: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        (numbers[0], numbers[1])
    };
    until("it writes", || daemon.sh("writer", "test -e /root/b").0 == 0);
    for i in 0..5 {
        let taken = daemon.json(["snapshot", "create", "writer", "--name", &format!("at-{i}"), "--json"]);
        assert!(taken["heldMs"].as_f64().unwrap() > 0.0, "{taken}");
    }
    let (before, _) = count("writer");
    until("it goes on", || count("writer").0 > before);
    let mut last = 0;
    for i in 0..5 {
        daemon.ok(["snapshot", "restore", &format!("at-{i}"), "--name", &format!("back-{i}")]);
        let (a, b) = count(&format!("back-{i}"));
        assert!(a == b || a == b + 1, "{a} and {b}");
        assert!(a >= last, "{a} after {last}");
        last = a;
        // Its files came along, its processes did not.
        assert_eq!(count(&format!("back-{i}")), (a, b));
    }
    assert_eq!(daemon.inspect("writer")["state"], "running");
    daemon.ok(["snapshot", "verify", "at-0"]);
}

#[test]
fn what_was_deleted_stays_deleted_in_forks_of_forks() {
    let daemon = Daemon::start();
    daemon.create("one", &[]);
    daemon.sh_ok(
        "one",
        "rm -rf /etc/apt; echo tool > /usr/local/bin/tool; chmod 755 /usr/local/bin/tool; \
         mkdir -p /opt/d/e; echo old > /opt/d/old; ln /opt/d/old /opt/d/hard; ln -s old /opt/d/soft; \
         chown 7:8 /opt/d/e",
    );
    // Without root the host's own files belong to nobody inside, and cannot be taken away.
    let taken = if is_root() { "/usr/share/doc/base-files/README" } else { "/etc/apt" };
    daemon.sh_ok("one", &format!("rm -rf {taken}"));
    hold(&daemon, "one");
    daemon.ok(["fork", "one", "--name", "two"]);
    assert_eq!(
        daemon.sh_ok("two", "stat -c %u:%g /opt/d/e; stat -c %h /opt/d/hard; cat /opt/d/soft"),
        "7:8\n2\nold"
    );
    // A directory that is made anew hides what lies beneath.
    daemon.sh_ok("two", "rm -r /opt/d; mkdir /opt/d; echo new > /opt/d/new; rm /usr/local/bin/tool");
    hold(&daemon, "two");
    daemon.ok(["fork", "two", "--name", "three"]);
    assert_eq!(daemon.sh_ok("three", "ls /opt/d; ls /usr/local/bin/tool 2>&1 | grep -c 'No such'"), "new\n1");
    assert_eq!(daemon.sh("three", &format!("test -e /etc/apt || test -e {taken}")).0, 1);
    daemon.sh_ok("three", "mkdir /etc/apt; echo mine > /etc/apt/own");
    hold(&daemon, "three");
    daemon.ok(["snapshot", "create", "three", "--name", "deep"]);
    daemon.ok(["snapshot", "restore", "deep", "--name", "four"]);
    assert_eq!(daemon.sh_ok("four", "ls /etc/apt /opt/d"), "/etc/apt:\nown\n\n/opt/d:\nnew");
    // It has the same files after a stop and a start, and under the next daemon.
    daemon.ok(["restart", "four"]);
    assert_eq!(daemon.sh_ok("four", "ls /etc/apt"), "own");
    daemon.ok(["snapshot", "verify", "deep", "--parents"]);
}

#[test]
fn ten_forks_share_their_bytes_and_go_apart() {
    let daemon = Daemon::start();
    daemon.create("source", &["--env", "COLOUR=red", "--memory", "256m"]);
    const BYTES: u64 = 24 * 1024 * 1024;
    daemon.sh_ok("source", &format!("head -c {BYTES} /dev/urandom > /root/big; echo shared > /root/note"));
    let digest = daemon.sh_ok("source", "sha256sum < /root/big");
    hold(&daemon, "source");
    let before = usage(&daemon.home());
    let forks = daemon.ok(["fork", "source", "-n", "10", "--prefix", "fork"]);
    assert_eq!(forks.lines().count(), 10);
    for i in 1..=10 {
        let name = format!("fork-{i}");
        assert_eq!(daemon.sh_ok(&name, "sha256sum < /root/big; echo $COLOUR"), format!("{digest}\nred"));
        daemon.sh_ok(&name, &format!("echo {i} > /root/note"));
    }
    for i in 1..=10 {
        assert_eq!(daemon.sh_ok(&format!("fork-{i}"), "cat /root/note"), i.to_string());
    }
    assert_eq!(daemon.inspect("fork-3")["limits"]["memory"], 256 * 1024 * 1024);
    // Where another user's id owns the files they cannot be counted, and then they grow by nothing.
    let grown = usage(&daemon.home()) - before;
    assert!(grown < 2 * BYTES, "ten forks of {BYTES} bytes take {grown} more");
    assert_eq!(on_disk(&daemon).len(), 1);
    for i in 1..=10 {
        daemon.ok(["rm", "--force", &format!("fork-{i}")]);
    }
    until("nobody's snapshot is gone", || on_disk(&daemon).is_empty());
}

#[test]
fn changes_are_listed_and_told_as_a_patch() {
    let daemon = Daemon::start();
    daemon.create("dev", &[]);
    daemon.sh_ok("dev", "printf 'one\\ntwo\\nthree\\n' > /root/text; rm /etc/debian_version; chmod 700 /srv");
    let changes = |arguments: &[&str]| -> Vec<String> {
        let output = daemon.command(["diff", "dev"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(str::to_owned).collect()
    };
    let told = changes(&[]);
    for expected in ["A /root/text", "D /etc/debian_version", "m /srv"] {
        assert!(told.iter().any(|line| line == expected), "no {expected} in {told:#?}");
    }
    hold(&daemon, "dev");
    daemon.ok(["snapshot", "create", "dev", "--name", "base"]);
    // With its own snapshot, whatever that is made on; so does a fork of it.
    daemon.sh_ok("dev", "echo later > /root/later; rm /root/text; chmod 755 /srv");
    assert_eq!(changes(&["--since", "base"]), ["A /root/later", "D /root/text", "m /srv"]);
    daemon.ok(["fork", "dev", "--name", "branch"]);
    daemon.sh_ok("branch", "echo 4 > /root/text");
    let branch = daemon.ok(["diff", "branch", "--since", "base"]);
    assert_eq!(branch, "A /root/later\nM /root/text\nm /srv\n");
    daemon.ok(["rm", "--force", "dev"]);
    daemon.ok(["snapshot", "restore", "base", "--name", "dev"]);
    daemon.sh_ok("dev", "sed -i s/two/2/ /root/text; echo more > /root/more");
    assert_eq!(changes(&["--since", "base", "/root"]), ["A /root/more", "M /root/text"]);
    let patch = changes(&["--since", "base", "--patch", "/root/text"]);
    assert!(patch.iter().any(|line| line == "-two") && patch.iter().any(|line| line == "+2"), "{patch:#?}");
    assert!(changes(&["/root"]).iter().any(|line| line == "A /root/text"));
}

#[test]
fn an_archive_loads_elsewhere_and_a_changed_one_nowhere() {
    let registry = Registry::start();
    let layer = Layer::busybox().directory("etc", 0o755).file("etc/marker", b"image");
    let image = TestImage::new(vec![layer], &json!({"Env": ["PATH=/bin", "FROM_IMAGE=yes"]}));
    let name = registry.push("team/app", &image);
    let here = Daemon::start();
    here.create("app", &["--image", &name, "--env", "FROM_SPEC=yes"]);
    here.sh_ok("app", "rm /etc/marker; echo mine > /etc/mine; head -c 3000000 /dev/urandom > /big");
    let digest = here.sh_ok("app", "sha256sum < /big");
    hold(&here, "app");
    let taken = here.json(["snapshot", "create", "app", "--name", "base", "--json"]);
    assert_eq!(taken["imageDigest"], json!(image.digest));
    here.ok(["snapshot", "restore", "base", "--name", "second"]);
    here.sh_ok("second", "echo top > /etc/top");
    hold(&here, "second");
    here.ok(["snapshot", "create", "second", "--name", "top"]);
    // Its image is used: it is not taken away.
    here.ok(["rm", "--force", "app", "second"]);
    let (_, refused) = here.fails(["image", "rm", &name]);
    assert!(refused.contains("base"), "{refused}");

    let there = Daemon::start();
    let path = there.home().join("archive");
    let file = path.to_str().unwrap().to_owned();
    for arguments in [&["--image"][..], &["--image", "--plain"]] {
        let saved = here.command(["snapshot", "save", "top", "-o", &file]).args(arguments).output().unwrap();
        assert!(saved.status.success(), "{}", text(&saved.stderr));
        let good = fs::read(&path).unwrap();
        for at in
            [0, 5, 600, good.len() / 3, good.len() / 2, good.len() - 2100, good.len() - 20, good.len() - 1]
        {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            fs::write(&path, bad).unwrap();
            there.fails(["snapshot", "load", "-i", &file]);
            fs::write(&path, &good[..at]).unwrap();
            there.fails(["snapshot", "load", "-i", &file]);
        }
        assert_eq!((on_disk(&there), there.ok(["image", "ls", "-q"])), (vec![], String::new()));
        fs::write(&path, good).unwrap();
        assert_eq!(there.ok(["snapshot", "load", "-i", &file]), "top\n");
        // What is there already is fine.
        assert_eq!(there.ok(["snapshot", "load", "-i", &file]), "top\n");
        there.ok(["snapshot", "restore", "top", "--name", "elsewhere"]);
        let script = "cat /etc/mine /etc/top; test -e /etc/marker || echo gone; echo $FROM_IMAGE $FROM_SPEC; sha256sum < /big";
        assert_eq!(there.sh_ok("elsewhere", script), format!("mine\ntop\ngone\nyes yes\n{digest}"));
        there.ok(["snapshot", "verify", "top", "--parents"]);
        there.ok(["rm", "--force", "elsewhere"]);
        there.ok(["snapshot", "rm", "top"]);
        there.ok(["snapshot", "rm", "base"]);
        there.ok(["image", "prune", "--force"]);
    }
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_daemon_killed_in_the_middle_leaves_nothing_frozen_and_gives_the_space_back() {
    let mut daemon = Daemon::start();
    daemon.create("big", &[]);
    daemon.sh_ok(
        "big",
        "for i in 1 2 3 4 5 6 7 8; do head -c 30000000 /dev/zero | tr '\\0' x > /root/$i; done",
    );
    daemon.sh_ok(
        "big",
        "(i=0; while :; do i=$((i+1)); echo $i > /run/n; mv /run/n /run/at; done) >/dev/null 2>&1 &",
    );
    hold(&daemon, "big");
    let is_running = |daemon: &Daemon| daemon.inspect("big")["state"] == "running";
    let ran = is_running(&daemon);
    for _attempt in 0..3 {
        let mut taking = daemon
            .command(["snapshot", "create", "big", "--name", "base"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the copy has begun", || !on_disk(&daemon).is_empty() || taking.try_wait().unwrap().is_some());
        daemon.kill();
        taking.wait().unwrap();
        daemon.serve();
        let names = daemon.json(["snapshot", "ls", "--json"]);
        let names: Vec<&Value> =
            names["snapshots"].as_array().unwrap().iter().map(|view| &view["name"]).collect();
        if names == ["base"] {
            // It was faster than the kill: then it is whole.
            daemon.ok(["snapshot", "verify", "base"]);
            daemon.ok(["snapshot", "rm", "base"]);
        }
        until("what is half made is gone", || on_disk(&daemon).is_empty());
        assert_eq!(is_running(&daemon), ran);
        if ran {
            let before = daemon.sh_ok("big", "cat /run/at");
            until("it goes on", || daemon.sh_ok("big", "cat /run/at") != before);
        }
    }
    daemon.ok(["snapshot", "create", "big", "--name", "base"]);
    daemon.ok(["snapshot", "verify", "base"]);
}

#[test]
fn what_is_used_is_not_removed() {
    let daemon = Daemon::start();
    daemon.create("dev", &[]);
    hold(&daemon, "dev");
    daemon.ok(["snapshot", "create", "dev", "--name", "base"]);
    daemon.ok(["snapshot", "restore", "base", "--name", "user"]);
    hold(&daemon, "user");
    daemon.ok(["snapshot", "create", "user", "--name", "child"]);
    let (_, refused) = daemon.fails(["snapshot", "rm", "base"]);
    assert!(refused.contains("sandbox user") && refused.contains("snapshot child"), "{refused}");
    daemon.ok(["snapshot", "rm", "--force", "base"]);
    daemon.ok(["restart", "user"]);
    assert_eq!(daemon.sh_ok("user", "echo alive"), "alive");
    daemon.ok(["rm", "--force", "user"]);
    daemon.ok(["snapshot", "rm", "child"]);
    until("all of it is gone", || on_disk(&daemon).is_empty());
}
