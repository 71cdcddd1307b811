use axum::{body::Body, http::Request};
use serde_json::Value;

use crate::support::{Api, next_with, pieces};

#[tokio::test]
async fn events_are_listed_from_a_number_and_followed() {
    let api = Api::with_box().await;
    let request = Request::get("/v1/events?from=1&follow=true").header("accept", "text/event-stream");
    let mut stream = pieces(api.open(request.body(Body::empty()).unwrap()).await);
    let created = next_with(&mut stream, "sandbox_created").await;
    assert!(created.contains("event: event") && created.contains("id: 1\n"), "{created}");
    next_with(&mut stream, "sandbox_started").await;
    api.run(&["true"]).await;
    next_with(&mut stream, "exec_ended").await;

    let kept = api.get("/v1/events").await.expect(200);
    let events: Vec<Value> = kept.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["sandbox_created", "sandbox_started", "exec_started", "exec_ended"]);
    let last = events[1]["number"].as_u64().unwrap();
    let resumed = Request::get("/v1/events").header("last-event-id", last.to_string());
    let resumed = api.send(resumed.body(Body::empty()).unwrap()).await.expect(200);
    let first: Value = serde_json::from_str(resumed.text().lines().next().unwrap()).unwrap();
    assert_eq!(first["number"], last + 1);
    // Whoever has such a number read events of records that are lost: it must not wait for ever.
    for query in ["from=500", "from=500&follow=true"] {
        api.get(&format!("/v1/events?{query}")).await.expect_error(400, "invalid_request");
    }
    api.get("/v1/events?since=yesterday").await.expect_error(400, "invalid_request");
}
