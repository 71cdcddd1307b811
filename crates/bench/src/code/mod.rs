//! How fast code is: a cell in a warm interpreter, the first result in a new sandbox, a fork, ten thousand cells.

mod jupyter;

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    daemon::{Daemon, machine, text},
    progress,
    report::Report,
    samples::{Samples, millis},
};

/// Memory held by the forked context, in each of these ways: one large block is a few large pages for the kernel, and
/// small objects are many small ones, each of which the branch has to be shown.
const HELD_MIB: usize = 100;
const HELD: [(&str, &str); 2] = [
    ("in one block", "held = bytearray(b'x') * (100 << 20)"),
    // A string of a hundred characters takes about 150 bytes, and eight in the list.
    ("in small objects", "held = [f'{n:0100d}' for n in range((100 << 20) // 158)]"),
];
/// The first runs of anything fill caches.
const WARM_UPS: usize = 3;
/// Cells that warm an interpreter up before its memory is measured.
const CELLS_BEFORE: usize = 200;
const KIB: f64 = 1024.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each thing is measured
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Cells that run in one context, one after another
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    cells: u32,
}

pub(crate) async fn measure(program: &Path, options: &Options) -> Result<Report> {
    let daemon = Daemon::start(program, &[]).await?;
    let (runs, cells) = (options.runs as usize, options.cells as usize);
    let mut code = Code { runs, cells, daemon: &daemon, report: machine() };
    let measured = code.measure().await;
    let report = code.report;
    daemon.stop().await;
    measured.map(|()| report)
}

struct Code<'a> {
    runs: usize,
    cells: usize,
    daemon: &'a Daemon,
    report: Report,
}

/// Memory of the processes involved, in bytes.
#[derive(Debug, Clone, Copy)]
struct Memory {
    daemon: u64,
    guest: u64,
    interpreter: u64,
}

impl Code<'_> {
    async fn measure(&mut self) -> Result<()> {
        let jupyter = jupyter::measure(self.runs.min(10), self.runs * 4);
        self.first_result(jupyter.as_ref().map(|times| &times.starts)).await?;
        self.warm_cells(jupyter.as_ref().map(|times| &times.cells)).await?;
        for (how, code) in HELD {
            self.fork(how, code).await?;
        }
        self.many_cells().await
    }

    /// From no sandbox to the first result, compared with the same interpreter started by hand, inside and outside.
    async fn first_result(&mut self, jupyter: Option<&Samples>) -> Result<()> {
        let program = self.python().await?;
        let mut samples = [Samples::default(), Samples::default(), Samples::default()];
        for run in 0..WARM_UPS + self.runs {
            let times = [by_hand(&program)?, self.by_exec(&program).await?, self.by_cell().await?];
            if run >= WARM_UPS {
                for (samples, took) in samples.iter_mut().zip(times) {
                    samples.push(took);
                }
            }
            progress("first result", run, WARM_UPS + self.runs);
        }
        let names = ["python3 -c", "new sandbox, exec python3 -c", "new sandbox, code"].map(str::to_owned);
        let mut who: Vec<_> = names.into_iter().zip(samples).collect();
        who.extend(jupyter.map(|samples| ("Jupyter kernel".to_owned(), samples.clone())));
        self.report.compare("first result of Python", who);
        Ok(())
    }

    /// The Python of sandboxes.
    async fn python(&self) -> Result<String> {
        let sandbox = self.daemon.create(json!({})).await?;
        let languages = self.languages(&sandbox).await?;
        self.daemon.remove(&sandbox).await?;
        let python = languages.iter().find(|language| language["name"] == "python");
        text(python.context("there is no Python in sandboxes of this machine")?, "/program")
    }

    async fn languages(&self, sandbox: &str) -> Result<Vec<Value>> {
        let answer = self.daemon.get(&format!("/sandboxes/{sandbox}/languages")).await?;
        Ok(answer["languages"].as_array().cloned().unwrap_or_default())
    }

    async fn by_exec(&self, program: &str) -> Result<Duration> {
        let start = Instant::now();
        let (sandbox, printed) = self.daemon.run(&[program, "-c", "print(6 * 7)"]).await?;
        let took = start.elapsed();
        expect(printed.trim(), "42")?;
        self.daemon.remove(&sandbox).await?;
        Ok(took)
    }

    async fn by_cell(&self) -> Result<Duration> {
        let start = Instant::now();
        let code = json!({ "code": "6 * 7", "language": "python", "trackFiles": false });
        let ran = self.daemon.post("/runs", json!({ "code": code })).await?;
        let took = start.elapsed();
        let sandbox = text(&ran, "/sandbox/id")?;
        expect(&text(&ran, "/code/result")?, "42")?;
        self.daemon.remove(&sandbox).await?;
        Ok(took)
    }

    /// Runs a cell and returns the text of its value, or else its output.
    async fn cell(&self, sandbox: &str, language: &str, code: &str) -> Result<String> {
        let request = json!({ "code": code, "language": language, "trackFiles": false });
        let ran = self.daemon.post(&format!("/sandboxes/{sandbox}/code"), request).await?;
        ensure!(ran["success"] == true, "a cell of the bench failed: {ran}");
        text(&ran, if ran["result"].is_string() { "/result" } else { "/stdout" })
    }

    async fn warm_cells(&mut self, jupyter: Option<&Samples>) -> Result<()> {
        let sandbox = self.daemon.create(json!({})).await?;
        let found = self.languages(&sandbox).await?;
        let languages = [("python", "6 * 7"), ("javascript", "6 * 7"), ("bash", "echo $((6 * 7))")];
        let is_there = |name: &str| found.iter().any(|language| language["name"] == name);
        let there: Vec<_> = languages.into_iter().filter(|(name, _)| is_there(name)).collect();
        let mut samples = vec![Samples::default(); there.len()];
        let mut command = Samples::default();
        for run in 0..WARM_UPS + self.runs * 4 {
            let start = Instant::now();
            self.daemon.exec(&sandbox, &["/bin/true"]).await?;
            let bare = start.elapsed();
            for ((language, code), samples) in there.iter().zip(&mut samples) {
                let start = Instant::now();
                let result = self.cell(&sandbox, language, code).await?;
                let took = start.elapsed();
                expect(result.trim(), "42")?;
                if run >= WARM_UPS {
                    samples.push(took);
                }
            }
            if run >= WARM_UPS {
                command.push(bare);
            }
            progress("warm cell", run, WARM_UPS + self.runs * 4);
        }
        let mut who: Vec<_> = there.iter().map(|(name, _)| (*name).to_owned()).zip(samples).collect();
        who.push(("exec true".to_owned(), command));
        who.extend(jupyter.map(|samples| ("Jupyter kernel, Python".to_owned(), samples.clone())));
        self.report.compare("warm cell", who);
        self.daemon.remove(&sandbox).await
    }

    /// A branch of a context that holds much memory, compared with a new empty context.
    async fn fork(&mut self, how: &str, code: &str) -> Result<()> {
        let sandbox = self.daemon.create(json!({})).await?;
        self.cell(&sandbox, "python", code).await?;
        let contexts = format!("/sandboxes/{sandbox}/contexts");
        let (fork_route, branch) = (format!("{contexts}/python/fork"), format!("{contexts}/branch"));
        let fresh = json!({ "name": "branch", "language": "python" });
        let (mut forked, mut made) = (Samples::default(), Samples::default());
        for run in 0..WARM_UPS + self.runs {
            let start = Instant::now();
            self.daemon.post(&fork_route, json!({ "into": "branch" })).await?;
            let fork = start.elapsed();
            self.daemon.delete(&branch).await?;
            let start = Instant::now();
            self.daemon.post(&contexts, fresh.clone()).await?;
            let new = start.elapsed();
            self.daemon.delete(&branch).await?;
            if run >= WARM_UPS {
                forked.push(fork);
                made.push(new);
            }
            progress("fork", run, WARM_UPS + self.runs);
        }
        let who = vec![("new context".to_owned(), made), ("fork".to_owned(), forked)];
        self.report.compare(&format!("Python context holding {HELD_MIB} MiB {how}"), who);
        self.daemon.remove(&sandbox).await
    }

    /// Measures the costs that grow with the number of cells.
    async fn many_cells(&mut self) -> Result<()> {
        let sandbox = self.daemon.create(json!({})).await?;
        for n in 0..CELLS_BEFORE {
            self.cell(&sandbox, "python", &format!("x = {n}\nx")).await?;
        }
        let before = self.memory(&sandbox).await?;
        let start = Instant::now();
        for n in 0..self.cells {
            self.cell(&sandbox, "python", &format!("x = {n}\nx")).await?;
            if n % 100 == 0 {
                progress("cells", n, self.cells);
            }
        }
        let took = start.elapsed();
        let after = self.memory(&sandbox).await?;
        let n_cells = self.cells;
        let report = &mut self.report;
        report.fact(format!("{n_cells} cells in one context"), took.as_secs_f64(), "s");
        report.fact("the same, each", millis(took) / n_cells as f64, "ms");
        for (who, before, after) in [
            ("daemon", before.daemon, after.daemon),
            ("guest", before.guest, after.guest),
            ("interpreter", before.interpreter, after.interpreter),
        ] {
            report.fact(format!("{who}, memory before"), before as f64 / KIB, "KiB");
            report.fact(format!("{who}, memory after {n_cells} cells"), after as f64 / KIB, "KiB");
        }
        self.daemon.remove(&sandbox).await
    }

    async fn memory(&self, sandbox: &str) -> Result<Memory> {
        let answer = self.daemon.get(&format!("/sandboxes/{sandbox}/contexts")).await?;
        let contexts = answer["contexts"].as_array().context("no contexts")?;
        Ok(Memory {
            daemon: self.daemon.bytes().unwrap_or_default(),
            guest: self.daemon.guest_private_bytes(sandbox).unwrap_or_default(),
            interpreter: contexts.iter().filter_map(|context| context["memoryBytes"].as_u64()).sum(),
        })
    }
}

fn by_hand(program: &str) -> Result<Duration> {
    let start = Instant::now();
    let output = Command::new(program).args(["-c", "print(6 * 7)"]).stdin(Stdio::null()).output()?;
    let took = start.elapsed();
    expect(String::from_utf8_lossy(&output.stdout).trim(), "42")?;
    Ok(took)
}

fn expect(found: &str, expected: &str) -> Result<()> {
    ensure!(found == expected, "code of the bench answered {found:.100?}");
    Ok(())
}
