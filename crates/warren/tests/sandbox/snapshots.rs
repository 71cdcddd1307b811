//! Snapshots, restores, forks, changes and archives of real sandboxes.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::json;

use crate::{
    harness::{Daemon, is_root, text, until},
    oci::{Layer, Registry, TestImage},
};

/// Whether this host can hold a sandbox still while it runs. Without, those that run are refused by name, and told what
/// to do instead.
fn can_pause(daemon: &Daemon, name: &str) -> bool {
    let can = daemon.output(["pause", name]).status.success();
    if can {
        daemon.ok(["resume", name]);
        return true;
    }
    let (_, told) = daemon.fails(["snapshot", "create", name]);
    assert!(told.contains("cannot pause") && told.contains("warren stop"), "{told}");
    false
}

/// Stops a sandbox where it cannot be copied while it runs.
pub(crate) fn hold(daemon: &Daemon, name: &str) {
    if !can_pause(daemon, name) {
        daemon.ok(["stop", name]);
    }
}

pub(crate) fn on_disk(daemon: &Daemon) -> Vec<PathBuf> {
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
    daemon.sh_ok("dev", "printf 'one\\ntwo\\nthree\\n' > /root/text; rm /etc/os-release; chmod 700 /srv");
    let changes = |arguments: &[&str]| -> Vec<String> {
        let output = daemon.command(["diff", "dev"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(str::to_owned).collect()
    };
    let told = changes(&[]);
    for expected in ["A /root/text", "D /etc/os-release", "m /srv"] {
        assert!(told.iter().any(|line| line == expected), "no {expected} in {told:#?}");
    }
    hold(&daemon, "dev");
    daemon.ok(["snapshot", "create", "dev", "--name", "base"]);
    // With its own snapshot, whatever that is made on; so does a fork of it.
    if daemon.json(["inspect", "dev", "--json"]).to_string().contains(r#""state":"stopped""#) {
        daemon.ok(["start", "dev"]);
    }
    daemon.sh_ok("dev", "echo later > /root/later; rm /root/text; chmod 755 /srv");
    assert_eq!(changes(&["--since", "base"]), ["A /root/later", "D /root/text", "m /srv"]);
    hold(&daemon, "dev");
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
    here.sh_ok("app", "rm /etc/marker; echo mine > /etc/mine; head -c 300000 /dev/urandom > /big");
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
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
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
        // Loading a snapshot that is there already is fine.
        assert_eq!(there.ok(["snapshot", "load", "-i", &file]), "top\n");
        let renamed = there.output(["snapshot", "load", "-i", &file, "--name", "other"]);
        let told = text(&renamed.stderr);
        assert!(renamed.status.success() && told.contains("top, not other"), "{told}");
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

#[test]
fn what_is_mounted_stays_outside_and_forks_mount_the_same() {
    let mut daemon = Daemon::start();
    let shared = tempfile::tempdir().unwrap();
    fs::write(shared.path().join("on-host"), "host").unwrap();
    daemon.ok(["volume", "create", "data"]);
    let bind = format!("{}:/bound:ro", shared.path().display());
    daemon.create("source", &["--volume", "data:/data", "--volume", &bind, "--tmpfs", "/memory:1m"]);
    daemon.sh_ok(
        "source",
        "echo volume > /data/v; echo memory > /memory/m; echo own > /root/own; echo t > /tmp/t",
    );
    hold(&daemon, "source");
    daemon.ok(["snapshot", "create", "source", "--name", "base"]);
    // A snapshot has files only; what is to be mounted is said anew.
    daemon.ok(["snapshot", "restore", "base", "--name", "bare"]);
    assert_eq!(
        daemon.sh_ok("bare", "cat /root/own; ls /data /bound /memory /tmp"),
        "own\n/bound:\n\n/data:\n\n/memory:\n\n/tmp:"
    );
    daemon.create(
        "again",
        &[
            "--snapshot",
            "base",
            "--volume",
            "data:/data",
            "--patch",
            r#"{"kind":"text","path":"/root/patched","content":"p"}"#,
        ],
    );
    assert_eq!(daemon.sh_ok("again", "cat /root/own /data/v /root/patched"), "own\nvolume\np");
    // Forks mount what their source does, also what it was allowed under an earlier daemon.
    daemon.kill();
    daemon.serve();
    daemon.ok(["fork", "source", "--name", "fork"]);
    assert_eq!(daemon.sh_ok("fork", "cat /root/own /data/v /bound/on-host; ls /memory"), "own\nvolume\nhost");
    assert_ne!(daemon.sh("fork", "echo x > /bound/x").0, 0);
    daemon.sh_ok("fork", "echo fork > /data/v");
    if daemon.inspect("source")["state"] == "running" {
        assert_eq!(daemon.sh_ok("source", "cat /data/v /memory/m"), "fork\nmemory");
    }
    let (_, refused) = daemon.fails(["volume", "rm", "data"]);
    assert!(refused.contains("fork") && refused.contains("again"), "{refused}");
    // A host path that is gone is told, and nothing is left of the attempt.
    drop(shared);
    let (_, refused) = daemon.fails(["fork", "source", "-n", "3", "--prefix", "none"]);
    assert!(refused.contains("/bound"), "{refused}");
    let rows = daemon.json(["ps", "--all", "--json"]);
    let names: Vec<_> = rows["sandboxes"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
    assert!(!names.iter().any(|name| name.as_str().unwrap().starts_with("none")), "{names:?}");
    until("its snapshot is gone", || on_disk(&daemon).len() == 2);
}

#[test]
fn archives_go_between_a_daemon_of_root_and_one_of_an_ordinary_user() {
    let Some(theirs) = Daemon::of_ordinary_user() else {
        println!("skipped: needs root, newuidmap and newgidmap");
        return;
    };
    let ours = Daemon::start();
    ours.create("one", &[]);
    ours.sh_ok(
        "one",
        "cd /opt; mkdir -m 2755 d; echo a > d/a; ln d/a d/b; ln -s a d/l; mkfifo d/p; chown -R 7:8 d; \
         echo s > s; chown 1000:65535 s; chmod 4711 s; rm -r /srv; mkdir -m 0700 /srv; rm /etc/os-release",
    );
    let facts = "cd /opt; stat -c '%n %u:%g %a %h' d d/a d/l d/p s /srv; cat d/b; test -e /etc/os-release || echo gone";
    let expected = ours.sh_ok("one", facts);
    assert!(expected.contains("s 1000:65535 4711 1") && expected.ends_with("a\ngone"), "{expected}");
    hold(&ours, "one");
    ours.ok(["snapshot", "create", "one", "--name", "base"]);
    // As standard output and input: neither could read the other's files.
    let carry = |from: &Daemon, to: &Daemon, name: &str| {
        let mut saving = from.command(["snapshot", "save", name]).stdout(Stdio::piped()).spawn().unwrap();
        let mut load = to.command(["snapshot", "load"]);
        let loaded = load.stdin(saving.stdout.take().unwrap()).output().unwrap();
        assert!(saving.wait().unwrap().success());
        assert!(loaded.status.success(), "{}\n{}", text(&loaded.stderr), to.log());
        let digest = |daemon: &Daemon| daemon.json(["snapshot", "inspect", name, "--json"])["digest"].clone();
        assert_eq!(digest(from), digest(to));
        to.ok(["snapshot", "verify", name, "--parents"]);
    };
    carry(&ours, &theirs, "base");
    theirs.ok(["snapshot", "restore", "base", "--name", "two"]);
    assert_eq!(theirs.sh_ok("two", facts), expected);
    theirs.sh_ok("two", "chown 9:10 /opt/s; chmod 2711 /opt/s; rm -r /opt/d; mkdir /opt/d; chown 3:4 /opt/d");
    let facts = "cd /opt; stat -c '%n %u:%g %a' d s; ls d";
    let expected = theirs.sh_ok("two", facts);
    hold(&theirs, "two");
    theirs.ok(["snapshot", "create", "two", "--name", "top"]);
    carry(&theirs, &ours, "top");
    ours.ok(["snapshot", "restore", "top", "--name", "three"]);
    assert_eq!(ours.sh_ok("three", facts), expected);
    assert_eq!(ours.sh_ok("three", "su -s /bin/sh nobody -c 'test -r /srv' || echo closed"), "closed");
}

#[test]
fn a_sandbox_on_a_directory_of_the_host_is_forked_and_restored_on_it() {
    if !is_root() {
        return; // The files of the directory have to be root's inside, too.
    }
    let daemon = Daemon::start();
    let root = tempfile::tempdir().unwrap();
    for name in ["bin", "usr", "lib", "lib64", "etc", "root", "tmp", "proc", "sys", "dev", "run"] {
        fs::create_dir(root.path().join(name)).unwrap();
    }
    fs::copy("/bin/busybox", root.path().join("bin/busybox")).unwrap();
    std::os::unix::fs::symlink("busybox", root.path().join("bin/sh")).unwrap();
    fs::write(root.path().join("etc/base"), "base").unwrap();
    daemon.create("one", &["--rootfs", root.path().to_str().unwrap()]);
    daemon.sh_ok("one", "echo own > /root/own; /bin/busybox rm /etc/base");
    hold(&daemon, "one");
    daemon.ok(["snapshot", "create", "one", "--name", "base"]);
    daemon.ok(["fork", "one", "--name", "two"]);
    daemon.ok(["snapshot", "restore", "base", "--name", "three"]);
    for name in ["two", "three"] {
        assert_eq!(
            daemon.sh_ok(name, "/bin/busybox cat /root/own; test -e /etc/base || echo gone"),
            "own\ngone"
        );
    }
    let changes = daemon.ok(["diff", "three"]);
    assert!(changes.contains("A /root/own") && changes.contains("D /etc/base"), "{changes}");
    assert_eq!(fs::read(root.path().join("etc/base")).unwrap(), b"base");
    let archive = root.path().join("archive");
    let (_, refused) = daemon.fails(["snapshot", "save", "base", "-o", archive.to_str().unwrap()]);
    assert!(!archive.exists());
    assert!(refused.contains(root.path().to_str().unwrap()) && refused.contains("hint"), "{refused}");
}
