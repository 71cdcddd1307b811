//! `sandbox_run_command`: a program and its arguments, without a shell.

use std::time::Duration;

use engine::{RunEnd, RunOptions};
use sandbox::{Error, ErrorKind, ExecOutcome, ExecSpec, KillReason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    lines::{Line, Lines, Stream},
    target::Target,
};
use crate::mcp::{Answer, Call, Failure, Followed, ToolResult, while_running};

/// Longer time limits are cut to this: a year is as good as none.
const MAX_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// Name of a sandbox that was started
    sandbox: String,
    /// Namespace of the sandbox
    namespace: String,
    /// The program
    command: String,
    args: Option<Vec<String>>,
    /// Seconds
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Ran {
    command: String,
    args: Vec<String>,
    exit_code: u8,
    success: bool,
    output: Vec<Line>,
}

pub(super) async fn run(call: Call, arguments: Arguments) -> ToolResult<Ran> {
    let target = Target::new(&call, &arguments.sandbox, &arguments.namespace)?;
    let call = &target.call;
    let Arguments { command, args, timeout, .. } = arguments;
    let (args, limit) = (args.unwrap_or_default(), seconds(call, timeout));
    let argv = std::iter::once(&command).chain(&args).cloned().collect();
    let spec = ExecSpec { command: argv, timeout: Some(limit), ..ExecSpec::default() };
    spec.check().map_err(Error::from)?;
    let exec = call.engine().exec(&call.who, &target.which, spec).await?;
    let cancel = Some(call.cancelled.clone());
    let options = RunOptions { limit: Some(limit), cancelled: cancel, ..RunOptions::default() };
    let run = call.engine().run_to_end(&call.who, &exec, options).await?;
    let mut lines = Lines::new(call.max_bytes(None));
    let Followed { end, .. } = while_running(call, run, Some(limit), |entry| lines.take(entry)).await?;
    let outcome = match end {
        RunEnd::Ended(outcome) => outcome,
        RunEnd::Cancelled(_) => return Err(cancelled()),
        RunEnd::Overdue | RunEnd::Left => return Err(overdue(&target.name)),
    };
    match &outcome {
        // Where a shell would say it.
        ExecOutcome::NotStarted { message, .. } => lines.say(Stream::Stderr, message),
        ExecOutcome::Killed { reason: KillReason::TimeLimit } => {
            lines
                .say(Stream::Stderr, &format!("killed at its time limit of {} seconds", limit.as_secs_f64()));
        }
        ExecOutcome::Exited { .. } | ExecOutcome::Signaled { .. } | ExecOutcome::Killed { .. } => {}
    }
    let (exit_code, success) = (outcome.exit_code(), outcome.is_success());
    Ok(Answer::new(Ran { command, args, exit_code, success, output: lines.finish() }))
}

/// The time limit that was asked for, or else the one that every call has.
pub(super) fn seconds(call: &Call, asked: Option<u64>) -> Duration {
    let asked = asked.map(|seconds| Duration::from_secs(seconds).min(MAX_TIME_LIMIT));
    asked.unwrap_or_else(|| call.settings.default_timeout())
}

pub(super) fn cancelled() -> Failure {
    Error::new(ErrorKind::Cancelled, "the call was cancelled").into()
}

pub(super) fn overdue(sandbox: &str) -> Failure {
    let message = format!("the time limit is over, and sandbox {sandbox:?} did not report how it ended");
    Error::new(ErrorKind::TimedOut, message).into()
}
