//! Contexts: interpreters that keep their variables between cells; and which languages there are.

use axum::{Json, extract::State, http::StatusCode};
use engine::{ContextSpec, Made};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, JsonBody, PathContext},
    v1,
};
use crate::{code::language, http::ApiResult};

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(remove))
        .routes(routes!(reset))
        .routes(routes!(fork))
        .routes(routes!(languages))
}

impl From<Made> for v1::ContextMade {
    fn from(Made { context, warnings }: Made) -> Self {
        Self { context, warnings }
    }
}

/// Starts an interpreter that waits for code.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/contexts", tag = "code",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = v1::ContextRequest, responses((status = 201, body = v1::ContextMade)))]
async fn create(
    State(rest): State<Rest>,
    ask: Ask,
    JsonBody(asked): JsonBody<v1::ContextRequest>,
) -> ApiResult<(StatusCode, Json<v1::ContextMade>)> {
    let v1::ContextRequest { name, language, env, cwd, user } = asked;
    let language = match language {
        Some(text) => language::named(&rest.engine, &ask.who, &ask.which, &text).await?,
        None => language::DEFAULT,
    };
    let spec = ContextSpec { name, language, env, cwd, user };
    match rest.engine.create_context(&ask.who, &ask.which, spec).await {
        Ok(made) => Ok((StatusCode::CREATED, Json(made.into()))),
        Err(error) => {
            Err(language::explain(&rest.engine, &ask.who, &ask.which, language, error).await.into())
        }
    }
}

/// Lists the sandbox's contexts by name.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/contexts", tag = "code",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::ContextList)))]
async fn list(State(rest): State<Rest>, ask: Ask) -> ApiResult<Json<v1::ContextList>> {
    Ok(Json(v1::ContextList { contexts: rest.engine.contexts(&ask.who, &ask.which).await? }))
}

/// Ends a context with whatever runs or waits in it.
#[utoipa::path(delete, path = "/sandboxes/{sandbox}/contexts/{context}", tag = "code",
    params(("sandbox" = String, Path, description = "Id or name."), ("context" = String, Path), v1::NamespaceQuery),
    responses((status = 204)))]
async fn remove(
    State(rest): State<Rest>,
    ask: Ask,
    PathContext(context): PathContext,
) -> ApiResult<StatusCode> {
    rest.engine.remove_context(&ask.who, &ask.which, &context).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Forgets a context's variables. Code that runs in it is killed; what waits goes on with a fresh interpreter.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/contexts/{context}/reset", tag = "code",
    params(("sandbox" = String, Path, description = "Id or name."), ("context" = String, Path), v1::NamespaceQuery),
    responses((status = 200, body = v1::ContextMade)))]
async fn reset(
    State(rest): State<Rest>,
    ask: Ask,
    PathContext(context): PathContext,
) -> ApiResult<Json<v1::ContextMade>> {
    Ok(Json(rest.engine.reset_context(&ask.who, &ask.which, &context).await?.into()))
}

/// Branches a live context: both go on with the same variables and then apart.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/contexts/{context}/fork", tag = "code",
    params(("sandbox" = String, Path, description = "Id or name."), ("context" = String, Path), v1::NamespaceQuery),
    request_body = v1::ForkRequest, responses((status = 201, body = v1::ContextMade)))]
async fn fork(
    State(rest): State<Rest>,
    ask: Ask,
    PathContext(context): PathContext,
    JsonBody(asked): JsonBody<v1::ForkRequest>,
) -> ApiResult<(StatusCode, Json<v1::ContextMade>)> {
    let v1::ForkRequest { into, force } = asked;
    let made = rest.engine.fork_context(&ask.who, &ask.which, &context, into.as_ref(), force).await;
    let hint = "Close what the message names, or fork with force.";
    let made = made.map_err(|error| language::unforked(error, hint))?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

/// The languages whose programs are in the sandbox.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/languages", tag = "code",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::LanguageList)))]
async fn languages(State(rest): State<Rest>, ask: Ask) -> ApiResult<Json<v1::LanguageList>> {
    Ok(Json(v1::LanguageList { languages: rest.engine.languages(&ask.who, &ask.which).await? }))
}
