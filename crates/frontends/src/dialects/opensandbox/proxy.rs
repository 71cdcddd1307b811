//! Ports inside, below `/sandboxes/{id}/proxy/{port}`. Those of `execd` and `egress` elsewhere never lead inside.

use axum::{
    Router,
    extract::{Request, State},
    http::{Uri, uri::PathAndQuery},
    response::{IntoResponse, Response},
    routing::any,
};
use sandbox::{Error, Thing};

use super::{
    ask::{Ask, Front},
    endpoint::OWN_PORTS,
};
use crate::http::{ApiError, OPENSANDBOX};

pub(super) fn routes() -> Router<Front> {
    Router::new()
        .route("/sandboxes/{sandbox}/proxy/{port}", any(forward))
        .route("/sandboxes/{sandbox}/proxy/{port}/", any(forward))
        .route("/sandboxes/{sandbox}/proxy/{port}/{*path}", any(forward))
}

async fn forward(State(front): State<Front>, ask: Ask, mut request: Request) -> Result<Response, ApiError> {
    let port = ask.caller.port()?;
    if OWN_PORTS.contains(&port) {
        let message = format!("no route {} {}", request.method(), request.uri().path());
        return Err(Error::not_found(message).about(Thing::Route, "").into());
    }
    ask.awake().await?;
    let prefix = format!(
        "{OPENSANDBOX}/sandboxes/{}/proxy/{}",
        ask.caller.parameter("sandbox"),
        ask.caller.parameter("port")
    );
    // Cut from the address as it came: the router has decoded the parameters.
    *request.uri_mut() = below(request.uri())?;
    let forwarded = front.proxy.forward(ask.who(), &ask.which, port, &prefix, request).await;
    Ok(forwarded.unwrap_or_else(IntoResponse::into_response))
}

/// The part of an address behind `/sandboxes/{id}/proxy/{port}`, whether the router has cut off the prefix or not.
fn below(uri: &Uri) -> Result<Uri, Error> {
    let path = uri.path().strip_prefix(OPENSANDBOX).unwrap_or(uri.path());
    let rest = path.splitn(6, '/').nth(5).unwrap_or_default();
    let target = match uri.query() {
        Some(query) => format!("/{rest}?{query}"),
        None => format!("/{rest}"),
    };
    let target: PathAndQuery = target.parse().map_err(|_malformed| Error::invalid("invalid path"))?;
    Ok(Uri::from(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_sees_what_is_behind_its_port() {
        let see = |text: &str| below(&text.parse().unwrap()).unwrap().to_string();
        let at = "/opensandbox/v1/sandboxes/sbx-1/proxy/8000";
        assert_eq!(see(at), "/");
        assert_eq!(see(&format!("{at}/")), "/");
        assert_eq!(see(&format!("{at}/a/../b%2Fc?x=1&y")), "/a/../b%2Fc?x=1&y");
    }
}
