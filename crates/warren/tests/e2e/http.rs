//! The daemon on TCP, from the outside.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::Child,
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};

use crate::support::{Daemon, PATIENCE, World, finish, repository};

/// A daemon in the foreground, ready.
pub(crate) struct Served {
    child: Option<Child>,
    url: String,
    log: thread::JoinHandle<String>,
}

impl World {
    pub(crate) fn serve(&self, flags: &[&str]) -> Served {
        let log: &[&str] = if flags.contains(&"--log") { &[] } else { &["--log", "info"] };
        let args = [&["serve", "--listen", "127.0.0.1:0"], log, flags].concat();
        let mut child = self.command(&args).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = String::new();
        // The last of its first words.
        while !said.contains("/mcp") {
            said += &lines.next().unwrap_or_else(|| panic!("it ended: {said}"));
            said.push('\n');
        }
        let log = thread::spawn(move || lines.fold(said, |said, line| said + &line + "\n"));
        let note = self.http_note().unwrap();
        assert_eq!(note["pid"], child.id());
        Served { child: Some(child), url: note["url"].as_str().unwrap().to_owned(), log }
    }

    pub(crate) fn http_note(&self) -> Option<Value> {
        serde_json::from_slice(&fs::read(self.home().join("run/http.json")).ok()?).ok()
    }

    pub(crate) fn fails_to_serve(&self, flags: &[&str]) -> String {
        let refused = self.run(&[&["serve"], flags].concat()).expect(125);
        assert!(refused.stderr.contains("hint: ") && !refused.stderr.contains(" ready"), "{refused:?}");
        assert!(!self.socket().exists() && self.http_note().is_none());
        refused.stderr
    }
}

impl Served {
    fn address(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }

    pub(crate) fn ask(&self, head: &[&str]) -> Answer {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        ask(&mut stream, head)
    }

    /// The answer to a body of JSON, by its own address.
    pub(crate) fn post(&self, target: &str, body: &str) -> Value {
        let answer = self.ask(&[
            &format!("POST {target} HTTP/1.1"),
            &format!("host: {}", self.address()),
            "content-type: application/json",
            &format!("content-length: {}\r\n\r\n{body}", body.len()),
        ]);
        serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn get(&self, target: &str) -> Answer {
        self.ask(&[&format!("GET {target} HTTP/1.1"), "host: localhost"])
    }

    fn get_with(&self, target: &str, key: &str) -> Answer {
        self.ask(&[
            &format!("GET {target} HTTP/1.1"),
            "host: localhost",
            &format!("authorization: Bearer {key}"),
        ])
    }

    /// Ends it, and returns its log.
    pub(crate) fn stop(mut self) -> String {
        let child = self.child.take().unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        finish(child).expect(0);
        self.log.join().unwrap()
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    /// In lower case.
    head: String,
    /// The head as it was sent.
    pub(crate) sent: String,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert!(self.head.starts_with(&format!("http/1.1 {status} ")), "{self:?}");
        self
    }

    pub(crate) fn is(&self, status: u16) -> bool {
        self.head.starts_with(&format!("http/1.1 {status} "))
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The answer of a listener.
pub(crate) fn ask_at(address: &str, head: &[&str]) -> Answer {
    ask(&mut TcpStream::connect(address).unwrap(), head)
}

/// Sends a head and reads an answer with a body of known length, or only the head.
fn ask(stream: &mut (impl Read + Write), head: &[&str]) -> Answer {
    stream.write_all(format!("{}\r\n\r\n", head.join("\r\n")).as_bytes()).unwrap();
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let (sent, head) = (head.to_owned(), head.to_ascii_lowercase());
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |text| text.parse().unwrap()) {
                return Answer { body: body.to_owned(), sent, head };
            }
        }
        let mut piece = [0; 4096];
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "closed after {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..n]);
    }
}

fn fixture(name: &str) -> PathBuf {
    repository().join("crates/frontends/tests/fixtures").join(name)
}

#[test]
fn rest_answers_on_tcp_without_keys_when_told() {
    let world = World::new();
    let served = world.serve(&["--dev"]);
    world.run(&["create", "--name", "dev"]).expect(0);
    let list = served.get("/v1/sandboxes").expect(200).json();
    assert_eq!(list["sandboxes"][0]["name"], "dev");
    assert_eq!(served.get("/").expect(200).json()["name"], "warren");
    let other = served.ask(&["GET /v1/sandboxes HTTP/1.1", "host: evil.example"]).expect(403).json();
    assert!(other["error"]["hint"].as_str().unwrap().contains("--allowed-host"), "{other}");
    let page = ["GET /v1/sandboxes HTTP/1.1", "host: localhost", "origin: https://evil.example"];
    assert!(served.ask(&page).expect(403).body.contains("--allowed-origin"));
    let url = served.url.clone();
    let log = served.stop();
    assert!(log.contains(&format!("{url}/mcp")) && log.contains("--dev"), "{log}");
    assert!(world.http_note().is_none(), "the note is gone with the daemon");
}

#[test]
fn a_key_made_on_the_command_line_opens_tcp() {
    let world = World::new();
    let served =
        world.serve(&["--allowed-host", "warren.example", "--allowed-origin", "https://app.example"]);
    assert!(
        served.get("/v1/sandboxes").expect(401).head.contains("www-authenticate: bearer realm=\"warren\"")
    );
    assert_eq!(served.get("/v1/health").expect(200).json(), serde_json::json!({ "status": "ok" }));
    let key = world.run(&["key", "create", "--label", "ci"]).expect(0).text().trim().to_owned();
    served.get_with("/v1/sandboxes", &key).expect(200);
    served.get(&format!("/v1/sandboxes?api_key={key}")).expect(200);
    let head = format!("GET /v1/sandboxes?api_key={key} HTTP/1.1");
    served.ask(&[&head, "host: warren.example", "origin: https://app.example"]).expect(200);
    world.run(&["key", "revoke", "ci"]).expect(0);
    served.get_with("/v1/sandboxes", &key).expect(401);
    let log = served.stop();
    assert!(log.contains("warren key create"), "{log}");
    assert!(!log.contains(&key), "a key is never logged");
}

#[test]
fn an_open_door_to_everyone_is_refused() {
    let said = World::new().fails_to_serve(&["--dev", "--listen", "0.0.0.0:0"]);
    assert!(said.contains("--dev") && said.contains("0.0.0.0"), "{said}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = World::new().fails_to_serve(&["--listen", &address]);
    assert!(said.contains(&address) && said.contains("--listen"), "{said}");
}

#[test]
fn a_certificate_that_cannot_be_used_is_named_before_anything_starts() {
    let world = World::new();
    let wrong = world.files().join("wrong.pem");
    fs::write(&wrong, "no certificate").unwrap();
    let (wrong, key, other) = (wrong, fixture("tls-key.pem"), fixture("other-key.pem"));
    let listen = ["--listen", "127.0.0.1:0"];
    let try_with = |cert: &PathBuf, key: &PathBuf| {
        let files = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
        world.fails_to_serve(&[&listen[..], &files].concat())
    };
    assert!(try_with(&wrong, &key).contains("wrong.pem"));
    assert!(try_with(&fixture("none.pem"), &key).contains("none.pem"));
    assert!(try_with(&fixture("tls-cert.pem"), &other).contains("other-key.pem"));
}

#[test]
fn tls_is_spoken_with_a_certificate() {
    let world = World::new();
    let (cert, key) = (fixture("tls-cert.pem"), fixture("tls-key.pem"));
    let served =
        world.serve(&["--dev", "--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()]);
    assert!(served.url.starts_with("https://127.0.0.1:"), "{}", served.url);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(cert).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(served.address()).unwrap());
    let answer = ask(&mut stream, &["GET /v1/sandboxes HTTP/1.1", "host: localhost"]);
    assert_eq!(answer.expect(200).json()["sandboxes"], serde_json::json!([]));
    served.stop();
}

#[test]
fn an_operator_sets_rate_and_streams() {
    let world = World::new();
    let served = world.serve(&["--dev", "--rate-limit", "1"]);
    let refused = (0..1000).map(|_| served.get("/v1/version")).find(|answer| answer.is(429)).unwrap();
    assert!(refused.head.contains("retry-after: 1") && refused.body.contains("limit_reached"), "{refused:?}");
    served.stop();

    let served = world.serve(&["--dev", "--max-streams", "1"]);
    let follow = ["GET /v1/events?follow=true HTTP/1.1", "host: localhost", "accept: text/event-stream"];
    let mut open = TcpStream::connect(served.address()).unwrap();
    ask(&mut open, &follow).expect(200);
    assert!(served.ask(&follow).expect(429).body.contains("--max-streams"));
    served.get("/v1/sandboxes").expect(200);
    served.stop();
}

#[test]
fn a_daemon_that_a_command_started_listens_only_when_told() {
    let world = World::new();
    finish(world.command(&["ps"]).env_remove("WARREN_LISTEN").spawn().unwrap()).expect(0);
    assert!(world.http_note().is_none());
    let daemon = world.daemon().unwrap();
    daemon.signal(Signal::TERM);
    assert!(daemon.ends_within(PATIENCE));
    finish(world.command(&["ps"]).env("WARREN_LISTEN", "127.0.0.1:0").spawn().unwrap()).expect(0);
    let note = world.http_note().unwrap();
    assert_eq!(note["pid"], world.daemon().unwrap().pid);
    let address = note["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    ask(&mut stream, &["GET /v1/health HTTP/1.1", "host: localhost"]).expect(200);
    let wrong =
        finish(world.command(&["serve"]).env("WARREN_LISTEN", "everywhere").spawn().unwrap()).expect(125);
    assert!(wrong.stderr.contains("WARREN_LISTEN") && wrong.stderr.contains("hint: "), "{wrong:?}");
}

#[test]
fn a_note_of_a_daemon_that_was_killed_does_not_stay() {
    let world = World::new();
    let start = |listen: &str| {
        finish(world.command(&["ps"]).env("WARREN_LISTEN", listen).spawn().unwrap()).expect(0);
    };
    start("127.0.0.1:0");
    let daemon = world.daemon().unwrap();
    daemon.signal(Signal::KILL);
    assert!(daemon.ends_within(PATIENCE));
    assert!(world.http_note().is_some(), "nobody could clean up");
    start("none");
    assert!(world.http_note().is_none());
}

#[test]
fn a_connection_keeps_an_idle_daemon() {
    let world = World::new();
    let connect = || {
        let start = world
            .command(&["ps"])
            .env("WARREN_IDLE_EXIT", "300ms")
            .env("WARREN_LISTEN", "127.0.0.1:0")
            .spawn();
        finish(start.unwrap()).expect(0);
        let daemon = world.daemon()?;
        let url = world.http_note()?["url"].as_str()?.to_owned();
        let stream = TcpStream::connect(url.strip_prefix("http://")?).ok()?;
        Some((daemon, stream))
    };
    // A busy machine may need longer to connect than an idle daemon waits; so it is tried again.
    let kept = |(daemon, _): &(Daemon, TcpStream)| !daemon.ends_within(Duration::from_secs(1));
    let (daemon, stream) = (0..20).find_map(|_| connect().filter(kept)).unwrap();
    drop(stream);
    assert!(daemon.ends_within(PATIENCE));
    assert!(world.http_note().is_none());
}

#[test]
fn a_daemon_takes_the_place_of_another() {
    let world = World::new();
    let begun = world.serve(&["--dev"]);
    let refused = world.run(&["serve"]).expect(125);
    assert!(refused.stderr.contains("--take-over"), "{refused:?}");
    let second = world.serve(&["--take-over", "--dev"]);
    finish(begun.child.unwrap()).expect(0);
    assert_eq!(world.daemon().unwrap().pid, i32::try_from(second.child.as_ref().unwrap().id()).unwrap());
    // Again, with one that holds a port: the third gets the very same.
    let address = second.address().to_owned();
    let mut third = world
        .command(&["serve", "--take-over", "--dev", "--listen", &address, "--log", "info"])
        .spawn()
        .unwrap();
    let mut log = BufReader::new(third.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(log.by_ref().any(|line| line.contains(&format!("http://{address}/mcp"))));
    finish(second.child.unwrap()).expect(0);
    kill_process(Pid::from_child(&third), Signal::TERM).unwrap();
    log.for_each(drop);
    finish(third).expect(0);
}

#[test]
fn sandboxes_live_through_a_change_of_daemons() {
    let world = World::with_dev();
    world.run(&["exec", "dev", "sh", "-c", "sleep 1000 & echo $! >/tmp/pid"]).expect(0);
    let first = world.daemon().unwrap();
    let served = world.serve(&["--take-over", "--dev"]);
    assert!(first.ends_within(PATIENCE));
    let list = served.get("/v1/sandboxes").expect(200).json();
    assert_eq!(
        (&list["sandboxes"][0]["name"], &list["sandboxes"][0]["state"]),
        (&"dev".into(), &"running".into())
    );
    // The very process, not one like it.
    world.run(&["exec", "dev", "sh", "-c", "kill -0 $(cat /tmp/pid)"]).expect(0);
    served.stop();
}
