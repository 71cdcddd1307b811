//! OpenSandbox's interface on a port that is ours, and on one of its own.

use engine::{CallFilter, Principal};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::{Answer, Server, Setup};

pub(crate) const PREFIX: &str = "/opensandbox/v1";
const AGENT: &str = "user-agent: OpenSandbox-Python-SDK/1.1.1";

pub(crate) struct Client<'a> {
    server: &'a Server,
    headers: Vec<String>,
}

impl Client<'_> {
    pub(crate) async fn send(&self, line: &str, body: Option<&Value>) -> Answer {
        let mut client = self.server.connect().await;
        let (line, host) = (format!("{line} HTTP/1.1"), format!("host: {}", self.server.address));
        let text = body.map(ToString::to_string).unwrap_or_default();
        let length = format!("content-length: {}", text.len());
        let mut head = vec![line.as_str(), &host, "connection: close"];
        if body.is_some() {
            head.extend(["content-type: application/json", &length]);
        }
        head.extend(self.headers.iter().map(String::as_str));
        client.send(&head).await;
        client.0.write_all(text.as_bytes()).await.unwrap();
        let mut answer = client.answer().await;
        answer.body.extend(client.rest().await);
        answer
    }

    pub(crate) async fn refused(&self, line: &str, body: Option<&Value>, status: u16, code: &str) -> String {
        let answer = self.send(line, body).await.expect(status);
        assert!(answer.header("x-request-id").is_some(), "{answer:?}");
        let told = answer.json();
        assert_eq!(told["code"], code, "{line}: {told}");
        told["message"].as_str().unwrap().to_owned()
    }
}

/// A client with a key of a namespace, which is known by its name only.
pub(crate) async fn client<'a>(server: &'a Server, namespace: &str) -> Client<'a> {
    let spec =
        sandbox::KeySpec { namespace: Some(namespace.parse().unwrap()), ..sandbox::KeySpec::default() };
    let owner = engine::Principal::operator("test");
    let key = server.engine.create_key(&owner, spec).await.unwrap().secret;
    Client { server, headers: vec![AGENT.to_owned(), format!("OPEN-SANDBOX-API-KEY: {key}")] }
}

pub(crate) async fn create(client: &Client<'_>) -> String {
    let body = json!({ "image": { "uri": "host" }, "timeout": 600, "resourceLimits": { "memory": "256Mi" },
        "entrypoint": ["tail", "-f", "/dev/null"], "metadata": { "team": "x" }, "secureAccess": false });
    let made = client.send("POST /v1/sandboxes", Some(&body)).await.expect(202).json();
    assert_eq!(made["status"]["state"], "Running", "{made}");
    made["id"].as_str().unwrap().to_owned()
}

/// Returns the path of execd for whoever was given its address, and the client that has the token.
pub(crate) async fn inside<'a>(client: &Client<'a>, id: &str, port: u16) -> (String, Client<'a>) {
    let given =
        client.send(&format!("GET /v1/sandboxes/{id}/endpoints/{port}"), None).await.expect(200).json();
    // It holds a right, so the audit knows of it, though nothing was changed.
    let calls =
        client.server.engine.calls(&Principal::operator("test"), CallFilter::default()).await.unwrap();
    assert!(calls.iter().any(|call| call.action.contains("/endpoints/{port}")), "{calls:?}");
    let endpoint = given["endpoint"].as_str().unwrap();
    let (host, path) = endpoint.split_at(endpoint.find('/').unwrap());
    assert_eq!(host, client.server.address.to_string());
    let headers = given["headers"].as_object().unwrap().iter();
    let headers = headers.map(|(name, value)| format!("{name}: {}", value.as_str().unwrap())).collect();
    (path.to_owned(), Client { server: client.server, headers })
}

/// The events of a stream that has ended.
pub(crate) fn events(answer: &Answer) -> Vec<Value> {
    let text = String::from_utf8_lossy(&answer.body);
    let objects = text.lines().filter(|line| line.starts_with('{'));
    objects.map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

pub(crate) async fn keyed() -> Server {
    Server::start(Setup { has_keys: true, ..Setup::default() }).await
}

#[tokio::test]
async fn a_command_runs_by_the_address_and_the_token_that_were_given() {
    let server = keyed().await;
    let client = client(&server, "red").await;
    let id = create(&client).await;
    let (path, execd) = inside(&client, &id, 44772).await;
    execd.send(&format!("GET {path}/ping"), None).await.expect(200);

    let body = json!({ "command": "echo one; echo two >&2; exit 3" });
    let answer = execd.send(&format!("POST {path}/command"), Some(&body)).await.expect(200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let told = events(&answer);
    assert_eq!(
        (told[0]["type"].as_str(), told.last().unwrap()["type"].as_str()),
        (Some("init"), Some("error"))
    );
    assert_eq!(told.last().unwrap()["error"]["evalue"], "3");
    let printed = |stream: &str| told.iter().find(|event| event["type"] == stream).unwrap()["text"].clone();
    assert_eq!((printed("stdout"), printed("stderr")), (json!("one"), json!("two")));

    // The command's output can be read again.
    let exec = told[0]["text"].as_str().unwrap();
    let logs = execd.send(&format!("GET {path}/command/{exec}/logs"), None).await.expect(200);
    assert!(String::from_utf8_lossy(&logs.body).contains("one"), "{logs:?}");
    let status = execd.send(&format!("GET {path}/command/status/{exec}"), None).await.expect(200).json();
    assert_eq!((&status["running"], &status["exit_code"]), (&json!(false), &json!(3)));

    let body = json!({ "command": "true", "background": true });
    let answer = execd.send(&format!("POST {path}/command"), Some(&body)).await.expect(200);
    assert_eq!(kinds(&events(&answer)), ["init", "execution_complete"]);
    server.end().await;
}

#[tokio::test]
async fn a_token_opens_its_own_sandbox_and_nothing_else() {
    let server = keyed().await;
    let client = client(&server, "red").await;
    let (own, other) = (create(&client).await, create(&client).await);
    let (path, execd) = inside(&client, &own, 44772).await;
    let (port_path, port) = inside(&client, &own, 8000).await;
    let nobody = Client { server: &server, headers: Vec::new() };
    nobody.refused(&format!("GET {path}/ping"), None, 401, "MISSING_API_KEY").await;
    execd.refused(&format!("GET {}/ping", path.replace(&own, &other)), None, 401, "INVALID_API_KEY").await;
    port.refused(&format!("GET {path}/ping"), None, 401, "INVALID_API_KEY").await;
    execd.refused(&format!("GET {PREFIX}/sandboxes/{own}"), None, 401, "INVALID_API_KEY").await;
    execd.refused(&format!("GET {PREFIX}/sandboxes"), None, 401, "INVALID_API_KEY").await;
    // Nothing listens there, and that is not the caller's fault.
    port.send(&format!("GET {port_path}/"), None).await.expect(502);
    // Our own interface knows no such token.
    assert_eq!(execd.send(&format!("GET /v1/sandboxes/{own}"), None).await.status(), 401);
    // Whoever could use a sandbox is told that it has ended, and learns nothing about others.
    client.send(&format!("DELETE /v1/sandboxes/{own}"), None).await.expect(204);
    execd.refused(&format!("GET {path}/ping"), None, 404, "SANDBOX::SANDBOX_NOT_FOUND").await;
    execd.refused(&format!("GET {}/ping", path.replace(&own, &other)), None, 401, "INVALID_API_KEY").await;
    nobody.refused(&format!("GET {path}/ping"), None, 401, "MISSING_API_KEY").await;
    server.end().await;
}

/// Asserts that a caller without a key is not let in, and that one who tries often is told to wait.
async fn shut(nobody: &Client<'_>, line: &str) {
    let answer = nobody.send(line, None).await;
    let told = (answer.status(), answer.json()["code"].clone());
    let expected = [(401, json!("MISSING_API_KEY")), (429, told.1.clone())];
    assert!(expected.contains(&told), "{line}: {told:?}");
}

/// Every route of the document, with a key of another namespace: what is red's does not exist.
#[tokio::test]
async fn a_stranger_finds_nothing_on_any_route() {
    let server = keyed().await;
    let (red, blue) = (client(&server, "red").await, client(&server, "blue").await);
    let id = create(&red).await;
    let snapshot =
        red.send(&format!("POST /v1/sandboxes/{id}/snapshots"), Some(&json!({}))).await.expect(202).json();
    let snapshot = snapshot["id"].as_str().unwrap();
    let nobody = Client { server: &server, headers: Vec::new() };
    let document = nobody.send(&format!("GET {PREFIX}/openapi.json"), None).await.expect(200).json();
    let before = red.send(&format!("GET /v1/sandboxes/{id}"), None).await.expect(200).json();
    let mut n_walked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let target = path
            .replace("{sandbox}", &id)
            .replace("{snapshot}", snapshot)
            .replace("{port}", "8000")
            .replace("{kind}", "logs")
            .replace("{exec}", "exc-0000000000000")
            .replace("{session}", "session-0")
            .replace("{context}", "python")
            .replace("{name}", "x")
            .replace("{template}", "x")
            .replace("{path}", "x");
        for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            let line = format!("{} {PREFIX}{target}", method.to_ascii_uppercase());
            let (status, code) = match path.as_str() {
                "/health" | "/version" | "/openapi.json" => continue,
                // Its own lists are empty, and what it may do is its own.
                "/sandboxes" | "/snapshots" | "/metrics/events" => {
                    if method == "get" {
                        let listed = blue.send(&line, None).await.expect(200).json();
                        assert_eq!(listed["items"], json!([]), "{line}");
                    }
                    shut(&nobody, &line).await;
                    continue;
                }
                path if path.starts_with("/pools") || path.starts_with("/templates") => {
                    (501, "SANDBOX::API_NOT_SUPPORTED")
                }
                path if path.starts_with("/snapshots/") => (404, "SNAPSHOT::NOT_FOUND"),
                _ => (404, "SANDBOX::SANDBOX_NOT_FOUND"),
            };
            blue.refused(&line, None, status, code).await;
            shut(&nobody, &line).await;
            n_walked += 1;
        }
    }
    assert!(n_walked > 50, "{n_walked} routes");
    assert_eq!(red.send(&format!("GET /v1/sandboxes/{id}"), None).await.expect(200).json(), before);
    server.end().await;
}

#[tokio::test]
async fn what_is_wrong_is_told_in_their_form_and_changes_nothing() {
    let server = keyed().await;
    let client = client(&server, "red").await;
    let (invalid, none) = ("SANDBOX::INVALID_PARAMETER", "SANDBOX::SANDBOX_NOT_FOUND");
    for body in [
        json!({}),
        json!({ "image": "host" }),
        json!({ "image": { "uri": "../x" } }),
        json!({ "image": { "uri": "host" }, "timeout": "soon" }),
        json!({ "image": { "uri": "host" }, "surprise": 1 }),
        json!({ "image": { "uri": "host" }, "resourceLimits": { "cpu": "many" } }),
        json!({ "image": { "uri": "host" }, "metadata": { "a b": "c" } }),
        json!([]),
    ] {
        client.refused("POST /v1/sandboxes", Some(&body), 400, invalid).await;
    }
    assert_eq!(
        client.send("GET /v1/sandboxes", None).await.expect(200).json()["pagination"]["totalItems"],
        0
    );
    for query in [
        "page=0",
        "pageSize=201",
        "pageSize=x",
        "surprise=1",
        "page=1&page=2",
        "metadata=a%20b%3Dc",
        "metadata=broken",
    ] {
        client.refused(&format!("GET /v1/sandboxes?{query}"), None, 400, invalid).await;
    }
    for name in ["..%2f..%2fetc", "sbx-..%2fx", "nobody", "sbx-0000000000000"] {
        client.refused(&format!("GET /v1/sandboxes/{name}"), None, 404, none).await;
    }
    client.refused("GET /v1/nope", None, 404, "NOT_FOUND").await;
    let id = create(&client).await;
    for query in ["scope=nonsense", "limit=many"] {
        let line = format!("GET /v1/sandboxes/{id}/diagnostics/events?{query}");
        client.refused(&line, None, 400, invalid).await;
    }
    let named = json!({ "name": "twice" });
    client.send(&format!("POST /v1/sandboxes/{id}/snapshots"), Some(&named)).await.expect(202);
    let again = format!("POST /v1/sandboxes/{id}/snapshots");
    client.refused(&again, Some(&named), 409, "SNAPSHOT::ALREADY_EXISTS").await;
    for port in ["0", "65536", "x", "+1"] {
        client.refused(&format!("GET /v1/sandboxes/{id}/endpoints/{port}"), None, 400, invalid).await;
    }
    let past = json!({ "expiresAt": "2001-01-01T00:00:00Z" });
    client.refused(&format!("POST /v1/sandboxes/{id}/renew-expiration"), Some(&past), 400, invalid).await;
    let reserved = json!({ "opensandbox.io/image": "x" });
    client.refused(&format!("PATCH /v1/sandboxes/{id}/metadata"), Some(&reserved), 400, invalid).await;
    client.refused(&format!("PUT /v1/sandboxes/{id}"), None, 405, "NOT_FOUND").await;

    let (path, execd) = inside(&client, &id, 44772).await;
    let bad = "INVALID_REQUEST_BODY";
    for body in [
        json!({}),
        json!({ "command": "" }),
        json!({ "command": 1 }),
        json!({ "command": "true", "argv": ["true"] }),
        json!({ "command": "true", "gid": 1 }),
        json!({ "command": "true", "timeout": -1 }),
        json!({ "command": "true", "surprise": 1 }),
        json!({ "command": "a\u{0}b" }),
    ] {
        execd.refused(&format!("POST {path}/command"), Some(&body), 400, bad).await;
    }
    for (line, status, code) in [
        ("GET /files/info", 400, "MISSING_QUERY"),
        ("GET /files/info?path=/never", 404, "FILE_NOT_FOUND"),
        ("GET /files/download?path=", 400, "MISSING_QUERY"),
        ("GET /files/download?path=/etc/passwd&offset=1", 400, bad),
        ("GET /files/download?path=/etc/passwd&offset=0&limit=1", 400, bad),
        ("GET /files/download?path=/tmp", 400, "INVALID_FILE"),
        ("DELETE /files?path=/tmp", 500, "INVALID_FILE"),
        ("DELETE /directories?path=/etc/passwd", 500, "INVALID_FILE"),
        ("GET /directories/list?path=/&depth=0", 400, bad),
        ("GET /command/status/..%2f..", 404, "CONTEXT_NOT_FOUND"),
        ("DELETE /command?id=exc-0000000000000", 400, "CONTEXT_NOT_FOUND"),
        ("DELETE /session/python", 404, "CONTEXT_NOT_FOUND"),
        ("GET /code/contexts/nobody", 404, "CONTEXT_NOT_FOUND"),
        ("GET /pty/exc-0000000000000/ws", 404, "CONTEXT_NOT_FOUND"),
        ("GET /v1/isolated/sessions", 501, "NOT_SUPPORTED"),
        ("GET /surprise", 404, "NOT_SUPPORTED"),
    ] {
        let (method, target) = line.split_once(' ').unwrap();
        execd.refused(&format!("{method} {path}{target}"), None, status, code).await;
    }
    let mode = json!({ "/tmp/x": { "mode": 999 } });
    execd.refused(&format!("POST {path}/directories"), Some(&mode), 400, "INVALID_FILE").await;
    execd.refused(&format!("POST {path}/files/upload"), Some(&json!({})), 400, bad).await;
    server.end().await;
}

#[tokio::test]
async fn a_network_policy_is_held_and_changed_in_their_words() {
    let setup = Setup { has_keys: true, network_ceiling: sandbox::Preset::Public, ..Setup::default() };
    let server = Server::start(setup).await;
    let client = client(&server, "red").await;
    let rule = |action: &str, target: &str| json!({ "action": action, "target": target });
    let policy = json!({ "defaultAction": "deny", "egress": [rule("allow", "*.example.org")] });
    let body = json!({ "image": { "uri": "host" }, "networkPolicy": policy });
    let made = client.send("POST /v1/sandboxes", Some(&body)).await.expect(202).json();
    let id = made["id"].as_str().unwrap();
    let (path, egress) = inside(&client, id, 18080).await;
    let own = format!("/v1/sandboxes/{id}/networkpolicy");
    let told = egress.send(&format!("GET {path}/policy"), None).await.expect(200).json();
    assert_eq!((&told["mode"], &told["policy"]), (&json!("enforcing"), &policy), "{told}");
    assert_eq!(client.send(&format!("GET {own}"), None).await.expect(200).json(), told);

    let rules = json!([rule("deny", "evil.example.org"), rule("allow", "a.test")]);
    egress.send(&format!("PATCH {path}/policy"), Some(&rules)).await.expect(200);
    let other = json!([rule("deny", "A.test")]);
    let told = client.send(&format!("PATCH {own}"), Some(&other)).await.expect(200).json();
    let expected = [rule("deny", "A.test"), rule("deny", "evil.example.org"), rule("allow", "*.example.org")];
    assert_eq!(told["policy"]["egress"], json!(expected));
    let gone = json!(["EVIL.example.org", "never.test"]);
    let told = client.send(&format!("DELETE {own}"), Some(&gone)).await.expect(200).json();
    assert_eq!(told["policy"]["egress"], json!([expected[0], expected[2]]));
    let told = client.send(&format!("DELETE {own}"), Some(&json!(["never.test"]))).await.expect(200).json();
    assert_eq!(told["reason"], "no matching targets found");

    let open = json!({ "defaultAction": "allow" });
    let told = client.send(&format!("PUT {own}"), Some(&open)).await.expect(200).json();
    assert_eq!(told["mode"], "allow_all");
    for (method, body, status, code) in [
        ("PATCH", json!([rule("allow", "10.0.0.1")]), 403, "SANDBOX::FORBIDDEN"),
        ("PATCH", json!([rule("allow", "*")]), 400, "SANDBOX::INVALID_PARAMETER"),
        ("PATCH", json!([]), 400, "SANDBOX::INVALID_PARAMETER"),
        ("DELETE", json!([]), 400, "SANDBOX::INVALID_PARAMETER"),
        ("PUT", json!({ "egress": [rule("allow", "host:22")] }), 403, "SANDBOX::FORBIDDEN"),
    ] {
        client.refused(&format!("{method} {own}"), Some(&body), status, code).await;
    }
    assert_eq!(client.send(&format!("GET {own}"), None).await.expect(200).json(), told);
    let told = egress.send(&format!("POST {path}/policy"), None).await.expect(200).json();
    assert_eq!(told["mode"], "deny_all");
    server.end().await;
}

#[tokio::test]
async fn a_read_only_key_looks_and_changes_nothing() {
    let server = keyed().await;
    let client = client(&server, "red").await;
    let id = create(&client).await;
    let spec = sandbox::KeySpec {
        namespace: Some("red".parse().unwrap()),
        read_only: true,
        ..sandbox::KeySpec::default()
    };
    let key = server.engine.create_key(&engine::Principal::operator("test"), spec).await.unwrap().secret;
    let reader =
        Client { server: &server, headers: vec![AGENT.to_owned(), format!("OPEN-SANDBOX-API-KEY: {key}")] };
    reader.send(&format!("GET /v1/sandboxes/{id}"), None).await.expect(200);
    reader.refused(&format!("DELETE /v1/sandboxes/{id}"), None, 403, "SANDBOX::FORBIDDEN").await;
    let (path, execd) = inside(&reader, &id, 44772).await;
    execd.send(&format!("GET {path}/files/info?path=/etc/passwd"), None).await.expect(200);
    let command = Some(&json!({ "command": "true" }));
    execd.refused(&format!("POST {path}/command"), command, 403, "RUNTIME_ERROR").await;
    execd.refused(&format!("DELETE {path}/files?path=/etc/passwd"), None, 403, "RUNTIME_ERROR").await;
    server.end().await;
}

#[tokio::test]
async fn both_interfaces_see_the_same_sandboxes_and_keep_their_own_form() {
    let server = Server::dev().await;
    let theirs = Client { server: &server, headers: vec![AGENT.to_owned()] };
    let ours = Client { server: &server, headers: Vec::new() };
    let id = create(&theirs).await;
    let seen = ours.send(&format!("GET /v1/sandboxes/{id}"), None).await.expect(200).json();
    assert_eq!((&seen["id"], &seen["state"]), (&json!(id), &json!("running")));
    let made = ours.send("POST /v1/sandboxes", Some(&json!({ "name": "lab", "labels": { "a": "b" } }))).await;
    let made = made.expect(201).json();
    let listed = theirs.send("GET /v1/sandboxes?metadata=a%3Db", None).await.expect(200).json();
    assert_eq!(listed["items"][0]["id"], made["id"]);
    ours.send(&format!("POST /v1/sandboxes/{id}/stop?graceMs=1"), None).await.expect(200);
    let stopped = theirs.send(&format!("GET /v1/sandboxes/{id}"), None).await.expect(200).json();
    assert_eq!(stopped["status"]["state"], "Terminated");
    // An existing sandbox can be used.
    let (path, execd) = inside(&theirs, &id, 44772).await;
    let answer =
        execd.send(&format!("POST {path}/command"), Some(&json!({ "command": "echo up" }))).await.expect(200);
    assert_eq!(kinds(&events(&answer)), ["init", "stdout", "execution_complete"]);
    server.end().await;
}

#[tokio::test]
async fn diagnostics_tell_what_happened_in_a_sandbox() {
    let server = keyed().await;
    let client = client(&server, "red").await;
    let id = create(&client).await;
    let (path, execd) = inside(&client, &id, 44772).await;
    let body = json!({ "command": "echo one; exit 3" });
    execd.send(&format!("POST {path}/command"), Some(&body)).await.expect(200);
    let told = async |kind: &str| {
        let answer =
            client.send(&format!("GET /v1/sandboxes/{id}/diagnostics/{kind}"), None).await.expect(200);
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"), "{answer:?}");
        String::from_utf8(answer.body).unwrap()
    };
    let logs = told("logs").await;
    assert!(logs.lines().count() == 1 && logs.contains("echo one; exit 3") && logs.contains('3'), "{logs}");
    let events = told("events").await;
    let kinds: Vec<_> = events.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert!(kinds.len() > 1 && kinds.iter().all(|kind| !kind.is_empty()), "{events}");
    let own = client.send(&format!("GET /v1/sandboxes/{id}"), None).await.expect(200).json();
    let inspected = told("inspect").await;
    assert_eq!(serde_json::from_str::<Value>(&inspected).unwrap(), own);
    assert_eq!(told("summary").await, format!("{inspected}\n\n{events}\n{logs}"));

    let line = format!("GET /v1/sandboxes/{id}/diagnostics/logs?scope=all");
    let scoped = client.send(&line, None).await.expect(200).json();
    let expected = json!({
        "sandboxId": id, "kind": "logs", "scope": "all", "delivery": "inline", "truncated": false,
        "contentType": "text/plain; charset=utf-8", "content": logs, "contentLength": logs.len(),
    });
    assert_eq!(scoped, expected);
    let version = client.send("GET /version", None).await.expect(200).json();
    assert_eq!(version, json!({ "version": env!("CARGO_PKG_VERSION"), "server": "warren" }));
    server.end().await;
}

#[tokio::test]
async fn what_a_sandbox_uses_is_told_again_and_again() {
    let server = keyed().await;
    let client = client(&server, "red").await;
    let id = create(&client).await;
    let (path, execd) = inside(&client, &id, 44772).await;
    let mut stream = server.connect().await;
    let line = format!("GET {path}/metrics/watch HTTP/1.1");
    let host = format!("host: {}", server.address);
    let mut head = vec![line.as_str(), &host];
    head.extend(execd.headers.iter().map(String::as_str));
    stream.send(&head).await;
    let mut bytes = Vec::new();
    let readings = |bytes: &[u8]| -> Vec<Value> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect()
    };
    stream.read_until(&mut bytes, |bytes| readings(bytes).len() >= 2).await;
    let told = readings(&bytes);
    for reading in &told {
        assert_eq!(reading["mem_total_mib"], 256.0, "{reading}");
        assert!(reading["cpu_count"].is_number() && reading["cpu_used_pct"].is_number(), "{reading}");
    }
    assert!(told[0]["timestamp"].as_i64() < told[1]["timestamp"].as_i64(), "{told:?}");
    drop(stream);
    server.end().await;
}
