use axum::{
    body::Body,
    http::{Request, header},
};
use frontends::http::KeyAuth;
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::support::{Api, PATIENCE, next_with, pieces};

async fn make(api: &Api, request: Value) -> (Value, String) {
    let made = api.post("/v1/keys", request).await.expect(201).json();
    (made["key"].clone(), made["secret"].as_str().unwrap().to_owned())
}

fn bearer(target: &str, secret: &str) -> Request<Body> {
    let request = Request::get(target).header(header::AUTHORIZATION, format!("Bearer {secret}"));
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_key_is_made_listed_and_revoked() {
    let api = Api::new().await;
    let request = json!({
        "label": "ci", "namespace": "blue", "expiresInMs": 3_600_000, "maxSandboxes": 2, "maxMemory": 1 << 30,
        "readOnly": true
    });
    let (key, secret) = make(&api, request).await;
    assert_eq!(
        (&key["label"], &key["namespace"], &key["readOnly"]),
        (&json!("ci"), &json!("blue"), &json!(true))
    );
    assert_eq!((&key["maxSandboxes"], &key["maxMemory"]), (&json!(2), &json!(1 << 30)));
    assert!(key["expiresAt"].is_string() && key["lastUsedAt"].is_null(), "{key}");
    let listed = api.get("/v1/keys").await.expect(200);
    assert_eq!(listed.json()["keys"], json!([key]));
    assert!(!listed.text().contains(&secret[18..]), "told once");

    let revoked = api.delete("/v1/keys/ci").await.expect(200).json();
    assert!(revoked["revokedAt"].is_string(), "{revoked}");
    api.delete("/v1/keys/nobody").await.expect_error(404, "not_found");
    let (second, _) = make(&api, json!({ "label": "ci" })).await;
    assert_eq!(second["namespace"], "default", "one namespace unless all are asked for");
    api.post("/v1/keys", json!({ "label": "ci" })).await.expect_error(409, "already_exists");
    let (all, _) = make(&api, json!({ "allNamespaces": true })).await;
    assert!(all["namespace"].is_null(), "{all}");
    for bad in [
        json!({ "namespace": "red", "allNamespaces": true }),
        json!({ "label": "a b" }),
        json!({ "expiresInMs": 0 }),
        json!({ "secret": "mine" }),
        json!({ "maxSandboxes": -1 }),
    ] {
        api.post("/v1/keys", bad).await.expect_error(400, "invalid_request");
    }
}

#[tokio::test]
async fn a_key_opens_by_header_and_by_query() {
    let api = Api::with_box().await;
    let (_, secret) = make(&api, json!({ "label": "ci" })).await;
    let door = api.through(KeyAuth::new(api.engine.clone()));
    let listed = door.send(bearer("/v1/sandboxes", &secret)).await.expect(200).json();
    assert_eq!(listed["sandboxes"][0]["name"], "box");
    // Routes take no parameter that they do not know; this one never reaches them.
    let by_query = door.get(&format!("/v1/sandboxes/box?api_key={secret}&namespace=default")).await;
    assert_eq!(by_query.expect(200).json()["name"], "box");
    let both = bearer(&format!("/v1/sandboxes?api_key={secret}"), &secret);
    door.send(both).await.expect(200);

    let differing = bearer(&format!("/v1/sandboxes?api_key={secret}x"), &secret);
    let without = Request::get("/v1/sandboxes").body(Body::empty()).unwrap();
    let basic = Request::get("/v1/sandboxes").header(header::AUTHORIZATION, "Basic dXNlcjpwYXNz");
    // No secret ends in a B: the last character stands for four bits and two zeros.
    let wrong = bearer("/v1/sandboxes", &format!("{}B", &secret[..60]));
    for request in [differing, without, basic.body(Body::empty()).unwrap(), wrong] {
        let error = door.send(request).await.expect_error(401, "unauthenticated");
        assert!(error["hint"].as_str().unwrap().contains("warren key create"), "{error}");
        assert!(!error.to_string().contains(&secret[18..]), "{error}");
    }
    // Even a route that is not there tells nothing to a stranger.
    door.get("/v1/nothing").await.expect_error(401, "unauthenticated");
    api.delete("/v1/keys/ci").await.expect(200);
    let error = door.send(bearer("/v1/sandboxes", &secret)).await.expect_error(401, "unauthenticated");
    assert!(error["message"].as_str().unwrap().contains("revoked"), "{error}");
}

#[tokio::test]
async fn a_key_manages_no_keys_and_keeps_to_its_bounds() {
    let api = Api::new().await;
    let door = api.through(KeyAuth::new(api.engine.clone()));
    let (_, root) = make(&api, json!({ "allNamespaces": true })).await;
    door.send(bearer("/v1/keys", &root)).await.expect_error(403, "denied");
    let (_, small) = make(&api, json!({ "namespace": "blue", "maxSandboxes": 1 })).await;
    let create = async || door.post(&format!("/v1/sandboxes?api_key={small}"), json!({})).await;
    let made = create().await.expect(201).json();
    assert_eq!(made["namespace"], "blue");
    assert!(made["owner"].as_str().unwrap().starts_with("key-"), "{made}");
    assert!(create().await.expect_error(429, "limit_reached")["hint"].is_string());
    let (_, reader) = make(&api, json!({ "namespace": "blue", "readOnly": true })).await;
    let name = made["name"].as_str().unwrap();
    door.send(bearer(&format!("/v1/sandboxes/{name}"), &reader)).await.expect(200);
    door.act(&format!("/v1/sandboxes/{name}/stop?api_key={reader}")).await.expect_error(403, "denied");
}

#[tokio::test]
async fn a_stream_ends_with_the_key_that_opened_it() {
    let api = Api::with_box().await;
    let (_, secret) = make(&api, json!({ "label": "ci" })).await;
    let door = api.through(KeyAuth::new(api.engine.clone()));
    let mut request = bearer("/v1/events?follow=true&from=1", &secret);
    request.headers_mut().insert(header::ACCEPT, "text/event-stream".parse().unwrap());
    let mut stream = pieces(door.open(request).await);
    next_with(&mut stream, "sandbox_created").await;
    let mut own = pieces(api.open(Request::get("/v1/events?follow=true").body(Body::empty()).unwrap()).await);
    api.delete("/v1/keys/ci").await.expect(200);
    let rest = tokio::time::timeout(PATIENCE, stream.collect::<Vec<_>>()).await;
    assert!(rest.is_ok(), "the stream goes on");
    api.act("/v1/sandboxes/box/stop?graceMs=1").await.expect(200);
    next_with(&mut own, "sandbox_stopped").await;
}
