//! microsandbox's old server: five tools, and the same five as methods of JSON-RPC.

use std::{fs, path::Path};

use axum::http::StatusCode;
use engine::{CallFilter, Principal};
use frontends::mcp::{HostPolicy, HostRoot, Settings};
use sandbox::{KeyFormat, KeySpec};
use serde_json::{Value, json};

use crate::support::{Answer, Server, Session, call, posted, request};

const AT: &str = "/mcp/microsandbox";
const VERSION: &str = "2024-11-05";

/// The text of a tool's answer, and whether it is an error.
async fn told(session: &Session<'_>, tool: &str, arguments: Value) -> (bool, String) {
    let answer = session.ask(call(7, tool, arguments)).await;
    let result = &answer["result"];
    assert_eq!(result["content"].as_array().map(Vec::len), Some(1), "{answer:#}");
    assert!(result["structuredContent"].is_null(), "{answer:#}");
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    (result["isError"] == true, text)
}

async fn data(session: &Session<'_>, tool: &str, arguments: Value) -> Value {
    let (is_error, text) = told(session, tool, arguments).await;
    assert!(!is_error, "{tool}: {text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string_pretty(&value).unwrap(), text, "to be read");
    value
}

async fn refusal(session: &Session<'_>, tool: &str, arguments: Value) -> String {
    let (is_error, text) = told(session, tool, arguments).await;
    assert!(is_error && text.starts_with("Error: "), "{tool}: {text}");
    text
}

async fn rpc_as(server: &Server, who: &str, method: &str, params: Value) -> Answer {
    let message = json!({ "jsonrpc": "2.0", "id": "a-1", "method": method, "params": params });
    server.send(posted("/api/v1/rpc", message, &[("who", who)])).await
}

async fn result(server: &Server, method: &str, params: Value) -> Value {
    let answer = rpc_as(server, "ana", method, params).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let body = answer.json();
    assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &json!("a-1")), "{body}");
    body["result"].clone()
}

async fn refused(server: &Server, who: &str, method: &str, params: Value) -> (u16, u64, String) {
    let answer = rpc_as(server, who, method, params).await;
    let body = answer.json();
    let message = body["error"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned();
    (answer.status.as_u16(), body["code"].as_u64().unwrap(), message)
}

fn of(sandbox: &str) -> Value {
    json!({ "sandbox": sandbox, "namespace": "default" })
}

fn with(sandbox: &str, more: Value) -> Value {
    let mut all = of(sandbox);
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

fn line(stream: &str, text: &str) -> Value {
    json!({ "stream": stream, "text": text })
}

/// Whether sandboxes on the image `host` have it.
fn host_has(program: &str) -> bool {
    ["/usr/bin", "/usr/local/bin"].iter().any(|place| Path::new(place).join(program).is_file())
}

#[tokio::test]
async fn the_tools_do_what_theirs_did() {
    let server = Server::new().await;
    let session = server.begin_at(AT, VERSION, "ana").await;
    assert_eq!(session.greeting["result"]["serverInfo"]["name"], "microsandbox-server");
    let listed = session.ask(request(2, "tools/list", json!({}))).await;
    let start = &listed["result"]["tools"][0];
    assert_eq!(start["name"], "sandbox_start");
    assert_eq!(
        start["inputSchema"]["properties"]["config"]["properties"]["memory"]["type"], "integer",
        "{start}"
    );
    assert!(start["outputSchema"].is_null(), "{start}");

    let config = json!({ "image": "microsandbox/python", "memory": 512, "cpus": 1, "volumes": null,
        "envs": ["GREETING=hello"], "workdir": "/tmp" });
    let started = data(&session, "sandbox_start", with("lab", json!({ "config": config }))).await;
    // Warnings about this host may follow.
    assert!(started.as_str().unwrap().starts_with("Sandbox lab started successfully"), "{started}");
    let code = |code: &str| with("lab", json!({ "code": code, "language": "python" }));
    let ran = data(&session, "sandbox_run_code", code("name = 'World'\n\nprint(f'Hello {name}!')")).await;
    let hello =
        json!({ "status": "success", "language": "python", "output": [line("stdout", "Hello World!")] });
    assert_eq!(ran, hello);
    let ran = data(&session, "sandbox_run_code", code("name")).await;
    assert_eq!(ran["output"], json!([line("stdout", "'World'")]), "variables are kept, values are shown");
    let ran = data(&session, "sandbox_run_code", code("print('before')\n1/0")).await;
    assert_eq!((&ran["status"], &ran["output"][0]), (&json!("error"), &line("stdout", "before")));
    let last = ran["output"].as_array().unwrap().last().unwrap();
    assert_eq!(*last, line("stderr", "ZeroDivisionError: division by zero"), "{ran:#}");

    let command = json!({ "command": "sh", "args": ["-c", "echo $GREETING; pwd; echo err >&2; exit 3"] });
    let ran = data(&session, "sandbox_run_command", with("lab", command)).await;
    assert_eq!(
        (&ran["exit_code"], &ran["success"], &ran["command"]),
        (&json!(3), &json!(false), &json!("sh"))
    );
    let output = ran["output"].as_array().unwrap();
    assert!(output.contains(&line("stderr", "err")), "{ran:#}");
    assert_eq!(
        output.iter().filter(|line| line["stream"] == "stdout").collect::<Vec<_>>(),
        [&line("stdout", "hello"), &line("stdout", "/tmp")]
    );
    let ran =
        data(&session, "sandbox_run_command", with("lab", json!({ "command": "no-such-program" }))).await;
    assert_eq!((&ran["exit_code"], &ran["args"], &ran["success"]), (&json!(127), &json!([]), &json!(false)));

    let metrics = data(&session, "sandbox_get_metrics", of("lab")).await;
    let [one] = &metrics["sandboxes"].as_array().unwrap()[..] else { panic!("{metrics:#}") };
    assert_eq!(
        (&one["namespace"], &one["name"], &one["running"]),
        (&json!("default"), &json!("lab"), &json!(true))
    );
    assert!(
        one["cpu_usage"].is_number() && one["memory_usage"].is_u64() && one["disk_usage"].is_u64(),
        "{one}"
    );

    assert_eq!(data(&session, "sandbox_stop", of("lab")).await, "Sandbox lab stopped successfully");
    assert_eq!(data(&session, "sandbox_stop", of("lab")).await, "Sandbox lab stopped successfully");
    let metrics = data(&session, "sandbox_get_metrics", json!({ "namespace": "*" })).await;
    let stopped = json!({ "namespace": "default", "name": "lab", "running": false, "cpu_usage": null,
        "memory_usage": null, "disk_usage": null });
    assert_eq!(metrics, json!({ "sandboxes": [stopped] }));
    refusal(&session, "sandbox_run_code", code("1")).await;

    // The same again starts it; another configuration would have no effect, so it is refused.
    data(&session, "sandbox_start", with("lab", json!({ "config": config }))).await;
    data(&session, "sandbox_start", of("lab")).await;
    let told = refusal(&session, "sandbox_start", with("lab", json!({ "config": { "memory": 1024 } }))).await;
    assert!(told.contains("another configuration"), "{told}");
}

#[tokio::test]
async fn their_prompts_name_what_was_asked() {
    let server = Server::new().await;
    let session = server.begin_at(AT, VERSION, "ana").await;
    let listed = session.ask(request(2, "prompts/list", json!({}))).await;
    let names: Vec<_> =
        listed["result"]["prompts"].as_array().unwrap().iter().map(|prompt| prompt["name"].clone()).collect();
    assert_eq!(names, ["create_python_sandbox", "create_node_sandbox"]);
    let arguments = json!({ "sandbox_name": "lab", "namespace": "blue" });
    let params = json!({ "name": "create_node_sandbox", "arguments": arguments });
    let prompt = session.ask(request(3, "prompts/get", params)).await;
    let text = prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(
        ["\"lab\"", "\"blue\"", "microsandbox/node", "sandbox_stop"].iter().all(|part| text.contains(part))
    );
}

#[tokio::test]
async fn the_methods_are_the_tools() {
    let server = Server::new().await;
    let config = json!({ "image": "microsandbox/python", "memory": 512, "cpus": 1 });
    let started = result(&server, "sandbox.start", with("lab", json!({ "config": config }))).await;
    // Warnings about this host may follow.
    assert!(started.as_str().unwrap().starts_with("Sandbox lab started successfully"), "{started}");
    let code = with("lab", json!({ "code": "print(6 * 7)", "language": "python" }));
    let ran = result(&server, "sandbox.repl.run", code).await;
    assert_eq!(ran, json!({ "status": "success", "language": "python", "output": [line("stdout", "42")] }));
    let ran =
        result(&server, "sandbox.command.run", with("lab", json!({ "command": "echo", "args": ["hi"] })))
            .await;
    let echo = json!({ "command": "echo", "args": ["hi"], "exit_code": 0, "success": true,
        "output": [line("stdout", "hi")] });
    assert_eq!(ran, echo);
    let metrics = result(&server, "sandbox.metrics.get", json!({ "namespace": "default" })).await;
    assert_eq!(
        (&metrics["sandboxes"][0]["name"], &metrics["sandboxes"][0]["running"]),
        (&json!("lab"), &json!(true))
    );
    let stopped = result(&server, "sandbox.stop", of("lab")).await;
    assert_eq!(stopped, "Sandbox lab stopped successfully");
    refused(&server, "ana", "sandbox.stop", of("nothing")).await;

    let calls = server.engine.calls(&Principal::operator("test"), CallFilter::default()).await.unwrap();
    let written: Vec<_> = calls.iter().map(|call| (call.action.as_str(), call.sandbox.as_deref())).collect();
    let action = |method: &str| format!("POST /api/v1/rpc (sandbox.{method})");
    let (start, stop) = (action("start"), action("stop"));
    assert_eq!((written.len(), written[0]), (6, (start.as_str(), Some("lab"))), "{written:?}");
    assert_eq!(written[4..], [(stop.as_str(), Some("lab")), (stop.as_str(), Some("nothing"))]);
}

#[tokio::test]
async fn node_keeps_its_variables_too() {
    if !host_has("node") {
        eprintln!("skipped: this host has no node");
        return;
    }
    let server = Server::new().await;
    result(&server, "sandbox.start", with("js", json!({ "config": { "image": "microsandbox/node" } }))).await;
    for (language, code, shown) in [
        ("nodejs", "let n = 40; console.log('hi', n)", "hi 40"),
        ("node", "n += 2; console.log(n)", "42"),
        ("javascript", "n", "42"),
    ] {
        let arguments = with("js", json!({ "code": code, "language": language }));
        let ran = result(&server, "sandbox.repl.run", arguments).await;
        let expected =
            json!({ "status": "success", "language": language, "output": [line("stdout", shown)] });
        assert_eq!(ran, expected);
    }
}

#[tokio::test]
async fn a_message_that_is_no_request_is_told_so() {
    let server = Server::new().await;
    for (message, status, code) in [
        (json!({ "jsonrpc": "1.0", "id": 5, "method": "sandbox.start" }), 400, -32600),
        (json!({ "id": 5, "method": "sandbox.start" }), 400, -32600),
        (json!({ "jsonrpc": "2.0", "id": 5, "method": 7 }), 400, -32600),
        (json!({ "jsonrpc": "2.0", "id": 5, "method": "sandbox.fly" }), 404, -32601),
    ] {
        let answer = server.send(posted("/api/v1/rpc", message, &[])).await;
        let body = answer.json();
        assert_eq!((answer.status.as_u16(), &body["error"]["code"]), (status, &json!(code)), "{body}");
        assert_eq!((&body["id"], body["error"]["message"].is_string()), (&json!(5), true), "{body}");
    }
    for broken in ["", "{", "nonsense"] {
        let mut request = posted("/api/v1/rpc", json!({}), &[]);
        *request.body_mut() = broken.to_owned().into();
        let answer = server.send(request).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (400, &json!(-32700)));
    }
    let answer = server.send(posted("/api/v1/rpc", json!([1]), &[])).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (400, &json!(-32600)));
    let (status, code, _) = refused(&server, "ana", "sandbox.start", json!(["lab", "default"])).await;
    assert_eq!((status, code), (400, 2001));
    let health = axum::http::Request::get("/api/v1/health").body(axum::body::Body::empty()).unwrap();
    assert_eq!(server.send(health).await.json(), json!({ "message": "Service is healthy" }));
}

#[tokio::test]
async fn bad_arguments_are_refused_and_make_nothing() {
    let server = Server::new().await;
    let session = server.begin_at(AT, VERSION, "ana").await;
    for arguments in [
        json!({}),
        json!({ "sandbox": 7, "namespace": "default" }),
        json!({ "sandbox": "lab", "namespace": ["default"] }),
        json!({ "sandbox": "lab" }),
        of(""),
        of("../../etc"),
        of("a/b"),
        of("-lab"),
        of(&"x".repeat(64)),
        json!({ "sandbox": "lab", "namespace": "*" }),
        json!({ "sandbox": "lab", "namespace": "../default" }),
        with("lab", json!({ "config": "python" })),
        with("lab", json!({ "config": { "memory": "much" } })),
        with("lab", json!({ "config": { "memory": -1 } })),
        with("lab", json!({ "config": { "cpus": 0 } })),
        with("lab", json!({ "config": { "envs": "A=1" } })),
        with("lab", json!({ "config": { "envs": ["A"] } })),
        with("lab", json!({ "config": { "volumes": ["/srv"] } })),
        with("lab", json!({ "config": { "image": "../host" } })),
        with("lab", json!({ "config": { "colour": "blue" } })),
    ] {
        refusal(&session, "sandbox_start", arguments.clone()).await;
        let (status, code, message) = refused(&server, "ana", "sandbox.start", arguments.clone()).await;
        assert_eq!((status, code), (400, 2001), "{arguments}: {message}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().port().to_string();
    for (port, named, status, number) in [
        (taken.as_str(), taken.as_str(), 409, 2001),
        ("192.0.2.1:8080", "192.0.2.1", 403, 3001),
        ("x", "x:80", 400, 2001),
    ] {
        let ports = with("lab", json!({ "config": { "ports": [format!("{port}:80")] } }));
        let refused = refused(&server, "ana", "sandbox.start", ports).await;
        assert!((refused.0, refused.1) == (status, number) && refused.2.contains(named), "{refused:?}");
    }
    let dependent = with("lab", json!({ "config": { "depends_on": ["base"] } }));
    let (status, code, message) = refused(&server, "ana", "sandbox.start", dependent).await;
    assert!((status, code) == (404, 4001) && message.contains("depends_on \"base\""), "{message}");
    for method in ["sandbox.stop", "sandbox.metrics.get"] {
        let (status, code, message) = refused(&server, "ana", method, of("lab")).await;
        assert!((status, code) == (404, 4001) && message.contains("lab"), "{method}: {message}");
    }
    let code = with("lab", json!({ "code": "1", "language": "python" }));
    assert_eq!(refused(&server, "ana", "sandbox.repl.run", code).await.1, 4001);
    result(&server, "sandbox.start", of("lab")).await;
    let cobol = with("lab", json!({ "code": "1", "language": "cobol" }));
    let (status, code, message) = refused(&server, "ana", "sandbox.repl.run", cobol).await;
    assert!((status, code) == (400, 2001) && message.contains("cobol"), "{message}");
    let empty = with("lab", json!({ "command": "" }));
    assert_eq!(refused(&server, "ana", "sandbox.command.run", empty).await.1, 2001);
    let never = with("lab", json!({ "command": "true", "timeout": 0 }));
    assert_eq!(refused(&server, "ana", "sandbox.command.run", never).await.1, 2001);
}

#[tokio::test]
async fn a_key_is_held_to_its_namespace_and_its_rights() {
    let server = Server::new().await;
    let key = async |namespace: Option<&str>, read_only: bool| {
        let namespace = namespace.map(|name| name.parse().unwrap());
        let spec = KeySpec { namespace, read_only, format: KeyFormat::Msb, ..KeySpec::default() };
        server.engine.create_key(&Principal::operator("test"), spec).await.unwrap().secret
    };
    let (blue, reader, all) =
        (key(Some("blue"), false).await, key(Some("blue"), true).await, key(None, false).await);
    let in_blue = json!({ "sandbox": "lab", "namespace": "blue" });
    // Through MCP as well, where theirs never worked.
    let session = server.begin_at(AT, VERSION, &blue).await;
    data(&session, "sandbox_start", in_blue.clone()).await;
    result(&server, "sandbox.start", of("secret")).await;
    for (who, method, params, code) in [
        (&blue, "sandbox.start", of("mine"), 3001),
        (&blue, "sandbox.stop", of("secret"), 3001),
        (&blue, "sandbox.command.run", with("secret", json!({ "command": "true" })), 3001),
        (&blue, "sandbox.repl.run", with("secret", json!({ "code": "1", "language": "python" })), 3001),
        (&blue, "sandbox.metrics.get", json!({ "namespace": "default" }), 3001),
        (&blue, "sandbox.metrics.get", json!({ "namespace": "no-such" }), 3001),
        (&blue, "sandbox.metrics.get", json!({ "namespace": "*", "sandbox": "secret" }), 4001),
        (&reader, "sandbox.stop", in_blue.clone(), 3001),
        (&reader, "sandbox.start", json!({ "sandbox": "more", "namespace": "blue" }), 3001),
        // Paths of the host are for those whom the operator lets.
        (
            &blue,
            "sandbox.start",
            json!({ "sandbox": "thief", "namespace": "blue",
            "config": { "volumes": ["/etc:/loot"] } }),
            3001,
        ),
    ] {
        let (_, told, message) = refused(&server, who, method, params.clone()).await;
        assert_eq!(told, code, "{method} {params}: {message}");
    }
    let told = refusal(&session, "sandbox_stop", of("secret")).await;
    assert!(told.contains("access denied"), "{told}");
    let seen = async |who: &str| {
        let answer = rpc_as(&server, who, "sandbox.metrics.get", json!({ "namespace": "*" })).await.json();
        let rows = answer["result"]["sandboxes"].as_array().unwrap().clone();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((seen(&blue).await, seen(&reader).await), (vec!["lab".to_owned()], vec!["lab".to_owned()]));
    assert_eq!(seen(&all).await, ["lab", "secret"]);
}

#[tokio::test]
async fn what_runs_too_long_is_ended_and_keeps_what_it_printed() {
    let server = Server::new().await;
    result(&server, "sandbox.start", of("lab")).await;
    let code = |more: Value| {
        let mut arguments = with("lab", more);
        arguments["language"] = json!("python");
        result(&server, "sandbox.repl.run", arguments)
    };
    code(json!({ "code": "import time; n = 5" })).await;
    let sleeping = code(json!({ "code": "time.sleep(600)", "timeout": 1 }));
    // Long enough for a shell to print a line on a busy machine.
    let command = json!({ "command": "sh", "args": ["-c", "echo begun; sleep 600"], "timeout": 10 });
    let (slept, ran) = tokio::join!(sleeping, result(&server, "sandbox.command.run", with("lab", command)));
    assert_eq!(slept["status"], "error", "{slept}");
    assert!(slept["output"].to_string().contains("time limit of 1 seconds"), "{slept}");
    assert_eq!(code(json!({ "code": "print(n)" })).await["output"], json!([line("stdout", "5")]));
    assert_eq!((&ran["exit_code"], &ran["success"]), (&json!(124), &json!(false)));
    let limit = line("stderr", "killed at its time limit of 10 seconds");
    assert_eq!(ran["output"], json!([line("stdout", "begun"), limit]));
}

#[tokio::test]
async fn output_is_bounded() {
    let server = Server::with(Settings { max_output_bytes: Some(1000), ..Settings::default() }).await;
    result(&server, "sandbox.start", of("lab")).await;
    let command = with("lab", json!({ "command": "seq", "args": ["1", "100000"] }));
    let ran = result(&server, "sandbox.command.run", command).await;
    let output = ran["output"].as_array().unwrap();
    assert_eq!((&output[0]["text"], &output.last().unwrap()["text"]), (&json!("1"), &json!("100000")));
    assert!(output.iter().any(|line| line["text"].as_str().unwrap().contains("lines left out")));
    assert!(ran["output"].to_string().len() < 40_000);
}

#[tokio::test]
async fn a_configuration_is_carried_out() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("note"), "from the host").unwrap();
    let roots = vec![HostRoot { path: host.path().to_owned(), write: true }];
    let policy = HostPolicy { roots, ..HostPolicy::default() };
    let server = Server::with(Settings { host: policy, ..Settings::default() }).await;
    result(&server, "sandbox.start", of("base")).await;
    result(&server, "sandbox.stop", of("base")).await;
    let config = json!({
        "volumes": [format!("{}:/mnt/shared", host.path().display())],
        "scripts": { "greet": "#!/bin/sh\necho greetings" },
        "exec": "echo done > /mnt/shared/started", "shell": "/bin/sh", "depends_on": ["base"], "ports": ["0:80"],
    });
    result(&server, "sandbox.start", with("lab", json!({ "config": config }))).await;
    let run = async |line: &str| {
        let arguments = with("lab", json!({ "command": "sh", "args": ["-c", line] }));
        result(&server, "sandbox.command.run", arguments).await["output"].clone()
    };
    assert_eq!(run("cat /mnt/shared/note").await, json!([line("stdout", "from the host")]));
    let view =
        server.engine.sandbox(&engine::Principal::developer("test"), &"lab".parse().unwrap()).await.unwrap();
    let published = view.ports[0].published.unwrap();
    assert!(published.ip().is_loopback() && std::net::TcpStream::connect(published).is_ok(), "{published}");
    assert_eq!(run("greet").await, json!([line("stdout", "greetings")]));
    // It runs beside everything else, so it is waited for where it shows.
    let started = run("until [ -s /mnt/shared/started ]; do sleep 0.05; done; cat /mnt/shared/started").await;
    assert_eq!(started, json!([line("stdout", "done")]));
    let metrics = result(&server, "sandbox.metrics.get", of("base")).await;
    assert_eq!(metrics["sandboxes"][0]["running"], true, "what it depends on was started");
    let outside = with("thief", json!({ "config": { "volumes": ["/etc:/loot"] } }));
    assert_eq!(refused(&server, "ana", "sandbox.start", outside).await.1, 3001);
}

#[tokio::test]
async fn an_image_that_stands_for_a_language_needs_its_interpreter() {
    let server = Server::new().await;
    for (image, language) in [("microsandbox/python", "python"), ("microsandbox/node:latest", "javascript")] {
        // Without programs along its path, the host's are as good as not there.
        let config = json!({ "image": image, "envs": ["PATH=/nowhere"] });
        let (status, _, message) =
            refused(&server, "ana", "sandbox.start", with("lab", json!({ "config": config }))).await;
        let expected = format!("{image} stands for the {language} of this host, which has none");
        assert!(status == 501 && message.contains(&expected), "{status} {message}");
    }
    let metrics = result(&server, "sandbox.metrics.get", json!({ "namespace": "default" })).await;
    assert!(!metrics.to_string().contains("lab"), "nothing is left of it: {metrics}");
}
