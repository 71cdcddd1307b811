//! A world for each test: a data directory, a daemon that is started by the first command, nothing left behind.

use std::{
    fmt, fs,
    io::{Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};
use serde_json::Value;

/// A test that waits longer than this has found a bug.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct World {
    place: tempfile::TempDir,
    /// Keeps the layer of image `host` for the worlds that come after this one.
    layer: Option<Arc<Self>>,
}

/// The result of a command.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl fmt::Debug for Finished {
    /// Long output is cut: a failed test should be readable.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        let shown: String = text.chars().take(2000).collect();
        write!(
            f,
            "exit {:?}, stderr {:?}, {} bytes on stdout: {shown:?}",
            self.code,
            self.stderr,
            self.stdout.len()
        )
    }
}

impl Finished {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let maker = layer_maker();
        let mut world = Self::bare();
        fs::DirBuilder::new().mode(0o700).recursive(true).create(world.layers()).unwrap();
        for layer in maker.host_layers() {
            let linked = Command::new("cp").arg("-al").arg(layer).arg(world.layers()).status().unwrap();
            assert!(linked.success());
        }
        world.layer = Some(maker);
        world
    }

    /// Without a data directory.
    pub(crate) fn bare() -> Self {
        Self { place: tempfile::tempdir().unwrap(), layer: None }
    }

    /// With a running sandbox called `dev`.
    pub(crate) fn with_dev() -> Self {
        let world = Self::new();
        world.run(&["create", "--name", "dev"]).expect(0);
        world
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.place.path().join("home")
    }

    fn layers(&self) -> PathBuf {
        self.home().join("layers")
    }

    /// The finished layers of image `host`.
    fn host_layers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.layers()).into_iter().flatten().flatten();
        let is_host = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("host-");
        entries.filter(is_host).map(|entry| entry.path()).collect()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home().join("run/warren.sock")
    }

    /// Lets another user have this world, and the binary in it.
    pub(crate) fn give_to(&self, uid: u32) {
        fs::create_dir_all(self.home()).unwrap();
        fs::set_permissions(self.place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for path in [self.place.path(), &self.home()] {
            std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
        }
        // By another process: a child that another test starts meanwhile would inherit our descriptor, and a file that
        // is open for writing cannot be run.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_warren")).arg(self.binary()).status();
        assert!(copied.unwrap().success());
    }

    fn binary(&self) -> PathBuf {
        self.place.path().join("warren")
    }

    /// A directory for the test's own files.
    pub(crate) fn files(&self) -> PathBuf {
        let files = self.place.path().join("files");
        fs::create_dir_all(&files).unwrap();
        files
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let own = self.binary();
        let program = if own.exists() { own } else { PathBuf::from(env!("CARGO_BIN_EXE_warren")) };
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.place.path())
            .env("TERM", "xterm")
            .env("WARREN_HOME", self.home())
            .env("WARREN_IDLE_EXIT", "5m")
            // Tests run side by side; the one that wants a port asks for a free one.
            .env("WARREN_LISTEN", "none")
            .env("WARREN_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        finish(self.command(args).spawn().unwrap())
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Finished {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        let writing = thread::spawn(move || stdin.write_all(&input).ok());
        let finished = finish(child);
        writing.join().unwrap();
        finished
    }

    /// Whether this host can hold a sandbox still while it runs. Says so where it cannot, since a test then proves
    /// less.
    pub(crate) fn can_pause(&self, sandbox: &str) -> bool {
        let paused = self.run(&["pause", sandbox]);
        if paused.code == Some(0) {
            self.run(&["resume", sandbox]).expect(0);
            return true;
        }
        assert!(paused.stderr.contains("pausing needs"), "{paused:?}");
        println!("skipped in part: {}", paused.stderr);
        false
    }

    /// The daemon that serves this world, if one does.
    pub(crate) fn daemon(&self) -> Option<Daemon> {
        let pid = fs::read_to_string(self.home().join("daemon.lock")).ok()?.lines().next()?.parse().ok()?;
        Daemon::find(pid)
    }

    /// How many commands run in the only sandbox.
    pub(crate) fn running_execs(&self) -> u64 {
        let listed = self.run(&["ps", "--json"]).expect(0).json();
        listed["sandboxes"][0]["runningExecs"].as_u64().unwrap()
    }

    pub(crate) fn stop_daemon(&self) {
        let Some(daemon) = self.daemon() else { return };
        daemon.signal(Signal::TERM);
        if !daemon.ends_within(PATIENCE) {
            daemon.signal(Signal::KILL);
        }
    }

    /// Ids of the sandboxes that have files here.
    fn sandboxes(&self) -> Vec<String> {
        let entries = fs::read_dir(self.home().join("sandboxes")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.home().join("daemon.log")).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Sandboxes outlive a daemon that a test killed; the next one finds and removes them.
        let ids = self.sandboxes();
        if !ids.is_empty() {
            let ids = ids.iter().map(String::as_str);
            self.run(&["rm", "-f"].into_iter().chain(ids).collect::<Vec<_>>());
        }
        self.stop_daemon();
    }
}

/// The world whose daemon has made the layer of image `host`: thousands of small files, which the others get by hard
/// links.
fn layer_maker() -> Arc<World> {
    static MAKER: Mutex<Weak<World>> = Mutex::new(Weak::new());
    let mut known = MAKER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(maker) = known.upgrade() {
        return maker;
    }
    let maker = Arc::new(World::bare());
    // A daemon makes it as soon as it is ready. Where none can be started, the tests that need one fail by themselves.
    if maker.run(&["ps"]).code == Some(0) {
        until("image host is prepared", || !maker.host_layers().is_empty());
    }
    maker.stop_daemon();
    *known = Arc::downgrade(&maker);
    maker
}

/// A process, held by a descriptor so that its number cannot come to mean another one.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) pid: i32,
    pidfd: OwnedFd,
}

impl Daemon {
    pub(crate) fn find(pid: i32) -> Option<Self> {
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let is_ours =
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.windows(5).any(|w| w == b"serve"));
        is_ours.then_some(Self { pid, pidfd })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::pidfd_send_signal(&self.pidfd, signal).ok();
    }

    pub(crate) fn ends_within(&self, time: Duration) -> bool {
        ends_within(&self.pidfd, time)
    }
}

pub(crate) fn ends_within(pidfd: &OwnedFd, time: Duration) -> bool {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timeout)).is_ok_and(|n| n > 0)
}

/// Waits for a command, with patience; reads what it says meanwhile.
#[track_caller]
pub(crate) fn finish(mut child: Child) -> Finished {
    fn reading(source: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            source.map(|mut source| source.read_to_end(&mut bytes).ok());
            bytes
        })
    }
    let (stdout, stderr) = (reading(child.stdout.take()), reading(child.stderr.take()));
    let pid = Pid::from_child(&child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let has_ended = ends_within(&pidfd, PATIENCE);
    if !has_ended {
        kill_process(pid, Signal::KILL).ok();
    }
    let code = child.wait().unwrap().code();
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    assert!(has_ended, "the command did not end: {} {stderr}", String::from_utf8_lossy(&stdout));
    Finished { code, stdout, stderr }
}

/// Waits for what has no event to listen to, such as what another process does to a directory.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "gave up waiting until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
