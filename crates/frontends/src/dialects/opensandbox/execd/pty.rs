//! Terminals over WebSocket. Each is an exec with a terminal, and its id is the session's; what it prints is read from
//! the ledger, so any number of clients may attach, and come back.
//!
//! Frames: binary with a first byte for the channel, or JSON as text for control.

use axum::{
    Extension, Json,
    extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use engine::{Engine, Entry, EntryBody, ExecView, Follow, Principal, SandboxRef, SignalScope};
use futures_util::{FutureExt as _, StreamExt, future::BoxFuture, stream, stream::BoxStream};
use sandbox::{Error, ErrorKind, ExecId, ExecSpec, Result, TerminalSize, Thing};
use serde::Deserialize;
use serde_json::{Value, json};

use super::environment;
use crate::{
    dialects::opensandbox::{
        ask::Ask,
        commands::{self, exec_id},
        handle::SandboxHandle,
    },
    http::{ApiResult, OptionalJson, StreamLease, StreamPlace},
};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const REPLAY: u8 = 3;
/// Longest frame of a client.
const MAX_FRAME_BYTES: usize = 1024 * 1024;
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

pub(super) async fn delete(ask: Ask) -> ApiResult<()> {
    super::commands::end_if_running(&ask, &terminal(&ask).await?.id).await
}

async fn terminal(ask: &Ask) -> Result<ExecView> {
    let SandboxHandle { engine, who, which } = ask.sandbox();
    let exec = engine.exec_view(who, which, &exec_id(ask.caller.parameter("exec"))?).await?;
    match exec.terminal {
        true => Ok(exec),
        false => Err(Error::no_such(Thing::Exec, exec.id.as_str())),
    }
}

pub(super) async fn attach(
    ask: Ask,
    lease: Option<Extension<StreamLease>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let query = ask.query().only(&["pty", "since", "takeover"])?;
    if query.one("pty")? == Some("0") {
        return Err(Error::new(ErrorKind::Unsupported, "a session without a terminal cannot be attached to")
            .with_hint("Omit pty=0, or run the command with POST /command.")
            .into());
    }
    let since = query.number("since")?;
    let exec = terminal(&ask).await?;
    let upgrade = upgrade.map_err(|refused| Error::invalid(refused.body_text()))?;
    let lease = lease.map(|Extension(lease)| lease);
    let place = match lease.as_ref().map(StreamLease::take) {
        Some(Err(refusal)) => return Ok(refusal.into_response()),
        Some(Ok(place)) => place,
        None => None,
    };
    let key_ended = lease.map_or_else(|| std::future::pending().boxed(), |lease| lease.ended());
    let SandboxHandle { engine, who, which } = ask.sandbox();
    let entries = engine.exec_entries(who, which, &exec.id, 1, Follow::Yes).await?;
    let attached = Attached {
        engine: engine.clone(),
        who: who.clone(),
        which: which.clone(),
        exec: exec.id,
        n_skipped: since.unwrap_or(0),
        replayed_to: since.map_or(0, |_| exec.last_entry),
        offset: 0,
        _place: place,
    };
    Ok(upgrade
        .max_message_size(MAX_FRAME_BYTES)
        .on_upgrade(move |socket| attached.serve(socket, entries, key_ended)))
}

struct Attached {
    engine: Engine,
    who: Principal,
    which: SandboxRef,
    exec: ExecId,
    /// Bytes of output that the client has already.
    n_skipped: u64,
    /// Output up to this entry was there before the client came back.
    replayed_to: u64,
    /// Bytes of output so far.
    offset: u64,
    _place: Option<StreamPlace>,
}

impl Attached {
    async fn serve(
        mut self,
        mut socket: WebSocket,
        mut entries: BoxStream<'static, Result<Entry>>,
        mut key_ended: BoxFuture<'static, ()>,
    ) {
        let hello = json!({ "type": "connected", "session_id": self.exec, "mode": "pty" });
        if socket.send(text(&hello)).await.is_err() {
            return;
        }
        loop {
            let sent = tokio::select! {
                () = &mut key_ended => return,
                entry = entries.next() => match entry {
                    Some(entry) => match self.output(entry) {
                        Some(message) => socket.send(message).await,
                        None => Ok(()),
                    },
                    None => return self.leave(socket).await,
                },
                message = socket.recv() => match message {
                    Some(Ok(message)) => match self.input(message).await {
                        Some(answer) => socket.send(answer).await,
                        None => Ok(()),
                    },
                    Some(Err(_)) | None => return,
                },
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// The frame for an entry, if it is one to be shown.
    fn output(&mut self, entry: Result<Entry>) -> Option<Message> {
        let (number, bytes) = match entry {
            Ok(Entry { number, body: EntryBody::Stdout(bytes) | EntryBody::Stderr(bytes), .. }) => {
                (number, bytes)
            }
            Ok(_) => return None,
            Err(error) => return Some(failure("RUNTIME_ERROR", &error)),
        };
        let n_known = self.n_skipped.saturating_sub(self.offset).min(bytes.len() as u64);
        self.offset += bytes.len() as u64;
        let fresh = bytes.slice(n_known as usize..);
        if fresh.is_empty() {
            return None;
        }
        let mut frame = Vec::with_capacity(fresh.len() + 9);
        if number <= self.replayed_to {
            frame.push(REPLAY);
            frame.extend_from_slice(&self.offset.to_be_bytes());
        } else {
            frame.push(STDOUT);
        }
        frame.extend_from_slice(&fresh);
        Some(Message::Binary(frame.into()))
    }

    /// Does what a client asks for. What it is told of that, if anything.
    async fn input(&self, message: Message) -> Option<Message> {
        let done = match message {
            Message::Binary(frame) => match frame.split_first() {
                Some((&STDIN, _)) => self.write(frame.slice(1..)).await,
                _ => return Some(invalid_frame()),
            },
            Message::Text(frame) => match serde_json::from_str(&frame) {
                Ok(Control::Ping) => return Some(text(&json!({ "type": "pong" }))),
                Ok(Control::Stdin { data }) => self.write(Bytes::from(data)).await,
                Ok(Control::Resize { cols, rows }) => {
                    let size = TerminalSize { rows, cols };
                    self.engine.exec_resize(&self.who, &self.which, &self.exec, size).await
                }
                Ok(Control::Signal { signal }) => match SIGNALS.iter().find(|(name, _)| *name == signal) {
                    Some((_, number)) => {
                        let scope = SignalScope::Group;
                        self.engine.exec_signal(&self.who, &self.which, &self.exec, *number, scope).await
                    }
                    None => return Some(invalid_frame()),
                },
                Err(_unreadable) => return Some(invalid_frame()),
            },
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => return None,
        };
        done.err().map(|error| failure("STDIN_WRITE_FAILED", &error))
    }

    async fn write(&self, bytes: Bytes) -> Result<()> {
        let bytes = stream::iter([Ok(bytes)]).boxed();
        self.engine.exec_stdin(&self.who, &self.which, &self.exec, bytes, false).await.map(drop)
    }

    /// The program has ended, or the daemon leaves.
    async fn leave(self, mut socket: WebSocket) {
        let exec = self.engine.exec_view(&self.who, &self.which, &self.exec).await;
        if let Some(exit_code) = exec.ok().and_then(|exec| exec.exit_code) {
            // A client that is gone need not be told.
            socket.send(text(&json!({ "type": "exit", "exit_code": exit_code }))).await.ok();
        }
        let close = CloseFrame { code: NORMAL_CLOSURE, reason: "process exited".into() };
        socket.send(Message::Close(Some(close))).await.ok();
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
