use serde_json::json;

use crate::support::Api;

#[tokio::test]
async fn a_sandbox_and_its_command_come_from_one_request() {
    let api = Api::new().await;
    let asked =
        json!({ "sandbox": { "name": "one" }, "exec": { "command": ["sh", "-c", "echo out; exit 3"] } });
    let ran = api.post("/v1/runs?wait=true", asked).await.expect(201).json();
    assert_eq!((&ran["sandbox"]["name"], &ran["sandbox"]["state"]), (&json!("one"), &json!("running")));
    assert_eq!((&ran["exec"]["exitCode"], &ran["exec"]["stdout"]["text"]), (&json!(3), &json!("out\n")));
    // It stays, and knows what ran in it.
    let listed = api.get("/v1/sandboxes/one/execs").await.expect(200).json();
    assert_eq!(listed["execs"][0]["id"], ran["exec"]["id"]);
    // The name is taken, and nothing else is left of the attempt.
    let asked = json!({ "sandbox": { "name": "one" }, "exec": { "command": ["true"] } });
    api.post("/v1/runs", asked).await.expect_error(409, "already_exists");
    assert_eq!(api.get("/v1/sandboxes").await.expect(200).json()["sandboxes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn code_is_waited_for_and_answers_with_its_result() {
    let api = Api::new().await;
    let ran = api.post("/v1/runs", json!({ "code": { "code": "echo 42", "language": "bash" } })).await;
    let ran = ran.expect(201).json();
    assert_eq!((&ran["code"]["stdout"], &ran["code"]["success"]), (&json!("42\n"), &json!(true)));
    assert_eq!(ran["exec"], json!(null));
}

#[tokio::test]
async fn what_makes_no_sense_makes_no_sandbox() {
    let api = Api::new().await;
    let command = json!({ "command": ["true"] });
    for asked in [
        json!({}),
        json!({ "exec": command, "code": { "code": "1" } }),
        json!({ "exec": { "command": [] } }),
        json!({ "code": { "code": "1", "language": "klingon" } }),
        json!({ "exec": command, "box": {} }),
        json!({ "sandbox": { "nmae": "x" }, "exec": command }),
    ] {
        api.post("/v1/runs", asked).await.expect(400);
    }
    assert_eq!(api.get("/v1/sandboxes").await.expect(200).json()["sandboxes"], json!([]));
}
