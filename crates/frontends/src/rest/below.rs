//! Servers inside, below a path: `/v1/sandboxes/{sandbox}/ports/{port}/…`, with any method.
//!
//! Not part of the OpenAPI document: what is asked and answered here is the server's own.

use axum::{
    Router,
    extract::{Path, Request, State},
    http::Uri,
    response::Response,
    routing::any,
};
use engine::SandboxRef;
use sandbox::Error;

use super::{Rest, extract::Caller};
use crate::http::{Refusal, handler::erased};

/// `/v1/sandboxes/lab/ports/8000` has this many slashes before those of the server's own path.
const SLASHES_BEFORE: usize = 5;

pub(super) fn routes() -> Router<Rest> {
    let forward = erased(forward);
    Router::new()
        .route("/v1/sandboxes/{sandbox}/ports/{port}/", any(forward))
        .route("/v1/sandboxes/{sandbox}/ports/{port}/{*path}", any(forward))
}

async fn forward(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Path(segments): Path<Vec<(String, String)>>,
    mut request: Request,
) -> Result<Response, Refusal> {
    let segment =
        |wanted: &str| segments.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let sandbox: SandboxRef = segment("sandbox").unwrap_or_default().parse()?;
    let port = port_of(segment("port").unwrap_or_default())?;
    let (prefix, target) = split(request.uri());
    *request.uri_mut() = target;
    rest.proxy.forward(&who, &sandbox, port, &prefix, request).await
}

pub(super) fn port_of(text: &str) -> Result<u16, Error> {
    // JSON has one kind of number, so an integer may be written like this.
    let text = text.strip_suffix(".0").unwrap_or(text);
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| *port != 0 && is_number);
    port.ok_or_else(|| {
        let shown: String = text.chars().take(16).collect();
        Error::invalid(format!("{shown:?} is not a port")).with_hint("Ports go from 1 to 65535.")
    })
}

/// The path below which the server appears, and what the server is asked for; both as they were sent.
fn split(uri: &Uri) -> (String, Uri) {
    let path = uri.path();
    let end = path.match_indices('/').nth(SLASHES_BEFORE).map_or(path.len(), |(index, _)| index);
    let (prefix, own) = path.split_at(end);
    let target = match uri.query() {
        Some(query) => format!("{own}?{query}"),
        None => own.to_owned(),
    };
    (prefix.to_owned(), target.parse().unwrap_or_else(|_malformed| Uri::from_static("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_part_of_a_path_is_as_it_was_sent() {
        let parts = |text: &str| {
            let (prefix, target) = split(&text.parse().unwrap());
            (prefix, target.to_string())
        };
        let prefix = "/v1/sandboxes/lab/ports/8000".to_owned();
        for own in ["/", "/a//b%2F?x=/1&y", "/?", "/..%2f"] {
            assert_eq!(parts(&format!("{prefix}{own}")), (prefix.clone(), own.to_owned()));
        }
    }

    #[test]
    fn ports_are_numbers() {
        assert_eq!(port_of("65535").unwrap(), 65535);
        for text in ["", "0", "+1", "65536", "x", "-1"] {
            assert!(port_of(text).is_err(), "{text}");
        }
    }
}
