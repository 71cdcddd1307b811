//! Volumes, and the files in them with no sandbox running.

use axum::{Json, body::Body, extract::State, http::StatusCode, response::Response};
use engine::{VolumeRef, WriteOptions};
use sandbox::VolumeSpec;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, AskVolume, Caller, JsonBody, Params, byte_stream},
    files::{file_routes, limit},
    stream, v1,
};
use crate::http::ApiResult;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    alike().routes(routes!(create, list)).routes(routes!(inspect, remove))
}

/// Makes a volume.
#[utoipa::path(post, path = "/volumes", tag = "volumes", request_body = v1::VolumeRequest,
    responses((status = 201, body = v1::Volume)))]
async fn create(
    State(rest): State<Rest>,
    Caller(who): Caller,
    JsonBody(asked): JsonBody<v1::VolumeRequest>,
) -> ApiResult<(StatusCode, Json<v1::Volume>)> {
    let v1::VolumeRequest { name, namespace, kind, size, quota, labels } = asked;
    let namespace = namespace.unwrap_or_else(|| who.home_namespace());
    let spec = VolumeSpec { name, namespace, kind, size, quota, labels };
    let made = rest.engine.create_volume(&who, spec).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Lists volumes, of one namespace or of all that the caller sees.
#[utoipa::path(get, path = "/volumes", tag = "volumes", params(v1::NamespaceQuery),
    responses((status = 200, body = v1::VolumeList)))]
async fn list(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Params(query): Params<v1::NamespaceQuery>,
) -> ApiResult<Json<v1::VolumeList>> {
    let found = rest.engine.volumes(&who, query.namespace.as_ref()).await?;
    Ok(Json(v1::VolumeList { volumes: found }))
}

/// One volume, with what it takes and who mounts it.
#[utoipa::path(get, path = "/volumes/{volume}", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::Volume)))]
async fn inspect(State(rest): State<Rest>, ask: AskVolume) -> ApiResult<Json<v1::Volume>> {
    Ok(Json(rest.engine.volume(&ask.who, &ask.which).await?))
}

/// Removes a volume with everything in it. Refused while a sandbox mounts it, running or not.
#[utoipa::path(delete, path = "/volumes/{volume}", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::NamespaceQuery),
    responses((status = 204)))]
async fn remove(State(rest): State<Rest>, ask: AskVolume) -> ApiResult<StatusCode> {
    rest.engine.remove_volume(&ask.who, &ask.which).await?;
    Ok(StatusCode::NO_CONTENT)
}

file_routes!("/volumes/{volume}", "volumes", "volume" is "Name.", VolumeRef, list as list_files, remove as remove_file);
