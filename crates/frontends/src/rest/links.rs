//! Links for browsers: made for a file, opened without a key.

use std::time::Duration;

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, Method, StatusCode},
    response::Response,
};
use engine::{LinkTarget, MAX_LINK_TTL, OpenLink};
use sandbox::{Error, ErrorKind, FileKind};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, JsonBody},
    v1,
};
use crate::{
    http::{ApiResult, Refusal},
    links::{self, BaseUrl},
};

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(make)).routes(routes!(open))
}

/// Makes a link to a file, which a browser opens without a key.
///
/// It ends with its time, with the sandbox, and with the key that asked for it.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/links", tag = "links",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = v1::LinkRequest, responses((status = 201, body = v1::Link)))]
async fn make(
    State(rest): State<Rest>,
    ask: Ask,
    base: Option<Extension<BaseUrl>>,
    JsonBody(asked): JsonBody<v1::LinkRequest>,
) -> ApiResult<(StatusCode, Json<v1::Link>)> {
    let ttl = asked.ttl_seconds.map(Duration::from_secs);
    if let Some(ttl) = ttl.filter(|ttl| ttl.is_zero() || *ttl > MAX_LINK_TTL) {
        let most = MAX_LINK_TTL.as_secs();
        return Err(Error::invalid(format!("a link cannot be valid for {} seconds", ttl.as_secs()))
            .with_hint(format!("Set ttlSeconds to 1 to {most}."))
            .into());
    }
    let sandbox = rest.engine.sandbox(&ask.who, &ask.which).await?.id;
    let entry = rest.engine.stat(&ask.who, &ask.which, &asked.path, true).await?;
    if entry.kind != FileKind::File {
        return Err(Error::new(ErrorKind::WrongState, format!("{} is not a file", asked.path))
            .with_hint("A link leads to one file; GET …/files/list shows the files.")
            .into());
    }
    let own = rest.links.of(&ask.who, base.as_deref());
    let (url, expires_at) = own.sign(&sandbox, &LinkTarget::File { path: asked.path }, ttl)?;
    Ok((StatusCode::CREATED, Json(v1::Link { url, expires_at })))
}

/// The target of a link.
///
/// Pictures and text are shown by a browser, the rest is saved; ranges are honoured. The name at the end is for
/// people.
#[utoipa::path(get, path = "/links/{token}/{name}", tag = "links",
    params(("token" = String, Path), ("name" = String, Path)), security(()),
    responses((status = 200, body = Vec<u8>, content_type = "*/*"), (status = 206, body = Vec<u8>, content_type = "*/*"),
        (status = 304), (status = 416)))]
async fn open(
    State(rest): State<Rest>,
    link: Option<Extension<OpenLink>>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    // Whoever comes without one did not come through the gate.
    let Extension(link) = link.ok_or_else(|| Error::not_found("no such link"))?;
    links::answer(&rest.links, &link, &rest.serving.by_link, &method, &headers).await
}
