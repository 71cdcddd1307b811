//! Servers inside a sandbox, reached by a host name of their own and below a path: what passes, who gets in, and that a
//! hostile server gets nothing of ours.

use std::time::Duration;

use engine::{Engine, Follow, LinkTarget, ManualClock, Principal, SandboxRef, WriteOptions};
use frontends::http::Hosts;
use futures_util::{StreamExt as _, stream};
use sandbox::{ExecSpec, KeySpec, PortSpec, SandboxId, SandboxSpec, network::Protocol};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{Answer, Client, PATIENCE, Server, Setup};

const APP: &str = include_str!("../../../../tests/ports/app.py");
const HOST: &str = "host: 8000-box.localhost:5555";

fn operator() -> Principal {
    Principal::operator("test")
}

/// Starts the test server on a port inside, and returns when it listens.
async fn serve(engine: &Engine, sandbox: &SandboxId, port: u16) {
    let which = SandboxRef::from(sandbox);
    let bytes = stream::once(std::future::ready(Ok(APP.into()))).boxed();
    engine.write_file(&operator(), &which, "/tmp/app.py", WriteOptions::default(), bytes).await.unwrap();
    let spec = ExecSpec::argv(["python3".to_owned(), "/tmp/app.py".to_owned(), port.to_string()]);
    let exec = engine.exec(&operator(), &which, spec).await.unwrap();
    let mut entries = engine.exec_entries(&operator(), &which, &exec.id, 1, Follow::Yes).await.unwrap();
    let listens = async {
        while let Some(entry) = entries.next().await {
            if entry.unwrap().output().is_some() {
                return;
            }
        }
        panic!("the server has ended");
    };
    tokio::time::timeout(PATIENCE, listens).await.expect("a server in time");
}

struct World {
    server: Server,
    sandbox: SandboxId,
}

impl World {
    /// A daemon with keys, and a sandbox with a server on port 8000.
    async fn new() -> Self {
        Self::with(Setup { has_keys: true, ..Setup::default() }).await
    }

    async fn with(setup: Setup) -> Self {
        let server = Server::start(setup).await;
        let spec = SandboxSpec { name: Some("box".parse().unwrap()), ..SandboxSpec::default() };
        let sandbox = server.engine.create_sandbox(&operator(), spec).await.unwrap().id;
        serve(&server.engine, &sandbox, 8000).await;
        Self { server, sandbox }
    }

    fn token(&self, port: u16) -> String {
        let target = LinkTarget::Port { port };
        self.server
            .engine
            .sign_link(&operator(), &self.sandbox, &target, Duration::from_secs(60))
            .unwrap()
            .token
    }

    async fn get(&self, target: &str, headers: &[&str]) -> Answer {
        let line = format!("GET {target} HTTP/1.1");
        self.server.ask(&[&[line.as_str()], headers].concat()).await
    }

    /// A GET at the host of port 8000, with a token.
    async fn visit(&self, target: &str, headers: &[&str]) -> Answer {
        let token = format!("x-warren-token: {}", self.token(8000));
        self.get(target, &[&[HOST, &token], headers].concat()).await
    }

    /// The host of a port by the sandbox's id, where browsers open pages.
    fn host_by_id(&self, port: u16) -> String {
        format!("{port}-{}.localhost", self.sandbox)
    }

    async fn publish(&self, port: PortSpec) {
        let which = SandboxRef::from(&self.sandbox);
        self.server.engine.expose_port(&operator(), &which, &port).await.unwrap();
    }
}

fn public(port: u16) -> PortSpec {
    PortSpec { inside: port, protocol: Protocol::Tcp, host: None, address: None, public: true }
}

fn told_headers(answer: &Answer) -> Vec<String> {
    let told = answer.json();
    let pairs = told["headers"].as_array().unwrap().iter();
    pairs.map(|pair| format!("{}: {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())).collect()
}

#[tokio::test]
async fn a_port_has_a_host_of_its_own_where_nothing_else_is_served() {
    let world = World::new().await;
    let page = world.visit("/hello", &[]).await.expect(200);
    assert_eq!(page.body, b"this is /hello");
    // By id too.
    let token = format!("x-warren-token: {}", world.token(8000));
    let host = format!("host: 8000-{}.localhost", world.sandbox);
    world.get("/hello", &[&host, &token]).await.expect(200);
    // Our own routes are the server's there.
    for ours in ["/v1/health", "/v1/sandboxes", "/mcp", "/v1/openapi.json", "/v1/links/x/y", "/api/v1/health"]
    {
        let answer = world.visit(ours, &[]).await.expect(200);
        assert_eq!(answer.body, format!("this is {ours}").as_bytes(), "{ours}");
    }
    // And a host that is no port's is still refused.
    world.get("/v1/health", &["host: evil.localhost"]).await.expect(403);
    world.server.end().await;
}

#[tokio::test]
async fn whoever_has_no_right_gets_nothing() {
    let world = World::new().await;
    let key = world.server.new_key("ci").await;
    let bearer = format!("authorization: Bearer {key}");
    world.get("/hello", &[HOST, &bearer]).await.expect(200);
    world.get(&format!("/hello?api_key={key}"), &[HOST]).await.expect(200);
    world.get("/hello", &[HOST]).await.expect_error(401, "unauthenticated");
    world.get("/hello", &[HOST, "authorization: Bearer wrn_0000000000000_x"]).await.expect(401);
    // A person is told on a page, and so is what to do.
    let page = world.get("/", &[HOST, "accept: text/html"]).await.expect(401);
    assert!(String::from_utf8_lossy(&page.body).contains("warren port"), "{page:?}");
    assert!(page.header("content-security-policy").unwrap().starts_with("sandbox;"));
    // A token is for one port of one sandbox.
    let other = format!("x-warren-token: {}", world.token(8001));
    world.get("/hello", &[HOST, &other]).await.expect_error(403, "denied");
    let token = format!("x-warren-token: {}", world.token(8000));
    world.get("/hello", &["host: 8001-box.localhost", &token]).await.expect(403);
    let file = world.server.engine.sign_link(
        &operator(),
        &world.sandbox,
        &LinkTarget::File { path: "/tmp/app.py".to_owned() },
        Duration::from_secs(60),
    );
    let file = format!("x-warren-token: {}", file.unwrap().token);
    world.get("/hello", &[HOST, &file]).await.expect(403);
    world.get("/hello", &[HOST, "x-warren-token: forged"]).await.expect(404);
    // It does not open our own routes.
    world.get("/v1/sandboxes", &["host: localhost", &token]).await.expect(401);
    // A read-only key reaches no port, and neither does its link.
    let spec = KeySpec { label: Some("looker".to_owned()), read_only: true, ..KeySpec::default() };
    let looker = world.server.engine.create_key(&operator(), spec).await.unwrap();
    let looking = format!("authorization: Bearer {}", looker.secret);
    world.get("/hello", &[HOST, &looking]).await.expect_error(403, "denied");
    world
        .server
        .ask_json("POST /v1/sandboxes/box/ports", &looker.secret, r#"{"port":8000}"#)
        .await
        .expect_error(403, "denied");
    // A foreign key sees no sandbox.
    let spec = KeySpec {
        label: Some("other".to_owned()),
        namespace: Some("other".parse().unwrap()),
        ..KeySpec::default()
    };
    let foreign = world.server.engine.create_key(&operator(), spec).await.unwrap().secret;
    let host = format!("host: 8000-{}.localhost", world.sandbox);
    world.get("/hello", &[&host, &format!("authorization: Bearer {foreign}")]).await.expect(404);
    world.server.end().await;
}

#[tokio::test]
async fn a_browser_trades_its_token_for_a_cookie() {
    let world = World::new().await;
    let token = world.token(8000);
    let own = format!("{}:5555", world.host_by_id(8000));
    let host = format!("host: {own}");
    let first = world.get(&format!("//a?x=1&warren_token={token}&y=2"), &[&host, "accept: text/html"]).await;
    let first = first.expect(303);
    // The whole address, since two slashes alone would lead to another host.
    assert_eq!(first.header("location"), Some(format!("http://{own}//a?x=1&y=2").as_str()));
    assert_eq!(first.header("referrer-policy"), Some("no-referrer"));
    let cookie = first.header("set-cookie").unwrap();
    assert!(cookie.starts_with("warren_port=") && cookie.contains("httponly; samesite=lax"), "{cookie}");
    assert!(!cookie.contains("domain"), "{cookie}");
    let cookie = format!("cookie: warren_port={token}");
    let answer = world.get("/headers?warren_token=zzz&q=1", &[&host, &cookie]).await;
    // A wrong token in the address is not made good by a cookie.
    assert_eq!(answer.status(), 404);
    let answer = world.get("/headers?q=1", &[&host, &cookie, "cookie: own=1"]).await.expect(200);
    assert_eq!(answer.json()["target"], "/headers?q=1");
    let told = told_headers(&answer);
    assert!(told.contains(&"cookie: own=1".to_owned()), "{told:?}");
    assert!(!told.iter().any(|line| line.contains(&token)), "{told:?}");
    // A program uses the address as it is.
    let answer = world.get(&format!("/headers?warren_token={token}&q=1"), &[HOST]).await.expect(200);
    assert_eq!(answer.json()["target"], "/headers?q=1");
    // A cookie that ended or was put there keeps nobody out of what is public.
    world.publish(public(8000)).await;
    world.get("/hello", &[HOST, "cookie: warren_port=forged"]).await.expect(200);
    world.server.end().await;
}

#[tokio::test]
async fn no_page_is_opened_at_a_host_that_may_be_anothers_tomorrow() {
    let world = World::new().await;
    let token = world.token(8000);
    let by_id = format!("http://{}:5555", world.host_by_id(8000));
    // A browser is sent to the host by id, with its token; whoever has no right is told no id.
    let is_page = ["accept: text/html,*/*;q=0.8", "sec-fetch-mode: navigate"];
    for header in is_page {
        let target = format!("//a?x=1&warren_token={token}");
        let answer = world.get(&target, &[HOST, header]).await.expect(307);
        assert_eq!(answer.header_as_sent("location"), Some(format!("{by_id}{target}").as_str()));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("set-cookie"), None);
        world.get("/hello", &[HOST, header]).await.expect(401);
    }
    world.publish(public(8000)).await;
    let frame = [HOST, is_page[0], "sec-fetch-mode: navigate", "sec-fetch-dest: iframe"];
    let answer = world.get("/hello", &frame).await.expect(307);
    assert_eq!(answer.header("location"), Some(format!("{by_id}/hello").as_str()));
    // Programs are served there as everywhere, and what a browser could make of it runs nothing.
    let answer = world.get("/hello", &[HOST]).await.expect(200);
    assert_eq!(answer.header("content-security-policy"), Some("sandbox"));
    let host = format!("host: {}", world.host_by_id(8000));
    let answer = world.get("/hello", &[&host, is_page[0]]).await.expect(200);
    assert_eq!(answer.header("content-security-policy"), None);
    world.server.end().await;
}

#[tokio::test]
async fn other_pages_cannot_use_a_visitors_cookie() {
    let world = World::new().await;
    let host = format!("host: {}:5555", world.host_by_id(8000));
    let cookie = format!("cookie: warren_port={}", world.token(8000));
    let status = async |method: &str, headers: &[&str]| {
        let line = format!("{method} /hello HTTP/1.1");
        world
            .server
            .ask(&[&[line.as_str(), &host, &cookie, "content-length: 0"], headers].concat())
            .await
            .status()
    };
    let own = host.replace("host: ", "origin: http://");
    assert_eq!(status("GET", &[]).await, 200);
    assert_eq!(status("POST", &[&own, "sec-fetch-site: same-origin"]).await, 200);
    assert_eq!(status("GET", &["sec-fetch-site: same-origin"]).await, 200);
    let followed = ["sec-fetch-site: cross-site", "sec-fetch-mode: navigate", "sec-fetch-dest: document"];
    assert_eq!(status("GET", &followed).await, 200);
    assert_eq!(status("POST", &followed).await, 403, "a form on another page");
    for site in ["sec-fetch-site: cross-site", "sec-fetch-site: same-site"] {
        assert_eq!(status("GET", &[site]).await, 403, "a picture");
        assert_eq!(status("GET", &[site, "sec-fetch-mode: navigate", "sec-fetch-dest: iframe"]).await, 403);
    }
    for origin in [
        "origin: null",
        "origin: http://8001-box.localhost:5555",
        "origin: http://localhost:5555",
        "origin: https://evil.example",
    ] {
        assert_eq!(status("POST", &[origin]).await, 403, "{origin}");
        let upgrade = ["connection: upgrade", "upgrade: websocket", origin];
        assert_eq!(status("GET", &upgrade).await, 403, "{origin}");
    }
    world.server.end().await;
}

#[tokio::test]
async fn without_keys_foreign_pages_still_reach_no_port() {
    let world = World::with(Setup::default()).await;
    world.get("/hello", &[HOST]).await.expect(200);
    world.get("/hello", &[HOST, "origin: https://evil.example"]).await.expect(403);
    world.get("/hello", &[HOST, "sec-fetch-site: cross-site"]).await.expect(403);
    world.server.end().await;
}

#[tokio::test]
async fn a_public_port_is_open_until_it_is_withdrawn() {
    let world = World::new().await;
    let key = world.server.new_key("ci").await;
    let made = world
        .server
        .ask_json("POST /v1/sandboxes/box/ports", &key, r#"{"port":8000,"public":true}"#)
        .await
        .expect(201)
        .json();
    let url = format!("http://{}/", world.host_by_id(8000));
    let expected = json!({ "port": 8000, "url": url, "public": true, "listening": true });
    assert_eq!(made, expected);
    world.get("/hello", &[HOST]).await.expect(200);
    world.get("/hello", &[HOST, "origin: https://evil.example"]).await.expect(200);
    // The other ports are not.
    world.get("/hello", &["host: 8001-box.localhost"]).await.expect(401);
    let shown = world.server.get_with("/v1/sandboxes/box", &key).await.expect(200).json();
    assert_eq!(shown["ports"], json!([{ "port": 8000, "public": true }]));
    let gone = world.server.ask_json("DELETE /v1/sandboxes/box/ports/8000", &key, "").await;
    gone.expect(204);
    world.get("/hello", &[HOST]).await.expect(401);
    world
        .server
        .ask_json("DELETE /v1/sandboxes/box/ports/8000", &key, "")
        .await
        .expect_error(404, "not_found");
    world.server.end().await;
}

#[tokio::test]
async fn what_the_server_inside_learns_and_may_say() {
    let world = World::new().await;
    let forged =
        ["x_forwarded_for: 198.51.100.9", "forwarded: for=198.51.100.9", "connection: x-hop", "x-hop: 1"];
    let own = ["authorization: Bearer of-the-app", "x-api-key: of-the-app", "cookie: session=1"];
    let told = told_headers(&world.visit("/headers", &forged).await.expect(200));
    for line in ["host: 8000-box.localhost:5555", "x-forwarded-for: 127.0.0.1", "x-forwarded-proto: http"] {
        assert!(told.iter().any(|found| found == line), "{line}: {told:?}");
    }
    assert!(!told.iter().any(|line| line.contains("198.51.100.9") || line.contains("x-hop")), "{told:?}");
    assert!(!told.iter().any(|line| line.contains("warren")), "{told:?}");
    let told = told_headers(&world.visit("/headers", &own).await.expect(200));
    assert!(own.iter().all(|line| told.iter().any(|found| found == line)), "{told:?}");

    let answer = world.visit("/redirect", &[]).await.expect(302);
    assert_eq!(answer.header("location"), Some("/login"));
    assert_eq!(answer.header("set-cookie"), Some("a=1; path=/"), "for this host only");
    for never in ["alt-svc", "clear-site-data", "x-own"] {
        assert_eq!(answer.header(never), None, "{never}");
    }
    assert!(!answer.head.contains("warren_port"), "{}", answer.head);
    world.server.end().await;
}

#[tokio::test]
async fn below_a_path_nothing_can_run_in_our_origin() {
    let world = World::new().await;
    let key = world.server.new_key("ci").await;
    let below = "/v1/sandboxes/box/ports/8000";
    let page = world.server.get_with(&format!("{below}/"), &key).await.expect(200);
    assert_eq!(page.header("content-security-policy"), Some("sandbox; frame-ancestors 'none'"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let answer = world.server.get_with(&format!("{below}/redirect"), &key).await.expect(302);
    assert_eq!(answer.header("location"), Some("/v1/sandboxes/box/ports/8000/login"));
    assert_eq!(answer.header("set-cookie"), None);
    let bearer = format!("authorization: Bearer {key}");
    let target = format!("{below}/headers?q=%2F&api_key={key}");
    let answer =
        world.get(&target, &["host: localhost:5555", &bearer, "cookie: of=another"]).await.expect(200);
    assert_eq!(answer.json()["target"], "/headers?q=%2F");
    let mut told = told_headers(&answer);
    told.sort();
    assert_eq!(
        told,
        [
            "host: localhost:8000",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-host: localhost:5555",
            "x-forwarded-prefix: /v1/sandboxes/box/ports/8000",
            "x-forwarded-proto: http",
        ]
    );
    // By a key, or by a token in a header; never by what a browser sends by itself.
    let (host, token) = ("host: localhost", world.token(8000));
    world.get(&format!("{below}/hello"), &[host]).await.expect(401);
    world.get(&format!("{below}/hello"), &[host, &format!("cookie: warren_port={token}")]).await.expect(401);
    world.get(&format!("{below}/hello?warren_token={token}"), &[host]).await.expect(401);
    world.get(&format!("{below}/hello"), &[host, &format!("x-warren-token: {token}")]).await.expect(200);
    let other = format!("x-warren-token: {}", world.token(8001));
    world.get(&format!("{below}/hello"), &[host, &other]).await.expect(403);
    for bad in ["0", "x", "70000", "+8000"] {
        let target = format!("/v1/sandboxes/box/ports/{bad}/");
        world.server.get_with(&target, &key).await.expect_error(400, "invalid_request");
    }
    world.server.end().await;
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let world = World::new().await;
    const BYTES: usize = 32 * 1024 * 1024;
    let answer = world.visit(&format!("/big?n={BYTES}"), &[]).await.expect(200);
    let is_right =
        answer.body.chunks(256).all(|piece| piece.iter().enumerate().all(|(n, byte)| *byte == n as u8));
    assert!(answer.body.len() == BYTES && is_right);

    // Sent in pieces of which nobody knows the number, and of which most come after the first was received.
    let token = format!("x-warren-token: {}", world.token(8000));
    let mut client = world.server.connect().await;
    client.send(&["POST /sum HTTP/1.1", HOST, &token, "transfer-encoding: chunked"]).await;
    let piece = vec![7; 65536];
    for _ in 0..64 {
        client.0.write_all(b"10000\r\n").await.unwrap();
        client.0.write_all(&piece).await.unwrap();
        client.0.write_all(b"\r\n").await.unwrap();
    }
    client.0.write_all(b"0\r\n\r\n").await.unwrap();
    let told = client.answer().await.expect(200).json();
    assert_eq!(told["bytes"], 64 * 65536);

    // The first event comes while the server keeps the answer open, and the server hears when its reader goes.
    let mut client = world.server.connect().await;
    client.send(&["GET /events HTTP/1.1", HOST, &token, "accept: text/event-stream"]).await;
    let mut bytes = Vec::new();
    client.read_until(&mut bytes, |bytes| bytes.windows(13).any(|part| part == b"data: first\n\n")).await;
    drop(client);
    world.server.end().await;
}

/// A frame of a client, with a mask of zeros.
fn frame(text: &str) -> Vec<u8> {
    [&[0x81, 0x80 | text.len() as u8, 0, 0, 0, 0], text.as_bytes()].concat()
}

async fn open_websocket(server: &Server, head: &[&str]) -> (Client<TcpStream>, Answer) {
    let upgrade = [
        "connection: Upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let mut client = server.connect().await;
    client.send(&[head, &upgrade].concat()).await;
    let answer = client.answer().await;
    (client, answer)
}

async fn hears(client: &mut Client<TcpStream>, text: &str) {
    client.0.write_all(&frame(text)).await.unwrap();
    let expected = format!("inside heard {text}");
    let mut bytes = vec![0; expected.len() + 2];
    tokio::time::timeout(PATIENCE, client.0.read_exact(&mut bytes)).await.expect("an echo in time").unwrap();
    assert_eq!(bytes, [&[0x81, expected.len() as u8], expected.as_bytes()].concat());
}

#[tokio::test]
async fn what_is_open_ends_with_the_token_and_with_a_port_that_is_public() {
    let clock = ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap());
    let setup = Setup { has_keys: true, clock: Some(clock.clone()), ..Setup::default() };
    let world = World::with(setup).await;
    let token = format!("x-warren-token: {}", world.token(8000));
    let (mut upgraded, answer) = open_websocket(&world.server, &["GET /ws HTTP/1.1", HOST, &token]).await;
    answer.expect(101);
    hears(&mut upgraded, "for a while").await;
    let mut events = world.server.connect().await;
    events.send(&["GET /events HTTP/1.1", HOST, &token]).await;
    let first = |bytes: &[u8]| bytes.windows(13).any(|part| part == b"data: first\n\n");
    events.read_until(&mut Vec::new(), first).await;
    clock.advance(Duration::from_secs(61));
    upgraded.rest().await;
    // The last chunk: the connection itself stays for a further request.
    events.read_until(&mut Vec::new(), |bytes| bytes.ends_with(b"0\r\n\r\n")).await;

    world.publish(public(8000)).await;
    let (mut upgraded, answer) = open_websocket(&world.server, &["GET /ws HTTP/1.1", HOST]).await;
    answer.expect(101);
    hears(&mut upgraded, "while it is public").await;
    let which = SandboxRef::from(&world.sandbox);
    world.server.engine.withdraw_port(&operator(), &which, 8000).await.unwrap();
    upgraded.rest().await;
    world.server.end().await;
}

#[tokio::test]
async fn websockets_pass_and_end_with_the_key_and_the_daemon() {
    let world = World::new().await;
    let spec = KeySpec { label: Some("ci".to_owned()), ..KeySpec::default() };
    let key = world.server.engine.create_key(&operator(), spec).await.unwrap();
    let bearer = format!("authorization: Bearer {}", key.secret);
    let (mut below, answer) = open_websocket(
        &world.server,
        &["GET /v1/sandboxes/box/ports/8000/ws HTTP/1.1", "host: localhost", &bearer],
    )
    .await;
    assert_eq!(answer.expect(101).header("sec-websocket-accept"), Some("s3pplmbitxaq9kygzzhzrbk+xoo="));
    hears(&mut below, "below a path").await;
    let token = format!("x-warren-token: {}", world.token(8000));
    let (mut own, answer) = open_websocket(&world.server, &["GET /ws HTTP/1.1", HOST, &token]).await;
    answer.expect(101);
    hears(&mut own, "own host").await;
    world.server.engine.revoke_key(&operator(), key.key.id.as_str()).await.unwrap();
    assert_eq!(below.rest().await, b"", "it ended with its key");
    hears(&mut own, "still here").await;
    world.server.stop.cancel();
    assert_eq!(own.rest().await, b"", "it ended with the daemon");
    assert_eq!(world.server.activity.n_open(), 0);
    world.server.end().await;
}

#[tokio::test]
async fn a_server_that_lies_gets_a_plain_error_and_holds_nobody_up() {
    let world = World::new().await;
    for (path, why) in [
        ("/bad/garbage", "not HTTP"),
        ("/bad/nothing", "closed the connection"),
        ("/bad/headers", "too long"),
        ("/bad/many", ""),
        ("/bad/lengths", ""),
        ("/bad/upgrade", "switched protocols"),
    ] {
        let error = world.visit(path, &[]).await.expect_error(502, "wrong_state");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("port 8000") && message.contains(why), "{path}: {message}");
    }
    // Half an answer does not look whole.
    let mut client = world.server.connect().await;
    let token = format!("x-warren-token: {}", world.token(8000));
    client.send(&["GET /bad/short HTTP/1.1", HOST, &token]).await;
    let all = String::from_utf8(client.rest().await).unwrap().to_ascii_lowercase();
    assert!(all.contains("content-length: 1000") && all.ends_with("\r\n\r\nshort"), "{all}");
    world.visit("/hello", &[]).await.expect(200);
    world.server.end().await;
}

#[tokio::test]
async fn nothing_that_listens_is_told_to_people_and_programs() {
    let world = World::new().await;
    let token = format!("x-warren-token: {}", world.token(9));
    let host = "host: 9-box.localhost";
    let error = world.get("/", &[host, &token]).await.expect_error(502, "wrong_state");
    assert!(error["message"].as_str().unwrap().starts_with("nothing listens on port 9"), "{error}");
    let page = world.get("/", &[host, &token, "accept: text/html"]).await.expect(502);
    let text = String::from_utf8_lossy(&page.body);
    assert!(text.contains("nothing listens on port 9") && text.contains("Start a server"), "{text}");
    let which = SandboxRef::from(&world.sandbox);
    world.server.engine.stop_sandbox(&operator(), &which, Some(Duration::ZERO)).await.unwrap();
    let page = world.visit("/", &["accept: text/html"]).await.expect(409);
    assert!(String::from_utf8_lossy(&page.body).contains("stopped"));
    world.server.end().await;
}

#[tokio::test]
async fn a_domain_of_the_operators_works_like_localhost() {
    let hosts = Hosts { port_domain: Some("https://apps.example".parse().unwrap()), ..Hosts::default() };
    let world = World::with(Setup { has_keys: true, hosts, ..Setup::default() }).await;
    let host = &format!("host: 8000-{}.Apps.example", world.sandbox);
    let token = world.token(8000);
    let told =
        told_headers(&world.get("/headers", &[host, &format!("x-warren-token: {token}")]).await.expect(200));
    assert!(told.contains(&"x-forwarded-proto: https".to_owned()), "{told:?}");
    // Where a browser keeps it for this host alone, and sends it by TLS only.
    let first = world.get(&format!("/?warren_token={token}"), &[host, "accept: text/html"]).await.expect(303);
    let cookie = first.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__host-warren_port=") && cookie.ends_with("; secure"), "{cookie}");
    world.get("/hello", &[host, &format!("cookie: __Host-warren_port={token}")]).await.expect(200);
    let by_name = ["host: 8000-box.apps.example", "accept: text/html"];
    let moved = world.get(&format!("/?warren_token={token}"), &by_name).await.expect(307);
    let by_id = format!("https://8000-{}.apps.example/?warren_token={token}", world.sandbox);
    assert_eq!(moved.header_as_sent("location"), Some(by_id.as_str()));
    world.get("/", &["host: apps.example"]).await.expect(403);
    world.get("/", &["host: box.apps.example"]).await.expect(403);
    world.server.end().await;
}

#[tokio::test]
async fn a_listing_tells_what_listens_and_what_is_exposed() {
    let world = World::new().await;
    let key = world.server.new_key("ci").await;
    world.publish(PortSpec::published(0, 9)).await;
    let listed = world.server.get_with("/v1/sandboxes/box/ports", &key).await.expect(200).json();
    let ports = listed["ports"].as_array().unwrap();
    let port = |number: u16| ports.iter().find(|port| port["port"] == number).cloned().unwrap_or_default();
    assert_eq!((&port(9)["listening"], &port(9)["public"]), (&json!(false), &json!(false)));
    assert!(port(9)["published"].as_str().unwrap().starts_with("127.0.0.1:"), "{listed}");
    assert_eq!((&port(8000)["listening"], &port(8000)["addresses"]), (&json!(true), &json!(["127.0.0.1"])));
    let made =
        world.server.ask_json("POST /v1/sandboxes/box/ports", &key, r#"{"port":8000,"ttlSeconds":60}"#).await;
    let made: Value = made.expect(201).json();
    let url = made["url"].as_str().unwrap();
    let (address, token) = url.split_once("?warren_token=").unwrap();
    assert_eq!(address, format!("http://{}/", world.host_by_id(8000)));
    assert_eq!(made["headers"], json!({ "x-warren-token": token }));
    for (body, status) in [
        (r#"{"port":0}"#, 400),
        (r#"{"port":70000}"#, 400),
        (r#"{"port":8000,"ttlSeconds":0}"#, 400),
        (r#"{"port":8000,"ttlSeconds":604801}"#, 400),
        (r#"{"port":8000,"address":"127.0.0.1"}"#, 400),
        (r#"{"port":8000,"host":0,"address":"192.0.2.7"}"#, 403),
        (r#"{"port":8000,"host":22}"#, 403),
        (r#"{"port":8000,"more":1}"#, 400),
    ] {
        let refused = world.server.ask_json("POST /v1/sandboxes/box/ports", &key, body).await;
        assert_eq!(refused.status(), status, "{body}: {refused:?}");
    }
    world.server.end().await;
}
