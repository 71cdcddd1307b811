//! The routes and tools of other systems' interfaces, with valid arguments.

use frontends::dialects;
use serde_json::{Value, json};

use super::{Belongings, Operation};
use crate::{
    doctor::attack::stage::{FILE_SECRET, OURS, Stage},
    error::CommandResult,
};

const OPENSANDBOX: &str = "/opensandbox/v1";
const RPC: &str = "/api/v1/rpc";
const MCP_SANDBOX: &str = "/mcp-sandbox";

/// Whether a route only looks although it is not asked by GET.
pub(super) fn only_looks(path: &str) -> bool {
    // A report of the client's own times, of which nothing is kept; and a method that reads.
    path == "/opensandbox/v1/metrics/events" || path == "/api/v1/rpc#sandbox.metrics.get"
}

/// Whether there is nothing behind a route for anybody, so that everybody with a key is told so (501).
pub(super) fn is_nothing(path: &str) -> bool {
    let prefixes = [
        "/opensandbox/v1/pools",
        "/opensandbox/v1/templates",
        "/mcp-sandbox/api/token",
        "/mcp-sandbox/api/users/me/api-key",
    ];
    prefixes.iter().any(|prefix| path.starts_with(prefix))
}

/// Whether a route answers without a key: health, version and lists of routes.
pub(super) fn is_open(path: &str) -> bool {
    [
        "/opensandbox/v1/health",
        "/opensandbox/v1/version",
        "/opensandbox/v1/openapi.json",
        "/api/v1/health",
        "/mcp-sandbox/health",
    ]
    .contains(&path)
}

/// Whether only the key that made a sandbox finds it there, so that for a read-only key none exists.
pub(super) fn is_for_owners(path: &str) -> bool {
    path.starts_with(MCP_SANDBOX)
}

/// Returns the paths of the tools of every dialect.
pub(super) fn surfaces() -> Vec<String> {
    dialects::ALL.iter().map(|dialect| format!("/mcp/{}", dialect.name)).collect()
}

/// Whether a tool cannot be called without naming a sandbox, in the words of other systems.
pub(super) fn names_sandbox(tool: &Value) -> bool {
    let required = tool.pointer("/inputSchema/required").and_then(Value::as_array);
    required.into_iter().flatten().any(|name| name == "sandbox_id" || name == "namespace")
}

/// Every route of every dialect.
pub(super) async fn operations(stage: &Stage, of: &Belongings) -> CommandResult<Vec<Operation>> {
    let mut all = opensandbox(stage, of).await?;
    all.extend(mcp_sandbox(of));
    all.extend(rpc(of));
    Ok(all)
}

fn operation(method: &str, path: &str, of: &Belongings, query: &str, body: Option<Value>) -> Operation {
    let mut target = path
        .replace("pty/{exec}", &format!("pty/{}", of.terminal))
        .replace("{exec}", &of.exec)
        .replace("{sandbox}", &of.sandbox)
        .replace("{snapshot}", &of.snapshot)
        .replace("{session}", of.session)
        .replace("{context}", of.context)
        .replace("{port}", "8000")
        .replace("{kind}", "logs")
        .replace(['{', '}'], "");
    if !query.is_empty() {
        target = format!("{target}?{query}");
    }
    let body = body.map(|body| ("application/json", body.to_string().into_bytes()));
    Operation { method: method.to_uppercase(), path: path.to_owned(), target, body }
}

/// The routes in the document of OpenSandbox's interface, which says nothing about queries and bodies.
async fn opensandbox(stage: &Stage, of: &Belongings) -> CommandResult<Vec<Operation>> {
    let (_, document) = stage.ask(&stage.key, "GET", &format!("{OPENSANDBOX}/openapi.json"), None).await?;
    let document: Value = serde_json::from_slice(&document).unwrap_or_default();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, _) in item.as_object().into_iter().flatten().filter(|(key, _)| *key != "parameters") {
            // A route inside is named by its own address.
            let inside = path.rsplit_once("/proxy/").map_or(path.as_str(), |(_, inside)| inside);
            let query = query(method, inside, of);
            let mut operation =
                operation(method, &format!("{OPENSANDBOX}{path}"), of, &query, body(method, inside));
            if inside == "44772/files/upload" {
                operation.body = Some(("multipart/form-data; boundary=attack", upload()));
            }
            all.push(operation);
        }
    }
    Ok(all)
}

fn query(method: &str, path: &str, of: &Belongings) -> String {
    match (method, path) {
        ("delete", "44772/command" | "44772/code") => format!("id={}", of.exec),
        ("delete", "44772/code/contexts") => "language=bash".to_owned(),
        // One that exists: what is not there is as good as deleted.
        ("delete", "44772/directories") => "path=/tmp".to_owned(),
        (_, "44772/files" | "44772/files/info" | "44772/files/download") => "path=/root/secret".to_owned(),
        (_, "44772/files/search" | "44772/directories/list") => "path=/root".to_owned(),
        _ => String::new(),
    }
}

fn body(method: &str, path: &str) -> Option<Value> {
    let in_ten_minutes = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(10);
    Some(match (method, path) {
        ("post", "/sandboxes") => json!({ "image": { "uri": "host" }, "timeout": 600 }),
        ("patch", "/sandboxes/{sandbox}/metadata") => json!({ "attack": "1" }),
        ("post", "/sandboxes/{sandbox}/renew-expiration") => json!({ "expiresAt": in_ten_minutes }),
        ("post" | "put", "/sandboxes/{sandbox}/networkpolicy" | "18080/policy") => {
            json!({ "defaultAction": "deny" })
        }
        ("patch", "/sandboxes/{sandbox}/networkpolicy" | "18080/policy") => {
            json!([{ "action": "deny", "target": "attack.example" }])
        }
        ("delete", "/sandboxes/{sandbox}/networkpolicy" | "18080/policy") => json!(["attack.example"]),
        ("post", "44772/command" | "44772/session/{session}/run") => json!({ "command": "true" }),
        ("post", "44772/code") => json!({ "code": "true", "context": { "language": "bash" } }),
        ("post", "44772/code/context") => json!({ "language": "bash" }),
        ("post", "44772/files/mv") => json!([{ "src": "/root/secret", "dest": "/root/moved" }]),
        ("post", "44772/files/permissions") => json!({ "/root/secret": { "mode": 777 } }),
        ("post", "44772/files/replace") => json!({ "/root/secret": { "old": FILE_SECRET, "new": "attack" } }),
        ("post", "44772/directories") => json!({ "/root/attack": { "mode": 755 } }),
        _ => return None,
    })
}

/// A file and what it is to be, as a form.
fn upload() -> Vec<u8> {
    let part = |name: &str, text: &str| {
        format!(
            "--attack\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\r\n{text}\r\n"
        )
    };
    let metadata = json!({ "path": "/root/secret" }).to_string();
    format!("{}{}--attack--\r\n", part("metadata", &metadata), part("file", "attack")).into_bytes()
}

/// The routes beside mcp-sandbox's tools.
fn mcp_sandbox(of: &Belongings) -> Vec<Operation> {
    let user = json!({ "username": "attack", "password": "attack" });
    let one = |(method, path): (String, String)| {
        let (query, body) = match path.strip_prefix(MCP_SANDBOX).unwrap_or(&path) {
            "/sandbox/file" => (format!("sandbox_id={}&file_path=/root/secret", of.sandbox), None),
            "/api/register" | "/api/token" => (String::new(), Some(user.clone())),
            _ => (String::new(), None),
        };
        operation(&method, &path, of, &query, body)
    };
    dialects::mcp_sandbox_routes().map(one).collect()
}

/// The methods of microsandbox's JSON-RPC, each as a route of its own.
fn rpc(of: &Belongings) -> Vec<Operation> {
    let one = |method: &str| {
        let mut params = match method {
            "sandbox.repl.run" => json!({ "language": "python", "code": "1" }),
            "sandbox.command.run" => json!({ "command": "true" }),
            _ => json!({}),
        };
        params["sandbox"] = json!(of.sandbox);
        params["namespace"] = json!(OURS);
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let asked = operation("post", RPC, of, "", Some(message));
        Operation { path: format!("{RPC}#{method}"), ..asked }
    };
    let health = operation("get", "/api/v1/health", of, "", None);
    std::iter::once(health).chain(dialects::rpc_methods().map(one)).collect()
}
