use axum::{
    body::Body,
    http::{Method, Request, header},
};
use bytes::BytesMut;
use engine::EntryBody;
use frontends::rest::v1::{ENTRIES_MEDIA_TYPE, decode_frames};
use serde_json::{Value, json};

use crate::support::{Api, next_with, pieces};

async fn finished(api: &Api, script: &str) -> String {
    let ran = api.run(&["sh", "-c", script]).await;
    format!("/v1/sandboxes/box/execs/{}/entries", ran["id"].as_str().unwrap())
}

#[tokio::test]
async fn entries_come_as_lines_of_json_from_any_number() {
    let api = Api::with_box().await;
    let entries = finished(&api, "echo one; echo two >&2; exit 4").await;
    let whole = api.get_as(&format!("{entries}?follow=true"), "application/x-ndjson").await.expect(200);
    assert_eq!(whole.headers["content-type"], "application/x-ndjson");
    let lines: Vec<Value> = whole.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<_> = lines.iter().map(|line| line["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!((&lines[0]["kind"], &lines[3]["kind"]), (&json!("started"), &json!("exited")));
    // Which of two pipes is read first is anybody's guess.
    let mut printed = [1, 2].map(|at: usize| (lines[at]["kind"].as_str(), lines[at]["text"].as_str()));
    printed.sort_unstable();
    assert_eq!(printed, [(Some("stderr"), Some("two\n")), (Some("stdout"), Some("one\n"))]);
    assert_eq!(lines[3]["data"]["outcome"]["code"], 4);
    let rest = api.get(&format!("{entries}?from=3&follow=true")).await.expect(200);
    let first: Value = serde_json::from_str(rest.text().lines().next().unwrap()).unwrap();
    assert_eq!(first, lines[2]);
}

#[tokio::test]
async fn a_broken_sse_stream_is_resumed_by_its_last_id() {
    let api = Api::with_box().await;
    let id = api.start(json!({ "command": ["cat"], "stdin": true })).await;
    let exec = format!("/v1/sandboxes/box/execs/{id}");
    let open = async |last: Option<&str>| {
        let mut request =
            Request::get(format!("{exec}/entries?follow=true")).header(header::ACCEPT, "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        pieces(api.open(request.body(Body::empty()).unwrap()).await)
    };
    let mut stream = open(None).await;
    next_with(&mut stream, "\"kind\":\"started\"").await;
    api.send_bytes(Method::POST, &format!("{exec}/stdin"), "first").await.expect(200);
    let seen = next_with(&mut stream, "\"kind\":\"stdout\",\"text\":\"first\"").await;
    drop(stream);
    let last = seen.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap().to_owned();

    api.send_bytes(Method::POST, &format!("{exec}/stdin?close=true"), "second").await.expect(200);
    let resumed = Request::get(format!("{exec}/entries?follow=true"))
        .header(header::ACCEPT, "text/event-stream")
        .header("last-event-id", &last);
    let rest = api.send(resumed.body(Body::empty()).unwrap()).await.expect(200);
    assert_eq!(rest.headers["content-type"], "text/event-stream");
    let rest = rest.text();
    assert!(!rest.contains("first"), "{rest}");
    assert!(
        rest.contains("\"kind\":\"stdout\",\"text\":\"second\"") && rest.contains("\"kind\":\"exited\""),
        "{rest}"
    );
    let first_id: u64 = rest.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().parse().unwrap();
    assert_eq!(first_id, last.parse::<u64>().unwrap() + 1);
    drop(open(Some("1")).await);
    let wrong =
        Request::get(format!("{exec}/entries")).header("last-event-id", "x").body(Body::empty()).unwrap();
    api.send(wrong).await.expect_error(400, "invalid_request");
}

#[tokio::test]
async fn our_own_form_carries_bytes_as_they_are() {
    let api = Api::with_box().await;
    let id = api.start(json!({ "command": ["cat"], "stdin": true })).await;
    let exec = format!("/v1/sandboxes/box/execs/{id}");
    api.send_bytes(Method::POST, &format!("{exec}/stdin?close=true"), &b"a\xffb"[..]).await.expect(200);
    api.get(&format!("{exec}/wait")).await.expect(200);
    let entries = format!("{exec}/entries");
    let answer = api.get_as(&format!("{entries}?follow=true"), ENTRIES_MEDIA_TYPE).await.expect(200);
    assert_eq!(answer.headers["content-type"], ENTRIES_MEDIA_TYPE);
    let mut buffer = BytesMut::from(&answer.bytes[..]);
    let read = decode_frames(&mut buffer).unwrap();
    assert!(buffer.is_empty());
    let printed: Vec<u8> =
        read.iter().filter_map(|entry| entry.output()).flat_map(|(_, bytes)| bytes.to_vec()).collect();
    assert_eq!(printed, b"a\xffb");
    assert!(matches!(read.last().map(|entry| &entry.body), Some(EntryBody::Exited(Some(_)))));
    let json = api.get(&entries).await.expect(200);
    assert!(json.text().contains("\"base64\":\"Yf9i\""), "{}", json.text());
}

#[tokio::test]
async fn a_daemon_that_stops_ends_its_streams() {
    let api = Api::with_box().await;
    let id = api.start(json!({ "command": ["sleep", "60"] })).await;
    let request = Request::get(format!("/v1/sandboxes/box/execs/{id}/entries?follow=true"));
    let response = api.open(request.body(Body::empty()).unwrap()).await;
    api.stop.cancel();
    let ended = http_body_util::BodyExt::collect(response.into_body());
    tokio::time::timeout(crate::support::PATIENCE, ended).await.unwrap().unwrap();
}
