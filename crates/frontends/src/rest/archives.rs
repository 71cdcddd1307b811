//! Trees in and out, as tar streams.

use axum::{Json, body::Body, extract::State, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Rest,
    extract::{Ask, byte_stream},
    stream, v1,
};
use crate::http::ApiResult;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(pack, unpack))
}

/// A file or tree as a tar stream; entries are named beneath the path's last component.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/files/archive", tag = "files",
    params(("sandbox" = String, Path, description = "Id or name."), v1::ArchiveQuery),
    responses((status = 200, body = Vec<u8>, content_type = "application/x-tar")))]
async fn pack(State(rest): State<Rest>, ask: Ask<v1::ArchiveQuery>) -> ApiResult<Response> {
    let bytes = rest.engine.pack(&ask.who, &ask.which, &ask.query.path).await?;
    Ok(stream::raw("application/x-tar", bytes))
}

/// Unpacks a tar stream into a directory.
#[utoipa::path(put, path = "/sandboxes/{sandbox}/files/archive", tag = "files",
    params(("sandbox" = String, Path, description = "Id or name."), v1::ArchiveInQuery),
    request_body(content_type = "application/x-tar", content = Vec<u8>),
    responses((status = 200, body = v1::Written)))]
async fn unpack(
    State(rest): State<Rest>,
    ask: Ask<v1::ArchiveInQuery>,
    body: Body,
) -> ApiResult<Json<v1::Written>> {
    let v1::ArchiveInQuery { path, keep_ids, .. } = &ask.query;
    let bytes = rest.engine.unpack(&ask.who, &ask.which, path, *keep_ids, byte_stream(body)).await?;
    Ok(Json(v1::Written { bytes }))
}
