//! The parts that every front end on HTTP shares: connections, TLS, who asks, limits, an id for each request, one shape
//! for failures.
//!
//! A front end brings a router with its routes. [`app`] puts them behind the same layers, so that no front end can
//! forget one: [`request`] (id, log, failures), [`meter`], [`audit`], then [`gate`] (Host and Origin, who asks, rate,
//! streams).

mod audit;
mod auth;
mod body;
mod cors;
mod error;
mod error_body;
mod foreign;
mod gate;
pub(crate) mod handler;
mod hosts;
mod inside;
mod key_auth;
mod limits;
mod link_auth;
mod listen;
mod meter;
mod opensandbox_errors;
mod opensandbox_statuses;
mod parts;
mod passing;
mod port_hosts;
mod request;
mod session_auth;
mod socket_auth;
mod theirs;

use axum::{
    http::{Request, StatusCode},
    middleware,
};
use sandbox::{Error, Thing};
use tower::ServiceExt as _;

pub use axum::Router;

pub(crate) use self::{
    audit::{About, Granted},
    body::{JsonBody, JsonList, MAX_JSON_BYTES, OptionalJson, byte_stream},
    error::{ApiError, ApiResult, Refusal, body as error_body, chain, hint as error_hint, http_status},
    foreign::{detailed, numbered},
    gate::SignedIn,
    inside::HEADER as INSIDE_HEADER,
    key_auth::QueryKey,
    limits::{StreamLease, StreamPlace},
    listen::{ActivityGuard, stream_of},
    meter::known_method,
    parts::{caller, path_parameters},
    request::HttpRequestId,
    session_auth::{SESSION_COOKIES, is_page_secure, remove_proof, set_cookie},
    theirs::OPENSANDBOX,
};
pub use self::{
    auth::{Authenticate, DevAuth, Peer, PeerCredentials},
    error_body::{ErrorBody, ErrorDetail},
    gate::Gate,
    hosts::{Authority, Hosts, Origin},
    key_auth::KeyAuth,
    limits::{
        DEFAULT_REQUESTS_PER_SECOND, DEFAULT_STREAMS_PER_PRINCIPAL, LimitSettings, Limits,
        TOTAL_STREAMS_FACTOR,
    },
    listen::{Activity, TcpPlaces, Tls, serve_tcp, serve_unix},
    passing::{Pass, passing},
    request::{REQUEST_ID_HEADER, SERVER_NAME},
    socket_auth::SocketAuth,
};
/// The body of what is passed on.
pub use axum::body::Body;

/// The routes of all front ends (`rest::router(..)`, merged with others) as one service. Requests reach them with their
/// [`Peer`] and the `engine::Principal` who asks as extensions.
pub fn app(routes: Router, gate: Gate) -> Router {
    let app = routes
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn_with_state(gate.clone(), gate::pass))
        .layer(middleware::from_fn_with_state(gate.engine().clone(), audit::audit))
        .layer(middleware::from_fn_with_state(gate.clone(), port_hosts::answer))
        .layer(middleware::from_fn_with_state(gate.engine().clone(), meter::measure))
        .layer(middleware::from_fn_with_state(gate.dialect(), request::frame));
    let front = gate.clone();
    let app = match gate.hosts().is_some_and(|hosts| !hosts.allowed_origins.is_empty()) {
        true => app.layer(middleware::from_fn_with_state(gate, cors::answer)),
        false => app,
    };
    // A router finds the route before its layers run, so what changes the path stands before the whole of it.
    Router::new().fallback_service(app.map_request(move |request| front.routed(request)))
}

async fn no_route<B>(request: Request<B>) -> ApiError {
    let path: String = crate::links::shown_path(request.uri().path()).chars().take(256).collect();
    ApiError(
        Error::not_found(format!("no route {} {path}", request.method()))
            .about(Thing::Route, "")
            .with_hint("GET /v1/openapi.json lists the routes."),
    )
}

/// A path that exists, asked with a method that it does not have: 405, and `Allow`, which the router adds, lists the
/// others.
async fn no_method<B>(request: Request<B>) -> (StatusCode, ApiError) {
    (StatusCode::METHOD_NOT_ALLOWED, no_route(request).await)
}
