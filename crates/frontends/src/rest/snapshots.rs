//! Snapshots: taken, looked at, verified, saved, loaded, restored, removed. Forks and changes of sandboxes.

use axum::{Json, body::Body, extract::State, http::StatusCode, response::Response};
use engine::{
    DiffSpec, Force, ForkSpec, Reindexed, RestoreSpec, SandboxRef, SaveOptions, Since, SnapshotCheck,
    SnapshotFate, SnapshotSpec, SnapshotView,
};
use sandbox::Change;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, AskSnapshot, Caller, JsonBody, Params, byte_stream},
    stream as streams, v1,
};
use crate::{http::ApiResult, pipe};

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(load))
        .routes(routes!(reindex))
        .routes(routes!(inspect, remove))
        .routes(routes!(verify))
        .routes(routes!(save))
        .routes(routes!(restore))
        .routes(routes!(fork))
        .routes(routes!(diff))
}

impl From<SnapshotView> for v1::Snapshot {
    fn from(view: SnapshotView) -> Self {
        Self {
            id: view.id,
            name: view.name,
            namespace: view.namespace,
            digest: view.digest,
            parent: view.parent,
            image: view.image,
            image_digest: view.image_digest,
            tree_digest: view.tree.digest,
            size_bytes: view.tree.bytes,
            entries: view.tree.n_entries,
            labels: view.labels,
            source_sandbox: view.source_sandbox,
            created_at: view.created_at,
            held_ms: view.held_ms,
            owner: view.owner,
            used_by: view.used_by,
        }
    }
}

impl From<SnapshotCheck> for v1::SnapshotVerified {
    fn from(check: SnapshotCheck) -> Self {
        Self { digest: check.digest, tree_digest: check.tree.digest, parents: check.parents }
    }
}

impl From<Change> for v1::FileChange {
    fn from(change: Change) -> Self {
        Self {
            path: change.path,
            change: change.kind,
            kind: change.file,
            size: change.size,
            only_metadata: change.only_metadata,
        }
    }
}

/// Lists snapshots, those without a name too.
#[utoipa::path(get, path = "/snapshots", tag = "snapshots", params(v1::NamespaceQuery),
    responses((status = 200, body = v1::SnapshotList)))]
async fn list(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Params(query): Params<v1::NamespaceQuery>,
) -> ApiResult<Json<v1::SnapshotList>> {
    let all = rest.engine.snapshots(&who, query.namespace.as_ref()).await?;
    Ok(Json(v1::SnapshotList { snapshots: all.into_iter().map(Into::into).collect() }))
}

/// Keeps what a sandbox changed. One that runs stands still for the copy only.
#[utoipa::path(post, path = "/snapshots", tag = "snapshots", request_body = v1::SnapshotRequest,
    responses((status = 201, body = v1::Snapshot)))]
async fn create(
    State(rest): State<Rest>,
    Caller(who): Caller,
    JsonBody(asked): JsonBody<v1::SnapshotRequest>,
) -> ApiResult<(StatusCode, Json<v1::Snapshot>)> {
    let spec = SnapshotSpec {
        name: asked.name,
        from: SandboxRef::new(&asked.sandbox, asked.namespace)?,
        labels: asked.labels,
        replace: asked.replace,
    };
    let view = rest.engine.create_snapshot(&who, spec).await?;
    Ok((StatusCode::CREATED, Json(view.into())))
}

/// One snapshot.
#[utoipa::path(get, path = "/snapshots/{snapshot}", tag = "snapshots",
    params(("snapshot" = String, Path, description = "Name, id, or digest or its beginning."), v1::NamespaceQuery),
    responses((status = 200, body = v1::Snapshot)))]
async fn inspect(State(rest): State<Rest>, ask: AskSnapshot) -> ApiResult<Json<v1::Snapshot>> {
    Ok(Json(rest.engine.snapshot(&ask.who, &ask.which).await?.into()))
}

/// Removes a snapshot.
///
/// Refused while a sandbox or another snapshot is made on it; by force it loses its name then, and goes with the last
/// of them.
#[utoipa::path(delete, path = "/snapshots/{snapshot}", tag = "snapshots",
    params(("snapshot" = String, Path, description = "Name, id, or digest or its beginning."),
        v1::RemoveSnapshotQuery),
    responses((status = 200, body = v1::SnapshotRemoved)))]
async fn remove(
    State(rest): State<Rest>,
    ask: AskSnapshot<v1::RemoveSnapshotQuery>,
) -> ApiResult<Json<v1::SnapshotRemoved>> {
    let force = if ask.query.force { Force::Yes } else { Force::No };
    let fate = rest.engine.remove_snapshot(&ask.who, &ask.which, force).await?;
    Ok(Json(v1::SnapshotRemoved { removed: fate == SnapshotFate::Removed }))
}

/// Reads all of a snapshot and compares it with the digests that were recorded.
#[utoipa::path(post, path = "/snapshots/{snapshot}/verify", tag = "snapshots",
    params(("snapshot" = String, Path, description = "Name, id, or digest or its beginning."),
        v1::VerifySnapshotQuery),
    responses((status = 200, body = v1::SnapshotVerified)))]
async fn verify(
    State(rest): State<Rest>,
    ask: AskSnapshot<v1::VerifySnapshotQuery>,
) -> ApiResult<Json<v1::SnapshotVerified>> {
    let check = rest.engine.verify_snapshot(&ask.who, &ask.which, ask.query.parents).await?;
    Ok(Json(check.into()))
}

/// Makes records for snapshots on the daemon's disk that have none.
#[utoipa::path(post, path = "/snapshots/reindex", tag = "snapshots",
    responses((status = 200, body = v1::SnapshotsIndexed)))]
async fn reindex(State(rest): State<Rest>, Caller(who): Caller) -> ApiResult<Json<v1::SnapshotsIndexed>> {
    let Reindexed { n_known, n_found } = rest.engine.reindex_snapshots(&who).await?;
    Ok(Json(v1::SnapshotsIndexed { indexed: n_known, found: n_found }))
}

/// Writes a snapshot as one archive, `tar.zst` unless it is to be plain.
#[utoipa::path(get, path = "/snapshots/{snapshot}/archive", tag = "snapshots",
    params(("snapshot" = String, Path, description = "Name, id, or digest or its beginning."),
        v1::SaveSnapshotQuery),
    responses((status = 200, content((Vec<u8> = "application/zstd"), (Vec<u8> = "application/x-tar")))))]
async fn save(State(rest): State<Rest>, ask: AskSnapshot<v1::SaveSnapshotQuery>) -> ApiResult<Response> {
    let query = ask.query;
    let options = SaveOptions { with_parents: query.parents, with_image: query.image, plain: query.plain };
    let (engine, who, which) = (rest.engine.clone(), ask.who, ask.which);
    let save = |writer| async move { engine.save_snapshot(&who, &which, writer, options).await };
    let archive = pipe::written(save).await?;
    let media_type = if options.plain { "application/x-tar" } else { "application/zstd" };
    Ok(streams::raw(media_type, archive))
}

/// Takes in a snapshot from an archive. Nothing is taken in from one that was changed.
#[utoipa::path(post, path = "/snapshots/load", tag = "snapshots", params(v1::LoadSnapshotQuery),
    request_body(content_type = "application/zstd", content = Vec<u8>),
    responses((status = 201, body = v1::Snapshot)))]
async fn load(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Params(query): Params<v1::LoadSnapshotQuery>,
    body: Body,
) -> ApiResult<(StatusCode, Json<v1::Snapshot>)> {
    let namespace = query.namespace.unwrap_or_else(|| who.home_namespace());
    let archive = pipe::readable(byte_stream(body));
    let view = rest.engine.load_snapshot(&who, &namespace, query.name, archive).await?;
    Ok((StatusCode::CREATED, Json(view.into())))
}

/// Makes a sandbox from a snapshot: its files, environment, user and limits. Nothing is copied.
#[utoipa::path(post, path = "/snapshots/{snapshot}/restore", tag = "snapshots",
    params(("snapshot" = String, Path, description = "Name, id, or digest or its beginning."), v1::NamespaceQuery),
    request_body = v1::RestoreRequest, responses((status = 201, body = v1::Sandbox)))]
async fn restore(
    State(rest): State<Rest>,
    ask: AskSnapshot,
    JsonBody(asked): JsonBody<v1::RestoreRequest>,
) -> ApiResult<(StatusCode, Json<v1::Sandbox>)> {
    let spec = RestoreSpec {
        name: asked.name,
        namespace: ask.query.namespace.unwrap_or_else(|| ask.who.home_namespace()),
        user: asked.user,
        env: asked.env,
        labels: asked.labels,
        mounts: Vec::new(),
        lifetime: asked.lifetime,
        limits: asked.limits,
        replace: asked.replace,
        by_agent: false,
    };
    let view = rest.engine.restore_snapshot(&ask.who, &ask.which, spec).await?;
    Ok((StatusCode::CREATED, Json(view.into())))
}

/// Makes sandboxes with the files that this one has now, running or stopped. All of them or none.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/fork", tag = "snapshots",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = v1::ForkSandboxRequest, responses((status = 201, body = v1::ForkList)))]
async fn fork(
    State(rest): State<Rest>,
    ask: Ask,
    JsonBody(asked): JsonBody<v1::ForkSandboxRequest>,
) -> ApiResult<(StatusCode, Json<v1::ForkList>)> {
    let spec = ForkSpec {
        names: asked.names,
        count: asked.count,
        name_prefix: asked.name_prefix,
        env: asked.env,
        labels: asked.labels,
        limits: asked.limits,
        lifetime: asked.lifetime,
        by_agent: false,
    };
    let made = rest.engine.fork_sandbox(&ask.who, &ask.which, spec).await?;
    Ok((StatusCode::CREATED, Json(v1::ForkList { forks: made.into_iter().map(Into::into).collect() })))
}

/// The changes of a sandbox since its image, or since a snapshot on the same image.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/diff", tag = "snapshots",
    params(("sandbox" = String, Path, description = "Id or name."), v1::DiffQuery),
    responses((status = 200, body = v1::Diff)))]
async fn diff(State(rest): State<Rest>, ask: Ask<v1::DiffQuery>) -> ApiResult<Json<v1::Diff>> {
    let query = ask.query;
    let spec = DiffSpec {
        since: query.since.map_or(Since::Image, Since::Snapshot),
        under: query.path,
        patch: query.patch,
        max_changes: query.limit,
        max_patch_bytes: query.max_bytes,
    };
    let report = rest.engine.diff_sandbox(&ask.who, &ask.which, spec).await?;
    Ok(Json(v1::Diff {
        changes: report.changes.into_iter().map(Into::into).collect(),
        changes_cut: report.changes_cut,
        patch: report.patch,
        patch_cut: report.patch_cut,
        patch_left_out: report.patch_left_out,
    }))
}
