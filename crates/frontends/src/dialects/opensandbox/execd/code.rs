//! Code: contexts that keep variables, and runs in them.

use axum::{Json, response::Response};
use engine::{ContextSpec, ContextView, SignalScope};
use sandbox::{CellSpec, ContextName, Error, ErrorKind, ExecSpec, Language, Result, Thing};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    follow::{self, Kind},
    sessions,
};
use crate::{
    code::language,
    dialects::opensandbox::{
        ask::Ask,
        commands::exec_id,
        handle::{SandboxHandle, shown},
    },
    http::{ApiResult, JsonBody, OptionalJson},
};

const SIGINT: i32 = 2;
/// The language of code that names none.
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
    let env = super::environment::with_stored(sandbox, Default::default()).await?;
    let spec = ContextSpec { name: None, language, env, cwd: asked.cwd, user: None };
    let made = sandbox.engine.create_context(sandbox.who, sandbox.which, spec).await?;
    Ok(Json(shape(&made.context)))
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
        Some(text) => Some(language_of(sandbox, Some(text)).await?.interpreter()),
        None => None,
    };
    let mut found = sandbox.engine.contexts(sandbox.who, sandbox.which).await?;
    found.retain(|context| {
        !context.name.starts_with(sessions::PREFIX)
            && wanted.is_none_or(|language| context.language.parse() == Ok(language))
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
    json!({ "id": context.name, "language": context.language })
}

pub(super) async fn run(ask: Ask, JsonBody(asked): JsonBody<Code>) -> ApiResult<Response> {
    let sandbox = ask.awake().await?;
    let SandboxHandle { engine, who, which } = sandbox;
    let CodeContext { id, language } = asked.context.unwrap_or_default();
    let (language, context, n_before) = match id.filter(|id| !id.is_empty()) {
        Some(id) => {
            let (name, view) = known(sandbox, &id).await?;
            let language = language.as_deref().unwrap_or(&view.language);
            (language_of(sandbox, Some(language)).await?, Some(name), view.cells)
        }
        None => (language_of(sandbox, language.as_deref()).await?, None, 0),
    };
    let cell = CellSpec { language, context, code: asked.code };
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

/// Interrupts a run; its context keeps its variables if it can.
pub(super) async fn interrupt(ask: Ask) -> ApiResult<()> {
    let id = exec_id(ask.query().required("id")?)?;
    let SandboxHandle { engine, who, which } = ask.sandbox();
    match engine.exec_signal(who, which, &id, SIGINT, SignalScope::Group).await {
        // It has ended.
        Err(error) if error.kind() == ErrorKind::WrongState => Ok(()),
        sent => Ok(sent?),
    }
}
