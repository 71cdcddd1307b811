//! The network of a sandbox: what it may reach, and what it reached.

use std::time::Duration;

use axum::{Json, extract::State, http::StatusCode};
use engine::{NetworkChange, NetworkPatch, NetworkRequestView, NetworkView};
use sandbox::{Error, NetworkHosts, NetworkRequestSpec, NetworkSpec};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, AskNetworkRequest, Caller, JsonBody, Params},
    v1,
};
use crate::http::ApiResult;

/// Entries of the log in one answer.
const DEFAULT_LISTED: usize = 100;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(look, replace, patch))
        .routes(routes!(log))
        .routes(routes!(hosts))
        .routes(routes!(requests))
        .routes(routes!(request))
        .routes(routes!(answer))
        .routes(routes!(grant))
        .routes(routes!(refuse))
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

/// Lists what went to which host of a sandbox, the busiest first. Counts begin anew when the sandbox is started, and when
/// the daemon is.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/network/hosts", tag = "network",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    responses((status = 200, body = NetworkHosts)))]
async fn hosts(State(rest): State<Rest>, ask: Ask) -> ApiResult<Json<NetworkHosts>> {
    Ok(Json(rest.engine.network_hosts(&ask.who, &ask.which).await?))
}

/// Lists requests for more network than sandboxes' policies allow, oldest first: those that wait for an answer, or all
/// that are remembered.
#[utoipa::path(get, path = "/network/requests", tag = "network", params(v1::NetworkRequestsQuery),
    responses((status = 200, body = v1::NetworkRequestList)))]
async fn requests(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Params(query): Params<v1::NetworkRequestsQuery>,
) -> ApiResult<Json<v1::NetworkRequestList>> {
    let found = rest.engine.network_requests(&who, query.namespace.as_ref(), query.pending).await?;
    Ok(Json(v1::NetworkRequestList { requests: found }))
}

/// Asks for more than the network policy of a sandbox allows. Nothing opens before somebody grants it.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/network/requests", tag = "network",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = NetworkRequestSpec, responses((status = 201, body = NetworkRequestView)))]
async fn request(
    State(rest): State<Rest>,
    ask: Ask,
    JsonBody(spec): JsonBody<NetworkRequestSpec>,
) -> ApiResult<(StatusCode, Json<NetworkRequestView>)> {
    let made = rest.engine.request_network(&ask.who, &ask.which, spec).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Returns a request, once it is answered or `waitMs` have passed.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/network/requests/{request}", tag = "network",
    params(("sandbox" = String, Path, description = "Id or name."), ("request" = String, Path),
        v1::NetworkAnswerQuery),
    responses((status = 200, body = NetworkRequestView)))]
async fn answer(
    State(rest): State<Rest>,
    ask: AskNetworkRequest<v1::NetworkAnswerQuery>,
) -> ApiResult<Json<NetworkRequestView>> {
    let wait = Duration::from_millis(ask.query.wait_ms.unwrap_or(0));
    Ok(Json(rest.engine.network_request(&ask.who, &ask.which, &ask.request, wait).await?))
}

/// Grants a request for a time. Callers with keys cannot grant their own, or more than their own ceilings allow. A grant
/// that holds already gets another time.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/network/requests/{request}/grant", tag = "network",
    params(("sandbox" = String, Path, description = "Id or name."), ("request" = String, Path), v1::NamespaceQuery),
    request_body = v1::NetworkGrantRequest, responses((status = 200, body = NetworkRequestView)))]
async fn grant(
    State(rest): State<Rest>,
    ask: AskNetworkRequest,
    JsonBody(body): JsonBody<v1::NetworkGrantRequest>,
) -> ApiResult<Json<NetworkRequestView>> {
    let seconds = body.for_seconds;
    Ok(Json(rest.engine.grant_network_request(&ask.who, &ask.which, &ask.request, seconds).await?))
}

/// Refuses a request, or takes a grant back at once.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/network/requests/{request}/refuse", tag = "network",
    params(("sandbox" = String, Path, description = "Id or name."), ("request" = String, Path), v1::NamespaceQuery),
    request_body = v1::NetworkRefusal, responses((status = 200, body = NetworkRequestView)))]
async fn refuse(
    State(rest): State<Rest>,
    ask: AskNetworkRequest,
    JsonBody(body): JsonBody<v1::NetworkRefusal>,
) -> ApiResult<Json<NetworkRequestView>> {
    Ok(Json(rest.engine.refuse_network_request(&ask.who, &ask.which, &ask.request, body.reason).await?))
}
