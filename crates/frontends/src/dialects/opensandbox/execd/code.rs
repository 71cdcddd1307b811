//! Code: contexts that keep variables, and runs in them.

use axum::{Json, response::Response};
use engine::{ContextSpec, ContextState, ContextView, SignalScope};
use sandbox::{
    CellSpec, ContextName, Error, ErrorKind, ExecId, ExecSpec, ExecState, Language, Result, Thing,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    environment,
    follow::{self, Kind},
    sessions,
};
use crate::{
    code::language,
    dialects::opensandbox::{
        ask::Ask,
        commands::{exec_id, start_line},
        handle::{SandboxHandle, shown},
    },
    http::{ApiResult, JsonBody, OptionalJson},
};

const SIGINT: i32 = 2;
/// The prefix of the names of contexts for TypeScript, which is run by the interpreter of JavaScript.
const TYPESCRIPT: &str = "typescript-";
/// The language of a context if the request names none.
const DEFAULT_LANGUAGE: &str = "python";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewContext {
    language: Option<String>,
    cwd: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Code {
    code: String,
    context: Option<CodeContext>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeContext {
    id: Option<String>,
    language: Option<String>,
}

async fn language_of(sandbox: SandboxHandle<'_>, text: Option<&str>) -> Result<Language> {
    let text = text.filter(|text| !text.is_empty()).unwrap_or(DEFAULT_LANGUAGE);
    language::named(sandbox.engine, sandbox.who, sandbox.which, text).await
}

pub(super) async fn create_context(
    ask: Ask,
    OptionalJson(asked): OptionalJson<NewContext>,
) -> ApiResult<Json<Value>> {
    let sandbox = ask.awake().await?;
    let language = language_of(sandbox, asked.language.as_deref()).await?;
    if !language.is_stateful() {
        let message = format!("{language} keeps no variables, so it has no contexts");
        return Err(Error::new(ErrorKind::Unsupported, message)
            .with_hint("Run the code without a context id.")
            .into());
    }
    let name = match language {
        Language::TypeScript => {
            refuse_without_compiler(sandbox).await?;
            Some(sessions::fresh_name(TYPESCRIPT)?)
        }
        _ => None,
    };
    let env = environment::with_stored(sandbox, Default::default()).await?;
    let spec = ContextSpec { name, language, env, cwd: asked.cwd, user: None };
    let made = sandbox.engine.create_context(sandbox.who, sandbox.which, spec).await?;
    Ok(Json(shape(&made.context)))
}

/// Refuses a context for TypeScript if the sandbox cannot run it: every run in it would fail.
async fn refuse_without_compiler(sandbox: SandboxHandle<'_>) -> Result<()> {
    let SandboxHandle { engine, who, which } = sandbox;
    let found = engine.languages(who, which).await?;
    if found.iter().any(|found| found.name == Language::TypeScript.as_str()) {
        return Ok(());
    }
    let reason = "it has no Node 22.13 or newer, and no compiler for an older one";
    Err(language::missing(engine, who, which, Language::TypeScript, reason).await)
}

pub(super) async fn contexts(ask: Ask) -> ApiResult<Json<Value>> {
    let found = of_language(&ask).await?;
    Ok(Json(Value::Array(found.iter().map(shape).collect())))
}

pub(super) async fn delete_contexts(ask: Ask) -> ApiResult<()> {
    ask.query().required("language")?;
    let SandboxHandle { engine, who, which } = ask.sandbox();
    for context in of_language(&ask).await? {
        let name = context.name.parse().map_err(Error::from)?;
        engine.remove_context(who, which, &name).await?;
    }
    Ok(())
}

/// Contexts for code, and of one language where that is asked for.
async fn of_language(ask: &Ask) -> Result<Vec<ContextView>> {
    let asked = ask.query().one("language")?.filter(|text| !text.is_empty());
    let sandbox = ask.awake().await?;
    let wanted = match asked {
        Some(text) => Some(language_of(sandbox, Some(text)).await?),
        None => None,
    };
    let mut found = sandbox.engine.contexts(sandbox.who, sandbox.which).await?;
    found.retain(|context| {
        !context.name.starts_with(sessions::PREFIX)
            && wanted.is_none_or(|language| told_language(context).parse() == Ok(language))
    });
    Ok(found)
}

pub(super) async fn context(ask: Ask) -> ApiResult<Json<Value>> {
    let (_, view) = known(ask.awake().await?, ask.caller.parameter("context")).await?;
    Ok(Json(shape(&view)))
}

pub(super) async fn delete_context(ask: Ask) -> ApiResult<()> {
    let sandbox = ask.awake().await?;
    let (name, _) = known(sandbox, ask.caller.parameter("context")).await?;
    sandbox.engine.remove_context(sandbox.who, sandbox.which, &name).await?;
    Ok(())
}

async fn known(sandbox: SandboxHandle<'_>, text: &str) -> Result<(ContextName, ContextView)> {
    let none =
        || Error::not_found(format!("no context {:?}", shown(text))).about(Thing::Context, shown(text));
    let name: ContextName = text.parse().map_err(|_malformed| none())?;
    let all = sandbox.engine.contexts(sandbox.who, sandbox.which).await?;
    let found = all.into_iter().find(|context| context.name == name.as_str());
    found.map(|view| (name, view)).ok_or_else(none)
}

fn shape(context: &ContextView) -> Value {
    json!({ "id": context.name, "language": told_language(context) })
}

/// The language that a context was made for.
fn told_language(context: &ContextView) -> &str {
    let is_typescript = context.name.starts_with(TYPESCRIPT)
        && context.language == Language::TypeScript.interpreter().as_str();
    if is_typescript { Language::TypeScript.as_str() } else { &context.language }
}

pub(super) async fn run(ask: Ask, JsonBody(asked): JsonBody<Code>) -> ApiResult<Response> {
    let sandbox = ask.awake().await?;
    let SandboxHandle { engine, who, which } = sandbox;
    let CodeContext { id, language } = asked.context.unwrap_or_default();
    let language = language.filter(|language| !language.is_empty());
    let (language, context) = match (id.filter(|id| !id.is_empty()), language) {
        (Some(id), language) => {
            let (name, view) = known(sandbox, &id).await?;
            let language = language.as_deref().unwrap_or(told_language(&view));
            (language_of(sandbox, Some(language)).await?, Some(name))
        }
        (None, Some(language)) => (language_of(sandbox, Some(&language)).await?, None),
        (None, None) => return run_in_shell(sandbox, asked.code).await,
    };
    let cell = CellSpec { language, context, code: asked.code };
    let n_before = cells_before(sandbox, &cell).await?;
    let spec = ExecSpec { cell: Some(cell), ..ExecSpec::default() };
    spec.check().map_err(Error::from)?;
    let exec = engine.exec(who, which, spec).await?;
    if let Some(sandbox::ExecOutcome::NotStarted { reason, message }) = &exec.outcome {
        let why = (*reason, message.as_str());
        return Err(language::not_started(engine, who, which, language, why, None).await.into());
    }
    let kind = Kind::Code { count: n_before.saturating_add(1) };
    Ok(follow::follow(engine, who, &exec, kind).await?)
}

/// Code without a context and without a language is a line for the shell, which keeps nothing.
async fn run_in_shell(sandbox: SandboxHandle<'_>, line: String) -> ApiResult<Response> {
    let spec =
        ExecSpec { env: environment::with_stored(sandbox, Default::default()).await?, ..ExecSpec::default() };
    let exec = start_line(sandbox, line, spec).await?;
    Ok(follow::follow(sandbox.engine, sandbox.who, &exec, Kind::Command).await?)
}

/// How many cells of its context were sent before this one.
async fn cells_before(sandbox: SandboxHandle<'_>, cell: &CellSpec) -> Result<u64> {
    let Some(name) = cell.context() else { return Ok(0) };
    let all = sandbox.engine.contexts(sandbox.who, sandbox.which).await?;
    let found = all.iter().find(|context| context.name == name.as_str());
    Ok(found.map_or(0, |context| {
        let n_running = u64::from(context.state == ContextState::Busy);
        context.cells + n_running + u64::from(context.queued)
    }))
}

/// Interrupts a run; its context keeps its variables if it can. The id is that of the run or of its context.
pub(super) async fn interrupt(ask: Ask) -> ApiResult<()> {
    let text = ask.query().required("id")?;
    let SandboxHandle { engine, who, which } = ask.sandbox();
    let id = match exec_id(text) {
        Ok(id) => id,
        Err(_of_no_run) => match running_in(ask.sandbox(), text).await? {
            Some(id) => id,
            None => return Ok(()),
        },
    };
    match engine.exec_signal(who, which, &id, SIGINT, SignalScope::Group).await {
        // It has ended.
        Err(error) if error.kind() == ErrorKind::WrongState => Ok(()),
        sent => Ok(sent?),
    }
}

/// Returns the run that a context is busy with, if any.
async fn running_in(sandbox: SandboxHandle<'_>, context: &str) -> Result<Option<ExecId>> {
    let (name, _) = known(sandbox, context).await?;
    let all = sandbox.engine.execs(sandbox.who, sandbox.which).await?;
    // The oldest unfinished one is running; the others wait for it.
    let found = all.into_iter().find(|exec| {
        let cell = exec.cell.as_ref();
        exec.state != ExecState::Done && cell.and_then(|cell| cell.context.as_ref()) == Some(&name)
    });
    Ok(found.map(|exec| exec.id))
}
