//! Commands: run, watched, ended.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    Json,
    body::Body,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use engine::{EntryBody, ExecView, Follow};
use futures_util::{StreamExt, future};
use sandbox::{Error, ErrorKind, ExecId, ExecSpec, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    environment,
    follow::{self, Kind},
};
use crate::{
    dialects::opensandbox::{
        ask::Ask,
        commands::{end, exec_id, start, start_line},
        handle::SandboxHandle,
    },
    http::{ApiResult, JsonBody},
};

/// The number behind which the next reader of a command's output goes on.
const CURSOR: &str = "execd-commands-tail-cursor";
/// The port of OpenSandbox's server for code. Its SDK takes a connection to it for the sign that code can be run.
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

pub(super) async fn run(ask: Ask, JsonBody(asked): JsonBody<Command>) -> ApiResult<Response> {
    let is_background = asked.background.unwrap_or(false);
    let (line, mut spec) = asked.decided()?;
    let sandbox = ask.awake().await?;
    let SandboxHandle { engine, who, which } = sandbox;
    spec.env = environment::with_stored(sandbox, spec.env).await?;
    if line.as_ref().is_some_and(|line| line.contains(&INTERPRETER_PORT.to_string())) {
        engine.occupy_port(who, which, INTERPRETER_PORT).await?;
    }
    let exec = match line {
        Some(line) => start_line(sandbox, line, spec).await?,
        None => start(sandbox, spec).await?,
    };
    if is_background {
        return Ok(follow::started(&exec)?);
    }
    Ok(follow::follow(engine, who, &exec, Kind::Command).await?)
}

impl Command {
    /// A line for a shell, or nothing where the spec has the program and its arguments.
    fn decided(self) -> Result<(Option<String>, ExecSpec)> {
        let (line, command) = match (self.command, self.argv) {
            (Some(line), None) if !line.trim().is_empty() => (Some(line), Vec::new()),
            (None, Some(words)) if !words.is_empty() => (None, words),
            (Some(_), Some(_)) => return Err(Error::invalid("give command or argv, not both")),
            _ => return Err(Error::invalid("the command is empty")),
        };
        let user = match (self.uid, self.gid) {
            (Some(uid), Some(gid)) => Some(format!("{uid}:{gid}")),
            (Some(uid), None) => Some(uid.to_string()),
            (None, None) => None,
            (None, Some(_)) => return Err(Error::invalid("gid needs uid")),
        };
        let spec = ExecSpec {
            command,
            env: self.envs.unwrap_or_default(),
            cwd: self.cwd.filter(|cwd| !cwd.is_empty()),
            user,
            timeout: self.timeout.filter(|ms| *ms > 0).map(Duration::from_millis),
            ..ExecSpec::default()
        };
        Ok((line, spec))
    }
}

pub(super) async fn interrupt(ask: Ask) -> ApiResult<()> {
    end_if_running(&ask, &exec_id(ask.query().required("id")?)?).await
}

/// A command that has ended needs no end.
pub(super) async fn end_if_running(ask: &Ask, id: &ExecId) -> ApiResult<()> {
    match end(ask.sandbox(), id).await {
        Err(error) if error.kind() == ErrorKind::WrongState => Ok(()),
        ended => Ok(ended?),
    }
}

pub(super) async fn status(ask: Ask) -> ApiResult<Json<Value>> {
    let SandboxHandle { engine, who, which } = ask.sandbox();
    let exec = engine.exec_view(who, which, &exec_id(ask.caller.parameter("exec"))?).await?;
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
        [shell, flag, line] if shell.ends_with("sh") && flag == "-c" => line.clone(),
        words => words.join(" "),
    }
}

/// Returns a command's output after the cursor, both streams in order.
pub(super) async fn logs(ask: Ask) -> ApiResult<Response> {
    let from = ask.query().number("cursor")?.unwrap_or(0);
    let id = exec_id(ask.caller.parameter("exec"))?;
    let SandboxHandle { engine, who, which } = ask.sandbox();
    let last = engine.exec_view(who, which, &id).await?.last_entry;
    let first = from.saturating_add(1);
    let entries = engine.exec_entries(who, which, &id, first, Follow::No).await?;
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
