use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::Path,
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Finished, PATIENCE, World, finish};

/// The length of a key's beginning, which has its id in it.
const BEFORE_RANDOM: usize = "wrn_0123456789abc_".len();

/// Every file beneath a directory.
fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}

#[track_caller]
fn assert_nowhere(world: &World, secret: &str) {
    let random = &secret.as_bytes()[BEFORE_RANDOM..];
    let all = files(&world.home());
    assert!(all.iter().any(|path| path.ends_with("warren.db")), "{all:?}");
    assert!(all.iter().any(|path| path.ends_with("daemon.log")), "{all:?}");
    for path in all {
        let bytes = fs::read(&path).unwrap();
        assert!(!bytes.windows(random.len()).any(|window| window == random), "in {}", path.display());
    }
}

fn listed(world: &World, args: &[&str]) -> Vec<Value> {
    world.run(args).expect(0).json()["keys"].as_array().unwrap().clone()
}

#[test]
fn a_key_is_printed_once_and_kept_nowhere() {
    let world = World::new();
    let made =
        world.run(&["key", "create", "--label", "ci", "--expires", "30d", "--max-memory", "2g"]).expect(0);
    let secret = made.text().trim_end().to_owned();
    assert_eq!((secret.len(), secret.lines().count()), (61, 1), "stdout is the key alone: {made:?}");
    assert!(made.stderr.contains("ci") && made.stderr.contains("cannot be shown again"), "{made:?}");
    assert!(!made.stderr.contains(&secret[BEFORE_RANDOM..]));

    // Not in what is listed, not in the log at its most talkative, not in the database: neither while the daemon runs
    // nor after it has folded its files.
    let table = world.run(&["key", "list"]).expect(0).text();
    assert!(
        table.contains("ci")
            && table.contains("2GiB")
            && (table.contains("in 30d") || table.contains("in 29d")),
        "{table}"
    );
    let answers = table
        + &world.run(&["key", "list", "--json"]).expect(0).text()
        + &world.run(&["audit"]).expect(0).text();
    assert!(!answers.contains(&secret[BEFORE_RANDOM..]));
    assert_nowhere(&world, &secret);
    let daemon = world.daemon().unwrap();
    daemon.signal(Signal::TERM);
    assert!(daemon.ends_within(PATIENCE));
    assert_nowhere(&world, &secret);
}

/// One request over TCP; the status of its answer.
fn ask(address: &str, head: &[&str]) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{}\r\nhost: localhost\r\nconnection: close\r\n\r\n", head.join("\r\n")).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_else(|| panic!("{answer:?}")).parse().unwrap()
}

#[test]
fn a_key_that_is_used_leaves_no_trace_in_the_most_talkative_log() {
    let world = World::new();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--log", "trace"];
    let mut child = world.command(&serve).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let is_ready = lines.by_ref().any(|line| line.contains("/mcp"));
    assert!(is_ready, "it ended before it was ready");
    let log = thread::spawn(move || lines.collect::<Vec<_>>().join("\n"));
    let note: Value = serde_json::from_slice(&fs::read(world.home().join("run/http.json")).unwrap()).unwrap();
    let address = note["url"].as_str().unwrap().split_once("://").unwrap().1;

    let secret = world.run(&["key", "create", "--label", "ci"]).expect(0).text().trim_end().to_owned();
    let (bearer, wrong) =
        (format!("authorization: Bearer {secret}"), format!("authorization: Bearer {secret}x"));
    let by_query = |path: &str| format!("GET {path}?api_key={secret} HTTP/1.1");
    assert_eq!(ask(address, &["GET /v1/sandboxes HTTP/1.1", &bearer]), 200);
    assert_eq!(ask(address, &[&by_query("/v1/sandboxes")]), 200);
    assert_eq!(ask(address, &[&by_query("/v1/sandboxes/nobody")]), 404);
    assert_eq!(ask(address, &[&by_query("/v1/nothing")]), 404);
    assert_eq!(ask(address, &["POST /v1/keys HTTP/1.1", "content-length: 0", &bearer]), 400);
    assert_eq!(ask(address, &["GET /v1/keys HTTP/1.1", &bearer]), 403);
    assert_eq!(ask(address, &["GET /v1/sandboxes HTTP/1.1", &wrong]), 401);
    assert_eq!(ask(address, &["GET /v1/sandboxes HTTP/1.1"]), 401);
    ask(address, &["POST /mcp HTTP/1.1", "content-length: 0", &bearer]);
    world.run(&["key", "revoke", "ci"]).expect(0);
    assert_eq!(ask(address, &["GET /v1/sandboxes HTTP/1.1", &bearer]), 401);

    let audit = world.run(&["audit"]).expect(0).text();
    assert!(audit.contains("key ci") && audit.contains("unauthenticated"), "{audit}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    finish(child).expect(0);
    let log = log.join().unwrap();
    assert!(log.contains("/v1/sandboxes"), "the log tells of requests: {log}");
    for text in [&log, &audit] {
        assert!(!text.contains(&secret[BEFORE_RANDOM..]), "{text}");
    }
    for path in files(&world.home()) {
        let bytes = fs::read(&path).unwrap();
        let random = &secret.as_bytes()[BEFORE_RANDOM..];
        assert!(!bytes.windows(random.len()).any(|window| window == random), "in {}", path.display());
    }
}

#[test]
fn the_flags_decide_what_a_key_may() {
    let world = World::new();
    let create = |args: &[&str]| -> Value {
        let made = world.run(&[&["key", "create", "--json"], args].concat()).expect(0).json();
        assert!(made["secret"].as_str().unwrap().starts_with("wrn_"), "{made}");
        made["key"].clone()
    };
    assert_eq!(create(&[])["namespace"], "default", "one namespace unless more is asked for");
    assert_eq!(create(&["--namespace", "blue"])["namespace"], "blue");
    let token = world.run(&["key", "create", "--format", "msb"]).expect(0).text();
    assert_eq!((&token[..4], token.matches('.').count()), ("msb_", 2), "{token}");
    let all = create(&["--all-namespaces", "--read-only", "--max-sandboxes", "3"]);
    assert!(all["namespace"].is_null() && all["readOnly"] == true && all["maxSandboxes"] == 3, "{all}");
    let of = |variable: &str, args: &[&str]| -> Finished {
        finish(world.command(args).env("WARREN_NAMESPACE", variable).spawn().unwrap())
    };
    let made = of("green", &["key", "create", "--json"]).expect(0).json();
    assert_eq!(made["key"]["namespace"], "green");
    let made = of("green", &["key", "create", "--json", "--all-namespaces"]).expect(0).json();
    assert!(made["key"]["namespace"].is_null(), "{made}");
    assert_eq!(listed(&world, &["key", "list", "--json"]).len(), 6);

    for (args, code, named) in [
        (&["key", "create", "--all-namespaces", "--namespace", "blue"][..], 2, "--all-namespaces"),
        (&["key", "create", "--label", "a b"], 125, "a b"),
        (&["key", "create", "--label", "key-0123456789abc"], 125, "reserved for ids"),
        (&["key", "create", "--expires", "soon"], 2, "soon"),
        (&["key", "create", "--expires", "0s"], 125, "expire"),
        (&["key", "create", "--max-memory", "lots"], 2, "lots"),
        (&["key", "revoke", "nobody"], 125, "warren key list"),
        (&["key", "revoke"], 2, "--help"),
        (&["key"], 2, "create"),
    ] {
        let refused = world.run(args).expect(code);
        assert!(refused.stderr.contains(named), "{args:?}: {refused:?}");
    }
}

#[test]
fn a_revoked_key_leaves_the_list_and_its_label() {
    let world = World::new();
    let create = || world.run(&["key", "create", "--label", "ci"]);
    create().expect(0);
    let taken = create().expect(125);
    assert!(taken.stderr.contains("ci") && taken.stderr.contains("warren key revoke ci"), "{taken:?}");
    let id = world.run(&["key", "revoke", "ci"]).expect(0).text();
    assert!(listed(&world, &["key", "list", "--json"]).is_empty());
    let all = listed(&world, &["key", "list", "--all", "--json"]);
    assert_eq!((all.len(), all[0]["id"].as_str()), (1, Some(id.trim_end())));
    assert!(world.run(&["key", "list", "-a"]).expect(0).text().contains("revoked"));
    create().expect(0);
    // By id too, and the next daemon knows as much.
    let second = listed(&world, &["key", "list", "--json"])[0]["id"].as_str().unwrap().to_owned();
    world.run(&["key", "revoke", &second]).expect(0);
    let daemon = world.daemon().unwrap();
    daemon.signal(Signal::KILL);
    assert!(daemon.ends_within(PATIENCE));
    assert!(listed(&world, &["key", "list", "--json"]).is_empty());
}

#[test]
fn the_audit_tells_what_commands_did() {
    let world = World::with_dev();
    world.run(&["exec", "dev", "true"]).expect(0);
    world.run(&["ps"]).expect(0);
    world.run(&["rm", "nobody"]).expect(125);
    world.run(&["key", "create"]).expect(0);
    let lines = world.run(&["audit", "--json"]).expect(0).text();
    let calls: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let actions: Vec<_> = calls.iter().map(|call| call["action"].as_str().unwrap()).collect();
    assert_eq!(
        actions[..3],
        ["POST /v1/sandboxes", "POST /v1/sandboxes/{sandbox}/execs", "DELETE /v1/sandboxes/{sandbox}"]
    );
    assert!(actions[3].starts_with("POST /v1/keys (key-"), "{actions:?}");
    assert_eq!((calls[0]["sandbox"].as_str(), calls[2]["error"].as_str()), (Some("dev"), Some("not_found")));
    assert!(calls.iter().all(|call| call["client"].as_str().unwrap().starts_with("warren/")), "{lines}");

    let table = world.run(&["audit", "--limit", "2"]).expect(0).text();
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains("not_found") && table.contains("nobody"), "{table}");
    let rest = world.run(&["audit", "--since-number", "4", "--json"]).expect(0).text();
    assert_eq!(rest.lines().count(), 1, "{rest}");
    assert_eq!(world.run(&["audit", "--who", "nobody", "--json"]).expect(0).text(), "");

    // A daemon that is told to leave takes nothing along.
    let daemon = world.daemon().unwrap();
    daemon.signal(Signal::TERM);
    assert!(daemon.ends_within(PATIENCE));
    assert_eq!(world.run(&["audit", "--json"]).expect(0).text(), lines);
}
