//! How fast code is: a cell in an interpreter that is warm, the first result in a new sandbox, a fork, ten thousand cells.

mod jupyter;

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use frontends::rest::v1;
use sandbox::{ContextName, Error, ErrorKind, ExecSpec, SandboxSpec};

use super::{
    Options,
    report::Report,
    samples::{Samples, millis},
    scenarios::{Bench, progress},
};
use crate::error::CommandResult;

/// What a forked context holds.
const HELD_MIB: usize = 100;
/// The first starts of a thing fill caches.
const WARM_UPS: usize = 3;
/// So many cells warm an interpreter up before its memory is measured.
const CELLS_BEFORE: usize = 200;
const KIB: f64 = 1024.0;

/// How much of each.
#[derive(Debug, Clone)]
pub(crate) struct CodeOptions {
    pub(crate) runs: usize,
    pub(crate) cells: usize,
}

/// Measures code, on a daemon and in directories of its own.
pub(crate) async fn measure(options: &CodeOptions) -> CommandResult<Report> {
    let spine = Options { runs: options.runs, burst: 1, crowd: 1, file_mib: 1 };
    let mut bench = CodeBench { bench: Bench::start(&spine).await?, options: options.clone() };
    let measured = bench.measure().await;
    let report = std::mem::take(&mut bench.bench.report);
    bench.bench.stop().await;
    measured.map(|()| report)
}

struct CodeBench {
    bench: Bench,
    options: CodeOptions,
}

/// Memory of those who take part, in bytes.
#[derive(Debug, Clone, Copy)]
struct Memory {
    daemon: u64,
    guest: u64,
    interpreter: u64,
}

impl CodeBench {
    async fn measure(&mut self) -> CommandResult<()> {
        let jupyter = jupyter::measure(self.options.runs.min(10), self.options.runs * 4);
        self.first_result(jupyter.as_ref().map(|times| &times.starts)).await?;
        self.warm_cells(jupyter.as_ref().map(|times| &times.cells)).await?;
        self.fork().await?;
        self.many_cells().await
    }

    /// From no sandbox to the first result, beside the same interpreter started by hand, here and there.
    async fn first_result(&mut self, jupyter: Option<&Samples>) -> CommandResult<()> {
        let program = self.python().await?;
        let mut samples = [Samples::default(), Samples::default(), Samples::default()];
        for run in 0..WARM_UPS + self.options.runs {
            let times = [by_hand(&program)?, self.by_exec(&program).await?, self.by_cell().await?];
            if run >= WARM_UPS {
                for (samples, took) in samples.iter_mut().zip(times) {
                    samples.push(took);
                }
            }
            progress("first result", run, WARM_UPS + self.options.runs);
        }
        let names = ["python3 -c", "new sandbox, exec python3 -c", "new sandbox, code"].map(str::to_owned);
        let mut who: Vec<_> = names.into_iter().zip(samples).collect();
        who.extend(jupyter.map(|samples| ("Jupyter kernel".to_owned(), samples.clone())));
        self.bench.report.compare("first result of Python", who);
        Ok(())
    }

    /// The Python of sandboxes.
    async fn python(&self) -> CommandResult<String> {
        let sandbox = self.new_sandbox().await?;
        let languages = self.bench.client.languages(&sandbox).await?;
        self.bench.client.remove(&sandbox, true).await?;
        let python = languages.into_iter().find(|language| language.name == "python");
        python.map(|python| python.program).ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "there is no Python in sandboxes of this machine").into()
        })
    }

    async fn new_sandbox(&self) -> CommandResult<String> {
        Ok(self.bench.client.create(&SandboxSpec::default()).await?.id.to_string())
    }

    async fn by_exec(&self, program: &str) -> CommandResult<Duration> {
        let start = Instant::now();
        let sandbox = self.new_sandbox().await?;
        let spec = ExecSpec::argv([program, "-c", "print(6 * 7)"]);
        let result = self.bench.client.exec_and_wait(&sandbox, &spec).await?;
        let took = start.elapsed();
        let printed = result.stdout.and_then(|stdout| stdout.text).unwrap_or_default();
        expect(printed.trim(), "42")?;
        self.bench.client.remove(&sandbox, true).await?;
        Ok(took)
    }

    async fn by_cell(&self) -> CommandResult<Duration> {
        let start = Instant::now();
        let sandbox = self.new_sandbox().await?;
        let result = self.cell(&sandbox, "python", "6 * 7").await?;
        let took = start.elapsed();
        expect(&result, "42")?;
        self.bench.client.remove(&sandbox, true).await?;
        Ok(took)
    }

    /// Runs a cell and returns the text of its value.
    async fn cell(&self, sandbox: &str, language: &str, code: &str) -> CommandResult<String> {
        let request = v1::CodeRequest {
            code: code.to_owned(),
            language: Some(language.to_owned()),
            context: None,
            cwd: None,
            env: Default::default(),
            user: None,
            timeout_ms: None,
            request_id: None,
            track_files: Some(false),
        };
        let ran = self.bench.client.run_code(sandbox, &request).await?;
        if !ran.result.success {
            let message = format!("a cell of the bench failed: {:?}", ran.result.error);
            return Err(Error::new(ErrorKind::Internal, message).into());
        }
        Ok(ran.result.result.unwrap_or(ran.result.stdout))
    }

    async fn warm_cells(&mut self, jupyter: Option<&Samples>) -> CommandResult<()> {
        let sandbox = self.new_sandbox().await?;
        let found = self.bench.client.languages(&sandbox).await?;
        let languages = [("python", "6 * 7"), ("javascript", "6 * 7"), ("bash", "echo $((6 * 7))")];
        let is_there = |name: &str| found.iter().any(|language| language.name == name);
        let there: Vec<_> = languages.into_iter().filter(|(name, _)| is_there(name)).collect();
        let mut samples = vec![Samples::default(); there.len()];
        let mut command = Samples::default();
        let spec = ExecSpec::argv(["/bin/true"]);
        for run in 0..WARM_UPS + self.options.runs * 4 {
            let start = Instant::now();
            self.bench.client.exec_and_wait(&sandbox, &spec).await?;
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
            progress("warm cell", run, WARM_UPS + self.options.runs * 4);
        }
        let mut who: Vec<_> = there.iter().map(|(name, _)| (*name).to_owned()).zip(samples).collect();
        who.push(("exec true".to_owned(), command));
        who.extend(jupyter.map(|samples| ("Jupyter kernel, Python".to_owned(), samples.clone())));
        self.bench.report.compare("warm cell", who);
        self.bench.client.remove(&sandbox, true).await
    }

    /// A branch of a context that holds much, beside a new context that holds nothing.
    async fn fork(&mut self) -> CommandResult<()> {
        let sandbox = self.new_sandbox().await?;
        self.cell(&sandbox, "python", &format!("held = bytearray(b'x') * ({HELD_MIB} << 20)")).await?;
        let client = &self.bench.client;
        let python: ContextName = "python".parse()?;
        let branch: ContextName = "branch".parse()?;
        let request = v1::ForkRequest { into: Some(branch.clone()), force: false };
        let fresh = v1::ContextRequest {
            name: Some(branch.clone()),
            language: Some("python".to_owned()),
            env: Default::default(),
            cwd: None,
            user: None,
        };
        let (mut forked, mut made) = (Samples::default(), Samples::default());
        for run in 0..WARM_UPS + self.options.runs {
            let start = Instant::now();
            client.fork_context(&sandbox, &python, &request).await?;
            let fork = start.elapsed();
            client.remove_context(&sandbox, &branch).await?;
            let start = Instant::now();
            client.create_context(&sandbox, &fresh).await?;
            let new = start.elapsed();
            client.remove_context(&sandbox, &branch).await?;
            if run >= WARM_UPS {
                forked.push(fork);
                made.push(new);
            }
            progress("fork", run, WARM_UPS + self.options.runs);
        }
        let who = vec![("new context".to_owned(), made), ("fork".to_owned(), forked)];
        self.bench.report.compare(&format!("Python context holding {HELD_MIB} MiB"), who);
        self.bench.client.remove(&sandbox, true).await
    }

    /// What grows with the number of cells.
    async fn many_cells(&mut self) -> CommandResult<()> {
        let sandbox = self.new_sandbox().await?;
        for n in 0..CELLS_BEFORE {
            self.cell(&sandbox, "python", &format!("x = {n}\nx")).await?;
        }
        let before = self.memory(&sandbox).await?;
        let start = Instant::now();
        for n in 0..self.options.cells {
            self.cell(&sandbox, "python", &format!("x = {n}\nx")).await?;
            if n % 100 == 0 {
                progress("cells", n, self.options.cells);
            }
        }
        let took = start.elapsed();
        let after = self.memory(&sandbox).await?;
        let n_cells = self.options.cells;
        let report = &mut self.bench.report;
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
        self.bench.client.remove(&sandbox, true).await
    }

    async fn memory(&self, sandbox: &str) -> CommandResult<Memory> {
        let contexts = self.bench.client.contexts(sandbox).await?;
        Ok(Memory {
            daemon: self.bench.daemon_bytes().unwrap_or_default(),
            guest: self.bench.guest_private_bytes(sandbox).unwrap_or_default(),
            interpreter: contexts.iter().map(|context| context.memory_bytes).sum(),
        })
    }
}

fn by_hand(program: &str) -> CommandResult<Duration> {
    let start = Instant::now();
    let output = Command::new(program).args(["-c", "print(6 * 7)"]).stdin(Stdio::null()).output()?;
    let took = start.elapsed();
    expect(String::from_utf8_lossy(&output.stdout).trim(), "42")?;
    Ok(took)
}

fn expect(found: &str, expected: &str) -> CommandResult<()> {
    if found == expected {
        return Ok(());
    }
    let shown: String = found.chars().take(100).collect();
    Err(Error::new(ErrorKind::Internal, format!("code of the bench answered {shown:?}")).into())
}
