//! Volumes, and the files in them with no sandbox running.

use axum::{Json, body::Body, extract::State, http::StatusCode, response::Response};
use engine::WriteOptions;
use sandbox::VolumeSpec;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Rest,
    extract::{AskVolume, Caller, JsonBody, Params, byte_stream},
    files::limit,
    stream, v1,
};
use crate::http::ApiResult;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(inspect, remove))
        .routes(routes!(read, write))
        .routes(routes!(stat))
        .routes(routes!(list_files))
        .routes(routes!(mkdir))
        .routes(routes!(remove_file))
        .routes(routes!(copy))
        .routes(routes!(rename))
        .routes(routes!(pack, unpack))
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
    Ok((StatusCode::CREATED, Json(made.into())))
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
    Ok(Json(v1::VolumeList { volumes: found.into_iter().map(Into::into).collect() }))
}

/// One volume, with what it takes and who mounts it.
#[utoipa::path(get, path = "/volumes/{volume}", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::NamespaceQuery),
    responses((status = 200, body = v1::Volume)))]
async fn inspect(State(rest): State<Rest>, ask: AskVolume) -> ApiResult<Json<v1::Volume>> {
    Ok(Json(rest.engine.volume(&ask.who, &ask.which).await?.into()))
}

/// Removes a volume with everything in it. Refused while a sandbox mounts it, running or not.
#[utoipa::path(delete, path = "/volumes/{volume}", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::NamespaceQuery),
    responses((status = 204)))]
async fn remove(State(rest): State<Rest>, ask: AskVolume) -> ApiResult<StatusCode> {
    rest.engine.remove_volume(&ask.who, &ask.which).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The bytes of a volume's file, or a range of them.
#[utoipa::path(get, path = "/volumes/{volume}/files/content", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::ReadQuery),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream",
        headers(("x-warren-size" = u64, description = "Size of the whole file."), ("x-warren-mode" = String)))))]
async fn read(State(rest): State<Rest>, ask: AskVolume<v1::ReadQuery>) -> ApiResult<Response> {
    let v1::ReadQuery { path, offset, length, .. } = &ask.query;
    let (entry, bytes) = rest.engine.read_file(&ask.who, &ask.which, path, *offset, *length).await?;
    Ok(stream::file(&entry, bytes))
}

/// Writes the body to a volume's file.
#[utoipa::path(put, path = "/volumes/{volume}/files/content", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::WriteQuery),
    request_body(content_type = "application/octet-stream", content = Vec<u8>),
    responses((status = 200, body = v1::Written)))]
async fn write(
    State(rest): State<Rest>,
    ask: AskVolume<v1::WriteQuery>,
    body: Body,
) -> ApiResult<Json<v1::Written>> {
    let v1::WriteQuery { path, mode, write, parents, .. } = &ask.query;
    let options = WriteOptions { mode: *write, permissions: mode.map(|mode| mode.0), parents: *parents };
    let bytes = rest.engine.write_file(&ask.who, &ask.which, path, options, byte_stream(body)).await?;
    Ok(Json(v1::Written { bytes }))
}

/// What is at a path of a volume.
#[utoipa::path(get, path = "/volumes/{volume}/files/stat", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::StatQuery),
    responses((status = 200, body = v1::FileEntry)))]
async fn stat(State(rest): State<Rest>, ask: AskVolume<v1::StatQuery>) -> ApiResult<Json<v1::FileEntry>> {
    let entry = rest.engine.stat(&ask.who, &ask.which, &ask.query.path, ask.query.follow).await?;
    Ok(Json(entry.into()))
}

/// Entries of a volume's directory, or of everything beneath it.
#[utoipa::path(get, path = "/volumes/{volume}/files/list", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::ListQuery),
    responses((status = 200, body = v1::FileList)))]
async fn list_files(
    State(rest): State<Rest>,
    ask: AskVolume<v1::ListQuery>,
) -> ApiResult<Json<v1::FileList>> {
    let v1::ListQuery { path, recursive, limit: asked, .. } = &ask.query;
    let found = rest.engine.list(&ask.who, &ask.which, path, *recursive, limit(*asked)).await?;
    let entries = found.entries.into_iter().map(Into::into).collect();
    Ok(Json(v1::FileList { entries, truncated: found.truncated }))
}

/// Makes a directory in a volume.
#[utoipa::path(post, path = "/volumes/{volume}/files/mkdir", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::NamespaceQuery),
    request_body = v1::MkdirRequest, responses((status = 204)))]
async fn mkdir(
    State(rest): State<Rest>,
    ask: AskVolume,
    JsonBody(asked): JsonBody<v1::MkdirRequest>,
) -> ApiResult<StatusCode> {
    let mode = asked.mode.map(|mode| mode.0);
    rest.engine.mkdir(&ask.who, &ask.which, &asked.path, asked.parents, mode).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a file of a volume or, with `recursive`, a tree.
#[utoipa::path(post, path = "/volumes/{volume}/files/remove", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::NamespaceQuery),
    request_body = v1::RemoveRequest, responses((status = 204)))]
async fn remove_file(
    State(rest): State<Rest>,
    ask: AskVolume,
    JsonBody(asked): JsonBody<v1::RemoveRequest>,
) -> ApiResult<StatusCode> {
    rest.engine.remove_path(&ask.who, &ask.which, &asked.path, asked.recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Copies within a volume.
#[utoipa::path(post, path = "/volumes/{volume}/files/copy", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::NamespaceQuery),
    request_body = v1::CopyRequest, responses((status = 204)))]
async fn copy(
    State(rest): State<Rest>,
    ask: AskVolume,
    JsonBody(asked): JsonBody<v1::CopyRequest>,
) -> ApiResult<StatusCode> {
    rest.engine.copy_path(&ask.who, &ask.which, &asked.from, &asked.to, asked.recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Moves within a volume.
#[utoipa::path(post, path = "/volumes/{volume}/files/rename", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::NamespaceQuery),
    request_body = v1::RenameRequest, responses((status = 204)))]
async fn rename(
    State(rest): State<Rest>,
    ask: AskVolume,
    JsonBody(asked): JsonBody<v1::RenameRequest>,
) -> ApiResult<StatusCode> {
    rest.engine.rename_path(&ask.who, &ask.which, &asked.from, &asked.to, asked.replace).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A tar stream of a file or directory of a volume.
#[utoipa::path(get, path = "/volumes/{volume}/files/archive", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::ArchiveQuery),
    responses((status = 200, body = Vec<u8>, content_type = "application/x-tar")))]
async fn pack(State(rest): State<Rest>, ask: AskVolume<v1::ArchiveQuery>) -> ApiResult<Response> {
    let bytes = rest.engine.pack(&ask.who, &ask.which, &ask.query.path).await?;
    Ok(stream::raw("application/x-tar", bytes))
}

/// Unpacks a tar stream into a directory of a volume. Everything belongs to root inside.
#[utoipa::path(put, path = "/volumes/{volume}/files/archive", tag = "volumes",
    params(("volume" = String, Path, description = "Name."), v1::ArchiveQuery),
    request_body(content_type = "application/x-tar", content = Vec<u8>),
    responses((status = 200, body = v1::Written)))]
async fn unpack(
    State(rest): State<Rest>,
    ask: AskVolume<v1::ArchiveQuery>,
    body: Body,
) -> ApiResult<Json<v1::Written>> {
    let bytes = rest.engine.unpack(&ask.who, &ask.which, &ask.query.path, false, byte_stream(body)).await?;
    Ok(Json(v1::Written { bytes }))
}
