//! REST: version 1 under `/v1`, described by an OpenAPI document that is generated from this code.
//!
//! One file for each noun (`sandboxes execs output files archives ports events system`), wire types in `v1/`. A handler turns
//! a request into one call of the engine. What all requests share is in `request`, `extract`, `stream` and `error`.

mod archives;
mod auth;
mod entries;
mod error;
mod events;
mod execs;
mod extract;
mod files;
mod listen;
mod openapi;
mod output;
mod ports;
mod request;
mod sandboxes;
mod stream;
mod system;
pub mod v1;

use std::{sync::Arc, time::Instant};

use axum::{Router, http::Request, middleware};
use engine::Engine;
use sandbox::Error;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

pub use self::{
    auth::{Authenticate, Peer, PeerCredentials},
    listen::{Activity, serve_unix},
    openapi::document,
    ports::UPGRADE_PROTOCOL,
    request::{REQUEST_ID_HEADER, SERVER_NAME},
};
use error::ApiError;

/// What every handler can reach.
#[derive(Debug, Clone)]
pub struct Rest {
    engine: Engine,
    auth: Arc<dyn Authenticate>,
    activity: Activity,
    stop: CancellationToken,
    started: Instant,
}

impl Rest {
    /// `stop` ends open streams, so that a daemon can leave; `activity` counts streams that outlive their request.
    pub fn new(
        engine: Engine,
        auth: Arc<dyn Authenticate>,
        activity: Activity,
        stop: CancellationToken,
    ) -> Self {
        Self { engine, auth, activity, stop, started: Instant::now() }
    }
}

/// The whole API as a service. Connections must carry a [`Peer`] extension where `auth` looks at it.
pub fn router(rest: Rest) -> Router {
    let (router, _document) = routes().split_for_parts();
    router
        .fallback(no_route)
        .method_not_allowed_fallback(no_route)
        .layer(middleware::from_fn_with_state(rest.clone(), request::authenticate))
        .layer(middleware::from_fn(request::frame))
        .with_state(rest)
}

/// Every route with its description.
fn routes() -> OpenApiRouter<Rest> {
    let v1 = OpenApiRouter::new()
        .merge(system::routes())
        .merge(sandboxes::routes())
        .merge(execs::routes())
        .merge(entries::routes())
        .merge(output::routes())
        .merge(files::routes())
        .merge(archives::routes())
        .merge(ports::routes())
        .merge(events::routes());
    OpenApiRouter::with_openapi(openapi::head()).nest("/v1", v1)
}

async fn no_route<B>(request: Request<B>) -> ApiError {
    let path: String = request.uri().path().chars().take(256).collect();
    ApiError(
        Error::not_found(format!("no route {} {path}", request.method()))
            .with_hint("GET /v1/openapi.json lists the routes."),
    )
}
