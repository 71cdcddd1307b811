//! What a sandbox reaches on the network, and what it reached.

use axum::{Json, extract::State};
use engine::{NetworkChange, NetworkPatch, NetworkView};
use sandbox::{Error, NetworkSpec};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, JsonBody},
    v1,
};
use crate::http::ApiResult;

/// Entries of the log in one answer.
const DEFAULT_LISTED: usize = 100;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(look, replace, patch)).routes(routes!(log))
}

/// Returns the network policy of a sandbox.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/network", tag = "network",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = NetworkView)))]
async fn look(State(rest): State<Rest>, ask: Ask) -> ApiResult<Json<NetworkView>> {
    Ok(Json(rest.engine.network(&ask.who, &ask.which).await?))
}

/// Replaces the network policy of a sandbox, at once. Open connections that are no longer allowed end.
#[utoipa::path(put, path = "/sandboxes/{sandbox}/network", tag = "network",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = NetworkSpec, responses((status = 200, body = NetworkView)))]
async fn replace(
    State(rest): State<Rest>,
    ask: Ask,
    JsonBody(spec): JsonBody<NetworkSpec>,
) -> ApiResult<Json<NetworkView>> {
    Ok(Json(rest.engine.change_network(&ask.who, &ask.which, NetworkChange::Replace(spec)).await?))
}

/// Adds rules to the network policy of a sandbox and removes others, at once.
#[utoipa::path(patch, path = "/sandboxes/{sandbox}/network", tag = "network",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = NetworkPatch, responses((status = 200, body = NetworkView)))]
async fn patch(
    State(rest): State<Rest>,
    ask: Ask,
    JsonBody(patch): JsonBody<NetworkPatch>,
) -> ApiResult<Json<NetworkView>> {
    Ok(Json(rest.engine.change_network(&ask.who, &ask.which, NetworkChange::Patch(patch)).await?))
}

/// Lists what was decided about the traffic of a sandbox, oldest first.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/network/log", tag = "network",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NetworkLogQuery),
    responses((status = 200, body = v1::NetworkLog)))]
async fn log(State(rest): State<Rest>, ask: Ask<v1::NetworkLogQuery>) -> ApiResult<Json<v1::NetworkLog>> {
    let limit = ask.query.limit.map_or(DEFAULT_LISTED, |limit| limit as usize);
    if limit == 0 {
        return Err(Error::invalid("limit is 0; it must be at least 1").into());
    }
    let entries = rest.engine.network_log(&ask.who, &ask.which, ask.query.from, limit).await?;
    Ok(Json(v1::NetworkLog { entries }))
}
