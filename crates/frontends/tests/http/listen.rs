use engine::Principal;
use frontends::http::LimitSettings;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::support::{PATIENCE, Server, Setup};

#[tokio::test]
async fn a_connection_is_counted_kept_and_let_go_at_the_end() {
    let server = Server::dev().await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.send(&["GET /v1/version HTTP/1.1", "host: localhost"]).await;
        assert_eq!(client.answer().await.expect(200).json()["api"], json!(["v1"]));
    }
    assert_eq!(server.activity.n_open(), 1);
    let mut streaming = server.connect().await;
    streaming.send(&["GET /v1/events?follow=true HTTP/1.1", "host: localhost"]).await;
    streaming.answer().await.expect(200);
    assert_eq!(server.activity.n_open(), 2);
    let (activity, address) = (server.activity.clone(), server.address);
    server.end().await;
    assert_eq!(activity.n_open(), 0);
    assert!(client.rest().await.is_empty());
    streaming.rest().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

/// The clock of this test jumps as soon as nothing else happens, so no time passes.
#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_is_not_waited_for() {
    let server = Server::dev().await;
    let mut slow = server.connect().await;
    slow.0.write_all(b"GET /v1/version HTTP/1.1\r\nhost: loc").await.unwrap();
    let mut silent = server.connect().await;
    silent.rest().await;
    slow.rest().await;
    // The server's own task says when it is done.
    let closed = async {
        while server.activity.n_open() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.unwrap();
    server.end().await;
}

#[tokio::test]
async fn what_is_no_http_is_answered_and_closed() {
    let server = Server::dev().await;
    let mut client = server.connect().await;
    client.0.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n").await.unwrap();
    let said = client.rest().await;
    assert!(said.starts_with(b"HTTP/1.1 400"), "{:?}", String::from_utf8_lossy(&said));
    server.get("/v1/version").await.expect(200);
    server.end().await;
}

#[tokio::test]
async fn a_port_stream_is_a_stream_that_is_counted_and_ends_with_its_key() {
    let limits = LimitSettings { streams_per_principal: 1, ..LimitSettings::default() };
    let server = Server::start(Setup { has_keys: true, limits, ..Setup::default() }).await;
    let bearer = format!("authorization: Bearer {}", server.new_key("ci").await);
    let post = async |target: &str, body: &str| {
        let mut client = server.connect().await;
        let (line, length) = (format!("POST {target} HTTP/1.1"), format!("content-length: {}", body.len()));
        client.send(&[&line, "host: localhost", &bearer, "content-type: application/json", &length]).await;
        client.0.write_all(body.as_bytes()).await.unwrap();
        client.answer().await.expect(201);
    };
    post("/v1/sandboxes", "{\"name\":\"box\"}").await;
    server.serve_echo("box").await;
    let connect = [
        "POST /v1/sandboxes/box/connect?port=8080 HTTP/1.1",
        "host: localhost",
        &bearer,
        "connection: upgrade",
        "upgrade: warren-stream",
    ];
    let mut stream = server.connect().await;
    stream.send(&connect).await;
    stream.answer().await.expect(101);
    stream.0.write_all(b"ping").await.unwrap();
    let mut echo = Vec::new();
    stream.read_until(&mut echo, |bytes| bytes == b"ping").await;
    server.ask(&connect).await.expect_error(429, "limit_reached");
    server.engine.revoke_key(&Principal::operator("test"), "ci").await.unwrap();
    assert!(stream.rest().await.is_empty());
    server.end().await;
}

/// Far more than the buffers of two sockets hold.
const LARGE: usize = 48 << 20;

#[tokio::test]
async fn who_sends_everything_before_it_reads_is_told_why_it_was_refused() {
    let server = Server::dev().await;
    let refused = server.connect().await.refused_upload(LARGE).await;
    assert_eq!(refused.header("connection"), Some("close"));
    let error = refused.expect_error(400, "invalid_request");
    assert!(error["message"].as_str().unwrap().contains("wrong"), "{error}");
    server.end().await;
    // Nor has anyone to be known for that.
    let server = Server::start(Setup { has_keys: true, ..Setup::default() }).await;
    server.connect().await.refused_upload(LARGE).await.expect_error(401, "unauthenticated");
    server.end().await;
}

#[tokio::test]
async fn a_little_that_nobody_reads_does_not_end_the_connection() {
    let server = Server::dev().await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.send(&["POST /v1/nothing HTTP/1.1", "host: localhost", "content-length: 4", "", "body"]).await;
        // The blank line after the body is none of it, and may come before a request.
        assert_eq!(client.answer().await.expect(404).header("connection"), None);
    }
    client.send(&["GET /v1/version HTTP/1.1", "host: localhost"]).await;
    client.answer().await.expect(200);
    server.end().await;
}
