use axum::{
    body::Body,
    http::{Method, Request},
};
use bytes::Bytes;
use serde_json::json;

use crate::support::Api;

#[tokio::test]
async fn a_command_is_run_and_its_output_captured() {
    let api = Api::with_box().await;
    let ran = api.run(&["sh", "-c", "echo out; echo err >&2; exit 3"]).await;
    assert_eq!(ran["outcome"], json!({ "type": "exited", "code": 3, "memoryLimitHit": false }));
    assert_eq!((&ran["exitCode"], &ran["state"]), (&json!(3), &json!("done")));
    assert_eq!((&ran["stdout"]["text"], &ran["stderr"]["text"]), (&json!("out\n"), &json!("err\n")));
    assert_eq!(ran["stdout"]["truncated"], false);
}

#[tokio::test]
async fn a_command_that_cannot_start_is_an_answer_and_no_failure() {
    let api = Api::with_box().await;
    let ran = api.run(&["no-such-program"]).await;
    assert_eq!(
        (&ran["outcome"]["type"], &ran["outcome"]["reason"]),
        (&json!("notStarted"), &json!("notFound"))
    );
    assert_eq!(ran["exitCode"], 127);
}

#[tokio::test]
async fn long_output_keeps_its_head_and_tail_and_the_rest_by_range() {
    let api = Api::with_box().await;
    let ran = api.run(&["seq", "1", "100000"]).await;
    let text = ran["stdout"]["text"].as_str().unwrap();
    assert!(text.starts_with("1\n2\n") && text.ends_with("100000\n"), "{}", text.len());
    assert_eq!((&ran["stdout"]["truncated"], &ran["stdout"]["totalBytes"]), (&json!(true), &json!(588_895)));
    let output = format!("/v1/sandboxes/box/execs/{}/output", ran["id"].as_str().unwrap());
    let whole: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(api.get(&output).await.expect(200).text(), whole);
    let part = api.get(&format!("{output}?stream=stdout&offset=100000&length=50")).await.expect(200);
    assert_eq!(part.text(), &whole[100_000..100_050]);
    assert!(api.get(&format!("{output}?stream=stderr")).await.expect(200).bytes.is_empty());
    assert!(api.get(&format!("{output}?offset=9999999")).await.expect(200).bytes.is_empty());
}

#[tokio::test]
async fn waiting_ends_with_the_time_and_the_command_goes_on() {
    let api = Api::with_box().await;
    let spec = json!({ "command": ["sh", "-c", "echo begun; sleep 60"] });
    let ran = api.post("/v1/sandboxes/box/execs?wait=true&timeoutMs=3000", spec).await.expect(201).json();
    assert_eq!((&ran["state"], &ran["stdout"]["text"]), (&json!("running"), &json!("begun\n")));
    let exec = format!("/v1/sandboxes/box/execs/{}", ran["id"].as_str().unwrap());
    let waited = api.get(&format!("{exec}/wait?timeoutMs=10")).await.expect(200).json();
    assert_eq!(waited["state"], "running");
    api.post(&format!("{exec}/signal"), json!({ "signal": 15 })).await.expect(204);
    let ended = api.get(&format!("{exec}/wait")).await.expect(200).json();
    assert_eq!(ended["outcome"], json!({ "type": "signaled", "signal": 15 }));
    assert_eq!(ended["exitCode"], 143);
    let listed = api.get("/v1/sandboxes/box/execs").await.expect(200).json();
    assert_eq!(listed["execs"][0]["id"], ran["id"]);
}

#[tokio::test]
async fn stdin_is_streamed_and_closed() {
    let api = Api::with_box().await;
    let id = api.start(json!({ "command": ["cat"], "stdin": true })).await;
    let exec = format!("/v1/sandboxes/box/execs/{id}");
    let pieces = [Bytes::from_static(b"one "), Bytes::from_static(b"\xff two")];
    let stream = futures_util::stream::iter(pieces.map(Ok::<_, std::io::Error>));
    let request = Request::post(format!("{exec}/stdin")).body(Body::from_stream(stream)).unwrap();
    assert_eq!(api.send(request).await.expect(200).json()["bytes"], 9);
    api.send_bytes(Method::POST, &format!("{exec}/stdin?close=true"), " end").await.expect(200);
    let ended = api.get(&format!("{exec}/wait?timeoutMs=60000")).await.expect(200).json();
    assert_eq!(ended["exitCode"], 0, "{ended}");
    assert_eq!(&api.get(&format!("{exec}/output")).await.expect(200).bytes[..], b"one \xff two end");
    api.send_bytes(Method::POST, &format!("{exec}/stdin"), "late").await.expect_error(409, "wrong_state");
}

#[tokio::test]
async fn a_terminal_has_a_size_that_can_be_changed() {
    let api = Api::with_box().await;
    let spec = json!({ "command": ["cat"], "stdin": true, "terminal": { "rows": 30, "cols": 100 } });
    let id = api.start(spec).await;
    let exec = format!("/v1/sandboxes/box/execs/{id}");
    assert_eq!(api.get(&exec).await.expect(200).json()["terminal"], true);
    api.post(&format!("{exec}/resize"), json!({ "rows": 50, "cols": 120 })).await.expect(204);
    let nothing = json!({ "rows": 0, "cols": 1 });
    api.post(&format!("{exec}/resize"), nothing).await.expect_error(400, "invalid_request");
}

#[tokio::test]
async fn the_same_request_id_runs_once() {
    let api = Api::with_box().await;
    let spec = json!({ "command": ["echo", "x"], "requestId": "r-1" });
    let (first, second) = (api.start(spec.clone()).await, api.start(spec).await);
    assert_eq!(first, second);
}

#[tokio::test]
async fn bad_execs_are_refused_by_name() {
    let api = Api::with_box().await;
    let check = async |spec: serde_json::Value, named: &str| {
        let error = api.post("/v1/sandboxes/box/execs", spec).await.expect_error(400, "invalid_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    };
    check(json!({ "command": [] }), "empty").await;
    check(json!({}), "command").await;
    check(json!({ "command": ["a\u{0}b"] }), "NUL").await;
    check(json!({ "command": ["x".repeat(200_000)] }), "the program").await;
    check(json!({ "command": ["a"], "cwd": "" }), "working directory").await;
    check(json!({ "command": ["a"], "env": { "A=B": "x" } }), "A=B").await;
    check(json!({ "command": ["a"], "timeoutMs": 0 }), "time limit").await;
    check(json!({ "command": ["a"], "comand": 1 }), "comand").await;
    check(json!({ "command": ["a"], "terminal": { "rows": 0, "cols": 0 } }), "terminal").await;
    check(json!({ "command": ["a"], "requestId": "../x" }), "request id").await;
    let huge: serde_json::Map<_, _> =
        (0..20).map(|n| (format!("V{n}"), json!("x".repeat(100_000)))).collect();
    check(json!({ "command": ["a"], "env": huge }), "environment").await;
    assert!(api.get("/v1/sandboxes/box/execs").await.json()["execs"].as_array().unwrap().is_empty());
    for signal in [0, -9, 65, 1000] {
        let id = "exc-0000000000000";
        let target = format!("/v1/sandboxes/box/execs/{id}/signal");
        api.post(&target, json!({ "signal": signal })).await.expect_error(400, "invalid_request");
    }
}
