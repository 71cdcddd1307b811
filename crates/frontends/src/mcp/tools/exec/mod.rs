//! `sandbox_exec`, `sandbox_shell`: run a command, answer when it ended.

mod fields;
mod gather;
mod launch;
#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use bytes::Bytes;
use engine::{ExecView, NetworkDenials, RunEnd, RunOptions, SandboxRef};
use sandbox::{ErrorKind, ExecId, ExecOutcome, KillReason, NotStarted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(crate) use self::{
    fields::{ExecFields, Prepared, Reader, RlimitField, bytes_of, rlimit, time_limit},
    gather::{Gathered, SIGKILL},
    launch::{Launched, STOP_WARNING, byte_stream, launch, stop_in_background},
};
use crate::code::FileLink;
use crate::mcp::{
    Answer, Call, Failure, Tool, ToolResult, Truncated,
    next_call::written,
    tools::{
        changed_files, denials,
        lacks::{self, FailedCommand},
        sessions::{self, Started},
        telling::{Followed, while_running},
    },
    words::KnownTools,
};

const COMMAND: &str = "command";
/// `waitMs` in the proposed poll of a background command: less than most clients wait for an answer.
const FOLLOW_MS: u64 = 10_000;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Exec;
        "sandbox_exec", "Execute command", ADDS, exec, core:
            "Run a program with args, or a command line, and return its output and exit code.";
        "sandbox_shell", "Run shell command", ADDS, shell, core:
            "Run a shell command or script and return its output and exit code.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ExecArguments {
    #[serde(flatten)]
    fields: ExecFields,
    args: Option<Vec<String>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ShellArguments {
    #[serde(flatten)]
    fields: ExecFields,
    /// Default: the sandbox's, or bash, or sh
    shell: Option<String>,
    /// Return at once; follow it with sandbox_exec_poll
    background: Option<bool>,
}

/// The result of a command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExecResult {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exit_code: i32,
    pub(crate) success: bool,
    pub(crate) exec_session_id: String,
    pub(crate) duration_ms: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub(crate) timed_out: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
    /// The outcome, where the exit code alone does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub(crate) files: Vec<FileLink>,
}

async fn exec(call: Call, arguments: ExecArguments) -> ToolResult<ExecResult> {
    let ExecArguments { fields, args } = arguments;
    let reader = Reader::of(&fields.command, args.as_ref());
    let limit = Some(call.settings.default_timeout());
    let prepared = fields.prepare(args.unwrap_or_default(), &reader, limit)?;
    run(&call, prepared, COMMAND).await
}

/// The result of a shell's line, or the session in which it runs.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum ShellAnswer {
    Ended(ExecResult),
    Background(Started),
}

async fn shell(call: Call, arguments: ShellArguments) -> ToolResult<ShellAnswer> {
    let ShellArguments { fields, shell, background } = arguments;
    let reader = shell.map_or(Reader::DefaultShell, Reader::Shell);
    if background.unwrap_or(false) {
        let prepared = fields.prepare(Vec::new(), &reader, None)?;
        let answer = sessions::begin(&call, prepared, true).await?;
        let id = &answer.data.exec_session_id;
        let follow = json!({ "execSessionId": id, "cursor": 0, "until": "exit", "waitMs": FOLLOW_MS });
        let poll = written("sandbox_exec_poll", &follow);
        return Ok(answer
            .warn(format!("It runs in the background. Call {poll} to follow it."))
            .map(ShellAnswer::Background));
    }
    let prepared = fields.prepare(Vec::new(), &reader, Some(call.settings.default_timeout()))?;
    Ok(run(&call, prepared, "shell command").await?.map(ShellAnswer::Ended))
}

/// Runs a command to its end; `what` is the word for it in messages.
pub(crate) async fn run(call: &Call, mut prepared: Prepared, what: &str) -> ToolResult<ExecResult> {
    if prepared.spec.terminal.is_some() {
        // A terminal's input stays open by itself, and nobody could write to this one.
        prepared.stdin.get_or_insert_default();
    }
    let launched = launch(call, &prepared).await?;
    let answer = finish(call, &mut prepared, &launched, what).await;
    if launched.stop_after.is_none() {
        return answer;
    }
    stop_in_background(call, &launched.which);
    answer.map(|answer| answer.warn(STOP_WARNING))
}

async fn finish(
    call: &Call,
    prepared: &mut Prepared,
    launched: &Launched,
    what: &str,
) -> ToolResult<ExecResult> {
    let (max_bytes, limit) = (call.max_bytes(prepared.max_bytes), prepared.spec.timeout);
    let (gathered, end) = to_the_end(call, launched, prepared.stdin.take(), max_bytes, limit).await?;
    let fail_as = prepared.fail_on_non_zero.then_some(what);
    // A shell's own name is not what the caller wrote as the command.
    let program = prepared.spec.command.first().map(String::as_str).filter(|_| what == COMMAND);
    let (name, cwd) = (&prepared.sandbox, prepared.spec.cwd.as_deref());
    let network = denials::during(call, &launched.exec).await;
    let exec = &launched.exec;
    let terms = Terms { call, name, exec, cwd, limit, fail_as, is_removed: false, program, network };
    conclude(gathered, &end, &terms).await
}

/// Follows a command to its end, feeding it meanwhile. A cancelled call kills it, with all its group.
pub(crate) async fn to_the_end(
    call: &Call,
    launched: &Launched,
    stdin: Option<Bytes>,
    max_bytes: usize,
    limit: Option<Duration>,
) -> Result<(Gathered, RunEnd), Failure> {
    let cancelled = Some(call.cancelled.clone());
    let options = RunOptions { stdin, limit, cancelled, ..RunOptions::default() };
    let run = call.engine().run_to_end(&call.who, &launched.exec, options).await?;
    let mut gathered = Gathered::new(max_bytes);
    let Followed { end, stdin_error } = while_running(call, run, limit, |entry| gathered.take(entry)).await?;
    gathered.warnings.extend(stdin_error.map(|error| format!("stdin was not written in full: {error}")));
    Ok((gathered, end))
}

/// How a command that was followed is answered for.
#[derive(Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) call: &'a Call,
    /// The sandbox, as its caller names it.
    pub(crate) name: &'a str,
    pub(crate) exec: &'a ExecView,
    /// The directory that the caller gave.
    pub(crate) cwd: Option<&'a str>,
    pub(crate) limit: Option<Duration>,
    /// Another exit code than 0 is a failure, in this word.
    pub(crate) fail_as: Option<&'a str>,
    /// The sandbox goes, and with it what does not fit the answer.
    pub(crate) is_removed: bool,
    /// The program itself, where no shell reads the line.
    pub(crate) program: Option<&'a str>,
    pub(crate) network: NetworkDenials,
}

/// The answer to a command that was gathered.
pub(crate) async fn conclude(gathered: Gathered, end: &RunEnd, terms: &Terms<'_>) -> ToolResult<ExecResult> {
    let Terms { limit, fail_as, is_removed, .. } = *terms;
    let exec = &terms.exec.id;
    let line_hint = terms.program.and_then(|program| line_as_program(program, end.outcome()));
    let (result, truncated, mut warnings) = render(gathered, end.outcome(), terms);
    match end {
        RunEnd::Ended(_) => {}
        RunEnd::Cancelled(_) => {
            let message = "the call was cancelled and the command killed";
            let failure = Failure::new(ErrorKind::Cancelled, message).with_details(json!(result));
            return Err(match is_removed {
                true => failure,
                false => failure.with_hint(format!(
                    "Call sandbox_exec_poll with execSessionId {exec} to read its output."
                )),
            });
        }
        RunEnd::Overdue | RunEnd::Left => {
            let failure = Failure::new(
                ErrorKind::TimedOut,
                format!("exec {exec} exceeded its time limit, and its sandbox did not report how it ended"),
            );
            return Err(failure
                .retryable(false)
                .with_hint("Call sandbox_status: a paused sandbox ends commands only when it is resumed.")
                .with_details(json!(result)));
        }
    }
    let lack = lack(&result, end.outcome(), terms).await;
    let denied = denials::told(terms.call, &terms.network, (!is_removed).then_some(terms.name));
    if result.timed_out {
        let limit = limit.map_or(0, |limit| limit.as_millis());
        let advice = match lack {
            None => format!(" {}", more_time(is_removed)),
            Some(_) => String::new(),
        };
        warnings.push(format!("The command was killed at its time limit of {limit} ms.{advice}"));
    }
    match fail_as {
        Some(what) if !result.success => {
            let failure = failed(&result, &truncated, what, is_removed);
            Err(match lack.or(denied.into_iter().next()).or(line_hint) {
                Some(hint) => failure.with_hint(hint),
                None => failure,
            })
        }
        _ => {
            let answer = Answer::new(result).warn_all(warnings).warn_all(lack).warn_all(denied);
            Ok(answer.warn_all(line_hint).truncate(truncated))
        }
    }
}

/// Returns the warning about what a failed command lacked, as far as its last words tell.
async fn lack(result: &ExecResult, outcome: Option<&ExecOutcome>, terms: &Terms<'_>) -> Option<String> {
    if result.success {
        return None;
    }
    let failed = FailedCommand {
        sandbox: (!terms.is_removed).then_some(terms.name),
        cwd: terms.cwd,
        outcome,
        exit_code: result.exit_code,
        timed_out: result.timed_out,
        texts: [&result.stdout, &result.stderr],
        ..FailedCommand::new(&terms.exec.command, &terms.network, &terms.call.surface)
    };
    lacks::warning(terms.call, &SandboxRef::from(&terms.exec.sandbox), &failed).await
}

/// Advice for a command that needs more time.
fn more_time(is_removed: bool) -> &'static str {
    match is_removed {
        true => {
            "Call again with a larger timeoutMs; for longer work call sandbox_create, then sandbox_shell with \
             background: true."
        }
        false => "Set a larger timeoutMs, or call sandbox_shell with background: true.",
    }
}

fn failed(result: &ExecResult, truncated: &[Truncated], what: &str, is_removed: bool) -> Failure {
    let mut details = json!(result);
    if !truncated.is_empty() {
        details["truncated"] = json!(truncated);
    }
    let message = match &result.outcome {
        Some(outcome) => format!("{what} exited with status {}: {outcome}", result.exit_code),
        None => format!("{what} exited with status {}", result.exit_code),
    };
    let hint = if result.timed_out {
        more_time(is_removed)
    } else {
        "Check details.stderr, correct the command and call again."
    };
    Failure::of_exec(message).with_hint(hint).with_details(details)
}

fn render(
    gathered: Gathered,
    outcome: Option<&ExecOutcome>,
    terms: &Terms<'_>,
) -> (ExecResult, Vec<Truncated>, Vec<String>) {
    let duration_ms = gathered.duration_ms();
    let is_removed = terms.is_removed;
    let exec = &terms.exec.id;
    let rest = |cursor: u64| {
        match is_removed {
        true => "The rest was removed with the sandbox. Call again with keep: true, then sandbox_logs_read with its \
                 name, or with a larger maxBytes."
            .to_owned(),
        false => rest_of_output(terms.call, terms.name, exec, cursor),
    }
    };
    let stdout = gathered.stdout.finish("stdout", rest);
    let mut stderr = gathered.stderr.finish("stderr", rest);
    let mut warnings = gathered.warnings;
    if stdout.is_lossy || stderr.is_lossy {
        warnings.push(not_text(exec, is_removed));
    }
    if let Some(ExecOutcome::NotStarted { message, .. }) = outcome {
        // Where a shell would say it.
        stderr.text.push_str(message);
        stderr.text.push('\n');
    }
    warnings.extend(gathered.files.warning().map(str::to_owned));
    let mut files = gathered.files.linked(&terms.call.links(), &terms.exec.sandbox, terms.name);
    let known = KnownTools::of(terms.call, &terms.call.surface);
    let files_cut = changed_files::shorten(&mut files, (!is_removed).then_some(terms.name), &known);
    let result = ExecResult {
        files,
        stdout: stdout.text,
        stderr: stderr.text,
        // Killed without a known end: what a shell shows for SIGKILL.
        exit_code: outcome.map_or(128 + SIGKILL, |outcome| i32::from(outcome.exit_code())),
        success: outcome.is_some_and(ExecOutcome::is_success),
        exec_session_id: exec.to_string(),
        duration_ms,
        timed_out: matches!(outcome, Some(ExecOutcome::Killed { reason: KillReason::TimeLimit })),
        signal: match outcome {
            Some(ExecOutcome::Signaled { signal }) => Some(*signal),
            _ => None,
        },
        outcome: outcome
            .filter(|outcome| !matches!(outcome, ExecOutcome::Exited { memory_limit_hit: false, .. }))
            .map(ToString::to_string),
    };
    let truncated = [stdout.truncated, stderr.truncated, files_cut].into_iter().flatten().collect();
    (result, truncated, warnings)
}

/// The calls that find what is missing in the output of an exec.
pub(crate) fn rest_of_output(call: &Call, name: &str, exec: &ExecId, cursor: u64) -> String {
    const SEARCH: &str = "sandbox_logs_read";
    let search = json!({ "name": name, "sessionIds": [exec.as_str()], "grep": "error" });
    let read = json!({ "execSessionId": exec.as_str(), "cursor": cursor });
    let calls = format!(
        "Call {} to find lines in all of it (with any text), or {} to read on.",
        written(SEARCH, &search),
        written("sandbox_exec_poll", &read)
    );
    match KnownTools::of(call, &call.surface).way_to(SEARCH) {
        Some(way) => format!("{calls} {way}"),
        None => calls,
    }
}

fn not_text(exec: &ExecId, is_removed: bool) -> String {
    let exact = match is_removed {
        true => "Call again with keep: true, then sandbox_exec_poll with the execSessionId".to_owned(),
        false => format!("Call sandbox_exec_poll with execSessionId {exec}"),
    };
    format!(
        "Some output is not valid UTF-8: invalid bytes are shown as \u{FFFD}. \
         {exact} and encoding \"base64\" for the exact bytes."
    )
}

/// Returns the hint for a caller who gave a whole line as the name of a program.
pub(crate) fn line_as_program(program: &str, outcome: Option<&ExecOutcome>) -> Option<String> {
    let is_not_found = matches!(outcome, Some(ExecOutcome::NotStarted { reason: NotStarted::NotFound, .. }));
    (is_not_found && program.contains(char::is_whitespace)).then(|| {
        let shown: String = program.chars().take(64).collect();
        format!("There is no program called {shown:?}. Omit args for a command line, or pass every argument in args.")
    })
}
