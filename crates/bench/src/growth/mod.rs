//! Growth: creates among 10, 100 and 1,000 sandboxes, commands of 1, 10 and 100 clients, output from 1 KB to 1 GB.

mod chart;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, future, stream};
use serde_json::json;

use self::chart::Panel;
use crate::{
    daemon::{Daemon, machine},
    progress,
    report::Report,
    samples::Samples,
};

const ALIVE: [usize; 4] = [1, 10, 100, 1_000];
const CLIENTS: [usize; 3] = [1, 10, 100];
const OUTPUT_BYTES: [u64; 6] = [1_000, 10_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
/// Sandboxes made or removed at the same time between measurements.
const AT_ONCE: usize = 16;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each thing is measured
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// The most sandboxes
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    alive: u32,
    /// The most output, in MB
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    output_mb: u32,
    /// Draw a chart into this file (SVG)
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

pub(crate) async fn measure(program: &Path, options: &Options) -> Result<Report> {
    let daemon = Daemon::start(program, &[]).await?;
    let mut growth = Growth { options, daemon: &daemon, report: machine(), panels: Vec::new() };
    let measured = growth.measure().await;
    let Growth { report, panels, .. } = growth;
    daemon.stop().await;
    measured?;
    if let Some(path) = &options.chart {
        fs::write(path, chart::drawn(&panels))
            .with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(report)
}

struct Growth<'a> {
    options: &'a Options,
    daemon: &'a Daemon,
    report: Report,
    panels: Vec<Panel>,
}

impl Growth<'_> {
    async fn measure(&mut self) -> Result<()> {
        self.sandboxes().await?;
        self.clients().await?;
        self.output().await
    }

    /// From nothing to the first output, with so many others alive.
    async fn sandboxes(&mut self) -> Result<()> {
        let mut alive = Vec::new();
        let mut all = Vec::new();
        for n in ALIVE.into_iter().filter(|n| *n <= self.options.alive as usize) {
            let missing = n - alive.len();
            let made = stream::iter(0..missing).map(async |_| self.daemon.create(json!({})).await);
            alive.extend(made.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?);
            let mut samples = Samples::default();
            for run in 0..=self.options.runs {
                let start = Instant::now();
                let (sandbox, _) = self.daemon.run(&["/bin/sh", "-c", "echo ready"]).await?;
                let took = start.elapsed();
                self.daemon.remove(&sandbox).await?;
                if run > 0 {
                    samples.push(took);
                }
                progress("creates", run as usize, self.options.runs as usize);
            }
            all.push((n, samples));
        }
        let removed = stream::iter(alive).map(async |id| self.daemon.remove(&id).await);
        removed.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        self.add("create → first output", "sandboxes alive", "ms", all);
        Ok(())
    }

    /// A command, while so many clients run one each all the time, in as many sandboxes as there are processors.
    async fn clients(&mut self) -> Result<()> {
        let mut sandboxes = Vec::new();
        for _ in 0..self.report.processors {
            sandboxes.push(self.daemon.create(json!({})).await?);
        }
        let mut all = Vec::new();
        for n in CLIENTS {
            let each = (self.options.runs as usize * 10).div_ceil(n);
            let client = async |number: usize| {
                let sandbox = &sandboxes[number % sandboxes.len()];
                let mut times = Vec::with_capacity(each);
                for _ in 0..each {
                    let start = Instant::now();
                    self.daemon.exec(sandbox, &["/bin/true"]).await?;
                    times.push(start.elapsed());
                }
                anyhow::Ok(times)
            };
            let start = Instant::now();
            let times = future::try_join_all((0..n).map(client)).await?.concat();
            let rate = times.len() as f64 / start.elapsed().as_secs_f64();
            self.report.fact(format!("commands a second, {n} clients"), rate, "");
            all.push((n, Samples::from(times)));
        }
        for sandbox in &sandboxes {
            self.daemon.remove(sandbox).await?;
        }
        self.add("exec true", "clients at once", "ms", all);
        Ok(())
    }

    /// A command that prints so much, until its end was answered.
    async fn output(&mut self) -> Result<()> {
        let sandbox = self.daemon.create(json!({})).await?;
        let route = format!("/sandboxes/{sandbox}/execs?wait=true");
        let mut all = Vec::new();
        let most = u64::from(self.options.output_mb) * 1_000_000;
        for n in OUTPUT_BYTES.into_iter().filter(|n| *n <= most) {
            let mut samples = Samples::default();
            for _ in 0..if n > 10_000_000 { 1 } else { 5 } {
                let command = json!({ "command": ["head", "-c", n.to_string(), "/dev/zero"] });
                let start = Instant::now();
                let answer = self.daemon.post(&route, command).await?;
                samples.push(start.elapsed());
                ensure!(answer["stdout"]["totalBytes"] == n, "not all of {n} bytes came: {answer}");
            }
            all.push((n as usize, samples));
        }
        self.daemon.remove(&sandbox).await?;
        self.add("output of one command", "bytes", "ms", all);
        Ok(())
    }

    fn add(&mut self, what: &str, of: &'static str, unit: &'static str, all: Vec<(usize, Samples)>) {
        let points = all.iter().filter_map(|(n, samples)| {
            let times = samples.summary()?;
            Some((*n as f64, times.p50_ms, times.p95_ms))
        });
        self.panels.push(Panel { what: what.to_owned(), of, unit, points: points.collect() });
        let who = all.into_iter().map(|(n, samples)| (format!("{n} {of}"), samples)).collect();
        self.report.compare(what, who);
    }
}
