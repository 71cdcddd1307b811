//! `code_interrupt`: Ctrl-C for code that another call runs.

use std::time::Duration;

use engine::{ExecView, Follow, SandboxRef, SignalScope};
use futures_util::StreamExt;
use sandbox::{Error, ErrorKind, ExecState, Next, Thing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{context_name, refused};
use crate::{
    code::{Cell, Collected, PictureCaps},
    mcp::{Answer, Call, Failure, Tool, ToolResult},
};

const SIGINT: i32 = 2;
/// How long the end is waited for; the guest kills what does not react before.
const PATIENCE: Duration = Duration::from_secs(6);
const NO_PICTURES: PictureCaps = PictureCaps { each_bytes: 0, all_bytes: 0 };

pub(super) fn tools() -> Vec<Tool> {
    tools! { Code;
        "code_interrupt", "Interrupt code", DESTROYS_MORE, interrupt:
            "Stop the code running in a context, keeping its variables if the language can.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Sandbox
    name: String,
    /// What runs in it, or
    context: Option<String>,
    /// this run
    exec_session_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Interrupted {
    exec_session_id: String,
    /// False: it has not reacted yet, and is killed if it does not.
    ended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_kept: Option<bool>,
}

async fn interrupt(call: Call, arguments: Arguments) -> ToolResult<Interrupted> {
    let which = call.sandbox(&arguments.name)?;
    let exec = find(&call, &which, &arguments).await?;
    let (engine, who) = (call.engine(), &call.who);
    engine.exec_signal(who, &which, &exec.id, SIGINT, SignalScope::Group).await.map_err(|error| {
        refused(error).or_hint(
            ErrorKind::WrongState,
            "It has already ended; call sandbox_exec_poll with its execSessionId to read its output.",
        )
    })?;
    let view = engine.wait_exec(who, &which, &exec.id, Some(PATIENCE)).await?;
    let ended = view.outcome.is_some();
    let state_kept = if ended { state_kept(&call, &which, &view).await? } else { None };
    Ok(Answer::new(Interrupted { exec_session_id: exec.id.to_string(), ended, state_kept }))
}

/// The run that is meant. Of those in a context the oldest runs, and the others wait.
async fn find(call: &Call, which: &SandboxRef, arguments: &Arguments) -> Result<ExecView, Failure> {
    let (engine, who) = (call.engine(), &call.who);
    if let Some(text) = &arguments.exec_session_id {
        let id = text.parse().map_err(|_malformed| {
            let shown: String = text.chars().take(64).collect();
            Failure::from(Error::not_found(format!("no exec {shown}")))
                .or_next(ErrorKind::NotFound, Next::List(Thing::Context))
        })?;
        return Ok(engine.exec_view(who, which, &id).await?);
    }
    let Some(context) = &arguments.context else {
        return Err(Failure::invalid("context or execSessionId is required")
            .with_hint("Call code_context_list to see which context is busy."));
    };
    let context = context_name(context)?;
    let is_meant = |view: &ExecView| {
        let cell = view.cell.as_ref();
        view.state != ExecState::Done && cell.and_then(|cell| cell.context.as_ref()) == Some(&context)
    };
    let found = engine.execs(who, which).await?.into_iter().find(is_meant);
    found.ok_or_else(|| {
        Failure::from(Error::new(ErrorKind::WrongState, format!("nothing is running in context {context}")))
            .with_hint("There is nothing to interrupt; code_context_list shows which contexts are busy.")
    })
}

async fn state_kept(call: &Call, which: &SandboxRef, view: &ExecView) -> Result<Option<bool>, Failure> {
    let Some(cell) = &view.cell else { return Ok(None) };
    let cell = Cell {
        sandbox: String::new(),
        exec: view.id.clone(),
        language: cell.language,
        context: cell.context.clone(),
        links: None,
    };
    let mut collected = Collected::new(cell, 0, NO_PICTURES);
    let mut items = call.engine().exec_entries(&call.who, which, &view.id, 1, Follow::No).await?;
    while let Some(item) = items.next().await {
        collected.take(&item);
    }
    Ok(collected.state_kept())
}
