use axum::{
    body::Body,
    http::{Request, header},
};
use engine::Principal;
use frontends::http::{KeyAuth, Peer};
use serde_json::{Value, json};

use crate::support::{Api, OWNER, PATIENCE};

async fn calls(api: &Api) -> Vec<Value> {
    api.get("/v1/calls?from=1").await.expect(200).json()["calls"].as_array().unwrap().clone()
}

fn told(calls: &[Value]) -> Vec<(&str, Option<&str>)> {
    calls.iter().map(|call| (call["action"].as_str().unwrap(), call["error"].as_str())).collect()
}

#[tokio::test]
async fn what_changes_something_is_written_down_and_what_looks_is_not() {
    let api = Api::new().await;
    let request = Request::post("/v1/sandboxes").header(header::CONTENT_TYPE, "application/json");
    let request =
        request.header(header::USER_AGENT, "tester/1").body(Body::from("{\"name\":\"box\"}")).unwrap();
    api.send(request).await.expect(201);
    api.get("/v1/sandboxes/box").await.expect(200);
    api.get("/v1/sandboxes/none").await.expect(404);
    api.post("/v1/sandboxes/box/execs?wait=true", json!({ "command": ["true"] })).await.expect(201);
    api.act("/v1/sandboxes/box/resume").await.expect(409);
    api.delete("/v1/sandboxes/none?namespace=red").await.expect(404);
    api.act("/v1/nothing").await.expect(404);

    let calls = calls(&api).await;
    assert_eq!(
        told(&calls),
        [
            ("POST /v1/sandboxes", None),
            ("POST /v1/sandboxes/{sandbox}/execs", None),
            ("POST /v1/sandboxes/{sandbox}/resume", Some("wrong_state")),
            ("DELETE /v1/sandboxes/{sandbox}", Some("not_found")),
            ("POST /v1/nothing", Some("not_found")),
        ]
    );
    let first = &calls[0];
    assert_eq!((&first["sandbox"], &first["namespace"]), (&json!("box"), &json!("default")));
    assert_eq!((&first["client"], &first["frontend"]), (&json!("tester/1"), &json!("rest")));
    assert_eq!(first["who"], format!("uid {OWNER}"));
    assert!(first["at"].is_string() && first["durationMs"].is_number() && first["number"] == 1, "{first}");
    assert_eq!((&calls[1]["sandbox"], &calls[1]["namespace"]), (&json!("box"), &json!("default")));
    assert_eq!((&calls[3]["sandbox"], &calls[3]["namespace"]), (&json!("none"), &json!("red")));
}

#[tokio::test]
async fn refusals_are_written_down_whatever_was_asked() {
    let api = Api::with_box().await;
    let made = api.post("/v1/keys", json!({ "label": "ci", "readOnly": true })).await.expect(201).json();
    let (id, secret) = (made["key"]["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    let door = api.through(KeyAuth::new(api.engine.clone()));
    door.get("/v1/sandboxes/box").await.expect(401);
    door.act(&format!("/v1/sandboxes/box/stop?api_key={secret}")).await.expect(403);
    door.get(&format!("/v1/keys?api_key={secret}")).await.expect(403);
    door.get(&format!("/v1/sandboxes?api_key={secret}")).await.expect(200);
    let mut stranger = api.clone();
    stranger.peer = Peer::Unix { uid: OWNER + 1, pid: None };
    stranger.get("/v1/health").await.expect(403);
    api.delete("/v1/keys/ci").await.expect(200);

    let all = api.get("/v1/calls?from=2").await.expect(200);
    let calls = all.json()["calls"].as_array().unwrap().clone();
    let (made, revoked) = (format!("POST /v1/keys ({id})"), format!("DELETE /v1/keys/{{key}} ({id})"));
    assert_eq!(
        told(&calls),
        [
            (made.as_str(), None),
            ("GET /v1/sandboxes/{sandbox}", Some("unauthenticated")),
            ("POST /v1/sandboxes/{sandbox}/stop", Some("denied")),
            ("GET /v1/keys", Some("denied")),
            ("GET /v1/health", Some("denied")),
            (revoked.as_str(), None),
        ]
    );
    assert!(calls[1]["who"].is_null() && calls[4]["who"].is_null(), "nobody knows who that was");
    assert_eq!((&calls[2]["who"], &calls[2]["key"]), (&json!("key ci"), &json!(id)));
    assert!(!all.text().contains(&secret[18..]));

    let by_key = api.get(&format!("/v1/calls?who={id}&limit=1")).await.expect(200).json();
    assert_eq!(by_key["calls"][0]["action"], "GET /v1/keys");
    api.get("/v1/calls?until=now").await.expect_error(400, "invalid_request");

    let search = async |query: &str| {
        let found = api.get(&format!("/v1/calls?{query}")).await.expect(200).json();
        let numbers = found["calls"].as_array().unwrap().iter().map(|call| call["number"].as_u64().unwrap());
        numbers.collect::<Vec<_>>()
    };
    assert_eq!(search("q=CI+denied").await, [4, 5], "each word, whatever its case");
    assert_eq!(search("q=ci&result=refused&limit=1&before=5").await, [4]);
    assert_eq!(search("q=sandboxes&result=done").await, [1]);
    api.get(&format!("/v1/calls?q={}", "x".repeat(300))).await.expect_error(400, "invalid_request");
    api.get("/v1/calls?result=maybe").await.expect_error(400, "invalid_request");
}

#[tokio::test]
async fn a_key_of_a_namespace_reads_the_calls_in_it() {
    let api = Api::new().await;
    let of = |namespace: &str| api.by(Principal::of_namespace(namespace, namespace.parse().unwrap()));
    let (red, blue) = (of("red"), of("blue"));
    red.post("/v1/sandboxes", json!({ "name": "box" })).await.expect(201);
    blue.act("/v1/sandboxes/box/stop?namespace=red").await.expect(404);
    api.act("/v1/sandboxes/box/stop?namespace=red&graceMs=1").await.expect(200);
    let of_red = calls(&red).await;
    assert_eq!(
        of_red.iter().map(|call| call["who"].as_str().unwrap()).collect::<Vec<_>>(),
        ["red", "uid 1000"]
    );
    assert_eq!(told(&calls(&blue).await), [("POST /v1/sandboxes/{sandbox}/stop", Some("not_found"))]);
    assert_eq!(calls(&api).await.len(), 3);
}

#[tokio::test]
async fn a_caller_who_leaves_before_the_answer_is_written_down_too() {
    let api = Api::with_box().await;
    let exec = json!({ "command": ["sleep", "1000"] }).to_string();
    let request =
        Request::post("/v1/sandboxes/box/execs?wait=true").header(header::CONTENT_TYPE, "application/json");
    let asking = api.open(request.body(Body::from(exec)).unwrap());
    let mut asking = Box::pin(asking);
    // Until the command runs, which it does not end.
    let has_begun = async {
        loop {
            tokio::select! {
                _ = &mut asking => panic!("answered"),
                execs = api.get("/v1/sandboxes/box/execs") => {
                    if execs.json()["execs"][0]["state"] == "running" {
                        return;
                    }
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, has_begun).await.unwrap();
    drop(asking);
    let is_told = async {
        loop {
            let calls = calls(&api).await;
            if let Some(call) = calls.get(1) {
                return call.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    let call = tokio::time::timeout(PATIENCE, is_told).await.unwrap();
    assert_eq!((&call["error"], &call["sandbox"]), (&json!("cancelled"), &json!("box")));
    assert_eq!(call["who"], format!("uid {OWNER}"));
}
