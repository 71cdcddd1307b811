//! The API of `execd`, which OpenSandbox runs inside each sandbox: commands, code, files. Here it is answered by the
//! daemon, over the engine, so it needs nothing inside and works on every image.

mod code;
mod commands;
mod directories;
mod environment;
mod events;
mod files;
mod follow;
mod lines;
mod metrics;
mod owners;
mod pty;
mod sessions;
mod transfer;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::StatusCode,
    routing::{any, get, post},
};
use sandbox::{Error, ErrorKind, ExecId, Result, Thing};

use super::ask::{Ask, Front, shown};
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
        .route("/directories", post(directories::create).delete(directories::delete))
        .route("/directories/list", get(directories::list))
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

/// A command's id. Ids are opaque to clients, so a text that is none belongs to a command that does not exist.
fn exec_id(text: &str) -> Result<ExecId> {
    text.parse().map_err(|_malformed| Error::no_such(Thing::Exec, shown(text)))
}

/// Permission bits, written in decimal digits that are read as octal ones: 755 is `rwxr-xr-x`.
fn octal(mode: u32) -> Result<u32> {
    let bits = u32::from_str_radix(&mode.to_string(), 8).ok().filter(|bits| *bits <= 0o7777);
    bits.ok_or_else(|| {
        Error::invalid(format!("{mode} are not permission bits"))
            .about(Thing::File, "")
            .with_hint("Write them as octal digits, such as 755.")
    })
}

/// The reverse of [`octal`].
fn digits(bits: u32) -> u32 {
    format!("{:o}", bits & 0o7777).parse().unwrap_or_default()
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_digits_in_a_decimal_number() {
        assert_eq!((octal(755).unwrap(), octal(0).unwrap(), octal(7777).unwrap()), (0o755, 0, 0o7777));
        assert_eq!((digits(0o644), digits(0o10_0755)), (644, 755));
        for wrong in [8, 789, 10000, 77777] {
            assert!(octal(wrong).is_err(), "{wrong}");
        }
    }
}
