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
mod paths;
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
use crate::http::{ApiResult, handler::erased};

pub(super) fn routes() -> Router<Front> {
    Router::new()
        .route("/ping", get(erased(ping)))
        .route("/command", post(erased(commands::run)).delete(erased(commands::interrupt)))
        .route("/command/status/{exec}", get(erased(commands::status)))
        .route("/command/{exec}/logs", get(erased(commands::logs)))
        .route("/session", post(erased(sessions::create)))
        .route("/session/{session}", axum::routing::delete(erased(sessions::delete)))
        .route("/session/{session}/run", post(erased(sessions::run)))
        .route("/pty", post(erased(pty::create)))
        .route("/pty/{exec}", get(erased(pty::status)).delete(erased(pty::delete)))
        .route("/pty/{exec}/ws", get(erased(pty::attach)))
        .route("/code", post(erased(code::run)).delete(erased(code::interrupt)))
        .route("/code/context", post(erased(code::create_context)))
        .route("/code/contexts", get(erased(code::contexts)).delete(erased(code::delete_contexts)))
        .route("/code/contexts/{context}", get(erased(code::context)).delete(erased(code::delete_context)))
        .route("/files", axum::routing::delete(erased(files::delete)))
        .route("/files/info", get(erased(files::info)))
        .route("/files/search", get(erased(files::search)))
        .route("/files/mv", post(erased(files::rename)))
        .route("/files/permissions", post(erased(files::permissions)))
        .route("/files/replace", post(erased(files::replace)))
        .route("/files/download", get(erased(transfer::download)))
        .route("/files/upload", post(erased(transfer::upload)).layer(DefaultBodyLimit::disable()))
        .route(
            "/directories",
            post(erased(files::create_directories)).delete(erased(files::delete_directories)),
        )
        .route("/directories/list", get(erased(files::list)))
        .route("/metrics", get(erased(metrics::metrics)))
        .route("/metrics/watch", get(erased(metrics::watch)))
        .route("/v1/filesystem/{*rest}", any(erased(no_identities)))
        .route("/v1/isolated/{*rest}", any(erased(no_isolated_sessions)))
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
