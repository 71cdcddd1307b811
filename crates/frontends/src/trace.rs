//! The spans that requests begin: the top of a trace, or a part of a caller's.
//!
//! All spans have the target `trace`. Nothing is enabled unless somebody collects them.

use axum::http::{HeaderMap, Method};
use tracing::{Span, field::Empty};

use crate::http::known_method;

/// The header, and the key in the metadata of MCP, by which a caller hands on its trace.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// A request's extension: its span, for what is done for it in other tasks.
#[derive(Debug, Clone)]
pub(crate) struct RequestSpan(pub(crate) Span);

/// The span of one HTTP request.
pub(crate) fn of_request(id: &str, method: &Method, route: Option<&str>, headers: &HeaderMap) -> Span {
    let (shown, method) = shown_method(method);
    tracing::info_span!(
        target: "trace",
        parent: None,
        "request",
        otel.name = route.map(|route| format!("{shown} {route}")),
        otel.kind = "server",
        traceparent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()),
        request = id,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        error = Empty,
    )
}

/// The method in the name of a span, and as its attribute. As the conventions of OpenTelemetry have it, neither is a
/// text that the caller made up: a backend counts spans by their names.
fn shown_method(method: &Method) -> (&'static str, &'static str) {
    known_method(method).map_or(("HTTP", "_OTHER"), |known| (known, known))
}

/// The span of one call of a tool. `caller`: the context that the call's metadata names.
pub(crate) fn of_tool(tool: &str, outer: Option<&RequestSpan>, caller: Option<&str>) -> Span {
    let outer = outer.and_then(|RequestSpan(span)| span.id());
    tracing::info_span!(
        target: "trace",
        parent: outer,
        "tool",
        otel.name = format!("tool {tool}"),
        otel.kind = "server",
        traceparent = caller,
        mcp.tool.name = tool,
        error = Empty,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_a_caller_made_up_is_in_no_span() {
        assert_eq!(shown_method(&Method::PATCH), ("PATCH", "PATCH"));
        assert_eq!(shown_method(&Method::from_bytes(b"EVILMETHOD1").unwrap()), ("HTTP", "_OTHER"));
    }
}
