//! Requests for more network than a policy allows, over HTTP.

use engine::Principal;
use serde_json::{Value, json};

use crate::support::Api;

const REQUESTS: &str = "/v1/sandboxes/box/network/requests";

async fn api() -> Api {
    let api = Api::with_network().await;
    api.post("/v1/sandboxes", json!({ "name": "box" })).await.expect(201);
    api
}

#[tokio::test]
async fn a_request_is_made_listed_granted_and_taken_back() {
    let api = api().await;
    let spec = json!({ "rules": ["api.example:443"], "reason": "to read the issue", "forSeconds": 600 });
    let agent = api.by(Principal::developer("agent"));
    let made = agent.post(REQUESTS, spec.clone()).await.expect(201).json();
    assert_eq!((&made["state"], &made["name"]), (&json!("pending"), &json!("box")), "{made:#}");
    let one = format!("{REQUESTS}/{}", made["id"].as_str().unwrap());
    assert_eq!(agent.get(&one).await.expect(200).json(), made);
    let pending = api.get("/v1/network/requests?pending=true").await.expect(200).json();
    // Whoever asked may not grant it; the daemon's owner may.
    assert_eq!(made["mayGrant"], false);
    let seen = |request: &Value, may_grant: bool| {
        let mut request = request.clone();
        request["mayGrant"] = json!(may_grant);
        request
    };
    assert_eq!(pending, json!({ "requests": [seen(&made, true)] }));

    agent.post(&format!("{one}/grant"), json!({})).await.expect_error(403, "denied");
    let waiting = {
        let (agent, one) = (agent.clone(), one.clone());
        tokio::spawn(async move { agent.get(&format!("{one}?waitMs=60000")).await.expect(200).json() })
    };
    let granted = api.post(&format!("{one}/grant"), json!({ "forSeconds": 60 })).await.expect(200).json();
    assert_eq!(granted["state"], "granted", "{granted:#}");
    assert_eq!(waiting.await.unwrap(), seen(&granted, false));
    let view = api.get("/v1/sandboxes/box/network").await.expect(200).json();
    assert_eq!(view["requests"][0]["until"], granted["until"], "{view:#}");
    let refused = api.post(&format!("{one}/refuse"), json!({ "reason": "enough" })).await.expect(200).json();
    assert_eq!((&refused["state"], &refused["answer"]), (&json!("refused"), &json!("enough")));
    api.post(&format!("{one}/grant"), json!({})).await.expect(409);
    let all = api.get("/v1/network/requests").await.expect(200).json();
    assert_eq!(all["requests"], json!([refused]));
    let calls = api.get("/v1/calls?from=1").await.expect(200);
    assert!(calls.text().contains("POST /v1/sandboxes/{sandbox}/network/requests/{request}/grant"));
}

#[tokio::test]
async fn bad_requests_are_refused_with_their_place() {
    let api = api().await;
    for (body, words) in [
        (json!({ "rules": [], "reason": "x" }), "rules: there are none"),
        (json!({ "rules": ["a b"], "reason": "x" }), "rules[0]: "),
        (json!({ "rules": ["a.example"], "reason": "" }), "reason: "),
        (json!({ "rules": ["a.example"], "reason": "x", "forSeconds": 0 }), "forSeconds: "),
        (json!({ "rules": ["a.example"] }), "reason"),
        (json!({ "rules": ["a.example"], "reason": "x", "preset": "all" }), "preset"),
        (json!([["a.example"], "x"]), ""),
    ] {
        let error = api.post(REQUESTS, body.clone()).await.expect_error(400, "invalid_request");
        assert!(error["message"].as_str().unwrap().contains(words), "{body}: {error:#}");
    }
    for id in ["nothing", "ask-0000000000000", "..%2F..%2Fx"] {
        for way in ["grant", "refuse"] {
            api.post(&format!("{REQUESTS}/{id}/{way}"), json!({})).await.expect_error(404, "not_found");
        }
        api.get(&format!("{REQUESTS}/{id}")).await.expect_error(404, "not_found");
    }
    assert_eq!(api.get("/v1/network/requests").await.expect(200).json(), json!({ "requests": [] }));
    let hosts = api.get("/v1/sandboxes/box/network/hosts").await.expect(200).json();
    assert_eq!(hosts["hosts"], json!([]), "nothing went anywhere: {hosts:#}");
}
