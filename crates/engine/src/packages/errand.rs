//! Errands: programs run inside to answer small questions, bounded in time and output, and not logged.
//!
//! They are not the caller's execs: nothing is recorded, and a daemon that dies meanwhile leaves at most one unread
//! answer in the guest. A caller that gives up on an answer ends the program and discards its output.

use std::{sync::Arc, time::Duration};

use guest_protocol::{ExecEvent, ExecStart, Request, SignalScope};
use sandbox::{Error, ErrorKind, Result, SandboxPlan, Subject};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    client::{ExecStream, GuestClient, GuestError, StartAnswer},
    error, names,
    outcome::SIGKILL,
    shared::Life,
};

/// Most output read.
const MAX_OUTPUT_BYTES: usize = 8 * 1024 * 1024;
/// How much of its stderr is kept.
const MAX_COMPLAINT_BYTES: usize = 4 * 1024;
/// The caller waits for it, and a slower program is stuck or starved.
const TIME_LIMIT: Duration = Duration::from_secs(15);
/// Time beyond its own limit, which the guest enforces.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an abandoned errand is followed.
const CLEAR_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct ErrandOutput {
    pub(super) stdout: Vec<u8>,
    stderr: Vec<u8>,
    code: Option<u8>,
    timed_out: bool,
}

impl ErrandOutput {
    pub(super) fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// The last line of its stderr, made safe to show.
    pub(super) fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(|| "no output".to_owned(), error::readable)
    }
}

/// Runs a program inside and returns its output; `None` if there is no such program.
pub(super) async fn run(
    life: &Life,
    plan: &SandboxPlan,
    command: &[&str],
    cwd: &str,
) -> Result<Option<ErrandOutput>> {
    let label = life.client.label();
    match timeout(TIME_LIMIT + PATIENCE, ask(life, plan, command, cwd)).await {
        Ok(Ok(output)) if !output.as_ref().is_some_and(|output| output.timed_out) => Ok(output),
        Ok(Err(failed)) => Err(error::from_guest(failed, label)),
        // Its time was up inside, or the guest is silent.
        Ok(Ok(_)) | Err(_) => {
            let program = command.first().unwrap_or(&"");
            Err(Error::new(ErrorKind::TimedOut, format!("{label}: {program} did not answer in time"))
                .with_hint("Check what is running in the sandbox, and try again."))
        }
    }
}

async fn ask(
    life: &Life,
    plan: &SandboxPlan,
    command: &[&str],
    cwd: &str,
) -> Result<Option<ErrandOutput>, GuestError> {
    let id = names::random_exec_id().map_err(GuestError::Source)?.to_string();
    let start = ExecStart {
        id: id.clone(),
        command: command.iter().map(|&word| word.to_owned()).collect(),
        env: plan.env.clone(),
        cwd: cwd.to_owned(),
        user: plan.user.clone(),
        timeout_ms: Some(u64::try_from(TIME_LIMIT.as_millis()).unwrap_or(u64::MAX)),
        ..ExecStart::default()
    };
    // From here on it may run, whether or not we hear of it.
    let mut leftover = Leftover::of(life, &id);
    let wire = match life.client.start_exec(start).await? {
        StartAnswer::Started { wire, .. } => wire,
        StartAnswer::NotStarted { reason, message } => {
            leftover.is_none = true;
            if reason == guest_protocol::StartFailure::NotFound {
                return Ok(None);
            }
            let failure = guest_protocol::Failure::new(guest_protocol::FailureKind::WrongState, message);
            return Err(GuestError::Refused(failure));
        }
    };
    let mut events = life.client.attach(&id, 1, Some(wire)).await?;
    let output = listen(&mut events, life.client.label(), command).await?;
    leftover.is_none = true;
    Ok(Some(output))
}

/// The remains of an abandoned errand in the guest: removed when this is dropped, however its holder left.
struct Leftover {
    client: Arc<GuestClient>,
    over: CancellationToken,
    id: String,
    is_none: bool,
}

impl Leftover {
    fn of(life: &Life, id: &str) -> Self {
        let (client, over) = (Arc::clone(&life.client), life.over.clone());
        Self { client, over, id: id.to_owned(), is_none: false }
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.is_none {
            return;
        }
        let (client, over, id) = (Arc::clone(&self.client), self.over.clone(), std::mem::take(&mut self.id));
        runtime.spawn(async move {
            let cleared = timeout(CLEAR_WITHIN, clear_away(&client, &id));
            let cleared = tokio::select! {
                () = over.cancelled() => return,
                cleared = cleared => cleared,
            };
            match cleared {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(exec = id, %error, "an errand has no remains, or they cannot be removed");
                }
                Err(_elapsed) => tracing::warn!(exec = id, "an errand that nobody waits for does not end"),
            }
        });
    }
}

/// Kills it and reads its remaining output, so that the guest can forget it.
async fn clear_away(client: &GuestClient, id: &str) -> Result<(), GuestError> {
    let kill = Request::ExecSignal { id: id.to_owned(), signal: SIGKILL, scope: SignalScope::Group };
    match client.call(&kill).await {
        // A refusal: it has already ended, and its output is still there.
        Ok(_) | Err(GuestError::Refused(_)) => {}
        Err(error) => return Err(error),
    }
    let mut events = client.attach(id, 1, None).await?;
    loop {
        let (number, event) = events.next().await?;
        events.acknowledge(number).await?;
        if matches!(event, ExecEvent::Closed) {
            return Ok(());
        }
    }
}

async fn listen(
    events: &mut ExecStream,
    label: &Subject,
    command: &[&str],
) -> Result<ErrandOutput, GuestError> {
    let mut output = ErrandOutput::default();
    loop {
        let (number, event) = events.next().await?;
        let is_over = matches!(event, ExecEvent::Closed);
        match event {
            ExecEvent::Stdout(bytes) if output.stdout.len() + bytes.len() > MAX_OUTPUT_BYTES => {
                return Err(GuestError::Source(too_much(label, command)));
            }
            ExecEvent::Stdout(bytes) => output.stdout.extend_from_slice(&bytes),
            ExecEvent::Stderr(bytes) => {
                output.stderr.extend_from_slice(&bytes);
                let surplus = output.stderr.len().saturating_sub(MAX_COMPLAINT_BYTES);
                output.stderr.drain(..surplus);
            }
            ExecEvent::Exited(report) => (output.code, output.timed_out) = (report.code, report.timed_out),
            ExecEvent::Started { .. } | ExecEvent::Rich(_) | ExecEvent::Closed => {}
        }
        events.acknowledge(number).await?;
        if is_over {
            return Ok(output);
        }
    }
}

fn too_much(label: &Subject, command: &[&str]) -> Error {
    let program = command.first().unwrap_or(&"");
    let message = format!("{label}: {program} printed more than {MAX_OUTPUT_BYTES} bytes");
    Error::new(ErrorKind::LimitReached, message)
        .with_hint(format!("Run {program} yourself to see its output."))
}
