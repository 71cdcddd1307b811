//! The dashboard's side of the daemon: signing in, what a session may do, what it hears, and that nothing but our own
//! page can use it.

use std::time::Duration;

use engine::{NewSession, Principal, SignIn};
use frontends::http::{Hosts, LimitSettings};
use sandbox::{ExecSpec, KeySpec, Preset, SandboxSpec};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::{Answer, Client, Server, Setup};

const PUBLIC_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJFWOZgUFJTL3GuZ7Ju8GKB9eDCBOlp+UC9lxz1iBrOB ana@laptop";

pub(crate) fn operator() -> Principal {
    Principal::operator("test")
}

pub(crate) async fn with_keys() -> Server {
    Server::start(Setup { has_keys: true, ..Setup::default() }).await
}

pub(crate) async fn make_sandbox(server: &Server, who: &Principal, name: &str) -> String {
    let namespace = who.home_namespace();
    let spec = SandboxSpec { name: Some(name.parse().unwrap()), namespace, ..SandboxSpec::default() };
    server.engine.create_sandbox(who, spec).await.unwrap().id.to_string()
}

/// A browser that is signed in.
pub(crate) struct Browser<'a> {
    server: &'a Server,
    pub(crate) cookie: String,
    pub(crate) proof: String,
    session: Value,
}

impl<'a> Browser<'a> {
    pub(crate) async fn sign_in(server: &'a Server, body: Value) -> Self {
        let answer = post_session(server, &body).await.expect(200);
        let cookie = cookie_of(&answer);
        let session = answer.json();
        let proof = session["proof"].as_str().unwrap().to_owned();
        Self { server, cookie, proof, session }
    }

    /// As the user who runs the daemon.
    pub(crate) async fn owner(server: &'a Server) -> Self {
        let once = server.engine.new_once_token(&operator()).unwrap();
        Self::sign_in(server, json!({ "once": once.token })).await
    }

    /// Returns the head of a request that a browser sends from our own page.
    pub(crate) fn head(&self, line: &str) -> Vec<String> {
        vec![
            format!("{line} HTTP/1.1"),
            "host: localhost".to_owned(),
            format!("cookie: other=1; warren_session={}", self.cookie),
            format!("x-warren-dashboard: {}", self.proof),
            "origin: http://localhost".to_owned(),
            "sec-fetch-site: same-origin".to_owned(),
        ]
    }

    async fn ask(&self, line: &str) -> Answer {
        self.server.ask(&borrowed(&self.head(line))).await
    }

    async fn send(&self, line: &str, body: &Value) -> Answer {
        send(self.server, self.head(line), body).await
    }

    /// The live stream, as lines.
    async fn live(&self, query: &str) -> Live {
        let mut head = self.head(&format!("GET /v1/live{query}"));
        head.push("accept: application/x-ndjson".to_owned());
        let mut client = self.server.connect().await;
        client.send(&borrowed(&head)).await;
        Live { client, bytes: Vec::new() }
    }
}

fn borrowed(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}

async fn send(server: &Server, mut head: Vec<String>, body: &Value) -> Answer {
    let body = body.to_string();
    head.push("content-type: application/json".to_owned());
    head.push(format!("content-length: {}", body.len()));
    let mut client = server.connect().await;
    client.send(&borrowed(&head)).await;
    tokio::io::AsyncWriteExt::write_all(&mut client.0, body.as_bytes()).await.unwrap();
    client.answer().await
}

async fn post_session(server: &Server, body: &Value) -> Answer {
    let head = ["POST /v1/session HTTP/1.1", "host: localhost", "origin: http://localhost"];
    send(server, head.map(str::to_owned).to_vec(), body).await
}

fn cookie_of(answer: &Answer) -> String {
    let text = answer.header_as_sent("set-cookie").unwrap();
    text.split(';').next().unwrap().split_once('=').unwrap().1.to_owned()
}

/// Lines of the live stream.
struct Live {
    client: Client<TcpStream>,
    bytes: Vec<u8>,
}

impl Live {
    /// Reads until this event with something in its data, and returns the data.
    async fn wait_for(&mut self, event: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let found = |bytes: &[u8]| {
            messages(bytes).into_iter().find(|message| message["event"] == event && holds(&message["data"]))
        };
        self.client.read_until(&mut self.bytes, |bytes| found(bytes).is_some()).await;
        found(&self.bytes).unwrap()["data"].clone()
    }

    fn events(&self) -> Vec<String> {
        messages(&self.bytes).iter().map(|message| message["event"].as_str().unwrap().to_owned()).collect()
    }

    /// Everything until the daemon ends the stream.
    async fn end(mut self) {
        self.client.rest().await;
    }
}

fn messages(bytes: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(bytes);
    text.lines()
        .filter(|line| line.starts_with("{\"event\""))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

#[tokio::test]
async fn a_key_signs_in_and_out() {
    let server = with_keys().await;
    let key = server.new_key("ana").await;
    server.get("/v1/session").await.expect_error(401, "unauthenticated");
    let answer = post_session(&server, &json!({ "key": key })).await.expect(200);
    let set = answer.header("set-cookie").unwrap();
    assert!(set.ends_with("; path=/; max-age=86400; httponly; samesite=strict"), "{set}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let session = answer.json();
    assert_eq!((&session["who"], &session["label"]), (&json!("key"), &json!("key ana")));
    assert_eq!((&session["namespace"], &session["watch"]), (&json!("*"), &Value::Null));
    assert_eq!((&session["may"]["create"], &session["may"]["keys"]), (&json!(true), &json!(false)));

    let browser = Browser::sign_in(&server, json!({ "key": key })).await;
    let mut known = browser.session.clone();
    known.as_object_mut().unwrap().remove("proof");
    assert_eq!(browser.ask("GET /v1/session").await.expect(200).json(), known);
    browser.send("POST /v1/sandboxes", &json!({ "name": "lab" })).await.expect(201);
    assert_eq!(browser.ask("GET /v1/sandboxes").await.expect(200).json()["sandboxes"][0]["name"], "lab");
    browser.ask("GET /v1/keys").await.expect_error(403, "denied");

    let calls = server.get_with("/v1/calls", &key).await.expect(200).json();
    let about = |call: &Value| format!("{} {} {}", call["who"], call["action"], call["error"]);
    let told: Vec<_> = calls["calls"].as_array().unwrap().iter().map(about).collect();
    assert_eq!(told[0], r#""key ana" "POST /v1/session" null"#, "{told:?}");
    assert!(told.iter().all(|call| !call.contains("GET /v1/session")), "{told:?}");

    let out = browser.ask("DELETE /v1/session").await.expect(204);
    assert!(out.header("set-cookie").unwrap().starts_with("warren_session=; path=/; max-age=0"));
    browser.ask("GET /v1/sandboxes").await.expect_error(401, "unauthenticated");
    browser.ask("GET /v1/session").await.expect_error(401, "unauthenticated");
}

#[tokio::test]
async fn neither_half_of_a_session_is_enough() {
    let server = with_keys().await;
    let key = server.new_key("ana").await;
    let (one, other) = (
        Browser::sign_in(&server, json!({ "key": key })).await,
        Browser::sign_in(&server, json!({ "key": key })).await,
    );
    let line = "GET /v1/sandboxes HTTP/1.1";
    let cookie = |browser: &Browser<'_>| format!("cookie: warren_session={}", browser.cookie);
    let proof = |browser: &Browser<'_>| format!("x-warren-dashboard: {}", browser.proof);
    for head in [
        vec![cookie(&one)],
        vec![proof(&one)],
        vec![cookie(&one), proof(&other)],
        vec![format!("cookie: warren_session={}", one.proof), proof(&one)],
        vec![format!("cookie: warren_session={}", one.proof), format!("x-warren-dashboard: {}", one.cookie)],
        vec![cookie(&one), "x-warren-dashboard: 1".to_owned()],
        vec![format!("authorization: Bearer {}", one.cookie), proof(&one)],
    ] {
        let head = [vec![line.to_owned(), "host: localhost".to_owned()], head].concat();
        server.ask(&borrowed(&head)).await.expect_error(401, "unauthenticated");
    }
    // Cookies that others have set beside ours do no harm.
    let crowd = format!("cookie: warren_session=x; warren_session={}; warren_port=y", one.cookie);
    server.ask(&[line, "host: localhost", &crowd, &proof(&one)]).await.expect(200);
}

#[tokio::test]
async fn a_one_time_address_is_the_owners_and_good_once() {
    let server = with_keys().await;
    let once = server.engine.new_once_token(&operator()).unwrap().token;
    let browser = Browser::sign_in(&server, json!({ "once": once })).await;
    assert_eq!((&browser.session["who"], &browser.session["isOwner"]), (&json!("owner"), &json!(true)));
    browser.send("POST /v1/keys", &json!({ "label": "ci" })).await.expect(201);
    let refused = post_session(&server, &json!({ "once": once })).await.expect_error(401, "unauthenticated");
    assert!(refused["hint"].as_str().unwrap().contains("warren dashboard"), "{refused}");
    // A session cannot make itself a successor; a key can have its own, and no more than its own.
    browser.send("POST /v1/session/once", &json!({})).await.expect_error(403, "denied");
    let key = server.new_key("ana").await;
    let made = server.ask_json("POST /v1/session/once", &key, "").await.expect(201).json();
    let token = made["address"].as_str().unwrap().strip_prefix("http://localhost/#once=").unwrap();
    let of_key = Browser::sign_in(&server, json!({ "once": token })).await;
    assert_eq!((&of_key.session["who"], &of_key.session["isOwner"]), (&json!("key"), &json!(false)));
    for body in [json!({}), json!({ "key": "a", "once": "b" }), json!({ "user": "root" }), json!([])] {
        post_session(&server, &body).await.expect_error(400, "invalid_request");
    }
}

#[tokio::test]
async fn a_daemon_without_keys_asks_nobody() {
    let server = Server::dev().await;
    let session = server.get("/v1/session").await.expect(200).json();
    assert_eq!((&session["who"], &session["isOwner"]), (&json!("dev"), &json!(false)));
    assert_eq!(session["may"]["keys"], json!(false));
    let browser = Browser::owner(&server).await;
    assert_eq!(browser.ask("GET /v1/session").await.expect(200).json()["who"], "owner");
    browser.ask("GET /v1/keys").await.expect(200);
    // Who signs out is who everybody is there.
    browser.ask("DELETE /v1/session").await.expect(204);
    assert_eq!(browser.ask("GET /v1/session").await.expect(200).json()["who"], "dev");
}

#[tokio::test]
async fn wrong_keys_are_counted_as_everywhere() {
    let server = with_keys().await;
    let mut last = 401;
    for _ in 0..40 {
        last = post_session(&server, &json!({ "key": "wrn_0000000000000_x" })).await.status();
        if last == 429 {
            break;
        }
    }
    assert_eq!(last, 429);
    let key = server.new_key("ana").await;
    Browser::sign_in(&server, json!({ "key": key })).await;
}

#[tokio::test]
async fn a_revoked_key_ends_its_sessions_and_what_they_have_open() {
    let server = with_keys().await;
    let key = server.new_key("ana").await;
    let browser = Browser::sign_in(&server, json!({ "key": key })).await;
    let mut live = browser.live("").await;
    live.wait_for("ready", |_| true).await;
    server.engine.revoke_key(&operator(), "ana").await.unwrap();
    live.end().await;
    browser.ask("GET /v1/sandboxes").await.expect_error(401, "unauthenticated");
    // So does signing out, for the same session in another tab.
    let owner = Browser::owner(&server).await;
    let mut live = owner.live("").await;
    live.wait_for("ready", |_| true).await;
    owner.ask("DELETE /v1/session").await.expect(204);
    live.end().await;
}

#[tokio::test]
async fn only_our_own_page_can_use_a_session() {
    let hosts = Hosts { allowed_origins: vec!["https://app.example".parse().unwrap()], ..Hosts::default() };
    let server = Server::start(Setup { has_keys: true, hosts, ..Setup::default() }).await;
    let browser = Browser::owner(&server).await;
    let halves = || {
        vec![
            format!("cookie: warren_session={}", browser.cookie),
            format!("x-warren-dashboard: {}", browser.proof),
        ]
    };
    for line in ["GET /v1/keys HTTP/1.1", "DELETE /v1/keys/ci HTTP/1.1"] {
        for from in [
            "origin: http://evil.example",
            "origin: http://localhost:8080",
            "origin: http://127.0.0.1",
            "origin: null",
            // Allowed to bring a key of its own, and not to use our cookie.
            "origin: https://app.example",
            "sec-fetch-site: same-site",
            "sec-fetch-site: cross-site",
        ] {
            let head =
                [vec![line.to_owned(), "host: localhost".to_owned(), from.to_owned()], halves()].concat();
            let answer = server.ask(&borrowed(&head)).await;
            assert_eq!(answer.status(), 403, "{line} {from}");
        }
    }
    // A port's host name is none of ours: there a session is nobody.
    let head = ["GET / HTTP/1.1", "host: 8000-box.localhost"].map(str::to_owned).to_vec();
    server.ask(&borrowed(&[head, halves()].concat())).await.expect_error(401, "unauthenticated");
    browser.ask("GET /v1/keys").await.expect(200);
}

/// An agent asks for more network, and whoever watches hears of it, with whether they may grant it.
#[tokio::test]
async fn requests_that_wait_are_told_at_the_start_and_as_they_are_answered() {
    let server = Server::start(Setup {
        has_keys: true,
        stands_in_for_network: true,
        network_ceiling: Preset::Public,
        ..Setup::default()
    })
    .await;
    let lab = make_sandbox(&server, &operator(), "lab").await;
    let (ana, ben) = (server.new_key("ana").await, server.new_key("ben").await);
    let asked = async |rule: &str| {
        let body = json!({ "rules": [rule], "reason": "a test" }).to_string();
        let line = "POST /v1/sandboxes/lab/network/requests";
        server.ask_json(line, &ana, &body).await.expect(201).json()
    };
    let first = asked("a.example").await;
    let asker = Browser::sign_in(&server, json!({ "key": ana })).await;
    let other = Browser::sign_in(&server, json!({ "key": ben })).await;
    let owner = Browser::owner(&server).await;
    let topics = "?topics=pending";
    let (mut to_asker, mut to_other, mut to_owner) =
        (asker.live(topics).await, other.live(topics).await, owner.live(topics).await);
    for (live, may_grant) in [(&mut to_asker, false), (&mut to_other, true), (&mut to_owner, true)] {
        let told = live.wait_for("request", |data| data["id"] == first["id"]).await;
        assert_eq!((&told["state"], &told["mayGrant"]), (&json!("pending"), &json!(may_grant)), "{told}");
        assert_eq!((&told["sandbox"], &told["askedBy"]), (&json!(lab), &json!("key ana")));
        live.wait_for("ready", |_| true).await;
        assert_eq!(live.events(), ["hello", "request", "ready"]);
    }
    let second = asked("b.example").await;
    to_owner.wait_for("request", |data| data["id"] == second["id"] && data["state"] == "pending").await;
    let answer = |way: &str| {
        format!("POST /v1/sandboxes/lab/network/requests/{}/{way}", first["id"].as_str().unwrap())
    };
    asker.send(&answer("grant"), &json!({})).await.expect_error(403, "denied");
    other.send(&answer("grant"), &json!({ "forSeconds": 60 })).await.expect(200);
    to_asker.wait_for("request", |data| data["id"] == first["id"] && data["state"] == "granted").await;
    // Who comes now is told of what still waits; what waits goes with its sandbox.
    let mut late = owner.live(topics).await;
    late.wait_for("ready", |_| true).await;
    assert_eq!(late.events(), ["hello", "request", "ready"]);
    owner.ask("DELETE /v1/sandboxes/lab?force=true").await.expect(204);
    late.wait_for("gone", |data| data["id"] == lab.as_str()).await;
}

#[tokio::test]
async fn the_live_stream_says_what_happens_and_to_whom_it_may() {
    let server = with_keys().await;
    let before = make_sandbox(&server, &operator(), "before").await;
    let blue = KeySpec { namespace: Some("blue".parse().unwrap()), ..KeySpec::default() };
    let blue = server.key_with(blue).await;
    let owner = Browser::owner(&server).await;
    let stranger = Browser::sign_in(&server, json!({ "key": blue })).await;
    let (mut live, mut other) = (owner.live("").await, stranger.live("").await);
    live.wait_for("ready", |_| true).await;
    other.wait_for("ready", |_| true).await;
    assert_eq!(live.events()[..3], ["hello", "sandbox", "ready"]);
    assert_eq!(other.events()[..2], ["hello", "ready"]);

    let made = owner.send("POST /v1/sandboxes", &json!({ "name": "lab" })).await.expect(201).json();
    let id = made["id"].as_str().unwrap();
    let seen = live.wait_for("sandbox", |data| data["id"] == id && data["state"] == "running").await;
    assert_eq!(seen["name"], "lab");
    owner.send("POST /v1/sandboxes/lab/execs?wait=true", &json!({ "command": ["true"] })).await.expect(201);
    let ended = live.wait_for("exec", |data| data["sandbox"] == id && data["state"] == "done").await;
    assert_eq!((&ended["command"], &ended["exitCode"]), (&json!(["true"]), &json!(0)));
    assert_eq!(ended["askedBy"], "test");
    let call = live.wait_for("call", |data| data["action"] == "POST /v1/sandboxes").await;
    assert_eq!((&call["sandbox"], &call["who"]), (&json!("lab"), &json!("test")));
    let usage = live.wait_for("usage", |data| data["sandboxes"].get(id).is_some()).await;
    assert!(usage["sandboxes"].get(&before).is_some(), "{usage}");
    owner.ask("DELETE /v1/sandboxes/lab?force=true").await.expect(204);
    live.wait_for("gone", |data| data["id"] == id).await;

    // A stranger heard of its own only.
    let own = stranger.send("POST /v1/sandboxes", &json!({ "name": "lab" })).await.expect(201).json();
    other.wait_for("sandbox", |data| data["id"] == own["id"] && data["state"] == "running").await;
    other.wait_for("usage", |data| data["sandboxes"].get(own["id"].as_str().unwrap()).is_some()).await;
    let text = String::from_utf8_lossy(&other.bytes).into_owned();
    assert!(!text.contains(id) && !text.contains(&before), "{text}");

    let mut narrow = owner.live("?topics=sandboxes,execs&sandbox=before").await;
    narrow.wait_for("ready", |_| true).await;
    assert_eq!(narrow.events()[..3], ["hello", "sandbox", "ready"]);
    owner.ask("GET /v1/live?topics=secrets").await.expect_error(400, "invalid_request");
    owner.ask("GET /v1/live?sandbox=nowhere").await.expect_error(404, "not_found");
}

#[tokio::test]
async fn a_share_shows_one_sandbox_and_nothing_else() {
    let server = with_keys().await;
    let key = server.new_key("ana").await;
    let ana = server.engine.authenticate_key(&key).await.unwrap();
    let (lab, other) = (make_sandbox(&server, &ana, "lab").await, make_sandbox(&server, &ana, "other").await);
    let exec =
        server.engine.exec(&ana, &"lab".parse().unwrap(), ExecSpec::argv(["echo", "seen"])).await.unwrap();
    server.engine.wait_exec(&ana, &"lab".parse().unwrap(), &exec.id, None).await.unwrap();
    let made =
        server.ask_json("POST /v1/shares", &key, r#"{"sandbox":"lab","expires":600}"#).await.expect(201);
    let made = made.json();
    let token =
        made["address"].as_str().unwrap().strip_prefix("http://localhost/#share=").unwrap().to_owned();

    let watcher = Browser::sign_in(&server, json!({ "share": token })).await;
    assert_eq!((&watcher.session["who"], &watcher.session["readOnly"]), (&json!("share"), &json!(true)));
    assert_eq!(watcher.session["watch"], json!({ "sandbox": lab, "key": null }));
    let listed = watcher.ask("GET /v1/sandboxes").await.expect(200).json();
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 1);
    let output = watcher.ask(&format!("GET /v1/sandboxes/{lab}/execs/{}/output", exec.id)).await.expect(200);
    assert!(String::from_utf8_lossy(&output.body).contains("seen"));
    for line in [
        format!("GET /v1/sandboxes/{other}"),
        format!("GET /v1/sandboxes/{other}/execs"),
        format!("GET /v1/live?sandbox={other}"),
    ] {
        watcher.ask(&line).await.expect_error(404, "not_found");
    }
    for (line, body) in [
        (format!("POST /v1/sandboxes/{lab}/execs"), json!({ "command": ["touch", "/made"] })),
        (format!("POST /v1/sandboxes/{lab}/stop"), json!({})),
        (format!("POST /v1/sandboxes/{lab}/links"), json!({ "path": "/etc/passwd" })),
        (format!("POST /v1/sandboxes/{lab}/ports"), json!({ "port": 8000 })),
        ("POST /v1/sandboxes".to_owned(), json!({})),
        ("POST /v1/shares".to_owned(), json!({ "sandbox": lab })),
        ("POST /v1/session/once".to_owned(), json!({})),
        ("POST /v1/keys".to_owned(), json!({})),
    ] {
        let answer = watcher.send(&line, &body).await;
        assert_eq!(answer.status(), 403, "{line} {}", String::from_utf8_lossy(&answer.body));
    }
    for line in [
        "GET /v1/calls",
        "GET /v1/fleet",
        "GET /v1/doctor",
        "GET /v1/keys",
        "GET /v1/images",
        "GET /v1/images/usage",
        "GET /v1/images/debian",
        "GET /v1/images/save?reference=debian",
    ] {
        watcher.ask(line).await.expect_error(403, "denied");
    }
    server.engine.add_ssh_key(&operator(), "ana", PUBLIC_KEY).await.unwrap();
    assert!(server.get_with("/v1/ssh-keys", &key).await.expect(200).json()["sshKeys"][0].is_object());
    assert_eq!(watcher.ask("GET /v1/ssh-keys").await.expect(200).json(), json!({ "sshKeys": [] }));
    let mut live = watcher.live("").await;
    live.wait_for("ready", |_| true).await;
    assert_eq!(live.events()[..3], ["hello", "sandbox", "ready"]);
    server.engine.exec(&ana, &"other".parse().unwrap(), ExecSpec::argv(["true"])).await.unwrap();
    let shown = server.engine.exec(&ana, &"lab".parse().unwrap(), ExecSpec::argv(["true"])).await.unwrap();
    live.wait_for("exec", |data| data["id"] == shown.id.as_str()).await;
    assert!(!String::from_utf8_lossy(&live.bytes).contains(&other));

    server.engine.revoke_key(&operator(), "ana").await.unwrap();
    live.end().await;
    watcher.ask("GET /v1/sandboxes").await.expect_error(401, "unauthenticated");
    post_session(&server, &json!({ "share": token })).await.expect_error(401, "unauthenticated");
    for forged in [token.replace('A', "B"), String::new(), "x".repeat(10_000)] {
        post_session(&server, &json!({ "share": forged })).await.expect_error(401, "unauthenticated");
    }
}

#[tokio::test]
async fn watchers_take_no_places_of_whoever_shares() {
    let limits = LimitSettings { streams_per_principal: 2, ..LimitSettings::default() };
    let server = Server::start(Setup { has_keys: true, limits, ..Setup::default() }).await;
    let key = server.new_key("ana").await;
    let ana = server.engine.authenticate_key(&key).await.unwrap();
    make_sandbox(&server, &ana, "lab").await;
    let made = server.ask_json("POST /v1/shares", &key, r#"{"sandbox":"lab"}"#).await.expect(201).json();
    let token = made["address"].as_str().unwrap().split_once("#share=").unwrap().1.to_owned();
    let watcher = Browser::sign_in(&server, json!({ "share": token })).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut live = watcher.live("").await;
        live.wait_for("ready", |_| true).await;
        held.push(live);
    }
    watcher.ask("GET /v1/live").await.expect_error(429, "limit_reached");
    let bearer = format!("authorization: Bearer {key}");
    let own = ["GET /v1/live HTTP/1.1", "host: localhost", &bearer, "accept: application/x-ndjson"];
    let mut client = server.connect().await;
    client.send(&own).await;
    let mut live = Live { client, bytes: Vec::new() };
    live.wait_for("ready", |_| true).await;
}

#[tokio::test]
async fn cookies_that_others_set_push_out_no_session() {
    let server = with_keys().await;
    let browser = Browser::owner(&server).await;
    let mut head = browser.head("GET /v1/keys");
    let forged: Vec<_> = (0..60).map(|n| format!("warren_session=forged{n}")).collect();
    head[2] = format!("cookie: {}; warren_session={}", forged.join("; "), browser.cookie);
    server.ask(&borrowed(&head)).await.expect(200);
}

#[tokio::test]
async fn a_share_of_a_key_shows_what_it_does() {
    let server = with_keys().await;
    let (ana, ben) = (server.new_key("ana").await, server.new_key("ben").await);
    server.ask_json("POST /v1/shares", &ana, r#"{"key":"ben"}"#).await.expect_error(403, "denied");
    let made = server.ask_json("POST /v1/shares", &ana, r#"{"key":"ana"}"#).await.expect(201).json();
    let token = made["address"].as_str().unwrap().split_once("#share=").unwrap().1.to_owned();
    let watcher = Browser::sign_in(&server, json!({ "share": token })).await;
    assert!(watcher.session["watch"]["key"].as_str().unwrap().starts_with("key-"), "{}", watcher.session);
    let mut live = watcher.live("").await;
    live.wait_for("ready", |_| true).await;
    server.ask_json("POST /v1/sandboxes", &ben, r#"{"name":"his"}"#).await.expect(201);
    server.ask_json("POST /v1/sandboxes", &ana, r#"{"name":"hers"}"#).await.expect(201);
    live.wait_for("sandbox", |data| data["name"] == "hers" && data["state"] == "running").await;
    live.wait_for("call", |data| data["sandbox"] == "hers").await;
    assert!(!String::from_utf8_lossy(&live.bytes).contains("his"));
    let calls = watcher.ask("GET /v1/calls?who=ben").await.expect(200).json();
    let calls = calls["calls"].as_array().unwrap();
    // Its watchers are booked on it too.
    let is_hers = |call: &Value| call["who"].as_str().unwrap().ends_with("key ana");
    assert!(!calls.is_empty() && calls.iter().all(is_hers), "{calls:?}");
    watcher.ask("GET /v1/sandboxes/his").await.expect_error(404, "not_found");
    watcher.ask("DELETE /v1/sandboxes/hers?force=true").await.expect_error(403, "denied");
}

#[tokio::test]
async fn the_page_is_served_to_browsers_and_may_load_nothing_else() {
    let server = with_keys().await;
    let page = ["GET / HTTP/1.1", "host: localhost", "accept: text/html,*/*;q=0.8"];
    let plain = server.ask(&page).await.expect(200);
    assert_eq!(plain.body, b"<!doctype html><title>Warren</title>");
    assert_eq!(plain.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = plain.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"),
        "{policy}"
    );
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("x-frame-options", "deny"),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(plain.header(name), Some(value), "{name}");
    }
    let small = server.ask(&[&page[..], &["accept-encoding: gzip, br"]].concat()).await.expect(200);
    assert_eq!(small.header("content-encoding"), Some("gzip"));
    assert_eq!(small.body[..2], [0x1f, 0x8b]);
    let known = format!("if-none-match: {}", plain.header("etag").unwrap());
    server.ask(&[&page[..], &[&known]].concat()).await.expect(304);
    // Programs are told what this is, as before.
    assert_eq!(server.get("/").await.expect(200).json()["name"], "warren");

    let script = server.get("/assets/app-1.js").await.expect(200);
    assert_eq!(script.header("cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    for path in ["/assets/none.js", "/assets/../index.html", "/assets/%2e%2e/index.html", "/favicon.svg"] {
        server.get(path).await.expect(404);
    }
    server.ask(&["POST /assets/app-1.js HTTP/1.1", "host: localhost"]).await.expect(401);
    server.ask(&["GET / HTTP/1.1", "host: evil.example", "accept: text/html"]).await.expect(403);
}

#[tokio::test]
async fn the_fleet_is_for_those_who_see_all_of_it() {
    let server = with_keys().await;
    make_sandbox(&server, &operator(), "lab").await;
    let everywhere = server.key_with(KeySpec { namespace: None, ..KeySpec::default() }).await;
    let fleet = server.get_with("/v1/fleet", &everywhere).await.expect(200).json();
    assert_eq!((&fleet["totals"]["sandboxes"], &fleet["totals"]["running"]), (&json!(1), &json!(1)));
    assert_eq!(fleet["backends"][0]["sandboxes"], 1);
    assert_eq!(fleet["backends"][0]["healthy"], true);
    assert!(fleet["disk"]["totalBytes"].as_u64().unwrap() > 0);
    // Whoever listens for usage starts the history.
    let browser = Browser::sign_in(&server, json!({ "key": everywhere })).await;
    let mut live = browser.live("?topics=usage").await;
    live.wait_for("usage", |_| true).await;
    let fleet = server.get_with("/v1/fleet", &everywhere).await.expect(200).json();
    assert_eq!(fleet["history"][0]["running"], 1, "{fleet}");
    let one = KeySpec { namespace: Some("blue".parse().unwrap()), ..KeySpec::default() };
    let one = server.key_with(one).await;
    server.get_with("/v1/fleet", &one).await.expect_error(403, "denied");
    server.get_with("/v1/doctor", &everywhere).await.expect_error(403, "denied");
}

#[tokio::test]
async fn shares_are_listed_and_revoked_by_whoever_made_them() {
    let server = with_keys().await;
    let lab = make_sandbox(&server, &operator(), "lab").await;
    let (ana, ben) = (server.new_key("ana").await, server.new_key("ben").await);
    let made = server.ask_json("POST /v1/shares", &ana, r#"{"sandbox":"lab"}"#).await.expect(201).json();
    let list = server.get_with("/v1/shares", &ana).await.expect(200).json();
    let share = &list["shares"][0];
    assert_eq!((&share["id"], &share["expiresAt"]), (&made["id"], &made["expiresAt"]));
    assert_eq!((&share["madeBy"], &share["name"]), (&json!("key ana"), &json!("lab")));
    assert_eq!((&share["sandbox"], &share["shownKey"]), (&json!(lab), &Value::Null));
    assert!(!list.to_string().contains("#share="), "{list}");
    assert_eq!(server.get_with("/v1/shares", &ben).await.expect(200).json(), json!({ "shares": [] }));

    let token = made["address"].as_str().unwrap().split_once("#share=").unwrap().1;
    let watcher = Browser::sign_in(&server, json!({ "share": token })).await;
    let mut live = watcher.live("").await;
    live.wait_for("ready", |_| true).await;
    watcher.ask("GET /v1/shares").await.expect_error(403, "denied");
    let line = format!("DELETE /v1/shares/{}", made["id"].as_str().unwrap());
    watcher.ask(&line).await.expect_error(403, "denied");
    server.ask_json(&line, &ben, "").await.expect_error(404, "not_found");
    server.ask_json("DELETE /v1/shares/..%2Fx", &ana, "").await.expect_error(404, "not_found");
    server.ask_json(&line, &ana, "").await.expect(204);
    live.end().await;
    watcher.ask("GET /v1/sandboxes").await.expect_error(401, "unauthenticated");
    post_session(&server, &json!({ "share": token })).await.expect_error(401, "unauthenticated");
    server.ask_json(&line, &ana, "").await.expect_error(404, "not_found");
}

/// Sessions of the engine, without a browser.
#[tokio::test]
async fn a_share_ends_with_its_time_and_its_sandbox() {
    let server = with_keys().await;
    make_sandbox(&server, &operator(), "lab").await;
    let target = engine::ShareTarget::Sandbox("lab".parse().unwrap());
    let spec = engine::ShareSpec { target, ttl: Duration::from_secs(600) };
    let share = server.engine.share(&operator(), &spec).await.unwrap();
    let NewSession { token, proof, who, .. } =
        server.engine.sign_in(SignIn::Share(share.token)).await.unwrap();
    assert!(who.is_watcher() && server.engine.open_session(&token, &proof).is_some());
    server.engine.remove_sandbox(&operator(), &"lab".parse().unwrap(), engine::Force::Yes).await.unwrap();
    assert!(server.engine.open_session(&token, &proof).is_none());
}
