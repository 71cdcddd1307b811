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
        ask::Ask,
        handle::{SandboxHandle, shown},
    },
    http::ApiResult,
};

const KINDS: [&str; 4] = ["logs", "events", "inspect", "summary"];
/// The latest commands that are told of.
const MAX_EXECS: usize = 100;
/// The latest events.
const MAX_EVENTS: usize = 200;

pub(super) async fn diagnostics(ask: Ask) -> ApiResult<Response> {
    let kind = ask.caller.parameter("kind");
    if !KINDS.contains(&kind) {
        let message = format!("no diagnostics {:?}", shown(kind));
        return Err(Error::not_found(message)
            .about(Thing::Route, "")
            .with_hint("Ask for logs, events, inspect or summary.")
            .into());
    }
    let text = text(ask.sandbox(), kind).await?;
    Ok(match ask.query().one("scope")? {
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

async fn text(sandbox: SandboxHandle<'_>, kind: &str) -> Result<String> {
    match kind {
        "logs" => logs(sandbox).await,
        "events" => events(sandbox).await,
        "inspect" => inspect(sandbox).await,
        _ => {
            Ok(format!("{}\n\n{}\n{}", inspect(sandbox).await?, events(sandbox).await?, logs(sandbox).await?))
        }
    }
}

async fn inspect(sandbox: SandboxHandle<'_>) -> Result<String> {
    Ok(serde_json::to_string_pretty(&super::shape(&sandbox.view().await?)).unwrap_or_default())
}

/// The latest commands, and how they ended. Their output is at `/command/{id}/logs`.
async fn logs(sandbox: SandboxHandle<'_>) -> Result<String> {
    let execs = sandbox.engine.execs(sandbox.who, sandbox.which).await?;
    Ok(execs.iter().rev().take(MAX_EXECS).rev().map(line).collect())
}

fn line(exec: &ExecView) -> String {
    let how = exec.outcome.as_ref().map_or_else(|| "running".to_owned(), ToString::to_string);
    format!("{} {} {how}: {}\n", exec.created_at, exec.id, shown(&exec.command.join(" ")))
}

async fn events(sandbox: SandboxHandle<'_>) -> Result<String> {
    let id = sandbox.view().await?.id;
    let mut events = sandbox.engine.events(sandbox.who, Some(1), Follow::No).await?;
    let mut lines = std::collections::VecDeque::new();
    while let Some(event) = events.next().await {
        let event = event?;
        if event.sandbox.as_ref() != Some(&id) {
            continue;
        }
        if lines.len() == MAX_EVENTS {
            lines.pop_front();
        }
        let (mut line, kind) = (String::new(), json!(event.kind));
        // Writing to a string cannot fail.
        writeln!(line, "{} {} {}", event.at, kind.as_str().unwrap_or_default(), shown(&event.detail)).ok();
        lines.push_back(line);
    }
    Ok(lines.into_iter().collect())
}
