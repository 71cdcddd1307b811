//! Public keys of SSH: bound to a key, listed, removed. The daemon's owner manages all of them, a key its own.

use axum::{Json, extract::State, http::StatusCode};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Caller, JsonBody, PathKey},
    v1,
};
use crate::http::ApiResult;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(add_ssh, list_ssh)).routes(routes!(remove_ssh))
}

/// Binds a public key of SSH to a key. Whoever holds its other half logs in as that key, until either is removed.
#[utoipa::path(post, path = "/ssh-keys", tag = "keys", request_body = v1::SshKeyRequest,
    responses((status = 201, body = v1::SshKey)))]
async fn add_ssh(
    State(rest): State<Rest>,
    Caller(who): Caller,
    JsonBody(request): JsonBody<v1::SshKeyRequest>,
) -> ApiResult<(StatusCode, Json<v1::SshKey>)> {
    let added = rest.engine.add_ssh_key(&who, &request.key, &request.public_key).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

/// Lists public keys of SSH, oldest first.
#[utoipa::path(get, path = "/ssh-keys", tag = "keys", responses((status = 200, body = v1::SshKeyList)))]
async fn list_ssh(State(rest): State<Rest>, Caller(who): Caller) -> ApiResult<Json<v1::SshKeyList>> {
    Ok(Json(v1::SshKeyList { ssh_keys: rest.engine.ssh_keys(&who).await? }))
}

/// Removes a public key of SSH. Connections that were made with it end.
#[utoipa::path(delete, path = "/ssh-keys/{key}", tag = "keys",
    params(("key" = String, Path, description = "Id or fingerprint.")),
    responses((status = 204)))]
async fn remove_ssh(
    State(rest): State<Rest>,
    Caller(who): Caller,
    PathKey(key): PathKey,
) -> ApiResult<StatusCode> {
    rest.engine.remove_ssh_key(&who, &key).await?;
    Ok(StatusCode::NO_CONTENT)
}
