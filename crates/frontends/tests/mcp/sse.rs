//! The older transport: one stream to read, one address to post to.

use axum::{body::Body, http::Request};
use frontends::dialects;
use serde_json::{Value, json};

use crate::support::{Events, Server, call, hello, posted, request};

async fn open(server: &Server, target: &str) -> (Events, String) {
    let request = Request::get(target).body(Body::empty()).unwrap();
    let mut events = Events::new(server.open(request).await);
    let first = events.next().await.unwrap();
    assert_eq!(first.event.as_deref(), Some("endpoint"));
    (events, first.data)
}

async fn say(server: &Server, endpoint: &str, message: Value) {
    let answer = server.ask(endpoint, message).await;
    assert_eq!(answer.status.as_u16(), 202, "{answer:?}");
}

#[tokio::test]
async fn a_session_lasts_as_long_as_its_stream() {
    let server = Server::new().await;
    let (mut events, endpoint) = open(&server, "/sse?toolsets=core,files").await;
    say(&server, &endpoint, hello("2024-11-05")).await;
    assert_eq!(events.answer(0).await["result"]["protocolVersion"], "2024-11-05");
    say(&server, &endpoint, json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    say(&server, &endpoint, request(1, "tools/list", json!({}))).await;
    assert!(events.answer(1).await.to_string().contains("sandbox_fs_tree"));
    say(&server, &endpoint, call(2, "toolset_enable", json!({ "toolsets": ["logs"] }))).await;
    events.note("notifications/tools/list_changed").await;

    let text = request(5, "tools/call", json!({ "name": "sandbox_list", "arguments": "{}" }));
    say(&server, &endpoint, text).await;
    assert_eq!(events.answer(5).await["result"]["structuredContent"]["ok"], true);

    let refused = server.send(posted(&endpoint, request(3, "ping", json!({})), &[("who", "eve")])).await;
    assert_eq!(refused.status.as_u16(), 404, "{refused:?}");
    let wrong = server.send(Request::post(&endpoint).body(Body::from("{")).unwrap()).await;
    assert_eq!(wrong.status.as_u16(), 400, "{wrong:?}");
    let nowhere = server.ask("/messages", request(3, "ping", json!({}))).await;
    assert_eq!(nowhere.status.as_u16(), 400, "{nowhere:?}");
    drop(events);
    assert_eq!(server.ask(&endpoint, request(4, "ping", json!({}))).await.status.as_u16(), 404);
}

#[tokio::test]
async fn a_client_that_showed_its_key_in_the_address_is_given_it_back() {
    let server = Server::new().await;
    let (_events, endpoint) = open(&server, "/sse?api_key=wrn_abc%2D1&toolsets=core").await;
    assert!(
        endpoint.starts_with("/messages?sessionId=") && endpoint.ends_with("&api_key=wrn_abc%2D1"),
        "{endpoint}"
    );
    let (_events, endpoint) = open(&server, "/sse").await;
    assert!(!endpoint.contains("api_key"), "{endpoint}");
}

#[tokio::test]
async fn every_dialect_has_a_stream_of_its_own() {
    let server = Server::new().await;
    for name in dialects::names() {
        let (mut events, endpoint) = open(&server, &format!("/sse/{name}")).await;
        say(&server, &endpoint, hello("2024-11-05")).await;
        let greeting = events.answer(0).await;
        assert_eq!(greeting["result"]["protocolVersion"], "2024-11-05", "{name}: {greeting}");
        say(&server, &endpoint, json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        say(&server, &endpoint, request(1, "tools/list", json!({}))).await;
        // The same list as at the dialect's address for streamable HTTP.
        let listed = events.answer(1).await["result"]["tools"].clone();
        let path = format!("/mcp/{name}");
        let there = server.ask(&path, request(1, "tools/list", json!({}))).await.json();
        assert_eq!(listed, there["result"]["tools"], "{name}");

        let (tool, arguments) = match name {
            "microsandbox" => ("sandbox_get_metrics", json!({ "namespace": "default" })),
            "mcp-sandbox" => ("list_sandboxes", json!({})),
            _ => ("sandbox_list", json!({})),
        };
        say(&server, &endpoint, call(2, tool, arguments)).await;
        let answer = events.answer(2).await;
        assert!(answer["result"].is_object() && answer["result"]["isError"] != true, "{name}: {answer}");
    }
}
