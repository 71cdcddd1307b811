//! A listener whose requests somebody else answers.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::Response,
    middleware::{self, Next},
    routing::any,
};
use futures_util::future::BoxFuture;
use sandbox::Result;

use super::{ApiResult, Hosts, no_route, request};

/// Answers one request.
pub type Pass = Arc<dyn Fn(Request) -> BoxFuture<'static, Result<Response<Body>>> + Send + Sync>;

/// One path, whose requests are passed on. Those that a hostile page could have sent are refused here, because whoever
/// they are passed to no longer sees where they came from.
pub fn passing(path: &str, hosts: Hosts, pass: Pass) -> Router {
    Router::new()
        .route(path, any(forward))
        .with_state(pass)
        .fallback(no_route)
        .layer(middleware::from_fn_with_state(hosts, check))
        .layer(middleware::from_fn_with_state("", request::frame))
}

async fn forward(State(pass): State<Pass>, request: Request) -> ApiResult<Response<Body>> {
    Ok(pass(request).await?)
}

async fn check(State(hosts): State<Hosts>, request: Request, next: Next) -> ApiResult<Response<Body>> {
    let (parts, body) = request.into_parts();
    hosts.check(&parts)?;
    Ok(next.run(Request::from_parts(parts, body)).await)
}
