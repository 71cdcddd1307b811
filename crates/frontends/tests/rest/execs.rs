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
async fn a_command_is_run_again_as_it_was_asked_for() {
    let api = Api::with_box().await;
    let show = "pwd; echo $TOKEN; id -u; ulimit -n; cat; echo $$";
    let spec = json!({
        "command": ["sh", "-c", show], "cwd": "/tmp", "env": { "TOKEN": "t-1" }, "user": "1000", "stdin": true,
        "rlimits": [{ "resource": "nofile", "soft": 99, "hard": 99 }], "requestId": "r-1",
    });
    let first = api.start(spec).await;
    let exec = format!("/v1/sandboxes/box/execs/{first}");
    api.send_bytes(Method::POST, &format!("{exec}/stdin?close=true"), "typed\n").await.expect(200);
    api.get(&format!("{exec}/wait?timeoutMs=60000")).await.expect(200);

    let again = api.act(&format!("{exec}/again")).await.expect(201).json();
    assert_ne!(again["id"], first);
    assert!(again["env"].is_null() && again["requestId"].is_null(), "{again}");
    let second = format!("/v1/sandboxes/box/execs/{}", again["id"].as_str().unwrap());
    let ended = api.get(&format!("{second}/wait?timeoutMs=60000")).await.expect(200).json();
    assert_eq!((&ended["exitCode"], &ended["command"]), (&json!(0), &json!(["sh", "-c", show])));
    let printed = api.get(&format!("{second}/output")).await.expect(200).text().to_owned();
    // Typed input belongs to whoever typed it.
    assert!(printed.starts_with("/tmp\nt-1\n1000\n99\n") && !printed.contains("typed"), "{printed}");
    api.act("/v1/sandboxes/box/execs/exc-0000000000000/again").await.expect_error(404, "not_found");
}

#[tokio::test]
async fn code_and_terminals_are_run_again() {
    let api = Api::with_box().await;
    // Longer than what a record keeps of it.
    let code = format!("# {}\nprint('the end')", "x".repeat(4000));
    let cell = json!({ "cell": { "language": "python", "code": code } });
    let first = api.start(cell).await;
    api.get(&format!("/v1/sandboxes/box/execs/{first}/wait?timeoutMs=60000")).await.expect(200);
    let again = api.act(&format!("/v1/sandboxes/box/execs/{first}/again")).await.expect(201).json();
    let second = format!("/v1/sandboxes/box/execs/{}", again["id"].as_str().unwrap());
    api.get(&format!("{second}/wait?timeoutMs=60000")).await.expect(200);
    assert_eq!(api.get(&format!("{second}/output")).await.expect(200).text(), "the end\n");

    let spec = json!({ "command": ["cat"], "terminal": { "rows": 30, "cols": 100 } });
    let first = format!("/v1/sandboxes/box/execs/{}", api.start(spec).await);
    api.post(&format!("{first}/resize"), json!({ "rows": 50, "cols": 120 })).await.expect(204);
    let again = api.act(&format!("{first}/again")).await.expect(201).json();
    assert_eq!(
        (&again["terminal"], &again["terminalSize"]),
        (&json!(true), &json!({ "rows": 50, "cols": 120 }))
    );
}

#[tokio::test]
async fn output_is_searched_over_all_commands_a_part_at_a_time() {
    let api = Api::with_box().await;
    api.run(&["sh", "-c", "seq 1 1000; echo Needle one; seq 1 1000; printf 'needle two, without an end'"])
        .await;
    api.run(&["sh", "-c", "echo a needle in errors >&2; printf 'hay\\r50 %% needle\\rhay\\n'"]).await;
    api.run(&["sh", "-c", "seq 1 100"]).await;
    let search = async |query: &str| {
        let found = api.get(&format!("/v1/sandboxes/box/output?{query}")).await.expect(200).json();
        let texts =
            found["lines"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap().to_owned());
        (texts.collect::<Vec<_>>(), found["next"].as_str().map(str::to_owned))
    };
    let (mut of_second, next) = search("q=NEEDLE").await;
    let of_first = of_second.split_off(2);
    // Which of two pipes is read first is anybody's guess.
    of_second.sort();
    assert_eq!(of_second, ["50 % needle", "a needle in errors"]);
    assert_eq!(
        (of_first, next),
        (vec!["Needle one".to_owned(), "needle two, without an end".to_owned()], None)
    );
    assert_eq!(search("q=needle&stream=stderr").await, (vec!["a needle in errors".to_owned()], None));
    assert_eq!(search("q=no+such+text").await, (vec![], None));

    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let (found, next) = search(&format!("q=needle&limit=1{cursor}")).await;
        all.extend(found);
        let Some(next) = next else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(all.len(), 4, "{all:?}");
    for wrong in ["", "q=", "q=x&cursor=exc-1", "q=x&stream=all", &format!("q={}", "x".repeat(300))] {
        let refused = api.get(&format!("/v1/sandboxes/box/output?{wrong}")).await;
        refused.expect_error(400, "invalid_request");
    }
    api.get("/v1/sandboxes/none/output?q=x").await.expect_error(404, "not_found");
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
