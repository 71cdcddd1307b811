//! Metrics for Prometheus: `/metrics` beside the other routes, and a listener that serves nothing else.

use std::net::IpAddr;

use axum::{
    Router,
    extract::{Extension, Request, State},
    http::{
        StatusCode,
        header::{CONTENT_TYPE, HOST},
        uri::Authority,
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use engine::{Engine, Principal};

use crate::http::{ApiError, ApiResult, handler::erased};

const PATH: &str = "/metrics";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `/metrics` for callers of all namespaces.
pub fn router(engine: Engine) -> Router {
    Router::new().route(PATH, get(erased(metrics))).with_state(engine)
}

/// `/metrics` for everyone who reaches a listener that the operator opened for nothing else. On loopback, a web page
/// that a browser here has open must not read it by a name of its own that leads here: `is_loopback` refuses such
/// names.
pub fn open_router(engine: Engine, is_loopback: bool) -> Router {
    let router = Router::new().route(PATH, get(erased(open_metrics))).with_state(engine);
    match is_loopback {
        true => router.layer(middleware::from_fn(own_names_only)),
        false => router,
    }
}

async fn own_names_only(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match is_own_name(host) {
        true => next.run(request).await,
        false => StatusCode::FORBIDDEN.into_response(),
    }
}

fn is_own_name(host: &str) -> bool {
    let name = host.parse::<Authority>().map(|host| host.host().to_owned()).unwrap_or_default();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse::<IpAddr>().is_ok()
}

async fn metrics(State(engine): State<Engine>, Extension(who): Extension<Principal>) -> ApiResult<Response> {
    Ok(answer(engine.metrics(&who).await?))
}

async fn open_metrics(State(engine): State<Engine>) -> Response {
    match engine.metrics(&Principal::operator("metrics")).await {
        Ok(text) => answer(text),
        Err(error) => ApiError(error).into_response(),
    }
}

fn answer(text: String) -> Response {
    ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_somebody_else_is_refused() {
        for own in ["127.0.0.1:9464", "localhost:9464", "[::1]:9464", "localhost", "10.0.0.7"] {
            assert!(is_own_name(own), "{own}");
        }
        for other in ["evil.example:9464", "", "localhost.evil.example", "127.0.0.1.evil.example"] {
            assert!(!is_own_name(other), "{other}");
        }
    }
}
