use frontends::http::LimitSettings;
use serde_json::json;

use crate::support::{Server, Setup};

#[tokio::test]
async fn wrong_keys_are_soon_throttled_and_right_ones_never() {
    let server = Server::start(Setup { has_keys: true, ..Setup::default() }).await;
    let key = server.new_key("ci").await;
    let mut n_refused = 0;
    let throttled = loop {
        let answer = server.get_with("/v1/sandboxes", "wrong").await;
        if answer.status() == 429 {
            break answer;
        }
        answer.expect_error(401, "unauthenticated");
        n_refused += 1;
        assert!(n_refused < 1000, "nobody stops this");
    };
    assert!(n_refused >= 20, "{n_refused}");
    assert_eq!(throttled.header("retry-after"), Some("1"));
    throttled.expect_error(429, "limit_reached");
    // Whoever shares the address and shows a right key is let in all the while.
    for _ in 0..40 {
        server.get_with("/v1/sandboxes", "wrong").await;
        server.get_with("/v1/sandboxes", &key).await.expect(200);
    }
    server.get("/v1/health").await.expect(200);
    server.end().await;
}

#[tokio::test]
async fn health_is_free_and_no_place_to_try_keys_at() {
    let server = Server::start(Setup { has_keys: true, ..Setup::default() }).await;
    let key = server.new_key("ci").await;
    for _ in 0..100 {
        assert_eq!(server.get("/v1/health").await.expect(200).json(), json!({ "status": "ok" }));
    }
    server.get_with("/v1/sandboxes", &key).await.expect(200);
    let mut n_tried = 0;
    while server.get_with("/v1/sandboxes", "wrong").await.status() != 429 {
        server.get_with("/v1/health", "wrong").await.expect(200);
        n_tried += 1;
        assert!(n_tried < 1000, "nobody stops this");
    }
    server.end().await;
}

#[tokio::test]
async fn a_key_has_its_rate_and_another_one_its_own() {
    let limits = LimitSettings { requests_per_second: Some(1), ..LimitSettings::default() };
    let server = Server::start(Setup { has_keys: true, limits, ..Setup::default() }).await;
    let (ana, bob) = (server.new_key("ana").await, server.new_key("bob").await);
    let mut n_served = 0;
    let refused = loop {
        let answer = server.get_with("/v1/sandboxes", &ana).await;
        if answer.status() == 429 {
            break answer;
        }
        answer.expect(200);
        n_served += 1;
        assert!(n_served < 1000, "nobody stops this");
    };
    assert!(n_served >= 2, "{n_served}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let error = refused.expect_error(429, "limit_reached");
    assert!(error["hint"].as_str().unwrap().contains("--rate-limit"), "{error}");
    server.get_with("/v1/sandboxes", &bob).await.expect(200);
    server.end().await;
}

#[tokio::test]
async fn streams_have_a_limit_that_comes_back() {
    let limits = LimitSettings { streams_per_principal: 1, ..LimitSettings::default() };
    let server = Server::start(Setup { limits, ..Setup::default() }).await;
    let follow = ["GET /v1/events?follow=true HTTP/1.1", "host: localhost"];
    let mut open = server.connect().await;
    open.send(&follow).await;
    open.answer().await.expect(200);
    let refused = server.ask(&follow).await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    let error = refused.expect_error(429, "limit_reached");
    assert!(error["hint"].as_str().unwrap().contains("--max-streams"), "{error}");
    // Requests are no streams.
    server.get("/v1/sandboxes").await.expect(200);
    drop(open);
    // The server notices in its own time that the reader left.
    loop {
        let answer = server.ask(&follow).await;
        if answer.status() == 200 {
            break;
        }
        answer.expect(429);
        tokio::task::yield_now().await;
    }
    server.end().await;
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_and_an_upload_is_not() {
    let server = Server::dev().await;
    let create = ["POST /v1/sandboxes HTTP/1.1", "host: localhost", "content-type: application/json"];
    let mut client = server.connect().await;
    client.send(&[&create[..], &["content-length: 14"]].concat()).await;
    tokio::io::AsyncWriteExt::write_all(&mut client.0, b"{\"name\":\"box\"}").await.unwrap();
    client.answer().await.expect(201);

    let bytes = vec![b'x'; 5 * 1024 * 1024];
    let length = format!("content-length: {}", bytes.len());
    let mut client = server.connect().await;
    let volume = ["POST /v1/volumes HTTP/1.1", "host: localhost", "content-type: application/json"];
    client.send(&[&volume[..], &[&length]].concat()).await;
    // It may hang up before it has read all of this.
    let (mut reading, mut writing) = tokio::io::split(client.0);
    let writes = tokio::io::AsyncWriteExt::write_all(&mut writing, &bytes);
    let mut answer = Vec::new();
    let reads = async {
        while !answer.windows(13).any(|found| found == b"limit_reached") {
            let n = tokio::io::AsyncReadExt::read_buf(&mut reading, &mut answer).await.unwrap_or(0);
            assert!(n > 0, "{}", String::from_utf8_lossy(&answer));
        }
    };
    tokio::join!(async { writes.await.unwrap_or_default() }, reads);

    let mut client = server.connect().await;
    let upload = "PUT /v1/sandboxes/box/files/content?path=/tmp/large HTTP/1.1";
    client.send(&[upload, "host: localhost", "content-type: application/json", &length]).await;
    tokio::io::AsyncWriteExt::write_all(&mut client.0, &bytes).await.unwrap();
    let written = client.answer().await;
    assert!(written.status() < 300, "{written:?}");
    server.end().await;
}
