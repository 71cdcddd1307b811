//! The database is lost, emptied, damaged or replaced by an old copy: guests live on, files stay, names come back.

use std::{fs, path::Path};

use crate::harness::{Daemon, until};

/// A sandbox that runs, one that is stopped, a volume with a file and a snapshot.
fn furnish(daemon: &Daemon) {
    daemon.create("live", &["--volume", "models:/models"]);
    daemon.sh_ok("live", "echo file > /root/file; echo memory > /tmp/memory; echo model > /models/m");
    daemon.json(["exec", "--detach", "--json", "live", "/bin/sh", "-c", "echo begun; exec sleep 1000"]);
    daemon.create("asleep", &[]);
    daemon.sh_ok("asleep", "echo file > /root/file");
    daemon.ok(["stop", "asleep"]);
    daemon.ok(["snapshot", "create", "--name", "snap", "asleep"]);
}

fn check_furniture(daemon: &Daemon) {
    assert_eq!(daemon.inspect("live")["state"], "running");
    // The same guest: what was in memory is there, and so is the process.
    assert_eq!(
        daemon.sh_ok("live", "cat /root/file /tmp/memory /models/m; pgrep -c sleep"),
        "file\nmemory\nmodel\n1"
    );
    assert_eq!(daemon.inspect("asleep")["state"], "stopped");
    daemon.ok(["start", "asleep"]);
    assert_eq!(daemon.sh_ok("asleep", "cat /root/file"), "file");
    assert!(daemon.ok(["volume", "ls"]).contains("models"));
    assert!(daemon.ok(["snapshot", "ls"]).contains("snap"));
    // The exec that ran is followed again.
    let execs = daemon.inspect("live")["execs"].clone();
    let running = execs.as_array().unwrap().iter().find(|exec| exec["state"] == "running").unwrap().clone();
    let id = running["id"].as_str().unwrap();
    assert_eq!(daemon.ok(["logs", "live", id]), "begun\n");
    daemon.ok(["rm", "--force", "live", "asleep"]);
    daemon.ok(["volume", "rm", "models"]);
    until("the host is clean", || daemon.leftovers().is_empty());
}

fn lose(home: &Path) {
    for name in ["warren.db", "warren.db-wal", "warren.db-shm"] {
        fs::remove_file(home.join(name)).ok();
    }
}

fn check(happens: impl FnOnce(&Path)) {
    let mut daemon = Daemon::start();
    daemon.ok(["volume", "create", "models"]);
    furnish(&daemon);
    daemon.kill();
    happens(&daemon.home());
    let seen = daemon.json(["doctor", "--no-trial", "--json"]);
    let records = seen["checks"].as_array().unwrap().iter().find(|check| check["name"] == "records").unwrap();
    assert_eq!((&records["status"], &records["mend"]), (&"weak".into(), &"warren doctor --recover".into()));
    daemon.serve();
    check_furniture(&daemon);
}

#[test]
fn a_deleted_database_loses_nothing() {
    check(lose);
}

#[test]
fn an_emptied_database_loses_nothing() {
    check(|home| fs::write(home.join("warren.db"), "").unwrap());
}

#[test]
fn an_old_copy_of_the_database_loses_nothing() {
    let mut daemon = Daemon::start();
    daemon.ok(["volume", "create", "old"]);
    daemon.kill();
    // The write-ahead log has the newest; without it the file is as old as can be.
    let copies: Vec<_> = ["warren.db", "warren.db-wal"]
        .map(|name| (name, fs::read(daemon.home().join(name)).unwrap_or_default()))
        .into();
    daemon.serve();
    daemon.ok(["volume", "create", "models"]);
    furnish(&daemon);
    daemon.kill();
    lose(&daemon.home());
    for (name, bytes) in copies {
        fs::write(daemon.home().join(name), bytes).unwrap();
    }
    daemon.serve();
    check_furniture(&daemon);
    assert!(daemon.ok(["volume", "ls"]).contains("old"));
}

#[test]
fn a_damaged_database_is_refused_and_recovered() {
    let mut daemon = Daemon::start();
    daemon.ok(["volume", "create", "models"]);
    furnish(&daemon);
    // In good order: what is in the write-ahead log would mend the damage.
    let pid = rustix::process::Pid::from_raw(daemon.pid().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    daemon.ends();
    let file = daemon.home().join("warren.db");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 64].fill(0xee);
    fs::write(&file, &bytes).unwrap();

    // Detached, so that one that starts all the same does not keep the test.
    let (code, stderr) = daemon.fails(["ps"]);
    assert_eq!(code, 125);
    assert!(stderr.contains("warren doctor --recover"), "{stderr}");
    let (code, stderr) = daemon.fails(["serve"]);
    assert_eq!(code, 125);
    assert!(stderr.contains("warren doctor --recover"), "{stderr}");
    let seen = daemon.output(["doctor", "--no-trial"]);
    let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert!(seen.contains("warren doctor --recover"), "{seen}");

    let report = daemon.json(["doctor", "--recover", "--json"]);
    assert_eq!(report["sandboxes"], serde_json::json!(["live", "asleep"]));
    assert_eq!(report["volumes"], serde_json::json!(["models"]));
    assert_eq!(report["snapshots"], 1);
    let kept = report["damagedDatabase"].as_str().unwrap();
    assert_eq!(fs::read(kept).unwrap(), bytes);
    daemon.serve();
    check_furniture(&daemon);
    let (_, stderr) = daemon.fails(["doctor", "--recover"]);
    assert!(stderr.contains("daemon"), "refused while one runs: {stderr}");
}
