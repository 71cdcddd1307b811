//! The API of `execd`, which OpenSandbox runs inside each sandbox: commands, code, files. Here it is answered by the
//! daemon, over the engine, so it needs nothing inside and works on every image.

mod code;
mod commands;
mod environment;
mod events;
mod files;
mod follow;
mod lines;
mod metrics;
mod pty;
mod sessions;
mod transfer;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::StatusCode,
    routing::{any, get, post},
};
use sandbox::{Error, ErrorKind};

use super::ask::{Ask, Front};
use crate::http::ApiResult;

pub(super) fn routes() -> Router<Front> {
    Router::new()
        .route("/ping", get(ping))
        .route("/command", post(commands::run).delete(commands::interrupt))
        .route("/command/status/{exec}", get(commands::status))
        .route("/command/{exec}/logs", get(commands::logs))
        .route("/session", post(sessions::create))
        .route("/session/{session}", axum::routing::delete(sessions::delete))
        .route("/session/{session}/run", post(sessions::run))
        .route("/pty", post(pty::create))
        .route("/pty/{exec}", get(pty::status).delete(pty::delete))
        .route("/pty/{exec}/ws", get(pty::attach))
        .route("/code", post(code::run).delete(code::interrupt))
        .route("/code/context", post(code::create_context))
        .route("/code/contexts", get(code::contexts).delete(code::delete_contexts))
        .route("/code/contexts/{context}", get(code::context).delete(code::delete_context))
        .route("/files", axum::routing::delete(files::delete))
        .route("/files/info", get(files::info))
        .route("/files/search", get(files::search))
        .route("/files/mv", post(files::rename))
        .route("/files/permissions", post(files::permissions))
        .route("/files/replace", post(files::replace))
        .route("/files/download", get(transfer::download))
        .route("/files/upload", post(transfer::upload).layer(DefaultBodyLimit::disable()))
        .route("/directories", post(files::create_directories).delete(files::delete_directories))
        .route("/directories/list", get(files::list))
        .route("/metrics", get(metrics::metrics))
        .route("/metrics/watch", get(metrics::watch))
        .route("/v1/filesystem/{*rest}", any(no_identities))
        .route("/v1/isolated/{*rest}", any(no_isolated_sessions))
}

/// Whether commands can be run: what clients wait for after they created a sandbox.
async fn ping(_: Ask) -> StatusCode {
    StatusCode::OK
}

async fn no_identities(_: Ask) -> ApiResult<()> {
    Err(unsupported("files are not read and written as another user").into())
}

async fn no_isolated_sessions(_: Ask) -> ApiResult<()> {
    Err(unsupported("there are no isolated sessions; create another sandbox, or fork this one").into())
}

fn unsupported(message: &str) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}
