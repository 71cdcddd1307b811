//! Failures to reach a server inside: a small page for browsers, our JSON form for programs.

use axum::{
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE},
    },
    response::{Html, IntoResponse, Response},
};
use sandbox::Error;

use crate::http::{ApiError, error_hint};

/// Nothing on the page runs or loads anything.
const POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// Whether the caller shows pages to a person.
pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.flat_map(|text| text.split(',')).any(|range| {
        range.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/html"))
    })
}

/// The failure in the caller's form.
pub(super) fn failure(status: StatusCode, error: Error, is_page: bool) -> Response {
    if is_page { failure_page(status, error) } else { (status, ApiError(error)).into_response() }
}

/// The failure as a page.
pub(crate) fn failure_page(status: StatusCode, error: Error) -> Response {
    tracing::debug!("shown as a page: {error}");
    let hint = error_hint(&error).unwrap_or_default();
    let page = format!(
        "<!doctype html><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{title}</title><style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;\
         padding:0 1em}}p{{color:#555}}</style><h1>{title}</h1><p>{hint}</p>\n",
        title = escaped(&error.to_string()),
        hint = escaped(&hint),
    );
    let mut response = (status, Html(page)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_for_those_who_show_them() {
        let wants = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            wants_page(&headers)
        };
        assert!(wants("text/html,application/xhtml+xml;q=0.9") && wants("application/json, Text/HTML;q=0.1"));
        assert!(!wants("*/*") && !wants("application/json") && !wants_page(&HeaderMap::new()));
    }

    #[test]
    fn words_on_a_page_are_not_markup() {
        assert_eq!(escaped("<b a=\"1\">&"), "&lt;b a=&quot;1&quot;&gt;&amp;");
    }
}
