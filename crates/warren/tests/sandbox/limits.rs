//! The work of one sandbox must not be felt next door.

use serde_json::Value;

use crate::harness::{Daemon, is_root, until};

/// How one limit is held, as the sandbox itself states it.
fn enforcement(daemon: &Daemon, name: &str, limit: &str) -> String {
    let sandbox = daemon.inspect(name);
    let limits = sandbox["isolation"]["limits"].as_array().unwrap();
    let found = limits.iter().find(|statement| statement["limit"] == limit);
    found.map_or(Value::Null, |statement| statement["enforcement"].clone()).as_str().unwrap().to_owned()
}

fn neighbour_works(daemon: &Daemon) {
    assert_eq!(daemon.sh_ok("neighbour", "echo alive"), "alive");
}

#[test]
fn a_fork_bomb_stays_in_its_sandbox() {
    let daemon = Daemon::start();
    daemon.create("neighbour", &[]);
    daemon.create("bomber", &["--pids", "64"]);
    daemon.json([
        "exec",
        "--detach",
        "--json",
        "bomber",
        "/bin/sh",
        "-c",
        "bomb() { bomb | bomb & }; bomb; sleep 60",
    ]);

    neighbour_works(&daemon);
    daemon.ok(["stop", "--grace", "1s", "bomber"]);
    neighbour_works(&daemon);
    assert_eq!(daemon.inspect("bomber")["state"], "stopped");
}

#[test]
fn a_memory_hog_is_killed_the_guest_survives_and_the_outcome_says_why() {
    let daemon = Daemon::start();
    daemon.create("neighbour", &[]);
    daemon.create("hog", &["--memory", "64m"]);
    let held_by = enforcement(&daemon, "hog", "memory");
    let hog = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    let ran = daemon.output(["exec", "--json", "hog", "python3", "-c", hog]);

    if held_by.starts_with("cgroup") {
        assert_eq!(ran.status.code(), Some(137));
        let last = daemon.inspect("hog")["execs"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["outcome"]["reason"], "memoryLimit", "{last}");
    } else {
        assert!(!ran.status.success(), "held by {held_by}");
    }
    assert_eq!(daemon.sh_ok("hog", "echo the guest is there"), "the guest is there");
    neighbour_works(&daemon);
}

#[test]
fn a_disk_filler_meets_its_limit() {
    let daemon = Daemon::start();
    daemon.create("neighbour", &[]);
    daemon.create("filler", &["--disk", "64m"]);
    let (code, _, err) = daemon.sh("filler", "i=0; while dd if=/dev/zero of=/root/f$i bs=1M count=16 2>/tmp/e; do i=$((i+1)); done; cat /tmp/e >&2; exit 9");
    if is_root() {
        assert_eq!(enforcement(&daemon, "filler", "disk"), "fileSystem");
        assert_eq!(code, 9);
        assert!(err.contains("No space left"), "{err}");
        assert_eq!(daemon.sh_ok("filler", "rm /root/f0; echo again > /root/x; cat /root/x"), "again");
    } else {
        assert_eq!(enforcement(&daemon, "filler", "disk"), "accounting");
        assert_ne!(code, 0);
    }
    neighbour_works(&daemon);
}

#[test]
fn the_default_disk_limit_is_held_by_accounting() {
    let daemon = Daemon::start();
    daemon.create("plain", &[]);
    assert_eq!(enforcement(&daemon, "plain", "disk"), "accounting");
}

#[test]
fn a_hard_disk_keeps_its_files_over_a_restart() {
    let daemon = Daemon::start();
    daemon.create("keeper", &["--disk", "64m"]);
    daemon.sh_ok("keeper", "echo kept > /root/note");
    daemon.ok(["restart", "keeper"]);
    assert_eq!(daemon.sh_ok("keeper", "cat /root/note"), "kept");
}

#[test]
fn temporary_space_and_shared_memory_have_their_sizes() {
    let daemon = Daemon::start();
    daemon.create("small", &["--tmp", "1m", "--shm", "2m"]);
    assert_eq!(
        daemon.sh_ok("small", "df -k --output=size /tmp /dev/shm | tail -n 2 | tr -d ' ' | tr '\\n' ,"),
        "1024,2048,"
    );
}

#[test]
fn open_files_are_limited() {
    let daemon = Daemon::start();
    daemon.create("few", &["--open-files", "64"]);
    assert_eq!(daemon.sh_ok("few", "ulimit -n"), "64");
}

/// That the kernel really throttles is a story of the back end's own tests; here the statement must be true.
#[test]
fn what_is_said_of_processors_is_true() {
    let daemon = Daemon::start();
    daemon.create("slow", &["--cpus", "0.5"]);
    match enforcement(&daemon, "slow", "cpus").as_str() {
        "affinity" => assert_eq!(daemon.sh_ok("slow", "nproc"), "1"),
        "notHeld" => assert!(!is_root() && daemon.inspect("slow")["isolation"].to_string().contains("note")),
        held_by => assert!(held_by.starts_with("cgroup"), "{held_by}"),
    }
}

#[test]
fn a_paused_sandbox_stands_still_and_goes_on() {
    let daemon = Daemon::start();
    daemon.create("ticker", &[]);
    if !is_root() {
        let (_, stderr) = daemon.fails(["pause", "ticker"]);
        println!("rootless without a freezer: {stderr}");
        return;
    }
    daemon.json([
        "exec",
        "--detach",
        "--json",
        "ticker",
        "/bin/sh",
        "-c",
        "while :; do echo tick >> /root/ticks; sleep 0.01; done",
    ]);
    until("it ticks", || daemon.sh("ticker", "test -s /root/ticks").0 == 0);
    daemon.ok(["pause", "ticker"]);
    assert_eq!(daemon.inspect("ticker")["state"], "paused");

    let count = || {
        let output = daemon.output(["cp", "ticker:/root/ticks", "-"]);
        assert!(output.status.success());
        output.stdout.iter().filter(|byte| **byte == b'k').count()
    };
    let before = count();
    neighbourless_moment(&daemon);
    assert_eq!(count(), before, "a paused sandbox went on ticking");

    daemon.ok(["resume", "ticker"]);
    until("it ticks again", || count() > before);
}

/// Long enough that a ticking sandbox would have ticked: another sandbox is made and removed.
fn neighbourless_moment(daemon: &Daemon) {
    for _ in 0..3 {
        daemon.ok(["run", "true"]);
    }
}
