//! `/health`, `/version`, and a document that lists the routes of this dialect.

use axum::{Json, Router, routing::get};
use serde_json::{Map, Value, json};

use super::{
    ask::{Front, Pairs},
    listed::{Parameters, ROUTES},
};

pub(super) fn routes() -> Router<Front> {
    Router::new()
        .route("/health", get(health))
        .route("/version", get(version))
        .route("/openapi.json", get(document))
}

async fn health(_: Pairs) -> Json<Value> {
    Json(json!({ "status": "healthy" }))
}

async fn version(_: Pairs) -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION"), "server": "warren" }))
}

async fn document(_: Pairs) -> Json<Value> {
    let mut paths = Map::new();
    for (tag, methods, path, query) in ROUTES {
        let item = paths.entry(*path).or_insert_with(|| item(path));
        for method in *methods {
            item[*method] = operation(tag, query);
        }
    }
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

fn item(path: &str) -> Value {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters: Vec<_> = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    json!({ "parameters": parameters })
}

fn operation(tag: &str, query: &Parameters) -> Value {
    let answers = json!({ "default": { "description": "An answer, or {code, message}." } });
    let mut operation = json!({ "tags": [tag], "responses": answers });
    if let Parameters::Only(names) = query {
        let parameters: Vec<_> = names
            .iter()
            .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string" } }))
            .collect();
        operation["parameters"] = json!(parameters);
    }
    operation
}
