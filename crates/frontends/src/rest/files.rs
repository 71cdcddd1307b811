//! Files of sandboxes and, as far as they have the same routes, of volumes: one by one, and trees as tar streams.

use axum::{
    Extension, Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use engine::{SandboxRef, WatchKind, WriteOptions};
use futures_util::StreamExt;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, JsonBody, byte_stream},
    stream::{self, Format, Numbered},
    v1,
};
use crate::http::{ApiResult, HttpRequestId};

/// Entries, paths or matches that one answer holds when the caller does not say, and at most.
const DEFAULT_LIMIT: u32 = 1000;
const MAX_LIMIT: u32 = 100_000;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    alike()
        .routes(routes!(glob))
        .routes(routes!(grep))
        .routes(routes!(symlink))
        .routes(routes!(read_link))
        .routes(routes!(chmod))
        .routes(routes!(chown))
        .routes(routes!(watch))
}

pub(super) fn limit(asked: Option<u32>) -> u32 {
    asked.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT)
}

/// The routes that sandboxes and volumes have alike, over what the path names.
macro_rules! file_routes {
    ($base:tt, $tag:tt, $parameter:tt is $described:tt, $which:ty, list as $list:ident, remove as $remove:ident) => {
        fn alike() -> OpenApiRouter<Rest> {
            OpenApiRouter::new()
                .routes(routes!(read, write))
                .routes(routes!(stat))
                .routes(routes!($list))
                .routes(routes!(mkdir))
                .routes(routes!($remove))
                .routes(routes!(copy))
                .routes(routes!(rename))
                .routes(routes!(pack, unpack))
        }

        /// A file's bytes, or a range of them.
        #[utoipa::path(get, path = concat!($base, "/files/content"), tag = $tag,
            params(($parameter = String, Path, description = $described), v1::ReadQuery),
            responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream",
                headers(("x-warren-size" = u64, description = "Size of the whole file."), ("x-warren-mode" = String)))))]
        async fn read(State(rest): State<Rest>, ask: Ask<v1::ReadQuery, $which>) -> ApiResult<Response> {
            let v1::ReadQuery { path, offset, length, .. } = &ask.query;
            let (entry, bytes) = rest.engine.read_file(&ask.who, &ask.which, path, *offset, *length).await?;
            Ok(stream::file(&entry, bytes))
        }

        /// Writes the body to a file.
        #[utoipa::path(put, path = concat!($base, "/files/content"), tag = $tag,
            params(($parameter = String, Path, description = $described), v1::WriteQuery),
            request_body(content_type = "application/octet-stream", content = Vec<u8>),
            responses((status = 200, body = v1::Written)))]
        async fn write(
            State(rest): State<Rest>,
            ask: Ask<v1::WriteQuery, $which>,
            body: Body,
        ) -> ApiResult<Json<v1::Written>> {
            let v1::WriteQuery { path, mode, write, parents, .. } = &ask.query;
            let options = WriteOptions { mode: *write, permissions: mode.map(|mode| mode.0), parents: *parents };
            let bytes = rest.engine.write_file(&ask.who, &ask.which, path, options, byte_stream(body)).await?;
            Ok(Json(v1::Written { bytes }))
        }

        /// The entry at a path.
        #[utoipa::path(get, path = concat!($base, "/files/stat"), tag = $tag,
            params(($parameter = String, Path, description = $described), v1::StatQuery),
            responses((status = 200, body = v1::FileEntry)))]
        async fn stat(
            State(rest): State<Rest>,
            ask: Ask<v1::StatQuery, $which>,
        ) -> ApiResult<Json<v1::FileEntry>> {
            let entry = rest.engine.stat(&ask.who, &ask.which, &ask.query.path, ask.query.follow).await?;
            Ok(Json(entry.into()))
        }

        /// Entries of a directory, or of everything beneath it.
        #[utoipa::path(get, path = concat!($base, "/files/list"), tag = $tag,
            params(($parameter = String, Path, description = $described), v1::ListQuery),
            responses((status = 200, body = v1::FileList)))]
        async fn $list(
            State(rest): State<Rest>,
            ask: Ask<v1::ListQuery, $which>,
        ) -> ApiResult<Json<v1::FileList>> {
            let v1::ListQuery { path, recursive, limit: asked, .. } = &ask.query;
            let found = rest.engine.list(&ask.who, &ask.which, path, *recursive, limit(*asked)).await?;
            let entries = found.entries.into_iter().map(Into::into).collect();
            Ok(Json(v1::FileList { entries, truncated: found.truncated }))
        }

        /// Makes a directory.
        #[utoipa::path(post, path = concat!($base, "/files/mkdir"), tag = $tag,
            params(($parameter = String, Path, description = $described), v1::NamespaceQuery),
            request_body = v1::MkdirRequest, responses((status = 204)))]
        async fn mkdir(
            State(rest): State<Rest>,
            ask: Ask<v1::NamespaceQuery, $which>,
            JsonBody(asked): JsonBody<v1::MkdirRequest>,
        ) -> ApiResult<StatusCode> {
            let mode = asked.mode.map(|mode| mode.0);
            rest.engine.mkdir(&ask.who, &ask.which, &asked.path, asked.parents, mode).await?;
            Ok(StatusCode::NO_CONTENT)
        }

        /// Removes a file or, with `recursive`, a tree.
        #[utoipa::path(post, path = concat!($base, "/files/remove"), tag = $tag,
            params(($parameter = String, Path, description = $described), v1::NamespaceQuery),
            request_body = v1::RemoveRequest, responses((status = 204)))]
        async fn $remove(
            State(rest): State<Rest>,
            ask: Ask<v1::NamespaceQuery, $which>,
            JsonBody(asked): JsonBody<v1::RemoveRequest>,
        ) -> ApiResult<StatusCode> {
            rest.engine.remove_path(&ask.who, &ask.which, &asked.path, asked.recursive).await?;
            Ok(StatusCode::NO_CONTENT)
        }

        /// Copies from one path to another.
        #[utoipa::path(post, path = concat!($base, "/files/copy"), tag = $tag,
            params(($parameter = String, Path, description = $described), v1::NamespaceQuery),
            request_body = v1::CopyRequest, responses((status = 204)))]
        async fn copy(
            State(rest): State<Rest>,
            ask: Ask<v1::NamespaceQuery, $which>,
            JsonBody(asked): JsonBody<v1::CopyRequest>,
        ) -> ApiResult<StatusCode> {
            rest.engine.copy_path(&ask.who, &ask.which, &asked.from, &asked.to, asked.recursive).await?;
            Ok(StatusCode::NO_CONTENT)
        }

        /// Moves from one path to another.
        #[utoipa::path(post, path = concat!($base, "/files/rename"), tag = $tag,
            params(($parameter = String, Path, description = $described), v1::NamespaceQuery),
            request_body = v1::RenameRequest, responses((status = 204)))]
        async fn rename(
            State(rest): State<Rest>,
            ask: Ask<v1::NamespaceQuery, $which>,
            JsonBody(asked): JsonBody<v1::RenameRequest>,
        ) -> ApiResult<StatusCode> {
            rest.engine.rename_path(&ask.who, &ask.which, &asked.from, &asked.to, asked.replace).await?;
            Ok(StatusCode::NO_CONTENT)
        }

        /// A file or tree as a tar stream; entries are named beneath the path's last component.
        #[utoipa::path(get, path = concat!($base, "/files/archive"), tag = $tag,
            params(($parameter = String, Path, description = $described), v1::ArchiveQuery),
            responses((status = 200, body = Vec<u8>, content_type = "application/x-tar")))]
        async fn pack(State(rest): State<Rest>, ask: Ask<v1::ArchiveQuery, $which>) -> ApiResult<Response> {
            let bytes = rest.engine.pack(&ask.who, &ask.which, &ask.query.path).await?;
            Ok(stream::raw("application/x-tar", bytes))
        }

        /// Unpacks a tar stream into a directory.
        #[utoipa::path(put, path = concat!($base, "/files/archive"), tag = $tag,
            params(($parameter = String, Path, description = $described), v1::ArchiveInQuery),
            request_body(content_type = "application/x-tar", content = Vec<u8>),
            responses((status = 200, body = v1::Written)))]
        async fn unpack(
            State(rest): State<Rest>,
            ask: Ask<v1::ArchiveInQuery, $which>,
            body: Body,
        ) -> ApiResult<Json<v1::Written>> {
            let v1::ArchiveInQuery { path, keep_ids, .. } = &ask.query;
            let bytes = rest.engine.unpack(&ask.who, &ask.which, path, *keep_ids, byte_stream(body)).await?;
            Ok(Json(v1::Written { bytes }))
        }
    };
}

pub(super) use file_routes;

file_routes!("/sandboxes/{sandbox}", "files", "sandbox" is "Id or name.", SandboxRef, list as list, remove as remove);

/// Paths that match a glob.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/files/glob", tag = "files",
    params(("sandbox" = String, Path, description = "Id or name."), v1::GlobQuery),
    responses((status = 200, body = v1::PathList)))]
async fn glob(State(rest): State<Rest>, ask: Ask<v1::GlobQuery>) -> ApiResult<Json<v1::PathList>> {
    let v1::GlobQuery { root, pattern, limit: asked, .. } = &ask.query;
    let found = rest.engine.glob(&ask.who, &ask.which, root, pattern, limit(*asked)).await?;
    Ok(Json(v1::PathList { paths: found.paths, truncated: found.truncated }))
}

/// Lines that match an expression.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/files/grep", tag = "files",
    params(("sandbox" = String, Path, description = "Id or name."), v1::GrepQuery),
    responses((status = 200, body = v1::GrepMatches)))]
async fn grep(State(rest): State<Rest>, ask: Ask<v1::GrepQuery>) -> ApiResult<Json<v1::GrepMatches>> {
    let query = engine::GrepQuery {
        root: ask.query.root,
        pattern: ask.query.pattern,
        include: ask.query.include,
        ignore_case: ask.query.ignore_case,
        literal: ask.query.literal,
        limit: limit(ask.query.limit),
    };
    let found = rest.engine.grep(&ask.who, &ask.which, query).await?;
    let wire =
        |found: engine::GrepMatch| v1::GrepMatch { path: found.path, line: found.line, text: found.text };
    Ok(Json(v1::GrepMatches {
        matches: found.matches.into_iter().map(wire).collect(),
        truncated: found.truncated,
    }))
}

/// Makes a symlink.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/files/symlink", tag = "files",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = v1::SymlinkRequest, responses((status = 204)))]
async fn symlink(
    State(rest): State<Rest>,
    ask: Ask,
    JsonBody(asked): JsonBody<v1::SymlinkRequest>,
) -> ApiResult<StatusCode> {
    rest.engine.symlink(&ask.who, &ask.which, &asked.target, &asked.path).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The target of a symlink.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/files/link", tag = "files",
    params(("sandbox" = String, Path, description = "Id or name."), v1::ArchiveQuery),
    responses((status = 200, body = v1::LinkTarget)))]
async fn read_link(State(rest): State<Rest>, ask: Ask<v1::ArchiveQuery>) -> ApiResult<Json<v1::LinkTarget>> {
    let target = rest.engine.read_link(&ask.who, &ask.which, &ask.query.path).await?;
    Ok(Json(v1::LinkTarget { target }))
}

/// Changes permission bits.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/files/chmod", tag = "files",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = v1::ChmodRequest, responses((status = 204)))]
async fn chmod(
    State(rest): State<Rest>,
    ask: Ask,
    JsonBody(asked): JsonBody<v1::ChmodRequest>,
) -> ApiResult<StatusCode> {
    rest.engine.chmod(&ask.who, &ask.which, &asked.path, asked.mode.0, asked.recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes owners.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/files/chown", tag = "files",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = v1::ChownRequest, responses((status = 204)))]
async fn chown(
    State(rest): State<Rest>,
    ask: Ask,
    JsonBody(asked): JsonBody<v1::ChownRequest>,
) -> ApiResult<StatusCode> {
    let v1::ChownRequest { path, uid, gid, recursive } = asked;
    rest.engine.chown(&ask.who, &ask.which, &path, uid, gid, recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Streams what changes beneath a path, as SSE or as lines of JSON.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/files/watch", tag = "files",
    params(("sandbox" = String, Path, description = "Id or name."), v1::WatchQuery),
    responses((status = 200, content((v1::WatchEvent = "text/event-stream"), (v1::WatchEvent = "application/x-ndjson")))))]
async fn watch(
    State(rest): State<Rest>,
    Extension(id): Extension<HttpRequestId>,
    headers: HeaderMap,
    ask: Ask<v1::WatchQuery>,
) -> ApiResult<Response> {
    let changes = rest.engine.watch(&ask.who, &ask.which, &ask.query.path, ask.query.recursive).await?;
    let items = changes
        .map(|change| change.map(|change| Numbered { number: None, event: "change", value: wire(change) }))
        .boxed();
    Ok(stream::answer(Format::of(&headers), id, &rest.stop, items))
}

fn wire(change: engine::WatchEvent) -> v1::WatchEvent {
    let kind = match change.kind {
        WatchKind::Created => "created",
        WatchKind::Modified => "modified",
        WatchKind::Removed => "removed",
        WatchKind::Renamed => "renamed",
        WatchKind::Overflow => "overflow",
    };
    v1::WatchEvent { kind: kind.to_owned(), path: change.path, from: change.from }
}
