//! `warren mcp`, as an editor uses it: a process, its stdin and its stdout.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    docker,
    support::{PATIENCE, World, finish, until},
};

struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    n_asked: u64,
}

fn read_lines(stdout: ChildStdout) -> Receiver<Value> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let line = line.unwrap();
            // Whatever is not a message fails the test that waits for one.
            let message = serde_json::from_str(&line).unwrap_or(Value::String(line));
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    lines
}

impl Client {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (stdin, lines) = (child.stdin.take(), read_lines(child.stdout.take().unwrap()));
        Self { child, stdin, lines, n_asked: 0 }
    }

    /// A client that has said hello.
    fn new(world: &World) -> Self {
        Self::of(world.command(&["mcp"]))
    }

    /// The same, of a command of one's own.
    fn of(command: Command) -> Self {
        let mut client = Self::start(command);
        let info = json!({ "name": "e2e", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        let greeting = client.ask("initialize", hello);
        assert_eq!(greeting["result"]["serverInfo"]["name"], "warren", "{greeting}");
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn hear(&self) -> Value {
        let message = self.lines.recv_timeout(PATIENCE).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "not a message: {message}");
        message
    }

    fn request(&mut self, method: &str, params: Value) -> u64 {
        self.n_asked += 1;
        self.say(&json!({ "jsonrpc": "2.0", "id": self.n_asked, "method": method, "params": params }));
        self.n_asked
    }

    fn answer(&self, id: u64) -> Value {
        loop {
            let message = self.hear();
            if message["id"] == id {
                return message;
            }
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        answer["result"]["structuredContent"].clone()
    }

    fn data(&mut self, tool: &str, arguments: Value) -> Value {
        let envelope = self.call(tool, arguments);
        assert_eq!(envelope["ok"], true, "{tool}: {envelope}");
        envelope["data"].clone()
    }

    fn lists(&mut self, tool: &str) -> bool {
        let list = self.ask("tools/list", json!({}));
        list["result"]["tools"].as_array().unwrap().iter().any(|listed| listed["name"] == tool)
    }

    /// Closes its end and waits.
    fn leave(mut self) -> Option<i32> {
        drop(self.stdin.take());
        let code = finish(self.child).code;
        assert!(self.lines.try_recv().is_err(), "nothing is left to say");
        code
    }
}

#[test]
fn several_editors_share_a_daemon_and_leave_their_sandboxes_behind() {
    let world = World::new();
    let mut clients: Vec<_> = (0..3).map(|_| Client::new(&world)).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.data("sandbox_create", json!({ "name": format!("s{n}") }));
    }
    let said = clients[0].data("sandbox_exec", json!({ "name": "s2", "command": "echo", "args": ["hi"] }));
    assert_eq!(said["stdout"], "hi\n");
    assert_eq!(world.log().matches(" ready ").count(), 1, "{}", world.log());
    for client in clients {
        assert_eq!(client.leave(), Some(0));
    }
    assert_eq!(world.run(&["ps", "-q"]).expect(0).text().lines().count(), 3);
}

#[test]
fn an_agent_is_told_of_limits_that_are_not_held() {
    let world = docker::ordinary_world();
    let made = docker::as_nobody(&world, &["--json", "create", "--name", "dev"]).expect(0).json();
    if docker::may_limit_processors(&made) {
        println!("not tested: this user may limit processors");
        return;
    }
    let mut client = Client::of(docker::command_of_nobody(&world, &["mcp"]));
    let made = client.call("sandbox_create", json!({ "name": "half", "cpus": 0.5 }));
    // Where nothing may hold a limit, nothing may hold a sandbox still either.
    client.data("sandbox_stop", json!({ "name": "half" }));
    let forked = client.call("sandbox_fork", json!({ "name": "half" }));
    for answer in [made, forked] {
        let warnings = answer["warnings"].as_array().unwrap();
        let said = |warning: &&Value| warning.as_str().unwrap().contains("not held here as");
        assert_eq!(warnings.iter().filter(said).count(), 1, "{answer}");
    }
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn everything_can_be_said_at_once_and_is_answered_before_the_end() {
    let world = World::with_dev();
    let mut client = Client::new(&world);
    let slow = json!({ "name": "dev", "command": "sh", "args": ["-c", "sleep 0.3; echo late"] });
    let id = client.request("tools/call", json!({ "name": "sandbox_exec", "arguments": slow }));
    drop(client.stdin.take());
    let answer = client.answer(id);
    assert_eq!(answer["result"]["structuredContent"]["data"]["stdout"], "late\n", "{answer}");
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn settings_come_from_flags_and_variables() {
    let world = World::new();
    let mut command = world.command(&["mcp", "--toolsets", "core,files", "--namespace", "red"]);
    command.env("MICROSANDBOX_MCP_MAX_OUTPUT_BYTES", "4");
    let mut client = Client::start(command);
    let info = json!({ "name": "e2e", "version": "1" });
    client.ask(
        "initialize",
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info }),
    );
    assert!(client.lists("sandbox_fs_tree"));
    client.data("sandbox_create", json!({ "name": "dev" }));
    let said = client.data("sandbox_exec", json!({ "name": "dev", "command": "echo", "args": ["123456"] }));
    assert!(said["stdout"].as_str().unwrap().contains("left out"), "{said}");
    assert_eq!(client.leave(), Some(0));
    assert_eq!(world.run(&["--namespace", "red", "ps", "-q"]).expect(0).text().lines().count(), 1);

    let mut command = world.command(&["mcp"]);
    let wrong = finish(command.env("WARREN_MCP_DEFAULT_TIMEOUT_MS", "soon").spawn().unwrap()).expect(125);
    assert!(wrong.stdout.is_empty() && wrong.stderr.contains("WARREN_MCP_DEFAULT_TIMEOUT_MS"), "{wrong:?}");
    let help = world.run(&["mcp", "--help"]).expect(0).text();
    for word in ["--allow-host-path", "WARREN_MCP_TOOLSETS", "MICROSANDBOX_MCP_HOST_PATH_POLICY"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

#[test]
fn without_a_daemon_the_first_request_is_told_why() {
    let world = World::new();
    let ask = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}\n";
    let finished = world.run_with_input(&["mcp", "--home", "/dev/null/nowhere"], ask).expect(1);
    let answer = finished.json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(9), &json!(-32000)), "{answer}");
    assert!(finished.stderr.contains("/dev/null"), "{finished:?}");
}

#[test]
fn a_daemon_that_is_killed_is_followed_by_the_next_without_the_client_noticing() {
    let world = World::new();
    let mut client = Client::new(&world);
    client.data("sandbox_create", json!({ "name": "dev" }));
    client.data("toolset_enable", json!({ "toolsets": ["files"] }));
    let endless = json!({ "name": "dev", "command": "sleep", "args": ["1000"], "timeout": 0 });
    let id = client.request("tools/call", json!({ "name": "sandbox_exec", "arguments": endless }));
    until("the command runs", || world.running_execs() == 1);
    let first = world.daemon().unwrap();
    first.signal(Signal::KILL);
    assert!(first.ends_within(PATIENCE));
    let lost = client.answer(id);
    assert_eq!(lost["result"]["isError"], true, "{lost}");
    let error = &lost["result"]["structuredContent"]["error"];
    assert_eq!((&error["code"], &error["retryable"]), (&json!("unavailable"), &json!(false)), "{lost}");
    assert!(error["message"].as_str().unwrap().contains("daemon stopped"), "{lost}");
    assert!(error["hint"].as_str().unwrap().contains("sandbox_exec_list"), "{lost}");
    // It is the same session still: no new greeting, and what was enabled is enabled.
    assert!(client.lists("sandbox_fs_tree"));
    assert_ne!(world.daemon().unwrap().pid, first.pid);
    // The command does not know that its daemon is gone; the hint leads to it.
    client.data("toolset_enable", json!({ "toolsets": ["exec"] }));
    let listed = client.data("sandbox_exec_list", json!({ "name": "dev" }));
    assert_eq!(listed[0]["command"], json!(["sleep", "1000"]), "{listed}");
    assert_ne!(listed[0]["state"], "done", "{listed}");
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn what_is_asked_of_a_daemon_that_is_being_killed_is_asked_of_the_next() {
    let world = World::with_dev();
    let mut client = Client::new(&world);
    for n in 0..6 {
        let script = format!("until [ -e /tmp/go{n} ]; do sleep 0.1; done; echo went");
        let start = json!({ "name": "dev", "command": "sh", "args": ["-c", script] });
        let started = client.data("sandbox_exec_start", start);
        // Everything after its start: nothing, until it is told to go.
        let waiting = json!({ "execSessionId": started["execSessionId"], "waitMs": 60_000, "cursor": 1 });
        let polled =
            client.request("tools/call", json!({ "name": "sandbox_exec_poll", "arguments": waiting }));
        client.ask("ping", json!({}));
        // Nobody waits for its end: some of this is said to it, some to what it leaves, some to the next one.
        world.daemon().unwrap().signal(Signal::KILL);
        let listed = client.request("tools/call", json!({ "name": "sandbox_list", "arguments": {} }));
        let go = format!("/tmp/go{n}");
        until("it goes", || world.run(&["exec", "dev", "touch", &go]).code == Some(0));
        let mut open = vec![polled, listed];
        while !open.is_empty() {
            let answer = client.hear();
            open.retain(|id| answer["id"] != *id);
            let answered = &answer["result"]["structuredContent"];
            assert_eq!(answered["ok"], true, "{answer}");
            if answer["id"] == polled {
                assert!(answered["data"]["events"].to_string().contains("went"), "{answer}");
            }
        }
    }
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn a_line_that_is_no_json_is_told_so() {
    let world = World::new();
    let mut client = Client::new(&world);
    client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/x" }));
    writeln!(client.stdin.as_mut().unwrap(), "{{\"jsonrpc\": \n").unwrap();
    let answer = client.hear();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)), "{answer}");
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn a_command_outlives_its_daemon_and_is_polled_on() {
    let world = World::new();
    let mut client = Client::new(&world);
    client.data("sandbox_create", json!({ "name": "dev" }));
    let started = client.data("sandbox_exec_start", json!({ "name": "dev", "command": "cat" }));
    let session = started["execSessionId"].as_str().unwrap().to_owned();
    client.data("sandbox_exec_write_stdin", json!({ "execSessionId": session, "data": "before\n" }));
    let first = world.daemon().unwrap();
    first.signal(Signal::KILL);
    assert!(first.ends_within(PATIENCE));
    client.data("sandbox_exec_write_stdin", json!({ "execSessionId": session, "data": "after\n" }));
    let (mut cursor, mut seen) = (0, String::new());
    while !seen.contains("after\n") {
        let ask = json!({ "execSessionId": session, "cursor": cursor, "waitMs": 60_000 });
        let polled = client.data("sandbox_exec_poll", ask);
        let before = cursor;
        cursor = polled["nextCursor"].as_u64().unwrap();
        seen.push_str(&polled.to_string().replace("\\n", "\n"));
        assert!(cursor > before, "{polled}");
    }
    assert!(seen.contains("before\n"), "{seen}");
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn a_sandbox_that_an_agent_forgets_stops_by_itself() {
    let world = World::new();
    let mut client = Client::new(&world);
    let create = |client: &mut Client, arguments: Value| {
        client.ask("tools/call", json!({ "name": "sandbox_create", "arguments": arguments }))
    };
    let made = create(&mut client, json!({ "name": "plain" })).to_string();
    assert!(made.contains("stops after 24 h without use"), "{made}");
    let said = create(&mut client, json!({ "name": "own", "idleTimeoutMs": 60_000 })).to_string();
    assert!(!said.contains("without use"), "{said}");
    let lifetime = |name: &str| world.run(&["inspect", name]).expect(0).json()["lifetime"].clone();
    assert_eq!(lifetime("plain")["idleMs"], 86_400_000, "{}", lifetime("plain"));
    assert_eq!(lifetime("own")["idleMs"], 60_000, "{}", lifetime("own"));
    // A person knows what they made.
    world.run(&["create", "--name", "mine"]).expect(0);
    assert!(lifetime("mine")["idleMs"].is_null(), "{}", lifetime("mine"));
}

#[test]
fn the_configuration_says_when_forgotten_sandboxes_stop() {
    let configured = |idle: &str| {
        let world = World::new();
        let file = world.files().join("config.toml");
        std::fs::write(&file, format!("[defaults]\nidle = \"{idle}\"\n")).unwrap();
        let mut command = world.command(&["mcp"]);
        command.env("WARREN_CONFIG", file);
        let mut client = Client::of(command);
        let made = client.call("sandbox_create", json!({ "name": "dev" })).to_string();
        let inspected = world.run(&["inspect", "dev"]).expect(0).json();
        (world, made, inspected["lifetime"]["idleMs"].clone())
    };
    let (_never, made, idle) = configured("none");
    assert!(!made.contains("without use") && idle.is_null(), "{idle}: {made}");
    let (world, made, idle) = configured("1s");
    assert!(made.contains("stops after 1 s without use"), "{made}");
    assert_eq!(idle, 1000);
    until("it stops by itself", || world.run(&["inspect", "dev"]).expect(0).json()["state"] == "stopped");
    assert!(world.run(&["inspect", "dev"]).expect(0).json()["reason"].to_string().contains("idle"));
}

#[test]
fn every_dialect_is_spoken_over_stdio() {
    let world = World::new();
    for (dialect, server, n_tools, tool, arguments) in [
        ("warren", "warren", None, "sandbox_list", json!({})),
        (
            "microsandbox",
            "microsandbox-server",
            Some(5),
            "sandbox_get_metrics",
            json!({ "namespace": "default" }),
        ),
        ("microsandbox-mcp", "microsandbox", Some(70), "sandbox_list", json!({})),
        ("microsandbox-mcp-0.6", "microsandbox", Some(69), "sandbox_list", json!({})),
        ("mcp-sandbox", "", Some(7), "list_sandboxes", json!({})),
        ("opensandbox", "", Some(19), "sandbox_list", json!({})),
    ] {
        let mut client = Client::start(world.command(&["mcp", "--dialect", dialect]));
        let info = json!({ "name": "e2e", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
        let greeting = client.ask("initialize", hello);
        assert_eq!(greeting["result"]["protocolVersion"], "2025-06-18", "{dialect}: {greeting}");
        let name = greeting["result"]["serverInfo"]["name"].as_str().unwrap();
        assert!(server.is_empty() || name == server, "{dialect}: {greeting}");
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        let listed = client.ask("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert!(n_tools.is_none_or(|n| tools.len() == n), "{dialect}: {}", tools.len());
        assert!(tools.iter().any(|listed| listed["name"] == tool), "{dialect}: {listed}");
        let answer = client.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        let is_success = answer["result"]["content"].is_array() && answer["result"]["isError"] != true;
        assert!(is_success, "{dialect}: {answer}");
        assert_eq!(client.leave(), Some(0), "{dialect}");
    }
}
