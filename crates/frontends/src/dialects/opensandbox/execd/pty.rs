//! Terminals over WebSocket. Each is an exec with a terminal, and its id is the session's; what it prints is read from
//! the ledger, so any number of clients may attach, and come back.
//!
//! Frames: binary with a first byte for the channel, or JSON as text for control.

use axum::{
    Extension, Json,
    extract::ws::{CloseFrame, Message, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use engine::{Entry, EntryBody, ExecView, Follow};
use futures_util::StreamExt;
use sandbox::{Error, ErrorKind, ExecId, ExecOutcome, ExecSpec, KillReason, Result, TerminalSize, Thing};
use serde::Deserialize;
use serde_json::{Value, json};

use super::environment;
use crate::{
    dialects::opensandbox::{
        ask::Ask,
        commands::{self, exec_id},
        handle::SandboxHandle,
    },
    http::{ApiResult, OptionalJson, StreamLease},
    terminal::{Attached, Framing, Input, Terminal},
};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const REPLAY: u8 = 3;
const NORMAL_CLOSURE: u16 = 1000;
const SIGNALS: [(&str, i32); 8] = [
    ("SIGHUP", 1),
    ("SIGINT", 2),
    ("SIGQUIT", 3),
    ("SIGKILL", 9),
    ("SIGUSR1", 10),
    ("SIGUSR2", 12),
    ("SIGTERM", 15),
    ("SIGTSTP", 20),
];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTerminal {
    cwd: Option<String>,
    /// In place of a shell.
    command: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Control {
    Stdin { data: String },
    Resize { cols: u16, rows: u16 },
    Signal { signal: String },
    Ping,
}

pub(super) async fn create(
    ask: Ask,
    OptionalJson(asked): OptionalJson<NewTerminal>,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let sandbox = ask.awake().await?;
    let mut env = environment::with_stored(sandbox, Default::default()).await?;
    env.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
    let spec = ExecSpec {
        env,
        cwd: asked.cwd.filter(|cwd| !cwd.is_empty()),
        terminal: Some(TerminalSize::default()),
        ..ExecSpec::default()
    };
    // The first shell that there is replaces the one that looks for it.
    let line = asked.command.filter(|line| !line.trim().is_empty());
    let line = line.unwrap_or_else(|| "exec \"$(command -v bash || command -v sh)\" -l".to_owned());
    let exec = commands::start_line(sandbox, line, spec).await?;
    Ok((StatusCode::CREATED, Json(json!({ "session_id": exec.id }))))
}

pub(super) async fn status(ask: Ask) -> ApiResult<Json<Value>> {
    let exec = terminal(&ask).await?;
    let SandboxHandle { engine, who, which } = ask.sandbox();
    let mut entries = engine.exec_entries(who, which, &exec.id, 1, Follow::No).await?;
    let mut offset = 0;
    while let Some(entry) = entries.next().await {
        offset += entry?.output().map_or(0, |(_, bytes)| bytes.len() as u64);
    }
    Ok(Json(json!({ "session_id": exec.id, "running": exec.outcome.is_none(), "output_offset": offset })))
}

/// Hangs up. A session that was deleted so is not found any more.
pub(super) async fn delete(ask: Ask) -> ApiResult<()> {
    let exec = terminal(&ask).await?;
    match commands::hang_up(ask.sandbox(), &exec.id).await {
        Err(error) if error.kind() == ErrorKind::WrongState => Ok(()),
        ended => Ok(ended?),
    }
}

fn is_deleted(exec: &ExecView) -> bool {
    matches!(
        exec.outcome,
        Some(
            ExecOutcome::Signaled { signal: commands::SIGHUP }
                | ExecOutcome::Killed { reason: KillReason::Request }
        )
    )
}

async fn terminal(ask: &Ask) -> Result<ExecView> {
    let SandboxHandle { engine, who, which } = ask.sandbox();
    let exec = engine.exec_view(who, which, &exec_id(ask.caller.parameter("exec"))?).await?;
    match exec.terminal && !is_deleted(&exec) {
        true => Ok(exec),
        false => Err(Error::no_such(Thing::Exec, exec.id.as_str())),
    }
}

pub(super) async fn attach(
    ask: Ask,
    lease: Option<Extension<StreamLease>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let query = ask.query();
    if query.one("pty")? == Some("0") {
        return Err(Error::new(ErrorKind::Unsupported, "a session without a terminal cannot be attached to")
            .with_hint("Omit pty=0, or run the command with POST /command.")
            .into());
    }
    let since = query.number("since")?;
    let exec = terminal(&ask).await?;
    let upgrade = upgrade.map_err(|refused| Error::invalid(refused.body_text()))?;
    let frames = Frames {
        exec: exec.id.clone(),
        n_skipped: since.unwrap_or(0),
        replayed_to: since.map_or(0, |_| exec.last_entry),
        offset: 0,
    };
    let SandboxHandle { engine, who, which } = ask.sandbox();
    let terminal =
        Terminal { engine: engine.clone(), who: who.clone(), which: which.clone(), exec: exec.id, from: 1 };
    let attached = Attached::new(terminal, Box::new(frames), lease.map(|Extension(lease)| lease)).await;
    Ok(match attached? {
        Ok(attached) => attached.answer(upgrade),
        Err(refusal) => refusal.into_response(),
    })
}

/// How its clients are spoken to.
struct Frames {
    exec: ExecId,
    /// Bytes of output that the client has already.
    n_skipped: u64,
    /// Output up to this entry was there before the client came back.
    replayed_to: u64,
    /// Bytes of output so far.
    offset: u64,
}

impl Framing for Frames {
    fn hello(&self) -> Option<Message> {
        Some(text(&json!({ "type": "connected", "session_id": self.exec, "mode": "pty" })))
    }

    fn output(&mut self, entry: Result<Entry>) -> Vec<Message> {
        let (number, bytes) = match entry {
            Ok(Entry { number, body: EntryBody::Stdout(bytes) | EntryBody::Stderr(bytes), .. }) => {
                (number, bytes)
            }
            Ok(_) => return Vec::new(),
            Err(error) => return vec![failure("RUNTIME_ERROR", &error)],
        };
        let n_known = self.n_skipped.saturating_sub(self.offset).min(bytes.len() as u64);
        self.offset += bytes.len() as u64;
        let fresh = bytes.slice(n_known as usize..);
        if fresh.is_empty() {
            return Vec::new();
        }
        let mut frame = Vec::with_capacity(fresh.len() + 9);
        if number <= self.replayed_to {
            frame.push(REPLAY);
            frame.extend_from_slice(&self.offset.to_be_bytes());
        } else {
            frame.push(STDOUT);
        }
        frame.extend_from_slice(&fresh);
        vec![Message::Binary(frame.into())]
    }

    fn input(&self, message: Message) -> Input {
        match message {
            Message::Binary(frame) => match frame.split_first() {
                Some((&STDIN, _)) => Input::Write(frame.slice(1..)),
                _ => Input::Answer(invalid_frame()),
            },
            Message::Text(frame) => match serde_json::from_str(&frame) {
                Ok(Control::Ping) => Input::Answer(text(&json!({ "type": "pong" }))),
                Ok(Control::Stdin { data }) => Input::Write(Bytes::from(data)),
                Ok(Control::Resize { cols, rows }) => Input::Resize(TerminalSize { rows, cols }),
                Ok(Control::Signal { signal }) => match SIGNALS.iter().find(|(name, _)| *name == signal) {
                    Some((_, number)) => Input::Signal(*number),
                    None => Input::Answer(invalid_frame()),
                },
                Err(_unreadable) => Input::Answer(invalid_frame()),
            },
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => Input::Nothing,
        }
    }

    fn refused(&self, error: &Error) -> Message {
        failure("STDIN_WRITE_FAILED", error)
    }

    fn end(&self, exec: &ExecView) -> Vec<Message> {
        let exit_code = exec.exit_code.map(|code| text(&json!({ "type": "exit", "exit_code": code })));
        let close = CloseFrame { code: NORMAL_CLOSURE, reason: "process exited".into() };
        exit_code.into_iter().chain([Message::Close(Some(close))]).collect()
    }
}

fn text(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

fn failure(code: &str, error: &Error) -> Message {
    text(&json!({ "type": "error", "code": code, "error": error.to_string() }))
}

fn invalid_frame() -> Message {
    text(&json!({ "type": "error", "code": "INVALID_FRAME", "error": "unknown frame" }))
}
