//! The life of every sandbox: it is created, runs a command, receives and returns files, alone and among many.

use std::{
    cell::Cell,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future, stream};
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    daemon::{Daemon, kib_field, machine},
    peers::Peer,
    progress,
    report::Report,
    samples::{Samples, millis},
};

/// Sandboxes removed at the same time when a scenario ends.
const REMOVALS_AT_ONCE: usize = 16;
/// Idle sandboxes whose memory is measured.
const IDLE_SANDBOXES: usize = 100;
/// The fields of `/proc/meminfo` for what the kernel needs for itself: not for files or programs, which come and go
/// with other work.
const KERNEL_FIELDS: [&str; 4] = ["SUnreclaim:", "KernelStack:", "PageTables:", "Percpu:"];
/// A tmpfs that every Linux has: the floor measures the kernel, not a disk.
const IN_MEMORY: &str = "/dev/shm";
/// Places that wait.
const POOL: usize = 2;
/// Everyone begins after the same rest: a processor that was busy a moment ago is faster than one that slept, and what
/// the one before left to clean up is nobody else's. Long enough to make a place that waits.
const REST: Duration = Duration::from_millis(60);
const FILE_PATH: &str = "/root/bench.bin";
const CHUNK_BYTES: usize = 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each thing is measured
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Sandboxes created at once
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    burst: u32,
    /// Sandboxes alive while creation is measured again
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    alive: u32,
    /// Size of the file that goes in and out, in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=8192))]
    file_mib: u32,
}

pub(crate) async fn measure(program: &Path, options: &Options) -> Result<Report> {
    let start = Instant::now();
    let daemon = Daemon::start(program, &[]).await?;
    let mut report = machine();
    report.fact("daemon, start → ready", millis(start.elapsed()), "ms");
    let pooled = Daemon::start_with_pool(program, &[], POOL).await?;
    let runs = options.runs as usize;
    let mut spine = Spine { runs, options, program, daemon: &daemon, pooled: &pooled, report };
    let measured = spine.measure().await;
    let report = spine.report;
    daemon.stop().await;
    pooled.stop().await;
    measured.map(|()| report)
}

async fn rest() {
    tokio::time::sleep(REST).await;
}

/// Makes a sandbox that runs a command.
async fn create_and_echo(daemon: &Daemon) -> Result<String> {
    let (sandbox, printed) = daemon.run(&["/bin/sh", "-c", "echo ready"]).await?;
    ensure!(printed == "ready\n", "the first command printed {printed:?}");
    Ok(sandbox)
}

struct Spine<'a> {
    runs: usize,
    options: &'a Options,
    program: &'a Path,
    daemon: &'a Daemon,
    /// One where places wait.
    pooled: &'a Daemon,
    report: Report,
}

impl Spine<'_> {
    async fn measure(&mut self) -> Result<()> {
        self.first_output().await?;
        self.warm_exec().await?;
        self.files().await?;
        self.burst().await?;
        self.idle_memory().await?;
        self.crowded().await?;
        if let Some(bytes) = self.daemon.bytes() {
            self.report.fact("daemon, resident at the end", bytes as f64 / 1024.0 / 1024.0, "MiB");
        }
        Ok(())
    }

    /// From nothing to the first command's output, in turns with the kernel's floor and the peers.
    async fn first_output(&mut self) -> Result<()> {
        let scratch = self.daemon.scratch().join("peers");
        fs::create_dir_all(&scratch)?;
        let peers = Peer::installed(&scratch);
        let floor = Floor::new(&scratch)?;
        let mut bare = Samples::default();
        let mut ours = Samples::default();
        let mut whole = Samples::default();
        let mut in_two = Samples::default();
        let mut from_pool = Samples::default();
        let mut others = vec![Samples::default(); peers.len()];
        for run in 0..=self.runs {
            let is_warm_up = run == 0;
            rest().await;
            let floor_took = floor.run()?;
            rest().await;
            let (created, removed) = create_echo_remove(self.daemon).await?;
            rest().await;
            let two_took = self.in_two_requests().await?;
            rest().await;
            let (pool_took, _removed) = create_echo_remove(self.pooled).await?;
            let mut took = Vec::with_capacity(peers.len());
            for peer in &peers {
                rest().await;
                took.push(peer.run()?);
            }
            if !is_warm_up {
                bare.push(floor_took);
                ours.push(created);
                whole.push(removed);
                in_two.push(two_took);
                from_pool.push(pool_took);
                for (samples, took) in others.iter_mut().zip(took) {
                    samples.push(took);
                }
            }
            progress("create → first output", run, self.runs);
        }
        let mut who = vec![
            ("kernel floor".to_owned(), bare),
            ("warren".to_owned(), ours),
            ("warren, with removal".to_owned(), whole),
            ("warren, create and exec as two requests".to_owned(), in_two),
            ("warren, from a pool".to_owned(), from_pool),
        ];
        who.extend(peers.iter().map(|peer| peer.name.to_owned()).zip(others));
        self.report.compare("create → first output", who);
        Ok(())
    }

    async fn in_two_requests(&self) -> Result<Duration> {
        let start = Instant::now();
        let sandbox = self.daemon.create(json!({})).await?;
        self.daemon.shell(&sandbox, "echo ready").await?;
        let took = start.elapsed();
        self.daemon.remove(&sandbox).await?;
        Ok(took)
    }

    /// A command in an existing sandbox, compared with the same command without a sandbox.
    async fn warm_exec(&mut self) -> Result<()> {
        let sandbox = self.daemon.create(json!({})).await?;
        let (mut bare, mut ours) = (Samples::default(), Samples::default());
        for run in 0..=self.runs * 4 {
            let start = Instant::now();
            Command::new("/bin/true").status()?;
            let without = start.elapsed();
            let start = Instant::now();
            self.daemon.exec(&sandbox, &["/bin/true"]).await?;
            let with = start.elapsed();
            if run > 0 {
                bare.push(without);
                ours.push(with);
            }
            progress("exec", run, self.runs * 4);
        }
        self.report.compare("exec true", vec![("fork+exec".to_owned(), bare), ("warren".to_owned(), ours)]);
        self.daemon.remove(&sandbox).await
    }

    async fn files(&mut self) -> Result<()> {
        let disk_mib = f64::from(self.options.file_mib);
        let sandbox = self.daemon.create(json!({})).await?;
        let route = format!("/sandboxes/{sandbox}/files/content?path={FILE_PATH}");
        let chunk = Bytes::from(vec![0x5a; CHUNK_BYTES]);
        let chunks = self.options.file_mib as usize * (1024 * 1024 / CHUNK_BYTES);
        let (mut written, mut read) = (f64::MAX, f64::MAX);
        for run in 0..3 {
            let start = Instant::now();
            self.daemon.send(Method::PUT, &route, std::iter::repeat_n(chunk.clone(), chunks)).await?;
            written = written.min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let mut body = self.daemon.read(&route).await?;
            let mut total = 0;
            while let Some(frame) = body.frame().await {
                total += frame?.data_ref().map_or(0, Bytes::len);
            }
            read = read.min(start.elapsed().as_secs_f64());
            ensure!(total == chunks * CHUNK_BYTES, "{total} bytes came back");
            progress("files", run, 2);
        }
        self.report.fact("file in, best of 3", disk_mib / written, "MiB/s");
        self.report.fact("file out, best of 3", disk_mib / read, "MiB/s");
        self.daemon.remove(&sandbox).await
    }

    /// Many at once: each is created and runs its first command.
    async fn burst(&mut self) -> Result<()> {
        let start = Instant::now();
        let each_one = (0..self.options.burst).map(async |_| {
            let start = Instant::now();
            let sandbox = create_and_echo(self.daemon).await?;
            anyhow::Ok((sandbox, start.elapsed()))
        });
        let made = future::try_join_all(each_one).await?;
        let what = format!("burst of {}: create → first output", self.options.burst);
        self.report.fact(format!("{what}, all"), millis(start.elapsed()), "ms");
        let (ids, times): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        self.report.compare(&what, vec![("warren".to_owned(), Samples::from(times))]);
        self.remove_all(ids).await
    }

    async fn idle_memory(&mut self) -> Result<()> {
        let before = kernel_memory();
        let ids = self.create_many(IDLE_SANDBOXES).await?;
        let after = kernel_memory();
        let own: Vec<u64> = ids.iter().filter_map(|id| self.daemon.guest_private_bytes(id)).collect();
        if !own.is_empty() {
            let mean = own.iter().sum::<u64>() as f64 / own.len() as f64;
            self.report.fact("idle sandbox, its guest's own memory", mean / 1024.0, "KiB");
        }
        self.kernel_memory_of_each(before, after, ids.len());
        self.remove_all(ids).await
    }

    fn kernel_memory_of_each(&mut self, before: Option<u64>, after: Option<u64>, n: usize) {
        let what = "idle sandbox, the kernel's own memory for it";
        let Some((before, after)) = before.zip(after) else {
            return self
                .report
                .leave_out(format!("{what}: /proc/meminfo does not say what the kernel uses."));
        };
        match after.checked_sub(before) {
            Some(taken) => self.report.fact(what, taken as f64 / n as f64 / 1024.0, "KiB"),
            None => self.report.leave_out(format!(
                "{what}: while {n} sandboxes were made, the kernel as a whole gave back {} KiB. Other work on the machine \
                 ended meanwhile; measure again when it is quiet.",
                (before - after) / 1024
            )),
        }
    }

    /// Creation with many sandboxes alive, in turns with creation by another daemon that has none.
    async fn crowded(&mut self) -> Result<()> {
        let ids = self.create_many(self.options.alive as usize).await?;
        let lone = Daemon::start(self.program, &[]).await?;
        let measured = self.in_turns(&lone).await;
        lone.stop().await;
        let names = ["alone".to_owned(), format!("{} alive", self.options.alive)];
        self.report.compare("create → first output, by company", names.into_iter().zip(measured?).collect());
        self.remove_all(ids).await
    }

    async fn in_turns(&self, lone: &Daemon) -> Result<[Samples; 2]> {
        let (mut alone, mut crowded) = (Samples::default(), Samples::default());
        for run in 0..=self.runs {
            rest().await;
            let (without, _removed) = create_echo_remove(lone).await?;
            rest().await;
            let (among, _removed) = create_echo_remove(self.daemon).await?;
            if run > 0 {
                alone.push(without);
                crowded.push(among);
            }
            progress("create → first output, by company", run, self.runs);
        }
        Ok([alone, crowded])
    }

    async fn create_many(&self, n: usize) -> Result<Vec<String>> {
        let mut ids = Vec::with_capacity(n);
        for made in 0..n {
            ids.push(self.daemon.create(json!({})).await?);
            progress("creating", made + 1, n);
        }
        Ok(ids)
    }

    async fn remove_all(&self, ids: Vec<String>) -> Result<()> {
        stream::iter(ids)
            .map(async |id| self.daemon.remove(&id).await)
            .buffer_unordered(REMOVALS_AT_ONCE)
            .try_collect()
            .await
    }
}

async fn create_echo_remove(daemon: &Daemon) -> Result<(Duration, Duration)> {
    let start = Instant::now();
    let sandbox = create_and_echo(daemon).await?;
    let created = start.elapsed();
    daemon.remove(&sandbox).await?;
    Ok((created, start.elapsed()))
}

fn kernel_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    KERNEL_FIELDS.iter().map(|field| kib_field(&text, field)).sum()
}

/// The kernel's minimum for a sandbox: the same namespaces, an overlay, an exec, no daemon.
struct Floor {
    scratch: PathBuf,
    /// Removes it.
    _in_memory: Option<TempDir>,
    runs: Cell<u32>,
}

impl Floor {
    /// On a tmpfs, or else in `scratch`.
    fn new(scratch: &Path) -> Result<Self> {
        let in_memory = tempfile::Builder::new().prefix("warren-bench-").tempdir_in(IN_MEMORY).ok();
        let scratch = in_memory.as_ref().map_or(scratch, TempDir::path).join("floor");
        fs::create_dir_all(&scratch)?;
        Ok(Self { scratch, _in_memory: in_memory, runs: Cell::new(0) })
    }

    fn run(&self) -> Result<Duration> {
        self.runs.set(self.runs.get() + 1);
        let scratch = self.scratch.join(self.runs.get().to_string());
        fs::create_dir(&scratch)?;
        // `/usr` as the whole root: its `bin` and `lib` are then where programs look for them.
        let lower = [PathBuf::from("/usr")];
        let arguments = [OsStr::new("-c"), OsStr::new("exit 0")];
        jail::run_bare(Path::new("/bin/sh"), &arguments, &lower, &scratch)
            .context("the kernel floor could not be measured")
    }
}
