//! A key of one namespace and every route there is: what belongs to another namespace does not exist for it.

use std::collections::BTreeSet;

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use engine::Principal;
use sandbox::Capability;
use serde_json::{Value, json};

use crate::support::{Answer, Api, next_with, pieces};

/// The content of red's file, which must never be in an answer to blue.
const SECRET: &str = "red-and-nobody-elses";

/// Every home has a context of this name.
const CONTEXT: &str = "kept";

/// Lists, and what of their members is another from one moment to the next.
const PASSING: [(&str, &[&str]); 2] =
    [("processes", &["cpuMicros", "memoryBytes", "state"]), ("contexts", &["memoryBytes"])];

/// Nobody's.
const JOB: &str = "pkg-0123456789abc";
const REQUEST: &str = "ask-0123456789abc";

/// The content of one request to a route, complete so that nothing but the namespace can be wrong with it.
#[derive(Clone, Default)]
struct Form {
    query: &'static str,
    json: Option<Value>,
    bytes: Option<&'static str>,
    is_upgrade: bool,
    /// A stream without end: only its head is read.
    is_endless: bool,
}

/// Routes about one sandbox. Everything else is in [`routes_about_none`].
fn routes_about_one() -> Vec<(Method, &'static str, Form)> {
    let plain = Form::default;
    let query = |query| Form { query, ..Form::default() };
    let with = |json: Value| Form { json: Some(json), ..Form::default() };
    let bytes = |query, bytes| Form { query, bytes: Some(bytes), ..Form::default() };
    let (get, post, put, delete) = (Method::GET, Method::POST, Method::PUT, Method::DELETE);
    vec![
        (get.clone(), "", plain()),
        (delete.clone(), "", query("force=true")),
        (post.clone(), "/connect", Form { query: "port=80", is_upgrade: true, ..Form::default() }),
        (post.clone(), "/code", with(json!({ "code": "1" }))),
        (get.clone(), "/execs/{exec}/outputs/{number}", plain()),
        (get.clone(), "/contexts", plain()),
        (post.clone(), "/contexts", with(json!({ "language": "python" }))),
        (delete.clone(), "/contexts/{context}", plain()),
        (post.clone(), "/contexts/{context}/fork", with(json!({}))),
        (post.clone(), "/contexts/{context}/reset", plain()),
        (get.clone(), "/languages", plain()),
        (post.clone(), "/drain", query("timeoutMs=1")),
        (get.clone(), "/execs", plain()),
        (post.clone(), "/execs", with(json!({ "command": ["true"] }))),
        (get.clone(), "/execs/{exec}", plain()),
        (post.clone(), "/execs/{exec}/again", plain()),
        (get.clone(), "/execs/{exec}/entries", plain()),
        (get.clone(), "/execs/{exec}/output", plain()),
        (post.clone(), "/execs/{exec}/resize", with(json!({ "rows": 9, "cols": 9 }))),
        (post.clone(), "/execs/{exec}/signal", with(json!({ "signal": 9 }))),
        (post.clone(), "/execs/{exec}/stdin", bytes("", "x")),
        (get.clone(), "/execs/{exec}/terminal", plain()),
        (get.clone(), "/execs/{exec}/wait", query("timeoutMs=1")),
        (get.clone(), "/output", query("q=kept")),
        (get.clone(), "/diff", plain()),
        (get.clone(), "/files/archive", query("path=/kept")),
        (put.clone(), "/files/archive", bytes("path=/", "")),
        (post.clone(), "/files/chmod", with(json!({ "path": "/kept", "mode": "0777" }))),
        (post.clone(), "/files/chown", with(json!({ "path": "/kept", "uid": 0 }))),
        (get.clone(), "/files/content", query("path=/kept")),
        (put, "/files/content", bytes("path=/kept", "x")),
        (post.clone(), "/files/copy", with(json!({ "from": "/kept", "to": "/made" }))),
        (get.clone(), "/files/glob", query("root=/&pattern=*")),
        (get.clone(), "/files/grep", query("root=/&pattern=red")),
        (get.clone(), "/files/link", query("path=/link")),
        (get.clone(), "/files/list", query("path=/")),
        (post.clone(), "/files/mkdir", with(json!({ "path": "/made" }))),
        (post.clone(), "/files/remove", with(json!({ "path": "/kept" }))),
        (post.clone(), "/files/rename", with(json!({ "from": "/kept", "to": "/made" }))),
        (get.clone(), "/files/stat", query("path=/kept")),
        (post.clone(), "/files/symlink", with(json!({ "target": "/kept", "path": "/made" }))),
        (get.clone(), "/files/watch", Form { query: "path=/", is_endless: true, ..Form::default() }),
        (post.clone(), "/fork", with(json!({}))),
        (post.clone(), "/links", with(json!({ "path": "/kept" }))),
        (get.clone(), "/package-jobs", plain()),
        (get.clone(), "/package-jobs/{job}", plain()),
        (get.clone(), "/package-jobs/{job}/wait", query("timeoutMs=1")),
        (get.clone(), "/packages", plain()),
        (post.clone(), "/packages", with(json!({ "packages": ["numpy"] }))),
        (post.clone(), "/pause", plain()),
        (get.clone(), "/ports", plain()),
        (post.clone(), "/ports", with(json!({ "port": 80 }))),
        (delete.clone(), "/ports/{port}", plain()),
        (get.clone(), "/network", plain()),
        (get.clone(), "/network/log", plain()),
        (get.clone(), "/network/hosts", plain()),
        (
            post.clone(),
            "/network/requests",
            with(json!({ "rules": ["api.example.org"], "reason": "a test" })),
        ),
        (get.clone(), "/network/requests/{request}", plain()),
        (post.clone(), "/network/requests/{request}/grant", with(json!({}))),
        (post.clone(), "/network/requests/{request}/refuse", with(json!({}))),
        (Method::PATCH, "", with(json!({ "name": "stolen" }))),
        (Method::PUT, "/network", with(json!({ "preset": "none" }))),
        (Method::PATCH, "/network", with(json!({ "preset": "none" }))),
        (get.clone(), "/processes", plain()),
        (post.clone(), "/renew", with(json!({ "ttlMs": 1 }))),
        (post.clone(), "/restart", query("graceMs=1")),
        (post.clone(), "/resume", plain()),
        (post.clone(), "/start", plain()),
        (post, "/stop", query("graceMs=1")),
        (get.clone(), "/usage", plain()),
        (get, "/wait", query("state=running&timeoutMs=1")),
    ]
}

/// The other routes, with what blue gets: a status, and where it is a success nothing of red's.
fn routes_about_none() -> Vec<(Method, &'static str, Form, u16)> {
    let with = |json: Value| Form { json: Some(json), ..Form::default() };
    let query = |query| Form { query, ..Form::default() };
    let (get, post) = (Method::GET, Method::POST);
    vec![
        (get.clone(), "/v1/calls", query("from=1&limit=10000"), 200),
        (get.clone(), "/v1/capabilities", Form::default(), 200),
        (get.clone(), "/v1/events", Form::default(), 200),
        (get.clone(), "/v1/health", Form::default(), 200),
        (get.clone(), "/v1/keys", Form::default(), 403),
        (post.clone(), "/v1/keys", with(json!({ "namespace": "red" })), 403),
        (Method::DELETE, "/v1/keys/{key}", Form::default(), 403),
        (get.clone(), "/v1/ssh-keys", Form::default(), 200),
        (post.clone(), "/v1/ssh-keys", with(json!({ "key": "red", "publicKey": "ssh-ed25519 AAAA" })), 403),
        (Method::DELETE, "/v1/ssh-keys/{key}", Form::default(), 404),
        (get.clone(), "/v1/network/requests", Form::default(), 200),
        (get.clone(), "/v1/links/{token}/{name}", Form::default(), 404),
        (get.clone(), "/v1/openapi.json", Form::default(), 200),
        (get.clone(), "/v1/sandboxes", Form::default(), 200),
        (get.clone(), "/v1/sandboxes", query("namespace=red"), 200),
        (post.clone(), "/v1/sandboxes", with(json!({ "namespace": "red" })), 403),
        (
            post.clone(),
            "/v1/runs",
            with(json!({ "sandbox": { "namespace": "red" }, "exec": { "command": ["true"] } })),
            403,
        ),
        (get.clone(), "/v1/version", Form::default(), 200),
        (get.clone(), "/v1/doctor", Form::default(), 403),
        (get.clone(), "/v1/fleet", Form::default(), 403),
        (get.clone(), "/v1/live", Form { is_endless: true, ..Form::default() }, 200),
        (get.clone(), "/v1/session", Form::default(), 200),
        (post.clone(), "/v1/session", with(json!({ "key": "wrn_0000000000000_x" })), 401),
        (Method::DELETE, "/v1/session", Form::default(), 204),
        // This daemon does not listen on TCP.
        (post.clone(), "/v1/session/once", Form::default(), 409),
        (post.clone(), "/v1/shares", with(json!({ "sandbox": "crimson", "namespace": "red" })), 404),
        (get.clone(), "/v1/shares", Form::default(), 200),
        (Method::DELETE, "/v1/shares/{share}", Form::default(), 404),
        // This daemon keeps no images. All namespaces would see the same, and none may name or remove one.
        (get.clone(), "/v1/images", Form::default(), 501),
        (get.clone(), "/v1/images/save", query("reference=alpine"), 501),
        (get.clone(), "/v1/images/usage", Form::default(), 501),
        (get.clone(), "/v1/images/{image}", Form::default(), 501),
        (Method::DELETE, "/v1/images/{image}", Form::default(), 403),
        (post.clone(), "/v1/images/build", query("tag=app"), 403),
        (post.clone(), "/v1/images/import", query("reference=app"), 403),
        (post.clone(), "/v1/images/load", Form::default(), 403),
        (post.clone(), "/v1/images/prune", Form::default(), 403),
        (post.clone(), "/v1/images/pull", with(json!({ "reference": "alpine" })), 501),
        (post.clone(), "/v1/images/{image}/tag", with(json!({ "target": "app" })), 403),
        (post.clone(), "/v1/images/{image}/push", with(json!({})), 403),
        (
            post.clone(),
            "/v1/images/login",
            with(json!({ "registry": "registry.invalid", "username": "a", "password": "b" })),
            403,
        ),
        // Red has one of that name; blue has none.
        (get.clone(), "/v1/snapshots", Form::default(), 200),
        (get.clone(), "/v1/snapshots", query("namespace=red"), 200),
        (post.clone(), "/v1/snapshots", with(json!({ "sandbox": "crimson", "namespace": "red" })), 404),
        (post.clone(), "/v1/snapshots/load", query("namespace=red"), 403),
        (post.clone(), "/v1/snapshots/reindex", Form::default(), 200),
        (get.clone(), "/v1/snapshots/{snapshot}", query("namespace=red"), 404),
        (Method::DELETE, "/v1/snapshots/{snapshot}", query("namespace=red"), 404),
        (get.clone(), "/v1/snapshots/{snapshot}/archive", query("namespace=red"), 404),
        (post.clone(), "/v1/snapshots/{snapshot}/restore", with(json!({})), 404),
        (post.clone(), "/v1/snapshots/{snapshot}/verify", query("namespace=red"), 404),
        (get.clone(), "/v1/secrets", Form::default(), 200),
        (get.clone(), "/v1/secrets", query("namespace=red"), 200),
        (get.clone(), "/v1/secrets/{secret}", Form::default(), 404),
        (get.clone(), "/v1/secrets/{secret}", query("namespace=red"), 404),
        (
            Method::PUT,
            "/v1/secrets/{secret}",
            Form {
                query: "namespace=red",
                json: Some(json!({ "rules": { "hosts": ["spy.example.org"] }, "value": "x" })),
                ..Form::default()
            },
            403,
        ),
        (Method::DELETE, "/v1/secrets/{secret}", query("namespace=red&force=true"), 403),
        (get.clone(), "/v1/volumes", Form::default(), 200),
        (get.clone(), "/v1/volumes", query("namespace=red"), 200),
        (post.clone(), "/v1/volumes", with(json!({ "name": "spy", "namespace": "red" })), 403),
        (get.clone(), "/v1/volumes/{volume}", Form::default(), 404),
        (get.clone(), "/v1/volumes/{volume}", query("namespace=red"), 404),
        (Method::DELETE, "/v1/volumes/{volume}", Form::default(), 404),
        (Method::DELETE, "/v1/volumes/{volume}", query("namespace=red"), 404),
        (get.clone(), "/v1/volumes/{volume}/files/content", query("path=/kept&namespace=red"), 404),
        (
            Method::PUT,
            "/v1/volumes/{volume}/files/content",
            Form { query: "path=/kept&namespace=red", bytes: Some("x"), ..Form::default() },
            404,
        ),
        (get.clone(), "/v1/volumes/{volume}/files/stat", query("path=/kept&namespace=red"), 404),
        (get.clone(), "/v1/volumes/{volume}/files/archive", query("path=/&namespace=red"), 404),
        (Method::PUT, "/v1/volumes/{volume}/files/archive", query("path=/&namespace=red"), 404),
        (get, "/v1/volumes/{volume}/files/list", query("path=/&namespace=red"), 404),
        (post.clone(), "/v1/volumes/{volume}/files/mkdir", with(json!({ "path": "/made" })), 404),
        (post.clone(), "/v1/volumes/{volume}/files/remove", with(json!({ "path": "/kept" })), 404),
        (post.clone(), "/v1/volumes/{volume}/files/copy", with(json!({ "from": "/kept", "to": "/a" })), 404),
        (post, "/v1/volumes/{volume}/files/rename", with(json!({ "from": "/kept", "to": "/a" })), 404),
    ]
}

async fn send(api: &Api, method: &Method, path: &str, namespace: Option<&str>, form: &Form) -> Answer {
    let namespace = namespace.map(|namespace| format!("namespace={namespace}"));
    let query: Vec<_> =
        [form.query].into_iter().chain(namespace.as_deref()).filter(|q| !q.is_empty()).collect();
    let mut request = Request::builder().method(method).uri(format!("{path}?{}", query.join("&")));
    if form.is_upgrade {
        request = request.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "warren-stream");
    }
    let body = match (&form.json, form.bytes) {
        (Some(json), _) => {
            request = request.header(header::CONTENT_TYPE, "application/json");
            Body::from(json.to_string())
        }
        (None, bytes) => Body::from(bytes.unwrap_or_default()),
    };
    let request = request.body(body).unwrap();
    if form.is_endless {
        let response = api.open(request).await;
        if response.status().is_success() {
            return Answer {
                status: response.status(),
                headers: response.headers().clone(),
                bytes: "".into(),
            };
        }
        panic!("{method} {path}: {}", response.status());
    }
    api.send(request).await
}

/// A sandbox with a file, a link and a running exec.
struct Home {
    id: String,
    exec: String,
}

async fn furnish(api: &Api, name: &str) -> Home {
    let made = api.post("/v1/sandboxes", json!({ "name": name })).await.expect(201).json();
    let target = format!("/v1/sandboxes/{name}");
    let file = format!("{target}/files/content?path=/kept");
    api.send_bytes(Method::PUT, &file, SECRET).await.expect(200);
    let link = json!({ "target": SECRET, "path": "/link" });
    api.post(&format!("{target}/files/symlink"), link).await.expect(204);
    let context = json!({ "name": CONTEXT, "language": "python" });
    api.post(&format!("{target}/contexts"), context).await.expect(201);
    let spec = json!({ "command": ["sleep", "1000"], "stdin": true, "terminal": { "rows": 3, "cols": 3 } });
    let exec = api.post(&format!("{target}/execs"), spec).await.expect(201).json();
    let exec = exec["id"].as_str().unwrap().to_owned();
    let entries = Request::get(format!("{target}/execs/{exec}/entries?follow=true"));
    let mut entries = pieces(api.open(entries.body(Body::empty()).unwrap()).await);
    next_with(&mut entries, "started").await;
    Home { id: made["id"].as_str().unwrap().to_owned(), exec }
}

fn of(api: &Api, namespace: &str) -> Api {
    api.by(Principal::of_namespace(format!("key of {namespace}"), namespace.parse().unwrap()))
}

/// Everything that can be seen of red's sandbox by its owner.
async fn picture(red: &Api) -> Vec<Value> {
    let mut seen = Vec::new();
    for path in ["", "/execs", "/files/list?path=/", "/files/stat?path=/kept", "/processes", "/contexts"] {
        let mut value = red.get(&format!("/v1/sandboxes/crimson{path}")).await.expect(200).json();
        // Looking is a touch.
        value.as_object_mut().unwrap().remove("lastActiveAt");
        for (list, passing) in PASSING {
            let all = value.get_mut(list).and_then(Value::as_array_mut);
            for one in all.into_iter().flatten() {
                one.as_object_mut().unwrap().retain(|field, _| !passing.contains(&field.as_str()));
            }
        }
        seen.push(value);
    }
    seen.push(red.get("/v1/sandboxes/crimson/files/content?path=/kept").await.expect(200).text().into());
    seen.push(
        red.get("/v1/sandboxes").await.expect(200).json()["sandboxes"].as_array().unwrap().len().into(),
    );
    seen
}

#[tokio::test]
async fn every_route_of_the_document_is_walked() {
    let document = serde_json::to_value(frontends::rest::document()).unwrap();
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        described.extend(
            item.as_object().unwrap().keys().map(|method| format!("{} {path}", method.to_uppercase())),
        );
    }
    let one = routes_about_one()
        .into_iter()
        .map(|(method, tail, _)| format!("{method} /v1/sandboxes/{{sandbox}}{tail}"));
    let none = routes_about_none().into_iter().map(|(method, path, ..)| format!("{method} {path}"));
    let walked: BTreeSet<_> = one.chain(none).collect();
    assert_eq!(walked, described, "a new route must be added to the walk above");
}

#[tokio::test]
async fn nothing_of_another_namespace_is_seen_or_changed_by_any_route() {
    let api = Api::new().await;
    let (red, blue) = (of(&api, "red"), of(&api, "blue"));
    let (theirs, own) = (furnish(&red, "crimson").await, furnish(&blue, "azure").await);
    red.post("/v1/volumes", json!({ "name": "volume" })).await.expect(201);
    let rules = json!({ "hosts": ["red.example.org"] });
    api.put("/v1/secrets/secret?namespace=red", json!({ "rules": rules, "value": SECRET })).await.expect(200);
    if api.has(Capability::Pause) {
        red.post("/v1/snapshots", json!({ "sandbox": "crimson", "name": "snapshot" })).await.expect(201);
    }
    let kept = "/v1/volumes/volume/files/content?path=/kept";
    red.send_bytes(Method::PUT, kept, SECRET).await.expect(200);
    let before = picture(&red).await;

    for (method, tail, form) in routes_about_one() {
        let form = Form { is_endless: false, ..form };
        let ways = [
            (theirs.id.as_str(), None),
            (theirs.id.as_str(), Some("red")),
            (theirs.id.as_str(), Some("blue")),
            ("crimson", None),
            ("crimson", Some("red")),
        ];
        let tail = tail
            .replace("{exec}", &theirs.exec)
            .replace("{context}", CONTEXT)
            .replace("{number}", "1")
            .replace("{job}", JOB)
            .replace("{request}", REQUEST)
            .replace("{port}", "80");
        for (sandbox, namespace) in ways {
            let path = format!("/v1/sandboxes/{sandbox}{tail}");
            let answer = send(&blue, &method, &path, namespace, &form).await;
            answer.expect_error(404, "not_found");
        }
        // Nor by the door of its own sandbox.
        if tail.contains(&theirs.exec) {
            let path = format!("/v1/sandboxes/{}{tail}", own.id);
            send(&blue, &method, &path, None, &form).await.expect_error(404, "not_found");
        }
    }
    for (method, path, form, status) in routes_about_none() {
        let answer = send(&blue, &method, &path.replace("{key}", "red").replace(['{', '}'], ""), None, &form)
            .await
            .expect(status);
        let text = answer.text();
        for what in [theirs.id.as_str(), theirs.exec.as_str(), SECRET, "crimson", "key of red"] {
            // A name that blue itself gave comes back to it.
            let names_it = ["/v1/snapshots", "/v1/shares"].contains(&path);
            let is_named = method == Method::POST && names_it && what == "crimson";
            let is_own_attempt = is_named || (path == "/v1/calls" && what != "key of red");
            assert!(is_own_attempt || !text.contains(what), "{method} {path} tells {what}: {text}");
        }
    }
    assert_eq!(picture(&red).await, before);
    assert_eq!(red.get(kept).await.expect(200).text(), SECRET);
}

#[tokio::test]
async fn the_same_requests_reach_what_is_ones_own() {
    let api = Api::new().await;
    let (red, can_pause) = (of(&api, "red"), api.has(Capability::Pause));
    for (n, (method, tail, form)) in routes_about_one().into_iter().enumerate() {
        let own = furnish(&red, &format!("own-{n}")).await;
        let tail = tail.replace("{exec}", &own.exec).replace("{context}", CONTEXT).replace("{number}", "1");
        let tail = tail.replace("{job}", JOB).replace("{port}", "80").replace("{request}", REQUEST);
        let path = format!("/v1/sandboxes/{}{tail}", own.id);
        let status = send(&red, &method, &path, None, &form).await.status.as_u16();
        // Nobody listens there, no port is exposed, there is no index and no job, and the command shows nothing;
        // everything else is done, or is not possible in this state.
        let is_packages = tail.contains(JOB) || (method == Method::POST && tail == "/packages");
        let is_missing = tail == "/connect"
            || tail == "/ports/80"
            || tail.ends_with("/outputs/1")
            || is_packages
            || tail.contains(REQUEST);
        // It is there, and was not asked for as a WebSocket.
        let is_plain = tail.ends_with("/terminal") && status == 400;
        let is_impossible = status == 501 && !can_pause && ["/fork", "/pause"].contains(&tail.as_str());
        let is_done = status < 300 || [409, 504].contains(&status);
        let is_reached = is_done || is_missing || is_impossible || is_plain;
        assert!(is_reached && ![401, 403].contains(&status), "{method} {path}: {status}");
        // The names that it held are for the next one; perhaps this request removed it.
        red.delete(&format!("/v1/sandboxes/{}?force=true", own.id)).await;
    }
    let made = red.post("/v1/sandboxes", json!({})).await.expect(201).json();
    assert_eq!(made["namespace"], "red", "who names no namespace means its own");
    let other = red.post("/v1/sandboxes", json!({ "namespace": "default" })).await;
    assert!(other.expect_error(403, "denied")["hint"].as_str().unwrap().contains("red"));
}
