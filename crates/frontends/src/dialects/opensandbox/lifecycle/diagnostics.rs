//! `GET /sandboxes/{id}/diagnostics/{logs,events,inspect,summary}`, as text, or with `scope` as text in JSON.

use std::fmt::Write as _;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use engine::{ExecView, Follow};
use futures_util::StreamExt;
use sandbox::{Error, Result, Thing};
use serde_json::json;

use crate::{
    dialects::opensandbox::{
        ask::{Ask, Pairs},
        handle::{SandboxHandle, shown},
    },
    http::ApiResult,
};

const KINDS: [&str; 4] = ["logs", "events", "inspect", "summary"];
/// The scopes of OpenSandbox's own server, each of which means all that there is here.
const SCOPES: [&str; 3] = ["all", "container", "runtime"];
/// The latest commands that are told of.
const MAX_EXECS: u64 = 100;
/// The latest events.
const MAX_EVENTS: u64 = 200;

pub(super) async fn diagnostics(ask: Ask) -> ApiResult<Response> {
    let kind = ask.caller.parameter("kind");
    if !KINDS.contains(&kind) {
        let message = format!("no diagnostics {:?}", shown(kind));
        return Err(Error::not_found(message)
            .about(Thing::Route, "")
            .with_hint("Ask for logs, events, inspect or summary.")
            .into());
    }
    let scope = ask.query().one("scope")?;
    if let Some(scope) = scope.filter(|scope| !SCOPES.contains(scope)) {
        return Err(Error::invalid(format!("no scope {:?}", shown(scope)))
            .with_hint("Ask for all, or leave it out.")
            .into());
    }
    let text = text(ask.sandbox(), kind, Most::of(ask.query())?).await?;
    Ok(match scope {
        None => text.into_response(),
        Some(scope) => Json(json!({
            "sandboxId": ask.view().await?.id,
            "kind": kind,
            "scope": scope,
            "delivery": "inline",
            "contentType": "text/plain; charset=utf-8",
            "content": text,
            "contentLength": text.len(),
            "truncated": false,
        }))
        .into_response(),
    })
}

/// How many commands and events are told of.
#[derive(Clone, Copy)]
struct Most {
    execs: usize,
    events: usize,
}

impl Most {
    fn of(query: &Pairs) -> Result<Self> {
        let within = |asked: Option<u64>, most: u64| asked.unwrap_or(most).min(most) as usize;
        let events = query.number("event_limit")?.or(query.number("limit")?);
        Ok(Self { execs: within(query.number("tail")?, MAX_EXECS), events: within(events, MAX_EVENTS) })
    }
}

async fn text(sandbox: SandboxHandle<'_>, kind: &str, most: Most) -> Result<String> {
    match kind {
        "logs" => logs(sandbox, most.execs).await,
        "events" => events(sandbox, most.events).await,
        "inspect" => inspect(sandbox).await,
        _ => {
            let (about, events) = (inspect(sandbox).await?, events(sandbox, most.events).await?);
            Ok(format!("{about}\n\n{events}\n{}", logs(sandbox, most.execs).await?))
        }
    }
}

async fn inspect(sandbox: SandboxHandle<'_>) -> Result<String> {
    Ok(serde_json::to_string_pretty(&super::shape(&sandbox.view().await?)).unwrap_or_default())
}

/// The latest commands, and how they ended. Their output is at `/command/{id}/logs`.
async fn logs(sandbox: SandboxHandle<'_>, most: usize) -> Result<String> {
    let execs = sandbox.engine.execs(sandbox.who, sandbox.which).await?;
    Ok(execs.iter().rev().take(most).rev().map(line).collect())
}

fn line(exec: &ExecView) -> String {
    let how = exec.outcome.as_ref().map_or_else(|| "running".to_owned(), ToString::to_string);
    format!("{} {} {how}: {}\n", exec.created_at, exec.id, shown(&exec.command.join(" ")))
}

async fn events(sandbox: SandboxHandle<'_>, most: usize) -> Result<String> {
    let id = sandbox.view().await?.id;
    let mut events = sandbox.engine.events(sandbox.who, Some(1), Follow::No).await?;
    let mut lines = std::collections::VecDeque::new();
    while let Some(event) = events.next().await {
        let event = event?;
        if event.sandbox.as_ref() != Some(&id) {
            continue;
        }
        let (mut line, kind) = (String::new(), json!(event.kind));
        // Writing to a string cannot fail.
        writeln!(line, "{} {} {}", event.at, kind.as_str().unwrap_or_default(), shown(&event.detail)).ok();
        lines.push_back(line);
        if lines.len() > most {
            lines.pop_front();
        }
    }
    Ok(lines.into_iter().collect())
}
