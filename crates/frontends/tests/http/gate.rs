use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, request::Parts},
    routing::post,
};
use engine::{CallFilter, Principal};
use frontends::http::{Authenticate, Gate, Hosts};
use futures_util::{FutureExt as _, future::BoxFuture};
use sandbox::{KeyFormat, KeySpec};
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::support::{PATIENCE, Server, Setup};

async fn with_keys() -> Server {
    Server::start(Setup { has_keys: true, ..Setup::default() }).await
}

#[tokio::test]
async fn only_a_key_opens_the_door() {
    let server = with_keys().await;
    let refused = server.get("/v1/sandboxes").await;
    assert_eq!(refused.header("www-authenticate"), Some("bearer realm=\"warren\""));
    let error = refused.expect_error(401, "unauthenticated");
    assert!(error["hint"].as_str().unwrap().contains("warren key create"), "{error}");
    server.get_with("/v1/sandboxes", "wrong").await.expect_error(401, "unauthenticated");
    // Not even the routes are told.
    server.get("/v1/openapi.json").await.expect_error(401, "unauthenticated");
    server.get("/nothing").await.expect_error(401, "unauthenticated");

    let key = server.new_key("ci").await;
    assert_eq!(
        server.get_with("/v1/sandboxes", &key).await.expect(200).json()["sandboxes"],
        serde_json::json!([])
    );
    server.get(&format!("/v1/sandboxes?api_key={key}")).await.expect(200);
    server.engine.revoke_key(&Principal::operator("test"), "ci").await.unwrap();
    server.get_with("/v1/sandboxes", &key).await.expect_error(401, "unauthenticated");
    server.end().await;
}

#[tokio::test]
async fn those_without_a_key_are_told_that_it_lives_and_no_more() {
    let server = with_keys().await;
    let anonymous = server.get("/v1/health").await.expect(200).json();
    assert_eq!(anonymous, serde_json::json!({ "status": "ok" }));
    let key = server.new_key("ci").await;
    let known = server.get_with("/v1/health", &key).await.expect(200).json();
    assert_eq!(known["pid"], std::process::id());
    let welcome = server.get("/").await.expect(200).json();
    assert_eq!((&welcome["name"], &welcome["links"]["mcp"]), (&"warren".into(), &"/mcp".into()));
    server.ask(&["POST / HTTP/1.1", "host: localhost", "content-length: 0"]).await.expect(401);
    server.end().await;
}

#[tokio::test]
async fn a_name_that_was_bent_to_us_is_refused() {
    let server = Server::dev().await;
    let own = format!("host: {}", server.address);
    for host in ["host: localhost", "HOST: LOCALHOST:99", "host: [::1]:5555", &own] {
        server.ask(&["GET /v1/sandboxes HTTP/1.1", host]).await.expect(200);
    }
    for host in ["host: evil.example", "host: evil.example:5555", "host: me@localhost", "host:", "x: y"] {
        for version in ["HTTP/1.1", "HTTP/1.0"] {
            let answer = server.ask(&[&format!("GET /v1/sandboxes {version}"), host]).await;
            assert!(answer.expect_error(403, "denied")["hint"].is_string());
        }
    }
    // Neither health nor the first page is an exception.
    server.ask(&["GET / HTTP/1.1", "host: evil.example"]).await.expect(403);
    server.ask(&["GET /v1/health HTTP/1.1", "host: evil.example"]).await.expect(403);
    server.ask(&["GET http://evil.example/v1/health HTTP/1.1", "host: localhost"]).await.expect(403);
    server.ask(&["GET /v1/health HTTP/1.1", "host: localhost", "host: evil.example"]).await.expect(403);
    server.end().await;
}

#[tokio::test]
async fn a_hostile_page_is_refused_and_an_allowed_one_is_told_so() {
    let hosts = Hosts { allowed_origins: vec!["https://app.example".parse().unwrap()], ..Hosts::default() };
    let server = Server::start(Setup { hosts, ..Setup::default() }).await;
    let get = async |origin: &str| {
        server.ask(&["GET /v1/sandboxes HTTP/1.1", "host: localhost:5555", origin]).await
    };
    for origin in ["origin: https://evil.example", "origin: null", "origin: http://localhost:3000"] {
        let refused = get(origin).await;
        assert_eq!(refused.header("access-control-allow-origin"), None);
        let error = refused.expect_error(403, "denied");
        assert!(error["hint"].as_str().unwrap().contains("--allowed-origin"), "{error}");
    }
    get("origin: http://localhost:5555").await.expect(200);
    let allowed = get("origin: https://app.example").await.expect(200);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example"));
    assert!(allowed.header("access-control-expose-headers").unwrap().contains("mcp-session-id"));

    let preflight = async |origin: &str| {
        let method = "access-control-request-method: POST";
        server.ask(&["OPTIONS /mcp HTTP/1.1", "host: localhost:5555", origin, method]).await
    };
    let asked = preflight("origin: https://app.example").await.expect(204);
    assert!(asked.header("access-control-allow-headers").unwrap().contains("authorization"));
    preflight("origin: https://evil.example").await.expect(403);
    server.end().await;
}

#[tokio::test]
async fn a_page_can_read_why_it_was_refused() {
    let hosts = Hosts { allowed_origins: vec!["https://app.example".parse().unwrap()], ..Hosts::default() };
    let server = Server::start(Setup { has_keys: true, hosts, ..Setup::default() }).await;
    let origin = "origin: https://app.example";
    let refused = server.ask(&["GET /v1/sandboxes HTTP/1.1", "host: localhost", origin]).await;
    assert_eq!(refused.header("access-control-allow-origin"), Some("https://app.example"));
    refused.expect_error(401, "unauthenticated");
    server.end().await;
}

#[tokio::test]
async fn a_revoked_key_ends_its_streams() {
    let server = with_keys().await;
    let key = server.new_key("ci").await;
    let bearer = format!("authorization: Bearer {key}");
    let mut events = server.connect().await;
    let accept = "accept: text/event-stream";
    events.send(&["GET /v1/events?follow=true HTTP/1.1", "host: localhost", &bearer, accept]).await;
    events.answer().await.expect(200);
    server.engine.revoke_key(&Principal::operator("test"), "ci").await.unwrap();
    // A chunked body that ends as it should.
    let mut bytes = Vec::new();
    events.read_until(&mut bytes, |bytes| bytes.ends_with(b"0\r\n\r\n")).await;
    server.end().await;
}

/// Lets everybody in until it is told otherwise.
#[derive(Debug)]
struct Until(CancellationToken);

impl Authenticate for Until {
    fn authenticate<'a>(&'a self, _: &'a Parts) -> BoxFuture<'a, sandbox::Result<Principal>> {
        async { Ok(Principal::operator("ana")) }.boxed()
    }

    fn ended(&self, _: &Principal) -> BoxFuture<'static, ()> {
        self.0.clone().cancelled_owned().boxed()
    }
}

#[tokio::test]
async fn a_request_does_not_outlast_its_key() {
    let server = Server::dev().await;
    let revoked = CancellationToken::new();
    let has_begun = revoked.clone();
    let slow = post(|| async move {
        has_begun.cancel();
        std::future::pending::<()>().await;
    });
    let gate = Gate::unix(server.engine.clone(), Arc::new(Until(revoked)));
    let app = frontends::http::app(Router::new().route("/slow", slow), gate);
    let answer = app.oneshot(Request::post("/slow").body(Body::empty()).unwrap());
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("an answer in time").unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    server.end().await;
}

#[tokio::test]
async fn strangers_that_name_another_host_leave_nothing_in_the_audit() {
    let server = with_keys().await;
    server.ask(&["POST /v1/sandboxes HTTP/1.1", "host: evil.example"]).await.expect(403);
    let evil = "origin: https://evil.example";
    server.ask(&["POST /v1/sandboxes HTTP/1.1", "host: localhost", evil]).await.expect(403);
    let calls = server.engine.calls(&Principal::operator("test"), CallFilter::default()).await.unwrap();
    assert!(calls.is_empty(), "{calls:?}");
    server.end().await;
}

#[tokio::test]
async fn an_expired_key_ends_its_streams() {
    let server = with_keys().await;
    let spec = sandbox::KeySpec { expires_in: Some(Duration::from_secs(1)), ..Default::default() };
    let key = server.engine.create_key(&Principal::operator("test"), spec).await.unwrap().secret;
    let mut events = server.connect().await;
    let target = format!("GET /v1/events?follow=true&api_key={key} HTTP/1.1");
    events.send(&[&target, "host: localhost"]).await;
    events.answer().await.expect(200);
    events.rest().await;
    server.end().await;
}

/// A method of microsandbox's route, with these further lines in the head of the request.
async fn rpc(server: &Server, lines: &[&str], namespace: &str) -> (u16, serde_json::Value) {
    let params = serde_json::json!({ "namespace": namespace });
    let message =
        serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.metrics.get", "params": params });
    let body = message.to_string();
    let length = format!("content-length: {}", body.len());
    let head = ["POST /api/v1/rpc HTTP/1.1", "host: localhost", "content-type: application/json", &length];
    let mut client = server.connect().await;
    client.send(&[&head[..], lines].concat()).await;
    client.0.write_all(body.as_bytes()).await.unwrap();
    let answer = client.answer().await;
    (answer.status(), answer.json())
}

#[tokio::test]
async fn clients_of_microsandbox_bring_their_own_sort_of_key() {
    let server = with_keys().await;
    let owner = Principal::operator("test");
    let spec = KeySpec {
        label: Some("sdk".to_owned()),
        namespace: Some("blue".parse().unwrap()),
        format: KeyFormat::Msb,
        ..KeySpec::default()
    };
    let key = server.engine.create_key(&owner, spec).await.unwrap().secret;
    assert!(key.starts_with("msb_"), "{key}");
    for line in [
        format!("authorization: Bearer {key}"),
        format!("authorization: {key}"),
        format!("proxy-authorization: Bearer {key}"),
        format!("proxy-authorization: {key}"),
    ] {
        let (status, answer) = rpc(&server, &[&line], "blue").await;
        assert_eq!(
            (status, &answer["result"]["sandboxes"]),
            (200, &serde_json::json!([])),
            "{line}: {answer}"
        );
    }
    // The other routes take it as they take any key, and in no other way.
    server.get_with("/v1/sandboxes", &key).await.expect(200);
    let bare = format!("authorization: {key}");
    server
        .ask(&["GET /v1/sandboxes HTTP/1.1", "host: localhost", &bare])
        .await
        .expect_error(401, "unauthenticated");

    let own = format!("authorization: Bearer {key}");
    let (status, answer) = rpc(&server, &[&own], "green").await;
    assert_eq!((status, &answer["code"]), (403, &3001.into()), "{answer}");
    let (status, answer) = rpc(&server, &[], "blue").await;
    assert_eq!((status, &answer["code"], answer["error"].is_string()), (401, &1001.into(), true), "{answer}");
    // The first header counts, even if the second would do.
    let mut forged = key.clone();
    forged.replace_range(key.len() - 4.., "AAAA");
    for wrong in ["msb_e30.e30.e30", "nonsense", &forged] {
        let lines = [format!("proxy-authorization: Bearer {wrong}"), own.clone()];
        let (status, answer) = rpc(&server, &[&lines[0], &lines[1]], "blue").await;
        assert_eq!((status, &answer["code"]), (401, &1004.into()), "{wrong}: {answer}");
        assert!(!answer.to_string().contains(wrong), "{answer}");
    }
    server.engine.revoke_key(&owner, "sdk").await.unwrap();
    let (status, answer) = rpc(&server, &[&own], "blue").await;
    assert_eq!((status, &answer["code"]), (401, &1004.into()), "{answer}");

    let health = server.get("/api/v1/health").await.expect(200).json();
    assert_eq!(health, serde_json::json!({ "message": "Service is healthy" }));
    let nothing = server.get("/api/v1/nothing").await.expect(401).json();
    assert_eq!(nothing["code"], 1001, "{nothing}");
    server.end().await;
}
