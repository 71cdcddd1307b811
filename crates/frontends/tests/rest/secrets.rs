use engine::Principal;
use serde_json::{Value, json};

use crate::support::Api;

const VALUE: &str = "ghp_the-value-0123456789";

fn request() -> Value {
    json!({ "rules": { "hosts": ["api.example.org"], "headers": ["X-Api-Key"], "methods": ["get"] }, "value": VALUE })
}

#[tokio::test]
async fn a_secret_goes_in_and_its_value_never_comes_out() {
    let api = Api::with_network().await;
    let set = api.put("/v1/secrets/TOKEN", request()).await.expect(200);
    let seen = api.get("/v1/secrets/TOKEN").await.expect(200);
    let listed = api.get("/v1/secrets").await.expect(200);
    assert_eq!((&set.json(), &listed.json()["secrets"][0]), (&seen.json(), &seen.json()));
    let rules = json!({ "hosts": ["api.example.org"], "headers": ["x-api-key"], "methods": ["GET"] });
    assert_eq!(seen.json()["rules"], rules);
    let spec = json!({ "name": "box", "secrets": ["TOKEN"], "network": { "allow": ["api.example.org"] } });
    let made = api.post("/v1/sandboxes", spec).await.expect(201);
    let id = made.json()["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(api.backend.held_secrets(&id).unwrap().secrets[0].value.expose(), VALUE);
    let placeholder = made.json()["env"]["TOKEN"].as_str().unwrap().to_owned();
    assert!(placeholder.starts_with("wrn-secret-"), "{placeholder}");
    let refused = api.delete("/v1/secrets/TOKEN").await.expect(409);
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("box"));
    let forced = api.delete("/v1/secrets/TOKEN?force=true").await.expect(204);
    assert!(api.backend.held_secrets(&id).unwrap().secrets.is_empty());
    api.get("/v1/secrets/TOKEN").await.expect(404);
    let missing = api.delete("/v1/secrets/TOKEN").await.expect(404);
    let calls = api.get("/v1/calls?from=1").await.expect(200);
    assert!(calls.text().contains("PUT /v1/secrets/{secret}"), "{}", calls.text());
    let events = api.get("/v1/events").await.expect(200);
    for answer in [set, seen, listed, made, refused, forced, missing, calls, events] {
        assert!(!answer.text().contains(VALUE), "{}", answer.text());
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_secret_is_told_without_its_value() {
    let api = Api::new().await;
    let rules = json!({ "hosts": ["api.example.org"] });
    for body in [
        json!({ "rules": rules }),
        json!({ "rules": {}, "value": VALUE }),
        json!({ "rules": { "hosts": [] }, "value": VALUE }),
        json!({ "rules": { "hosts": ["*.example.org"] }, "value": VALUE }),
        json!({ "rules": { "hosts": ["api.example.org"], "headers": ["host"] }, "value": VALUE }),
        json!({ "rules": rules, "value": "" }),
        json!({ "rules": rules, "value": format!("{VALUE}\n") }),
        json!({ "rules": rules, "value": [VALUE] }),
        json!({ "rules": rules, "value": 8_723_459_234_u64 }),
        json!({ "rules": rules, "value": VALUE, "more": 1 }),
    ] {
        let refused = api.put("/v1/secrets/TOKEN", body).await.expect(400);
        assert!(!refused.text().contains(VALUE) && !refused.text().contains("8723"), "{}", refused.text());
    }
    for name in ["1A", "A-B", "%2e%2e", &"A".repeat(65)] {
        api.put(&format!("/v1/secrets/{name}"), request()).await.expect(400);
    }
    let spec = |secrets: Value| json!({ "secrets": secrets, "network": { "preset": "public" } });
    for secrets in [json!([1]), json!(["A-B"]), json!([{ "name": "A", "value": VALUE }]), json!([{}])] {
        let refused = api.post("/v1/sandboxes", spec(secrets)).await.expect(400);
        assert!(!refused.text().contains(VALUE), "{}", refused.text());
    }
}

#[tokio::test]
async fn only_the_owner_sets_and_removes() {
    let api = Api::new().await;
    api.put("/v1/secrets/TOKEN", request()).await.expect(200);
    let stranger = api.by(Principal::of_namespace("key", Default::default()));
    stranger.get("/v1/secrets/TOKEN").await.expect(200);
    stranger.put("/v1/secrets/TOKEN", request()).await.expect_error(403, "denied");
    stranger.delete("/v1/secrets/TOKEN?force=true").await.expect_error(403, "denied");
}
