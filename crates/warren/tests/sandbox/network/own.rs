//! The reach of sandboxes, with a daemon in a network namespace of its own: every address is that machine's, and there
//! is no way out.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
};

use serde_json::{Value, json};

use super::world::not_tested;
use crate::{
    harness::{Daemon, is_root, until},
    packages::Index,
};

/// Serves HTTP on all addresses of the world, port 8000, and says which one was asked.
const SERVER: &str = "
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(self.connection.getsockname()[0].encode())
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(('0.0.0.0', 8000), Handler).serve_forever()
";

/// A public address of the world.
const PUBLIC: &str = "93.184.216.34";

/// `None` where no network can be made.
fn daemon(config: &str) -> Option<Daemon> {
    if !is_root() {
        println!("skipped: a network namespace for the daemon needs root");
        return None;
    }
    let daemon = Daemon::in_own_network(config, SERVER);
    if daemon.fails_to_make_networks() {
        not_tested("no network can be made here");
        return None;
    }
    Some(daemon)
}

/// A client in a sandbox: prints the answer, or the name of the error.
fn fetch(daemon: &Daemon, sandbox: &str, host: &str, port: u16) -> String {
    let script = format!(
        "python3 -c \"
import errno, socket, urllib.request
try: print(urllib.request.urlopen('http://{host}:{port}/', timeout=20).read().decode())
except urllib.error.URLError as error:
    reason = error.reason
    print(errno.errorcode.get(reason.errno, reason) if isinstance(reason, OSError) else reason)
\""
    );
    daemon.sh_ok(sandbox, &script)
}

#[test]
fn the_daemons_own_listeners_are_closed_even_where_the_host_is_allowed() {
    let Some(daemon) = daemon("") else { return };
    let port = daemon.tcp_port();
    daemon.create("box", &["--network", "all", "--allow", "host", "--allow", PUBLIC]);
    assert_eq!(fetch(&daemon, "box", "host.warren.internal", 8000), "127.0.0.1");
    assert_eq!(fetch(&daemon, "box", PUBLIC, 8000), PUBLIC);
    assert_eq!(fetch(&daemon, "box", "host.warren.internal", port), "ECONNREFUSED");
    until("it is in the log", || {
        daemon.ok(["network", "box", "--log"]).contains("the sandbox manager itself listens there")
    });
}

#[test]
fn without_a_network_there_are_no_packages_either() {
    let index = Index::start();
    let daemon = Daemon::configured(&index.config());
    daemon.create("box", &[]);
    daemon.create("closed", &["--network", "none"]);
    // The gateway is asked for by the first command that may need it.
    let ask = "pip=1; wget -qO- http://127.0.0.1:17070/pip/simple/burrow/ | grep -c burrow; true";
    let reaches = |name: &str| daemon.sh_ok(name, ask) != "0";
    assert!(reaches("box") && !reaches("closed"));
    let (_, refused) = daemon.fails(["package", "install", "closed", "burrow"]);
    assert!(refused.contains("its network is closed"), "{refused}");

    daemon.ok(["network", "box", "--preset", "none"]);
    assert!(!reaches("box"));
    let n_requests = index.n_requests();
    assert!(!reaches("box"));
    assert_eq!(index.n_requests(), n_requests);
    for name in ["box", "closed"] {
        daemon.ok(["network", name, "--preset", "packages"]);
        assert!(reaches(name), "{name}");
    }
}

/// The answers to calls of MCP tools, over stdio.
fn call(daemon: &Daemon, dialect: Option<&str>, calls: &[(&str, Value)]) -> Vec<Value> {
    let dialect = dialect.map(|dialect| format!("--dialect={dialect}"));
    let arguments = std::iter::once("mcp".to_owned()).chain(dialect);
    let mut mcp = daemon.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = mcp.stdin.take().unwrap();
    let mut answers = BufReader::new(mcp.stdout.take().unwrap())
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut ask = |id: usize, method: &str, params: Value| {
        writeln!(stdin, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .unwrap();
        answers.find(|answer| answer["id"] == id).unwrap()["result"].take()
    };
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    ask(0, "initialize", hello);
    let told = calls.iter().enumerate().map(|(at, (tool, arguments))| {
        ask(at + 1, "tools/call", json!({ "name": tool, "arguments": arguments }))
    });
    let told = told.collect();
    drop(stdin);
    mcp.wait().unwrap();
    told
}

#[test]
fn a_model_reads_what_was_denied_and_traffic_is_counted() {
    let Some(daemon) = daemon("") else { return };
    daemon.create("box", &["--network", "none", "--allow", &format!("{PUBLIC}:8000")]);
    let run = |host: &str| {
        let command = format!("wget -qO- -T 20 http://{host}:8000/ || true");
        ("sandbox_shell", json!({ "name": "box", "command": command }))
    };
    let told = call(&daemon, None, &[run("93.184.216.99"), run(PUBLIC), run("nowhere.example")]);
    let told: Vec<_> = told.iter().map(|result| &result["structuredContent"]).collect();
    let warnings = |at: usize| told[at]["warnings"][0].as_str().unwrap_or_default();
    assert!(warnings(0).contains("the preset `none` reaches nothing"), "{told:?}");
    let next = json!({ "name": "box", "allow": ["93.184.216.99:8000"] });
    assert!(warnings(0).contains(&format!("sandbox_network {next}")), "{told:?}");
    assert_eq!(
        (&told[1]["warnings"], &told[1]["data"]["stdout"]),
        (&Value::Null, &json!(PUBLIC)),
        "{told:?}"
    );
    assert!(warnings(2).contains("nowhere.example was not reached"), "{told:?}");
    let counted = || daemon.json(["stats", "box", "--json"])[0]["network"].clone();
    until("the traffic is counted", || counted()["connections"] == 1);
    let network = counted();
    assert!(
        network["receivedBytes"].as_u64() > Some(100) && network["sentBytes"].as_u64() > Some(50),
        "{network}"
    );
    assert!(network["denied"].as_u64() >= Some(1), "{network}");

    let hosts = daemon.json(["network", "box", "--hosts", "--json"])["hosts"].clone();
    let of = |host: &str| {
        let hosts = hosts.as_array().unwrap();
        hosts.iter().find(|found| found["host"] == host).unwrap_or_else(|| panic!("{host}: {hosts:?}"))
    };
    assert_eq!(hosts[0]["host"], PUBLIC, "the busiest first: {hosts:#}");
    let count = |host: &str, what: &str| of(host)[what].as_u64().unwrap();
    assert_eq!((count(PUBLIC, "connections"), count(PUBLIC, "denied")), (1, 0));
    assert_eq!(of(PUBLIC)["receivedBytes"], network["receivedBytes"]);
    assert_eq!((count("93.184.216.99", "connections"), count("93.184.216.99", "denied")), (0, 1));
    assert!(count("nowhere.example", "denied") >= 1);
}

/// Denials are told by the other interfaces too.
#[test]
fn what_was_denied_is_told_by_rest_and_in_the_forms_of_other_systems() {
    let Some(daemon) = daemon("") else { return };
    daemon.create("box", &["--network", "none", "--allow", &format!("{PUBLIC}:8000")]);
    let line = "wget -qO- -T 20 http://93.184.216.99:8000/ || true";
    let denied = "93.184.216.99:8000 was not reached: denied: the preset `none` reaches nothing.";
    let post = |path: &str, body: Value| -> Value {
        let socket = daemon.run_directory().join("warren.sock");
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sS", "-H", "content-type: application/json", "-d", &body.to_string()]);
        curl.arg("--unix-socket").arg(socket).arg(format!("http://warren{path}"));
        serde_json::from_slice(&curl.output().unwrap().stdout).unwrap()
    };
    let has = |warnings: &Value| {
        let told = warnings.as_array().into_iter().flatten().filter_map(Value::as_str);
        told.filter(|warning| warning.starts_with(denied)).count() == 1
    };
    let ran = post("/v1/sandboxes/box/execs?wait=true", json!({ "command": ["sh", "-c", line] }));
    assert!(has(&ran["warnings"]), "{ran:#}");
    let ran = post("/v1/sandboxes/box/code", json!({ "language": "bash", "code": line }));
    assert!(has(&ran["warnings"]), "{ran:#}");
    let ran = post("/v1/sandboxes/box/execs?wait=true", json!({ "command": ["true"] }));
    assert_eq!(ran["warnings"], Value::Null, "{ran:#}");

    let id = daemon.inspect("box")["id"].clone();
    let command = json!({ "sandbox_id": id, "command": line });
    let told = call(&daemon, Some("mcp-sandbox"), &[("execute_terminal_command", command.clone())]);
    assert!(has(&told[0]["structuredContent"]["warnings"]), "{told:#?}");
    let told = call(&daemon, Some("opensandbox"), &[("command_run", command)]);
    assert!(has(&told[0]["structuredContent"]["warnings"]), "{told:#?}");
    let command = json!({ "sandbox": "box", "namespace": "default", "command": "sh", "args": ["-c", line] });
    let told = call(&daemon, Some("microsandbox"), &[("sandbox_run_command", command)]);
    assert!(told[0].to_string().contains(denied), "{told:#?}");
    // Its clients have no tool that changes a policy, and are told of none.
    let command = json!({ "name": "box", "command": line });
    let told = call(&daemon, Some("microsandbox-mcp"), &[("sandbox_shell", command)]);
    let warnings = &told[0]["structuredContent"]["warnings"];
    assert!(has(warnings) && warnings[0].as_str().unwrap().contains("warren network box"), "{told:#?}");
    assert!(!warnings.to_string().contains("sandbox_network"), "{told:#?}");
}
