//! Made, stopped, started, found again, gone.

use crate::harness::{Daemon, until};

#[test]
fn a_stopped_sandbox_keeps_its_files() {
    let daemon = Daemon::start();
    daemon.create("desk", &[]);
    daemon.sh_ok("desk", "echo hello > /root/note; echo also > /etc/note");
    daemon.ok(["stop", "desk"]);
    assert_eq!(daemon.inspect("desk")["state"], "stopped");
    let (code, stderr) = daemon.fails(["exec", "desk", "true"]);
    assert_eq!(code, 125);
    assert!(stderr.contains("stopped") && stderr.contains("hint:"), "{stderr}");
    daemon.ok(["start", "desk"]);
    assert_eq!(daemon.sh_ok("desk", "cat /root/note /etc/note"), "hello\nalso");
}

#[test]
fn stopping_asks_first_and_insists_at_the_deadline() {
    let daemon = Daemon::start();
    daemon.create("polite", &[]);
    let script =
        "trap 'echo bye > /root/bye; exit 0' TERM; echo ready > /root/ready; while :; do sleep 0.01; done";
    daemon.json(["exec", "--detach", "--json", "polite", "/bin/sh", "-c", script]);
    until("the trap is set", || daemon.sh("polite", "test -e /root/ready").0 == 0);
    daemon.ok(["stop", "--grace", "30s", "polite"]);
    daemon.ok(["start", "polite"]);
    assert_eq!(daemon.sh_ok("polite", "cat /root/bye"), "bye");

    daemon.create("stubborn", &[]);
    let script = "trap '' TERM; echo ready > /root/ready; while :; do sleep 0.01; done";
    daemon.json(["exec", "--detach", "--json", "stubborn", "/bin/sh", "-c", script]);
    until("the trap is set", || daemon.sh("stubborn", "test -e /root/ready").0 == 0);
    daemon.ok(["stop", "--grace", "100ms", "stubborn"]);
    assert_eq!(daemon.inspect("stubborn")["state"], "stopped");
}

#[test]
fn a_daemon_that_comes_back_finds_its_sandboxes() {
    let mut daemon = Daemon::start();
    daemon.create("survivor", &[]);
    daemon.create("asleep", &[]);
    daemon.ok(["stop", "asleep"]);
    daemon.sh_ok("survivor", "echo state > /tmp/state; sleep 1000 > /dev/null 2>&1 &");
    daemon.kill();
    daemon.serve();
    assert_eq!(daemon.inspect("survivor")["state"], "running");
    assert_eq!(daemon.inspect("asleep")["state"], "stopped");
    assert_eq!(daemon.sh_ok("survivor", "cat /tmp/state; pgrep -c sleep"), "state\n1");
    daemon.ok(["rm", "--force", "survivor", "asleep"]);
    until("the host is clean", || daemon.leftovers().is_empty());
}

#[test]
fn a_sandbox_that_dies_while_the_daemon_is_away_is_stopped_and_can_start() {
    let mut daemon = Daemon::start();
    daemon.create("mortal", &[]);
    daemon.sh_ok("mortal", "echo kept > /root/note");
    let pid = std::fs::read_to_string(
        daemon.run_directory().join(daemon.inspect("mortal")["id"].as_str().unwrap()).join("pid"),
    );
    let pid = pid.unwrap().split_whitespace().next().unwrap().parse::<i32>().unwrap();
    daemon.kill();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    daemon.serve();
    until("it is stopped", || daemon.inspect("mortal")["state"] == "stopped");
    daemon.ok(["start", "mortal"]);
    assert_eq!(daemon.sh_ok("mortal", "cat /root/note"), "kept");
}

#[test]
fn time_to_live_ends_a_sandbox_even_over_a_restart() {
    let mut daemon = Daemon::start();
    daemon.create("mayfly", &["--ttl", "2s"]);
    daemon.kill();
    daemon.serve();
    until("it expired", || daemon.inspect("mayfly")["state"] == "stopped");
}

#[test]
fn work_inside_counts_as_not_idle() {
    let daemon = Daemon::start();
    daemon.create("busy", &["--idle", "1s"]);
    daemon.create("lazy", &["--idle", "1s"]);
    daemon.json(["exec", "--detach", "--json", "busy", "sleep", "4"]);
    // Looking at it must not keep it alive, so the list is asked, not the sandbox.
    let state = |name: &str| {
        let rows = daemon.json(["ps", "--all", "--json"]);
        let row =
            rows["sandboxes"].as_array().unwrap().iter().find(|row| row["name"] == name).cloned().unwrap();
        row["state"].as_str().unwrap().to_owned()
    };
    until("the lazy one is stopped", || state("lazy") == "stopped");
    assert_eq!(state("busy"), "running");
    until("the busy one is stopped once its work is done", || state("busy") == "stopped");
}

#[test]
fn a_drained_sandbox_finishes_its_work_and_takes_no_more() {
    let daemon = Daemon::start();
    daemon.create("worker", &[]);
    let exec = daemon.json(["exec", "--detach", "--json", "worker", "/bin/sh", "-c", "sleep 1; echo done"]);
    daemon.ok(["stop", "--drain", "worker"]);
    assert_eq!(daemon.inspect("worker")["state"], "stopped");
    assert_eq!(daemon.ok(["logs", "worker", exec["id"].as_str().unwrap()]), "done\n");
}

#[test]
fn one_daemon_for_a_data_directory() {
    let daemon = Daemon::start();
    let second = daemon.output(["serve"]);
    assert!(!second.status.success());
    let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(stderr.contains(&daemon.pid().to_string()), "{stderr}");
}
