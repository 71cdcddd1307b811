//! Secrets: set and removed by the daemon's owner, listed for those who may use them. No answer has a value.

use axum::{Json, extract::State, http::StatusCode};
use engine::{Force, SecretRef, SecretSpec};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, Caller, JsonBody, Params},
    v1,
};
use crate::http::ApiResult;

type AskSecret<Q = v1::NamespaceQuery> = Ask<Q, SecretRef>;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(inspect, set, remove))
}

/// Lists secrets without their values, of one namespace or of all that the caller sees.
#[utoipa::path(get, path = "/secrets", tag = "secrets", params(v1::NamespaceQuery),
    responses((status = 200, body = v1::SecretList)))]
async fn list(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Params(query): Params<v1::NamespaceQuery>,
) -> ApiResult<Json<v1::SecretList>> {
    let secrets = rest.engine.secrets(&who, query.namespace.as_ref()).await?;
    Ok(Json(v1::SecretList { secrets }))
}

/// One secret without its value, with the sandboxes that have it.
#[utoipa::path(get, path = "/secrets/{secret}", tag = "secrets",
    params(("secret" = String, Path, description = "Name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::Secret)))]
async fn inspect(State(rest): State<Rest>, ask: AskSecret) -> ApiResult<Json<v1::Secret>> {
    Ok(Json(rest.engine.secret(&ask.who, &ask.which).await?))
}

/// Sets a secret. Running sandboxes that have it use the new value at once.
#[utoipa::path(put, path = "/secrets/{secret}", tag = "secrets",
    params(("secret" = String, Path, description = "Name."), v1::NamespaceQuery),
    request_body = v1::SecretRequest, responses((status = 200, body = v1::Secret)))]
async fn set(
    State(rest): State<Rest>,
    ask: AskSecret,
    JsonBody(request): JsonBody<v1::SecretRequest>,
) -> ApiResult<Json<v1::Secret>> {
    let v1::SecretRequest { rules, value } = request;
    Ok(Json(rest.engine.set_secret(&ask.who, &ask.which, SecretSpec { rules, value }).await?))
}

/// Removes a secret. Refused while sandboxes have it, unless `force`.
#[utoipa::path(delete, path = "/secrets/{secret}", tag = "secrets",
    params(("secret" = String, Path, description = "Name."), v1::RemoveSecretQuery),
    responses((status = 204)))]
async fn remove(State(rest): State<Rest>, ask: AskSecret<v1::RemoveSecretQuery>) -> ApiResult<StatusCode> {
    let force = if ask.query.force { Force::Yes } else { Force::No };
    rest.engine.remove_secret(&ask.who, &ask.which, force).await?;
    Ok(StatusCode::NO_CONTENT)
}
