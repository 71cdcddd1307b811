//! Snapshots, forks and archives in the middle of which something dies, or the disk is full.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::Value;

use crate::{
    harness::{Daemon, PATIENCE, is_root, text, until},
    small_disk::SmallDisk,
    snapshots::{hold, on_disk},
};

/// Waits without a pause: what is waited for is over soon.
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "gave up waiting until {what}");
        std::thread::yield_now();
    }
}

/// The manifest is the last of a snapshot that comes, and the first that goes.
fn is_half_made(directory: &Path) -> bool {
    !directory.join("manifest.json").exists()
}

fn has_half_made(daemon: &Daemon) -> bool {
    on_disk(daemon).iter().any(|directory| is_half_made(directory))
}

/// A sandbox `big` with enough files for a copy to take a while, and a program that counts, unless it had to be
/// stopped.
fn big(daemon: &Daemon, mebibytes: u32) -> bool {
    daemon.create("big", &[]);
    daemon.sh_ok("big", &format!("dd if=/dev/zero of=/root/zeros bs=1M count={mebibytes} 2>/dev/null"));
    daemon.sh_ok("big", "mkdir /root/many; cd /root/many; head -c 4000000 /dev/urandom | split -b 2000 -a 4");
    daemon.sh_ok(
        "big",
        "(i=0; while :; do i=$((i+1)); echo $i > /run/n; mv /run/n /run/at; done) >/dev/null 2>&1 &",
    );
    hold(daemon, "big");
    daemon.inspect("big")["state"] == "running"
}

/// Not only does it say that it runs.
fn goes_on(daemon: &Daemon) {
    assert_eq!(daemon.inspect("big")["state"], "running");
    let before = daemon.sh_ok("big", "cat /run/at");
    until("it goes on", || daemon.sh_ok("big", "cat /run/at") != before);
}

fn names(daemon: &Daemon) -> Vec<String> {
    let all = daemon.json(["snapshot", "ls", "--json"]);
    let name = |view: &Value| view["name"].as_str().unwrap_or_default().to_owned();
    all["snapshots"].as_array().unwrap().iter().map(name).collect()
}

/// Begins a command and kills the daemon in its middle, or at its end where that is sooner; then another one comes up.
fn killed_in(daemon: &mut Daemon, mut command: Command, is_begun: impl Fn(&Daemon) -> bool) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    soon("it has begun", || is_begun(daemon) || child.try_wait().unwrap().is_some());
    daemon.kill();
    // Whoever gives bytes in has no more.
    drop(child.stdin.take());
    child.wait().unwrap();
    daemon.serve();
}

#[test]
fn a_daemon_killed_in_the_middle_of_anything_leaves_it_whole_or_not_at_all() {
    let mut daemon = Daemon::start();
    let ran = big(&daemon, 100);
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();

    let create = daemon.command(["snapshot", "create", "big", "--name", "base"]);
    killed_in(&mut daemon, create, has_half_made);
    if names(&daemon) == ["base"] {
        // It was faster than the kill: then it is whole.
        daemon.ok(["snapshot", "verify", "base"]);
        daemon.ok(["snapshot", "rm", "base"]);
    }
    until("what is half made is gone", || on_disk(&daemon).is_empty());
    if ran {
        goes_on(&daemon);
    }

    daemon.ok(["snapshot", "create", "big", "--name", "base"]);
    let (good, cut) = (path("good"), path("cut"));
    daemon.ok(["snapshot", "save", "base", "--plain", "-o", &good]);
    let save = daemon.command(["snapshot", "save", "base", "--plain", "-o", &cut]);
    killed_in(&mut daemon, save, |_| fs::read_dir(place.path()).unwrap().count() > 1);
    daemon.ok(["snapshot", "verify", "base"]);
    if Path::new(&cut).exists() {
        assert!(
            fs::read(&cut).unwrap() == fs::read(&good).unwrap(),
            "what is cut short has the name of a whole one"
        );
    }

    let remove = daemon.command(["snapshot", "rm", "base"]);
    killed_in(&mut daemon, remove, has_half_made);
    if names(&daemon) == ["base"] {
        daemon.ok(["snapshot", "verify", "base"]);
        daemon.ok(["snapshot", "rm", "base"]);
    }
    until("what is half gone is gone", || on_disk(&daemon).is_empty());
    assert_eq!(names(&daemon), [""; 0]);

    // Half of an archive, whose other half never comes.
    let archive = fs::read(&good).unwrap();
    let mut load = daemon.command(["snapshot", "load"]);
    let mut loading = load.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    loading.stdin.as_mut().unwrap().write_all(&archive[..archive.len() / 2]).unwrap();
    soon("it has begun", || has_half_made(&daemon));
    daemon.kill();
    loading.kill().unwrap();
    loading.wait().unwrap();
    daemon.serve();
    until("what is half loaded is gone", || on_disk(&daemon).is_empty());
    assert_eq!(names(&daemon), [""; 0]);
    assert_eq!(daemon.ok(["snapshot", "load", "-i", &good]), "base\n");

    let fork = daemon.command(["fork", "big", "-n", "5", "--prefix", "fork"]);
    let sandboxes = daemon.home().join("sandboxes");
    killed_in(&mut daemon, fork, |_| fs::read_dir(&sandboxes).unwrap().count() > 2);
    let rows = daemon.json(["ps", "--all", "--json"]);
    for row in rows["sandboxes"].as_array().unwrap() {
        let name = row["name"].as_str().unwrap();
        if name.starts_with("fork-") {
            // One that is there is whole.
            daemon.ok(["restart", name]);
            assert_eq!(
                daemon.sh_ok(name, "ls /root/many | wc -l; stat -c %s /root/zeros"),
                format!("2000\n{}", 100 << 20)
            );
            daemon.ok(["rm", "--force", name]);
        }
    }
    until("all of the fork is gone", || on_disk(&daemon).len() == 1);
    if ran {
        goes_on(&daemon);
    }
    daemon.ok(["snapshot", "verify", "base"]);
}

/// Processes whose parent this is, by what they were started as.
fn children(of: u32, called: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if parent == Some(&of.to_string()) && text(&words).starts_with(called) {
            found.push(pid);
        }
    }
    found
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    // It may have ended meanwhile.
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
}

#[test]
fn a_worker_or_a_spawner_that_dies_leaves_nothing_frozen() {
    let daemon = Daemon::start();
    if !big(&daemon, 120) {
        return;
    }
    const SPAWNER: &str = "warren: spawner";
    let spawner = children(daemon.pid(), SPAWNER)[0];
    let pid = u32::try_from(spawner).unwrap();
    let begin = |daemon: &Daemon| {
        let mut create = daemon.command(["snapshot", "create", "big", "--name", "base"]);
        create.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut creating = begin(&daemon);
    // All of them: others measure what sandboxes take.
    soon("it is over", || {
        children(pid, SPAWNER).into_iter().for_each(kill);
        creating.try_wait().unwrap().is_some()
    });
    let is_made = creating.wait().unwrap().success();
    goes_on(&daemon);
    if is_made {
        // Its workers were quicker than we: then it is whole.
        daemon.ok(["snapshot", "verify", "base"]);
        daemon.ok(["snapshot", "rm", "base"]);
    }
    assert_eq!(names(&daemon), [""; 0]);
    // Whoever would have cleaned up may have been killed too; then the next daemon does.
    until("nothing is left that looks whole", || {
        on_disk(&daemon).iter().all(|directory| is_half_made(directory))
    });

    let mut creating = begin(&daemon);
    soon("it has begun", || has_half_made(&daemon) || creating.try_wait().unwrap().is_some());
    kill(spawner);
    creating.wait().unwrap();
    // The daemon goes on with another spawner, and takes back what the first one left half made.
    goes_on(&daemon);
    until("what is half made is gone", || !has_half_made(&daemon));
    if names(&daemon).is_empty() {
        daemon.ok(["snapshot", "create", "big", "--name", "base"]);
    }
    // One that was quicker than we is whole.
    daemon.ok(["snapshot", "verify", "base"]);
    assert_eq!(on_disk(&daemon).len(), 1);
}

#[test]
fn a_disk_that_is_full_in_the_middle_is_told_and_the_sandbox_goes_on() {
    if !is_root() {
        return; // Only root can give the daemon a small disk.
    }
    let mut daemon = Daemon::unstarted();
    // The image `host` takes some of it.
    let disk = SmallDisk::at(&daemon.home(), "96m");
    daemon.serve();
    big(&daemon, 16);
    daemon.sh_ok("big", "head -c 8000000 /dev/urandom > /root/noise");
    daemon.ok(["snapshot", "create", "big", "--name", "base"]);
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("archive").to_str().unwrap().to_owned();
    daemon.ok(["snapshot", "save", "base", "-o", &archive]);
    daemon.ok(["snapshot", "rm", "base"]);
    let filler = daemon.home().join("filler");
    let room = |mebibytes: u64| {
        let found = rustix::fs::statvfs(daemon.home()).unwrap();
        let free = found.f_bavail * found.f_frsize;
        fs::write(&filler, vec![b'x'; usize::try_from(free - (mebibytes << 20)).unwrap()]).unwrap();
    };
    // Enough to begin, too little to end.
    room(6);
    let free = || rustix::fs::statvfs(daemon.home()).unwrap().f_bavail;
    let before = free();
    for command in [
        &["snapshot", "create", "big", "--name", "base"][..],
        &["fork", "big", "-n", "3"],
        &["snapshot", "load", "-i", &archive],
    ] {
        let output = daemon.command(command).output().unwrap();
        let told = text(&output.stderr);
        assert!(
            !output.status.success() && told.contains("o space left") && told.contains("hint"),
            "{command:?}: {told}"
        );
        goes_on(&daemon);
        assert_eq!((on_disk(&daemon).len(), names(&daemon).len()), (0, 0), "{command:?}");
    }
    // All but what the daemon's own records took.
    assert!(free() + 256 > before, "{before} blocks were free, and now {}", free());
    fs::remove_file(&filler).unwrap();
    assert_eq!(daemon.ok(["snapshot", "load", "-i", &archive]), "base\n");
    daemon.ok(["snapshot", "verify", "base"]);
    daemon.ok(["snapshot", "rm", "base"]);
    daemon.ok(["fork", "big", "-n", "2"]);
    drop((daemon, disk));
}
