use axum::{
    body::Body,
    http::{Method, Request, header},
};
use sandbox::{BackendError, SandboxId};
use serde_json::json;

use crate::support::Api;

#[tokio::test]
async fn routes_that_are_not_there_are_json_too() {
    let api = Api::new().await;
    for target in ["/", "/v1", "/v1/", "/v1/nope", "/v2/sandboxes", "/v1/sandboxes/a/b/c"] {
        api.get(target).await.expect_error(404, "not_found");
    }
    for (target, methods) in [
        ("/v1/health", "GET,HEAD"),
        ("/v1/sandboxes/a/stop", "POST"),
        ("/v1/sandboxes/a/files/content", "GET,HEAD,PUT"),
    ] {
        let answer = api.delete(target).await;
        assert_eq!(answer.headers[header::ALLOW], methods, "{target}");
        let error = answer.expect_error(405, "not_found");
        assert!(error["message"].as_str().unwrap().contains(&format!("DELETE {target}")), "{error}");
    }
}

#[tokio::test]
async fn each_kind_that_a_caller_can_cause_has_its_status() {
    let api = Api::with_box().await;
    api.post("/v1/sandboxes", json!({ "name": "../x" })).await.expect_error(400, "invalid_request");
    api.get("/v1/sandboxes/none").await.expect_error(404, "not_found");
    api.post("/v1/sandboxes", json!({ "name": "box" })).await.expect_error(409, "already_exists");
    api.act("/v1/sandboxes/box/resume").await.expect_error(409, "wrong_state");
    api.post("/v1/sandboxes", json!({ "image": "alpine" })).await.expect_error(501, "unsupported");
    api.get("/v1/sandboxes/box/wait?state=failed&timeoutMs=1").await.expect_error(504, "timed_out");

    let fail = |error| api.backend.fail_next_create(error);
    fail(BackendError::Exhausted { what: "out of processes".to_owned(), next: None });
    let full = api.post("/v1/sandboxes", json!({})).await;
    assert!([429, 503].contains(&full.status.as_u16()), "{full:?}");
    fail(BackendError::Failed { what: "it broke".to_owned(), source: Some("a secret cause".into()) });
    let broken = api.post("/v1/sandboxes", json!({})).await;
    assert!(broken.status.is_server_error(), "{broken:?}");
    assert!(!broken.text().contains("a secret cause"), "the source is for the log: {broken:?}");
    fail(BackendError::Gone(SandboxId::from_random([1; 8])));
    assert!(!api.post("/v1/sandboxes", json!({})).await.status.is_success());
}

#[tokio::test]
async fn bodies_are_bounded_strict_and_json() {
    let api = Api::new().await;
    // A new sandbox brings its patches along, which may have 8 MiB.
    for (route, n_mib, limit) in [("/v1/volumes", 5, "4194304"), ("/v1/sandboxes", 17, "16777216")] {
        let long = format!("{{\"name\": \"{}\"}}", "x".repeat(n_mib * 1024 * 1024));
        let request = Request::post(route).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(long)).unwrap();
        let error = api.send(request).await.expect_error(429, "limit_reached");
        assert!(error["message"].as_str().unwrap().contains(limit), "{error}");
    }
    let content = "x".repeat(7 * 1024 * 1024);
    let patch = json!({ "kind": "text", "path": "/srv/large", "content": content });
    let made = api.post("/v1/sandboxes", json!({ "patches": [patch] })).await.expect(201).json();
    let stat = format!("/v1/sandboxes/{}/files/stat?path=/srv/large", made["id"].as_str().unwrap());
    assert_eq!(api.get(&stat).await.expect(200).json()["size"], content.len());
    api.delete(&format!("/v1/sandboxes/{}?force=true", made["id"].as_str().unwrap())).await.expect(204);
    let plain =
        api.send_bytes(Method::POST, "/v1/sandboxes", "{}").await.expect_error(400, "invalid_request");
    assert!(plain["hint"].as_str().unwrap().contains("application/json"));
    for (body, named) in [
        ("", "EOF"),
        ("{", "EOF"),
        ("[]", "object"),
        ("{\"colour\":1}", "colour"),
        ("{\"limits\":{\"memory\":-1}}", "-1"),
        ("{\"limits\":{\"cpus\":1e99}}", "cpus"),
        ("{\"lifetime\":{\"ttl\":1}}", "ttl"),
        ("\u{0}", "object"),
    ] {
        let request =
            Request::post("/v1/sandboxes").header(header::CONTENT_TYPE, "application/json; charset=utf-8");
        let error =
            api.send(request.body(Body::from(body)).unwrap()).await.expect_error(400, "invalid_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body:?}: {error}");
    }
    assert!(api.backend.live().is_empty());
    // Python writes whole numbers like this after a division.
    let asked = json!({ "lifetime": { "ttlMs": 30000.0 }, "limits": { "cpus": 1.0 } });
    let made = api.post("/v1/sandboxes", asked).await.expect(201).json();
    assert_eq!(made["lifetime"]["ttlMs"], 30000);
}

#[tokio::test]
async fn names_that_are_no_names_are_refused() {
    let api = Api::new().await;
    for name in ["..", "%2e%2e", "a%2Fb", "a%20b", "%00", "%ff", "na%C3%AFve", &"x".repeat(64)] {
        let answer = api.get(&format!("/v1/sandboxes/{name}")).await;
        assert!([400, 404].contains(&answer.status.as_u16()), "{name}: {answer:?}");
        assert!(answer.json()["error"]["kind"].is_string());
    }
    let long = "y".repeat(10_000);
    let error = api.post("/v1/sandboxes", json!({ "name": long })).await.expect_error(400, "invalid_request");
    assert!(error["message"].as_str().unwrap().contains("10000"), "{error}");
    for exec in ["x", "exc-..%2f", "sbx-0000000000000"] {
        api.get(&format!("/v1/sandboxes/a/execs/{exec}")).await.expect_error(404, "not_found");
    }
}

#[tokio::test]
async fn a_request_has_one_id() {
    let api = Api::new().await;
    let given =
        Request::get("/v1/sandboxes/none").header("x-request-id", "mine-1").body(Body::empty()).unwrap();
    let answer = api.send(given).await;
    assert_eq!(answer.headers["x-request-id"], "mine-1");
    assert_eq!(answer.expect_error(404, "not_found")["requestId"], "mine-1");
    let (first, second) = (api.get("/v1/health").await, api.get("/v1/health").await);
    assert_ne!(first.headers["x-request-id"], second.headers["x-request-id"]);
}

#[tokio::test]
async fn queries_are_strict() {
    let api = Api::with_box().await;
    for query in ["force=perhaps", "forse=true", "namespace=..", "force=true&force=false"] {
        let answer = api.delete(&format!("/v1/sandboxes/box?{query}")).await;
        answer.expect_error(400, "invalid_request");
    }
    api.act("/v1/sandboxes/box/stop?graceMs=-1").await.expect_error(400, "invalid_request");
    api.get("/v1/sandboxes/box/wait?state=asleep").await.expect_error(400, "invalid_request");
}
