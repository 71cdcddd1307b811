use axum::{body::Body, http::Request};
use serde_json::Value;

use crate::support::{Api, next_with, pieces};

#[tokio::test]
async fn events_are_listed_from_a_number_and_followed() {
    let api = Api::with_box().await;
    let kept = api.get("/v1/events").await.expect(200);
    let events: Vec<Value> = kept.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["kind"], "sandbox_created", "{events:?}");
    let last = events.last().unwrap()["number"].as_u64().unwrap();

    let request = Request::get("/v1/events?follow=true").header("accept", "text/event-stream");
    let mut stream = pieces(api.open(request.body(Body::empty()).unwrap()).await);
    api.run(&["true"]).await;
    let seen = next_with(&mut stream, "exec_started").await;
    assert!(seen.contains(&format!("id: {}", last + 1)) && seen.contains("event: event"), "{seen}");

    let resumed = Request::get("/v1/events").header("last-event-id", last.to_string());
    let resumed = api.send(resumed.body(Body::empty()).unwrap()).await.expect(200);
    let first: Value = serde_json::from_str(resumed.text().lines().next().unwrap()).unwrap();
    assert_eq!(first["number"], last + 1);
    api.get("/v1/events?since=yesterday").await.expect_error(400, "invalid_request");
}
