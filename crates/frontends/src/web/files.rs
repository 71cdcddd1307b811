//! The files of the page, compressed when the binary was built and sent as they are.

use std::io::Read as _;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{
            ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
            IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    response::{IntoResponse as _, Response},
};
use flate2::read::GzDecoder;
use sandbox::Error;

use crate::http::ApiError;

/// Nothing from other hosts, nothing inline, nothing that frames us. Frames are for what was made in sandboxes: the
/// page gives them no origin and no scripts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
                      connect-src 'self'; font-src 'self'; frame-src 'self' blob:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
/// Below this, names contain a hash of what is in the file: it never changes.
const HASHED: &str = "assets/";
const FOR_EVER: &str = "public, max-age=31536000, immutable";
const ASK_EACH_TIME: &str = "no-cache";

/// The page: its files by path without the first slash, each compressed with gzip. Clones are the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct Page(&'static [(&'static str, &'static [u8])]);

#[derive(Debug, Clone, Copy)]
pub(super) struct File {
    path: &'static str,
    gzip: &'static [u8],
}

impl Page {
    pub const fn new(files: &'static [(&'static str, &'static [u8])]) -> Self {
        Self(files)
    }

    pub(super) fn find(&self, path: &str) -> Option<File> {
        self.0.iter().find(|(known, _)| *known == path).map(|(path, gzip)| File { path, gzip })
    }
}

pub(super) async fn serve(State(page): State<Page>, request: Request) -> Result<Response, ApiError> {
    let path = request.uri().path().trim_start_matches('/');
    match page.find(path) {
        Some(file) => Ok(file.answer(request.headers())),
        None => Err(Error::not_found("the dashboard has no such file").into()),
    }
}

impl File {
    pub(super) fn answer(self, headers: &HeaderMap) -> Response {
        let etag = self.etag();
        let is_known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let is_known = is_known.is_some_and(|known| known.split(',').any(|one| one.trim() == etag));
        let (status, encoding, body) = match (is_known, takes_gzip(headers)) {
            (true, _) => (StatusCode::NOT_MODIFIED, None, Body::empty()),
            (false, true) => (StatusCode::OK, Some("gzip"), Body::from(self.gzip)),
            (false, false) => (StatusCode::OK, None, Body::from(self.plain())),
        };
        let mut response = (status, body).into_response();
        let mut set = |name: HeaderName, value: &str| {
            response.headers_mut().extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        };
        set(CONTENT_TYPE, media_type(self.path));
        set(ETAG, &etag);
        set(CACHE_CONTROL, if self.path.starts_with(HASHED) { FOR_EVER } else { ASK_EACH_TIME });
        set(VARY, ACCEPT_ENCODING.as_str());
        encoding.into_iter().for_each(|encoding| set(CONTENT_ENCODING, encoding));
        set(CONTENT_SECURITY_POLICY, POLICY);
        set(X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(X_FRAME_OPTIONS, "DENY");
        set(REFERRER_POLICY, "no-referrer");
        set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
        set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
        set(HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()");
        response
    }

    /// The checksum and the length with which gzip ends.
    fn etag(self) -> String {
        let end = self.gzip.len().saturating_sub(8);
        let sums: String =
            self.gzip.get(end..).unwrap_or_default().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("\"{sums}\"")
    }

    fn plain(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // It was compressed by our own build.
        if let Err(error) = GzDecoder::new(self.gzip).read_to_end(&mut bytes) {
            tracing::error!(path = self.path, %error, "a file of the dashboard is damaged");
        }
        bytes
    }
}

/// Whether the client named gzip, and did not rule it out.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|text| text.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let is_ruled_out = matches!(weight.trim().trim_start_matches("q=").parse(), Ok(0.0_f32));
        name.trim().eq_ignore_ascii_case("gzip") && !is_ruled_out
    })
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" | "map" => "application/json",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_must_be_named_and_not_ruled_out() {
        for (text, takes) in [
            ("gzip, deflate, br", true),
            ("br;q=1, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("br", false),
            ("identity", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
            assert_eq!(takes_gzip(&headers), takes, "{text}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
