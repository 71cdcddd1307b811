//! A policy and its log over MCP and REST: what they show, and what a change does while programs run.

use std::process::Command;

use serde_json::{Value, json};

use super::{
    asking::Client,
    policy::{KEEP_OPEN, Talk},
    servers::{echo, http, serve},
    world::{curl, in_a_world, log},
    zone::Zone,
};
use crate::harness::{Daemon, until};

/// A request to the daemon's REST interface, by its socket.
pub(crate) fn rest(daemon: &Daemon, method: &str, path: &str, body: Option<&Value>) -> Value {
    let mut curl = Command::new("curl");
    let socket = daemon.run_directory().join("warren.sock");
    curl.args(["-gsS", "--fail-with-body", "-X", method, "--unix-socket"]).arg(socket);
    if let Some(body) = body {
        curl.args(["-H", "content-type: application/json", "-d", &body.to_string()]);
    }
    let done = curl.arg(format!("http://warren/v1/sandboxes/lab{path}")).output().unwrap();
    let told = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{method} {path}: {told}");
    serde_json::from_str(&told).unwrap()
}

/// Entries of a log without what differs in each run.
fn entries(log: &Value) -> Vec<Value> {
    let mut entries = log["entries"].as_array().unwrap().clone();
    for entry in &mut entries {
        let entry = entry.as_object_mut().unwrap();
        assert!(entry.remove("at").is_some_and(|at| at.as_str().unwrap().ends_with('Z')));
        entry.remove("sandbox");
    }
    entries
}

#[test]
fn mcp_shows_and_changes_the_policy_and_tells_what_was_decided() {
    in_a_world(|| {
        let _zone = Zone::start("api.example 93.184.216.34");
        serve("93.184.216.34:80", http("server"));
        serve("10.1.2.3:80", http("inner"));
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "none", "--allow", "api.example"]);
        let mut client = Client::start(&daemon, None);
        let lab = json!({ "name": "lab" });
        let policy = |mut view: Value| {
            let held_by = view.as_object_mut().unwrap().remove("heldBy").unwrap();
            assert!(held_by.as_str().unwrap().starts_with("edge ("), "{held_by}");
            view
        };
        assert_eq!(
            policy(client.call("sandbox_network", &lab)),
            json!({ "name": "lab", "preset": "none", "rules": ["allow api.example"] })
        );
        assert!(curl(&daemon, "lab", "http://api.example/").contains("heard"));
        until("it is in the log", || log(&daemon, "lab").len() == 1);
        assert_eq!(curl(&daemon, "lab", "http://10.1.2.3/"), "exit 7");
        until("it is in the log", || log(&daemon, "lab").len() == 2);
        let decided = [
            json!({ "number": 1, "verdict": "allowed", "target": "api.example 80/tcp", "count": 1,
                "why": "allowed by rule 1 of the sandbox's policy: allow api.example" }),
            json!({ "number": 2, "verdict": "denied", "target": "10.1.2.3 80/tcp", "count": 1,
                "why": "denied: the preset `none` reaches nothing" }),
        ];
        assert_eq!(entries(&client.call("sandbox_network_log", &lab)), decided);
        let last = json!({ "name": "lab", "limit": 1 });
        assert_eq!(entries(&client.call("sandbox_network_log", &last)), decided[1..]);
        let first = json!({ "name": "lab", "from": 1, "limit": 1 });
        assert_eq!(entries(&client.call("sandbox_network_log", &first)), decided[..1]);

        let change = json!({ "name": "lab", "allow": ["10.1.2.3:80"], "remove": ["allow api.example"] });
        assert_eq!(
            policy(client.call("sandbox_network", &change)),
            json!({ "name": "lab", "preset": "none", "rules": ["allow 10.1.2.3:80"] })
        );
        assert!(curl(&daemon, "lab", "http://10.1.2.3/").contains("heard"));
        assert_eq!(curl(&daemon, "lab", "http://api.example/"), "exit 6");
    });
}

#[test]
fn rest_shows_and_changes_the_policy_and_tells_what_was_decided() {
    in_a_world(|| {
        serve("93.184.216.34:7000", echo);
        serve("10.1.2.3:80", http("inner"));
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "none", "--allow", "93.184.216.34:7000"]);
        let policy = json!({ "preset": "none", "allow": ["93.184.216.34:7000"] });
        assert_eq!(rest(&daemon, "GET", "/network", None)["policy"], policy);
        let mut talk = Talk::start(&daemon, "lab", KEEP_OPEN);
        assert_eq!(talk.next(), "open x");
        until("it is in the log", || log(&daemon, "lab").len() == 1);
        assert_eq!(curl(&daemon, "lab", "http://10.1.2.3/"), "exit 7");
        until("it is in the log", || log(&daemon, "lab").len() == 2);
        let decided = [
            json!({ "number": 1, "kind": "allowed", "protocol": "tcp", "address": "93.184.216.34", "port": 7000,
                "count": 1, "rule": "allowed by rule 1 of the sandbox's policy: allow 93.184.216.34:7000" }),
            json!({ "number": 2, "kind": "denied", "protocol": "tcp", "address": "10.1.2.3", "port": 80, "count": 1,
                "rule": "denied: the preset `none` reaches nothing" }),
        ];
        assert_eq!(entries(&rest(&daemon, "GET", "/network/log", None)), decided);
        assert_eq!(entries(&rest(&daemon, "GET", "/network/log?limit=1", None)), decided[1..]);
        assert_eq!(entries(&rest(&daemon, "GET", "/network/log?from=1&limit=1", None)), decided[..1]);

        // A change reaches what is open: one ends, and another may begin.
        let change =
            json!({ "allow": ["10.1.2.3:80"], "deny": ["93.184.216.34"], "remove": ["93.184.216.34:7000"] });
        let policy = json!({ "preset": "none", "allow": ["10.1.2.3:80"], "deny": ["93.184.216.34"] });
        assert_eq!(rest(&daemon, "PATCH", "/network", Some(&change))["policy"], policy);
        assert_eq!(talk.next(), "ended ConnectionResetError");
        assert_eq!(rest(&daemon, "GET", "/network", None)["policy"], policy);
        assert!(curl(&daemon, "lab", "http://10.1.2.3/").contains("heard"));
        assert_eq!(curl(&daemon, "lab", "http://93.184.216.34:7000/"), "exit 7");
        until("what ended is in the log", || {
            let told = log(&daemon, "lab");
            told.contains(
                &"denied 93.184.216.34 7000 denied by rule 1 of the sandbox's policy: deny 93.184.216.34"
                    .to_owned(),
            )
        });
    });
}
