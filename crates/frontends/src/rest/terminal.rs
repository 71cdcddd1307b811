//! Terminals for browsers, over WebSocket.
//!
//! Output is the ledger's: each binary message follows a text message with the number of its entry, so a client that
//! comes back with the next number has missed nothing.

use axum::{
    Extension,
    extract::{
        State,
        ws::{CloseFrame, Message, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    response::{IntoResponse as _, Response},
};
use engine::{Entry, EntryBody, ExecView};
use sandbox::{Error, TerminalSize};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;

use super::{Rest, extract::AskExec, v1};
use crate::{
    http::{ApiResult, StreamLease},
    terminal::{Attached, Framing, Input, Terminal},
};

/// The protocol that both sides speak.
const PROTOCOL: &str = "warren.terminal.v1";
const NORMAL_CLOSURE: u16 = 1000;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(terminal))
}

/// Attaches to an exec over WebSocket (subprotocol `warren.terminal.v1`), usually one with a terminal.
///
/// The server sends `{"number": n}` as text before each binary message of output, `{"trimmed": {...}}` where output was
/// cut off, and `{"exit": {...}}` at the end. The client sends input as binary messages, and as text
/// `{"resize": {"cols", "rows"}}`, `{"eof": true}` or `{"signal": n}`.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/execs/{exec}/terminal", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), ("exec" = String, Path), v1::TerminalQuery),
    responses((status = 101, description = "The terminal is attached.")))]
async fn terminal(
    State(rest): State<Rest>,
    ask: AskExec<v1::TerminalQuery>,
    lease: Option<Extension<StreamLease>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    // Before the request is looked at closer: what is wrong with it must not tell a stranger more.
    rest.engine.exec_view(&ask.who, &ask.which, &ask.exec).await?;
    let upgrade = upgrade.map_err(|refused| {
        Error::invalid(format!("this route needs a WebSocket: {}", refused.body_text()))
            .with_hint(format!("Open it as a WebSocket with the subprotocol {PROTOCOL}."))
    })?;
    let AskExec { who, which, exec, query } = ask;
    let terminal = Terminal { engine: rest.engine.clone(), who, which, exec, from: query.from.unwrap_or(1) };
    let attached = Attached::new(terminal, Box::new(Frames), lease.map(|Extension(lease)| lease)).await?;
    Ok(match attached {
        Ok(attached) => attached
            .while_serving(rest.stop.clone(), rest.activity.enter())
            .answer(upgrade.protocols([PROTOCOL])),
        Err(refusal) => refusal.into_response(),
    })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Control {
    Resize { cols: u16, rows: u16 },
    Eof(bool),
    Signal(i32),
}

struct Frames;

impl Framing for Frames {
    fn hello(&self) -> Option<Message> {
        None
    }

    fn output(&mut self, entry: sandbox::Result<Entry>) -> Vec<Message> {
        match entry {
            Ok(Entry { number, body: EntryBody::Stdout(bytes) | EntryBody::Stderr(bytes), .. }) => {
                vec![text(&json!({ "number": number })), Message::Binary(bytes)]
            }
            Ok(Entry { number, body: EntryBody::Trimmed { from }, .. }) => {
                vec![text(&json!({ "trimmed": { "from": from, "through": number } }))]
            }
            Ok(_) => Vec::new(),
            Err(error) => vec![self.refused(&error)],
        }
    }

    fn input(&self, message: Message) -> Input {
        match message {
            Message::Binary(bytes) => Input::Write(bytes),
            Message::Text(words) => match serde_json::from_str(&words) {
                Ok(Control::Resize { cols, rows }) if cols > 0 && rows > 0 => {
                    Input::Resize(TerminalSize { rows, cols })
                }
                Ok(Control::Eof(true)) => Input::End,
                Ok(Control::Signal(number)) => Input::Signal(number),
                Ok(Control::Resize { .. } | Control::Eof(false)) | Err(_) => {
                    Input::Answer(self.refused(&Error::invalid("not a message of the terminal protocol")))
                }
            },
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => Input::Nothing,
        }
    }

    fn refused(&self, error: &Error) -> Message {
        text(&json!({ "error": { "kind": error.kind().as_str(), "message": error.to_string() } }))
    }

    fn end(&self, exec: &ExecView) -> Vec<Message> {
        // Without an outcome the daemon leaves, and the client comes back.
        let exit = exec.outcome.as_ref().map(|outcome| {
            let code = exec.exit_code;
            text(&json!({ "exit": { "code": code, "outcome": outcome, "lastEntry": exec.last_entry } }))
        });
        let close = CloseFrame { code: NORMAL_CLOSURE, reason: "".into() };
        exit.into_iter().chain([Message::Close(Some(close))]).collect()
    }
}

fn text(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}
