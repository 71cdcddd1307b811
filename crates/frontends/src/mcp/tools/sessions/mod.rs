//! `sandbox_exec_start` and the tools for what it starts. A session is an exec, found by its id in the ledger: it
//! survives the client, and the daemon.

mod page;
mod poll;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod until;

use std::time::Duration;

use bytes::Bytes;
use engine::{ExecView, NetworkDenials, SandboxRef, SignalScope};
use sandbox::{Error, ErrorKind, ExecId, ExecOutcome, ExecState, Next, TerminalSize, Thing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

pub(crate) use self::table::Sessions;
use self::{poll::PollArguments, until::Until};
use super::{
    exec::{
        ExecFields, Launched, Prepared, Reader, SIGKILL, STOP_WARNING, byte_stream, bytes_of, launch,
        line_as_program, stop_in_background,
    },
    lacks::{self, FailedCommand},
};
use crate::mcp::{Answer, Call, Failure, Nullable, Tool, ToolResult};

const SIGHUP: i32 = 1;
const SIGTERM: i32 = 15;
/// How long the first input of a session may take before the call is answered; the rest goes in behind it.
const FIRST_INPUT_PATIENCE: Duration = Duration::from_secs(1);
/// How long a command that is closed may take to end by itself.
const CLOSE_GRACE: Duration = Duration::from_secs(2);
const DEFAULT_LISTED: u32 = 50;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Exec;
        "sandbox_exec_start", "Start exec session", ADDS, start, core:
            "Start a long-running or interactive command. Read it with sandbox_exec_poll.";
        "sandbox_exec_poll", "Poll exec session", READS, poll::poll, core:
            "Read events of an exec session from a cursor; waits for new ones with waitMs, or until something.";
        "sandbox_exec_write_stdin", "Write exec stdin", ADDS, write_stdin, core:
            "Write text or base64 bytes to the stdin of an exec session; with waitMs or until, also return what follows.";
        "sandbox_exec_signal", "Signal exec session", DESTROYS_MORE, signal, core:
            "Send a signal to the processes of an exec session.";
        // Not as in the original, which only forgets its handle: here the processes end.
        "sandbox_exec_close", "Close exec session", DESTROYS, close:
            "End an exec session: closes stdin, sends SIGTERM to its processes and, after 2 seconds, SIGKILL.";
        "sandbox_exec_list", "List exec sessions", READS, list:
            "List the commands of a sandbox, newest first, with state and exit code.";
        "sandbox_exec_resize", "Resize exec terminal", SETS, resize:
            "Resize the terminal of an exec session.";
    }
}

/// An exec that a caller named, and the sandbox that it runs in.
#[derive(Debug)]
struct Target {
    exec: ExecId,
    which: SandboxRef,
}

const ENDED_HINT: &str =
    "Call sandbox_exec_poll to see how it ended, or sandbox_exec_start to start another.";

impl Target {
    async fn find(call: &Call, session: &str) -> Result<Self, Failure> {
        let exec: ExecId = session.parse().map_err(|_malformed| {
            let shown: String = session.chars().take(64).collect();
            Failure::from(Error::not_found(format!("no exec {shown}")))
                .or_next(ErrorKind::NotFound, Next::List(Thing::Exec))
        })?;
        let sandbox = call.engine().exec_sandbox(&call.who, &exec).await;
        let sandbox = sandbox
            .map_err(|error| Failure::from(error).or_next(ErrorKind::NotFound, Next::List(Thing::Exec)))?;
        Ok(Self { exec, which: SandboxRef::from(sandbox) })
    }

    async fn view(&self, call: &Call) -> Result<ExecView, Failure> {
        Ok(call.engine().exec_view(&call.who, &self.which, &self.exec).await?)
    }

    async fn signal(&self, call: &Call, signal: i32) -> sandbox::Result<()> {
        call.engine().exec_signal(&call.who, &self.which, &self.exec, signal, SignalScope::Group).await
    }
}

fn ended(error: Error) -> Failure {
    Failure::from(error).or_hint(ErrorKind::WrongState, ENDED_HINT)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct StartArguments {
    #[serde(flatten)]
    fields: ExecFields,
    args: Option<Vec<String>>,
    /// Run command with the sandbox's shell
    shell: Option<bool>,
    /// After writing stdin
    close_stdin: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Started {
    pub(crate) exec_session_id: String,
    sandbox: String,
    stop_sandbox_on_exit: Nullable<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
}

async fn start(call: Call, arguments: StartArguments) -> ToolResult<Started> {
    let StartArguments { fields, args, shell, close_stdin } = arguments;
    let reader = match shell {
        Some(true) => Reader::DefaultShell,
        Some(false) => Reader::Program,
        None => Reader::of(&fields.command, args.as_ref()),
    };
    // A session may run as long as it likes.
    let prepared = fields.prepare(args.unwrap_or_default(), &reader, None)?;
    begin(&call, prepared, close_stdin.unwrap_or(false)).await
}

/// Starts a session.
pub(crate) async fn begin(call: &Call, mut prepared: Prepared, closes_stdin: bool) -> ToolResult<Started> {
    let is_open = !closes_stdin || prepared.spec.terminal.is_some();
    prepared.spec.stdin |= is_open;
    let launched = launch(call, &prepared).await?;
    let input = match prepared.stdin.take() {
        Some(bytes) if call.engine().is_fed(&call.who, &launched.exec, &bytes).await? => None,
        // A terminal's stdin is open whether asked for or not.
        None if closes_stdin && prepared.spec.terminal.is_some() => Some(Bytes::new()),
        input => input,
    };
    if !closes_stdin {
        Sessions::watch(call, &launched.which, &launched.exec.id);
    }
    if let Some(bytes) = input {
        write_first(call, &launched, bytes, closes_stdin).await;
    }
    if launched.stop_after.is_some() {
        stop_when_over(call, &launched);
    }
    let program = prepared.spec.command.first();
    let line = program.and_then(|program| line_as_program(program, launched.exec.outcome.as_ref()));
    let lack = lack_of_unstarted(call, &prepared, &launched).await;
    Ok(started(prepared.sandbox, launched).warn_all(line.or(lack)))
}

/// Returns a warning about what was lacking for a command that did not start.
async fn lack_of_unstarted(call: &Call, prepared: &Prepared, launched: &Launched) -> Option<String> {
    let outcome = launched.exec.outcome.as_ref()?;
    let network = NetworkDenials::default();
    let failed = FailedCommand {
        sandbox: Some(&prepared.sandbox),
        cwd: prepared.spec.cwd.as_deref(),
        outcome: Some(outcome).filter(|outcome| matches!(outcome, ExecOutcome::NotStarted { .. })),
        ..FailedCommand::new(&launched.exec.command, &network, &call.surface)
    };
    failed.outcome?;
    lacks::warning(call, &launched.which, &failed).await
}

fn started(sandbox: String, launched: Launched) -> Answer<Started> {
    let Launched { exec, stop_after, .. } = launched;
    let stop_warning = stop_after.as_ref().map(|_name| STOP_WARNING.to_owned());
    let not_started = exec.outcome.map(|outcome| format!("The command {outcome}."));
    Answer::new(Started {
        exec_session_id: exec.id.to_string(),
        sandbox,
        stop_sandbox_on_exit: Nullable(stop_after.map(|name| name.to_string())),
        pid: exec.pid,
    })
    .warn_all(stop_warning)
    .warn_all(not_started)
}

/// Writes what a session begins with. A command that does not read does not keep the caller: the rest waits for it.
async fn write_first(call: &Call, launched: &Launched, bytes: Bytes, close: bool) {
    let (engine, who) = (call.engine().clone(), call.who.clone());
    let (which, exec) = (launched.which.clone(), launched.exec.id.clone());
    let mut writing = Box::pin(async move {
        let written = engine.exec_stdin(&who, &which, &exec, byte_stream(bytes), close).await;
        // It ended without reading: its own matter.
        written.map(drop).unwrap_or_else(|error| tracing::debug!(%exec, %error, "first input not written"));
    });
    if timeout(FIRST_INPUT_PATIENCE, &mut writing).await.is_err() {
        call.mcp.spawn(writing);
    }
}

fn stop_when_over(call: &Call, launched: &Launched) {
    let (call, which, exec) = (call.clone(), launched.which.clone(), launched.exec.id.clone());
    call.mcp.clone().spawn(async move {
        match call.engine().wait_exec(&call.who, &which, &exec, None).await {
            Ok(_) => stop_in_background(&call, &which),
            Err(error) => tracing::debug!(%exec, %error, "its sandbox is not stopped"),
        }
    });
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WriteArguments {
    exec_session_id: String,
    data: Option<String>,
    data_base64: Option<String>,
    close: Option<bool>,
    /// Then wait for output, as in sandbox_exec_poll
    #[schemars(range(max = 60_000))]
    wait_ms: Option<u64>,
    /// The same until exit, output, or this text
    until: Option<String>,
    #[schemars(range(min = 1), extend("x-full-only" = true))]
    max_bytes: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Written {
    exec_session_id: String,
    written: u64,
    stdin_closed: bool,
    /// As from sandbox_exec_poll
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    output: Option<poll::Polled>,
}

async fn write_stdin(call: Call, arguments: WriteArguments) -> ToolResult<Written> {
    let WriteArguments { data, data_base64, .. } = &arguments;
    let bytes = bytes_of("data", data.clone(), "dataBase64", data_base64.clone())?.unwrap_or_default();
    let close = arguments.close.unwrap_or(false);
    if bytes.is_empty() && !close {
        return Err(Failure::invalid("nothing to write: data is empty")
            .with_hint("Give data or dataBase64, or close: true to end stdin."));
    }
    if let Some(until) = &arguments.until {
        Until::new(until)?;
    }
    let target = Target::find(&call, &arguments.exec_session_id).await?;
    let is_followed = arguments.wait_ms.is_some() || arguments.until.is_some();
    let before = if is_followed { target.view(&call).await?.last_entry } else { 0 };
    // Writing may take long, and the session must not be swept meanwhile.
    call.mcp.sessions().touch(&target.exec);
    let write = call.engine().exec_stdin(&call.who, &target.which, &target.exec, byte_stream(bytes), close);
    let written = tokio::select! {
        written = timeout(call.settings.default_timeout(), write) => written,
        () = call.cancelled.cancelled() => {
            return Err(Failure::new(ErrorKind::Cancelled, "the call was cancelled; part of the data may be written"));
        }
    };
    let Ok(written) = written else {
        let message =
            format!("exec {} does not read its stdin; part of the data may be written", target.exec);
        return Err(Failure::new(ErrorKind::TimedOut, message).with_hint(
            "Call sandbox_exec_poll to see what it is doing; it may be waiting for something else.",
        ));
    };
    let written = written.map_err(ended)?;
    call.mcp.sessions().touch(&target.exec);
    if close {
        call.mcp.sessions().forget(&target.exec);
    }
    let exec_session_id = target.exec.to_string();
    let done = Written { exec_session_id, written, stdin_closed: close, output: None };
    if !is_followed {
        return Ok(Answer::new(done));
    }
    let WriteArguments { wait_ms, until, max_bytes, .. } = arguments;
    let follow = PollArguments::after(&target.exec, before, wait_ms, until, max_bytes);
    Ok(match poll::poll_target(&call, &target, &follow).await {
        Ok(Answer { data, warnings, truncated, parts }) => {
            Answer { data: Written { output: Some(data), ..done }, warnings, truncated, parts }
        }
        // Written all the same, and must not be written again.
        Err(failure) => Answer::new(done).warn(format!("Its output could not be read: {}.", failure.error())),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SignalArguments {
    exec_session_id: String,
    /// hup, int, quit, kill, usr1, usr2, term, cont, stop
    signal: Signal,
}

/// The signals that have names here.
const SIGNALS: [(&str, i32); 9] = [
    ("hup", SIGHUP),
    ("int", 2),
    ("quit", 3),
    ("kill", SIGKILL),
    ("usr1", 10),
    ("usr2", 12),
    ("term", SIGTERM),
    ("cont", 18),
    ("stop", 19),
];

// A text, not a list of them: a client that checks arguments must let `SIGTERM` pass.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Signal {
    Number(#[schemars(range(min = 1, max = 64))] i32),
    Name(String),
}

impl Signal {
    /// Names are taken with or without `SIG`, in any case.
    fn number(&self) -> Result<i32, Failure> {
        let name = match self {
            Self::Number(number) => return Ok(*number),
            Self::Name(name) => name,
        };
        let plain = name.to_lowercase();
        let plain = plain.strip_prefix("sig").unwrap_or(&plain);
        let known = SIGNALS.iter().find(|(known, _)| *known == plain).map(|(_, number)| *number);
        let as_number = || name.parse().ok().filter(|number| (1..=64).contains(number));
        known.or_else(as_number).ok_or_else(|| {
            let shown: String = name.chars().take(32).collect();
            let names: Vec<_> = SIGNALS.iter().map(|(known, _)| *known).collect();
            Failure::invalid(format!("signal: unknown signal {shown:?}"))
                .with_hint(format!("Give one of {}, or a number from 1 to 64.", names.join(", ")))
        })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Signaled {
    exec_session_id: String,
    signaled: bool,
    signal: i32,
}

async fn signal(call: Call, arguments: SignalArguments) -> ToolResult<Signaled> {
    let signal = arguments.signal.number()?;
    let target = Target::find(&call, &arguments.exec_session_id).await?;
    target.signal(&call, signal).await.map_err(ended)?;
    call.mcp.sessions().touch(&target.exec);
    Ok(Answer::new(Signaled { exec_session_id: target.exec.to_string(), signaled: true, signal }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CloseArguments {
    exec_session_id: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Closed {
    exec_session_id: String,
    closed: bool,
    was_running: bool,
}

async fn close(call: Call, arguments: CloseArguments) -> ToolResult<Closed> {
    let target = Target::find(&call, &arguments.exec_session_id).await?;
    let view = target.view(&call).await?;
    let exec_session_id = target.exec.to_string();
    let was_running = view.outcome.is_none();
    if was_running {
        // An interactive shell does not mind SIGTERM, and does mind that its terminal hangs up.
        let signals = if view.terminal { &[SIGHUP, SIGTERM][..] } else { &[SIGTERM] };
        for signal in signals {
            match target.signal(&call, *signal).await {
                Err(error) if error.kind() != ErrorKind::WrongState => return Err(error.into()),
                _ => {}
            }
        }
        call.mcp.sessions().forget(&target.exec);
        call.mcp.clone().spawn(end(call, target));
    }
    Ok(Answer::new(Closed { exec_session_id, closed: true, was_running }))
}

/// Sees that a closed session ends.
async fn end(call: Call, target: Target) {
    let (engine, who, which, exec) = (call.engine(), &call.who, &target.which, &target.exec);
    let closing = async {
        let closed = engine.exec_stdin(who, which, exec, byte_stream(Bytes::new()), true).await;
        closed.map(drop).unwrap_or_else(|error| tracing::debug!(%exec, %error, "stdin not closed"));
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = engine.wait_exec(who, which, exec, Some(CLOSE_GRACE)) => ended,
        () = closing => return,
    };
    if matches!(&ended, Ok(view) if view.outcome.is_none())
        && let Err(error) = target.signal(&call, SIGKILL).await
    {
        tracing::debug!(%exec, %error, "not killed");
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ListArguments {
    /// Sandbox
    name: String,
    state: Option<StateFilter>,
    /// Default 50
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum StateFilter {
    Running,
    Done,
    All,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Row {
    exec_session_id: String,
    command: Vec<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    tty: bool,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// A poll from here on reads only what is new.
    next_cursor: u64,
}

impl From<ExecView> for Row {
    fn from(view: ExecView) -> Self {
        Self {
            exec_session_id: view.id.to_string(),
            command: view.command,
            state: match view.state {
                ExecState::Starting => "starting",
                ExecState::Running => "running",
                ExecState::Done => "done",
            },
            exit_code: view.exit_code,
            outcome: view.outcome.map(|outcome| outcome.to_string()),
            pid: view.pid,
            tty: view.terminal,
            created_at: view.created_at.to_string(),
            duration_ms: view.duration_ms,
            next_cursor: view.last_entry,
        }
    }
}

async fn list(call: Call, arguments: ListArguments) -> ToolResult<Vec<Row>> {
    let which = call.sandbox(&arguments.name)?;
    let execs = call.engine().execs(&call.who, &which).await?;
    let wanted = |view: &ExecView| match arguments.state.unwrap_or(StateFilter::All) {
        StateFilter::Running => view.state != ExecState::Done,
        StateFilter::Done => view.state == ExecState::Done,
        StateFilter::All => true,
    };
    let limit = arguments.limit.unwrap_or(DEFAULT_LISTED) as usize;
    let n_wanted = execs.iter().filter(|view| wanted(view)).count();
    let rows: Vec<_> = execs.into_iter().rev().filter(wanted).take(limit).map(Row::from).collect();
    let older = (n_wanted > rows.len())
        .then(|| format!("{} older sessions are not shown; raise limit to see them.", n_wanted - rows.len()));
    Ok(Answer::new(rows).warn_all(older))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ResizeArguments {
    exec_session_id: String,
    #[schemars(range(min = 1))]
    rows: u16,
    #[schemars(range(min = 1))]
    cols: u16,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Resized {
    exec_session_id: String,
    rows: u16,
    cols: u16,
}

async fn resize(call: Call, arguments: ResizeArguments) -> ToolResult<Resized> {
    let ResizeArguments { exec_session_id, rows, cols } = arguments;
    let target = Target::find(&call, &exec_session_id).await?;
    let size = TerminalSize { rows, cols };
    call.engine().exec_resize(&call.who, &target.which, &target.exec, size).await.map_err(|error| {
        Failure::from(error).or_hint(
            ErrorKind::WrongState,
            "Only a running session that was started with tty: true has a terminal; see sandbox_exec_list.",
        )
    })?;
    call.mcp.sessions().touch(&target.exec);
    Ok(Answer::new(Resized { exec_session_id, rows, cols }))
}
