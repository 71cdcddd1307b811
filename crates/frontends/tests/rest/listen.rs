use std::{sync::Arc, time::Duration};

use frontends::http::serve_unix;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::watch,
};

use crate::support::{Api, OWNER, PATIENCE};

/// An API on a real socket. Whoever runs this test is not `OWNER` and not known, so the peer is what the kernel says.
struct Server {
    api: Api,
    socket: std::path::PathBuf,
    serving: tokio::task::JoinHandle<()>,
    listener: watch::Sender<Arc<UnixListener>>,
    _place: tempfile::TempDir,
}

async fn server(grace: Duration) -> Server {
    let api = Api::with_box().await;
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("s");
    let listener = watch::Sender::new(Arc::new(UnixListener::bind(&socket).unwrap()));
    let serving = tokio::spawn(serve_unix(
        listener.subscribe(),
        api.router.clone(),
        api.activity.clone(),
        api.stop.clone(),
        grace,
        || {},
    ));
    Server { api, socket, serving, listener, _place: place }
}

/// Sends raw bytes and reads until the head of the answer ended.
async fn ask(socket: &std::path::Path, request: &str) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut piece = [0; 4096];
        let n = tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await.unwrap().unwrap();
        assert!(n > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..n]);
    }
    (stream, String::from_utf8_lossy(&answer).into_owned())
}

/// Whether the kernel's word about this process lets it in: the tests' daemon belongs to `OWNER`.
fn may_enter() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let own = std::fs::metadata("/proc/self").unwrap().uid();
    own == 0 || own == OWNER
}

#[tokio::test]
async fn the_kernel_says_who_asks() {
    let server = server(Duration::from_secs(1)).await;
    let (_stream, head) = ask(&server.socket, "GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let expected = if may_enter() { "200" } else { "403" };
    assert!(head.starts_with(&format!("HTTP/1.1 {expected}")), "{head}");
    server.api.stop.cancel();
    server.serving.await.unwrap();
}

#[tokio::test]
async fn a_stop_lets_requests_finish_and_cuts_the_rest_at_the_deadline() {
    if !may_enter() {
        println!("skipped: this user is neither root nor the owner");
        return;
    }
    let server = server(Duration::from_millis(200)).await;
    let id = server.api.start(json!({ "command": ["sleep", "60"] })).await;
    // One that will never be answered, and one that idles.
    let mut waiting = UnixStream::connect(&server.socket).await.unwrap();
    let request = format!("GET /v1/sandboxes/box/execs/{id}/wait HTTP/1.1\r\nhost: x\r\n\r\n");
    waiting.write_all(request.as_bytes()).await.unwrap();
    let (mut idling, _) = ask(&server.socket, "GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(server.api.activity.n_open(), 2);
    server.api.stop.cancel();
    tokio::time::timeout(PATIENCE, server.serving).await.unwrap().unwrap();
    let mut rest = Vec::new();
    idling.read_to_end(&mut rest).await.unwrap();
    assert_eq!(waiting.read_to_end(&mut rest).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_port_stream_runs_both_ways() {
    if !may_enter() {
        println!("skipped: this user is neither root nor the owner");
        return;
    }
    let server = server(Duration::from_secs(1)).await;
    server.api.serve_echo().await;
    let request = "POST /v1/sandboxes/box/connect?port=8080 HTTP/1.1\r\nhost: x\r\n\
                   connection: upgrade\r\nupgrade: warren-stream\r\n\r\n";
    let (mut stream, head) = ask(&server.socket, request).await;
    assert!(head.starts_with("HTTP/1.1 101") && head.contains("warren-stream"), "{head}");
    stream.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut echo)).await.unwrap().unwrap();
    assert_eq!(&echo, b"ping");
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    server.api.stop.cancel();
    server.serving.await.unwrap();
}

#[tokio::test]
async fn a_replaced_socket_is_served_and_open_connections_stay() {
    let server = server(PATIENCE).await;
    let (mut open, _) = ask(&server.socket, "GET /v1/health HTTP/1.1\r\nhost: warren\r\n\r\n").await;
    std::fs::remove_file(&server.socket).unwrap();
    server.listener.send_replace(Arc::new(UnixListener::bind(&server.socket).unwrap()));
    let (_, answer) = ask(&server.socket, "GET /v1/health HTTP/1.1\r\nhost: warren\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    open.write_all(b"GET /v1/health HTTP/1.1\r\nhost: warren\r\n\r\n").await.unwrap();
    let n = tokio::time::timeout(PATIENCE, open.read(&mut [0; 4096])).await.unwrap().unwrap();
    assert!(n > 0, "the first connection was closed");
    server.api.stop.cancel();
    server.serving.await.unwrap();
}
