use serde_json::json;

use crate::support::Api;

const CONTEXTS: &str = "/v1/sandboxes/box/contexts";

#[tokio::test]
async fn contexts_are_made_listed_branched_reset_and_removed() {
    let api = Api::with_box().await;
    let made = json!({ "name": "calc", "language": "py", "cwd": "/tmp", "env": { "A": "b" } });
    let made = api.post(CONTEXTS, made).await.expect(201).json();
    assert_eq!((&made["name"], &made["language"]), (&json!("calc"), &json!("python")));
    assert_eq!((&made["state"], &made["cwd"]), (&json!("idle"), &json!("/tmp")));
    api.post(CONTEXTS, json!({ "name": "calc" })).await.expect_error(409, "already_exists");
    let unnamed = api.post(CONTEXTS, json!({ "language": "bash" })).await.expect(201).json();
    assert!(!unnamed["name"].as_str().unwrap().is_empty());

    let fork = format!("{CONTEXTS}/calc/fork");
    let branch = api.post(&fork, json!({ "into": "other" })).await.expect(201).json();
    assert_eq!((&branch["name"], &branch["parent"]), (&json!("other"), &json!("calc")));
    let shell = format!("{CONTEXTS}/{}/fork", unnamed["name"].as_str().unwrap());
    api.post(&shell, json!({})).await.expect_error(501, "unsupported");
    assert_eq!(api.act(&format!("{CONTEXTS}/calc/reset")).await.expect(200).json()["name"], "calc");

    api.delete(&format!("{CONTEXTS}/calc")).await.expect(204);
    api.delete(&format!("{CONTEXTS}/calc")).await.expect_error(404, "not_found");
    let listed = api.get(CONTEXTS).await.expect(200).json();
    let names: Vec<_> = listed["contexts"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&&json!("other")), "{names:?}");
}

#[tokio::test]
async fn a_language_that_is_not_there_is_told_with_those_that_are() {
    let api = Api::with_box().await;
    api.make_few().await;
    let listed = api.get("/v1/sandboxes/few/languages").await.expect(200).json();
    assert_eq!(
        listed["languages"],
        json!([
            { "name": "bash", "program": "/opt/few/bash", "stateful": true },
            { "name": "sh", "program": "/opt/few/sh", "stateful": false },
        ])
    );
    for language in ["klingon", "python"] {
        let error = api.post("/v1/sandboxes/few/contexts", json!({ "language": language })).await;
        let error = error.expect_error(400, "invalid_request");
        assert!(error["hint"].as_str().unwrap().starts_with("This sandbox has bash, sh."), "{error}");
    }
    api.post(CONTEXTS, json!({ "language": "ruby" })).await.expect_error(400, "invalid_request");
    let wrong = json!({ "name": "no/name", "language": "bash" });
    api.post(CONTEXTS, wrong).await.expect_error(400, "invalid_request");
    api.act(&format!("{CONTEXTS}/%20/reset")).await.expect_error(404, "not_found");
}
