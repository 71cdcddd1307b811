//! Counts every request by its route, for the metrics.

use std::time::Instant;

use axum::{
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::Next,
    response::Response,
};
use engine::{Engine, Frontend};

use super::audit;

/// The label of requests by a port's host name, and of those without a route: the paths there are anyone's.
const NO_ROUTE: &str = "other";
/// The methods of HTTP. A caller can invent others.
static METHODS: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
    Method::TRACE,
    Method::CONNECT,
];

/// Counts a request when its answer begins. Calls of MCP tools are counted by their tools; what is refused before it
/// reaches one, here.
pub(super) async fn measure(State(engine): State<Engine>, request: Request, next: Next) -> Response {
    let (action, frontend) = (action(&request), audit::frontend(request.uri().path()));
    let began = Instant::now();
    let response = next.run(request).await;
    let outcome = audit::outcome(&response);
    if frontend != Frontend::Mcp || outcome.is_err() {
        engine.count_request(frontend, &action, outcome.as_ref().err().map(String::as_str), began.elapsed());
    }
    response
}

/// `None`: the caller's own.
pub(crate) fn known_method(method: &Method) -> Option<&'static str> {
    METHODS.iter().find(|known| *known == method).map(Method::as_str)
}

/// The method and the route, as the program names it.
fn action(request: &Request) -> String {
    let method = known_method(request.method()).unwrap_or("OTHER");
    let route = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str);
    format!("{method} {route}")
}
