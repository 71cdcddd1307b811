//! Execs: started, watched, fed, signalled.

use std::time::Duration;

use axum::{Extension, Json, body::Body, extract::State, http::StatusCode};
use engine::SignalScope;
use sandbox::{Error, TerminalSize};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, AskExec, JsonBody, byte_stream},
    output, v1,
};
use crate::{http::ApiResult, links::BaseUrl};

/// Signals have numbers from 1 to 64 on Linux.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(start, list))
        .routes(routes!(inspect))
        .routes(routes!(again))
        .routes(routes!(wait))
        .routes(routes!(stdin))
        .routes(routes!(signal))
        .routes(routes!(resize))
}

/// Starts a command.
///
/// Answers at once, or with `wait` when it ended. A command that could not start is an outcome, not a failure.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/execs", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), v1::ExecQuery),
    request_body = v1::ExecRequest, responses((status = 201, body = v1::ExecResult)))]
async fn start(
    State(rest): State<Rest>,
    ask: Ask<v1::ExecQuery>,
    base: Option<Extension<BaseUrl>>,
    JsonBody(spec): JsonBody<v1::ExecRequest>,
) -> ApiResult<(StatusCode, Json<v1::ExecResult>)> {
    spec.check().map_err(Error::from)?;
    let is_tracked = spec.track_files;
    let view = rest.engine.exec(&ask.who, &ask.which, spec).await?;
    let result = if ask.query.wait {
        let timeout = ask.query.timeout_ms.map(Duration::from_millis);
        let links = is_tracked.then(|| rest.links.of(&ask.who, base.as_deref()));
        output::wait_and_capture(&rest.engine, &ask.who, &view, timeout, links.as_ref()).await?
    } else {
        v1::ExecResult { exec: view, stdout: None, stderr: None, files: None, warnings: Vec::new() }
    };
    Ok((StatusCode::CREATED, Json(result)))
}

/// Lists the sandbox's execs, oldest first.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/execs", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::ExecList)))]
async fn list(State(rest): State<Rest>, ask: Ask) -> ApiResult<Json<v1::ExecList>> {
    let execs = rest.engine.execs(&ask.who, &ask.which).await?;
    Ok(Json(v1::ExecList { execs }))
}

/// One exec.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/execs/{exec}", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), ("exec" = String, Path), v1::NamespaceQuery),
    responses((status = 200, body = v1::Exec)))]
async fn inspect(State(rest): State<Rest>, ask: AskExec) -> ApiResult<Json<v1::Exec>> {
    Ok(Json(rest.engine.exec_view(&ask.who, &ask.which, &ask.exec).await?))
}

/// Starts the same once more: the command or code of the exec, with its directory, environment, user, limits and
/// terminal.
///
/// Without a terminal, its stdin is empty.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/execs/{exec}/again", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), ("exec" = String, Path), v1::NamespaceQuery),
    responses((status = 201, body = v1::Exec)))]
async fn again(State(rest): State<Rest>, ask: AskExec) -> ApiResult<(StatusCode, Json<v1::Exec>)> {
    let view = rest.engine.exec_again(&ask.who, &ask.which, &ask.exec).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

/// Answers when the exec ended, or as it is after `timeoutMs`.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/execs/{exec}/wait", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), ("exec" = String, Path), v1::WaitExecQuery),
    responses((status = 200, body = v1::Exec)))]
async fn wait(State(rest): State<Rest>, ask: AskExec<v1::WaitExecQuery>) -> ApiResult<Json<v1::Exec>> {
    let timeout = ask.query.timeout_ms.map(Duration::from_millis);
    Ok(Json(rest.engine.wait_exec(&ask.who, &ask.which, &ask.exec, timeout).await?))
}

/// Writes the body to the exec's stdin as it comes.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/execs/{exec}/stdin", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), ("exec" = String, Path), v1::StdinQuery),
    request_body(content_type = "application/octet-stream", content = Vec<u8>),
    responses((status = 200, body = v1::StdinWritten)))]
async fn stdin(
    State(rest): State<Rest>,
    ask: AskExec<v1::StdinQuery>,
    body: Body,
) -> ApiResult<Json<v1::StdinWritten>> {
    let (engine, close) = (&rest.engine, ask.query.close);
    let bytes = engine.exec_stdin(&ask.who, &ask.which, &ask.exec, byte_stream(body), close).await?;
    Ok(Json(v1::StdinWritten { bytes }))
}

/// Sends a signal to the exec's process group, or to its first process.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/execs/{exec}/signal", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), ("exec" = String, Path), v1::NamespaceQuery),
    request_body = v1::SignalRequest, responses((status = 204)))]
async fn signal(
    State(rest): State<Rest>,
    ask: AskExec,
    JsonBody(asked): JsonBody<v1::SignalRequest>,
) -> ApiResult<StatusCode> {
    if !SIGNALS.contains(&asked.signal) {
        return Err(Error::invalid(format!("{} is not a signal", asked.signal))
            .with_hint(
                "Use a signal from 1 to 64; 15 (SIGTERM) asks the process to end, 9 (SIGKILL) kills it.",
            )
            .into());
    }
    let scope = match asked.scope {
        v1::SignalScope::Process => SignalScope::Process,
        v1::SignalScope::Group => SignalScope::Group,
    };
    rest.engine.exec_signal(&ask.who, &ask.which, &ask.exec, asked.signal, scope).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives the exec's terminal another size.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/execs/{exec}/resize", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), ("exec" = String, Path), v1::NamespaceQuery),
    request_body = v1::ResizeRequest, responses((status = 204)))]
async fn resize(
    State(rest): State<Rest>,
    ask: AskExec,
    JsonBody(asked): JsonBody<v1::ResizeRequest>,
) -> ApiResult<StatusCode> {
    let v1::ResizeRequest { rows, cols } = asked;
    if rows == 0 || cols == 0 {
        return Err(Error::invalid(format!("a terminal cannot have {rows} rows and {cols} columns")).into());
    }
    rest.engine.exec_resize(&ask.who, &ask.which, &ask.exec, TerminalSize { rows, cols }).await?;
    Ok(StatusCode::NO_CONTENT)
}
