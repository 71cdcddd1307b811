//! Small questions asked by running a program inside: bounded in time and output, and in nobody's log.
//!
//! Not an exec of the caller's: nothing is recorded, and a daemon that dies meanwhile leaves at most one answer that nobody
//! takes in the guest.

use std::time::Duration;

use guest_protocol::{ExecEvent, ExecStart};
use sandbox::{Error, ErrorKind, Result, SandboxPlan};
use tokio::time::timeout;

use crate::{
    client::{ExecStream, GuestError, StartAnswer},
    error, names,
    shared::Life,
};

/// Most that is read of what it prints.
const MAX_OUTPUT_BYTES: usize = 8 * 1024 * 1024;
/// As much of what it complains as is kept.
const MAX_COMPLAINT_BYTES: usize = 4 * 1024;
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Beyond its own limit, which the guest holds.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came back.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) stdout: Vec<u8>,
    stderr: Vec<u8>,
    code: Option<u8>,
}

impl Told {
    pub(super) fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// Its last words, fit to be shown.
    pub(super) fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(|| "it said nothing".to_owned(), error::readable)
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
        Ok(Ok(told)) => Ok(told),
        Ok(Err(failed)) => Err(error::from_guest(failed, label)),
        Err(_elapsed) => {
            let program = command.first().unwrap_or(&"");
            Err(Error::new(ErrorKind::TimedOut, format!("{label}: {program} gave no answer in time"))
                .with_hint("Look at what runs in the sandbox, and try again."))
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
    let wire = match life.client.start_exec(start).await? {
        StartAnswer::Started { wire, .. } => wire,
        StartAnswer::NotStarted { reason: guest_protocol::StartFailure::NotFound, .. } => return Ok(None),
        StartAnswer::NotStarted { message, .. } => {
            let failure = guest_protocol::Failure::new(guest_protocol::FailureKind::WrongState, message);
            return Err(GuestError::Refused(failure));
        }
    };
    let mut events = life.client.attach(&id, 1, Some(wire)).await?;
    listen(&mut events).await.map(Some)
}

async fn listen(events: &mut ExecStream) -> Result<Told, GuestError> {
    let mut told = Told::default();
    loop {
        let (number, event) = events.next().await?;
        let is_over = matches!(event, ExecEvent::Closed);
        match event {
            ExecEvent::Stdout(bytes) if told.stdout.len() + bytes.len() > MAX_OUTPUT_BYTES => {
                return Err(GuestError::Nonsense("an answer without end"));
            }
            ExecEvent::Stdout(bytes) => told.stdout.extend_from_slice(&bytes),
            ExecEvent::Stderr(bytes) => {
                told.stderr.extend_from_slice(&bytes);
                let surplus = told.stderr.len().saturating_sub(MAX_COMPLAINT_BYTES);
                told.stderr.drain(..surplus);
            }
            ExecEvent::Exited(report) => told.code = report.code,
            ExecEvent::Started { .. } | ExecEvent::Rich(_) | ExecEvent::Closed => {}
        }
        events.acknowledge(number).await?;
        if is_over {
            return Ok(told);
        }
    }
}
