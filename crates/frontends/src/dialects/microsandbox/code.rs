//! `sandbox_run_code`: one interpreter for each sandbox and language, which keeps its variables.

use engine::{RunEnd, RunOptions};
use sandbox::{CellSpec, Error, ErrorKind, ExecOutcome, ExecSpec, KillReason, Language};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    command::{cancelled, overdue, seconds},
    lines::{Line, Lines, Stream},
    target::Target,
};
use crate::{
    code::language,
    mcp::{Answer, Call, Failure, Followed, ToolResult, while_running},
};

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// Name of a sandbox that was started
    sandbox: String,
    /// Namespace of the sandbox
    namespace: String,
    code: String,
    /// python, nodejs
    language: String,
    /// Seconds
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Ran {
    /// success, or error where the code ended with an exception or was stopped
    status: &'static str,
    language: String,
    output: Vec<Line>,
}

pub(super) async fn run(call: Call, arguments: Arguments) -> ToolResult<Ran> {
    let target = Target::new(&call, &arguments.sandbox, &arguments.namespace)?;
    let (call, which) = (&target.call, &target.which);
    let language = language_of(&arguments.language)?;
    let limit = seconds(call, arguments.timeout);
    let cell = CellSpec { language, context: None, code: arguments.code };
    let spec = ExecSpec { timeout: Some(limit), cell: Some(cell), ..ExecSpec::default() };
    spec.check().map_err(Error::from)?;
    let exec = call.engine().exec(&call.who, which, spec).await?;
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
        ExecOutcome::NotStarted { reason, message } => {
            let why = (*reason, message.as_str());
            return Err(language::not_started(call.engine(), &call.who, which, language, why, None)
                .await
                .into());
        }
        ExecOutcome::Killed { reason: KillReason::TimeLimit } => {
            lines.say(
                Stream::Stderr,
                &format!("stopped at its time limit of {} seconds", limit.as_secs_f64()),
            );
        }
        ExecOutcome::Exited { .. } | ExecOutcome::Signaled { .. } | ExecOutcome::Killed { .. } => {}
    }
    let status = if outcome.is_success() { "success" } else { "error" };
    Ok(Answer::new(Ran { status, language: arguments.language, output: lines.finish() }))
}

fn language_of(text: &str) -> Result<Language, Failure> {
    match text.parse() {
        Ok(language @ (Language::Python | Language::JavaScript)) => Ok(language),
        Ok(_) | Err(_) => {
            let shown: String = text.chars().take(64).collect();
            let message =
                format!("unsupported language {shown:?}: python, node, nodejs and javascript are known");
            Err(Error::new(ErrorKind::InvalidRequest, message).into())
        }
    }
}
