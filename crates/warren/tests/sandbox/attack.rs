//! The probes of `warren doctor --attack` are the tests: the same list through the same code, on this host.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::{Daemon, is_root, text};

/// Returns why a probe cannot be held on some hosts. A probe that is weak for another reason fails the test.
fn expected_weak(probe: &str) -> Option<&'static str> {
    match probe {
        "open-files" => Some("the machine's limit of open files may be low; `doctor` warns"),
        _ if is_root() => None,
        "inotify-instances" | "inotify-watches" | "timers" => {
            Some("without root there is no other user to charge")
        }
        "device-locks" | "device-watches" => Some("without root the kernel lets nobody make device nodes"),
        "host-ids" => Some("an ordinary user has only one range of ids"),
        memory if memory.starts_with("memory-") => Some("without a delegated cgroup memory is not limited"),
        _ => None,
    }
}

/// Returns why a probe cannot be tried on some hosts.
fn expected_untried(probe: &str) -> Option<&'static str> {
    match probe {
        "syscall-x32" | "syscall-int80" if cfg!(not(target_arch = "x86_64")) => Some("no such calls"),
        "host-ids" if !is_root() => Some("maps of guests are not an ordinary user's to read"),
        _ => None,
    }
}

/// The findings of an attack, and its exit code. `only`: one probe.
fn attack(daemon: &Daemon, only: Option<&str>) -> (Vec<Value>, Option<i32>) {
    let only = only.map(|probe| ["--only", probe]);
    let words = ["doctor", "--attack", "--json"].into_iter().chain(only.into_iter().flatten());
    let output = daemon.command(words).output().unwrap();
    let stderr = text(&output.stderr);
    let answer: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    (answer["findings"].as_array().unwrap().clone(), output.status.code())
}

#[test]
fn attack_every_probe_is_contained() {
    let daemon = Daemon::unstarted();
    let (mut findings, code) = attack(&daemon, None);
    for finding in &mut findings {
        // On a busy machine a slow probe may run out of time; then it is tried again by itself.
        if finding["verdict"] == "untried" && finding["seen"] == "no answer in time" {
            let (again, _) = attack(&daemon, finding["probe"].as_str());
            finding.clone_from(&again[0]);
        }
    }
    let mut wrong = BTreeMap::new();
    for finding in &findings {
        let probe = finding["probe"].as_str().unwrap();
        let is_right = match finding["verdict"].as_str().unwrap() {
            "contained" => true,
            "weak" => expected_weak(probe).is_some(),
            "untried" => expected_untried(probe).is_some(),
            _ => false,
        };
        if !is_right {
            wrong.insert(probe, format!("{}: {}", finding["verdict"], finding["seen"]));
        }
    }
    assert!(findings.len() >= 60, "{} probes", findings.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(code, Some(0));
}

#[test]
fn attack_leaves_nothing_behind() {
    let daemon = Daemon::unstarted();
    let output = daemon.command(["doctor", "--attack", "--only", "descriptors"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("1 probes: 1 contained"), "{}", text(&output.stdout));
    assert_eq!(left_in(&daemon), Vec::<String>::new());
}

#[test]
fn attack_tidies_up_when_interrupted() {
    let daemon = Daemon::unstarted();
    let mut child =
        daemon.command(["doctor", "--attack"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    // Its sandboxes are made.
    let made = || {
        let home = std::fs::read_dir(daemon.home()).into_iter().flatten().flatten().next()?;
        (std::fs::read_dir(home.path().join("sandboxes")).ok()?.count() >= 2).then_some(())
    };
    crate::harness::until("the attack has begun", || made().is_some());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(left_in(&daemon), Vec::<String>::new());
}

/// Lists what is left in the daemon's two directories.
fn left_in(daemon: &Daemon) -> Vec<String> {
    let entries =
        [daemon.home(), daemon.run_directory()].into_iter().filter_map(|path| std::fs::read_dir(path).ok());
    entries.flatten().flatten().map(|entry| entry.path().display().to_string()).collect()
}

#[test]
fn attack_names_its_groups_when_asked_for_none() {
    let daemon = Daemon::unstarted();
    let output = daemon.command(["doctor", "--attack", "--only", "no-such-probe"]).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("no probe or group is called no-such-probe") && stderr.contains("neighbours"),
        "{stderr}"
    );
}
