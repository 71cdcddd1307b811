//! `sandbox_run_code`: one interpreter for each sandbox and language, which keeps its variables.

use sandbox::{CellSpec, Error, ErrorKind, ExecOutcome, ExecSpec, KillReason, Language};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    lines::{Line, Stream},
    target::Target,
};
use crate::{
    code::language,
    mcp::{Answer, Call, Failure, ToolResult},
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
    let limit = target.time_limit(arguments.timeout);
    let cell = CellSpec { language, context: None, code: arguments.code };
    let spec = ExecSpec { cell: Some(cell), ..ExecSpec::default() };
    let (outcome, mut lines) = target.run(spec, limit).await?;
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
