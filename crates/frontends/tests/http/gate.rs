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
