//! The bench's own daemon, in a temporary directory, and a client for its Unix socket.

use std::{
    cell::RefCell,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response,
    body::{Frame, Incoming},
    client::conn::http1::{self, SendRequest},
    header::{CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
};

use crate::report::Report;

/// How long the daemon may take to start and to stop.
const PATIENCE: Duration = Duration::from_secs(20);
const JSON: &str = "application/json";
const LOOK_EVERY: Duration = Duration::from_millis(1);

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

pub(crate) struct Daemon {
    program: PathBuf,
    process: Child,
    directory: TempDir,
    /// Idle connections.
    kept: RefCell<Vec<SendRequest<Body>>>,
}

impl Daemon {
    /// Starts `program` and waits until it answers; `arguments` follow `serve`. No places wait for sandboxes: making
    /// them would be measured with everything else.
    pub(crate) async fn start(program: &Path, arguments: &[&str]) -> Result<Self> {
        Self::start_with_pool(program, arguments, 0).await
    }

    /// So many places wait, from the first sandbox on.
    pub(crate) async fn start_with_pool(program: &Path, arguments: &[&str], size: usize) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("warren-bench-").tempdir()?;
        let config = directory.path().join("config.toml");
        fs::write(&config, format!("[pool]\nsize = {size}\nfrom_rate = 1\n"))?;
        let process = command(program, &directory)
            .args(["serve", "--config"])
            .arg(&config)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("could not start {}", program.display()))?;
        let mut daemon = Self { program: program.to_owned(), process, directory, kept: RefCell::default() };
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(daemon.socket()).await.is_err() {
            if let Some(status) = daemon.process.try_wait()? {
                bail!("the daemon ended ({status}); `warren doctor` shows what this host lacks");
            }
            if Instant::now() > deadline {
                bail!("the daemon is not ready after {PATIENCE:?}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(daemon)
    }

    /// Stops it and removes its directory. Sandboxes outlive their daemon, so those of a failed run are removed first.
    pub(crate) async fn stop(mut self) {
        let left = self.get("/sandboxes").await.unwrap_or_default();
        for sandbox in left["sandboxes"].as_array().into_iter().flatten() {
            self.remove(sandbox["id"].as_str().unwrap_or_default()).await.ok();
        }
        if let Some(pid) = self.pid() {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
            tokio::time::timeout(PATIENCE, self.process.wait()).await.ok();
        }
    }

    /// The same program, as a client of this daemon.
    pub(crate) fn command(&self) -> Command {
        command(&self.program, &self.directory)
    }

    /// A directory for files that are removed with the bench.
    pub(crate) fn scratch(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn run_directory(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    fn socket(&self) -> PathBuf {
        self.run_directory().join("warren.sock")
    }

    /// Its TCP address, if it was told to listen. The daemon writes it down after its socket exists.
    pub(crate) async fn address(&self) -> Result<SocketAddr> {
        let path = self.run_directory().join("http.json");
        let deadline = Instant::now() + PATIENCE;
        while !path.exists() && Instant::now() < deadline {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let note: Value = serde_json::from_slice(&fs::read(path)?)?;
        let address = note["url"].as_str().and_then(|url| url.split_once("://")?.1.parse().ok());
        address.with_context(|| format!("no address in {note}"))
    }

    fn pid(&self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(i32::try_from(self.process.id()?).ok()?)
    }

    /// Its resident memory.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()?)).ok()?;
        kib_field(&status, "VmRSS:")
    }

    /// The process of that sandbox's guest.
    pub(crate) fn guest(&self, sandbox: &str) -> Option<u32> {
        let pid = fs::read_to_string(self.run_directory().join(sandbox).join("pid")).ok()?;
        pid.split_whitespace().next()?.parse().ok()
    }

    /// Memory that only the guest of that sandbox uses.
    pub(crate) fn guest_private_bytes(&self, sandbox: &str) -> Option<u64> {
        let pid = self.guest(sandbox)?;
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        Some(kib_field(&rollup, "Private_Clean:")? + kib_field(&rollup, "Private_Dirty:")?)
    }

    /// Makes a sandbox and returns its id.
    pub(crate) async fn create(&self, spec: Value) -> Result<String> {
        text(&self.post("/sandboxes", spec).await?, "/id")
    }

    /// Makes a sandbox and runs a command in it that must succeed, in one request. Returns the sandbox and the output.
    pub(crate) async fn run(&self, command: &[&str]) -> Result<(String, String)> {
        let ran = self.post("/runs?wait=true", json!({ "exec": { "command": command } })).await?;
        Ok((text(&ran, "/sandbox/id")?, printed(&ran["exec"], command)?))
    }

    pub(crate) async fn remove(&self, sandbox: &str) -> Result<()> {
        self.delete(&format!("/sandboxes/{sandbox}?force=true")).await
    }

    /// Runs a command that must succeed and returns its output.
    pub(crate) async fn exec(&self, sandbox: &str, command: &[&str]) -> Result<String> {
        let route = format!("/sandboxes/{sandbox}/execs?wait=true");
        printed(&self.post(&route, json!({ "command": command })).await?, command)
    }

    /// The same through a shell.
    pub(crate) async fn shell(&self, sandbox: &str, script: &str) -> Result<String> {
        self.exec(sandbox, &["/bin/sh", "-c", script]).await
    }

    pub(crate) async fn get(&self, route: &str) -> Result<Value> {
        json_of(self.call(Method::GET, route, JSON, whole("")).await?).await
    }

    pub(crate) async fn post(&self, route: &str, body: Value) -> Result<Value> {
        json_of(self.call(Method::POST, route, JSON, whole(body.to_string())).await?).await
    }

    /// The same for an answer in lines of JSON; returns the last one.
    pub(crate) async fn post_for_last_line(&self, route: &str, body: Value) -> Result<Value> {
        let body = self.call(Method::POST, route, JSON, whole(body.to_string())).await?;
        let bytes = body.collect().await?.to_bytes();
        let last = bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        Ok(serde_json::from_slice(last)?)
    }

    pub(crate) async fn delete(&self, route: &str) -> Result<()> {
        self.call(Method::DELETE, route, JSON, whole("")).await?.collect().await?;
        Ok(())
    }

    /// Sends bytes piece by piece.
    pub(crate) async fn send(
        &self,
        method: Method,
        route: &str,
        pieces: impl Iterator<Item = Bytes> + Send + 'static,
    ) -> Result<()> {
        let body = StreamBody::new(stream::iter(pieces.map(|piece| Ok(Frame::data(piece)))));
        self.call(method, route, "application/octet-stream", body.boxed_unsync()).await?.collect().await?;
        Ok(())
    }

    /// The answer's bytes as they come.
    pub(crate) async fn read(&self, route: &str) -> Result<Incoming> {
        self.call(Method::GET, route, JSON, whole("")).await
    }

    /// The answer's body. Routes begin after `/v1`.
    async fn call(&self, method: Method, route: &str, kind: &str, body: Body) -> Result<Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(format!("/v1{route}"))
            .header(HOST, "warren")
            .header(CONTENT_TYPE, kind)
            .body(body)?;
        let mut sender = self.connection().await?;
        let answer = sender.send_request(request).await?;
        self.kept.borrow_mut().push(sender);
        checked(answer, route).await
    }

    /// An idle connection whose last answer was read to its end, or a new one.
    async fn connection(&self) -> Result<SendRequest<Body>> {
        // A connection whose answer was just read to its end is free once its task has noticed.
        tokio::task::yield_now().await;
        let free = {
            let mut kept = self.kept.borrow_mut();
            kept.retain(|sender| !sender.is_closed());
            kept.iter().position(SendRequest::is_ready).map(|position| kept.swap_remove(position))
        };
        if let Some(sender) = free {
            return Ok(sender);
        }
        let stream = UnixStream::connect(self.socket()).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        sender.ready().await?;
        Ok(sender)
    }
}

fn command(program: &Path, directory: &TempDir) -> Command {
    let mut command = Command::new(program);
    command.env("WARREN_HOME", directory.path().join("home")).env("WARREN_RUN", directory.path().join("run"));
    // Several daemons live at the same time, beside the user's own. `--listen` is stronger.
    command.env("WARREN_LISTEN", "none");
    command
}

fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// The output of a command that must have succeeded.
fn printed(result: &Value, command: &[&str]) -> Result<String> {
    if result["exitCode"] != 0 {
        bail!("{command:?} did not work: {result}");
    }
    Ok(result.pointer("/stdout/text").and_then(Value::as_str).unwrap_or_default().to_owned())
}

async fn checked(answer: Response<Incoming>, route: &str) -> Result<Incoming> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer.into_body());
    }
    let body = answer.into_body().collect().await?.to_bytes();
    bail!("{route} answered {status}: {}", String::from_utf8_lossy(&body))
}

async fn json_of(body: Incoming) -> Result<Value> {
    Ok(serde_json::from_slice(&body.collect().await?.to_bytes())?)
}

pub(crate) fn text(answer: &Value, pointer: &str) -> Result<String> {
    let found = answer.pointer(pointer).and_then(Value::as_str);
    found.map(str::to_owned).with_context(|| format!("no {pointer} in {answer}"))
}

/// The beginning of a report.
pub(crate) fn machine() -> Report {
    Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        rootless: !rustix::process::geteuid().is_root(),
        ..Report::default()
    }
}

/// A line such as `VmRSS:   1234 kB`, in bytes.
pub(crate) fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
