//! Sandboxes and snapshots, as OpenSandbox's server serves them.

mod create;
mod diagnostics;
mod list;
mod snapshots;

use std::{collections::BTreeMap, time::Duration};

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    routing::{any, get, patch, post},
};
use engine::{Force, SandboxView};
use jiff::Timestamp;
use sandbox::{Error, ErrorKind, Result, SandboxState};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ask::{Ask, Caller, Front},
    create::renew as renew_sandbox,
    egress,
    endpoint::Endpoint,
    handle::SandboxHandle,
    view::{self, Description, PLATFORM},
};
use crate::{
    http::{ApiResult, Granted, JsonBody, handler::erased},
    links::BaseUrl,
};

/// How long a token for a port holds where nobody says otherwise. Clients keep it as long as they run and never ask
/// again; the engine bounds it, and it ends with the sandbox and with the key that asked.
const TOKEN_TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(super) fn routes() -> Router<Front> {
    Router::new()
        .route("/sandboxes", post(erased(create::create)).get(erased(list::list)))
        .route("/sandboxes/{sandbox}", get(erased(inspect)).delete(erased(kill)))
        .route("/sandboxes/{sandbox}/metadata", patch(erased(relabel)))
        .route("/sandboxes/{sandbox}/pause", post(erased(pause)))
        .route("/sandboxes/{sandbox}/resume", post(erased(resume)))
        .route("/sandboxes/{sandbox}/renew-expiration", post(erased(renew)))
        .route("/sandboxes/{sandbox}/snapshots", post(erased(snapshots::create)))
        .route("/sandboxes/{sandbox}/endpoints/{port}", get(erased(endpoint)))
        .route("/sandboxes/{sandbox}/diagnostics/{kind}", get(erased(diagnostics::diagnostics)))
        .route("/snapshots", get(erased(snapshots::list)))
        .route("/snapshots/{snapshot}", get(erased(snapshots::inspect)).delete(erased(snapshots::delete)))
        .route("/pools", any(erased(no_pools)))
        .route("/pools/{name}", any(erased(no_pools)))
        .route("/templates", any(erased(no_templates)))
        .route("/templates/{template}", any(erased(no_templates)))
        .route("/metrics/events", post(erased(telemetry)))
        .merge(egress::lifecycle_routes())
}

/// A sandbox in the words of this API.
fn shape(view: &SandboxView) -> Value {
    let told = Description::of(view);
    let mut shown = json!({
        "id": told.id,
        "status": {
            "state": told.state,
            "reason": told.reason,
            "message": told.message,
            "lastTransitionAt": told.changed_at,
        },
        "entrypoint": told.entrypoint,
        "platform": PLATFORM,
        "metadata": told.metadata,
        "createdAt": told.created_at,
    });
    match told.snapshot {
        Some(snapshot) => shown["snapshotId"] = json!(snapshot),
        None => shown["image"] = json!({ "uri": told.image }),
    }
    if let Some(extensions) = told.extensions {
        shown["extensions"] = json!(extensions);
    }
    if let Some(at) = told.expires_at {
        shown["expiresAt"] = json!(at);
    }
    shown
}

async fn inspect(ask: Ask) -> ApiResult<Json<Value>> {
    Ok(Json(shape(&ask.view().await?)))
}

async fn kill(ask: Ask) -> ApiResult<StatusCode> {
    let SandboxHandle { engine, who, which } = ask.sandbox();
    engine.remove_sandbox(who, which, Force::Yes).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A merge patch: null removes.
async fn relabel(
    ask: Ask,
    JsonBody(changes): JsonBody<BTreeMap<String, Option<String>>>,
) -> ApiResult<Json<Value>> {
    view::check_keys(changes.keys())?;
    let SandboxHandle { engine, who, which } = ask.sandbox();
    Ok(Json(shape(&engine.relabel_sandbox(who, which, changes).await?)))
}

async fn pause(ask: Ask) -> ApiResult<StatusCode> {
    let SandboxHandle { engine, who, which } = ask.sandbox();
    engine.pause_sandbox(who, which).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn resume(ask: Ask) -> ApiResult<StatusCode> {
    let SandboxHandle { engine, who, which } = ask.sandbox();
    match ask.view().await?.state {
        SandboxState::Stopped => drop(engine.start_sandbox(who, which).await?),
        _ => drop(engine.resume_sandbox(who, which).await?),
    }
    Ok(StatusCode::ACCEPTED)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Renewal {
    expires_at: Timestamp,
}

async fn renew(ask: Ask, JsonBody(asked): JsonBody<Renewal>) -> ApiResult<Json<Value>> {
    let view = renew_sandbox(ask.sandbox(), until("expiresAt", asked.expires_at)?).await?;
    Ok(Json(json!({ "expiresAt": view.expires_at })))
}

async fn endpoint(
    State(front): State<Front>,
    ask: Ask,
    base: Option<Extension<BaseUrl>>,
) -> ApiResult<(Extension<Granted>, Json<Value>)> {
    let query = ask.query();
    // Both ways lead through the daemon: nothing of a sandbox is on the network.
    query.flag("use_server_proxy")?;
    let port = ask.caller.port()?;
    let ttl = match query.number("expires")? {
        Some(second) => {
            let at = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
            until("expires", at.unwrap_or(Timestamp::MAX))?
        }
        None => TOKEN_TTL,
    };
    let links = front.mcp.links().of(ask.who(), base.as_deref());
    let Endpoint { address, header: (name, token) } =
        Endpoint::of(&links, &ask.view().await?.id, port, Some(ttl))?;
    Ok((Extension(Granted), Json(json!({ "endpoint": address, "headers": { name: token } }))))
}

/// How long it is until then.
fn until(field: &str, at: Timestamp) -> Result<Duration> {
    let span = Duration::try_from(at.duration_since(Timestamp::now())).ok().filter(|span| !span.is_zero());
    span.ok_or_else(|| Error::invalid(format!("{field} {at} is not in the future")))
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
