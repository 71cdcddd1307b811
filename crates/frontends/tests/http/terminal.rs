//! Terminals over WebSocket: typed at, resized, left and come back to without loss, ended.

use futures_util::{SinkExt as _, StreamExt as _};
use sandbox::{ExecId, ExecSpec, TerminalSize};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use crate::{
    support::{PATIENCE, Server},
    web::{Browser, make_sandbox, operator, with_keys},
};

/// A shell that reads line by line, without a prompt that could be mistaken for output.
const SHELL: &str = "stty -echo; echo begun; while read line; do eval \"$line\"; done; echo over; exit 3";

struct Tab {
    socket: WebSocketStream<TcpStream>,
    /// The number of the last output.
    number: u64,
    output: String,
}

fn upgrade(sandbox: &str, exec: &ExecId, from: u64) -> Vec<String> {
    let line = format!("GET /v1/sandboxes/{sandbox}/execs/{exec}/terminal?from={from} HTTP/1.1");
    [
        &line,
        "host: localhost",
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Returns the headers that a browser adds.
fn of_page(browser: &Browser<'_>) -> Vec<String> {
    vec![
        format!("cookie: warren_session={}", browser.cookie),
        "origin: http://localhost".to_owned(),
        format!("sec-websocket-protocol: warren.terminal.v1, warren.proof.{}", browser.proof),
    ]
}

impl Tab {
    async fn open(server: &Server, browser: &Browser<'_>, exec: &ExecId, from: u64) -> Self {
        let mut client = server.connect().await;
        let head = [upgrade("lab", exec, from), of_page(browser)].concat();
        client.send(&head.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut bytes = Vec::new();
        client.read_until(&mut bytes, |bytes| bytes.windows(4).any(|four| four == b"\r\n\r\n")).await;
        let n_head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let rest = bytes.split_off(n_head);
        let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101") && head.contains("protocol: warren.terminal.v1"), "{head}");
        assert!(!head.contains("proof"), "{head}");
        let socket = WebSocketStream::from_partially_read(client.0, rest, Role::Client, None).await;
        Self { socket, number: from.saturating_sub(1), output: String::new() }
    }

    async fn next(&mut self) -> Option<Message> {
        tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("a message in time")?.ok()
    }

    /// Reads until this was printed.
    async fn wait_for(&mut self, text: &str) {
        while !self.output.contains(text) {
            match self.next().await.expect("an open socket") {
                Message::Text(words) => {
                    let words: Value = serde_json::from_str(&words).unwrap();
                    self.number = words["number"].as_u64().unwrap_or_else(|| panic!("{words}"));
                }
                Message::Binary(bytes) => self.output.push_str(&String::from_utf8_lossy(&bytes)),
                _ => {}
            }
        }
    }

    async fn type_line(&mut self, line: &str) {
        self.socket.send(Message::binary(format!("{line}\n").into_bytes())).await.unwrap();
    }

    async fn tell(&mut self, words: Value) {
        self.socket.send(Message::text(words.to_string())).await.unwrap();
    }

    /// The next words that are not about output.
    async fn words(&mut self) -> Value {
        loop {
            match self.next().await.expect("an open socket") {
                Message::Text(words) => {
                    let words: Value = serde_json::from_str(&words).unwrap();
                    if words.get("number").is_none() {
                        return words;
                    }
                }
                Message::Binary(bytes) => self.output.push_str(&String::from_utf8_lossy(&bytes)),
                _ => {}
            }
        }
    }
}

async fn start_shell(server: &Server) -> ExecId {
    make_sandbox(server, &operator(), "lab").await;
    let size = Some(TerminalSize { rows: 24, cols: 80 });
    let spec = ExecSpec { terminal: size, stdin: true, ..ExecSpec::shell(SHELL) };
    server.engine.exec(&operator(), &"lab".parse().unwrap(), spec).await.unwrap().id
}

#[tokio::test]
async fn a_terminal_survives_its_tab() {
    let server = with_keys().await;
    let browser = Browser::owner(&server).await;
    let exec = start_shell(&server).await;
    let mut tab = Tab::open(&server, &browser, &exec, 1).await;
    tab.wait_for("begun").await;
    tab.type_line("stty size").await;
    tab.wait_for("24 80").await;
    tab.tell(json!({ "resize": { "cols": 100, "rows": 40 } })).await;
    tab.type_line("stty size").await;
    tab.wait_for("40 100").await;
    // The tab goes while the program prints; another one goes on where it was.
    tab.type_line("echo first; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo second; echo third").await;
    tab.wait_for("first").await;
    let seen = tab.number;
    drop(tab);
    let mut other = Tab::open(&server, &browser, &exec, 1).await;
    other.wait_for("first").await;
    let go = ExecSpec::argv(["touch", "/tmp/go"]);
    server.engine.exec(&operator(), &"lab".parse().unwrap(), go).await.unwrap();
    other.wait_for("third").await;
    let mut again = Tab::open(&server, &browser, &exec, seen + 1).await;
    again.wait_for("third").await;
    let rest = other.output.split_once("first").unwrap().1;
    assert_eq!(again.output.trim_start(), rest.trim_start(), "nothing is lost and nothing is said twice");
    // A message that the terminal does not know changes nothing.
    for nonsense in [json!({ "resize": { "cols": 0, "rows": 1 } }), json!({ "run": "rm" }), json!([])] {
        again.tell(nonsense).await;
        assert_eq!(again.words().await["error"]["kind"], "invalid_request");
    }
    again.tell(json!({ "eof": true })).await;
    let exit = again.words().await;
    assert_eq!(exit["exit"]["code"], 3, "{exit}");
    assert!(again.output.contains("over"));
    assert!(matches!(again.next().await, Some(Message::Close(_)) | None));
    // It is still there to be read.
    let mut late = Tab::open(&server, &browser, &exec, 1).await;
    assert_eq!(late.words().await["exit"]["code"], 3);
    assert_eq!(late.output.split_once("first").unwrap().1.trim(), format!("{}\r\nover", rest.trim()));
}

#[tokio::test]
async fn a_terminal_is_for_our_own_page_and_ends_with_the_session() {
    let server = with_keys().await;
    let browser = Browser::owner(&server).await;
    let exec = start_shell(&server).await;
    let ask = async |extra: Vec<String>| {
        let head = [upgrade("lab", &exec, 1), extra].concat();
        server.ask(&head.iter().map(String::as_str).collect::<Vec<_>>()).await.status()
    };
    let of_page = of_page(&browser);
    let with_origin =
        |origin: &str| vec![of_page[0].clone(), format!("origin: {origin}"), of_page[2].clone()];
    assert_eq!(ask(with_origin("http://evil.example")).await, 403);
    assert_eq!(ask(with_origin("http://8000-lab.localhost")).await, 403);
    assert_eq!(ask(vec![of_page[0].clone(), of_page[2].clone()]).await, 403, "without an origin");
    assert_eq!(ask(of_page[..2].to_vec()).await, 401, "without the page's half");
    let plain = format!("GET /v1/sandboxes/lab/execs/{exec}/terminal");
    server.ask(&browser.head(&plain).iter().map(String::as_str).collect::<Vec<_>>()).await.expect(400);

    let mut tab = Tab::open(&server, &browser, &exec, 1).await;
    tab.wait_for("begun").await;
    let out = browser.head("DELETE /v1/session");
    server.ask(&out.iter().map(String::as_str).collect::<Vec<_>>()).await.expect(204);
    assert!(tab.next().await.is_none(), "it has ended");
}

#[tokio::test]
async fn whoever_watches_sees_a_terminal_and_types_nothing() {
    let server = with_keys().await;
    let exec = start_shell(&server).await;
    let target = engine::ShareTarget::Sandbox("lab".parse().unwrap());
    let spec = engine::ShareSpec { target, ttl: std::time::Duration::from_secs(60) };
    let share = server.engine.share(&operator(), &spec).await.unwrap();
    let watcher = Browser::sign_in(&server, json!({ "share": share.token })).await;
    let mut tab = Tab::open(&server, &watcher, &exec, 1).await;
    tab.wait_for("begun").await;
    tab.type_line("touch /tmp/typed").await;
    assert_eq!(tab.words().await["error"]["kind"], "denied");
    tab.tell(json!({ "resize": { "cols": 10, "rows": 10 } })).await;
    assert_eq!(tab.words().await["error"]["kind"], "denied");
    tab.tell(json!({ "signal": 9 })).await;
    assert_eq!(tab.words().await["error"]["kind"], "denied");
}
