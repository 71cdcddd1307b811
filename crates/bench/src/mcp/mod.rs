//! How fast MCP is: from a client's spawn to the first answer, over stdio and HTTP, alone and with many.

mod http;
mod opensandbox;
mod stdio;

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Error, Result, anyhow};
use futures_util::future;
use serde_json::{Value, json};
use tokio::process::Command;

use self::{
    http::{Caller, Dialect},
    stdio::Pipe,
};
use crate::{
    daemon::{Daemon, machine, text},
    progress,
    report::Report,
    samples::Samples,
};

/// Listens on TCP, without keys and without a rate limit.
pub(crate) const ARGUMENTS: [&str; 5] = ["--dev", "--listen", "127.0.0.1:0", "--rate-limit", "1000000"];
/// Surfaces of other systems, each at `/mcp/<name>`.
const SURFACES: [&str; 5] =
    ["microsandbox", "microsandbox-mcp", "microsandbox-mcp-0.6", "mcp-sandbox", "opensandbox"];
/// One of this many calls is a command; the others read a file or the list.
const CALLS_PER_COMMAND: usize = 10;
/// A daemon looks every ten seconds whether it was idle meanwhile, and then lets go of what it does not need.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(25);
/// Sandboxes that a crowd shares.
const CROWD_SANDBOXES: usize = 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each thing is measured
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Clients at the same time
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Calls of all of them together
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: u32,
}

pub(crate) async fn measure(program: &Path, options: &Options) -> Result<Report> {
    let daemon = Daemon::start(program, &ARGUMENTS).await?;
    let mut mcp = Mcp {
        runs: options.runs as usize,
        options,
        address: daemon.address().await?,
        daemon: &daemon,
        report: machine(),
    };
    let measured = mcp.measure().await;
    let report = mcp.report;
    daemon.stop().await;
    measured.map(|()| report)
}

struct Mcp<'a> {
    runs: usize,
    options: &'a Options,
    address: SocketAddr,
    daemon: &'a Daemon,
    report: Report,
}

impl Mcp<'_> {
    async fn measure(&mut self) -> Result<()> {
        self.daemon_memory("idle")?;
        self.spawns().await?;
        self.lists().await?;
        self.lists_of_dialects().await?;
        self.commands().await?;
        self.opensandbox().await?;
        self.crowd().await
    }

    fn daemon_memory(&mut self, when: &str) -> Result<()> {
        let bytes = self.daemon.bytes().context("the daemon ended")?;
        self.report.fact(format!("daemon, resident, {when}"), bytes as f64 / 1024.0 / 1024.0, "MiB");
        Ok(())
    }

    /// From a client's spawn to its first answer, compared with a process that only echoes the line.
    async fn spawns(&mut self) -> Result<()> {
        let (mut echo, mut ours) = (Samples::default(), Samples::default());
        for run in 0..=self.runs {
            let start = Instant::now();
            let mut pipe = Pipe::spawn(&mut Command::new("cat")).await?;
            pipe.ask(&initialize(1)).await?;
            let bare = start.elapsed();
            drop(pipe);
            let start = Instant::now();
            let mut pipe = self.stdio().await?;
            let answer = pipe.ask(&initialize(1)).await?;
            let took = start.elapsed();
            expect(&answer, "/result/serverInfo/name", &json!("warren"))?;
            if run > 0 {
                echo.push(bare);
                ours.push(took);
            }
            progress("spawn → initialize", run, self.runs);
        }
        let who = vec![("cat, echoing the line".to_owned(), echo), ("warren mcp".to_owned(), ours)];
        self.report.compare("spawn → initialize", who);
        Ok(())
    }

    async fn stdio(&self) -> Result<Pipe> {
        Pipe::spawn(self.daemon.command().arg("mcp")).await
    }

    async fn lists(&mut self) -> Result<()> {
        let mut stdio = self.stdio().await?;
        stdio.ask(&initialize(1)).await?;
        stdio.tell(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        let mut session = Caller::connect(self.address, Dialect::Session).await?;
        let mut stateless = Caller::connect(self.address, Dialect::Stateless).await?;
        let mut samples = [Samples::default(), Samples::default(), Samples::default()];
        for run in 0..=self.runs * 4 {
            let start = Instant::now();
            let answer =
                stdio.ask(&json!({ "jsonrpc": "2.0", "id": run + 2, "method": "tools/list" })).await?;
            let times = [
                (start.elapsed(), answer),
                timed(session.ask("tools/list", json!({}))).await?,
                timed(stateless.ask("tools/list", json!({}))).await?,
            ];
            for (samples, (took, answer)) in samples.iter_mut().zip(times) {
                if answer.pointer("/result/tools/0").is_none() {
                    return Err(unexpected(&answer));
                }
                if run > 0 {
                    samples.push(took);
                }
            }
        }
        let names = ["stdio", "HTTP, session", "HTTP, stateless"].map(str::to_owned);
        self.report.compare("tools/list", names.into_iter().zip(samples).collect());
        Ok(())
    }

    /// The lists of other systems' surfaces, each in a session of its own.
    async fn lists_of_dialects(&mut self) -> Result<()> {
        let mut measured = Vec::new();
        for surface in SURFACES {
            let path = format!("/mcp/{surface}");
            let mut caller = Caller::connect_to(self.address, &path, Dialect::Session).await?;
            let mut samples = Samples::default();
            for run in 0..=self.runs * 4 {
                let answer = caller.ask("tools/list", json!({})).await?;
                if answer.pointer("/result/tools/0").is_none() {
                    return Err(unexpected(&answer));
                }
                if run > 0 {
                    samples.push(caller.took);
                }
            }
            measured.push((surface.to_owned(), samples));
        }
        self.report.compare("tools/list of dialects", measured);
        Ok(())
    }

    /// The same command by REST on the Unix socket, which is the exec itself, and over MCP. Both look which files it
    /// changed: after a command that does not, one that does waits for the kernel's clock to move on.
    async fn commands(&mut self) -> Result<()> {
        let name = self.create().await?;
        let mut session = Caller::connect(self.address, Dialect::Session).await?;
        let mut stateless = Caller::connect(self.address, Dialect::Stateless).await?;
        let mut samples = [Samples::default(), Samples::default(), Samples::default()];
        let call = json!({ "name": "sandbox_exec", "arguments": { "name": name, "command": "/bin/true" } });
        let route = format!("/sandboxes/{name}/execs?wait=true");
        let tracked = json!({ "command": ["/bin/true"], "trackFiles": true });
        for run in 0..=self.runs * 4 {
            let (plain, _done) = timed(self.daemon.post(&route, tracked.clone())).await?;
            let (in_session, answer) = timed(session.ask("tools/call", call.clone())).await?;
            expect(&answer, "/result/structuredContent/data/exitCode", &json!(0))?;
            let (without, answer) = timed(stateless.ask("tools/call", call.clone())).await?;
            expect(&answer, "/result/structuredContent/data/exitCode", &json!(0))?;
            if run > 0 {
                for (samples, took) in samples.iter_mut().zip([plain, in_session, without]) {
                    samples.push(took);
                }
            }
            progress("sandbox_exec true", run, self.runs * 4);
        }
        let names = ["REST, Unix socket", "MCP HTTP, session", "MCP HTTP, stateless"].map(str::to_owned);
        self.report.compare("exec true", names.into_iter().zip(samples).collect());
        self.daemon.remove(&name).await
    }

    /// A command line by REST on the Unix socket, as OpenSandbox's SDK sends it, and by its MCP server's tool.
    async fn opensandbox(&mut self) -> Result<()> {
        let name = self.create().await?;
        let mut client = opensandbox::Client::connect(self.address, &name).await?;
        let mut tools = Caller::connect_to(self.address, "/mcp/opensandbox", Dialect::Session).await?;
        let call = json!({ "name": "command_run", "arguments": { "sandbox_id": name, "command": "true" } });
        let mut samples = [Samples::default(), Samples::default(), Samples::default()];
        for run in 0..=self.runs * 4 {
            let start = Instant::now();
            self.daemon.exec(&name, &["bash", "-c", "true"]).await?;
            let plain = start.elapsed();
            let (posted, ()) = timed(client.run("true")).await?;
            let (called, answer) = timed(tools.ask("tools/call", call.clone())).await?;
            expect(&answer, "/result/structuredContent/exit_code", &json!(0))?;
            if run > 0 {
                for (samples, took) in samples.iter_mut().zip([plain, posted, called]) {
                    samples.push(took);
                }
            }
            progress("opensandbox true", run, self.runs * 4);
        }
        let names = ["REST, Unix socket", "opensandbox, POST /command", "opensandbox, MCP command_run"];
        self.report.compare("bash -c true", names.map(str::to_owned).into_iter().zip(samples).collect());
        self.daemon.remove(&name).await
    }

    /// Creates a sandbox and returns its name, which tools need.
    async fn create(&self) -> Result<String> {
        text(&self.daemon.post("/sandboxes", json!({})).await?, "/name")
    }

    /// Many clients at once, twice: growth after the second round would be a leak.
    async fn crowd(&mut self) -> Result<()> {
        let mut sandboxes = Vec::new();
        for _ in 0..CROWD_SANDBOXES {
            sandboxes.push(self.create().await?);
        }
        let (n_clients, n_calls) = (self.options.clients, self.options.calls);
        for round in ["first", "second"] {
            let start = Instant::now();
            let each = self.round(&sandboxes).await?;
            let took = start.elapsed();
            let what = format!("{n_clients} clients, {n_calls} calls, {round} round");
            self.report.fact(format!("{what}, all"), took.as_secs_f64(), "s");
            self.report.compare(&what, vec![("warren".to_owned(), each)]);
            progress("waiting for the daemon to give memory back", 0, 1);
            tokio::time::sleep(GIVEN_BACK_WITHIN).await;
            self.daemon_memory(&format!("after the {round} round"))?;
        }
        for name in sandboxes {
            self.daemon.remove(&name).await?;
        }
        Ok(())
    }

    async fn round(&self, sandboxes: &[String]) -> Result<Samples> {
        let n_each = (self.options.calls / self.options.clients).max(1) as usize;
        let clients = (0..self.options.clients as usize).zip(sandboxes.iter().cycle());
        let clients =
            clients.map(|(_, sandbox)| client_of_crowd(self.address, vec![sandbox.clone()], n_each));
        Ok(Samples::from(future::try_join_all(clients).await?.concat()))
    }
}

/// One client of a crowd: its own connection and session, its calls one after another, in one of its sandboxes after
/// the other, the session ended at the end.
pub(crate) async fn client_of_crowd(
    address: SocketAddr,
    sandboxes: Vec<String>,
    n_calls: usize,
) -> Result<Vec<Duration>> {
    let mut caller = Caller::connect(address, Dialect::Session).await?;
    let mut times = Vec::with_capacity(n_calls);
    // Each sandbox gets commands and other calls, in rounds.
    let rounds = sandboxes.iter().cycle().flat_map(|sandbox| std::iter::repeat_n(sandbox, CALLS_PER_COMMAND));
    for (number, sandbox) in (0..n_calls).zip(rounds) {
        let call = match number % CALLS_PER_COMMAND {
            0 => json!({ "name": "sandbox_exec", "arguments": { "name": sandbox, "command": "/bin/true" } }),
            1..5 => json!({ "name": "sandbox_list", "arguments": {} }),
            _ => {
                json!({ "name": "sandbox_fs_exists", "arguments": { "name": sandbox, "path": "/etc/passwd" } })
            }
        };
        let (took, answer) = timed(caller.ask("tools/call", call)).await?;
        expect(&answer, "/result/structuredContent/ok", &json!(true))?;
        times.push(took);
    }
    caller.end().await?;
    Ok(times)
}

async fn timed<T>(work: impl Future<Output = Result<T>>) -> Result<(Duration, T)> {
    let start = Instant::now();
    let done = work.await?;
    Ok((start.elapsed(), done))
}

fn initialize(id: usize) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "bench", "version": env!("CARGO_PKG_VERSION") },
    }})
}

fn expect(answer: &Value, pointer: &str, value: &Value) -> Result<()> {
    if answer.pointer(pointer) == Some(value) { Ok(()) } else { Err(unexpected(answer)) }
}

fn unexpected(answer: &Value) -> Error {
    anyhow!("an answer that the bench did not expect: {:.400}", answer.to_string())
}
