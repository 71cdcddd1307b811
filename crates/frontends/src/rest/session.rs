//! Sessions of the dashboard and what can be shared from it.

use std::time::Duration;

use axum::{
    Extension, Json,
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{CACHE_CONTROL, SET_COOKIE},
    },
    response::{IntoResponse as _, Response},
};
use engine::{MAX_LINK_TTL, Principal, SandboxRef, ShareSpec, ShareTarget, SignIn};
use sandbox::{Error, ErrorKind, Next};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Caller, JsonBody, PathShare},
    v1,
};
use crate::{
    http::{ApiResult, SignedIn, is_page_secure, set_cookie},
    links::{BaseUrl, DEFAULT_LINK_TTL},
};

/// Longest JSON of a sign-in: a token has some hundred characters.
const MAX_BYTES: usize = 16 * 1024;
const NEVER_KEPT: &str = "no-store";

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(sign_in, session, sign_out))
        .routes(routes!(once))
        .routes(routes!(share, shares))
        .routes(routes!(revoke_share))
}

/// Signs in to the dashboard, with a key, a one-time token or a share.
///
/// The session has two halves: a cookie, and `proof`, which every request with the cookie sends as the header
/// `x-warren-dashboard`. It ends after a day at most, with the daemon, and with what was signed in with.
#[utoipa::path(post, path = "/session", tag = "session", request_body = v1::SignInRequest, security(()),
    responses((status = 200, body = v1::NewSession)))]
async fn sign_in(
    State(rest): State<Rest>,
    base: Option<Extension<BaseUrl>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<v1::SignInRequest, MAX_BYTES>,
) -> ApiResult<Response> {
    let new = rest.engine.sign_in(way(request)?).await?;
    // Rounded up: a browser may keep a cookie for a moment longer than it is good for.
    let left = new.expires_at.duration_since(jiff::Timestamp::now());
    let seconds = left.as_secs().saturating_add(1);
    let is_secure = is_page_secure(&headers, base.is_some_and(|base| base.is_tls()));
    let session = rest.engine.session_view(&new.who);
    Ok((
        [(SET_COOKIE, set_cookie(&new.token, seconds, is_secure)), (CACHE_CONTROL, NEVER_KEPT.to_owned())],
        Extension(SignedIn(new.who)),
        Json(v1::NewSession { session, proof: new.proof }),
    )
        .into_response())
}

fn way(request: v1::SignInRequest) -> Result<SignIn, Error> {
    match (request.key, request.once, request.share) {
        (Some(key), None, None) => Ok(SignIn::Key(key)),
        (None, Some(token), None) => Ok(SignIn::Once(token)),
        (None, None, Some(token)) => Ok(SignIn::Share(token)),
        _ => Err(Error::invalid("give one of key, once and share")),
    }
}

/// The caller and its rights.
#[utoipa::path(get, path = "/session", tag = "session", responses((status = 200, body = v1::Session)))]
async fn session(State(rest): State<Rest>, who: Option<Extension<Principal>>) -> ApiResult<Response> {
    let Some(Extension(who)) = who else {
        return Err(Error::new(ErrorKind::Unauthenticated, "nobody is signed in")
            .with_next(Next::SignIn)
            .into());
    };
    let view = rest.engine.session_view(&who);
    Ok(([(CACHE_CONTROL, NEVER_KEPT)], Json::<v1::Session>(view)).into_response())
}

/// Ends the session, and what it has open. Does nothing for those who came without one.
#[utoipa::path(delete, path = "/session", tag = "session", responses((status = 204)))]
async fn sign_out(
    State(rest): State<Rest>,
    Caller(who): Caller,
    base: Option<Extension<BaseUrl>>,
    headers: HeaderMap,
) -> Response {
    rest.engine.sign_out(&who);
    let is_secure = is_page_secure(&headers, base.is_some_and(|base| base.is_tls()));
    (StatusCode::NO_CONTENT, [(SET_COOKIE, set_cookie("", 0, is_secure))]).into_response()
}

/// Makes an address with which a browser signs in once, within five minutes, with the rights of whoever asks.
#[utoipa::path(post, path = "/session/once", tag = "session",
    responses((status = 201, body = v1::PageAddress)))]
async fn once(
    State(rest): State<Rest>,
    Caller(who): Caller,
    base: Option<Extension<BaseUrl>>,
) -> ApiResult<Response> {
    let links = rest.links.of(&who, base.as_deref());
    // Whether there is an address is known before a token is made.
    links.page("")?;
    let once = rest.engine.new_once_token(&who)?;
    let address = links.page(&format!("once={}", once.token))?;
    let body = Json(v1::PageAddress { address, expires_at: once.expires_at });
    Ok((StatusCode::CREATED, [(CACHE_CONTROL, NEVER_KEPT)], body).into_response())
}

/// Makes an address that shows one sandbox, or what one key does, to whoever has it: read-only, and for a while.
///
/// It ends with its time, with the sandbox, with the key that asked for it, and when it is revoked.
#[utoipa::path(post, path = "/shares", tag = "session", request_body = v1::ShareRequest,
    responses((status = 201, body = v1::NewShare)))]
async fn share(
    State(rest): State<Rest>,
    Caller(who): Caller,
    base: Option<Extension<BaseUrl>>,
    JsonBody(request): JsonBody<v1::ShareRequest, MAX_BYTES>,
) -> ApiResult<Response> {
    let ttl = request.expires.map_or(DEFAULT_LINK_TTL, Duration::from_secs);
    if ttl.is_zero() || ttl > MAX_LINK_TTL {
        let most = MAX_LINK_TTL.as_secs();
        return Err(Error::invalid(format!("a share cannot be valid for {} seconds", ttl.as_secs()))
            .with_hint(format!("Set expires to 1 to {most}."))
            .into());
    }
    let target = match (request.sandbox, request.key) {
        (Some(sandbox), None) => ShareTarget::Sandbox(SandboxRef::new(&sandbox, request.namespace)?),
        (None, Some(key)) => ShareTarget::Key(key),
        _ => return Err(Error::invalid("give either sandbox or key").into()),
    };
    let signed = rest.engine.share(&who, &ShareSpec { target, ttl }).await?;
    let address = rest.links.of(&who, base.as_deref()).page(&format!("share={}", signed.token))?;
    let body = Json(v1::NewShare { id: signed.id, address, expires_at: signed.expires_at });
    Ok((StatusCode::CREATED, [(CACHE_CONTROL, NEVER_KEPT)], body).into_response())
}

/// Lists shares that hold, oldest first: the caller's own, and for the daemon's owner all.
#[utoipa::path(get, path = "/shares", tag = "session", responses((status = 200, body = v1::ShareList)))]
async fn shares(State(rest): State<Rest>, Caller(who): Caller) -> ApiResult<Json<v1::ShareList>> {
    Ok(Json(v1::ShareList { shares: rest.engine.shares(&who).await? }))
}

/// Revokes a share. Whoever watches by it is shown nothing more, at once.
#[utoipa::path(delete, path = "/shares/{share}", tag = "session", params(("share" = String, Path)),
    responses((status = 204)))]
async fn revoke_share(
    State(rest): State<Rest>,
    Caller(who): Caller,
    PathShare(share): PathShare,
) -> ApiResult<StatusCode> {
    rest.engine.revoke_share(&who, &share).await?;
    Ok(StatusCode::NO_CONTENT)
}
