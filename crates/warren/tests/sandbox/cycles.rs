//! Nothing is left behind, however often and however many at once.

use std::{
    collections::BTreeSet,
    fs,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::harness::{Daemon, text, until};

/// `make soak` asks for more by `WARREN_CYCLES`.
const CYCLES: usize = 500;
const AT_ONCE: usize = 8;

/// Children of a process and theirs, by name.
fn descendants(of: u32) -> BTreeSet<String> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((head, tail)) = stat.rsplit_once(')') else { continue };
        let parent = tail.split_whitespace().nth(1).and_then(|field| field.parse::<u32>().ok()).unwrap_or(0);
        parents.push((pid, parent, head.to_owned()));
    }
    let mut family = BTreeSet::from([of]);
    let mut names = BTreeSet::new();
    loop {
        let before = family.len();
        for (pid, parent, name) in &parents {
            if family.contains(parent) && family.insert(*pid) {
                names.insert(name.clone());
            }
        }
        if family.len() == before {
            return names;
        }
    }
}

/// Cgroups that carry a sandbox of this daemon.
fn cgroups(ids: &BTreeSet<String>) -> Vec<String> {
    fn walk(directory: &std::path::Path, ids: &BTreeSet<String>, found: &mut Vec<String>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if ids.contains(entry.file_name().to_string_lossy().as_ref()) {
                    found.push(entry.path().display().to_string());
                } else {
                    walk(&entry.path(), ids, found);
                }
            }
        }
    }
    let mut found = Vec::new();
    walk(std::path::Path::new("/sys/fs/cgroup"), ids, &mut found);
    found
}

#[test]
fn five_hundred_random_cycles_in_parallel_leave_nothing_behind() {
    let daemon = Daemon::start();
    let asked = std::env::var("WARREN_CYCLES").ok().and_then(|text| text.parse().ok());
    let cycles: usize = asked.unwrap_or(CYCLES);
    let children_before = descendants(daemon.pid());
    let next = AtomicUsize::new(0);
    let ids = std::sync::Mutex::new(BTreeSet::new());

    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= cycles {
                        return;
                    }
                    ids.lock().unwrap().insert(cycle(&daemon, number));
                }
            });
        }
    });

    until("the host is clean", || daemon.leftovers().is_empty());
    until("no process is left", || descendants(daemon.pid()).is_subset(&children_before));
    let ids = ids.into_inner().unwrap();
    until("no cgroup is left", || cgroups(&ids).is_empty());
}

/// One life, of a shape that depends on its number in no simple way.
fn cycle(daemon: &Daemon, number: usize) -> String {
    let mut dice = number.wrapping_mul(2_654_435_761) >> 7;
    let mut chance = |of: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % of
    };
    let name = format!("cycle-{number}");
    let created = daemon.json(["create", "--name", &name, "--json"]);
    let id = created["id"].as_str().unwrap().to_owned();

    for _ in 0..chance(3) {
        match chance(4) {
            0 => assert_eq!(daemon.sh_ok(&name, "echo $((6*7))"), "42"),
            1 => assert_eq!(daemon.sh(&name, "exit 5").0, 5),
            2 => {
                daemon.json(["exec", "--detach", "--json", &name, "sleep", "1000"]);
            }
            _ => {
                daemon.sh_ok(&name, "head -c 100000 /dev/urandom > /root/blob; (sleep 1000 &) ; true");
            }
        }
    }
    match chance(3) {
        0 => {
            daemon.ok(["rm", "--force", &name]);
        }
        1 => {
            daemon.ok(["stop", "--grace", "0s", &name]);
            daemon.ok(["rm", &name]);
        }
        _ => {
            daemon.ok(["stop", "--grace", "0s", &name]);
            daemon.ok(["start", &name]);
            daemon.ok(["rm", "--force", &name]);
        }
    }
    id
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing() {
    let daemon = Daemon::start();
    let mut child = daemon
        .command(["run", "/bin/sh", "-c", "echo started; sleep 1000"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 8];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(text(&line), "started\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    child.wait().unwrap();
    until("the host is clean", || daemon.leftovers().is_empty());
}
