use sandbox::Capability;
use serde_json::{Value, json};

use crate::support::Api;

fn names(list: &Value) -> Vec<&str> {
    list["sandboxes"].as_array().unwrap().iter().map(|sandbox| sandbox["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_sandbox_goes_through_its_life() {
    let api = Api::new().await;
    let spec = json!({
        "name": "web", "labels": { "team": "red" }, "env": { "A": "1" },
        "limits": { "memory": 67_108_864, "cpus": 0.5 }, "lifetime": { "ttlMs": 3_600_000, "onExpiry": "remove" }
    });
    let made = api.post("/v1/sandboxes", spec).await.expect(201).json();
    assert_eq!((&made["state"], &made["image"]), (&json!("running"), &json!("host")));
    assert_eq!((&made["limits"]["memory"], &made["limits"]["cpus"]), (&json!(67_108_864), &json!(0.5)));
    assert_eq!(made["lifetime"]["onExpiry"], "remove");
    assert!(made["expiresAt"].is_string() && made["isolation"]["backend"] == "namespace", "{made}");

    let id = made["id"].as_str().unwrap();
    assert_eq!(api.get(&format!("/v1/sandboxes/{id}")).await.expect(200).json()["name"], "web");
    if api.has(Capability::Pause) {
        for (verb, state) in [("pause", "paused"), ("resume", "running")] {
            let after = api.act(&format!("/v1/sandboxes/web/{verb}")).await.expect(200).json();
            assert_eq!(after["state"], state, "{verb}");
        }
    }
    for (verb, state) in [
        ("stop?graceMs=100", "stopped"),
        ("stop", "stopped"),
        ("start", "running"),
        ("restart?graceMs=100", "running"),
        ("drain?timeoutMs=60000", "stopped"),
    ] {
        let after = api.act(&format!("/v1/sandboxes/web/{verb}")).await.expect(200).json();
        assert_eq!(after["state"], state, "{verb}");
    }
    let waited = api.get("/v1/sandboxes/web/wait?state=stopped&timeoutMs=60000").await.expect(200).json();
    assert_eq!(waited["state"], "stopped");
    api.get("/v1/sandboxes/web/wait?state=running&timeoutMs=10").await.expect_error(504, "timed_out");
    api.delete("/v1/sandboxes/web").await.expect(204);
    api.get("/v1/sandboxes/web").await.expect_error(404, "not_found");
    assert!(api.backend.live().is_empty());
}

#[tokio::test]
async fn what_runs_is_removed_only_by_force() {
    let api = Api::with_box().await;
    let error = api.delete("/v1/sandboxes/box").await.expect_error(409, "wrong_state");
    assert!(error["hint"].is_string());
    api.delete("/v1/sandboxes/box?force=true").await.expect(204);
}

#[tokio::test]
async fn lists_are_filtered() {
    let api = Api::new().await;
    for (name, namespace, team) in
        [("a1", "default", "red"), ("a2", "default", "blue"), ("b1", "other", "red")]
    {
        let spec = json!({ "name": name, "namespace": namespace, "labels": { "team": team } });
        api.post("/v1/sandboxes", spec).await.expect(201);
    }
    api.act("/v1/sandboxes/a2/stop?graceMs=1").await.expect(200);
    let check = async |query: &str, expected: &[&str]| {
        let list = api.get(&format!("/v1/sandboxes?{query}")).await.expect(200).json();
        let mut found = names(&list);
        found.sort_unstable();
        assert_eq!(found, expected, "{query}");
    };
    check("", &["a1", "a2", "b1"]).await;
    check("namespace=other", &["b1"]).await;
    check("label=team%3Dred", &["a1", "b1"]).await;
    check("label=team%3Dred&namespace=default", &["a1"]).await;
    check("state=stopped", &["a2"]).await;
    check("state=stopped&state=running", &["a1", "a2", "b1"]).await;
    check("name=a", &["a1", "a2"]).await;
    let error = api.get("/v1/sandboxes?colour=red").await.expect_error(400, "invalid_request");
    assert!(error["message"].as_str().unwrap().contains("colour"));
    api.get("/v1/sandboxes?state=happy").await.expect_error(400, "invalid_request");
    assert_eq!(api.get("/v1/sandboxes/b1?namespace=other").await.expect(200).json()["name"], "b1");
    api.get("/v1/sandboxes/b1").await.expect_error(404, "not_found");
}

#[tokio::test]
async fn renewing_moves_the_end() {
    let api = Api::with_box().await;
    let before = api.get("/v1/sandboxes/box").await.json();
    assert!(before["expiresAt"].is_null());
    let renewed = api.post("/v1/sandboxes/box/renew", json!({ "ttlMs": 60_000 })).await.expect(200).json();
    assert!(renewed["expiresAt"].is_string(), "{renewed}");
    api.post("/v1/sandboxes/box/renew", json!({ "ttl": "1h" })).await.expect_error(400, "invalid_request");
}

#[tokio::test]
async fn usage_and_processes_can_be_read() {
    let api = Api::with_box().await;
    api.start(json!({ "command": ["sleep", "60"] })).await;
    let usage = api.get("/v1/sandboxes/box/usage").await.expect(200).json();
    assert!(usage["memoryBytes"].is_number() && usage["pids"].as_u64() >= Some(1), "{usage}");
    let found = api.get("/v1/sandboxes/box/processes").await.expect(200).json();
    let processes = found["processes"].as_array().unwrap();
    assert!(processes.iter().any(|process| process["command"] == json!(["sleep", "60"])), "{found}");
    // The guest itself, by the name that it gave itself.
    let guest = processes.iter().find(|process| process["pid"] == 1).unwrap();
    assert_eq!(guest["command"].as_array().unwrap().len(), 1, "{found}");
}

#[tokio::test]
async fn the_same_request_id_makes_one_sandbox() {
    let api = Api::new().await;
    let spec = json!({ "requestId": "once" });
    let first = api.post("/v1/sandboxes", spec.clone()).await.expect(201).json();
    let second = api.post("/v1/sandboxes", spec).await.expect(201).json();
    assert_eq!(first["id"], second["id"]);
}
