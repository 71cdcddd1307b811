//! Links for browsers: what they open, for how long, and that nothing of it becomes a page of ours.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use engine::{LinkTarget, ManualClock, Principal, SandboxRef, WriteOptions};
use frontends::http::Hosts;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use sandbox::{ExecId, KeySpec, SandboxId, SandboxSpec};
use serde_json::json;
use test_backend::PICTURE;

use crate::support::{Answer, PATIENCE, Server, Setup};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";

struct World {
    server: Server,
    sandbox: SandboxId,
}

fn operator() -> Principal {
    Principal::operator("test")
}

impl World {
    async fn new() -> Self {
        Self::with(Setup { has_keys: true, ..Setup::default() }).await
    }

    async fn with(setup: Setup) -> Self {
        let server = Server::start(setup).await;
        let sandbox = create(&server, "box").await;
        Self { server, sandbox }
    }

    async fn write(&self, path: &str, bytes: &[u8]) {
        let bytes = stream::once(std::future::ready(Ok(bytes.to_vec().into()))).boxed();
        let options = WriteOptions { parents: true, ..WriteOptions::default() };
        let which = SandboxRef::from(&self.sandbox);
        self.server.engine.write_file(&operator(), &which, path, options, bytes).await.unwrap();
    }

    fn token(&self, who: &Principal, path: &str) -> String {
        let target = LinkTarget::File { path: path.to_owned() };
        let ttl = Duration::from_secs(60);
        self.server.engine.sign_link(who, &self.sandbox, &target, ttl).unwrap().token
    }

    /// Opens a file by a link of the operator's.
    async fn open(&self, path: &str, headers: &[&str]) -> Answer {
        let target = format!("/v1/links/{}/name", self.token(&operator(), path));
        self.get(&target, headers).await
    }

    async fn get(&self, target: &str, headers: &[&str]) -> Answer {
        let line = format!("GET {target} HTTP/1.1");
        self.server.ask(&[&[line.as_str(), "host: localhost"], headers].concat()).await
    }
}

async fn create(server: &Server, name: &str) -> SandboxId {
    let spec = SandboxSpec { name: Some(name.parse().unwrap()), ..SandboxSpec::default() };
    server.engine.create_sandbox(&operator(), spec).await.unwrap().id
}

/// Asserts that an answer with something from a sandbox carries the headers that make it harmless.
#[track_caller]
fn assert_harmless(answer: &Answer) {
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("sandbox; default-src 'none'") && !policy.contains("allow-"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("script"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "deny"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "private, no-cache"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
}

#[tokio::test]
async fn a_link_ends_in_the_middle_of_a_download() {
    let clock = ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap());
    let setup = Setup { has_keys: true, clock: Some(clock.clone()), ..Setup::default() };
    let world = World::with(setup).await;
    // More than the kernel keeps for a reader who does not read.
    let n_bytes = 64 << 20;
    world.write("/data/big", &vec![7; n_bytes]).await;
    let target = LinkTarget::File { path: "/data/big".to_owned() };
    let ttl = Duration::from_secs(60);
    let signed = world.server.engine.sign_link(&operator(), &world.sandbox, &target, ttl).unwrap();
    let mut slow = world.server.connect().await;
    slow.send(&[&format!("GET /v1/links/{}/big HTTP/1.1", signed.token), "host: localhost"]).await;
    slow.read_until(&mut Vec::new(), |bytes| !bytes.is_empty()).await;
    clock.advance(ttl);
    let rest = slow.rest().await.len();
    assert!(rest < n_bytes, "{rest} bytes");
}

#[tokio::test]
async fn a_key_makes_a_link_that_opens_without_one() {
    let world = World::new().await;
    world.write("/data/plot.png", PNG).await;
    let key = world.server.new_key("ci").await;
    let made = world
        .server
        .ask_json("POST /v1/sandboxes/box/links", &key, r#"{"path":"/data/plot.png","ttlSeconds":60}"#)
        .await
        .expect(201)
        .json();
    let url = made["url"].as_str().unwrap();
    // The address is the one that was asked, and holds neither the key nor the sandbox's name.
    let target = url.strip_prefix("http://localhost").unwrap();
    assert!(target.starts_with("/v1/links/") && target.ends_with("/plot.png"), "{url}");
    assert!(!url.contains(&key) && !url.contains("box"), "{url}");
    assert!(made["expiresAt"].is_string(), "{made}");
    let answer = world.get(target, &[]).await.expect(200);
    assert_harmless(&answer);
    assert_eq!((answer.header("content-type"), answer.body.as_slice()), (Some("image/png"), PNG));
    assert_eq!(answer.header("cross-origin-resource-policy"), Some("cross-origin"));
    assert!(answer.header("content-disposition").unwrap().starts_with("inline; filename=\"plot.png\""));
    // The name at the end is for people.
    let (bare, _) = target.rsplit_once('/').unwrap();
    world.get(&format!("{bare}/other.html"), &[]).await.expect(200);
    // A path that is no file, or does not exist, gets no link.
    for (body, status) in [
        (r#"{"path":"/data"}"#, 409),
        (r#"{"path":"/nothing"}"#, 404),
        (r#"{"path":""}"#, 400),
        (r#"{"path":"/data/plot.png","ttlSeconds":0}"#, 400),
        (r#"{"path":"/data/plot.png","ttlSeconds":604801}"#, 400),
        (r#"{"path":"/data/plot.png","more":1}"#, 400),
    ] {
        let refused = world.server.ask_json("POST /v1/sandboxes/box/links", &key, body).await;
        assert_eq!(refused.status(), status, "{body}");
    }
    world.server.end().await;
}

#[tokio::test]
async fn who_may_read_may_make_links_and_who_may_not_see_may_not() {
    let world = World::new().await;
    world.write("/a", b"x").await;
    let make = async |spec: KeySpec| {
        let secret = world.server.engine.create_key(&operator(), spec).await.unwrap().secret;
        let target = format!("POST /v1/sandboxes/{}/links", world.sandbox);
        (world.server.ask_json(&target, &secret, r#"{"path":"/a"}"#).await, secret)
    };
    let (made, _) = make(KeySpec { read_only: true, ..KeySpec::default() }).await;
    made.expect(201);
    let elsewhere = KeySpec { namespace: Some("blue".parse().unwrap()), ..KeySpec::default() };
    let (refused, blue) = make(elsewhere).await;
    refused.expect_error(404, "not_found");
    let who = world.server.engine.authenticate_key(&blue).await.unwrap();
    let target = LinkTarget::File { path: "/a".to_owned() };
    let signed = world.server.engine.sign_link(&who, &world.sandbox, &target, Duration::from_secs(1));
    assert_eq!(signed.unwrap_err().kind(), sandbox::ErrorKind::NotFound);
    world.server.end().await;
}

#[tokio::test]
async fn a_token_with_any_byte_changed_opens_nothing() {
    let world = World::with(Setup::default()).await;
    world.write("/a", b"x").await;
    let engine = &world.server.engine;
    let token = world.token(&operator(), "/a");
    assert!(engine.open_link(&token).is_ok());
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(&token).unwrap();
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[position] ^= 1 << bit;
            assert!(engine.open_link(&BASE64_URL_SAFE_NO_PAD.encode(changed)).is_err(), "byte {position}");
        }
        assert!(engine.open_link(&BASE64_URL_SAFE_NO_PAD.encode(&bytes[..position])).is_err());
    }
    // Neither another spelling of the same bytes nor more of them.
    for position in 0..token.len() {
        for other in ["A", "_", "=", "%"] {
            let mut changed = token.clone();
            changed.replace_range(position..=position, other);
            assert!(changed == token || engine.open_link(&changed).is_err(), "character {position}");
        }
    }
    assert!(engine.open_link(&format!("{token}A")).is_err() && engine.open_link("").is_err());
    // Over HTTP all of it looks like nothing.
    for target in [
        "/v1/links/x/y".to_owned(),
        format!("/v1/links/{}/name", &token[1..]),
        "/v1/links/".to_owned(),
        format!("/v1/links/{token}"),
    ] {
        let error = world.get(&target, &[]).await.expect_error(404, "not_found");
        assert!(!error.to_string().contains(&token[8..]), "{error}");
    }
    world.server.end().await;
}

#[tokio::test]
async fn links_end_with_their_key_their_sandbox_and_their_time() {
    let world = World::new().await;
    world.write("/a", b"x").await;
    let key = world.server.new_key("ci").await;
    let who = world.server.engine.authenticate_key(&key).await.unwrap();
    let target = format!("/v1/links/{}/a", world.token(&who, "/a"));
    world.get(&target, &[]).await.expect(200);
    world.server.engine.revoke_key(&operator(), "ci").await.unwrap();
    world.get(&target, &[]).await.expect_error(404, "not_found");

    let target = format!("/v1/links/{}/a", world.token(&operator(), "/a"));
    let which = SandboxRef::from(&world.sandbox);
    world.server.engine.stop_sandbox(&operator(), &which, None).await.unwrap();
    let error = world.get(&target, &[]).await.expect_error(409, "wrong_state");
    assert!(error["message"].as_str().unwrap().contains("only while it is running"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("Start it"), "{error}");
    world.server.engine.start_sandbox(&operator(), &which).await.unwrap();
    world.get(&target, &[]).await.expect(200);
    world.server.engine.remove_sandbox(&operator(), &which, engine::Force::Yes).await.unwrap();
    world.get(&target, &[]).await.expect_error(404, "not_found");
    // Another sandbox of the same name is another one.
    create(&world.server, "box").await;
    world.get(&target, &[]).await.expect_error(404, "not_found");
    world.server.end().await;
}

#[tokio::test]
async fn a_link_reads_its_file_and_nothing_else() {
    let world = World::new().await;
    world.write("/a", b"x").await;
    let token = world.token(&operator(), "/a");
    for request in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let line = format!("{request} /v1/links/{token}/a HTTP/1.1");
        let answer = world.server.ask(&[&line, "host: localhost", "content-length: 0"]).await;
        assert_eq!(answer.status(), 401, "{request}");
        assert!(!String::from_utf8_lossy(&answer.body).contains(&token));
    }
    world.get("/v1/sandboxes", &[&format!("authorization: Bearer {token}")]).await.expect(401);
    // Of its principal nothing more can be had, either.
    let link = world.server.engine.open_link(&token).unwrap();
    assert!(link.who.may_change().is_err() && !link.who.is_owner);
    assert!(!link.who.sees(&"blue".parse().unwrap()));
    // An output of a cell that does not exist.
    let exec: ExecId = "exc-0000000000000".parse().unwrap();
    let target = LinkTarget::Output { exec, number: 1, mime: "image/png".to_owned() };
    let signed = world.server.engine.sign_link(&operator(), &world.sandbox, &target, Duration::from_secs(9));
    world.get(&format!("/v1/links/{}/x", signed.unwrap().token), &[]).await.expect(404);
    // The host must be ours here too, and a page of another origin cannot read it.
    let line = format!("GET /v1/links/{token}/a HTTP/1.1");
    world.server.ask(&[&line, "host: evil.example"]).await.expect(403);
    world.server.ask(&[&line, "host: localhost", "origin: https://evil.example"]).await.expect(403);
    let foreign = |dest: &'static str| {
        let headers = ["sec-fetch-site: cross-site", dest];
        let target = format!("/v1/links/{token}/a");
        let world = &world;
        async move { world.get(&target, &headers).await.status() }
    };
    assert_eq!(foreign("sec-fetch-dest: image").await, 200);
    assert_eq!(foreign("sec-fetch-dest: document").await, 200);
    assert_eq!(foreign("sec-fetch-dest: iframe").await, 403);
    assert_eq!(foreign("sec-fetch-dest: script").await, 403);
    assert_eq!(foreign("sec-fetch-dest: empty").await, 403);
    world.server.end().await;
}

#[tokio::test]
async fn forged_links_are_tried_only_so_often_and_shut_out_no_key() {
    let world = World::new().await;
    world.write("/a", b"x").await;
    let key = world.server.new_key("ci").await;
    let mut statuses = Vec::new();
    for _ in 0..80 {
        statuses.push(world.get("/v1/links/forged/x", &["sec-fetch-dest: image"]).await.status());
    }
    assert!(statuses.starts_with(&[404; 50]) && statuses.contains(&429), "{statuses:?}");
    world.server.get_with("/v1/sandboxes", &key).await.expect(200);
    world.open("/a", &[]).await.expect(200);
    world.server.end().await;
}

#[tokio::test]
async fn what_is_text_stays_text_and_what_is_unknown_is_saved() {
    let world = World::new().await;
    let text = Some("text/plain; charset=utf-8");
    for (path, bytes, content_type, shown) in [
        ("/page.html", &b"<!doctype html><script>document.title='ran'</script>"[..], text, true),
        ("/page.xhtml", b"<html xmlns='http://www.w3.org/1999/xhtml'/>", text, true),
        ("/lib.js", b"alert(1)", text, true),
        ("/style.css", b"body{}", text, true),
        ("/data.json", b"{}", text, true),
        ("/table.csv", b"a,b\n", text, true),
        ("/fake.png", b"<script>alert(1)</script>", text, true),
        ("/evil.svg", b"<svg xmlns='http://www.w3.org/2000/svg' onload='x()'/>", Some("image/svg+xml"), true),
        ("/paper.pdf", b"%PDF-1.7 script", Some("application/pdf"), false),
        ("/program", b"\x7fELF\0\0", Some("application/octet-stream"), false),
        ("/page.wasm", b"\0asm", Some("application/octet-stream"), false),
        ("/empty", b"", text, true),
    ] {
        world.write(path, bytes).await;
        let answer = world.open(path, &[]).await.expect(200);
        assert_harmless(&answer);
        assert_eq!((answer.header("content-type"), answer.body.as_slice()), (content_type, bytes), "{path}");
        let disposition = answer.header("content-disposition").unwrap();
        assert_eq!(disposition.starts_with("inline; "), shown, "{path}: {disposition}");
    }
    world.server.end().await;
}

#[tokio::test]
async fn hostile_names_stay_in_their_header() {
    let world = World::new().await;
    for name in [
        "quote\"; filename=\"evil.exe",
        "line\r\nSet-Cookie: a=b",
        "ünïcödé 東京.txt",
        "..\\..\\up",
        "%2e%2e%2fup",
        "semi;colon, comma",
        "\u{202e}gnp.exe",
    ] {
        let path = format!("/names/{name}");
        world.write(&path, b"text").await;
        let answer = world.open(&path, &[]).await.expect(200);
        assert_eq!(answer.header("set-cookie"), None);
        let disposition = answer.header("content-disposition").unwrap();
        assert_eq!(disposition.matches('"').count(), 2, "{disposition}");
        assert!(disposition.is_ascii() && !disposition.contains(['\\', '/', '\n']), "{disposition}");
        // The address that a client gets leads back to it.
        let made = world.server.engine.sign_link(
            &operator(),
            &world.sandbox,
            &LinkTarget::File { path: path.clone() },
            Duration::from_secs(9),
        );
        assert!(made.unwrap().token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
    }
    world.write("/names/x", b"text").await;
    // A path is resolved inside, where it can lead nowhere else.
    world.open("/names/../../../../names/x", &[]).await.expect(200);
    world.server.end().await;
}

#[tokio::test]
async fn ranges_and_versions_are_honoured() {
    let world = World::new().await;
    let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    world.write("/data.bin", &bytes).await;
    let whole = world.open("/data.bin", &[]).await.expect(200);
    assert_eq!(whole.body, bytes);
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    let tag = whole.header("etag").unwrap().to_owned();
    for (range, from, to) in
        [("0-9", 0, 10), ("5000-5999", 5000, 6000), ("399990-", 399_990, 400_000), ("-7", 399_993, 400_000)]
    {
        let part = world.open("/data.bin", &[&format!("range: bytes={range}")]).await.expect(206);
        assert_harmless(&part);
        assert_eq!(part.body, bytes[from..to], "{range}");
        let told = format!("bytes {from}-{}/400000", to - 1);
        assert_eq!(part.header("content-range"), Some(told.as_str()));
        assert_eq!(part.header("content-type"), Some("application/octet-stream"));
    }
    let beyond = world.open("/data.bin", &["range: bytes=400000-"]).await.expect(416);
    assert_eq!(beyond.header("content-range"), Some("bytes */400000"));
    world.open("/data.bin", &["range: bytes=0-1,4-5"]).await.expect(200);
    world.open("/data.bin", &["range: bytes=0-1", "if-range: \"other\""]).await.expect(200);
    // The tag was made lower case by the reader of answers, and is.
    let tag = tag.replacen("w/", "W/", 1);
    world.open("/data.bin", &["range: bytes=0-1", &format!("if-range: {tag}")]).await.expect(206);
    world.open("/data.bin", &[&format!("if-none-match: {tag}")]).await.expect(304);
    world.write("/data.bin", b"another").await;
    world.open("/data.bin", &[&format!("if-none-match: {tag}")]).await.expect(200);

    let token = world.token(&operator(), "/data.bin");
    let mut client = world.server.connect().await;
    client
        .send(&[&format!("HEAD /v1/links/{token}/data.bin HTTP/1.1"), "host: localhost", "connection: close"])
        .await;
    let head = String::from_utf8(client.rest().await).unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-length: 7\r\n"), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    world.server.end().await;
}

#[tokio::test]
async fn what_a_command_made_comes_with_links() {
    let world = World::new().await;
    let key = world.server.new_key("ci").await;
    let run = async |body: &str| {
        let answer = world.server.ask_json("POST /v1/sandboxes/box/execs?wait=true", &key, body).await;
        answer.expect(201).json()
    };
    let ran =
        run(r#"{"command":["/bin/sh","-c","printf hello > out.txt"],"cwd":"/tmp","trackFiles":true}"#).await;
    let file = &ran["files"][0];
    assert_eq!(
        (&file["path"], &file["size"], &file["change"]),
        (&"/tmp/out.txt".into(), &5.into(), &"created".into())
    );
    let uri = format!("warren://sandboxes/{}/files/tmp/out.txt", world.sandbox);
    assert_eq!((&file["uri"], &file["mimeType"]), (&uri.into(), &"text/plain".into()));
    let url = file["url"].as_str().unwrap();
    let answer = world.get(url.strip_prefix("http://localhost").unwrap(), &[]).await.expect(200);
    assert_eq!(answer.body, b"hello");
    let again =
        run(r#"{"command":["/bin/sh","-c","printf hi > out.txt"],"cwd":"/tmp","trackFiles":true}"#).await;
    assert_eq!(again["files"][0]["change"], "modified");
    assert_eq!(run(r#"{"command":["/bin/true"],"trackFiles":true}"#).await["files"], serde_json::json!([]));
    assert_eq!(run(r#"{"command":["/bin/true"]}"#).await.get("files"), None);
    world.server.end().await;
}

#[tokio::test]
async fn what_code_showed_has_links_that_outlast_a_stop() {
    let world = World::new().await;
    let key = world.server.new_key("ci").await;
    let page = json!({ "text/html": "<script>x</script>", "text/plain": "x" });
    let code = format!(
        "{PICTURE}display(Picture(9000))\ndisplay({page}, raw=True)\nopen('a.csv', 'w').write('a,b')"
    );
    let body = json!({ "code": code, "cwd": "/tmp" }).to_string();
    let ran = world.server.ask_json("POST /v1/sandboxes/box/code", &key, &body).await.expect(200).json();
    let target = |url: &serde_json::Value| {
        url.as_str().and_then(|url| url.strip_prefix("http://localhost")).map(str::to_owned).unwrap()
    };
    assert!(target(&ran["files"][0]["url"]).ends_with("/a.csv"), "{ran:#}");
    let (picture, page) = (target(&ran["outputs"][0]["url"]), target(&ran["outputs"][1]["url"]));
    assert!(picture.ends_with("/output-1.png") && page.ends_with("/output-2.html"), "{ran:#}");
    world.server.engine.stop_sandbox(&operator(), &SandboxRef::from(&world.sandbox), None).await.unwrap();
    let shown = world.get(&picture, &[]).await.expect(200);
    assert_harmless(&shown);
    assert_eq!((shown.header("content-type"), shown.body.len()), (Some("image/png"), 9000));
    let part = world.get(&picture, &["range: bytes=8000-"]).await.expect(206);
    assert_eq!(part.body, shown.body[8000..]);
    let text = world.get(&page, &[]).await.expect(200);
    assert_harmless(&text);
    assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(text.body, b"<script>x</script>");
    world.server.end().await;
}

#[tokio::test]
async fn those_who_do_not_read_an_output_are_few() {
    let world = World::new().await;
    let key = world.server.new_key("ci").await;
    let body = json!({ "code": format!("{PICTURE}display(Picture(6000000))") }).to_string();
    let ran = world.server.ask_json("POST /v1/sandboxes/box/code", &key, &body).await.expect(200).json();
    let url = ran["outputs"][0]["url"].as_str().unwrap();
    let line = format!("GET {} HTTP/1.1", url.strip_prefix("http://localhost").unwrap());
    let mut held = Vec::new();
    let mut statuses = Vec::new();
    // They read the beginning and no more.
    for _ in 0..6 {
        let mut client = world.server.connect().await;
        client.send(&[&line, "host: localhost"]).await;
        let mut begun = Vec::new();
        client.read_until(&mut begun, |bytes| bytes.len() > 12).await;
        statuses.push(String::from_utf8_lossy(&begun[9..12]).into_owned());
        held.push(client);
    }
    assert!(
        statuses.starts_with(&["200".to_owned()]) && statuses.ends_with(&["429".to_owned()]),
        "{statuses:?}"
    );
    // The key's owner still reads it.
    let exec = ran["execSessionId"].as_str().unwrap();
    let own = world.server.get_with(&format!("/v1/sandboxes/box/execs/{exec}/outputs/1"), &key).await;
    assert_eq!(own.expect(200).body.len(), 6_000_000);
    drop(held);
    let again = async { while world.get(&line[4..line.len() - 9], &[]).await.status() != 200 {} };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
    world.server.end().await;
}

#[tokio::test]
async fn a_key_that_is_revoked_ends_a_download_under_way() {
    let world = World::new().await;
    let bytes = vec![7; 64 * 1024 * 1024];
    world.write("/large", &bytes).await;
    let key = world.server.new_key("ci").await;
    let who = world.server.engine.authenticate_key(&key).await.unwrap();
    let token = world.token(&who, "/large");
    let mut client = world.server.connect().await;
    client.send(&[&format!("GET /v1/links/{token}/large HTTP/1.1"), "host: localhost"]).await;
    let mut begun = Vec::new();
    client.read_until(&mut begun, |bytes| bytes.len() > 10_000).await;
    world.server.engine.revoke_key(&operator(), "ci").await.unwrap();
    let rest = client.rest().await;
    assert!(begun.len() + rest.len() < bytes.len(), "all of it came");
    world.server.end().await;
}

#[tokio::test]
async fn tls_and_the_name_that_was_asked_stand_in_the_address() {
    let hosts = Hosts { allowed_hosts: vec!["warren.example".parse().unwrap()], ..Hosts::default() };
    let world = World::with(Setup { hosts, ..Setup::default() }).await;
    world.write("/a", b"x").await;
    let body = r#"{"path":"/a"}"#;
    let head = [
        "POST /v1/sandboxes/box/links HTTP/1.1".to_owned(),
        "host: warren.example:8443".to_owned(),
        "content-type: application/json".to_owned(),
        format!("content-length: {}\r\n\r\n{body}", body.len()),
    ];
    let mut client = world.server.connect().await;
    let text = head.join("\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut client.0, text.as_bytes()).boxed().await.unwrap();
    let made = client.answer().await.expect(201).json();
    assert!(made["url"].as_str().unwrap().starts_with("http://warren.example:8443/v1/links/"), "{made}");
    world.server.end().await;
}
