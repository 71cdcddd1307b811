//! Pages that the operator allowed: a browser wants to hear so from the server, before and with every answer.

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
            ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
            VARY,
        },
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::gate::Gate;

const METHODS: &str = "GET, POST, PUT, DELETE";
/// The headers that a page may send beyond those it may always send. Keys travel in a header: no cookies, so no
/// credentials to allow.
const REQUEST_HEADERS: &str = "authorization, content-type, accept, last-event-id, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name, \
     x-request-id";
const RESPONSE_HEADERS: &str = "mcp-session-id, www-authenticate, retry-after, x-request-id";
/// Seconds for which a browser need not ask again.
const MAX_AGE: &str = "600";

/// Outermost, so that refusals can be read by the page too.
pub(super) async fn answer(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    // Those are answered by servers inside, which decide about pages themselves.
    let hosts = gate.hosts().filter(|hosts| !matches!(hosts.port_host(&parts), Ok(Some(_))));
    let request = Request::from_parts(parts, body);
    let origin = hosts.and_then(|hosts| hosts.allowed_origin(request.headers()));
    let Some(origin) = origin.and_then(|text| HeaderValue::from_str(text).ok()) else {
        return next.run(request).await;
    };
    if is_preflight(&request) {
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(REQUEST_HEADERS));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        allow(headers, origin);
        return response;
    }
    let mut response = next.run(request).await;
    response.headers_mut().insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(RESPONSE_HEADERS));
    allow(response.headers_mut(), origin);
    response
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(VARY, HeaderValue::from(ORIGIN));
}
