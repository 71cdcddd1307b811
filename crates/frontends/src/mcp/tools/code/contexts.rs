//! `code_context_…`: interpreters that keep their variables.

use std::collections::BTreeMap;

use engine::{ContextSpec, ContextState, ContextView, LanguageView, Made};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{context_name, refused};
use crate::{
    code::language,
    mcp::{Answer, Call, Tool, ToolResult},
};

pub(super) fn tools() -> Vec<Tool> {
    tools! { Code;
        "code_context_create", "Create code context", ADDS, create:
            "Start another interpreter with its own variables. sandbox_run_code creates the default ones itself.";
        "code_context_list", "List code contexts", READS, list:
            "List the contexts of a sandbox, and the languages it can run.";
        "code_context_reset", "Reset code context", DESTROYS_MORE, reset:
            "Forget the variables of a context and kill code running in it.";
        "code_context_remove", "Remove code context", DESTROYS, remove:
            "Remove a context and kill code running or waiting in it.";
        "code_context_fork", "Fork code context", ADDS, fork:
            "Fork a live Python context: the copy starts with the same variables. Try things in the copy.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct CreateArguments {
    /// Sandbox
    name: String,
    /// Default: generated
    context: Option<String>,
    /// python (default), javascript, bash
    language: Option<String>,
    cwd: Option<String>,
    env: Option<BTreeMap<String, String>>,
    user: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Sandbox {
    /// Sandbox
    name: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OneContext {
    /// Sandbox
    name: String,
    context: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ForkArguments {
    /// Sandbox
    name: String,
    context: String,
    /// Name of the fork; default: generated
    into: Option<String>,
    /// Even with threads and the like
    force: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Row {
    context: String,
    language: String,
    state: &'static str,
    cells: u64,
    queued: u32,
    cwd: String,
    memory_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
}

impl From<ContextView> for Row {
    fn from(view: ContextView) -> Self {
        Self {
            context: view.name,
            language: view.language,
            state: match view.state {
                ContextState::Starting => "starting",
                ContextState::Idle => "idle",
                ContextState::Busy => "busy",
                ContextState::Lost => "lost",
            },
            cells: view.cells,
            queued: view.queued,
            cwd: view.cwd,
            memory_bytes: view.memory_bytes,
            parent: view.parent,
            pid: view.pid,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    contexts: Vec<Row>,
    /// Languages that sandbox_run_code can run here.
    languages: Vec<LanguageRow>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LanguageRow {
    name: String,
    program: String,
    /// Whether calls share variables.
    stateful: bool,
}

impl From<LanguageView> for LanguageRow {
    fn from(LanguageView { name, program, stateful }: LanguageView) -> Self {
        Self { name, program, stateful }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Removed {
    context: String,
    removed: bool,
}

fn answer(made: Made) -> Answer<Row> {
    Answer::new(Row::from(made.context)).warn_all(made.warnings)
}

async fn create(call: Call, arguments: CreateArguments) -> ToolResult<Row> {
    let which = call.sandbox(&arguments.name)?;
    let language = match &arguments.language {
        Some(text) => language::named(call.engine(), &call.who, &which, text).await?,
        None => language::DEFAULT,
    };
    let spec = ContextSpec {
        name: arguments.context.as_deref().map(context_name).transpose()?,
        language,
        env: arguments.env.unwrap_or_default(),
        cwd: arguments.cwd,
        user: arguments.user,
    };
    match call.engine().create_context(&call.who, &which, spec).await {
        Ok(made) => Ok(answer(made)),
        Err(error) => {
            Err(refused(language::explain(call.engine(), &call.who, &which, language, error).await))
        }
    }
}

async fn list(call: Call, arguments: Sandbox) -> ToolResult<Listed> {
    let which = call.sandbox(&arguments.name)?;
    let contexts = call.engine().contexts(&call.who, &which).await?;
    let languages = call.engine().languages(&call.who, &which).await?;
    Ok(Answer::new(Listed {
        contexts: contexts.into_iter().map(Row::from).collect(),
        languages: languages.into_iter().map(LanguageRow::from).collect(),
    }))
}

async fn reset(call: Call, arguments: OneContext) -> ToolResult<Row> {
    let (which, context) = (call.sandbox(&arguments.name)?, context_name(&arguments.context)?);
    call.engine().reset_context(&call.who, &which, &context).await.map(answer).map_err(refused)
}

async fn remove(call: Call, arguments: OneContext) -> ToolResult<Removed> {
    let (which, context) = (call.sandbox(&arguments.name)?, context_name(&arguments.context)?);
    call.engine().remove_context(&call.who, &which, &context).await.map_err(refused)?;
    Ok(Answer::new(Removed { context: arguments.context, removed: true }))
}

async fn fork(call: Call, arguments: ForkArguments) -> ToolResult<Row> {
    let (which, context) = (call.sandbox(&arguments.name)?, context_name(&arguments.context)?);
    let into = arguments.into.as_deref().map(context_name).transpose()?;
    let force = arguments.force.unwrap_or(false);
    let made = call.engine().fork_context(&call.who, &which, &context, into.as_ref(), force).await;
    let hint = "Close what the message names, or call code_context_fork with force: true.";
    made.map(answer).map_err(|error| refused(language::unforked(error, hint)))
}
