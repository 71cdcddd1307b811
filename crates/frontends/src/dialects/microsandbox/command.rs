//! `sandbox_run_command`: a program and its arguments, without a shell.

use sandbox::{ExecOutcome, ExecSpec, KillReason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    lines::{Line, Stream},
    target::Target,
};
use crate::mcp::{Answer, Call, ToolResult};

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
    let Arguments { command, args, timeout, .. } = arguments;
    let (args, limit) = (args.unwrap_or_default(), target.time_limit(timeout));
    let argv = std::iter::once(&command).chain(&args).cloned().collect();
    let spec = ExecSpec { command: argv, ..ExecSpec::default() };
    let (outcome, mut lines) = target.run(spec, limit).await?;
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
