//! What storage costs: images of many layers, unpacking, pulls, snapshots, forks.

mod archive;
mod registry;

use std::{
    fs::{self, File},
    io,
    os::fd::AsFd as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use frontends::rest::v1;
use futures_util::stream;
use sandbox::{Error, ErrorKind, ExecSpec, ImageRef, SandboxSpec};

use super::{
    Options,
    report::Report,
    samples::{Samples, millis},
    scenarios::{Bench, progress},
};
use crate::error::CommandResult;

const MIB: u64 = 1024 * 1024;
/// The first of a kind fill caches.
const WARM_UPS: usize = 3;
/// Unpacking takes seconds, so it is measured less often.
const UNPACKS: usize = 3;

/// How long space may take to come back.
const MAX_LOOKS: usize = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// How much of each.
#[derive(Debug, Clone)]
pub(crate) struct StorageOptions {
    pub(crate) runs: usize,
    pub(crate) layers: usize,
    pub(crate) forks: usize,
    /// What a sandbox changed before it is forked.
    pub(crate) changed_mib: usize,
    pub(crate) image_mib: usize,
}

/// Measures storage, on a daemon and in directories of its own.
pub(crate) async fn measure(options: &StorageOptions) -> CommandResult<Report> {
    let spine = Options { runs: options.runs, burst: 1, crowd: 1, file_mib: 1 };
    let mut bench = StorageBench { bench: Bench::start(&spine).await?, options: options.clone() };
    let measured = bench.measure().await;
    let report = std::mem::take(&mut bench.bench.report);
    bench.bench.stop().await;
    measured.map(|()| report)
}

struct StorageBench {
    bench: Bench,
    options: StorageOptions,
}

impl StorageBench {
    async fn measure(&mut self) -> CommandResult<()> {
        self.layers().await?;
        self.unpack().await?;
        self.pulls().await?;
        self.snapshots().await?;
        self.forks().await
    }

    /// From nothing to the first byte of a file in the lowest layer.
    async fn layers(&mut self) -> CommandResult<()> {
        let counts = [1, self.options.layers];
        let image =
            |count: usize| format!("localhost/bench:{count}").parse::<ImageRef>().map_err(Error::from);
        let images = counts.iter().map(|count| image(*count)).collect::<Result<Vec<_>, _>>()?;
        for (image, count) in images.iter().zip(counts) {
            let archive = archive::layered(image.as_str(), count).map_err(failed("make an archive"))?;
            let whole = stream::iter([Ok::<_, io::Error>(Bytes::from(archive))]);
            self.bench.client.load_images(None, whole).await?;
        }
        let mut samples = [Samples::default(), Samples::default()];
        for run in 0..WARM_UPS + self.options.runs {
            for (image, samples) in images.iter().zip(&mut samples) {
                let took = self.first_byte(image).await?;
                if run >= WARM_UPS {
                    samples.push(took);
                }
            }
            progress("layers", run, WARM_UPS + self.options.runs);
        }
        let names = counts.map(|count| format!("image of {count} layers"));
        self.bench.report.compare("create → first file read", names.into_iter().zip(samples).collect());
        Ok(())
    }

    async fn first_byte(&self, image: &ImageRef) -> CommandResult<Duration> {
        let spec = SandboxSpec { image: image.clone(), ..SandboxSpec::default() };
        let start = Instant::now();
        let sandbox = self.bench.client.create(&spec).await?.id.to_string();
        self.bench.client.stat(sandbox.as_str(), &format!("/{}", archive::path_in(0))).await?;
        let took = start.elapsed();
        self.bench.client.remove(&sandbox, true).await?;
        Ok(took)
    }

    /// A large layer, by us and by tar, onto the same disk, turn by turn.
    async fn unpack(&mut self) -> CommandResult<()> {
        let (place, wanted) = (self.bench.scratch().to_owned(), self.options.image_mib as u64 * MIB);
        progress("unpack", 0, UNPACKS);
        let measured = tokio::task::spawn_blocking(move || unpack_by_turns(&place, wanted)).await;
        let (bytes, tar, ours) = measured
            .map_err(|error| Error::new(ErrorKind::Internal, "unpacking ended early").with_source(error))?
            .map_err(failed("unpack"))?;
        self.bench.report.fact("large layer, its files", bytes as f64 / MIB as f64, "MiB");
        let who = vec![("tar -xzf".to_owned(), tar), ("warren".to_owned(), ours)];
        self.bench.report.compare("unpack a large layer", who);
        Ok(())
    }

    /// How long a small running sandbox stands still, and how long the whole takes.
    async fn snapshots(&mut self) -> CommandResult<()> {
        let sandbox = self.bench.client.create(&SandboxSpec::default()).await?.id.to_string();
        self.run(
            &sandbox,
            "mkdir -p /root/work && cd /root/work && for i in 1 2 3 4 5 6 7 8 9 10; do echo $i > $i; done",
        )
        .await?;
        let (mut held, mut whole) = (Samples::default(), Samples::default());
        for run in 0..WARM_UPS + self.options.runs {
            let request = v1::SnapshotRequest {
                sandbox: sandbox.clone(),
                namespace: None,
                name: None,
                labels: Default::default(),
                replace: false,
            };
            let start = Instant::now();
            let snapshot = self.bench.client.create_snapshot(&request).await?;
            let took = start.elapsed();
            if run >= WARM_UPS {
                whole.push(took);
                held.push(Duration::from_secs_f64(snapshot.held_ms.unwrap_or_default() / 1000.0));
            }
            self.bench.client.remove_snapshot(&snapshot.digest, false).await?;
            progress("snapshots", run, WARM_UPS + self.options.runs);
        }
        self.bench.client.remove(&sandbox, true).await?;
        let who = vec![("held still".to_owned(), held), ("whole".to_owned(), whole)];
        self.bench.report.compare("snapshot of a small running sandbox", who);
        Ok(())
    }

    /// One, ten, … forks at a time of a sandbox that changed much: time and bytes.
    async fn forks(&mut self) -> CommandResult<()> {
        let changed = self.options.changed_mib;
        let sandbox = self.bench.client.create(&SandboxSpec::default()).await?.id.to_string();
        self.run(&sandbox, &format!("head -c {changed}M /dev/urandom > /root/changed && sync")).await?;
        let mut count = 1;
        while count <= self.options.forks {
            let before = self.disk_bytes()?;
            let request = v1::ForkSandboxRequest { count: Some(count), ..Default::default() };
            let start = Instant::now();
            let forks = self.bench.client.fork(&sandbox, &request).await?;
            let took = start.elapsed();
            let grown = self.disk_bytes()?.saturating_sub(before);
            let what = format!("{count} forks with {changed} MiB changed");
            self.bench.report.fact(format!("{what}, time"), millis(took), "ms");
            self.bench.report.fact(format!("{what}, disk"), grown as f64 / MIB as f64, "MiB");
            for fork in forks {
                self.bench.client.remove(fork.id.as_str(), true).await?;
            }
            self.space_is_back(before).await?;
            progress("forks", count, self.options.forks);
            count *= 10;
        }
        self.bench.client.remove(&sandbox, true).await?;
        Ok(())
    }

    /// What forks shared is removed behind the answer to the last one's removal; the next measurement begins after it.
    async fn space_is_back(&self, before: u64) -> CommandResult<()> {
        for _look in 0..MAX_LOOKS {
            if self.disk_bytes()? < before + MIB {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Ok(())
    }

    async fn run(&self, sandbox: &str, script: &str) -> CommandResult<()> {
        let result = self.bench.client.exec_and_wait(sandbox, &ExecSpec::shell(script)).await?;
        super::scenarios::expect_success(&result)
    }

    /// What the daemon's files take on disk, as `du` counts.
    fn disk_bytes(&self) -> CommandResult<u64> {
        let home = self.bench.home();
        let output =
            Command::new("du").args(["-s", "--block-size=1"]).arg(home).stderr(Stdio::null()).output();
        let output = output.map_err(failed("run du"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let bytes = text.split_whitespace().next().and_then(|word| word.parse().ok());
        bytes.ok_or_else(|| Error::new(ErrorKind::Internal, "du said nothing").into())
    }
}

fn unpack_by_turns(place: &Path, wanted: u64) -> io::Result<(u64, Samples, Samples)> {
    let layer = place.join("layer.tar.gz");
    let bytes = archive::large(&layer, wanted)?;
    let (mut tar, mut ours) = (Samples::default(), Samples::default());
    for _turn in 0..UNPACKS {
        tar.push(timed_in(&place.join("by-tar"), |into| {
            let status = Command::new("tar").arg("-xzf").arg(&layer).arg("-C").arg(into).status()?;
            if status.success() { Ok(()) } else { Err(io::Error::other("tar failed")) }
        })?);
        ours.push(timed_in(&place.join("by-us"), |into| {
            let directory = File::open(into)?;
            let options = images::UnpackOptions::default();
            images::unpack_layer(File::open(&layer)?, directory.as_fd(), &options)
                .map(drop)
                .map_err(io::Error::other)
        })?);
    }
    fs::remove_file(layer)?;
    Ok((bytes, tar, ours))
}

/// Does it in an empty directory, which goes afterwards.
fn timed_in(directory: &Path, work: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<Duration> {
    fs::create_dir(directory)?;
    // What others wrote is on the disk before the clock runs.
    rustix::fs::sync();
    let start = Instant::now();
    work(directory)?;
    let took = start.elapsed();
    fs::remove_dir_all(directory)?;
    Ok(took)
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::new(ErrorKind::Unavailable, format!("could not {what}: {error}")).with_source(error)
}
