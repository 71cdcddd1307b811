//! Requests of OpenSandbox's clients, told from our own. Its routes have the same paths as ours with other bodies, so
//! they live below a prefix, and a request of one of its clients gets that prefix before it is routed.

use axum::{
    extract::Request,
    http::{
        HeaderMap, Uri,
        header::USER_AGENT,
        uri::{InvalidUri, PathAndQuery},
    },
};

/// The prefix of OpenSandbox's routes.
pub(crate) const OPENSANDBOX: &str = "/opensandbox/v1";
/// The same without the version, which its server does without too.
const BARE: &str = "/opensandbox";
const VERSION: &str = "/v1";
/// Its SDKs and its command line name themselves so.
const AGENT: &str = "OpenSandbox-";
/// Headers that only its clients send begin so.
const HEADER: &str = "open-sandbox-";
/// The first part of each of its paths.
const OWN: [&str; 9] =
    ["sandboxes", "snapshots", "pools", "templates", "metrics", "health", "version", "openapi.json", "docs"];
/// The first part of paths below `/v1` that are ours on its listener too; any other there is taken for one of its own.
const OURS: [&str; 16] = [
    "calls",
    "capabilities",
    "doctor",
    "events",
    "fleet",
    "images",
    "keys",
    "links",
    "live",
    "network",
    "runs",
    "secrets",
    "session",
    "shares",
    "ssh-keys",
    "volumes",
];
/// Our own path, although OpenSandbox has one of the same name.
const OUR_HEALTH: &str = "/v1/health";

/// Gives a request of an OpenSandbox client the prefix of its routes. `is_plain`: every request to this listener is
/// taken for one.
pub(super) fn route(mut request: Request, is_plain: bool) -> Request {
    let is_theirs = is_plain || is_of_their_client(request.headers());
    let Some(path) = routed(request.uri().path(), is_theirs) else { return request };
    let target = match request.uri().query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let target: Result<PathAndQuery, InvalidUri> = target.parse();
    let mut parts = request.uri().clone().into_parts();
    // It was part of an address before, so it is one now.
    if let Ok(target) = target {
        parts.path_and_query = Some(target);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

fn is_of_their_client(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    agent.is_some_and(|agent| agent.starts_with(AGENT))
        || headers.keys().any(|name| name.as_str().starts_with(HEADER))
}

/// The path that the router gets, where that is another one.
fn routed(path: &str, is_theirs: bool) -> Option<String> {
    let own = match path.strip_prefix(BARE) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            // An address such as `host:port/opensandbox` was given as the server's.
            return match rest.strip_prefix(VERSION) {
                Some(versioned) if versioned.is_empty() || versioned.starts_with('/') => None,
                _ => Some(format!("{OPENSANDBOX}{rest}")),
            };
        }
        _ => path,
    };
    if !is_theirs || own == OUR_HEALTH {
        return None;
    }
    let versioned = own.strip_prefix(VERSION).filter(|rest| rest.starts_with('/'));
    let bare = versioned.unwrap_or(own);
    let first = bare.strip_prefix('/')?.split('/').next()?;
    let is_own = OWN.contains(&first) || versioned.is_some() && !first.is_empty() && !OURS.contains(&first);
    is_own.then(|| format!("{OPENSANDBOX}{bare}"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn their_paths_are_found_where_they_are_meant() {
        for (path, plain, by_client) in [
            ("/v1/sandboxes", Some("/opensandbox/v1/sandboxes"), Some("/opensandbox/v1/sandboxes")),
            (
                "/sandboxes/a/pause",
                Some("/opensandbox/v1/sandboxes/a/pause"),
                Some("/opensandbox/v1/sandboxes/a/pause"),
            ),
            (
                "/v1/metrics/events",
                Some("/opensandbox/v1/metrics/events"),
                Some("/opensandbox/v1/metrics/events"),
            ),
            ("/health", Some("/opensandbox/v1/health"), Some("/opensandbox/v1/health")),
            ("/opensandbox/sandboxes", Some("/opensandbox/v1/sandboxes"), Some("/opensandbox/v1/sandboxes")),
            ("/opensandbox", Some("/opensandbox/v1"), Some("/opensandbox/v1")),
            ("/opensandbox/v1/sandboxes", None, None),
            ("/v1/health", None, None),
            ("/v1/links/abc/x", None, None),
            ("/v1/events", None, None),
            // Its router says that there is no such route.
            ("/v1/nope", Some("/opensandbox/v1/nope"), Some("/opensandbox/v1/nope")),
            ("/v1/sandboxesx", Some("/opensandbox/v1/sandboxesx"), Some("/opensandbox/v1/sandboxesx")),
            ("/v1", None, None),
            ("/v1/", None, None),
            ("/nope", None, None),
            ("/mcp", None, None),
            ("/mcp/opensandbox", None, None),
            ("/sse", None, None),
            ("/", None, None),
            ("/opensandboxes", None, None),
        ] {
            assert_eq!(routed(path, true).as_deref(), plain, "{path}");
            assert_eq!(routed(path, true).as_deref(), by_client, "{path}");
            let is_below = path.starts_with("/opensandbox/") || path == "/opensandbox";
            assert_eq!(routed(path, false).is_some(), is_below && plain.is_some(), "{path}");
        }
    }

    /// A new route of ours must be in one of the lists.
    #[test]
    fn our_own_routes_are_known() {
        let document = include_str!("../../../../docs/reference/openapi.json");
        let document: serde_json::Value = serde_json::from_str(document).unwrap();
        for path in document["paths"].as_object().unwrap().keys() {
            let first = path.strip_prefix("/v1/").and_then(|path| path.split('/').next()).unwrap_or_default();
            assert!(OWN.contains(&first) || OURS.contains(&first), "{path}");
        }
    }

    #[test]
    fn their_clients_are_known_by_what_they_send() {
        let sent = |name: &str, value: &str, is_plain| {
            let request = Request::builder().uri("/v1/sandboxes?page=1").header(name, value);
            route(request.body(Body::empty()).unwrap(), is_plain).uri().to_string()
        };
        let (theirs, ours) = ("/opensandbox/v1/sandboxes?page=1", "/v1/sandboxes?page=1");
        assert_eq!(sent("user-agent", "OpenSandbox-Python-SDK/1.1.1", false), theirs);
        assert_eq!(sent("open-sandbox-client-ip", "192.0.2.2", false), theirs);
        assert_eq!(sent("OPEN-SANDBOX-API-KEY", "k", false), theirs);
        assert_eq!(sent("user-agent", "curl OpenSandbox-", false), ours);
        assert_eq!(sent("user-agent", "curl", true), theirs);
    }
}
