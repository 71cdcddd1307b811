//! Bad input on every route of OpenSandbox's interface: for each a request that is good, and what is wrong with others
//! like it. All are refused in the interface's own form, and change nothing.

use sandbox::Preset;
use serde_json::{Value, json};

use crate::{
    opensandbox::{Client, PREFIX, client, create, events},
    support::{LimitSettings, Server, Setup},
};

/// A request that is good.
struct Row {
    method: &'static str,
    path: &'static str,
    query: String,
    body: Value,
    /// Parameters of the query and fields of the body that it needs.
    needs: &'static [&'static str],
    status: u16,
}

/// The values of the placeholders in paths.
struct Things {
    sandbox: String,
    snapshot: String,
    exec: String,
    terminal: String,
    session: String,
    context: String,
}

impl Things {
    async fn make(client: &Client<'_>) -> Self {
        let sandbox = create(client).await;
        let execd = format!("{PREFIX}/sandboxes/{sandbox}/proxy/44772");
        let post = async |path: &str, body: Value, status: u16| {
            client.send(&format!("POST {execd}{path}"), Some(&body)).await.expect(status)
        };
        let line = "mkdir -p /tmp/walk/d; echo x | tee /tmp/walk/a > /tmp/walk/b";
        post("/command", json!({ "command": line }), 200).await;
        let started = post("/command", json!({ "command": "sleep 600", "background": true }), 200).await;
        let exec = events(&started)[0]["text"].as_str().unwrap().to_owned();
        let id = |answer: Value, field: &str| answer[field].as_str().unwrap().to_owned();
        let terminal = post("/pty", json!({ "command": "sleep 600" }), 201).await.json();
        let session = post("/session", json!({}), 200).await.json();
        let context = post("/code/context", json!({ "language": "bash" }), 200).await.json();
        let snapshots = format!("POST /v1/sandboxes/{sandbox}/snapshots");
        let snapshot = client.send(&snapshots, Some(&json!({}))).await.expect(202).json();
        Self {
            snapshot: id(snapshot, "id"),
            terminal: id(terminal, "session_id"),
            session: id(session, "session_id"),
            context: id(context, "id"),
            sandbox,
            exec,
        }
    }

    /// The path of a route of this sandbox.
    fn fill(&self, path: &str) -> String {
        path.replace("{sandbox}", &self.sandbox)
            .replace("pty/{exec}", &format!("pty/{}", self.terminal))
            .replace("{exec}", &self.exec)
            .replace("{snapshot}", &self.snapshot)
            .replace("{session}", &self.session)
            .replace("{context}", &self.context)
            .replace("{port}", "8000")
            .replace("{kind}", "logs")
            .replace("{name}", "x")
            .replace("{template}", "x")
    }

    /// Every route with an own query and body, in an order in which all of them succeed.
    fn rows(&self) -> Vec<Row> {
        let mut rows = self.of_lifecycle();
        rows.extend(self.of_execd());
        rows.extend(policies("/sandboxes/{sandbox}/networkpolicy", false));
        rows.extend(policies("/sandboxes/{sandbox}/proxy/18080/policy", true));
        rows.push(look("GET", "/sandboxes/{sandbox}/proxy/18080/healthz"));
        // Requests that end things come last.
        rows.push(Row { status: 204, ..look("DELETE", "/snapshots/{snapshot}") });
        rows.push(Row { status: 204, ..look("DELETE", "/sandboxes/{sandbox}") });
        rows
    }

    fn of_lifecycle(&self) -> Vec<Row> {
        let in_ten_minutes = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(10);
        let new = json!({
            "image": { "uri": "host" }, "timeout": 600, "resourceLimits": { "memory": "128Mi" },
            "resourceRequests": { "memory": "64Mi" }, "env": { "A": "1" }, "metadata": { "team": "x" },
            "entrypoint": ["tail", "-f", "/dev/null"], "secureAccess": false, "extensions": { "a": "b" },
            "networkPolicy": { "defaultAction": "deny", "egress": [{ "action": "deny", "target": "a.example" }] },
        });
        let expires = json!({ "expiresAt": in_ten_minutes });
        vec![
            Row { query: "state=Running&page=1&pageSize=5".to_owned(), ..look("GET", "/sandboxes") },
            Row { needs: &["image"], status: 202, ..send("POST", "/sandboxes", new) },
            look("GET", "/sandboxes/{sandbox}"),
            send("PATCH", "/sandboxes/{sandbox}/metadata", json!({ "team": "y" })),
            Row { status: 202, ..look("POST", "/sandboxes/{sandbox}/pause") },
            Row { status: 202, ..look("POST", "/sandboxes/{sandbox}/resume") },
            Row { needs: &["expiresAt"], ..send("POST", "/sandboxes/{sandbox}/renew-expiration", expires) },
            Row {
                status: 202,
                ..send("POST", "/sandboxes/{sandbox}/snapshots", json!({ "name": "walked" }))
            },
            Row {
                query: "use_server_proxy=true&expires=4000000000".to_owned(),
                ..look("GET", "/sandboxes/{sandbox}/endpoints/{port}")
            },
            Row { query: "scope=all".to_owned(), ..look("GET", "/sandboxes/{sandbox}/diagnostics/{kind}") },
            Row {
                query: format!("sandboxId={}&page=1&pageSize=5", self.sandbox),
                ..look("GET", "/snapshots")
            },
            look("GET", "/snapshots/{snapshot}"),
            Row { status: 204, ..look("POST", "/metrics/events") },
            look("GET", "/health"),
            look("GET", "/version"),
            look("GET", "/openapi.json"),
        ]
    }

    fn of_execd(&self) -> Vec<Row> {
        let id = || format!("id={}", self.exec);
        let command = json!({
            "command": "true", "cwd": "/tmp", "background": false, "timeout": 60_000, "envs": { "A": "1" }
        });
        let in_session = json!({ "command": "true", "cwd": "/tmp", "timeout": 60_000 });
        let code = json!({ "code": "true", "context": { "language": "bash" } });
        let renaming = json!([{ "src": "/tmp/walk/b", "dest": "/tmp/walk/c" }]);
        let replacement = json!({ "/tmp/walk/a": { "old": "x", "new": "y" } });
        let rows = vec![
            look("GET", "/ping"),
            Row { needs: &["command"], ..send("POST", "/command", command) },
            look("GET", "/command/status/{exec}"),
            Row { query: "cursor=0".to_owned(), ..look("GET", "/command/{exec}/logs") },
            send("POST", "/session", json!({ "cwd": "/tmp" })),
            Row { needs: &["command"], ..send("POST", "/session/{session}/run", in_session) },
            look("DELETE", "/session/{session}"),
            Row { status: 201, ..send("POST", "/pty", json!({ "cwd": "/tmp", "command": "true" })) },
            look("GET", "/pty/{exec}"),
            // Without an upgrade.
            Row { query: "since=0".to_owned(), status: 400, ..look("GET", "/pty/{exec}/ws") },
            look("DELETE", "/pty/{exec}"),
            Row { needs: &["code"], ..send("POST", "/code", code) },
            send("POST", "/code/context", json!({ "language": "bash", "cwd": "/tmp" })),
            Row { query: "language=bash".to_owned(), ..look("GET", "/code/contexts") },
            look("GET", "/code/contexts/{context}"),
            look("DELETE", "/code/contexts/{context}"),
            Row {
                query: "language=bash".to_owned(),
                needs: &["language"],
                ..look("DELETE", "/code/contexts")
            },
            Row { query: id(), needs: &["id"], ..look("DELETE", "/code") },
            Row { query: id(), needs: &["id"], ..look("DELETE", "/command") },
            at("/tmp/walk/a", "GET", "/files/info"),
            Row { query: "path=/tmp/walk&pattern=*".to_owned(), ..at("", "GET", "/files/search") },
            Row { query: "path=/tmp/walk/a&offset=1&limit=1".to_owned(), ..at("", "GET", "/files/download") },
            // A form, which others' tests send.
            Row { status: 400, ..look("POST", "/files/upload") },
            send("POST", "/files/mv", renaming),
            send("POST", "/files/permissions", json!({ "/tmp/walk/a": { "mode": 600 } })),
            Row { query: "verbose=true".to_owned(), ..send("POST", "/files/replace", replacement) },
            at("/tmp/walk/c", "DELETE", "/files"),
            send("POST", "/directories", json!({ "/tmp/walk/d/e": { "mode": 755 } })),
            Row { query: "path=/tmp/walk&depth=1".to_owned(), ..at("", "GET", "/directories/list") },
            at("/tmp/walk/d", "DELETE", "/directories"),
            look("GET", "/metrics"),
        ];
        let below =
            |row: Row| Row { path: format!("/sandboxes/{{sandbox}}/proxy/44772{}", row.path).leak(), ..row };
        rows.into_iter().map(below).collect()
    }
}

fn look(method: &'static str, path: &'static str) -> Row {
    Row { method, path, query: String::new(), body: Value::Null, needs: &[], status: 200 }
}

fn send(method: &'static str, path: &'static str, body: Value) -> Row {
    Row { body, ..look(method, path) }
}

/// A request about a path inside.
fn at(inside: &str, method: &'static str, path: &'static str) -> Row {
    Row { query: format!("path={inside}"), needs: &["path"], ..look(method, path) }
}

fn policies(path: &'static str, may_post: bool) -> Vec<Row> {
    let rule = json!({ "action": "deny", "target": "a.example" });
    let policy = json!({ "defaultAction": "deny", "egress": [rule] });
    let mut rows = vec![
        look("GET", path),
        send("PUT", path, policy.clone()),
        send("PATCH", path, json!([rule])),
        send("DELETE", path, json!(["a.example"])),
    ];
    if may_post {
        rows.push(send("POST", path, policy));
    }
    rows
}

/// Values of another kind.
fn of_another_kind(value: &Value) -> Vec<Value> {
    match value {
        Value::String(_) => vec![json!(7), json!({ "a": "b" })],
        Value::Number(_) => vec![json!("many"), json!([1]), json!(-1)],
        Value::Bool(_) => vec![json!("many"), json!(7)],
        Value::Array(_) => vec![json!(7), json!({ "a": "b" })],
        Value::Object(_) => vec![json!(7), json!(["a"])],
        Value::Null => vec![],
    }
}

/// The same value with one thing in it wrong: a field or item of another kind, or a field that does not exist.
fn spoiled(value: &Value) -> Vec<Value> {
    let mut all = of_another_kind(value);
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                all.extend(spoiled(field).into_iter().map(|wrong| {
                    let mut fields = fields.clone();
                    fields.insert(name.clone(), wrong);
                    Value::Object(fields)
                }));
            }
            let mut more = fields.clone();
            more.insert("surprise".to_owned(), json!(1));
            all.push(Value::Object(more));
        }
        Value::Array(items) => {
            for wrong in items.first().into_iter().flat_map(spoiled) {
                all.push(json!([wrong]));
            }
        }
        _ => {}
    }
    all
}

impl Row {
    fn line(&self, things: &Things, query: &str) -> String {
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{} {PREFIX}{}{mark}{query}", self.method, things.fill(self.path))
    }

    fn body(&self) -> Option<&Value> {
        Some(&self.body).filter(|body| !body.is_null())
    }

    /// Queries with one thing wrong.
    fn bad_queries(&self) -> Vec<String> {
        let pairs: Vec<_> = self.query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let join = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
        };
        let mut all = vec![join(&[&pairs[..], &[("surprise", "1")]].concat())];
        for (index, (name, value)) in pairs.iter().enumerate() {
            if value.parse::<u64>().is_ok() || *value == "true" {
                let mut wrong = pairs.clone();
                wrong[index].1 = "many";
                all.push(join(&wrong));
            }
            if self.needs.contains(name) {
                let mut less = pairs.clone();
                less.remove(index);
                all.push(join(&less));
            }
        }
        all
    }

    /// Bodies with one thing wrong.
    fn bad_bodies(&self) -> Vec<Value> {
        let mut all = spoiled(&self.body);
        for name in self.needs {
            let mut less = self.body.clone();
            if less.as_object_mut().is_some_and(|fields| fields.remove(*name).is_some()) {
                all.push(less);
            }
        }
        all
    }

    /// Lines that name something which cannot exist, in place of each thing in the path.
    fn bad_paths(&self, things: &Things) -> Vec<String> {
        let names = self.path.split('/').filter(|part| part.starts_with('{'));
        let filled = |name: &str| things.fill(&self.path.replacen(name, "..%2f..%2fetc", 1));
        names.map(|name| format!("{} {PREFIX}{}", self.method, filled(name))).collect()
    }
}

/// It is refused in the form of this interface.
async fn refused(client: &Client<'_>, line: &str, body: Option<&Value>, statuses: &[u16]) {
    let answer = client.send(line, body).await;
    let about = format!("{line} {}: {answer:?}", body.unwrap_or(&Value::Null));
    assert!(statuses.contains(&answer.status()), "{about} {}", String::from_utf8_lossy(&answer.body));
    assert!(answer.header("x-request-id").is_some(), "{about}");
    let told = answer.json();
    let is_code = |code: &str| code.bytes().all(|byte| byte.is_ascii_uppercase() || b":_".contains(&byte));
    assert!(told["code"].as_str().is_some_and(is_code) && told["message"].is_string(), "{about}: {told}");
    assert_eq!(told.as_object().unwrap().len(), 2, "{about}: {told}");
}

async fn server() -> Server {
    let limits = LimitSettings { requests_per_second: None, ..LimitSettings::default() };
    Server::start(Setup { has_keys: true, network_ceiling: Preset::Public, limits, ..Setup::default() }).await
}

/// Methods and paths of the document, without those whose queries and bodies are not read here.
async fn documented(client: &Client<'_>) -> Vec<(String, String)> {
    let document = client.send(&format!("GET {PREFIX}/openapi.json"), None).await.expect(200).json();
    let paths = document["paths"].as_object().unwrap().clone();
    let is_read =
        |path: &str| !["/proxy/{port}", "/pools", "/templates"].iter().any(|part| path.contains(part));
    let mut all = Vec::new();
    for (path, item) in paths.into_iter().filter(|(path, _)| is_read(path)) {
        let methods = item.as_object().unwrap().keys().filter(|key| *key != "parameters");
        all.extend(methods.map(|method| (method.to_ascii_uppercase(), path.clone())));
    }
    all.sort();
    all
}

#[tokio::test]
async fn every_route_refuses_what_is_wrong_in_their_form() {
    let server = server().await;
    let client = client(&server, "red").await;
    let things = Things::make(&client).await;
    let rows = things.rows();
    let mut known: Vec<_> = rows.iter().map(|row| (row.method.to_owned(), row.path.to_owned())).collect();
    // Readings without end: `what_a_sandbox_uses_is_told_again_and_again` reads some.
    let watch = look("GET", "/sandboxes/{sandbox}/proxy/44772/metrics/watch");
    known.push((watch.method.to_owned(), watch.path.to_owned()));
    known.sort();
    assert_eq!(known, documented(&client).await, "each route has one good request here");

    let state = async || {
        let sandbox = client.send(&format!("GET /v1/sandboxes/{}", things.sandbox), None).await.json();
        let sandboxes = client.send("GET /v1/sandboxes", None).await.json();
        let snapshots = client.send("GET /v1/snapshots", None).await.json();
        (sandbox, sandboxes["pagination"].clone(), snapshots["items"].clone())
    };
    let before = state().await;
    for row in rows.iter().chain([&watch]) {
        for query in row.bad_queries() {
            refused(&client, &row.line(&things, &query), row.body(), &[400]).await;
        }
        for body in row.bad_bodies() {
            refused(&client, &row.line(&things, &row.query), Some(&body), &[400]).await;
        }
        for line in row.bad_paths(&things) {
            let separator = if row.query.is_empty() { "" } else { "?" };
            let line = format!("{line}{separator}{}", row.query);
            refused(&client, &line, row.body(), &[400, 404]).await;
        }
    }
    assert_eq!(state().await, before);
    for line in ["GET /pools", "POST /pools", "DELETE /pools/x", "GET /templates", "DELETE /templates/x"] {
        let line = line.replace(" /", &format!(" {PREFIX}/"));
        refused(&client, &format!("{line}?surprise=1"), None, &[501]).await;
    }
    // All of them were good but for one thing.
    for row in &rows {
        let line = row.line(&things, &row.query);
        let answer = client.send(&line, row.body()).await;
        let text = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status(), row.status, "{line} {}: {text}", row.body);
    }
    server.end().await;
}
