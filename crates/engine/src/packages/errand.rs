//! Small questions asked by running a program inside: bounded in time and output, and in nobody's log.
//!
//! Not an exec of the caller's: nothing is recorded, and a daemon that dies meanwhile leaves at most one answer that nobody
//! takes in the guest. Whoever gives up on an answer ends the program and takes what is left of it.

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

/// Most that is read of what it prints.
const MAX_OUTPUT_BYTES: usize = 8 * 1024 * 1024;
/// As much of what it complains as is kept.
const MAX_COMPLAINT_BYTES: usize = 4 * 1024;
/// Whoever asked waits for it, and a program that takes longer is stuck or starved.
const TIME_LIMIT: Duration = Duration::from_secs(15);
/// Beyond its own limit, which the guest holds.
const PATIENCE: Duration = Duration::from_secs(5);
/// As long as what is left of one is followed after nobody wants its answer.
const CLEAR_WITHIN: Duration = Duration::from_secs(60);

/// What came back.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) stdout: Vec<u8>,
    stderr: Vec<u8>,
    code: Option<u8>,
    timed_out: bool,
}

impl Told {
    pub(super) fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// Its last words, fit to be shown.
    pub(super) fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(|| "no output".to_owned(), error::readable)
    }
}

/// Runs a program inside and returns what it printed; `None` when there is no such program.
pub(super) async fn run(
    life: &Life,
    plan: &SandboxPlan,
    command: &[&str],
    cwd: &str,
) -> Result<Option<Told>> {
    let label = life.client.label();
    match timeout(TIME_LIMIT + PATIENCE, ask(life, plan, command, cwd)).await {
        Ok(Ok(told)) if !told.as_ref().is_some_and(|told| told.timed_out) => Ok(told),
        Ok(Err(failed)) => Err(error::from_guest(failed, label)),
        // Its time was up inside, or nothing was heard even of that.
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
) -> Result<Option<Told>, GuestError> {
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
    // From here on it may run, whether or not we hear that it does.
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
    let told = listen(&mut events, life.client.label(), command).await?;
    leftover.is_none = true;
    Ok(Some(told))
}

/// What stays in the guest of an errand whose answer nobody takes: cleared away when this is dropped, by whatever way its
/// holder left.
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
                    tracing::debug!(exec = id, %error, "nothing is left of an errand, or cannot be cleared");
                }
                Err(_elapsed) => tracing::warn!(exec = id, "an errand that nobody waits for does not end"),
            }
        });
    }
}

/// Kills it and takes what it still says, so that the guest can forget it.
async fn clear_away(client: &GuestClient, id: &str) -> Result<(), GuestError> {
    let kill = Request::ExecSignal { id: id.to_owned(), signal: SIGKILL, scope: SignalScope::Group };
    match client.call(&kill).await {
        // A refusal: it has ended already, and what it said is still there.
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

async fn listen(events: &mut ExecStream, label: &Subject, command: &[&str]) -> Result<Told, GuestError> {
    let mut told = Told::default();
    loop {
        let (number, event) = events.next().await?;
        let is_over = matches!(event, ExecEvent::Closed);
        match event {
            ExecEvent::Stdout(bytes) if told.stdout.len() + bytes.len() > MAX_OUTPUT_BYTES => {
                return Err(GuestError::Source(too_much(label, command)));
            }
            ExecEvent::Stdout(bytes) => told.stdout.extend_from_slice(&bytes),
            ExecEvent::Stderr(bytes) => {
                told.stderr.extend_from_slice(&bytes);
                let surplus = told.stderr.len().saturating_sub(MAX_COMPLAINT_BYTES);
                told.stderr.drain(..surplus);
            }
            ExecEvent::Exited(report) => (told.code, told.timed_out) = (report.code, report.timed_out),
            ExecEvent::Started { .. } | ExecEvent::Rich(_) | ExecEvent::Closed => {}
        }
        events.acknowledge(number).await?;
        if is_over {
            return Ok(told);
        }
    }
}

fn too_much(label: &Subject, command: &[&str]) -> Error {
    let program = command.first().unwrap_or(&"");
    let message = format!("{label}: {program} printed more than {MAX_OUTPUT_BYTES} bytes");
    Error::new(ErrorKind::LimitReached, message)
        .with_hint(format!("Run {program} yourself to see its output."))
}
