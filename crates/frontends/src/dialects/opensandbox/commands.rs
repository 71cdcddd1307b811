//! Commands: how a line is run, and how one is ended.

use std::time::Duration;

use engine::{ExecView, SandboxRef, SignalScope};
use sandbox::{Error, ErrorKind, ExecId, ExecSpec, Next, Result, Thing};

use super::handle::{SandboxHandle, shown};

pub(super) const SIGHUP: i32 = 1;
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
/// How long a command may take to end by itself, as in OpenSandbox.
const TERM_PATIENCE: Duration = Duration::from_secs(3);
/// How long the program of a terminal may take to end after it was hung up.
const HANG_UP_PATIENCE: Duration = Duration::from_secs(1);
/// How long a killed command may take to end.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// A command's id. Ids are opaque to clients, so a text that is none belongs to a command that does not exist.
pub(super) fn exec_id(text: &str) -> Result<ExecId> {
    text.parse().map_err(|_malformed| Error::no_such(Thing::Exec, shown(text)))
}

/// Starts a line, which the sandbox's shell reads.
pub(super) async fn start_line(sandbox: SandboxHandle<'_>, line: String, spec: ExecSpec) -> Result<ExecView> {
    let SandboxHandle { engine, who, which } = sandbox;
    engine.ensure_running(who, which).await?;
    let shell = engine.shell(who, which).await?;
    start(sandbox, ExecSpec { command: vec![shell, "-c".to_owned(), line], ..spec }).await
}

pub(super) async fn start(sandbox: SandboxHandle<'_>, spec: ExecSpec) -> Result<ExecView> {
    spec.check().map_err(Error::from)?;
    Ok(sandbox.engine.exec_ensuring_running(sandbox.who, sandbox.which, spec).await?.0)
}

/// Ends a command: first by asking, then by force. One that has ended is in the wrong state for this.
pub(super) async fn end(sandbox: SandboxHandle<'_>, id: &ExecId) -> Result<()> {
    end_by(sandbox, id, SIGTERM, TERM_PATIENCE).await
}

/// The same for a terminal: an interactive shell ignores what asks other commands to end.
pub(super) async fn hang_up(sandbox: SandboxHandle<'_>, id: &ExecId) -> Result<()> {
    end_by(sandbox, id, SIGHUP, HANG_UP_PATIENCE).await
}

async fn end_by(sandbox: SandboxHandle<'_>, id: &ExecId, signal: i32, patience: Duration) -> Result<()> {
    let exec = sandbox.engine.exec_view(sandbox.who, sandbox.which, id).await?;
    let (engine, who) = (sandbox.engine.clone(), sandbox.who.clone());
    let (which, id) = (SandboxRef::from(&exec.sandbox), exec.id);
    // In a task of its own: a client that goes away has asked all the same.
    let ending = tokio::spawn(async move {
        engine.exec_signal(&who, &which, &id, signal, SignalScope::Group).await?;
        if engine.wait_exec(&who, &which, &id, Some(patience)).await?.outcome.is_some() {
            return Ok(());
        }
        match engine.exec_signal(&who, &which, &id, SIGKILL, SignalScope::Group).await {
            // It ended between the two.
            Err(error) if error.kind() == ErrorKind::WrongState => return Ok(()),
            sent => sent?,
        }
        match engine.wait_exec(&who, &which, &id, Some(KILL_PATIENCE)).await?.outcome {
            Some(_) => Ok(()),
            None => {
                let message = format!("command {id} was killed and has not ended yet");
                Err(Error::new(ErrorKind::TimedOut, message).with_next(Next::Retry))
            }
        }
    });
    ending.await.map_err(|error| {
        Error::new(ErrorKind::Internal, "the task that waits for the command's end failed").with_source(error)
    })?
}
