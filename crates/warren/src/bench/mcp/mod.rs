//! How fast MCP is: from a client's spawn to the first answer, over stdio and HTTP, alone and with many.

mod http;
mod stdio;

use std::{
    fs, io,
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use sandbox::{Error, ErrorKind, ExecSpec, SandboxSpec};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use self::{
    http::{Caller, Dialect},
    stdio::Pipe,
};
use super::{
    report::Report,
    samples::Samples,
    scenarios::{kib_field, machine, progress},
};
use crate::{
    client::{Client, ClientOptions, StartMode},
    daemon::Note,
    directories::Directories,
    env,
    error::CommandResult,
};

/// How long the daemon may take to leave.
const PATIENCE: Duration = Duration::from_secs(20);
/// Of so many calls of a crowd's client one is a command; the others look at a file or the list.
const CALLS_PER_COMMAND: usize = 10;
/// A daemon looks every ten seconds for memory to give back.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(12);
/// Sandboxes that a crowd shares.
const CROWD_SANDBOXES: usize = 10;

/// How much of each.
#[derive(Debug, Clone)]
pub(crate) struct McpOptions {
    pub(crate) runs: usize,
    pub(crate) clients: usize,
    pub(crate) calls: usize,
}

/// A daemon of its own that listens on TCP, in a directory that goes with it.
struct McpBench {
    options: McpOptions,
    directory: PathBuf,
    directories: Directories,
    program: PathBuf,
    daemon: Child,
    address: SocketAddr,
    client: Client,
    report: Report,
}

/// Measures MCP.
pub(crate) async fn measure(options: &McpOptions) -> CommandResult<Report> {
    let mut bench = McpBench::start(options).await?;
    let report = bench.measure().await;
    bench.stop().await;
    report
}

impl McpBench {
    async fn start(options: &McpOptions) -> CommandResult<Self> {
        let directory = std::env::temp_dir().join(format!("warren-bench-mcp-{}", std::process::id()));
        let directories = Directories { home: directory.join("home"), run: directory.join("run") };
        crate::directories::make_private(&directory)?;
        directories.make()?;
        let program = std::env::current_exe()?;
        let daemon = Command::new(&program)
            .env(env::HOME_DIRECTORY, &directories.home)
            .env(env::RUN_DIRECTORY, &directories.run)
            .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--rate-limit", "1000000"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let address = Note::wait_for_address(&directories.run).await?;
        let client_options =
            ClientOptions { directories: directories.clone(), namespace: None, start: StartMode::Never };
        let client = Client::connect(client_options).await?;
        let options = options.clone();
        Ok(Self { options, directory, directories, program, daemon, address, client, report: machine() })
    }

    async fn stop(mut self) {
        if let Some(pid) = self.daemon.id().and_then(|pid| i32::try_from(pid).ok())
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
            tokio::time::timeout(PATIENCE, self.daemon.wait()).await.ok();
        }
        fs::remove_dir_all(&self.directory).ok();
    }

    async fn measure(&mut self) -> CommandResult<Report> {
        let idle = self.daemon_bytes()?;
        self.report.fact("daemon, resident, idle", mib(idle), "MiB");
        self.spawns().await?;
        self.lists().await?;
        self.commands().await?;
        self.crowd().await?;
        Ok(std::mem::take(&mut self.report))
    }

    fn daemon_bytes(&self) -> CommandResult<u64> {
        let pid = self.daemon.id().ok_or_else(|| io::Error::other("the daemon ended"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        kib_field(&status, "VmRSS:").ok_or_else(|| io::Error::other("the daemon's memory is not told").into())
    }

    /// From a client's spawn to its first answer, beside a process that only echoes the line.
    async fn spawns(&mut self) -> CommandResult<()> {
        let (mut echo, mut ours) = (Samples::default(), Samples::default());
        for run in 0..=self.options.runs {
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
            progress("spawn → initialize", run, self.options.runs);
        }
        let who = vec![("cat, echoing the line".to_owned(), echo), ("warren mcp".to_owned(), ours)];
        self.report.compare("spawn → initialize", who);
        Ok(())
    }

    async fn stdio(&self) -> CommandResult<Pipe> {
        let mut command = Command::new(&self.program);
        command
            .env(env::HOME_DIRECTORY, &self.directories.home)
            .env(env::RUN_DIRECTORY, &self.directories.run)
            .arg("mcp");
        Pipe::spawn(&mut command).await
    }

    async fn lists(&mut self) -> CommandResult<()> {
        let mut stdio = self.stdio().await?;
        stdio.ask(&initialize(1)).await?;
        stdio.tell(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        let mut session = Caller::connect(self.address, Dialect::Session).await?;
        let mut stateless = Caller::connect(self.address, Dialect::Stateless).await?;
        let mut samples = [Samples::default(), Samples::default(), Samples::default()];
        for run in 0..=self.options.runs * 4 {
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

    /// The same command by REST on the Unix socket, which is the exec itself, and over MCP.
    async fn commands(&mut self) -> CommandResult<()> {
        let sandbox = self.client.create(&SandboxSpec::default()).await?;
        let name = sandbox.name.to_string();
        let mut session = Caller::connect(self.address, Dialect::Session).await?;
        let mut stateless = Caller::connect(self.address, Dialect::Stateless).await?;
        let mut samples = [Samples::default(), Samples::default(), Samples::default()];
        let spec = ExecSpec::argv(["/bin/true"]);
        let call = json!({ "name": "sandbox_exec", "arguments": { "name": name, "command": "/bin/true" } });
        for run in 0..=self.options.runs * 4 {
            let start = Instant::now();
            self.client.exec_and_wait(&name, &spec).await?;
            let plain = start.elapsed();
            let (in_session, answer) = timed(session.ask("tools/call", call.clone())).await?;
            expect(&answer, "/result/structuredContent/data/exitCode", &json!(0))?;
            let (without, answer) = timed(stateless.ask("tools/call", call.clone())).await?;
            expect(&answer, "/result/structuredContent/data/exitCode", &json!(0))?;
            if run > 0 {
                for (samples, took) in samples.iter_mut().zip([plain, in_session, without]) {
                    samples.push(took);
                }
            }
            progress("sandbox_exec true", run, self.options.runs * 4);
        }
        let names = ["REST, Unix socket", "MCP HTTP, session", "MCP HTTP, stateless"].map(str::to_owned);
        self.report.compare("exec true", names.into_iter().zip(samples).collect());
        self.client.remove(&name, true).await
    }

    /// Many clients at once, twice: what the second round leaves is what would grow.
    async fn crowd(&mut self) -> CommandResult<()> {
        let mut sandboxes = Vec::new();
        for _ in 0..CROWD_SANDBOXES {
            sandboxes.push(self.client.create(&SandboxSpec::default()).await?.name.to_string());
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
            self.report.fact(
                format!("daemon, resident after the {round} round"),
                mib(self.daemon_bytes()?),
                "MiB",
            );
        }
        for name in sandboxes {
            self.client.remove(&name, true).await?;
        }
        Ok(())
    }

    async fn round(&self, sandboxes: &[String]) -> CommandResult<Samples> {
        let n_each = (self.options.calls / self.options.clients).max(1);
        let tasks: Vec<_> = (0..self.options.clients)
            .map(|client| {
                let sandbox = sandboxes[client % sandboxes.len()].clone();
                tokio::spawn(one_of_many(self.address, sandbox, n_each))
            })
            .collect();
        let mut all = Samples::default();
        for task in tasks {
            for took in task.await.map_err(io::Error::other)?? {
                all.push(took);
            }
        }
        Ok(all)
    }
}

/// One client of a crowd: its own connection and session, its calls one after another, the session ended at the end.
async fn one_of_many(address: SocketAddr, sandbox: String, n_calls: usize) -> CommandResult<Vec<Duration>> {
    let mut caller = Caller::connect(address, Dialect::Session).await?;
    let mut times = Vec::with_capacity(n_calls);
    for number in 0..n_calls {
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

async fn timed<T>(work: impl Future<Output = CommandResult<T>>) -> CommandResult<(Duration, T)> {
    let start = Instant::now();
    let done = work.await?;
    Ok((start.elapsed(), done))
}

fn initialize(id: usize) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "warren bench", "version": env!("CARGO_PKG_VERSION") },
    }})
}

fn expect(answer: &Value, pointer: &str, value: &Value) -> CommandResult<()> {
    if answer.pointer(pointer) == Some(value) { Ok(()) } else { Err(unexpected(answer)) }
}

fn unexpected(answer: &Value) -> crate::error::CommandError {
    let shown: String = answer.to_string().chars().take(400).collect();
    Error::new(ErrorKind::Internal, format!("an answer that the bench did not expect: {shown}")).into()
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}
