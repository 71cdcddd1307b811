//! `GET /`: the dashboard for a browser, and for programs what this is.

use axum::{
    Json,
    extract::{Request, State},
    http::{
        HeaderValue,
        header::{ACCEPT, VARY},
    },
    response::{IntoResponse as _, Response},
};
use serde::Serialize;

use super::Page;

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

pub(super) async fn welcome(State(page): State<Page>, request: Request) -> Response {
    let mut response = match page.find("index.html").filter(|_| wants_page(&request)) {
        Some(file) => file.answer(request.headers()),
        None => Json(introduction()).into_response(),
    };
    response.headers_mut().append(VARY, HeaderValue::from(ACCEPT));
    response
}

/// Browsers name HTML; programs that take everything do not.
fn wants_page(request: &Request) -> bool {
    let accepts = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.flat_map(|text| text.split(',')).any(|range| {
        range.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/html"))
    })
}

fn introduction() -> Welcome {
    Welcome {
        name: "warren",
        version: env!("CARGO_PKG_VERSION"),
        links: Links { mcp: "/mcp", rest: "/v1", openapi: "/v1/openapi.json", health: "/v1/health" },
    }
}
