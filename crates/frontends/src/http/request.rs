//! What every request passes through: an id, authentication, one line in the log, and one shape for failures.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, header::SERVER},
    middleware::Next,
    response::Response,
};
use engine::{Engine, Principal};
use futures_util::StreamExt;
use hyper::body::Body as _;
use sandbox::ErrorKind;

use super::{
    Gate,
    audit::Asker,
    error::{self, ApiError, Failure},
    key_auth::without_key,
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

/// Outermost: gives the request its id, and turns a failure into its body, logged once.
pub(super) async fn frame(mut request: Request, next: Next) -> Response {
    let id = HttpRequestId::of(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let began = Instant::now();
    request.extensions_mut().insert(id.clone());

    let mut response = next.run(request).await;

    let mut headers = std::mem::take(response.headers_mut());
    if let Some(Failure(failure)) = response.extensions_mut().remove::<Failure>() {
        log_failure(&failure, &id, method.as_str(), &path);
        response = error::render(&failure, &id.0);
        headers.clear();
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

/// Finds out who asks, or answers for them.
pub(super) async fn authenticate(
    State(gate): State<Gate>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let principal = gate.auth.authenticate(&parts).await?;
    if let Some(asker) = parts.extensions.get::<Asker>() {
        asker.tell(&principal);
    }
    if let Some(uri) = without_key(&parts.uri) {
        parts.uri = uri;
    }
    parts.extensions.insert(principal.clone());
    let response = next.run(Request::from_parts(parts, body)).await;
    Ok(end_with_key(response, gate.engine, principal))
}

/// A stream ends with the key that opened it.
fn end_with_key(response: Response, engine: Engine, who: Principal) -> Response {
    let is_whole = response.body().size_hint().exact().is_some();
    if is_whole || who.key.is_none() {
        return response;
    }
    let ended = async move { engine.principal_ended(&who).await };
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(ended))))
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
