//! `warren mcp --transport streamable-http`: MCP on TCP, passed on to the daemon with the rights of one key.

use std::{net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use frontends::http::{self, Activity, Body, Hosts, Pass, TcpPlaces};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Request, Response, Uri,
    header::{AUTHORIZATION, CONNECTION, HeaderName, HeaderValue, PROXY_AUTHORIZATION},
};
use sandbox::{Error, ErrorKind, Result};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::opensandbox::Secret;
use crate::{
    client::{Client, ClientOptions},
    error::CommandResult,
    output,
};

/// The path at which clients find it.
const PATH: &str = "/mcp";
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const GRACE: Duration = Duration::from_secs(5);

/// Serves until the process is ended. `target` is the daemon's path.
pub(crate) async fn serve(
    options: ClientOptions,
    address: SocketAddr,
    key: &Secret,
    target: &str,
) -> CommandResult {
    // Starts the daemon if there is none, before anyone is promised an answer.
    let client = Client::connect(options).await?;
    let bearer = HeaderValue::try_from(key.bearer()).map_err(|_malformed| {
        Error::new(ErrorKind::Unauthenticated, "the key has characters that no key has")
    })?;
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("could not listen on {address}"))
            .with_source(error)
            .with_hint("Choose another port with --port.")
    })?;
    output::note(&format!("MCP is at http://{}{PATH}", listener.local_addr()?));
    let target: Uri = target.parse().map_err(|error: hyper::http::uri::InvalidUri| {
        Error::new(ErrorKind::Internal, "not a path").with_source(error)
    })?;
    let pass: Pass =
        Arc::new(move |request| pass(client.clone(), prepared(request, &target, &bearer)).boxed());
    let app = http::passing(PATH, Hosts::default(), pass);
    http::serve_tcp(
        listener,
        app,
        None,
        TcpPlaces::default(),
        Activity::default(),
        CancellationToken::new(),
        GRACE,
    )
    .await;
    Ok(ExitCode::SUCCESS)
}

/// The request as the daemon gets it: with our key, whatever the client sent, and without the query, which could hold
/// another.
fn prepared(mut request: Request<Body>, target: &Uri, bearer: &HeaderValue) -> Request<Body> {
    *request.uri_mut() = target.clone();
    let headers = request.headers_mut();
    for name in [PROXY_AUTHORIZATION, API_KEY] {
        headers.remove(name);
    }
    headers.insert(AUTHORIZATION, bearer.clone());
    without_connection(headers);
    request
}

async fn pass(client: Client, request: Request<Body>) -> Result<Response<Body>> {
    let request = request.map(|body| body.map_err(std::io::Error::other).boxed_unsync());
    let mut response = client.send(request).await?;
    without_connection(response.headers_mut());
    Ok(response.map(Body::new))
}

/// Removes the headers that are about one connection, and so not about the other.
fn without_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in ["connection", "keep-alive", "upgrade", "te", "trailer", "transfer-encoding"] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_brings_rights_of_their_own() {
        let request = Request::post("/mcp?api_key=other")
            .header("authorization", "Bearer other")
            .header("x-api-key", "other")
            .header("proxy-authorization", "other")
            .header("connection", "keep-alive, x-drop")
            .header("x-drop", "1")
            .header("mcp-session-id", "s")
            .body(Body::empty())
            .unwrap();
        let target = Uri::from_static("/mcp/opensandbox");
        let sent = prepared(request, &target, &HeaderValue::from_static("Bearer own"));
        assert_eq!(sent.uri(), &target);
        let names: Vec<_> = sent.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(
            (&sent.headers()["authorization"], &sent.headers()["mcp-session-id"]),
            (&HeaderValue::from_static("Bearer own"), &HeaderValue::from_static("s"))
        );
    }
}
