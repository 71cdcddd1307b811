//! The daemon or its spawner is killed at the worst moment, again and again: nothing is damaged, doubled or left
//! behind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::harness::{Daemon, is_root, text, until};

/// Kills of the daemon while sandboxes with file systems of their own are started.
const KILLS_WHILE_STARTING: u64 = 10;
/// How long a spawner stands still that loses its daemon. The next daemon starts sandboxes well within that.
const STANDSTILL: Duration = Duration::from_millis(700);
/// Sandboxes with file systems of their own.
const DISKS: usize = 3;
const KILLS_OF_THE_SPAWNER: usize = 8;
const WORKERS: usize = 4;
/// More layers of image `host` than are kept.
const OLD_LAYERS: usize = 6;
const FILES_TO_REMOVE: usize = 5000;
/// Removals that are cut short in their middle, and how many are tried at most for that.
const ENOUGH_CUT: usize = 3;
const MAX_REMOVALS: usize = 10;

/// The file that a loop device shows; empty for none.
fn file_shown_by(device: &Path) -> String {
    let file = fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
    file.trim().to_owned()
}

/// The loop devices that show each file beneath a directory.
fn devices_beneath(directory: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut found = BTreeMap::<String, Vec<PathBuf>>::new();
    for device in fs::read_dir("/sys/block").unwrap().flatten().map(|entry| entry.path()) {
        let file = file_shown_by(&device);
        if file.starts_with(directory.to_str().unwrap()) {
            found.entry(file).or_default().push(device);
        }
    }
    found
}

/// Looks all the time for files that are on two loop devices at once.
struct DoubleWatch {
    seen: Arc<Mutex<BTreeSet<String>>>,
    is_over: Arc<AtomicBool>,
}

impl DoubleWatch {
    fn begin(directory: PathBuf) -> Self {
        let watch = Self { seen: Arc::default(), is_over: Arc::default() };
        let (seen, is_over) = (Arc::clone(&watch.seen), Arc::clone(&watch.is_over));
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                for (file, devices) in devices_beneath(&directory) {
                    // A look takes a while, in which the file may have gone from one to another.
                    let all_show_it = || devices.iter().all(|device| file_shown_by(device) == file);
                    if devices.len() > 1 && (0..3).all(|_again| all_show_it()) {
                        seen.lock().unwrap().insert(file);
                    }
                }
                thread::sleep(Duration::from_micros(500));
            }
        });
        watch
    }

    fn assert_none(&self) {
        let seen = self.seen.lock().unwrap().clone();
        assert!(seen.is_empty(), "on two loop devices at once: {seen:?}");
    }
}

impl Drop for DoubleWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Sends the request and waits for nothing.
fn ask(daemon: &Daemon, request: &str) -> UnixStream {
    let mut stream = UnixStream::connect(daemon.run_directory().join("warren.sock")).unwrap();
    let request = format!("{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn ask_to_start(daemon: &Daemon, name: &str) -> UnixStream {
    ask(daemon, &format!("POST /v1/sandboxes/{name}/start"))
}

fn signal(process: i32, signal: Signal) {
    // It may be gone.
    Pid::from_raw(process).map(|pid| rustix::process::kill_process(pid, signal));
}

#[test]
fn a_daemon_that_dies_while_it_starts_a_sandbox_never_damages_its_disk() {
    if !is_root() {
        return; // Only root has file systems of a size.
    }
    let mut daemon = Daemon::start();
    daemon.ok(["volume", "create", "data", "--quota", "32m"]);
    // Several, so that the spawner has work in its queue when the daemon dies.
    let disks: Vec<String> = (0..DISKS).map(|number| format!("disk-{number}")).collect();
    for disk in &disks {
        daemon.create(disk, &["--disk", "32m"]);
    }
    if daemon.inspect("disk-0")["isolation"].to_string().contains("Held by measuring") {
        return; // No loop devices or no mkfs here.
    }
    daemon.create("user", &["--volume", "data:/data"]);
    let mut all: Vec<&str> = disks.iter().map(String::as_str).collect();
    all.push("user");
    let write =
        "echo kept > /root/note && mkdir -p /data && seq 20000 > /data/numbers && seq 5000 > /root/numbers";
    for name in &all {
        daemon.sh_ok(name, write);
    }
    let watch = DoubleWatch::begin(daemon.home());
    for number in 0..KILLS_WHILE_STARTING {
        daemon.command(["stop", "-t", "0s"]).args(&all).output().unwrap();
        let spawner = spawner_of(&daemon);
        // As on a busy machine: the spawner stands still for a while, in the middle of something or with all requests
        // in its queue, and goes on when the next daemon is there.
        if number % 2 == 0 {
            signal(spawner, Signal::STOP);
        }
        // Not with commands, which would start a daemon of their own.
        let starting: Vec<_> = all.iter().map(|name| ask_to_start(&daemon, name)).collect();
        // Some time within the first moments of a start: that is what this is about.
        thread::sleep(Duration::from_millis(2 * number));
        signal(spawner, Signal::STOP);
        daemon.kill();
        drop(starting);
        let waker = thread::spawn(move || {
            thread::sleep(STANDSTILL);
            signal(spawner, Signal::CONT);
        });
        daemon.serve();
        // At once, before an earlier daemon's spawner would be through with its work.
        let starting: Vec<_> = all.iter().map(|name| ask_to_start(&daemon, name)).collect();
        for name in &all {
            // One of the requests above may be on its way yet, so the command may come in the middle of its start.
            until("it runs", || {
                watch.assert_none();
                daemon.output(["start", name]);
                daemon.inspect(name)["state"] == "running"
            });
        }
        drop(starting);
        waker.join().unwrap();
        watch.assert_none();
        for name in &all {
            assert_eq!(
                daemon.sh_ok(name, "cat /root/note; wc -l < /data/numbers"),
                "kept\n20000",
                "{number}"
            );
            daemon.sh_ok(name, write);
        }
    }
    daemon.command(["stop"]).args(&all).output().unwrap();
    until("nothing is attached", || devices_beneath(&daemon.home()).is_empty());
    let mut images = Vec::new();
    for directory in ["sandboxes", "volumes"] {
        for entry in fs::read_dir(daemon.home().join(directory)).unwrap().flatten() {
            images.extend(Some(entry.path().join("disk.img")).filter(|path| path.exists()));
        }
    }
    assert_eq!(images.len(), DISKS + 1);
    for image in images {
        // A copy, so that it may be mended: every question that is asked on the way is a fault. We remove `lost+found`.
        let copy = image.with_extension("copy");
        fs::copy(&image, &copy).unwrap();
        let checked = text(&Command::new("e2fsck").args(["-fy"]).arg(&copy).output().unwrap().stdout);
        let mut faults = checked.lines().filter(|line| line.contains('?') && !line.contains("lost+found"));
        assert_eq!(faults.next(), None, "{checked}");
        assert!(checked.contains("Pass 5"), "{checked}");
        fs::remove_file(copy).unwrap();
    }
}

pub(crate) fn spawner_of(daemon: &Daemon) -> i32 {
    let note = fs::read_to_string(daemon.home().join("spawner.lock")).unwrap_or_default();
    note.split(' ').next().and_then(|pid| pid.parse().ok()).unwrap_or_default()
}

#[test]
fn a_spawner_that_outlives_its_daemon_is_gone_before_the_next_one_acts() {
    let mut daemon = Daemon::start();
    daemon.create("box", &[]);
    daemon.ok(["stop", "-t", "0s", "box"]);
    let spawner = spawner_of(&daemon);
    // It hangs, with work in its queue.
    signal(spawner, Signal::STOP);
    let _starting = ask_to_start(&daemon, "box");
    daemon.kill();
    daemon.serve();
    let stat = fs::read_to_string(format!("/proc/{spawner}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    assert!(matches!(state, None | Some("Z" | "X")), "{stat}");
    daemon.ok(["start", "box"]);
    let id = daemon.inspect("box")["id"].as_str().unwrap().to_owned();
    assert_eq!(guests_of(&id), 1);
}

/// Runs a command; what goes wrong must be worth another try. Returns whether it went well.
fn works_or_is_unavailable(daemon: &Daemon, arguments: &[&str]) -> bool {
    let output = daemon.command(arguments).arg("--json").output().unwrap();
    if output.status.success() {
        return true;
    }
    let told = text(&output.stderr);
    let error: Value = serde_json::from_str(&told).unwrap_or_default();
    let kind = error["error"]["kind"].as_str().or(error["kind"].as_str()).unwrap_or_default();
    assert_eq!(kind, "unavailable", "{arguments:?}: {told}{}\n{}", text(&output.stdout), daemon.log());
    false
}

#[test]
fn a_spawner_that_dies_under_load_is_replaced_and_nothing_is_left_half_done() {
    let daemon = Daemon::start();
    for name in ["source", "witness"] {
        daemon.create(name, &[]);
        daemon.sh_ok(name, "echo here > /root/note");
    }
    // Not every host can pause a running one to copy it.
    daemon.ok(["stop", "-t", "0s", "source"]);
    let (is_over, n_kills, n_made) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (daemon, is_over, n_made) = (&daemon, &is_over, &n_made);
            scope.spawn(move || {
                let mut number = 0;
                while !is_over.load(Ordering::Relaxed) {
                    number += 1;
                    let name = format!("box-{worker}-{number}");
                    let make = match worker % 2 {
                        0 => vec!["create", "--name", &name],
                        _ => vec!["fork", "source", "--name", &name],
                    };
                    if works_or_is_unavailable(daemon, &make) {
                        n_made.fetch_add(1, Ordering::Relaxed);
                        assert!(
                            works_or_is_unavailable(daemon, &["rm", "--force", &name]),
                            "{}",
                            daemon.log()
                        );
                    }
                }
            });
        }
        scope.spawn(|| {
            while n_kills.load(Ordering::Relaxed) < KILLS_OF_THE_SPAWNER {
                let (pid, n_before) = (spawner_of(&daemon), n_made.load(Ordering::Relaxed));
                if pid > 0 {
                    signal(pid, Signal::KILL);
                    n_kills.fetch_add(1, Ordering::Relaxed);
                }
                until("something is made again", || n_made.load(Ordering::Relaxed) > n_before + 2);
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
    // The same daemon all along, and its sandbox lived through it all.
    assert_eq!(daemon.sh_ok("witness", "cat /root/note"), "here");
    let rows = daemon.json(["ps", "--all", "--json"]);
    let mut names: Vec<_> =
        rows["sandboxes"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["source", "witness"], "{rows}");
    daemon.ok(["rm", "--force", "source", "witness"]);
    until("nothing is left", || daemon.leftovers().is_empty());
}

/// Processes that call themselves the guest of a sandbox.
fn guests_of(id: &str) -> usize {
    let title = format!("warren: {id} ");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let titles = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    titles.filter(|words| words.starts_with(title.as_bytes())).count()
}

#[test]
fn a_guest_whose_run_directory_is_gone_is_ended_by_the_next_daemon() {
    let mut daemon = Daemon::start();
    daemon.create("lost", &[]);
    daemon.create("found", &[]);
    // Calls itself by the other's name: a daemon that believed it would kill it.
    let id = daemon.inspect("lost")["id"].as_str().unwrap().to_owned();
    let pid = fs::read_to_string(daemon.run_directory().join(&id).join("pid")).unwrap();
    let title = fs::read(format!("/proc/{}/cmdline", pid.split(' ').next().unwrap())).unwrap();
    let title = text(&title).trim_end_matches('\0').to_owned();
    // An argument would stand behind the title and spoil it.
    let pretend = format!("exec -a \"{title}\" cat <> /tmp/pipe");
    daemon.sh_ok("found", &format!("mkfifo /tmp/pipe && nohup bash -c '{pretend}' > /dev/null 2>&1 &"));
    until("it pretends", || guests_of(&id) == 1 + 1);
    daemon.kill();
    fs::remove_dir_all(daemon.run_directory().join(&id)).unwrap();
    // As a removal that was cut short leaves it.
    let last = if id.ends_with('0') { '1' } else { '0' };
    let ghost = daemon.run_directory().join(format!("{}{last}", &id[..id.len() - 1]));
    fs::create_dir_all(&ghost).unwrap();
    daemon.serve();
    until("the lost one is told as stopped", || daemon.inspect("lost")["state"] == "stopped");
    daemon.ok(["start", "lost"]);
    // One that pretends, and one guest.
    until("one guest is left", || guests_of(&id) == 1 + 1);
    until("what the removal left is gone", || !ghost.exists());
    assert_eq!(daemon.sh_ok("found", "pgrep -c cat"), "1");
    daemon.ok(["rm", "--force", "lost", "found"]);
    until("nothing is left", || daemon.leftovers().is_empty() && guests_of(&id) == 0);
}

#[test]
fn a_removal_that_a_kill_cuts_short_is_finished_and_keeps_no_layer() {
    let mut daemon = Daemon::start();
    // Of a host that changed again and again.
    let layers: Vec<_> =
        (0..OLD_LAYERS).map(|number| daemon.home().join(format!("layers/host-{number}"))).collect();
    let mut n_cut = 0;
    for _try in 0..MAX_REMOVALS {
        for (number, layer) in layers.iter().enumerate() {
            fs::create_dir_all(layer).unwrap();
            let made = SystemTime::UNIX_EPOCH + Duration::from_secs(number as u64);
            fs::File::open(layer).unwrap().set_modified(made).unwrap();
        }
        daemon.create("box", &[]);
        let id = daemon.inspect("box")["id"].as_str().unwrap().to_owned();
        let run = daemon.run_directory().join(&id);
        // So many that it takes a while to remove them.
        for number in 0..FILES_TO_REMOVE {
            fs::write(run.join(format!("filler-{number}")), "").unwrap();
        }
        let removing = ask(&daemon, "DELETE /v1/sandboxes/box?force=true");
        while run.join("place.json").exists() {
            thread::yield_now();
        }
        daemon.kill();
        drop(removing);
        n_cut += usize::from(run.exists());
        daemon.serve();
        until("layers that nobody uses are gone", || !layers[0].exists());
        // It may be gone by now.
        daemon.output(["rm", "--force", "box"]);
        until("nothing is left", || daemon.leftovers().is_empty() && guests_of(&id) == 0);
        if n_cut >= ENOUGH_CUT {
            return;
        }
    }
    println!("{n_cut} of {MAX_REMOVALS} removals were cut short: this file system lists the record last");
}
