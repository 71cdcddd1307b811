//! Sandboxes and snapshots, as OpenSandbox's server serves them.

mod create;
mod diagnostics;
mod endpoints;
mod list;
mod resources;
mod snapshots;
mod view;

use std::{collections::BTreeMap, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{any, get, patch, post},
};
use engine::Force;
use jiff::Timestamp;
use sandbox::{Error, ErrorKind, Lifetime, SandboxState, Thing};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) use self::endpoints::OWN_PORTS;
use super::{
    ask::{Ask, Caller, Front},
    egress,
};
use crate::http::{ApiResult, JsonBody};

pub(super) fn routes() -> Router<Front> {
    Router::new()
        .route("/sandboxes", post(create::create).get(list::list))
        .route("/sandboxes/{sandbox}", get(inspect).delete(kill))
        .route("/sandboxes/{sandbox}/metadata", patch(relabel))
        .route("/sandboxes/{sandbox}/pause", post(pause))
        .route("/sandboxes/{sandbox}/resume", post(resume))
        .route("/sandboxes/{sandbox}/renew-expiration", post(renew))
        .route("/sandboxes/{sandbox}/snapshots", post(snapshots::create))
        .route("/sandboxes/{sandbox}/endpoints/{port}", get(endpoints::endpoint))
        .route("/sandboxes/{sandbox}/diagnostics/{kind}", get(diagnostics::diagnostics))
        .route("/snapshots", get(snapshots::list))
        .route("/snapshots/{snapshot}", get(snapshots::inspect).delete(snapshots::delete))
        .route("/pools", any(no_pools))
        .route("/pools/{name}", any(no_pools))
        .route("/templates", any(no_templates))
        .route("/templates/{template}", any(no_templates))
        .route("/metrics/events", post(telemetry))
        .merge(egress::lifecycle_routes())
}

async fn inspect(ask: Ask) -> ApiResult<Json<Value>> {
    Ok(Json(view::of(&ask.view().await?)))
}

async fn kill(State(front): State<Front>, ask: Ask) -> ApiResult<StatusCode> {
    front.engine().remove_sandbox(ask.who(), &ask.which, Force::Yes).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A merge patch: null removes.
async fn relabel(
    State(front): State<Front>,
    ask: Ask,
    JsonBody(changes): JsonBody<BTreeMap<String, Option<String>>>,
) -> ApiResult<Json<Value>> {
    view::check_keys(changes.keys())?;
    Ok(Json(view::of(&front.engine().relabel_sandbox(ask.who(), &ask.which, changes).await?)))
}

async fn pause(State(front): State<Front>, ask: Ask) -> ApiResult<StatusCode> {
    front.engine().pause_sandbox(ask.who(), &ask.which).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn resume(State(front): State<Front>, ask: Ask) -> ApiResult<StatusCode> {
    match ask.view().await?.state {
        SandboxState::Stopped => drop(front.engine().start_sandbox(ask.who(), &ask.which).await?),
        _ => drop(front.engine().resume_sandbox(ask.who(), &ask.which).await?),
    }
    Ok(StatusCode::ACCEPTED)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Renewal {
    expires_at: Timestamp,
}

async fn renew(
    State(front): State<Front>,
    ask: Ask,
    JsonBody(asked): JsonBody<Renewal>,
) -> ApiResult<Json<Value>> {
    let view = ask.view().await?;
    if view.expires_at.is_none() {
        let message = format!("sandbox {} has no expiry that could be renewed", view.id);
        return Err(Error::new(ErrorKind::WrongState, message)
            .about(Thing::Sandbox, view.id.as_str())
            .into());
    }
    let ttl = Duration::try_from(asked.expires_at.duration_since(Timestamp::now())).unwrap_or_default();
    if ttl.is_zero() {
        return Err(Error::invalid(format!("expiresAt {} is not in the future", asked.expires_at)).into());
    }
    let lifetime = Lifetime { ttl: Some(ttl), ..view.lifetime };
    let view = front.engine().renew_sandbox(ask.who(), &ask.which, lifetime).await?;
    Ok(Json(json!({ "expiresAt": view.expires_at })))
}

async fn no_pools(_: Caller) -> ApiResult<()> {
    Err(no_such("pools", "Create sandboxes one by one: none waits for a container to start."))
}

async fn no_templates(_: Caller) -> ApiResult<()> {
    Err(no_such("templates", "Create a snapshot, and sandboxes from that with snapshotId."))
}

fn no_such<E: From<Error>>(what: &str, hint: &str) -> E {
    Error::new(ErrorKind::Unsupported, format!("there are no {what} here")).with_hint(hint).into()
}

/// How long the creation took for a client. Nothing is done with it.
async fn telemetry(_: Caller) -> StatusCode {
    StatusCode::NO_CONTENT
}
