//! Finds the daemon, or starts one.
//!
//! A started daemon reports on its stdout that it is ready, or why it is not. Several commands may start one at the
//! same time: only one can lock the data directory, and the other commands connect to that one.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use sandbox::{Error, ErrorKind, Namespace, Result};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::UnixStream,
    process::{Child, Command},
    time::{Instant, sleep, timeout_at},
};

use super::transport::unreachable;
use crate::{
    arguments,
    daemon::{LockNote, Readiness},
    directories::{Directories, SOCKET_NAME},
    env, output,
};

/// How long a command waits for a daemon that is starting or shutting down.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a command waits for a daemon that says it can be reached, and is not: it may be making its socket again.
const LOST_PATIENCE: Duration = Duration::from_secs(5);
/// Shortest and longest pause between two checks for a daemon that someone else is starting, or that is shutting down.
const MIN_RETRY: Duration = Duration::from_millis(5);
const MAX_RETRY: Duration = Duration::from_millis(250);
/// A log larger than this is set aside when the next daemon starts.
const MAX_LOG_BYTES: u64 = 8 * 1024 * 1024;
/// Longest line that a starting daemon may print.
const MAX_READY_BYTES: u64 = 64 * 1024;

/// Whether to start a daemon if none answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartMode {
    IfNeeded,
    Never,
}

#[derive(Debug, Clone)]
pub(crate) struct ClientOptions {
    pub(crate) directories: Directories,
    pub(crate) namespace: Option<Namespace>,
    pub(crate) start: StartMode,
}

/// Connects, and starts a daemon if there is none. Returns the socket's path too.
pub(super) async fn reach(options: &ClientOptions) -> Result<(UnixStream, PathBuf)> {
    let begun = Instant::now();
    let deadline = begun + PATIENCE;
    let mut retry = MIN_RETRY;
    loop {
        // Each time: a daemon that was started meanwhile may have another run directory.
        let directories = options.directories.current();
        let socket = directories.socket()?;
        let error = match UnixStream::connect(&socket).await {
            Ok(stream) => return Ok((stream, socket)),
            Err(error) => error,
        };
        let is_absent = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        if !is_absent || options.start == StartMode::Never || Instant::now() >= deadline {
            return Err(unreachable(&socket, error));
        }
        match start(&directories, deadline).await? {
            Readiness::Ready => {}
            Readiness::Locked { .. } => {
                if begun.elapsed() >= LOST_PATIENCE
                    && let Some(note) = LockNote::of(&directories.home).filter(|note| note.is_serving)
                {
                    return Err(lost(&directories, &note));
                }
                sleep(retry).await;
                retry = (retry * 2).min(MAX_RETRY);
            }
            Readiness::Failed { error } => return Err(error.into_error()),
        }
    }
}

/// A daemon runs and says that it can be reached, but not where this command looks.
fn lost(directories: &Directories, note: &LockNote) -> Error {
    let pid = note.pid.map_or_else(|| "<pid>".to_owned(), |pid| pid.to_string());
    let Directories { home, run, .. } = directories;
    let of = format!("the daemon (pid {pid}) of {}", home.display());
    match &note.run {
        Some(its) if its != run && its.join(SOCKET_NAME).exists() => {
            let (its, run) = (its.display(), run.display());
            Error::new(ErrorKind::Unavailable, format!("{of} has the run directory {its}, not {run}"))
                .with_hint(format!("Pass --run-dir {its}, or omit --run-dir and WARREN_RUN."))
        }
        its => {
            let run = its.as_deref().unwrap_or(run).display();
            Error::new(ErrorKind::Unavailable, format!("{of} has lost its socket in {run}")).with_hint(format!(
                "`kill {pid}` stops it, and the next command starts another. Sandboxes whose files in the run \
                 directory are gone too end then."
            ))
        }
    }
}

/// Starts this same program as a daemon and waits for its first message.
async fn start(directories: &Directories, deadline: Instant) -> Result<Readiness> {
    let idle_exit = env::text(env::IDLE_EXIT).unwrap_or_else(|| "10m".to_owned());
    arguments::duration(&idle_exit)
        .map_err(|error| Error::invalid(format!("invalid {}: {error}", env::IDLE_EXIT)))?;
    spawn(directories, &["--idle-exit".to_owned(), idle_exit], deadline).await
}

/// Starts a daemon in the background with these flags, and waits until it is ready or says why it is not.
pub(crate) async fn start_daemon(directories: &Directories, flags: &[String]) -> Result<Readiness> {
    spawn(directories, flags, Instant::now() + PATIENCE).await
}

async fn spawn(directories: &Directories, flags: &[String], deadline: Instant) -> Result<Readiness> {
    let failed = |what: &str, error: io::Error| {
        Error::new(ErrorKind::Unavailable, format!("could not start the daemon: {what}: {error}"))
    };
    directories.make()?;
    let log = open_log(&directories.log()).map_err(|error| failed("its log", error))?;
    let log_begin = log.metadata().map_or(0, |metadata| metadata.len());
    let program = std::env::current_exe().map_err(|error| failed("its program", error))?;
    let mut daemon = Command::new(program)
        // Every sandbox can read the arguments of the command that its first process came from, though not its
        // environment; so paths of this machine go into the environment.
        .arg0("warren")
        .env(env::HOME_DIRECTORY, &directories.home)
        .env(env::RUN_DIRECTORY, &directories.run)
        .args(["serve", "--detached"])
        .args(flags)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| failed("its process", error))?;
    first_word(&mut daemon, directories, log_begin, deadline).await
}

/// `log_begin`: where the log of this daemon begins in its file.
async fn first_word(
    daemon: &mut Child,
    directories: &Directories,
    log_begin: u64,
    deadline: Instant,
) -> Result<Readiness> {
    let mut line = String::new();
    if let Some(stdout) = daemon.stdout.take() {
        let mut reader = BufReader::new(stdout.take(MAX_READY_BYTES));
        match timeout_at(deadline, reader.read_line(&mut line)).await {
            // A message that cannot be parsed counts as none.
            Ok(read) => drop(read),
            Err(_elapsed) => return Err(not_ready(directories, daemon.id())),
        }
    }
    serde_json::from_str(&line).map_err(|_silent| {
        let why = last_words(&directories.log(), log_begin);
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let message = format!("the daemon exited before it was ready{why}");
        Error::new(ErrorKind::Unavailable, message)
            .with_hint(format!("Its log is in {}.", directories.log().display()))
    })
}

/// The daemon is alive and may still become ready; the next command will find it.
fn not_ready(directories: &Directories, pid: Option<u32>) -> Error {
    let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    let message = format!("the daemon{pid} is not ready after {} s", PATIENCE.as_secs());
    Error::new(ErrorKind::TimedOut, message)
        .with_hint(format!("It is still starting; its log is in {}.", directories.log().display()))
}

/// The error that a daemon printed last, else its last line.
fn last_words(log: &Path, begin: u64) -> Option<String> {
    let mut text = String::new();
    let mut file = File::open(log).ok()?;
    file.seek(SeekFrom::Start(begin)).ok()?;
    file.take(MAX_READY_BYTES).read_to_string(&mut text).ok()?;
    let lines = || text.lines().rev().filter(|line| !line.trim().is_empty());
    let line = lines().find_map(|line| line.strip_prefix("error: ")).or_else(|| lines().next())?;
    Some(output::printable(line))
}

fn open_log(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
        fs::rename(path, path.with_extension("log.1"))?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn word_of(program: &str, deadline: Instant) -> (Option<u32>, Error) {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let directories = Directories::at("/srv/home".into(), "/srv/run".into());
        let pid = child.id();
        (pid, first_word(&mut child, &directories, 0, deadline).await.unwrap_err())
    }

    #[tokio::test]
    async fn a_daemon_that_is_slow_is_not_called_dead() {
        // Prints nothing while its stdin is open.
        let (pid, error) = word_of("cat", Instant::now()).await;
        assert!(error.to_string().contains(&format!("pid {}", pid.unwrap())), "{error}");
        assert!(error.to_string().contains("not ready after 20 s"), "{error}");
        assert!(crate::error::hint(&error).unwrap().contains("/srv/home/daemon.log"), "{error}");
    }

    #[test]
    fn the_reason_why_a_daemon_ended_is_in_its_log() {
        let log = tempfile::NamedTempFile::new().unwrap();
        fs::write(log.path(), "error: of an earlier one\nerror: unknown key \"a\"\nhint: Correct it.\n")
            .unwrap();
        assert_eq!(last_words(log.path(), 25).as_deref(), Some("unknown key \"a\""));
        fs::write(log.path(), "one\nlast\n\n").unwrap();
        assert_eq!(last_words(log.path(), 0).as_deref(), Some("last"));
        assert_eq!(last_words(log.path(), 11), None);
    }

    #[tokio::test]
    async fn a_daemon_that_ended_is_called_so() {
        let (_, error) = word_of("true", Instant::now() + PATIENCE).await;
        assert!(error.to_string().contains("exited before"), "{error}");
    }
}
