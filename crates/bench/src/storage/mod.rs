//! The cost of storage: images of many layers, unpacking, pulls, snapshots, forks.

mod archive;
mod registry;

use std::{
    fs::{self, File},
    os::fd::AsFd as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use hyper::Method;
use serde_json::json;

use crate::{
    daemon::{Daemon, machine, text},
    progress,
    report::Report,
    samples::{Samples, millis},
};

const MIB: u64 = 1024 * 1024;
/// The first runs of a kind fill caches.
const WARM_UPS: usize = 3;
/// Unpacking takes seconds, so it is measured less often.
const UNPACKS: usize = 3;

/// How long freed space may take to appear.
const MAX_LOOKS: usize = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each thing is measured
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Layers of the image that is compared with one of a single layer
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=127))]
    layers: u32,
    /// Forks at once, at the most
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=256))]
    forks: u32,
    /// Size of the change that a sandbox makes before it is forked, in MiB
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
    changed_mib: u32,
    /// Size of the layer that is unpacked, in MiB
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=4096))]
    image_mib: u32,
}

pub(crate) async fn measure(program: &Path, options: &Options) -> Result<Report> {
    let daemon = Daemon::start(program, &[]).await?;
    let mut storage = Storage { runs: options.runs as usize, options, daemon: &daemon, report: machine() };
    let measured = storage.measure().await;
    let report = storage.report;
    daemon.stop().await;
    measured.map(|()| report)
}

struct Storage<'a> {
    runs: usize,
    options: &'a Options,
    daemon: &'a Daemon,
    report: Report,
}

impl Storage<'_> {
    async fn measure(&mut self) -> Result<()> {
        self.layers().await?;
        self.unpack().await?;
        self.pulls().await?;
        self.snapshots().await?;
        self.forks().await
    }

    /// From nothing to the first byte of a file in the lowest layer.
    async fn layers(&mut self) -> Result<()> {
        let counts = [1, self.options.layers as usize];
        let images = counts.map(|count| format!("localhost/bench:{count}"));
        for (image, count) in images.iter().zip(counts) {
            let archive = Bytes::from(archive::layered(image, count)?);
            self.daemon.send(Method::POST, "/images/load", [archive].into_iter()).await?;
        }
        let mut samples = [Samples::default(), Samples::default()];
        for run in 0..WARM_UPS + self.runs {
            for (image, samples) in images.iter().zip(&mut samples) {
                let took = self.first_byte(image).await?;
                if run >= WARM_UPS {
                    samples.push(took);
                }
            }
            progress("layers", run, WARM_UPS + self.runs);
        }
        let names = counts.map(|count| format!("image of {count} layers"));
        self.report.compare("create → first file read", names.into_iter().zip(samples).collect());
        Ok(())
    }

    async fn first_byte(&self, image: &str) -> Result<Duration> {
        let start = Instant::now();
        let sandbox = self.daemon.create(json!({ "image": image })).await?;
        let route = format!("/sandboxes/{sandbox}/files/stat?path=/{}", archive::path_in(0));
        self.daemon.get(&route).await?;
        let took = start.elapsed();
        self.daemon.remove(&sandbox).await?;
        Ok(took)
    }

    /// A large layer, unpacked by us and by tar onto the same disk, in turns.
    async fn unpack(&mut self) -> Result<()> {
        progress("unpack", 0, UNPACKS);
        let wanted = u64::from(self.options.image_mib) * MIB;
        let (bytes, tar, ours) = unpack_by_turns(self.daemon.scratch(), wanted)?;
        self.report.fact("large layer, its files", bytes as f64 / MIB as f64, "MiB");
        let who = vec![("tar -xzf".to_owned(), tar), ("warren".to_owned(), ours)];
        self.report.compare("unpack a large layer", who);
        Ok(())
    }

    /// How long a small running sandbox stands still, and how long the whole snapshot takes.
    async fn snapshots(&mut self) -> Result<()> {
        let sandbox = self.daemon.create(json!({})).await?;
        let script =
            "mkdir -p /root/work && cd /root/work && for i in 1 2 3 4 5 6 7 8 9 10; do echo $i > $i; done";
        self.daemon.shell(&sandbox, script).await?;
        let (mut held, mut whole) = (Samples::default(), Samples::default());
        for run in 0..WARM_UPS + self.runs {
            let start = Instant::now();
            let snapshot = self.daemon.post("/snapshots", json!({ "sandbox": sandbox })).await?;
            let took = start.elapsed();
            if run >= WARM_UPS {
                whole.push(took);
                let held_ms = snapshot["heldMs"].as_f64().unwrap_or_default();
                held.push(Duration::from_secs_f64(held_ms / 1000.0));
            }
            self.daemon.delete(&format!("/snapshots/{}", text(&snapshot, "/digest")?)).await?;
            progress("snapshots", run, WARM_UPS + self.runs);
        }
        self.daemon.remove(&sandbox).await?;
        let who = vec![("held still".to_owned(), held), ("whole".to_owned(), whole)];
        self.report.compare("snapshot of a small running sandbox", who);
        Ok(())
    }

    /// One, ten, … forks at a time of a sandbox with many changes: time and bytes.
    async fn forks(&mut self) -> Result<()> {
        let changed = self.options.changed_mib;
        let sandbox = self.daemon.create(json!({})).await?;
        self.daemon
            .shell(&sandbox, &format!("head -c {changed}M /dev/urandom > /root/changed && sync"))
            .await?;
        let mut count = 1;
        while count <= self.options.forks {
            let before = self.disk_bytes()?;
            let start = Instant::now();
            let made =
                self.daemon.post(&format!("/sandboxes/{sandbox}/fork"), json!({ "count": count })).await?;
            let took = start.elapsed();
            let grown = self.disk_bytes()?.saturating_sub(before);
            let what = format!("{count} forks with {changed} MiB changed");
            self.report.fact(format!("{what}, time"), millis(took), "ms");
            self.report.fact(format!("{what}, disk"), grown as f64 / MIB as f64, "MiB");
            for fork in made["forks"].as_array().context("no forks")? {
                self.daemon.remove(&text(fork, "/id")?).await?;
            }
            self.space_is_back(before).await?;
            progress("forks", count as usize, self.options.forks as usize);
            count *= 10;
        }
        self.daemon.remove(&sandbox).await?;
        Ok(())
    }

    /// Data that forks shared is removed after the last one's removal was answered; the next measurement waits for
    /// that.
    async fn space_is_back(&self, before: u64) -> Result<()> {
        for _look in 0..MAX_LOOKS {
            if self.disk_bytes()? < before + MIB {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Ok(())
    }

    /// The disk usage of the daemon's files, as counted by `du`.
    fn disk_bytes(&self) -> Result<u64> {
        let mut du = Command::new("du");
        let output =
            du.args(["-s", "--block-size=1"]).arg(self.daemon.home()).stderr(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let bytes = text.split_whitespace().next().and_then(|word| word.parse().ok());
        bytes.context("du said nothing")
    }
}

fn unpack_by_turns(place: &Path, wanted: u64) -> Result<(u64, Samples, Samples)> {
    let layer = place.join("layer.tar.gz");
    let bytes = archive::large(&layer, wanted)?;
    let (mut tar, mut ours) = (Samples::default(), Samples::default());
    for _turn in 0..UNPACKS {
        tar.push(timed_in(&place.join("by-tar"), |into| {
            let status = Command::new("tar").arg("-xzf").arg(&layer).arg("-C").arg(into).status()?;
            ensure!(status.success(), "tar failed");
            Ok(())
        })?);
        ours.push(timed_in(&place.join("by-us"), |into| {
            let directory = File::open(into)?;
            let options = images::UnpackOptions::default();
            images::unpack_layer(File::open(&layer)?, directory.as_fd(), &options)?;
            Ok(())
        })?);
    }
    fs::remove_file(layer)?;
    Ok((bytes, tar, ours))
}

/// Runs `work` in an empty directory, which is removed afterwards.
fn timed_in(directory: &Path, work: impl FnOnce(&Path) -> Result<()>) -> Result<Duration> {
    fs::create_dir(directory)?;
    // Earlier writes are on the disk before the clock starts.
    rustix::fs::sync();
    let start = Instant::now();
    work(directory)?;
    let took = start.elapsed();
    fs::remove_dir_all(directory)?;
    Ok(took)
}
