//! `/health`, `/version`, and a document that lists the routes of this dialect.

use axum::{Json, Router, routing::get};
use serde_json::{Map, Value, json};

use super::ask::Front;

const LIFECYCLE: &str = "lifecycle";
const COMMANDS: &str = "execd";
const NETWORK: &str = "egress";

/// Every route: its tag, methods and path below the prefix.
const ROUTES: &[(&str, &[&str], &str)] = &[
    (LIFECYCLE, &["get", "post"], "/sandboxes"),
    (LIFECYCLE, &["get", "delete"], "/sandboxes/{sandbox}"),
    (LIFECYCLE, &["patch"], "/sandboxes/{sandbox}/metadata"),
    (LIFECYCLE, &["post"], "/sandboxes/{sandbox}/pause"),
    (LIFECYCLE, &["post"], "/sandboxes/{sandbox}/resume"),
    (LIFECYCLE, &["post"], "/sandboxes/{sandbox}/renew-expiration"),
    (LIFECYCLE, &["post"], "/sandboxes/{sandbox}/snapshots"),
    (LIFECYCLE, &["get"], "/sandboxes/{sandbox}/endpoints/{port}"),
    (LIFECYCLE, &["get"], "/sandboxes/{sandbox}/diagnostics/{kind}"),
    (LIFECYCLE, &["get", "put", "patch", "delete"], "/sandboxes/{sandbox}/networkpolicy"),
    (LIFECYCLE, &["get", "post", "put", "patch", "delete"], "/sandboxes/{sandbox}/proxy/{port}"),
    (LIFECYCLE, &["get", "post", "put", "patch", "delete"], "/sandboxes/{sandbox}/proxy/{port}/{path}"),
    (LIFECYCLE, &["get"], "/snapshots"),
    (LIFECYCLE, &["get", "delete"], "/snapshots/{snapshot}"),
    (LIFECYCLE, &["get", "post"], "/pools"),
    (LIFECYCLE, &["get", "put", "delete"], "/pools/{name}"),
    (LIFECYCLE, &["get", "post"], "/templates"),
    (LIFECYCLE, &["get", "delete"], "/templates/{template}"),
    (LIFECYCLE, &["post"], "/metrics/events"),
    (LIFECYCLE, &["get"], "/health"),
    (LIFECYCLE, &["get"], "/version"),
    (LIFECYCLE, &["get"], "/openapi.json"),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/ping"),
    (COMMANDS, &["post", "delete"], "/sandboxes/{sandbox}/proxy/44772/command"),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/command/status/{exec}"),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/command/{exec}/logs"),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/session"),
    (COMMANDS, &["delete"], "/sandboxes/{sandbox}/proxy/44772/session/{session}"),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/session/{session}/run"),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/pty"),
    (COMMANDS, &["get", "delete"], "/sandboxes/{sandbox}/proxy/44772/pty/{exec}"),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/pty/{exec}/ws"),
    (COMMANDS, &["post", "delete"], "/sandboxes/{sandbox}/proxy/44772/code"),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/code/context"),
    (COMMANDS, &["get", "delete"], "/sandboxes/{sandbox}/proxy/44772/code/contexts"),
    (COMMANDS, &["get", "delete"], "/sandboxes/{sandbox}/proxy/44772/code/contexts/{context}"),
    (COMMANDS, &["delete"], "/sandboxes/{sandbox}/proxy/44772/files"),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/files/info"),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/files/search"),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/files/download"),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/files/upload"),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/files/mv"),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/files/permissions"),
    (COMMANDS, &["post"], "/sandboxes/{sandbox}/proxy/44772/files/replace"),
    (COMMANDS, &["post", "delete"], "/sandboxes/{sandbox}/proxy/44772/directories"),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/directories/list"),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/metrics"),
    (COMMANDS, &["get"], "/sandboxes/{sandbox}/proxy/44772/metrics/watch"),
    (NETWORK, &["get", "post", "put", "patch", "delete"], "/sandboxes/{sandbox}/proxy/18080/policy"),
    (NETWORK, &["get"], "/sandboxes/{sandbox}/proxy/18080/healthz"),
];

pub(super) fn routes() -> Router<Front> {
    Router::new()
        .route("/health", get(health))
        .route("/version", get(version))
        .route("/openapi.json", get(document))
}

async fn health() -> Json<Value> {
    Json(json!({ "status": "healthy" }))
}

async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION"), "server": "warren" }))
}

async fn document() -> Json<Value> {
    let paths: Map<_, _> =
        ROUTES.iter().map(|(tag, methods, path)| ((*path).to_owned(), item(tag, methods, path))).collect();
    Json(json!({
        "openapi": "3.1.0",
        "info": {
            "title": "OpenSandbox, as Warren serves it",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Bodies are those of OpenSandbox's specifications; docs/dialects.md says what differs.",
        },
        "servers": [{ "url": "/v1" }, { "url": "/opensandbox/v1" }],
        "paths": paths,
        "components": { "securitySchemes": { "key": { "type": "apiKey", "in": "header", "name": "OPEN-SANDBOX-API-KEY" } } },
    }))
}

fn item(tag: &str, methods: &[&str], path: &str) -> Value {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters: Vec<_> = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    let mut item = Map::new();
    item.insert("parameters".to_owned(), json!(parameters));
    for method in methods {
        let answers = json!({ "default": { "description": "An answer, or {code, message}." } });
        item.insert((*method).to_owned(), json!({ "tags": [tag], "responses": answers }));
    }
    Value::Object(item)
}
