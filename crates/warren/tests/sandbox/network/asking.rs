//! Requests by an agent, granted by people: at the agent's client, and at a terminal.

use std::{
    io::{BufRead as _, BufReader, Lines, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use super::{
    policy::{KEEP_OPEN, Talk},
    servers::{echo, http, serve},
    world::{curl, in_a_world, log},
    zone::Zone,
};
use crate::{
    harness::{Daemon, until},
    snapshots::hold,
};

/// An MCP client on stdio, with a person who answers every question so.
pub(crate) struct Client {
    program: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    answer: Option<Value>,
    /// The questions that the person was asked.
    questions: Vec<String>,
    n_sent: u64,
}

impl Client {
    /// `answer`: none for a client that shows no questions.
    pub(crate) fn start(daemon: &Daemon, answer: Option<Value>) -> Self {
        let mut program =
            daemon.command(["mcp"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = program.stdin.take().unwrap();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let capabilities = if answer.is_some() { json!({ "elicitation": {} }) } else { json!({}) };
        let mut client = Self { program, stdin, lines, answer, questions: Vec::new(), n_sent: 0 };
        let info = json!({ "name": "t", "version": "1" });
        let hello =
            json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": info });
        client.ask("initialize", hello);
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.n_sent += 1;
        let id = json!(self.n_sent);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
            if message["method"] == "elicitation/create" {
                self.questions.push(message["params"]["message"].as_str().unwrap().to_owned());
                let result = self.answer.clone().unwrap();
                self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
            } else if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    /// Calls a tool; returns the data of its answer.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let called = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        let data = called["structuredContent"]["data"].clone();
        assert!(data.is_object(), "{called:#}");
        data
    }

    /// The state of a request for a rule, and its id.
    fn request(&mut self, rule: &str) -> (String, String) {
        let arguments = json!({ "name": "lab", "rules": [rule], "reason": "to read the issue" });
        let data = self.call("sandbox_network_request", &arguments);
        let text = |key: &str| data[key].as_str().unwrap_or_else(|| panic!("{data:#}")).to_owned();
        (text("state"), text("request"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.program.kill().ok();
        self.program.wait().ok();
    }
}

#[test]
fn what_the_person_at_the_client_allows_is_reached_and_what_they_refuse_is_not() {
    in_a_world(|| {
        let _zone = Zone::start("api.example 93.184.216.34, other.example 93.184.216.34");
        serve("93.184.216.34:80", http("server"));
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "none", "--allow", "10.1.2.3:80"]);
        assert_eq!(curl(&daemon, "lab", "http://api.example/"), "exit 6");
        let accepts = json!({ "action": "accept", "content": { "decision": "allow" } });
        let mut client = Client::start(&daemon, Some(accepts));
        assert_eq!(client.request("api.example:80").0, "granted");
        assert_eq!(client.questions.len(), 1);
        assert!(client.questions[0].contains("api.example:80 for 1 h"), "{:?}", client.questions);
        assert!(curl(&daemon, "lab", "http://api.example/").contains("heard"));
        until("the log names the grant", || {
            log(&daemon, "lab").iter().any(|line| line.contains("allowed by rule 1 of the grant ask-"))
        });
        for refusal in [
            json!({ "action": "decline" }),
            json!({ "action": "accept", "content": { "decision": "refuse" } }),
        ] {
            assert_eq!(Client::start(&daemon, Some(refusal)).request("other.example").0, "refused");
        }
        assert_eq!(
            Client::start(&daemon, Some(json!({ "action": "cancel" }))).request("x.example").0,
            "pending"
        );
        assert_eq!(curl(&daemon, "lab", "http://other.example/"), "exit 6");
        // Forks have the policy, and no grant.
        hold(&daemon, "lab");
        daemon.ok(["fork", "lab", "--name", "fork"]);
        assert_eq!(curl(&daemon, "fork", "http://api.example/"), "exit 6");
    });
}

#[test]
fn a_grant_ends_at_its_time_and_with_it_its_open_connections() {
    in_a_world(|| {
        serve("93.184.216.34:7000", echo);
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "none", "--allow", "10.1.2.3:80"]);
        let (state, id) = Client::start(&daemon, None).request("93.184.216.34:7000");
        assert_eq!(state, "pending");
        let pending = daemon.ok(["network", "--pending"]);
        assert!(pending.contains(&id) && pending.contains("to read the issue"), "{pending}");
        daemon.ok(["network", "lab", "--grant", &id, "--for", "1h"]);
        assert!(!daemon.ok(["network", "--pending"]).contains(&id));
        let mut talk = Talk::start(&daemon, "lab", KEEP_OPEN);
        assert_eq!(talk.next(), "open x");
        // The time of a grant that holds is changed by another grant.
        daemon.ok(["network", "lab", "--grant", &id, "--for", "1s"]);
        assert_eq!(talk.next(), "ended ConnectionResetError");
        assert_eq!(curl(&daemon, "lab", "http://93.184.216.34:7000/"), "exit 7");
        let view = daemon.json(["network", "lab", "--json"]);
        assert_eq!(view["requests"][0]["state"], "ended", "{view:#}");
        until("events tell of it", || {
            let events = daemon.ok(["events", "--json"]);
            ["network_requested", "network_granted", "network_grant_ended"]
                .iter()
                .all(|kind| events.contains(&format!("\"{kind}\"")))
        });
        // One that is taken back ends at once.
        let (_, id) = Client::start(&daemon, None).request("93.184.216.34:7000");
        daemon.ok(["network", "lab", "--grant", &id]);
        let mut talk = Talk::start(&daemon, "lab", KEEP_OPEN);
        assert_eq!(talk.next(), "open x");
        daemon.ok(["network", "lab", "--refuse", &id, "--reason", "enough"]);
        assert_eq!(talk.next(), "ended ConnectionResetError");
    });
}

/// A request with a key over TCP: the status, and the answer.
fn ask(daemon: &Daemon, key: &str, path: &str, body: &Value) -> (u16, Value) {
    let at = format!("http://127.0.0.1:{}/v1{path}", daemon.tcp_port());
    let bearer = format!("authorization: Bearer {key}");
    let json = "content-type: application/json";
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-w", "\n%{http_code}", "-H", &bearer, "-H", json, "-d", &body.to_string(), &at]);
    let told = String::from_utf8(curl.output().unwrap().stdout).unwrap();
    let (answer, status) = told.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(answer).unwrap_or_default())
}

#[test]
fn a_key_opens_no_more_than_its_ceilings_and_only_the_owner_grants_beyond_them() {
    in_a_world(|| {
        let _zone = Zone::start(
            "api.example 93.184.216.34, other.example 93.184.216.34, db.corp.example 93.184.216.35",
        );
        serve("93.184.216.34:80", http("server"));
        serve("93.184.216.35:80", http("server"));
        let daemon =
            Daemon::listening("[network]\nceiling = 'public'\nceiling_rules = ['deny *.corp.example']\n");
        let made = daemon.json(["key", "create", "--network", "public", "--deny", "other.example", "--json"]);
        let key = made["secret"].as_str().unwrap_or_else(|| panic!("{made:#}"));
        let sandboxes = |name: &str, network: Value| {
            ask(&daemon, key, "/sandboxes", &json!({ "name": name, "network": network })).0
        };
        assert_eq!(sandboxes("all", json!({ "preset": "all" })), 403);
        assert_eq!(sandboxes("corp", json!({ "allow": ["db.corp.example"] })), 403);
        assert_eq!(sandboxes("lab", json!({ "preset": "public" })), 201);
        let reaches =
            |sandbox: &str, host: &str| curl(&daemon, sandbox, &format!("http://{host}/")).contains("heard");
        assert!(reaches("lab", "api.example"));
        assert!(!reaches("lab", "other.example") && !reaches("lab", "db.corp.example"));

        let wish = json!({ "rules": ["db.corp.example:80"], "reason": "to read the orders" });
        let (status, asked) = ask(&daemon, key, "/sandboxes/lab/network/requests", &wish);
        assert_eq!(status, 201, "{asked:#}");
        let id = asked["id"].as_str().unwrap();
        let grant = format!("/sandboxes/lab/network/requests/{id}/grant");
        assert_eq!(ask(&daemon, key, &grant, &json!({})).0, 403);
        daemon.ok(["network", "lab", "--grant", id]);
        assert!(reaches("lab", "db.corp.example"));
        assert!(!reaches("lab", "other.example"), "everything else stays below the ceilings");

        // A sandbox made of it has its policy at most, and not the grant.
        hold(&daemon, "lab");
        daemon.ok(["snapshot", "create", "lab", "--name", "base"]);
        daemon.ok(["snapshot", "restore", "base", "--name", "again"]);
        daemon.ok(["fork", "lab", "--name", "fork"]);
        assert!(!reaches("again", "api.example") && !reaches("again", "db.corp.example"));
        assert!(reaches("fork", "api.example"), "the owner's fork has the policy");
        if daemon.inspect("lab")["state"] == "stopped" {
            daemon.ok(["start", "lab"]);
        }
        assert!(reaches("lab", "db.corp.example"));
        daemon.ok(["network", "lab", "--refuse", id]);
        assert!(!reaches("lab", "db.corp.example"));
    });
}
