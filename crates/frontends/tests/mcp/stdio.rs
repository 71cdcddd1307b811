//! The pipe that `warren mcp` uses.

use std::{net::SocketAddr, sync::Arc};

use axum::{body::Body, http::Request};
use frontends::{
    http::{self, Peer},
    mcp::{Greeting, SETTINGS_HEADER, Settings, Toolsets, UPGRADE_PROTOCOL},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::watch,
};
use tower::ServiceExt;

use crate::support::{PATIENCE, Server, call, hello, request, within};

/// A connection after its upgrade.
struct Pipe {
    stream: BufReader<UnixStream>,
}

impl Pipe {
    async fn open(server: &Server, greeting: &Greeting) -> Self {
        let path = server.home.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let (app, activity, stop) = (server.app.clone(), server.activity.clone(), server.stop.clone());
        tokio::spawn(http::serve_unix(
            watch::channel(Arc::new(listener)).1,
            app,
            activity,
            stop,
            PATIENCE,
            || {},
        ));
        let mut stream = BufReader::new(UnixStream::connect(&path).await.unwrap());
        let head = format!(
            "GET /mcp/stdio HTTP/1.1\r\nHost: warren\r\nConnection: Upgrade\r\nUpgrade: {UPGRADE_PROTOCOL}\r\n\
             {SETTINGS_HEADER}: {}\r\n\r\n",
            greeting.encode()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut line = String::new();
        within(stream.read_line(&mut line)).await.unwrap();
        assert!(line.contains(" 101 "), "{line}");
        while line != "\r\n" {
            line.clear();
            within(stream.read_line(&mut line)).await.unwrap();
        }
        Self { stream }
    }

    async fn say(&mut self, message: Value) {
        self.stream.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let mut line = String::new();
        within(self.stream.read_line(&mut line)).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

fn greeting(toolsets: &str) -> Greeting {
    let settings = Settings { toolsets: toolsets.parse().unwrap(), ..Settings::default() };
    Greeting { settings, namespace: Some("red".parse().unwrap()) }
}

#[tokio::test]
async fn settings_come_along_and_what_was_asked_before_the_end_is_answered() {
    let server = Server::new().await;
    let mut pipe = Pipe::open(&server, &greeting("all")).await;
    pipe.say(hello("2025-06-18")).await;
    assert_eq!(pipe.hear().await["result"]["protocolVersion"], "2025-06-18");
    pipe.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    pipe.say(call(1, "sandbox_create", json!({ "name": "dev" }))).await;
    assert_eq!(pipe.hear().await["result"]["structuredContent"]["ok"], true);
    pipe.say(request(2, "tools/list", json!({}))).await;
    assert!(pipe.hear().await.to_string().contains("sandbox_fs_tree"));
    pipe.say(request(5, "tools/call", json!({ "name": "sandbox_list", "arguments": [1] }))).await;
    assert_eq!(pipe.hear().await["result"]["structuredContent"]["error"]["code"], "invalid_request");
    let elsewhere =
        server.ask("/mcp", call(3, "sandbox_exec", json!({ "name": "dev", "command": "true" }))).await;
    assert!(elsewhere.text.contains("not_found"), "{elsewhere:?}");

    // Everything is said, and the end closed, while the command runs.
    let slow = json!({ "name": "dev", "command": "sh", "args": ["-c", "sleep 0.2; echo late"] });
    pipe.say(call(4, "sandbox_exec", slow)).await;
    pipe.stream.shutdown().await.unwrap();
    let answer = pipe.hear().await;
    assert_eq!(answer["result"]["structuredContent"]["data"]["stdout"], "late\n", "{answer}");
    let mut rest = Vec::new();
    within(pipe.stream.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
    assert!(!server.stop.is_cancelled(), "a client that leaves takes nobody along");
}

#[tokio::test]
async fn a_client_that_is_gone_loses_nothing() {
    let server = Server::new().await;
    let mut pipe = Pipe::open(&server, &greeting("core")).await;
    pipe.say(hello("2025-11-25")).await;
    pipe.hear().await;
    pipe.say(call(1, "sandbox_create", json!({ "name": "dev" }))).await;
    pipe.hear().await;
    let command =
        json!({ "name": "dev", "command": "sh", "args": ["-c", "sleep 5; echo late"], "requestId": "a" });
    let code =
        json!({ "name": "dev", "code": "import time; time.sleep(5)\nprint('late')", "requestId": "b" });
    pipe.say(call(2, "sandbox_exec", command.clone())).await;
    pipe.say(call(3, "sandbox_run_code", code.clone())).await;
    // Those that only wait for something are not waited for.
    pipe.say(call(4, "sandbox_wait", json!({ "name": "dev", "timeoutMs": 0 }))).await;
    let ask = async |tool: &str, arguments: Value| {
        server.ask("/mcp?namespace=red", call(5, tool, arguments)).await.text
    };
    within(async {
        while ask("sandbox_exec_list", json!({ "name": "dev" })).await.matches("\"running\"").count() < 2 {}
    })
    .await;
    drop(pipe);
    for (tool, arguments) in [("sandbox_exec", command), ("sandbox_run_code", code)] {
        let answer: Value = serde_json::from_str(&ask(tool, arguments).await).unwrap();
        let data = &answer["result"]["structuredContent"]["data"];
        assert_eq!((&data["stdout"], &data["exitCode"]), (&json!("late\n"), &json!(0)), "{answer}");
    }
    within(async {
        while server.activity.n_open() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn only_the_unix_socket_has_it() {
    let server = Server::new().await;
    let ask = async |peer: Peer, upgrade: &str| {
        let request = Request::get("/mcp/stdio").header("upgrade", upgrade);
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(peer);
        server.app.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    let tcp = Peer::Tcp(SocketAddr::from(([127, 0, 0, 1], 1)));
    assert_eq!(ask(tcp, UPGRADE_PROTOCOL).await, 403);
    assert_eq!(ask(Peer::Unix { uid: 0, pid: None }, "websocket").await, 400);
    assert_eq!(Toolsets::default(), "core".parse().unwrap());
}
