//! Every route of this dialect: for its document, and for the check of each query.

use axum::http::Method;

use self::Parameters::{Any, Only};

const LIFECYCLE: &str = "lifecycle";
const COMMANDS: &str = "execd";
const NETWORK: &str = "egress";

/// The parameters that a query may have.
#[derive(Debug, Clone, Copy)]
pub(super) enum Parameters {
    Only(&'static [&'static str]),
    /// They are for the server inside, or nothing is done with the request.
    Any,
}

const NONE: Parameters = Only(&[]);
/// Query parameters that narrow the text. `since` has no effect: the text is short anyway.
const DIAGNOSTICS: &[&str] = &["scope", "tail", "since", "limit", "event_limit"];
const ALL: &[&str] = &["get", "post", "put", "patch", "delete"];

type Route = (&'static str, &'static [&'static str], &'static str, Parameters);

/// The tag, methods, path below the prefix and query of each.
pub(super) const ROUTES: &[Route] = &[
    (LIFECYCLE, &["get"], "/sandboxes", Only(&["state", "metadata", "page", "pageSize"])),
    (LIFECYCLE, &["post"], "/sandboxes", NONE),
    (LIFECYCLE, &["get", "delete"], "/sandboxes/{sandbox}", NONE),
    (LIFECYCLE, &["patch"], "/sandboxes/{sandbox}/metadata", NONE),
    (LIFECYCLE, &["post"], "/sandboxes/{sandbox}/pause", NONE),
    (LIFECYCLE, &["post"], "/sandboxes/{sandbox}/resume", NONE),
    (LIFECYCLE, &["post"], "/sandboxes/{sandbox}/renew-expiration", NONE),
    (LIFECYCLE, &["post"], "/sandboxes/{sandbox}/snapshots", NONE),
    (LIFECYCLE, &["get"], "/sandboxes/{sandbox}/endpoints/{port}", Only(&["use_server_proxy", "expires"])),
    (LIFECYCLE, &["get"], "/sandboxes/{sandbox}/diagnostics/{kind}", Only(DIAGNOSTICS)),
    (LIFECYCLE, &["get", "put", "patch", "delete"], "/sandboxes/{sandbox}/networkpolicy", NONE),
    (LIFECYCLE, ALL, "/sandboxes/{sandbox}/proxy/{port}", Any),
    (LIFECYCLE, ALL, "/sandboxes/{sandbox}/proxy/{port}/{path}", Any),
    (LIFECYCLE, &["get"], "/snapshots", Only(&["sandboxId", "name", "state", "page", "pageSize"])),
    (LIFECYCLE, &["get", "delete"], "/snapshots/{snapshot}", NONE),
    (LIFECYCLE, &["get", "post"], "/pools", Any),
    (LIFECYCLE, &["get", "put", "delete"], "/pools/{name}", Any),
    (LIFECYCLE, &["get", "post"], "/templates", Any),
    (LIFECYCLE, &["get", "delete"], "/templates/{template}", Any),
    (LIFECYCLE, &["post"], "/metrics/events", NONE),
    (LIFECYCLE, &["get"], "/health", NONE),
    (LIFECYCLE, &["get"], "/version", NONE),
    (LIFECYCLE, &["get"], "/openapi.json", NONE),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/ping", NONE),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/command", NONE),
    (COMMANDS, &["delete"], "/sandboxes/{sandbox}/proxy/44772/command", Only(&["id"])),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/command/status/{exec}", NONE),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/command/{exec}/logs", Only(&["cursor"])),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/session", NONE),
    (COMMANDS, &["delete"], "/sandboxes/{sandbox}/proxy/44772/session/{session}", NONE),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/session/{session}/run", NONE),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/pty", NONE),
    (COMMANDS, &["get", "delete"], "/sandboxes/{sandbox}/proxy/44772/pty/{exec}", NONE),
    (
        COMMANDS,
        &["get"],
        "/sandboxes/{sandbox}/proxy/44772/pty/{exec}/ws",
        Only(&["pty", "since", "takeover"]),
    ),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/code", NONE),
    (COMMANDS, &["delete"], "/sandboxes/{sandbox}/proxy/44772/code", Only(&["id"])),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/code/context", NONE),
    (COMMANDS, &["get", "delete"], "/sandboxes/{sandbox}/proxy/44772/code/contexts", Only(&["language"])),
    (COMMANDS, &["get", "delete"], "/sandboxes/{sandbox}/proxy/44772/code/contexts/{context}", NONE),
    (COMMANDS, &["delete"], "/sandboxes/{sandbox}/proxy/44772/files", Only(&["path"])),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/files/info", Only(&["path"])),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/files/search", Only(&["path", "pattern"])),
    (
        COMMANDS,
        &["get"],
        "/sandboxes/{sandbox}/proxy/44772/files/download",
        Only(&["path", "offset", "limit"]),
    ),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/files/upload", NONE),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/files/mv", NONE),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/files/permissions", NONE),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/files/replace", Only(&["verbose"])),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/directories", NONE),
    (COMMANDS, &["delete"], "/sandboxes/{sandbox}/proxy/44772/directories", Only(&["path"])),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/directories/list", Only(&["path", "depth"])),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/metrics", NONE),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/metrics/watch", NONE),
    (NETWORK, ALL, "/sandboxes/{sandbox}/proxy/18080/policy", NONE),
    (NETWORK, &["get"], "/sandboxes/{sandbox}/proxy/18080/healthz", NONE),
];

/// The query of a route, by the path under which the router has it. One that is not listed checks its own.
pub(super) fn parameters(method: &Method, path: &str) -> Parameters {
    let method = if *method == Method::HEAD { Method::GET } else { method.clone() };
    let is_it = |(_, methods, listed, _): &&Route| {
        *listed == path && methods.iter().any(|own| method.as_str().eq_ignore_ascii_case(own))
    };
    ROUTES.iter().find(is_it).map_or(Any, |(.., query)| *query)
}
