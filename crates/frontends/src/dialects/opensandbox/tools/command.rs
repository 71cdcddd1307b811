//! `command_run` and `command_interrupt`.

use engine::{Entry, EntryBody, ExecView, RunEnd, RunOptions};
use sandbox::{Error, ErrorKind, ExecOutcome, ExecSpec, KillReason, NotStarted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    MAX_ANSWER_BYTES,
    logs::{Log, LogEntry},
    sandboxes::{Done, Inside, done},
    target::Target,
    words,
};
use crate::{
    denials,
    dialects::opensandbox::{
        commands::{end, exec_id, start_line},
        handle::now_ms,
    },
    mcp::{Answer, Call, Failure, Followed, Nullable, ToolResult, while_running},
};

/// The name by which OpenSandbox's clients know a failed command.
const COMMAND_ERROR: &str = "CommandExecError";
const HOW_TO_SEE_ALL: &str = "Some output is missing: redirect it to a file and read that with file_read.";

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RunArguments {
    #[serde(flatten)]
    inside: Inside,
    /// Read by bash, or sh where there is none
    command: String,
    #[serde(default)]
    background: bool,
    working_directory: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Execution {
    id: String,
    execution_count: (),
    /// Always empty
    result: Vec<()>,
    error: Nullable<ExecutionError>,
    complete: Nullable<Complete>,
    /// Null for a background command
    exit_code: Nullable<u8>,
    logs: Logs,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ExecutionError {
    name: &'static str,
    /// The exit code
    value: String,
    timestamp: i64,
    traceback: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Complete {
    timestamp: i64,
    execution_time_in_millis: u64,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct Logs {
    stdout: Vec<LogEntry>,
    stderr: Vec<LogEntry>,
}

pub(super) async fn run(call: Call, arguments: RunArguments) -> ToolResult<Execution> {
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let engine = call.engine();
    let limit = (!arguments.background).then(|| call.settings.default_timeout());
    let spec = ExecSpec { cwd: arguments.working_directory, timeout: limit, ..ExecSpec::default() };
    let asked_at = now_ms();
    let started = start_line(target.sandbox(&call), arguments.command, spec).await;
    let exec = started.map_err(words::failure)?;
    if arguments.background {
        return Ok(Answer::new(launched(exec, asked_at)));
    }
    let options = RunOptions { limit, cancelled: Some(call.cancelled.clone()), ..RunOptions::default() };
    let run = engine.run_to_end(&call.who, &exec, options).await.map_err(words::failure)?;
    let mut printed = Printed::new(call.max_bytes(None).min(MAX_ANSWER_BYTES), asked_at);
    let Followed { end, .. } = while_running(&call, run, limit, |entry| printed.take(entry)).await?;
    match end {
        RunEnd::Ended(outcome) => {
            let denied = denials::told(engine, &call.who, &exec).await;
            Ok(printed.finish(&exec, &outcome)?.warn_all(denied))
        }
        RunEnd::Cancelled(_) => Err(words::cancelled()),
        RunEnd::Overdue | RunEnd::Left => {
            let message = "the time limit is over, and the sandbox did not report how the command ended";
            Err(words::failure(Error::new(ErrorKind::TimedOut, message)))
        }
    }
}

/// A command that runs on.
fn launched(exec: ExecView, asked_at: i64) -> Execution {
    let timestamp = now_ms();
    let took = u64::try_from(timestamp - asked_at).unwrap_or(0);
    Execution {
        id: exec.id.to_string(),
        execution_count: (),
        result: Vec::new(),
        error: Nullable(None),
        complete: Nullable(Some(Complete { timestamp, execution_time_in_millis: took })),
        exit_code: Nullable(None),
        logs: Logs::default(),
    }
}

/// The output of a command so far.
struct Printed {
    stdout: Log,
    stderr: Log,
    started_ms: i64,
    ended_ms: i64,
}

impl Printed {
    fn new(max_bytes: usize, asked_at: i64) -> Self {
        let (stdout, stderr) = (Log::new(false, max_bytes), Log::new(true, max_bytes));
        Self { stdout, stderr, started_ms: asked_at, ended_ms: asked_at }
    }

    fn take(&mut self, entry: &sandbox::Result<Entry>) {
        let Ok(Entry { at_ms, body, .. }) = entry else {
            return self.stderr.say("[… output could not be read here …]".to_owned(), self.ended_ms);
        };
        self.ended_ms = *at_ms;
        match body {
            EntryBody::Started { .. } => self.started_ms = *at_ms,
            EntryBody::Stdout(bytes) => self.stdout.push(bytes, *at_ms),
            EntryBody::Stderr(bytes) => self.stderr.push(bytes, *at_ms),
            EntryBody::Trimmed { .. } => {
                self.stderr.say("[… output was lost here: the sandbox's log was full …]".to_owned(), *at_ms);
            }
            EntryBody::Exited(_) | EntryBody::Rich(_) | EntryBody::Stdin(_) | EntryBody::Closed => {}
        }
    }

    fn finish(self, exec: &ExecView, outcome: &ExecOutcome) -> ToolResult<Execution> {
        if let ExecOutcome::NotStarted { reason, message } = outcome {
            return Err(not_started(*reason, message));
        }
        let timestamp = self.ended_ms;
        let took = u64::try_from(self.ended_ms - self.started_ms).unwrap_or(0);
        let (stdout, is_stdout_cut) = self.stdout.finish();
        let (stderr, is_stderr_cut) = self.stderr.finish();
        let exit_code = outcome.exit_code();
        let error = (!outcome.is_success()).then(|| ExecutionError {
            name: COMMAND_ERROR,
            value: exit_code.to_string(),
            timestamp,
            traceback: vec![how_it_ended(outcome)],
        });
        let complete = outcome.is_success().then_some(Complete { timestamp, execution_time_in_millis: took });
        let execution = Execution {
            id: exec.id.to_string(),
            execution_count: (),
            result: Vec::new(),
            error: Nullable(error),
            complete: Nullable(complete),
            exit_code: Nullable(Some(exit_code)),
            logs: Logs { stdout, stderr },
        };
        let warnings = (is_stdout_cut || is_stderr_cut).then(|| HOW_TO_SEE_ALL.to_owned());
        Ok(Answer::new(execution).warn_all(warnings))
    }
}

fn how_it_ended(outcome: &ExecOutcome) -> String {
    match outcome {
        ExecOutcome::Exited { code, memory_limit_hit: false } => format!("exit status {code}"),
        ExecOutcome::Killed { reason: KillReason::TimeLimit } => {
            format!("{outcome}; run it with background true, which has no time limit")
        }
        other => other.to_string(),
    }
}

/// Returns the failure for a command that did not start; its reason is the caller's to mend.
fn not_started(reason: NotStarted, message: &str) -> Failure {
    let (kind, hint) = match reason {
        NotStarted::BadWorkingDirectory => {
            (ErrorKind::InvalidRequest, "Create it with file_create_directories, or omit working_directory.")
        }
        NotStarted::NotFound => (ErrorKind::Unsupported, "The image has no shell; use another image."),
        NotStarted::LimitReached => {
            (ErrorKind::LimitReached, "End something in the sandbox, then call it again.")
        }
        NotStarted::NotExecutable | NotStarted::BadUser | NotStarted::Lost | NotStarted::Other => {
            (ErrorKind::WrongState, "Call sandbox_get_info to see the state of the sandbox.")
        }
    };
    words::failure(Error::new(kind, format!("the command did not start: {message}")).with_hint(hint))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct InterruptArguments {
    #[serde(flatten)]
    inside: Inside,
    /// The id that command_run returned
    execution_id: String,
}

pub(super) async fn interrupt(call: Call, arguments: InterruptArguments) -> ToolResult<Done> {
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let ended = match exec_id(&arguments.execution_id) {
        Ok(id) => end(target.sandbox(&call), &id).await,
        Err(error) => Err(error),
    };
    ended.map_err(words::failure)?;
    Ok(done("interrupted"))
}
