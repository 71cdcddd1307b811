use axum::{body::Body, http::Request};
use serde_json::json;

use crate::support::Api;

#[tokio::test]
async fn a_port_stream_must_be_asked_for_and_lead_somewhere() {
    let api = Api::with_box().await;
    let connect = "/v1/sandboxes/box/connect";
    let error = api.act(&format!("{connect}?port=80")).await.expect_error(400, "invalid_request");
    assert!(error["hint"].as_str().unwrap().contains("Upgrade"));
    for query in ["", "?port=80&unix=/x", "?port=0", "?port=70000"] {
        let request = Request::post(format!("{connect}{query}")).header("upgrade", "warren-stream");
        api.send(request.body(Body::empty()).unwrap()).await.expect_error(400, "invalid_request");
    }
    let closed = Request::post(format!("{connect}?port=81")).header("upgrade", "warren-stream");
    let answer = api.send(closed.body(Body::empty()).unwrap()).await;
    assert!(answer.status.is_client_error() || answer.status.is_server_error(), "{answer:?}");
    assert_eq!(api.activity.n_open(), 0);
    api.act("/v1/sandboxes/box/stop?graceMs=1").await.expect(200);
    let stopped = Request::post(format!("{connect}?port=80")).header("upgrade", "warren-stream");
    api.send(stopped.body(Body::empty()).unwrap()).await.expect_error(409, "wrong_state");
    api.post("/v1/sandboxes/box/execs", json!({ "command": ["true"] }))
        .await
        .expect_error(409, "wrong_state");
}
