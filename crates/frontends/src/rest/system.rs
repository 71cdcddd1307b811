//! The daemon itself: is it there, what is it, what can it do.

use axum::{Extension, Json, extract::State};
use engine::Principal;
use utoipa_axum::router::OpenApiRouter;

use super::{Rest, extract::Caller, v1};

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(version))
        .routes(routes!(capabilities))
        .routes(routes!(openapi_document))
}

/// Answers while the daemon is ready. On TCP it needs no key, and then tells nothing else.
#[utoipa::path(get, path = "/health", tag = "system", responses((status = 200, body = v1::Health)))]
async fn health(State(rest): State<Rest>, who: Option<Extension<Principal>>) -> Json<v1::Health> {
    let uptime_ms = u64::try_from(rest.started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Json(v1::Health {
        status: "ok".to_owned(),
        pid: who.is_some().then(std::process::id),
        uptime_ms: who.is_some().then_some(uptime_ms),
    })
}

/// The daemon's version.
#[utoipa::path(get, path = "/version", tag = "system", responses((status = 200, body = v1::Version)))]
async fn version(State(rest): State<Rest>) -> Json<v1::Version> {
    let build = rest.build.map(str::to_owned);
    Json(v1::Version { version: env!("CARGO_PKG_VERSION").to_owned(), build, api: vec!["v1".to_owned()] })
}

/// The back ends, and the features of the default one on this host.
#[utoipa::path(get, path = "/capabilities", tag = "system", responses((status = 200, body = v1::Capabilities)))]
async fn capabilities(State(rest): State<Rest>, Caller(who): Caller) -> Json<v1::Capabilities> {
    let mut found = v1::Capabilities::new(rest.engine.capabilities(), rest.engine.backends());
    found.missing.extend(rest.engine.warnings(&who));
    Json(found)
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "system", responses((status = 200, body = Object)))]
async fn openapi_document() -> Json<utoipa::openapi::OpenApi> {
    // Made when asked: nobody should carry it in memory, and it takes a millisecond.
    Json(super::document())
}
