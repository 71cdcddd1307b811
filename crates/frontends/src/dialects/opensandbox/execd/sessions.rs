//! Shells that keep their state between commands. Each is a Bash context of the sandbox, and its name tells it from
//! those for code.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use axum::{Json, response::Response};
use engine::ContextSpec;
use sandbox::{CellSpec, ContextName, Error, ExecSpec, Language, Result, Thing};
use serde::Deserialize;
use serde_json::{Value, json};

use super::follow::{self, Kind};
use crate::{
    dialects::opensandbox::{
        ask::Ask,
        handle::{SandboxHandle, shown},
    },
    http::{ApiResult, JsonBody, OptionalJson},
};

/// The prefix of the name of a session's context.
pub(super) const PREFIX: &str = "session-";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSession {
    cwd: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionCommand {
    command: String,
    cwd: Option<String>,
    /// Milliseconds; 0 is no limit.
    timeout: Option<u64>,
}

pub(super) async fn create(
    ask: Ask,
    OptionalJson(asked): OptionalJson<NewSession>,
) -> ApiResult<Json<Value>> {
    let sandbox = ask.awake().await?;
    let spec = ContextSpec {
        name: Some(fresh_name(PREFIX)?),
        language: Language::Bash,
        env: super::environment::with_stored(sandbox, Default::default()).await?,
        cwd: asked.cwd.filter(|cwd| !cwd.is_empty()),
        user: None,
    };
    let made = sandbox.engine.create_context(sandbox.who, sandbox.which, spec).await?;
    Ok(Json(json!({ "session_id": made.context.name })))
}

/// A name that no other context has. Not secret: only those who may use the sandbox can use it.
pub(super) fn fresh_name(prefix: &str) -> Result<ContextName> {
    let name = format!("{prefix}{:016x}", RandomState::new().hash_one(std::process::id()));
    name.parse().map_err(Error::from)
}

pub(super) async fn run(ask: Ask, JsonBody(asked): JsonBody<SessionCommand>) -> ApiResult<Response> {
    let context = session(&ask).await?;
    if asked.command.trim().is_empty() {
        return Err(Error::invalid("the command is empty").into());
    }
    let code = match asked.cwd.filter(|cwd| !cwd.is_empty()) {
        Some(cwd) => format!("cd -- {} || exit 1\n{}", quoted(&cwd), asked.command),
        None => asked.command,
    };
    let spec = ExecSpec {
        cell: Some(CellSpec { language: Language::Bash, context: Some(context), code }),
        timeout: asked.timeout.filter(|ms| *ms > 0).map(Duration::from_millis),
        ..ExecSpec::default()
    };
    spec.check().map_err(Error::from)?;
    let SandboxHandle { engine, who, which } = ask.sandbox();
    let exec = engine.exec(who, which, spec).await?;
    Ok(follow::follow(engine, who, &exec, Kind::Command).await?)
}

pub(super) async fn delete(ask: Ask) -> ApiResult<()> {
    let context = session(&ask).await?;
    let SandboxHandle { engine, who, which } = ask.sandbox();
    engine.remove_context(who, which, &context).await?;
    Ok(())
}

/// A session that exists: code in a context that does not would make it.
async fn session(ask: &Ask) -> Result<ContextName> {
    let text = ask.caller.parameter("session");
    let none =
        || Error::not_found(format!("no session {:?}", shown(text))).about(Thing::Context, shown(text));
    let name: ContextName = text.parse().map_err(|_malformed| none())?;
    let SandboxHandle { engine, who, which } = ask.awake().await?;
    let known = engine.contexts(who, which).await?;
    let is_known = text.starts_with(PREFIX) && known.iter().any(|context| context.name == name.as_str());
    is_known.then_some(name).ok_or_else(none)
}

/// One word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_directory_stays_one_word() {
        assert_eq!(quoted("/a b/$(x)'y"), r"'/a b/$(x)'\''y'");
    }
}
