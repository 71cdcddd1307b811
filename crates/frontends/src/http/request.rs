//! The layer of every request: an id, one line in the log, and one shape for failures.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{
        HeaderMap, HeaderValue,
        header::{ALLOW, SERVER},
    },
    middleware::Next,
    response::Response,
};
use sandbox::ErrorKind;
use tracing::Instrument as _;

use super::{
    error::{self, Failure, RetryAfter},
    foreign::ErrorForm,
};
use crate::{
    links,
    trace::{self, RequestSpan},
};

/// Accepted from a caller and sent with every answer.
pub const REQUEST_ID_HEADER: &str = "x-request-id";
/// Longest request id that is taken from a caller.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// Names the daemon's build on every answer, so that a client notices a daemon of another version without asking.
pub const SERVER_NAME: &str = concat!("warren/", env!("CARGO_PKG_VERSION"));

/// The id by which one request is found in the log.
#[derive(Debug, Clone)]
pub(crate) struct HttpRequestId(pub(crate) String);

impl HttpRequestId {
    fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(REQUEST_ID_HEADER).and_then(|value| value.to_str().ok());
        match given {
            Some(text) if is_plain(text) => Self(text.to_owned()),
            _ => Self::fresh(),
        }
    }

    /// Unique in the log, not secret: a start that differs for each daemon, and a count.
    fn fresh() -> Self {
        static START: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("req-{:08x}-{count}", *START as u32))
    }
}

fn is_plain(text: &str) -> bool {
    (1..=MAX_REQUEST_ID_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Outermost: gives the request its id, and turns a failure into its body, logged once. `dialect`: the one that the
/// listener's plain paths belong to.
pub(super) async fn frame(State(dialect): State<&'static str>, mut request: Request, next: Next) -> Response {
    let id = HttpRequestId::of(request.headers());
    let (method, path) = (request.method().clone(), links::shown_path(request.uri().path()).to_owned());
    let (began, form) = (Instant::now(), ErrorForm::of(&method, &path, request.headers(), dialect));
    request.extensions_mut().insert(id.clone());
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let span = trace::of_request(&id.0, &method, route, request.headers());
    request.extensions_mut().insert(RequestSpan(span.clone()));

    let mut response = next.run(request).instrument(span.clone()).await;

    span.record("http.response.status_code", response.status().as_u16());

    let mut headers = std::mem::take(response.headers_mut());
    if let Some(Failure(failure)) = response.extensions_mut().remove::<Failure>() {
        span.in_scope(|| log_failure(&failure, &id, method.as_str(), &path));
        span.record("error", failure.kind().as_str());
        let retry_after = response.extensions_mut().remove::<RetryAfter>();
        let allow = headers.remove(ALLOW);
        response = error::render(response.status(), &failure, form, retry_after, &id.0);
        headers.clear();
        headers.extend(allow.map(|methods| (ALLOW, methods)));
    }
    tracing::debug!(
        request = id.0,
        %method,
        path,
        status = response.status().as_u16(),
        ms = began.elapsed().as_millis(),
        "answered"
    );
    response.headers_mut().extend(headers);
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        response.headers_mut().insert(REQUEST_ID_HEADER, value);
    }
    response.headers_mut().insert(SERVER, HeaderValue::from_static(SERVER_NAME));
    response
}

fn log_failure(failure: &sandbox::Error, id: &HttpRequestId, method: &str, path: &str) {
    let (kind, text) = (failure.kind(), error::chain(failure));
    if matches!(kind, ErrorKind::Internal | ErrorKind::Unavailable) {
        tracing::error!(request = id.0, method, path, %kind, "{text}");
    } else {
        tracing::debug!(request = id.0, method, path, %kind, "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_id_is_kept_when_it_is_plain() {
        let given = |text: &'static [u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID_HEADER, HeaderValue::from_bytes(text).unwrap());
            HttpRequestId::of(&headers).0
        };
        assert_eq!(given(b"abc-1"), "abc-1");
        assert!(given(b"a b").starts_with("req-"));
        assert!(given(b"\xff").starts_with("req-"));
        assert!(given(&[b'x'; 129]).starts_with("req-"));
        assert_ne!(HttpRequestId::fresh().0, HttpRequestId::fresh().0);
    }
}
