//! `GET /` on TCP: what this is, for whoever finds an open port.

use axum::{Json, Router, routing::get};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Welcome {
    name: &'static str,
    version: &'static str,
    links: Links,
}

#[derive(Debug, Serialize)]
struct Links {
    mcp: &'static str,
    rest: &'static str,
    openapi: &'static str,
    health: &'static str,
}

pub(super) fn routes() -> Router {
    Router::new().route("/", get(welcome))
}

async fn welcome() -> Json<Welcome> {
    Json(Welcome {
        name: "warren",
        version: env!("CARGO_PKG_VERSION"),
        links: Links { mcp: "/mcp", rest: "/v1", openapi: "/v1/openapi.json", health: "/v1/health" },
    })
}
