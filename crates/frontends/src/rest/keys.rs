//! Keys: made, listed, revoked. Only the daemon's owner, who comes without one, may.

use std::time::Duration;

use axum::{Extension, Json, extract::State, http::StatusCode};
use engine::NewKey;
use sandbox::{Error, KeySpec, Namespace};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Caller, JsonBody, PathKey},
    v1,
};
use crate::http::{About, ApiResult};

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(revoke))
}

fn spec(request: v1::KeyRequest) -> Result<KeySpec, Error> {
    let namespace = match (request.namespace, request.all_namespaces) {
        (Some(namespace), true) => {
            return Err(Error::invalid(format!(
                "namespace {namespace} and allNamespaces contradict each other"
            ))
            .with_hint("Send one of the two."));
        }
        (None, true) => None,
        (namespace, false) => Some(namespace.unwrap_or_else(Namespace::default)),
    };
    Ok(KeySpec {
        label: request.label,
        namespace,
        expires_in: request.expires_in_ms.map(Duration::from_millis),
        max_sandboxes: request.max_sandboxes,
        max_memory: request.max_memory,
        read_only: request.read_only,
        network: request.network,
        format: request.format,
    })
}

/// Makes a key. Its secret is in this answer and is never told again.
#[utoipa::path(post, path = "/keys", tag = "keys", request_body = v1::KeyRequest,
    responses((status = 201, body = v1::NewKey)))]
async fn create(
    State(rest): State<Rest>,
    Caller(who): Caller,
    JsonBody(request): JsonBody<v1::KeyRequest>,
) -> ApiResult<(StatusCode, Extension<About>, Json<v1::NewKey>)> {
    let NewKey { key, secret } = rest.engine.create_key(&who, spec(request)?).await?;
    let about = Extension(About::Key(key.id.clone()));
    Ok((StatusCode::CREATED, about, Json(v1::NewKey { key, secret })))
}

/// Lists keys, oldest first; those that were revoked too.
#[utoipa::path(get, path = "/keys", tag = "keys", responses((status = 200, body = v1::KeyList)))]
async fn list(State(rest): State<Rest>, Caller(who): Caller) -> ApiResult<Json<v1::KeyList>> {
    let keys = rest.engine.keys(&who).await?;
    Ok(Json(v1::KeyList { keys }))
}

/// Revokes a key: from now on it opens nothing, and what it holds open ends.
#[utoipa::path(delete, path = "/keys/{key}", tag = "keys",
    params(("key" = String, Path, description = "Id or label.")),
    responses((status = 200, body = v1::Key)))]
async fn revoke(
    State(rest): State<Rest>,
    Caller(who): Caller,
    PathKey(key): PathKey,
) -> ApiResult<(Extension<About>, Json<v1::Key>)> {
    let key = rest.engine.revoke_key(&who, &key).await?;
    Ok((Extension(About::Key(key.id.clone())), Json(key)))
}
