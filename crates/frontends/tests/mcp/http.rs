//! Streamable HTTP: revisions, sessions, single answers.

use axum::{body::Body, http::Request};
use engine::{CallFilter, Principal};
use serde_json::{Value, json};
use test_backend::PICTURE;

use crate::support::{STATELESS, Server, VERSIONS, call, hello, posted, request, stateless};

fn tool_names(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_revision_is_spoken() {
    let server = Server::new().await;
    for version in VERSIONS {
        let session = server.begin(version, "ana").await;
        let greeting = &session.greeting["result"];
        assert_eq!(
            (&greeting["protocolVersion"], &greeting["serverInfo"]["name"]),
            (&json!(version), &json!("warren"))
        );
        assert!(greeting["instructions"].as_str().unwrap().contains("sandbox_create"), "{greeting}");
        let list = session.ask(request(1, "tools/list", json!({}))).await;
        assert!(tool_names(&list).contains(&"sandbox_exec"), "{list}");
        assert_eq!(session.ask(request(2, "ping", json!({}))).await["result"], json!({}));
    }
    // A revision that nobody knows gets the newest that has a handshake.
    let session = server.begin("1999-01-01", "ana").await;
    assert_eq!(session.greeting["result"]["protocolVersion"], "2025-11-25");
}

#[tokio::test]
async fn the_newest_revision_needs_no_session() {
    let server = Server::new().await;
    let send = async |message| {
        let (message, headers) = stateless(message);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        server.send(posted("/mcp", message, &headers)).await
    };
    let found = send(request(1, "server/discover", json!({}))).await.json();
    assert!(found["result"]["supportedVersions"].as_array().unwrap().contains(&json!(STATELESS)), "{found}");
    let answer = send(call(2, "sandbox_create", json!({ "name": "dev" }))).await;
    assert!(!answer.headers.contains_key("mcp-session-id"));
    assert_eq!(answer.json()["result"]["structuredContent"]["data"]["name"], "dev", "{answer:?}");
    let enabled = send(call(3, "toolset_enable", json!({ "toolsets": ["files"] }))).await.json();
    assert!(enabled.to_string().contains("keeps no state"), "{enabled}");
    // A method that the protocol had before and has no more.
    let gone = send(request(4, "ping", json!({}))).await;
    assert_eq!((gone.status.as_u16(), &gone.json()["error"]["code"]), (404, &json!(-32601)));
}

#[tokio::test]
async fn whoever_takes_no_stream_gets_one_answer_and_needs_no_session() {
    let server = Server::new().await;
    for accept in [None, Some("*/*"), Some("application/json")] {
        let headers: Vec<_> = accept.into_iter().map(|value| ("accept", value)).collect();
        let asked = posted("/mcp", call(1, "sandbox_list", json!({})), &headers);
        let answer = server.send(asked).await;
        assert_eq!(answer.headers["content-type"], "application/json", "{answer:?}");
        assert_eq!(answer.json()["result"]["structuredContent"]["ok"], true, "{answer:?}");
    }
    let greeting = server.ask("/mcp", hello("2025-11-25")).await;
    assert!(!greeting.headers.contains_key("mcp-session-id"));
    assert_eq!(greeting.json()["result"]["protocolVersion"], "2025-11-25");
    // Progress would need a stream, so there is none; the answer comes all the same.
    server.ask("/mcp", call(2, "sandbox_create", json!({ "name": "dev" }))).await;
    let mut told = call(3, "sandbox_exec", json!({ "name": "dev", "command": "echo", "args": ["hi"] }));
    told["params"]["_meta"] = json!({ "progressToken": 1 });
    let answer = server.ask("/mcp", told).await.json();
    assert_eq!(answer["result"]["structuredContent"]["data"]["stdout"], "hi\n", "{answer}");
    let refused = server.send(posted("/mcp", json!({}), &[("accept", "text/html")])).await;
    assert_eq!(refused.status.as_u16(), 406);
}

#[tokio::test]
async fn the_envelope_is_text_and_data_and_tells_of_failures() {
    let server = Server::new().await;
    let session = server.begin("2025-11-25", "ana").await;
    let answer = session.ask(call(1, "sandbox_exec", json!({ "name": "nobody", "command": "true" }))).await;
    let result = &answer["result"];
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["error"]["code"], "not_found", "{answer:#}");
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(&text, &result["structuredContent"]);
    let unknown = session.ask(call(2, "sandbox_exce", json!({}))).await;
    assert!(unknown.to_string().contains("Did you mean sandbox_exec?"), "{unknown}");
    let cursor = session.ask(request(3, "tools/list", json!({ "cursor": "2" }))).await;
    assert_eq!(cursor["error"]["code"], -32602, "{cursor}");
}

#[tokio::test]
async fn pictures_and_links_come_in_every_revision_that_has_them() {
    let server = Server::new().await;
    server.begin("2025-11-25", "ana").await.ask(call(1, "sandbox_create", json!({ "name": "dev" }))).await;
    let run = || {
        let code = format!("{PICTURE}display(Picture(30), Picture(3000000))\n1 + 1");
        call(2, "sandbox_run_code", json!({ "name": "dev", "code": code }))
    };
    let check = |version: &str, answer: &Value| {
        let result = &answer["result"];
        let types: Vec<_> =
            result["content"].as_array().unwrap().iter().map(|part| part["type"].as_str().unwrap()).collect();
        let expected: &[_] = match version {
            "2024-11-05" | "2025-03-26" => &["text", "image"],
            _ => &["text", "image", "resource_link"],
        };
        assert_eq!(types, expected, "{version}");
        assert_eq!(result["content"][1]["mimeType"], "image/png");
        let data = &result["structuredContent"]["data"];
        assert_eq!(data["result"], "2", "{version}");
        if let Some(link) = result["content"].get(2) {
            assert_eq!((&link["uri"], &link["size"]), (&data["outputs"][1]["uri"], &json!(3_000_000)));
        }
    };
    for version in VERSIONS {
        check(version, &server.begin(version, "ana").await.ask(run()).await);
    }
    let (message, headers) = stateless(run());
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    check(STATELESS, &server.send(posted("/mcp", message, &headers)).await.json());
}

/// Params of calls that are wrong, and what they are answered.
fn misshapen() -> Vec<(Value, Value)> {
    let failed = json!({ "code": "invalid_request", "message": "arguments is not an object" });
    let mut all: Vec<_> = [json!([1]), json!(5), json!("{"), json!("[1]"), json!("5")]
        .map(|arguments| (json!({ "name": "sandbox_list", "arguments": arguments }), failed.clone()))
        .to_vec();
    all.push((json!({ "name": "sandbox_list", "arguments": "{}" }), json!("ok")));
    all.extend(
        [json!({ "name": 5 }), json!({}), json!({ "arguments": {} })].map(|params| (params, json!(-32602))),
    );
    all
}

fn check_misshapen(params: &Value, expected: &Value, answer: &Value) {
    let result = &answer["result"];
    match expected {
        Value::Object(failure) => {
            assert_eq!(result["isError"], true, "{params}: {answer}");
            let error = &result["structuredContent"]["error"];
            assert!(failure.iter().all(|(name, value)| error[name] == *value), "{params}: {answer}");
            let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!(text, result["structuredContent"]);
        }
        Value::String(_) => assert_eq!(result["structuredContent"]["ok"], true, "{params}: {answer}"),
        code => {
            assert_eq!(answer["error"]["code"], *code, "{params}: {answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("name"), "{params}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_call_of_another_shape_is_understood_or_told_what_is_wrong() {
    let server = Server::new().await;
    let session = server.begin("2025-11-25", "ana").await;
    for (params, expected) in misshapen() {
        let message = request(1, "tools/call", params.clone());
        let answer = session.ask(message.clone()).await;
        assert!(answer["result"].get("resultType").is_none(), "{answer}");
        check_misshapen(&params, &expected, &answer);
        check_misshapen(&params, &expected, &server.ask("/mcp", message.clone()).await.json());
        let (message, headers) = stateless(message);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = server.send(posted("/mcp", message, &headers)).await;
        assert_ne!(answer.status.as_u16(), 404, "{params}: {answer:?}");
        check_misshapen(&params, &expected, &answer.json());
        let is_result = answer.json().get("result").is_some();
        assert!(!is_result || answer.json()["result"]["resultType"] == "complete", "{answer:?}");
    }
    // Arguments in a text are arguments.
    let create = json!({ "name": "sandbox_create", "arguments": "{\"name\": \"dev\"}" });
    let made = session.ask(request(2, "tools/call", create)).await;
    assert_eq!(made["result"]["structuredContent"]["data"]["name"], "dev", "{made}");
    let wrong = session.ask(request(3, "resources/read", json!({}))).await;
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    let unknown = session.ask(request(4, "tools/hold", json!({}))).await;
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");

    let calls = server.engine.calls(&Principal::operator("ana"), CallFilter::default()).await.unwrap();
    let refused = calls
        .iter()
        .filter(|call| call.action == "sandbox_list" && call.error.as_deref() == Some("invalid_request"));
    assert_eq!(refused.count(), 15, "{calls:?}");
}

#[tokio::test]
async fn what_cannot_be_completed_or_read_is_the_fault_of_the_params() {
    let server = Server::new().await;
    let session = server.begin("2025-11-25", "ana").await;
    let complete = async |reference: Value| {
        let argument = json!({ "name": "sandbox", "value": "" });
        session
            .ask(request(1, "completion/complete", json!({ "ref": reference, "argument": argument })))
            .await
    };
    let prompt = |name: &str| json!({ "type": "ref/prompt", "name": name });
    let resource = |uri: &str| json!({ "type": "ref/resource", "uri": uri });
    for unknown in
        [prompt("nothing"), resource("file:///etc/{x}"), resource("warren://sandboxes/{name}/x/{y}")]
    {
        let answer = complete(unknown.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{unknown}: {answer}");
    }
    for known in [
        prompt("debug-a-failure"),
        resource("warren://sandboxes/{name}/execs/{id}"),
        resource("microsandbox://sandboxes/{name}/files/{+path}"),
        resource("warren://sandboxes/dev"),
    ] {
        let answer = complete(known.clone()).await;
        assert!(answer["result"]["completion"]["values"].is_array(), "{known}: {answer}");
    }
    session.data("sandbox_create", json!({ "name": "dev" })).await;
    let read = request(2, "resources/read", json!({ "uri": "warren://sandboxes/dev/files/etc" }));
    let answer = session.ask(read).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("sandbox_fs_list"), "{answer}");
}

#[tokio::test]
async fn a_session_belongs_to_whoever_began_it() {
    let server = Server::new().await;
    let session = server.begin("2025-11-25", "ana").await;
    let list = request(1, "tools/list", json!({}));
    let accept = ("accept", "application/json, text/event-stream");
    let as_other = posted("/mcp", list.clone(), &[accept, ("mcp-session-id", &session.id), ("who", "eve")]);
    let refused = server.send(as_other).await;
    assert_eq!(refused.status.as_u16(), 404, "{refused:?}");
    assert_eq!(refused.json()["error"]["kind"], "not_found");
    for method in ["GET", "DELETE"] {
        let asked = axum::http::Request::builder().method(method).uri("/mcp").header("host", "x");
        let asked = asked.header("accept", "text/event-stream").header("who", "eve");
        let asked = asked.header("mcp-session-id", &session.id).body(axum::body::Body::empty()).unwrap();
        assert_eq!(server.send(asked).await.status.as_u16(), 404, "{method}");
    }
    assert!(!tool_names(&session.ask(list.clone()).await).is_empty());
    assert_eq!(session.end().await.status.as_u16(), 204);
    assert_eq!(session.post(list).await.status.as_u16(), 404);
}

#[tokio::test]
async fn toolsets_are_chosen_by_header_or_query_and_enabled_in_a_session() {
    let server = Server::new().await;
    let list = request(1, "tools/list", json!({}));
    let of_core = server.ask("/mcp", list.clone()).await.json();
    assert!(!tool_names(&of_core).contains(&"sandbox_fs_tree"));
    let more = server.ask("/mcp?toolsets=core,files", list.clone()).await.json();
    assert!(tool_names(&more).contains(&"sandbox_fs_tree"));
    let by_header = server.send(posted("/mcp", list.clone(), &[("x-warren-toolsets", "all")])).await.json();
    assert!(tool_names(&by_header).len() > tool_names(&more).len());
    let wrong = server.ask("/mcp?toolsets=flies", list.clone()).await;
    assert_eq!((wrong.status.as_u16(), &wrong.json()["error"]["kind"]), (400, &json!("invalid_request")));

    let session = server.begin("2025-11-25", "ana").await;
    let mut own = session.listen(None).await;
    session.data("toolset_enable", json!({ "toolsets": ["files"] })).await;
    own.note("notifications/tools/list_changed").await;
    assert!(tool_names(&session.ask(list).await).contains(&"sandbox_fs_tree"));
}

#[tokio::test]
async fn a_namespace_is_chosen_by_header_or_query() {
    let server = Server::new().await;
    let create = call(1, "sandbox_create", json!({ "name": "dev" }));
    let made = server.ask("/mcp?namespace=red", create).await.json();
    assert_eq!(made["result"]["structuredContent"]["ok"], true, "{made}");
    let exec = call(2, "sandbox_exec", json!({ "name": "dev", "command": "true" }));
    let there = server.send(posted("/mcp", exec.clone(), &[("x-warren-namespace", "red")])).await.json();
    assert_eq!(there["result"]["structuredContent"]["ok"], true, "{there}");
    let elsewhere = server.ask("/mcp", exec).await.json();
    assert_eq!(elsewhere["result"]["structuredContent"]["error"]["code"], "not_found", "{elsewhere}");
}

#[tokio::test]
async fn two_hundred_clients_at_once() {
    let server = Server::new().await;
    let one = async |n: u32| {
        let session = server.begin(VERSIONS[n as usize % VERSIONS.len()], &format!("client-{n}")).await;
        for _ in 0..5 {
            session.data("sandbox_list", json!({})).await;
        }
        session.end().await.status.as_u16()
    };
    let ended = futures_util::future::join_all((0..200).map(one)).await;
    assert!(ended.iter().all(|status| *status == 204), "{ended:?}");
}

#[tokio::test]
async fn one_session_too_many_is_refused_while_all_are_in_use() {
    let server = Server::new().await;
    let (mut sessions, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..256 {
        let session = server.begin("2025-11-25", "ana").await;
        streams.push(session.listen(None).await);
        sessions.push(session);
    }
    let begin = || {
        let headers = [("accept", "application/json, text/event-stream"), ("who", "ana")];
        server.send(posted("/mcp", hello("2025-11-25"), &headers))
    };
    let refused = begin().await;
    assert_eq!(refused.status.as_u16(), 429, "{refused:?}");
    assert_eq!(refused.json()["error"]["kind"], "limit_reached", "{refused:?}");
    // The first is still there; one that nobody listens to any more makes room.
    assert_eq!(sessions[0].ask(request(1, "ping", json!({}))).await["result"], json!({}));
    drop(streams.pop());
    assert_eq!(begin().await.status.as_u16(), 200);
}

#[tokio::test]
async fn what_cannot_be_read_is_answered_as_json_rpc_says() {
    let server = Server::new().await;
    let send = async |body: Body, accept: &str| {
        let request = Request::post("/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", accept);
        server.send(request.body(body).unwrap()).await
    };
    for accept in ["application/json", "application/json, text/event-stream"] {
        for (text, code) in [
            ("{\"jsonrpc\": ", -32700),
            ("", -32700),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\\ud800\"}", -32700),
            ("{\"hello\": 1}", -32600),
            ("[]", -32600),
        ] {
            let answer = send(Body::from(text), accept).await;
            assert_eq!(answer.status, 400, "{text}: {answer:?}");
            let told = answer.json();
            assert_eq!((&told["jsonrpc"], &told["id"]), (&json!("2.0"), &Value::Null), "{text}");
            assert_eq!(told["error"]["code"], code, "{text}: {told}");
        }
        let pieces = [Ok("{\"jsonrpc\":"), Err(std::io::Error::other("gone"))];
        let cut = send(Body::from_stream(futures_util::stream::iter(pieces)), accept).await;
        assert_eq!((cut.status.as_u16(), &cut.json()["error"]["code"]), (400, &json!(-32700)));
    }
    let plain = Request::post("/mcp").header("host", "localhost").header("content-type", "text/plain");
    assert_eq!(server.send(plain.body(Body::from("{}")).unwrap()).await.status, 415);
}
