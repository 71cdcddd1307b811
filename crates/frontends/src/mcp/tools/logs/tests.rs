use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{StreamExt, stream};
use sandbox::ExecSpec;
use serde_json::{Value, json};

use super::TAIL_SPAN;
use crate::mcp::{
    testing::{Client, PATIENCE},
    tools::exec::tests::client_with_box,
};

async fn sh(client: &Client, script: &str) -> String {
    let data = client.data("sandbox_shell", json!({ "name": "box", "command": script })).await;
    data["execSessionId"].as_str().unwrap().to_owned()
}

async fn ask(client: &Client, tool: &'static str, more: Value) -> Value {
    let mut all = json!({ "name": "box" });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.data(tool, all).await
}

fn texts(logs: &Value) -> Vec<String> {
    let entries = logs["entries"].as_array().unwrap().iter();
    entries.map(|entry| entry["text"].as_str().unwrap().to_owned()).collect()
}

/// A box in which four commands have run. None prints to both streams: which is read first is anybody's guess.
async fn client_with_logs() -> (Client, [String; 4]) {
    let client = client_with_box().await;
    let first = sh(&client, "echo one; echo two; echo three").await;
    let second = sh(&client, "echo oops >&2").await;
    let third = sh(&client, "seq 1 5").await;
    let fourth = sh(&client, "echo last one").await;
    (client, [first, second, third, fourth])
}

const ALL: [&str; 10] =
    ["one\n", "two\n", "three\n", "oops\n", "1\n", "2\n", "3\n", "4\n", "5\n", "last one\n"];

#[tokio::test]
async fn the_log_is_what_all_commands_printed_line_by_line() {
    let (client, [_, second, _, fourth]) = client_with_logs().await;
    let logs = ask(&client, "sandbox_logs_read", json!({})).await;
    assert_eq!(texts(&logs), ALL);
    let entries = logs["entries"].as_array().unwrap();
    assert_eq!((&entries[3]["source"], &entries[3]["sessionId"]), (&json!("stderr"), &json!(second)));
    assert_eq!((&entries[9]["source"], &entries[9]["sessionId"]), (&json!("stdout"), &json!(fourth)));
    assert!(entries[0]["timestamp"].as_str().unwrap().ends_with('Z'));
    assert!(logs["nextCursor"].is_string());
    // A sandbox that is stopped has its log still.
    let which = "box".parse().unwrap();
    client.call.engine().stop_sandbox(&client.call.who, &which, None).await.unwrap();
    assert_eq!(texts(&ask(&client, "sandbox_logs_read", json!({})).await), ALL);
}

#[tokio::test]
async fn filters_come_before_counting() {
    let (client, [first, _, third, _]) = client_with_logs().await;
    let check = async |more: Value, expected: &[&str]| {
        assert_eq!(texts(&ask(&client, "sandbox_logs_read", more.clone()).await), expected, "{more}");
    };
    check(json!({ "tail": 2 }), &["5\n", "last one\n"]).await;
    check(json!({ "tail": 2, "grep": "one" }), &["one\n", "last one\n"]).await;
    check(json!({ "tail": 1, "grep": "t" , "sessionIds": [first] }), &["three\n"]).await;
    check(json!({ "tail": 1, "sources": ["stderr"] }), &["oops\n"]).await;
    check(json!({ "tail": 2, "sessionIds": [third, 7] }), &["4\n", "5\n"]).await;
    check(json!({ "sessionIds": [7] }), &[]).await;
    let envelope = client.ask("sandbox_logs_read", json!({ "name": "box", "sessionIds": [7] })).await;
    assert!(envelope["warnings"][0].as_str().unwrap().contains('7'), "{envelope}");
    check(json!({ "until": "2000-01-01T00:00:00Z" }), &[]).await;
    check(json!({ "since": "2000-01-01T00:00:00Z", "grep": "last" }), &["last one\n"]).await;
    check(json!({ "since": "2200-01-01T00:00:00Z" }), &[]).await;
    check(
        json!({ "sources": ["system"], "sessionIds": [third] }),
        &["started: /bin/bash -c seq 1 5\n", "exited with 0\n"],
    )
    .await;
    // Also page by page: a page without matches is followed by none that are empty for no reason.
    let page = ask(&client, "sandbox_logs_stream", json!({ "limit": 1, "grep": "last" })).await;
    assert_eq!(texts(&page), ["last one\n"]);
    let error = client
        .error("sandbox_logs_read", json!({ "name": "box", "since": "yesterday" }), "invalid_request")
        .await;
    assert!(error["message"].as_str().unwrap().contains("since"), "{error}");
}

#[tokio::test]
async fn every_line_is_its_own_place_to_go_on_from_also_after_a_restart() {
    let (client, _) = client_with_logs().await;
    let all = ask(&client, "sandbox_logs_read", json!({})).await;
    let client = client.restarted(|_home| {}).await;
    for (index, entry) in all["entries"].as_array().unwrap().iter().enumerate() {
        let rest = ask(&client, "sandbox_logs_stream", json!({ "fromCursor": entry["cursor"] })).await;
        assert_eq!(texts(&rest), ALL[index + 1..], "{entry}");
    }
    for limit in 1..4 {
        let (mut cursor, mut read) = (json!("0"), Vec::new());
        loop {
            let page =
                ask(&client, "sandbox_logs_stream", json!({ "fromCursor": cursor, "limit": limit })).await;
            cursor = page["nextCursor"].clone();
            if texts(&page).is_empty() {
                break;
            }
            read.extend(texts(&page));
        }
        assert_eq!(read, ALL, "limit {limit}");
    }
    // A cursor at the end stays good for what comes.
    let end = ask(&client, "sandbox_logs_stream", json!({ "fromCursor": all["nextCursor"] })).await;
    assert_eq!(texts(&end), [""; 0]);
    sh(&client, "echo news").await;
    let news = ask(&client, "sandbox_logs_stream", json!({ "fromCursor": end["nextCursor"] })).await;
    assert_eq!(texts(&news), ["news\n"]);
}

#[tokio::test]
async fn an_answer_holds_no_more_than_asked() {
    let (client, _) = client_with_logs().await;
    let page = ask(&client, "sandbox_logs_stream", json!({ "maxBytes": 10 })).await;
    assert_eq!(texts(&page), ["one\n", "two\n"]);
    let tail = ask(&client, "sandbox_logs_read", json!({ "maxBytes": 12, "tail": 5 })).await;
    assert_eq!(texts(&tail), ["5\n", "last one\n"]);
    let arguments = json!({ "name": "box", "maxBytes": 5, "tail": 1 });
    let envelope = client.ask("sandbox_logs_read", arguments).await;
    assert_eq!(envelope["data"]["entries"][0]["text"], "last ");
    assert_eq!(envelope["truncated"][0]["totalBytes"], 9);
    let envelope = client.ask("sandbox_logs_read", json!({ "name": "box", "maxBytes": 10 })).await;
    assert!(envelope["warnings"][0].as_str().unwrap().contains("sandbox_logs_stream"), "{envelope}");
}

#[tokio::test]
async fn the_tail_of_a_long_log_is_found_from_its_end() {
    let client = client_with_box().await;
    sh(&client, "echo early match").await;
    // More entries than a tail looks at first: each line that is written to it is one.
    let (engine, who, which) = (client.call.engine(), &client.call.who, client.call.sandbox("box").unwrap());
    let spec = ExecSpec { stdin: true, ..ExecSpec::argv(["cat"]) };
    let exec = engine.exec(who, &which, spec).await.unwrap().id;
    let lines = (0..1500).map(|n| Ok(format!("line {n}\n").into()));
    engine.exec_stdin(who, &which, &exec, stream::iter(lines).boxed(), true).await.unwrap();
    let cat = engine.wait_exec(who, &which, &exec, Some(PATIENCE)).await.unwrap();
    assert!(cat.outcome.is_some() && cat.last_entry > TAIL_SPAN, "{cat:?}");
    sh(&client, "echo late match").await;
    let tail = ask(&client, "sandbox_logs_read", json!({ "tail": 3 })).await;
    assert_eq!(texts(&tail), ["line 1498\n", "line 1499\n", "late match\n"]);
    let rare = ask(&client, "sandbox_logs_read", json!({ "tail": 2, "grep": "match" })).await;
    assert_eq!(texts(&rare), ["early match\n", "late match\n"]);
    let old = ask(&client, "sandbox_logs_read", json!({ "tail": 2, "grep": "line 7\n" })).await;
    assert_eq!(texts(&old), ["line 7\n"]);
}

#[tokio::test]
async fn following_waits_for_the_next_line_and_never_hides_what_is_there() {
    let (client, _) = client_with_logs().await;
    // Without time to wait: what is there.
    let there = ask(&client, "sandbox_logs_stream", json!({ "follow": true })).await;
    assert_eq!(texts(&there), ALL);
    // An exec that is started later, and one that runs already.
    let mut cursor = there["nextCursor"].clone();
    let wait = |cursor: &Value| json!({ "fromCursor": cursor, "follow": true, "followTimeoutMs": 60_000 });
    let (logs, _) =
        tokio::join!(ask(&client, "sandbox_logs_stream", wait(&cursor)), sh(&client, "echo later"));
    assert_eq!(texts(&logs), ["later\n"]);
    cursor = logs["nextCursor"].clone();
    let session =
        client.data("sandbox_exec_start", json!({ "name": "box", "command": "cat" })).await["execSessionId"]
            .clone();
    for text in ["first\n", "second\n"] {
        let write = json!({ "execSessionId": session, "data": text });
        let (logs, _) = tokio::join!(
            ask(&client, "sandbox_logs_stream", wait(&cursor)),
            client.data("sandbox_exec_write_stdin", write)
        );
        assert_eq!(texts(&logs), [text]);
        cursor = logs["nextCursor"].clone();
    }
    // A line that does not match does not end the wait.
    let mut picky = wait(&cursor);
    picky["grep"] = json!("wanted");
    let (logs, ()) = tokio::join!(ask(&client, "sandbox_logs_stream", picky), async {
        for text in ["no\n", "neither\n", "wanted\n"] {
            client.data("sandbox_exec_write_stdin", json!({ "execSessionId": session, "data": text })).await;
        }
    });
    assert_eq!(texts(&logs), ["wanted\n"]);
}

#[tokio::test]
async fn characters_in_pieces_are_whole_and_terminals_are_output() {
    let client = client_with_box().await;
    let session =
        client.data("sandbox_exec_start", json!({ "name": "box", "command": "cat" })).await["execSessionId"]
            .clone();
    let text = "a€b🦀\n";
    let (mut cursor, mut n_printed) = (json!(0), 0);
    for (n, byte) in (1..).zip(text.as_bytes()) {
        let data = BASE64_STANDARD.encode([*byte]);
        client
            .data("sandbox_exec_write_stdin", json!({ "execSessionId": session, "dataBase64": data }))
            .await;
        while n_printed < n {
            let poll =
                json!({ "execSessionId": session, "cursor": cursor, "waitMs": 60_000, "encoding": "base64" });
            let polled = client.data("sandbox_exec_poll", poll).await;
            cursor = polled["nextCursor"].clone();
            let events = polled["events"].as_array().unwrap().iter();
            n_printed += events.filter(|event| event["event"]["kind"] == "stdout").count();
        }
    }
    let logs = ask(&client, "sandbox_logs_read", json!({})).await;
    assert_eq!(texts(&logs).concat(), text);
    client
        .data("sandbox_exec", json!({ "name": "box", "command": "echo", "args": ["tty"], "tty": true }))
        .await;
    let logs = ask(&client, "sandbox_logs_read", json!({ "sources": ["output"] })).await;
    assert_eq!(texts(&logs), ["tty\r\n"]);
}

#[tokio::test]
async fn a_sandbox_without_commands_has_an_empty_log_with_a_cursor() {
    let client = client_with_box().await;
    let logs = ask(&client, "sandbox_logs_read", json!({ "tail": 5 })).await;
    assert_eq!(logs, json!({ "entries": [], "nextCursor": "0" }));
    sh(&client, "echo hi").await;
    let logs = ask(&client, "sandbox_logs_stream", json!({ "fromCursor": logs["nextCursor"] })).await;
    assert_eq!(texts(&logs), ["hi\n"]);
    let wrong = json!({ "name": "box", "fromCursor": "12" });
    client.error("sandbox_logs_stream", wrong, "invalid_request").await;
    client.error("sandbox_logs_read", json!({ "name": "nobody" }), "not_found").await;
}
