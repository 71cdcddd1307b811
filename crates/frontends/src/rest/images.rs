//! Images: pulled, loaded, looked at, saved, named, removed.
//!
//! An image in a path is its reference or its digest as one segment, percent-encoded: `/v1/images/team%2Fapp%3A1.2`.
//! The other words in that place (`pull`, `load`, `save`, `import`, `prune`, `usage`) hide images of docker.io with
//! that name alone; in full (`docker.io%2Flibrary%2Fsave`) they can be named.

use axum::{
    Extension, Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use engine::{ArchiveFormat, Credentials, DiskUsage, Force, Freed, ImageSummary, Platform, Progress};
use sandbox::{Error, Result};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Caller, JsonBody, Params, PathImage, byte_stream},
    pulls, stream as streams, v1,
};
use crate::{
    http::{About, ApiError, ApiResult, HttpRequestId},
    images::{Pulling, Registry, reference},
    pipe,
};

/// Images that one archive is asked to hold.
const MAX_SAVED: usize = 256;
/// Warnings about one layer that are told.
const MAX_WARNINGS: usize = 8;
const CONFIG_HINT: &str = "Give a JSON object, such as {\"cmd\": [\"/bin/app\"], \"env\": [\"LANG=C\"]}.";

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(pull))
        .routes(routes!(load))
        .routes(routes!(save))
        .routes(routes!(import))
        .routes(routes!(prune))
        .routes(routes!(usage))
        .routes(routes!(inspect, remove))
        .routes(routes!(tag))
        .routes(routes!(push))
        .routes(routes!(login))
}

impl From<ImageSummary> for v1::Image {
    fn from(summary: ImageSummary) -> Self {
        Self {
            digest: summary.digest.to_string(),
            references: summary.names.iter().map(ToString::to_string).collect(),
            os: summary.os,
            architecture: summary.architecture,
            layer_count: summary.n_layers,
            size_bytes: summary.size_bytes,
            created_at: summary.created_at,
            added_at: summary.added_at,
            last_used_at: summary.last_used_at,
            used_by: summary.used_by,
        }
    }
}

impl From<engine::ImageDetail> for v1::ImageDetail {
    fn from(detail: engine::ImageDetail) -> Self {
        let layer = |layer: engine::LayerDetail| v1::ImageLayer {
            diff_id: layer.diff_id.to_string(),
            blob: layer.blob.to_string(),
            media_type: layer.media_type,
            blob_bytes: layer.blob_bytes,
            disk_bytes: layer.disk_bytes,
            warnings: layer.warnings.texts.into_iter().take(MAX_WARNINGS).collect(),
        };
        Self {
            config_digest: detail.summary.config_digest.to_string(),
            image: detail.summary.into(),
            config: detail.config.into(),
            layers: detail.layers.into_iter().map(layer).collect(),
            history: detail.history.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<engine::ImageHistory> for v1::ImageStep {
    fn from(step: engine::ImageHistory) -> Self {
        let engine::ImageHistory { created, created_by, comment, empty_layer } = step;
        Self { created, created_by, comment, empty: empty_layer }
    }
}

impl From<Freed> for v1::ImagesFreed {
    fn from(freed: Freed) -> Self {
        Self {
            references: freed.names.iter().map(ToString::to_string).collect(),
            images: freed.images.iter().map(ToString::to_string).collect(),
            layers: freed.n_layers,
            bytes: freed.bytes,
        }
    }
}

impl From<DiskUsage> for v1::ImagesUsage {
    fn from(usage: DiskUsage) -> Self {
        Self {
            images: usage.n_images,
            blob_bytes: usage.blob_bytes,
            layer_bytes: usage.layer_bytes,
            partial_bytes: usage.partial_bytes,
            cap_bytes: usage.cap_bytes,
        }
    }
}

impl From<v1::ArchiveFormat> for ArchiveFormat {
    fn from(format: v1::ArchiveFormat) -> Self {
        match format {
            v1::ArchiveFormat::Docker => Self::Docker,
            v1::ArchiveFormat::Oci => Self::Oci,
        }
    }
}

fn platform(text: Option<&str>) -> Result<Option<Platform>> {
    let Some(text) = text else { return Ok(None) };
    text.parse().map(Some).map_err(|error: engine::ImageError| {
        Error::invalid(error.to_string()).with_hint("Write a platform as linux/amd64.")
    })
}

/// Lists images.
#[utoipa::path(get, path = "/images", tag = "images", responses((status = 200, body = v1::ImageList)))]
async fn list(State(rest): State<Rest>, Caller(who): Caller) -> ApiResult<Json<v1::ImageList>> {
    let images = rest.engine.images(&who).await?.into_iter().map(Into::into).collect();
    Ok(Json(v1::ImageList { images }))
}

/// One image with its configuration and layers.
#[utoipa::path(get, path = "/images/{image}", tag = "images",
    params(("image" = String, Path, description = "Reference or digest, percent-encoded as one segment.")),
    responses((status = 200, body = v1::ImageDetail)))]
async fn inspect(
    State(rest): State<Rest>,
    Caller(who): Caller,
    PathImage(image): PathImage,
) -> ApiResult<Json<v1::ImageDetail>> {
    Ok(Json(rest.engine.image(&who, &image).await?.into()))
}

/// Gets an image from its registry and streams how far it is, as SSE or as lines of JSON.
///
/// A reader that goes away gives it up; what was downloaded is kept for the next pull. A failure after the first line
/// is the last line, in the shape of every failure.
#[utoipa::path(post, path = "/images/pull", tag = "images", request_body = v1::PullRequest,
    responses((status = 200,
        content((v1::PullEvent = "application/x-ndjson"), (v1::PullEvent = "text/event-stream")))))]
async fn pull(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Extension(id): Extension<HttpRequestId>,
    headers: HeaderMap,
    JsonBody(asked): JsonBody<v1::PullRequest>,
) -> ApiResult<Response> {
    let reference = reference(&asked.reference)?;
    let options = Registry {
        platform: asked.platform,
        username: asked.username,
        password: asked.password,
        insecure: asked.insecure,
    }
    .options()?;
    let (pulling, engine) = (Pulling::default(), rest.engine.clone());
    let (progress, about) = (pulling.progress(), About::Image(reference.to_string()));
    let work = async move { engine.pull_image(&who, &reference, options, progress).await };
    let done = |image: engine::ImageDetail| v1::PullEvent::Done { image: Box::new(image.into()) };
    let response = pulls::follow(&rest, id, &headers, pulling, work, done).await?;
    Ok((Extension(about), response).into_response())
}

/// Takes in the images of an archive: a tar by `docker save` or of an OCI layout, compressed or not.
#[utoipa::path(post, path = "/images/load", tag = "images", params(v1::LoadQuery),
    request_body(content_type = "application/x-tar", content = Vec<u8>),
    responses((status = 200, body = v1::ImageList)))]
async fn load(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Params(query): Params<v1::LoadQuery>,
    body: Body,
) -> ApiResult<Json<v1::ImageList>> {
    let platform = platform(query.platform.as_deref())?;
    let archive = pipe::readable(byte_stream(body));
    let loaded = rest.engine.load_images(&who, archive, platform).await?;
    Ok(Json(v1::ImageList { images: loaded.into_iter().map(|image| image.summary.into()).collect() }))
}

/// Writes images as one tar.
#[utoipa::path(get, path = "/images/save", tag = "images",
    params(
        ("reference" = Vec<String>, Query, description = "Names or digests; may be repeated."),
        ("format" = Option<v1::ArchiveFormat>, Query, description = "Default: `docker`."),
    ),
    responses((status = 200, body = Vec<u8>, content_type = "application/x-tar")))]
async fn save(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Params(pairs): Params<Vec<(String, String)>>,
) -> ApiResult<Response> {
    let (names, format) = wanted(pairs)?;
    let engine = rest.engine.clone();
    let save = |writer| async move { engine.save_images(&who, &names, writer, format.into()).await };
    Ok(streams::raw("application/x-tar", pipe::written(save).await?))
}

fn wanted(pairs: Vec<(String, String)>) -> Result<(Vec<String>, v1::ArchiveFormat), ApiError> {
    let (mut names, mut format) = (Vec::new(), v1::ArchiveFormat::default());
    for (key, value) in pairs {
        match (key.as_str(), value.as_str()) {
            ("reference", _) => names.push(value),
            ("format", "docker") => format = v1::ArchiveFormat::Docker,
            ("format", "oci") => format = v1::ArchiveFormat::Oci,
            _ => {
                let shown: String = format!("{key}={value}").chars().take(64).collect();
                return Err(Error::invalid(format!("{shown:?} is not a parameter of this route"))
                    .with_hint(
                        "Send reference, which may be given several times, and format=docker or format=oci.",
                    )
                    .into());
            }
        }
    }
    if names.is_empty() || names.len() > MAX_SAVED {
        return Err(Error::invalid(format!("{} references; from 1 to {MAX_SAVED} are saved", names.len()))
            .with_hint("Send reference, which may be given several times.")
            .into());
    }
    Ok((names, format))
}

/// Makes an image of one layer from the tar of a root file system, compressed or not.
#[utoipa::path(post, path = "/images/import", tag = "images", params(v1::ImportQuery),
    request_body(content_type = "application/x-tar", content = Vec<u8>),
    responses((status = 200, body = v1::ImageDetail)))]
async fn import(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Params(query): Params<v1::ImportQuery>,
    body: Body,
) -> ApiResult<(Extension<About>, Json<v1::ImageDetail>)> {
    let name = reference(&query.reference)?;
    let platform = platform(query.platform.as_deref())?.unwrap_or_default();
    let config: v1::ImageConfig = match &query.config {
        Some(text) => serde_json::from_str(text).map_err(|error| {
            Error::invalid(format!("invalid image configuration: {error}")).with_hint(CONFIG_HINT)
        })?,
        None => v1::ImageConfig::default(),
    };
    let about = About::Image(name.to_string());
    let root = pipe::readable(byte_stream(body));
    let image = rest.engine.import_image(&who, root, config.into(), platform, name).await?;
    Ok((Extension(about), Json(image.into())))
}

/// Gives an image a further name.
#[utoipa::path(post, path = "/images/{image}/tag", tag = "images",
    params(("image" = String, Path, description = "Reference or digest, percent-encoded as one segment.")),
    request_body = v1::TagRequest, responses((status = 200, body = v1::ImageDetail)))]
async fn tag(
    State(rest): State<Rest>,
    Caller(who): Caller,
    PathImage(image): PathImage,
    JsonBody(asked): JsonBody<v1::TagRequest>,
) -> ApiResult<(Extension<About>, Json<v1::ImageDetail>)> {
    let target = reference(&asked.target)?;
    rest.engine.tag_image(&who, &image, &target).await?;
    let detail = rest.engine.image(&who, &target.to_string()).await?;
    Ok((Extension(About::Image(target.to_string())), Json(detail.into())))
}

/// Uploads an image to a registry.
#[utoipa::path(post, path = "/images/{image}/push", tag = "images",
    params(("image" = String, Path, description = "Reference or digest, percent-encoded as one segment.")),
    request_body = v1::PushRequest, responses((status = 200, body = v1::Pushed)))]
async fn push(
    State(rest): State<Rest>,
    Caller(who): Caller,
    PathImage(image): PathImage,
    JsonBody(asked): JsonBody<v1::PushRequest>,
) -> ApiResult<(Extension<About>, Json<v1::Pushed>)> {
    let target = reference(asked.target.as_deref().unwrap_or(&image))?;
    let registry = Registry {
        username: asked.username,
        password: asked.password,
        insecure: asked.insecure,
        ..Registry::default()
    };
    let about = Extension(About::Image(target.to_string()));
    let digest = rest.engine.push_image(&who, &image, &target, registry.options()?, Progress::none()).await?;
    Ok((about, Json(v1::Pushed { reference: target.to_string(), digest: digest.to_string() })))
}

/// Checks a user name and a password at a registry. They are not kept.
#[utoipa::path(post, path = "/images/login", tag = "images", request_body = v1::LoginRequest,
    responses((status = 204)))]
async fn login(
    State(rest): State<Rest>,
    Caller(who): Caller,
    JsonBody(asked): JsonBody<v1::LoginRequest>,
) -> ApiResult<StatusCode> {
    let v1::LoginRequest { registry, username, password, insecure } = asked;
    let credentials = Credentials { username, password: password.0 };
    rest.engine.check_registry_login(&who, &registry, credentials, insecure).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes a name away, and with its last one, or when it is named by digest, the image.
#[utoipa::path(delete, path = "/images/{image}", tag = "images",
    params(("image" = String, Path, description = "Reference or digest, percent-encoded as one segment."),
        v1::RemoveImageQuery),
    responses((status = 200, body = v1::ImagesFreed)))]
async fn remove(
    State(rest): State<Rest>,
    Caller(who): Caller,
    PathImage(image): PathImage,
    Params(query): Params<v1::RemoveImageQuery>,
) -> ApiResult<(Extension<About>, Json<v1::ImagesFreed>)> {
    let force = if query.force { Force::Yes } else { Force::No };
    let freed = rest.engine.remove_image(&who, &image, force).await?;
    Ok((Extension(About::Image(image)), Json(freed.into())))
}

/// Removes every image that no sandbox and no snapshot uses, and downloads that were broken off.
#[utoipa::path(post, path = "/images/prune", tag = "images", responses((status = 200, body = v1::ImagesFreed)))]
async fn prune(State(rest): State<Rest>, Caller(who): Caller) -> ApiResult<Json<v1::ImagesFreed>> {
    Ok(Json(rest.engine.prune_images(&who).await?.into()))
}

/// The disk usage of images.
#[utoipa::path(get, path = "/images/usage", tag = "images", responses((status = 200, body = v1::ImagesUsage)))]
async fn usage(State(rest): State<Rest>, Caller(who): Caller) -> ApiResult<Json<v1::ImagesUsage>> {
    Ok(Json(rest.engine.images_usage(&who).await?.into()))
}
