//! What every front end on HTTP shares: connections, who asks, an id for each request, one shape for failures.
//!
//! A front end brings a router with its routes. [`app`] puts them behind the same layers, so that no front end can forget one.

mod audit;
mod auth;
mod error;
mod key_auth;
mod listen;
mod request;

use std::sync::Arc;

use axum::{Router, http::Request, middleware};
use engine::Engine;
use sandbox::Error;

pub(crate) use self::{
    audit::About,
    error::{ApiError, ApiResult, body as error_body, chain},
    listen::ActivityGuard,
    request::HttpRequestId,
};
pub use self::{
    auth::{Authenticate, Peer, PeerCredentials},
    key_auth::KeyAuth,
    listen::{Activity, serve_unix},
    request::{REQUEST_ID_HEADER, SERVER_NAME},
};

/// What stands between a listener and the routes.
#[derive(Debug, Clone)]
pub struct Gate {
    engine: Engine,
    auth: Arc<dyn Authenticate>,
}

impl Gate {
    /// `engine` keeps the audit.
    pub fn new(engine: Engine, auth: Arc<dyn Authenticate>) -> Self {
        Self { engine, auth }
    }
}

/// The routes of all front ends (`rest::router(..)`, merged with others) as one service. Requests reach them with their
/// [`Peer`] and the `engine::Principal` who asks as extensions.
pub fn app(routes: Router, gate: Gate) -> Router {
    routes
        .fallback(no_route)
        .method_not_allowed_fallback(no_route)
        .layer(middleware::from_fn_with_state(gate.clone(), request::authenticate))
        .layer(middleware::from_fn_with_state(gate.engine, audit::audit))
        .layer(middleware::from_fn(request::frame))
}

async fn no_route<B>(request: Request<B>) -> ApiError {
    let path: String = request.uri().path().chars().take(256).collect();
    ApiError(
        Error::not_found(format!("no route {} {path}", request.method()))
            .with_hint("GET /v1/openapi.json lists the routes."),
    )
}
