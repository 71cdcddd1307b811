use axum::{
    body::Body,
    http::{Request, header},
};
use serde_json::{Value, json};
use test_backend::PICTURE;

use crate::support::{Answer, Api, next_with, pieces};

const CODE: &str = "/v1/sandboxes/box/code";

async fn run(api: &Api, code: &str) -> Value {
    api.post(CODE, json!({ "code": code })).await.expect(200).json()
}

async fn told(api: &Api, accept: &str, body: Value) -> Answer {
    let request =
        Request::post(CODE).header(header::CONTENT_TYPE, "application/json").header(header::ACCEPT, accept);
    api.send(request.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn variables_stay_and_the_last_value_comes_back() {
    let api = Api::with_box().await;
    let first = run(&api, "x = 20\nprint('hi')").await;
    assert_eq!((&first["stdout"], &first["success"]), (&json!("hi\n"), &json!(true)));
    assert_eq!((&first["language"], &first["context"]), (&json!("python"), &json!("python")));
    assert_eq!((&first["stateKept"], first.get("result")), (&json!(true), None));
    let second = run(&api, "x + 22").await;
    assert_eq!((&second["result"], second.get("outputs")), (&json!("42"), None));
    let elsewhere = json!({ "code": "x", "context": "other" });
    let elsewhere = api.post(CODE, elsewhere).await.expect(200).json();
    assert_eq!((&elsewhere["error"]["name"], &elsewhere["exitCode"]), (&json!("NameError"), &json!(1)));
    assert_eq!(elsewhere["success"], false);
    let shell = json!({ "language": "shell", "code": "A=b\ncd /tmp", "env": { "C": "d" } });
    api.post(CODE, shell).await.expect(200);
    let shell = json!({ "language": "bash", "code": "echo $A $C; pwd" });
    assert_eq!(api.post(CODE, shell).await.expect(200).json()["stdout"], "b d\n/tmp\n");
}

#[tokio::test]
async fn what_was_shown_is_read_at_its_own_address_and_runs_nowhere() {
    let api = Api::with_box().await;
    let bold = json!({ "text/html": "<b>bold</b>", "text/plain": "bold" });
    let ran = run(&api, &format!("{PICTURE}display(Picture(3000))\ndisplay({bold}, raw=True)")).await;
    let [figure, html] = &ran["outputs"].as_array().unwrap()[..] else { panic!("{ran}") };
    assert_eq!(figure["image"], json!({ "mimeType": "image/png", "bytes": 3000 }));
    assert_eq!(figure["mimeTypes"], json!(["image/png", "text/plain"]));
    assert_eq!((&html["html"], &html["number"]), (&json!("<b>bold</b>"), &json!(2)));
    let outputs = format!("/v1/sandboxes/box/execs/{}/outputs", ran["execSessionId"].as_str().unwrap());
    let check = async |tail: &str, media_type: &str, place: &str, begins: &[u8]| {
        let answer = api.get(&format!("{outputs}/{tail}")).await.expect(200);
        assert_eq!(answer.headers["content-type"], media_type, "{tail}");
        assert!(answer.headers["content-disposition"].to_str().unwrap().starts_with(place), "{tail}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert!(answer.headers["content-security-policy"].to_str().unwrap().contains("sandbox"));
        assert!(answer.bytes.starts_with(begins), "{tail}");
    };
    check("1", "image/png", "inline", b"\x89PNG").await;
    check("1?mime=text/plain", "text/plain; charset=utf-8", "inline", b"<Figure>").await;
    check("2", "text/html; charset=utf-8", "attachment", b"<b>bold</b>").await;
    let error = api.get(&format!("{outputs}/3")).await.expect_error(404, "not_found");
    assert!(error["message"].as_str().unwrap().contains("it has 2"), "{error}");
    let error = api.get(&format!("{outputs}/2?mime=image/png")).await.expect_error(404, "not_found");
    assert!(error["hint"].as_str().unwrap().contains("text/html, text/plain"), "{error}");
    for tail in ["0", "x", "99999999999"] {
        api.get(&format!("{outputs}/{tail}")).await.expect_error(404, "not_found");
    }
}

#[tokio::test]
async fn a_run_is_told_of_as_it_happens() {
    let api = Api::with_box().await;
    let code = "print('ä')\nbreakpoint()\nopen('/tmp/a.csv', 'w').write('abc')\n\
                display({'text/plain': 'shown'}, raw=True)\n1 + 1";
    let asked = json!({ "code": code, "cwd": "/tmp" });
    let lines = told(&api, "application/x-ndjson", asked).await.expect(200);
    let events: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((types[0], types[types.len() - 1]), ("started", "done"));
    // Printed output and shown values come by different ways.
    types.sort_unstable();
    assert_eq!(types, ["display", "done", "files", "result", "started", "stdout", "warning"]);
    let event = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap();
    assert_eq!(event("stdout")["text"], "ä\n");
    let warning = &event("warning")["message"];
    assert!(warning.as_str().unwrap().starts_with("breakpoint() was passed over"), "{warning}");
    let file = &event("files")["files"][0];
    assert_eq!((&file["path"], &file["mimeType"]), (&json!("/tmp/a.csv"), &json!("text/csv")));
    assert_eq!((&event("result")["text"], &event("result")["number"]), (&json!("2"), &json!(2)));
    let done = event("done");
    assert_eq!((&done["result"], &done["stdout"]), (&json!("2"), &json!("")));
    assert_eq!((&done["success"], &done["warnings"]), (&json!(true), &json!([warning])));
    assert_eq!(done["execSessionId"], events[0]["execSessionId"]);

    let code = "class Boom(Exception): pass\nraise Boom('why')";
    let sse = told(&api, "text/event-stream", json!({ "code": code })).await.expect(200);
    assert_eq!(sse.headers["content-type"], "text/event-stream");
    let text = sse.text();
    assert!(text.contains("event: error\ndata: {\"type\":\"error\",\"name\":\"Boom\""), "{text}");
    assert!(text.contains("event: done"), "{text}");
}

#[tokio::test]
async fn output_comes_while_the_code_runs_and_an_interrupt_ends_it() {
    let api = Api::with_box().await;
    let body = json!({ "code": "import time\nx = 1\nprint('begun')\ntime.sleep(1000)" });
    let request = Request::post(CODE)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/x-ndjson");
    let mut stream = pieces(api.open(request.body(Body::from(body.to_string())).unwrap()).await);
    let started: Value = serde_json::from_str(&next_with(&mut stream, "started").await).unwrap();
    next_with(&mut stream, "begun").await;
    let signal = format!("/v1/sandboxes/box/execs/{}/signal", started["execSessionId"].as_str().unwrap());
    api.post(&signal, json!({ "signal": 2 })).await.expect(204);
    let done: Value = serde_json::from_str(&next_with(&mut stream, "done").await).unwrap();
    assert_eq!((&done["interrupted"], &done["stateKept"]), (&json!(true), &json!(true)));
    assert_eq!(done["exitCode"], 130);
    assert_eq!(run(&api, "x").await["result"], "1");
}

#[tokio::test]
async fn time_is_up_and_variables_stay_where_they_can() {
    let api = Api::with_box().await;
    run(&api, "import signal, time").await;
    let ran = json!({ "code": "x = 1\nprint('before')\ntime.sleep(1000)", "timeoutMs": 2000 });
    let ran = api.post(CODE, ran).await.expect(200).json();
    assert_eq!((&ran["timedOut"], &ran["stateKept"]), (&json!(true), &json!(true)));
    assert_eq!((&ran["stdout"], &ran["success"]), (&json!("before\n"), &json!(false)));
    let code = "signal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(1000)";
    let ran = json!({ "code": code, "timeoutMs": 2000 });
    let ran = api.post(CODE, ran).await.expect(200).json();
    assert_eq!((&ran["timedOut"], &ran["stateLost"]), (&json!(true), &json!("killed")));
    let after = run(&api, "x").await;
    assert_eq!(after["error"]["name"], "NameError");
    assert!(after["warnings"][0].as_str().unwrap().contains("gone"), "{after}");
}

#[tokio::test]
async fn bad_code_is_refused_by_name() {
    let api = Api::with_box().await;
    let check = async |body: Value, told: &str| {
        let error = api.post(CODE, body).await.expect_error(400, "invalid_request");
        assert!(error.to_string().contains(told), "{told:?} in {error}");
    };
    check(json!({}), "code").await;
    check(json!({ "code": "1", "language": "klingon" }), "This sandbox has ").await;
    api.make_few().await;
    for language in ["klingon", "javascript"] {
        let code = json!({ "code": "1", "language": language });
        let error = api.post("/v1/sandboxes/few/code", code).await.expect_error(400, "invalid_request");
        assert!(error["hint"].as_str().unwrap().starts_with("This sandbox has bash, sh."), "{error}");
    }
    check(json!({ "code": "a\u{0}b" }), "NUL").await;
    check(json!({ "code": "x".repeat(1024 * 1024 + 1) }), "the code").await;
    check(json!({ "code": "1", "context": "../x" }), "context").await;
    check(json!({ "code": "1", "timeoutMs": 0 }), "time limit").await;
    check(json!({ "code": "1", "kernel": "x" }), "kernel").await;
    let taken = json!({ "command": ["true"], "requestId": "r-1" });
    api.post("/v1/sandboxes/box/execs", taken).await.expect(201);
    let again = json!({ "code": "1", "requestId": "r-1" });
    api.post(CODE, again).await.expect_error(400, "invalid_request");
    let once = json!({ "code": "print('once')", "requestId": "r-2" });
    let (first, second) = (api.post(CODE, once.clone()).await.json(), api.post(CODE, once).await.json());
    assert_eq!(first["execSessionId"], second["execSessionId"]);
    assert_eq!(second["stdout"], "once\n");
}
