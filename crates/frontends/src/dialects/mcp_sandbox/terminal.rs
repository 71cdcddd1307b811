//! `execute_terminal_command`: a command line, read by a shell. Theirs is split into words and knows no pipes.

use engine::{Entry, EntryBody, RunEnd, RunOptions, SandboxRef};
use sandbox::{ErrorKind, ExecOutcome, ExecSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{sandboxes, words};
use crate::{
    denials,
    mcp::{Answer, Call, Failure, ToolResult},
    output::Capture,
};

const DEFAULT_SHELL: &str = "sh";
/// The exit code that a shell shows for SIGKILL, used when nobody knows how the command ended.
const UNKNOWN_END: i32 = 137;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    sandbox_id: String,
    command: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Ran {
    stdout: String,
    stderr: String,
    exit_code: i32,
}

pub(super) async fn execute(call: Call, arguments: Arguments) -> ToolResult<Ran> {
    run(&call, arguments).await.map_err(as_output)
}

/// A failure has the fields of an answer too: clients of theirs look nowhere else.
fn as_output(failure: Failure) -> Failure {
    let fields = json!({ "stdout": "", "stderr": failure.error().to_string(), "exit_code": -1 });
    failure.with_details(fields)
}

async fn run(call: &Call, arguments: Arguments) -> ToolResult<Ran> {
    let view = sandboxes::find(call, &arguments.sandbox_id).await?;
    let limit = Some(call.settings.default_timeout());
    let shell = view.plan.shell.as_deref().unwrap_or(DEFAULT_SHELL);
    let spec = ExecSpec { timeout: limit, ..ExecSpec::argv([shell, "-c", &arguments.command]) };
    let (engine, which) = (call.engine(), SandboxRef::from(&view.id));
    let (exec, _started) =
        engine.exec_ensuring_running(&call.who, &which, spec).await.map_err(words::failure)?;
    let options = RunOptions { limit, cancelled: Some(call.cancelled.clone()), ..RunOptions::default() };
    let mut run = engine.run_to_end(&call.who, &exec, options).await.map_err(words::failure)?;
    let mut printed = Printed::new(call.max_bytes(None));
    while let Some(entry) = run.next().await {
        printed.take(&entry);
    }
    match run.end().await.map_err(words::failure)? {
        RunEnd::Cancelled(_) => Err(cancelled()),
        end => {
            let denied = denials::told(engine, &call.who, &exec).await;
            Ok(printed.finish(end.outcome()).warn_all(denied))
        }
    }
}

/// The output of a command.
struct Printed {
    stdout: Capture,
    stderr: Capture,
    warnings: Vec<String>,
}

impl Printed {
    fn new(max_bytes: usize) -> Self {
        Self { stdout: Capture::new(max_bytes), stderr: Capture::new(max_bytes), warnings: Vec::new() }
    }

    fn take(&mut self, entry: &sandbox::Result<Entry>) {
        match entry {
            Ok(Entry { number, body, .. }) => match body {
                EntryBody::Stdout(bytes) => self.stdout.push(*number, bytes),
                EntryBody::Stderr(bytes) => self.stderr.push(*number, bytes),
                EntryBody::Trimmed { .. } => {
                    self.warnings.push("Output was dropped: the sandbox's log was full.".to_owned());
                }
                _ => {}
            },
            Err(error) => self.warnings.push(format!("could not read part of the output: {error}")),
        }
    }

    fn finish(self, outcome: Option<&ExecOutcome>) -> Answer<Ran> {
        let stdout = self.stdout.finish("stdout", |_| String::new());
        let mut stderr = self.stderr.finish("stderr", |_| String::new());
        stderr.text.extend(unusual_end(outcome).map(|end| format!("{end}\n")));
        let exit_code = outcome.map_or(UNKNOWN_END, |outcome| i32::from(outcome.exit_code()));
        Answer::new(Ran { stdout: stdout.text, stderr: stderr.text, exit_code })
            .warn_all(self.warnings)
            .truncate([stdout.truncated, stderr.truncated].into_iter().flatten())
    }
}

/// How something ended, where its exit code alone does not tell.
pub(super) fn unusual_end(outcome: Option<&ExecOutcome>) -> Option<String> {
    match outcome {
        Some(ExecOutcome::Exited { memory_limit_hit: false, .. }) => None,
        Some(outcome) => Some(outcome.to_string()),
        None => Some("its end was not reported".to_owned()),
    }
}

pub(super) fn cancelled() -> Failure {
    Failure::new(ErrorKind::Cancelled, "the call was cancelled")
}
