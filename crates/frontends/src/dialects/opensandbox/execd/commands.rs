//! Commands: run, watched, ended.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use engine::{EntryBody, ExecView, Follow, SandboxRef, SignalScope};
use futures_util::{StreamExt, future};
use sandbox::{Error, ErrorKind, ExecOutcome, ExecSpec, NotStarted, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    environment, exec_id,
    follow::{self, Kind},
};
use crate::{
    dialects::opensandbox::ask::{Ask, Front},
    http::{ApiResult, JsonBody},
};

/// The number behind which the next reader of a command's output goes on.
const CURSOR: &str = "execd-commands-tail-cursor";
/// Shells for command lines, the best first.
const SHELLS: [&str; 2] = ["bash", "sh"];
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
/// What a command gets to end by itself.
const TERM_PATIENCE: Duration = Duration::from_secs(3);
/// What the end of a killed one may take.
const KILL_PATIENCE: Duration = Duration::from_secs(2);
/// Where OpenSandbox runs the server for code. Its SDK takes a connection to it for the sign that code can be run.
const INTERPRETER_PORT: u16 = 44771;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Command {
    command: Option<String>,
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    background: Option<bool>,
    /// Milliseconds; 0 is no limit.
    timeout: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    envs: Option<BTreeMap<String, String>>,
}

pub(super) async fn run(
    State(front): State<Front>,
    ask: Ask,
    JsonBody(asked): JsonBody<Command>,
) -> ApiResult<Response> {
    let is_background = asked.background.unwrap_or(false);
    let names_port =
        asked.command.as_deref().is_some_and(|line| line.contains(&INTERPRETER_PORT.to_string()));
    let (words, mut spec) = asked.decided()?;
    ask.awake().await?;
    spec.env = environment::with_stored(&front, &ask, spec.env).await?;
    if names_port {
        front.engine().occupy_port(ask.who(), &ask.which, INTERPRETER_PORT).await?;
    }
    let exec = start(&front, &ask, words, spec).await?;
    if is_background {
        return Ok(follow::started(&exec));
    }
    Ok(follow::follow(front.engine(), ask.who(), &exec, Kind::Command).await?)
}

/// What is run: a line for a shell, or a program with its arguments.
pub(super) enum Words {
    Line(String),
    Program(Vec<String>),
}

impl Command {
    fn decided(self) -> Result<(Words, ExecSpec)> {
        let words = match (self.command, self.argv) {
            (Some(line), None) if !line.trim().is_empty() => Words::Line(line),
            (None, Some(words)) if !words.is_empty() => Words::Program(words),
            (Some(_), Some(_)) => return Err(Error::invalid("give command or argv, not both")),
            _ => return Err(Error::invalid("the command is empty")),
        };
        let user = match (self.uid, self.gid) {
            (Some(uid), Some(gid)) => Some(format!("{uid}:{gid}")),
            (Some(uid), None) => Some(uid.to_string()),
            (None, None) => None,
            (None, Some(_)) => return Err(Error::invalid("gid needs uid")),
        };
        let timeout = self.timeout.filter(|ms| *ms > 0).map(Duration::from_millis);
        let spec = ExecSpec {
            env: self.envs.unwrap_or_default(),
            cwd: self.cwd.filter(|cwd| !cwd.is_empty()),
            user,
            timeout,
            ..ExecSpec::default()
        };
        Ok((words, spec))
    }
}

/// Starts it, with the best shell that the sandbox has.
pub(super) async fn start(front: &Front, ask: &Ask, words: Words, spec: ExecSpec) -> Result<ExecView> {
    let line = match words {
        Words::Program(command) => return exec(front, ask, ExecSpec { command, ..spec }).await,
        Words::Line(line) => line,
    };
    let mut started = None;
    for shell in SHELLS {
        let command = vec![shell.to_owned(), "-c".to_owned(), line.clone()];
        let exec = exec(front, ask, ExecSpec { command, ..spec.clone() }).await?;
        let is_missing =
            matches!(&exec.outcome, Some(ExecOutcome::NotStarted { reason: NotStarted::NotFound, .. }));
        started = Some(exec);
        if !is_missing {
            break;
        }
    }
    started.ok_or_else(|| Error::new(ErrorKind::Internal, "there is no shell to try"))
}

async fn exec(front: &Front, ask: &Ask, spec: ExecSpec) -> Result<ExecView> {
    spec.check().map_err(Error::from)?;
    Ok(front.engine().exec_ensuring_running(ask.who(), &ask.which, spec).await?.0)
}

/// Ends a command: first by asking, then by force.
pub(super) async fn interrupt(State(front): State<Front>, ask: Ask) -> ApiResult<()> {
    let id = exec_id(ask.query().only(&["id"])?.required("id")?)?;
    end(&front, &ask, &id).await?;
    Ok(())
}

pub(super) async fn end(front: &Front, ask: &Ask, id: &sandbox::ExecId) -> Result<()> {
    let exec = front.engine().exec_view(ask.who(), &ask.which, id).await?;
    let (engine, who, which) = (front.engine().clone(), ask.who().clone(), SandboxRef::from(&exec.sandbox));
    let id = id.clone();
    // In a task of its own: a client that goes away has asked all the same.
    let ending = tokio::spawn(async move {
        for (signal, patience) in [(SIGTERM, TERM_PATIENCE), (SIGKILL, KILL_PATIENCE)] {
            match engine.exec_signal(&who, &which, &id, signal, SignalScope::Group).await {
                // It has ended.
                Err(error) if error.kind() == ErrorKind::WrongState => return Ok(()),
                sent => sent?,
            }
            if engine.wait_exec(&who, &which, &id, Some(patience)).await?.outcome.is_some() {
                return Ok(());
            }
        }
        Ok(())
    });
    ending.await.map_err(|error| Error::new(ErrorKind::Internal, "the end was lost").with_source(error))?
}

pub(super) async fn status(State(front): State<Front>, ask: Ask) -> ApiResult<Json<Value>> {
    let id = exec_id(ask.caller.parameter("exec"))?;
    let exec = front.engine().exec_view(ask.who(), &ask.which, &id).await?;
    let failure = exec.outcome.as_ref().filter(|outcome| !outcome.is_success()).map(ToString::to_string);
    let mut status = json!({
        "id": exec.id,
        "content": content(&exec),
        "running": exec.outcome.is_none(),
        "exit_code": exec.exit_code,
        "started_at": exec.started_at.unwrap_or(exec.created_at),
        "finished_at": exec.ended_at,
    });
    if let Some(failure) = failure {
        status["error"] = json!(failure);
    }
    Ok(Json(status))
}

/// As it was sent.
fn content(exec: &ExecView) -> String {
    match exec.command.as_slice() {
        [shell, flag, line] if SHELLS.contains(&shell.as_str()) && flag == "-c" => line.clone(),
        words => words.join(" "),
    }
}

/// What a command has printed behind the cursor, both streams in their order.
pub(super) async fn logs(State(front): State<Front>, ask: Ask) -> ApiResult<Response> {
    let from = ask.query().only(&["cursor"])?.number("cursor")?.unwrap_or(0);
    let id = exec_id(ask.caller.parameter("exec"))?;
    let exec = front.engine().exec_view(ask.who(), &ask.which, &id).await?;
    let last = exec.last_entry;
    let first = from.saturating_add(1);
    let entries = front.engine().exec_entries(ask.who(), &ask.which, &id, first, Follow::No).await?;
    let output = entries
        .take_while(move |entry| future::ready(entry.as_ref().map_or(true, |entry| entry.number <= last)))
        .filter_map(|entry| {
            future::ready(match entry {
                Ok(entry) => match entry.body {
                    EntryBody::Stdout(bytes) | EntryBody::Stderr(bytes) => Some(Ok(bytes)),
                    _ => None,
                },
                // A part that is lost must not look whole.
                Err(error) => Some(Err(error)),
            })
        });
    let body = if first > last { Body::empty() } else { Body::from_stream(output) };
    let headers =
        [(CONTENT_TYPE.as_str(), "text/plain; charset=utf-8".to_owned()), (CURSOR, last.to_string())];
    Ok((headers, body).into_response())
}
