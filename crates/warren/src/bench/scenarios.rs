//! What is measured.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::Bytes;
use frontends::rest::v1;
use futures_util::{StreamExt, TryStreamExt, stream};
use sandbox::{Error, ErrorKind, ExecSpec, SandboxSpec};

use super::{
    peers::Peer,
    report::Report,
    samples::{Samples, millis},
};
use crate::{
    client::{Client, ClientOptions, StartMode},
    directories::Directories,
    error::CommandResult,
    output,
};

/// Sandboxes removed at the same time when a scenario ends.
const REMOVALS_AT_ONCE: usize = 16;
/// Idle sandboxes whose memory is measured.
const IDLE_SANDBOXES: usize = 40;
const FILE_PATH: &str = "/root/bench.bin";
const CHUNK_BYTES: usize = 1024 * 1024;

/// How much of each.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) runs: usize,
    pub(crate) burst: usize,
    /// Sandboxes alive while creation is measured again.
    pub(crate) crowd: usize,
    pub(crate) file_mib: usize,
}

/// A daemon of its own, in a directory that goes with it.
pub(crate) struct Bench {
    options: Options,
    directory: PathBuf,
    directories: Directories,
    pub(super) client: Client,
    pub(super) report: Report,
}

impl Bench {
    pub(crate) async fn start(options: &Options) -> CommandResult<Self> {
        let directory = std::env::temp_dir().join(format!("warren-bench-{}", std::process::id()));
        let directories = Directories { home: directory.join("home"), run: directory.join("run") };
        crate::directories::make_private(&directory)?;
        directories.make()?;
        let client_options =
            ClientOptions { directories: directories.clone(), namespace: None, start: StartMode::IfNeeded };
        let start = Instant::now();
        let client = Client::connect(client_options).await?;
        let mut report = machine();
        report.fact("daemon, start → ready", millis(start.elapsed()), "ms");
        Ok(Self { options: options.clone(), directory, directories, client, report })
    }

    /// Ends the daemon and takes its directory away.
    pub(crate) async fn stop(self) {
        if let Some(pid) = self.daemon_pid() {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
            let socket = self.directories.run.join("warren.sock");
            let deadline = Instant::now() + Duration::from_secs(10);
            while tokio::net::UnixStream::connect(&socket).await.is_ok() && Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        // Left-overs of a run that failed; the next sweep of a daemon would not see them.
        fs::remove_dir_all(&self.directory).ok();
    }

    pub(crate) async fn measure(&mut self) -> CommandResult<Report> {
        self.first_output().await?;
        self.warm_exec().await?;
        self.files().await?;
        self.burst().await?;
        self.idle_memory().await?;
        self.crowded().await?;
        self.daemon_memory();
        Ok(std::mem::take(&mut self.report))
    }

    /// For files that go with the bench.
    pub(super) fn scratch(&self) -> &Path {
        &self.directory
    }

    pub(super) fn home(&self) -> &Path {
        &self.directories.home
    }

    fn daemon_pid(&self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(self.client.daemon()?.pid?)
    }

    /// From nothing to the first command's output, turn by turn with the kernel's floor and the peers.
    async fn first_output(&mut self) -> CommandResult<()> {
        let scratch = self.directory.join("peers");
        fs::create_dir_all(&scratch)?;
        let peers = Peer::installed(&scratch);
        let floor = Floor::new(&scratch)?;
        let mut bare = Samples::default();
        let mut ours = Samples::default();
        let mut whole = Samples::default();
        let mut others = vec![Samples::default(); peers.len()];
        for run in 0..=self.options.runs {
            let is_warm_up = run == 0;
            let floor_took = floor.run()?;
            let (created, removed) = self.create_echo_remove().await?;
            let mut took = Vec::with_capacity(peers.len());
            for peer in &peers {
                took.push(peer.run().map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?);
            }
            if !is_warm_up {
                bare.push(floor_took);
                ours.push(created);
                whole.push(removed);
                for (samples, took) in others.iter_mut().zip(took) {
                    samples.push(took);
                }
            }
            progress("create → first output", run, self.options.runs);
        }
        let mut who = vec![
            ("kernel floor".to_owned(), bare),
            ("warren".to_owned(), ours),
            ("warren, with removal".to_owned(), whole),
        ];
        who.extend(peers.iter().map(|peer| peer.name.to_owned()).zip(others));
        self.report.compare("create → first output", who);
        Ok(())
    }

    async fn create_echo_remove(&self) -> CommandResult<(Duration, Duration)> {
        let start = Instant::now();
        let sandbox = self.client.create(&SandboxSpec::default()).await?;
        let result = self.client.exec_and_wait(sandbox.id.as_str(), &echo()).await?;
        let created = start.elapsed();
        expect_success(&result)?;
        self.client.remove(sandbox.id.as_str(), true).await?;
        Ok((created, start.elapsed()))
    }

    /// A command in a sandbox that is there, beside the same command with no sandbox.
    async fn warm_exec(&mut self) -> CommandResult<()> {
        let sandbox = self.client.create(&SandboxSpec::default()).await?;
        let (mut bare, mut ours) = (Samples::default(), Samples::default());
        let spec = ExecSpec::argv(["/bin/true"]);
        for run in 0..=self.options.runs * 4 {
            let start = Instant::now();
            std::process::Command::new("/bin/true").status()?;
            let without = start.elapsed();
            let start = Instant::now();
            let result = self.client.exec_and_wait(sandbox.id.as_str(), &spec).await?;
            let with = start.elapsed();
            expect_success(&result)?;
            if run > 0 {
                bare.push(without);
                ours.push(with);
            }
            progress("exec", run, self.options.runs * 4);
        }
        self.report.compare("exec true", vec![("fork+exec".to_owned(), bare), ("warren".to_owned(), ours)]);
        self.client.remove(sandbox.id.as_str(), true).await
    }

    async fn files(&mut self) -> CommandResult<()> {
        let disk_mib = self.options.file_mib as f64;
        let sandbox = self.client.create(&SandboxSpec::default()).await?;
        let chunk = Bytes::from(vec![0x5a; CHUNK_BYTES]);
        let chunks = self.options.file_mib * (1024 * 1024 / CHUNK_BYTES);
        let (mut written, mut read) = (f64::MAX, f64::MAX);
        for run in 0..3 {
            let body = stream::iter((0..chunks).map({
                let chunk = chunk.clone();
                move |_| Ok::<_, io::Error>(chunk.clone())
            }));
            let start = Instant::now();
            self.client.write_file(sandbox.id.as_str(), FILE_PATH, Some(v1::Octal(0o644)), body).await?;
            written = written.min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let mut bytes = self.client.read_file(sandbox.id.as_str().into(), FILE_PATH).await?;
            let mut total = 0;
            while let Some(part) = bytes.try_next().await? {
                total += part.len();
            }
            read = read.min(start.elapsed().as_secs_f64());
            if total != chunks * CHUNK_BYTES {
                return Err(Error::new(ErrorKind::Internal, format!("{total} bytes came back")).into());
            }
            progress("files", run, 2);
        }
        self.report.fact("file in, best of 3", disk_mib / written, "MiB/s");
        self.report.fact("file out, best of 3", disk_mib / read, "MiB/s");
        self.client.remove(sandbox.id.as_str(), true).await
    }

    /// Many at once: each made, its first command run.
    async fn burst(&mut self) -> CommandResult<()> {
        let start = Instant::now();
        let tasks: Vec<_> = (0..self.options.burst)
            .map(|_| {
                let client = self.client.clone();
                tokio::spawn(async move {
                    let start = Instant::now();
                    let sandbox = client.create(&SandboxSpec::default()).await?;
                    expect_success(&client.exec_and_wait(sandbox.id.as_str(), &echo()).await?)?;
                    CommandResult::Ok((sandbox.id.to_string(), start.elapsed()))
                })
            })
            .collect();
        let (mut ids, mut each) = (Vec::new(), Samples::default());
        for task in tasks {
            let (id, took) = task.await.map_err(io::Error::other)??;
            ids.push(id);
            each.push(took);
        }
        let what = format!("burst of {}: create → first output", self.options.burst);
        self.report.fact(format!("{what}, all"), millis(start.elapsed()), "ms");
        self.report.compare(&what, vec![("warren".to_owned(), each)]);
        self.remove_all(ids).await
    }

    async fn idle_memory(&mut self) -> CommandResult<()> {
        let before = available_memory();
        let ids = self.create_many(IDLE_SANDBOXES).await?;
        let after = available_memory();
        let own: Vec<u64> = ids.iter().filter_map(|id| self.guest_private_bytes(id)).collect();
        if !own.is_empty() {
            let mean = own.iter().sum::<u64>() as f64 / own.len() as f64;
            self.report.fact("idle sandbox, its guest's own memory", mean / 1024.0, "KiB");
        }
        if let (Some(before), Some(after)) = (before, after) {
            let each = before.saturating_sub(after) as f64 / ids.len() as f64;
            self.report.fact("idle sandbox, all the host gave for it", each / 1024.0, "KiB");
        }
        self.remove_all(ids).await
    }

    /// Creation again with many alive, turn by turn compared with creation alone before.
    async fn crowded(&mut self) -> CommandResult<()> {
        let alone = self.create_again().await?;
        let ids = self.create_many(self.options.crowd).await?;
        let crowded = self.create_again().await?;
        let names = ["alone".to_owned(), format!("{} alive", self.options.crowd)];
        self.report
            .compare("create → first output, by company", names.into_iter().zip([alone, crowded]).collect());
        self.remove_all(ids).await
    }

    async fn create_again(&self) -> CommandResult<Samples> {
        let mut samples = Samples::default();
        for _ in 0..self.options.runs {
            samples.push(self.create_echo_remove().await?.0);
        }
        Ok(samples)
    }

    async fn create_many(&self, n: usize) -> CommandResult<Vec<String>> {
        let mut ids = Vec::with_capacity(n);
        for made in 0..n {
            ids.push(self.client.create(&SandboxSpec::default()).await?.id.to_string());
            progress("creating", made + 1, n);
        }
        Ok(ids)
    }

    async fn remove_all(&self, ids: Vec<String>) -> CommandResult<()> {
        let client = &self.client;
        stream::iter(ids)
            .map(|id| async move { client.remove(&id, true).await })
            .buffer_unordered(REMOVALS_AT_ONCE)
            .try_collect::<Vec<()>>()
            .await
            .map(drop)
    }

    pub(super) fn guest_private_bytes(&self, id: &str) -> Option<u64> {
        let pid = fs::read_to_string(self.directories.run.join(id).join("pid")).ok()?;
        let pid: i32 = pid.split_whitespace().next()?.parse().ok()?;
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        Some(kib_field(&rollup, "Private_Clean:")? + kib_field(&rollup, "Private_Dirty:")?)
    }

    pub(super) fn daemon_bytes(&self) -> Option<u64> {
        let pid = self.daemon_pid()?;
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
        kib_field(&status, "VmRSS:")
    }

    fn daemon_memory(&mut self) {
        if let Some(bytes) = self.daemon_bytes() {
            self.report.fact("daemon, resident at the end", bytes as f64 / 1024.0 / 1024.0, "MiB");
        }
    }
}

fn echo() -> ExecSpec {
    ExecSpec::shell("echo ready")
}

pub(super) fn expect_success(result: &v1::ExecResult) -> CommandResult<()> {
    match result.exec.exit_code {
        Some(0) => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Internal,
            format!("a command of the bench did not work: {:?}", result.exec.outcome),
        )
        .into()),
    }
}

pub(super) fn machine() -> Report {
    Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        rootless: !rustix::process::geteuid().is_root(),
        ..Report::default()
    }
}

fn available_memory() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// A line such as `VmRSS:   1234 kB`, in bytes.
pub(super) fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

pub(super) fn progress(what: &str, done: usize, of: usize) {
    output::progress(&format!("{what} {done}/{of}"));
}

/// The least that the kernel asks for such a place: the same namespaces, an overlay, an exec, no daemon.
struct Floor {
    scratch: PathBuf,
    runs: std::cell::Cell<u32>,
}

impl Floor {
    fn new(scratch: &Path) -> CommandResult<Self> {
        let scratch = scratch.join("floor");
        fs::create_dir_all(&scratch)?;
        Ok(Self { scratch, runs: std::cell::Cell::new(0) })
    }

    fn run(&self) -> CommandResult<Duration> {
        self.runs.set(self.runs.get() + 1);
        let scratch = self.scratch.join(self.runs.get().to_string());
        fs::create_dir(&scratch)?;
        // `/usr` as the whole root: its `bin` and `lib` are then where programs look for them.
        let lower = [PathBuf::from("/usr")];
        let arguments = [OsStr::new("-c"), OsStr::new("exit 0")];
        jail::run_bare(Path::new("/bin/sh"), &arguments, &lower, &scratch).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("the kernel floor could not be measured: {error}"))
                .into()
        })
    }
}
