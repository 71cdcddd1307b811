//! The dialect of mcp-sandbox: every tool and route of its own, over both transports.

use axum::{
    body::Body,
    http::{Method, Request},
};
use engine::Principal;
use frontends::{
    dialects::MCP_SANDBOX,
    mcp::{HostPolicy, HostRoot, NATIVE, Settings},
};
use sandbox::{KeySpec, Namespace};
use serde_json::{Value, json};

use crate::support::{Answer, Events, PUBLIC_URL, Server, Session, call, hello, posted, request};

const PATH: &str = "/mcp/mcp-sandbox";
const VERSION: &str = "2025-06-18";
const DENIED: &str = "Access denied. You don't have permission to access this sandbox.";

async fn server() -> Server {
    Server::speaking(NATIVE, Settings::default()).await
}

async fn key(server: &Server, label: &str) -> String {
    let spec = KeySpec {
        label: Some(label.to_owned()),
        namespace: Some(Namespace::default()),
        ..KeySpec::default()
    };
    server.engine.create_key(&Principal::operator("test"), spec).await.unwrap().secret
}

/// Calls a tool; returns its answer, and whether that is a failure.
async fn ask(session: &Session<'_>, tool: &str, arguments: Value) -> (Value, bool) {
    let answer = session.ask(call(7, tool, arguments)).await;
    let result = &answer["result"];
    let data = result["structuredContent"].clone();
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        text,
        data.get("result").filter(|list| list.is_array()).unwrap_or(&data).clone(),
        "{answer:#}"
    );
    (data, result["isError"] == true)
}

async fn data(session: &Session<'_>, tool: &str, arguments: Value) -> Value {
    let (data, is_error) = ask(session, tool, arguments).await;
    assert!(!is_error, "{tool}: {data:#}");
    data
}

async fn error(session: &Session<'_>, tool: &str, arguments: Value) -> Value {
    let (data, is_error) = ask(session, tool, arguments).await;
    assert!(is_error, "{tool}: {data:#}");
    assert!(data["error"].is_string() && data["message"].is_string(), "{data:#}");
    data
}

async fn create(session: &Session<'_>) -> String {
    data(session, "create_sandbox", json!({})).await["sandbox_id"].as_str().unwrap().to_owned()
}

async fn python(session: &Session<'_>, sandbox: &str, code: &str) -> Value {
    data(session, "execute_python_code", json!({ "sandbox_id": sandbox, "code": code })).await
}

async fn terminal(session: &Session<'_>, sandbox: &str, command: &str) -> Value {
    data(session, "execute_terminal_command", json!({ "sandbox_id": sandbox, "command": command })).await
}

async fn send(server: &Server, method: Method, target: &str, who: &str) -> Answer {
    let request =
        Request::builder().method(method).uri(target).header("host", "localhost").header("who", who);
    server.send(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn the_tools_are_theirs_with_some_more_parameters() {
    let server = server().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    assert_eq!(session.greeting["result"]["serverInfo"]["name"], "Python Sandbox Executor");
    let listed = session.ask(request(2, "tools/list", json!({}))).await["result"]["tools"].clone();
    let theirs: Value = serde_json::from_str(include_str!("../data/mcp-sandbox-tools.json")).unwrap();
    let names = |tools: &Value| -> Vec<Value> {
        tools.as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect()
    };
    assert_eq!(names(&listed), names(&theirs["tools"]));
    for (ours, theirs) in listed.as_array().unwrap().iter().zip(theirs["tools"].as_array().unwrap()) {
        let (taken, asked) = (&ours["inputSchema"], &theirs["inputSchema"]);
        assert_eq!(taken["required"], asked["required"], "{ours:#}");
        for (name, property) in asked["properties"].as_object().unwrap() {
            let own = &taken["properties"][name];
            assert_eq!(own["type"], "string", "{ours:#}");
            if property["default"].is_string() {
                assert_eq!(own["default"], property["default"], "{ours:#}");
            }
        }
        let (answered, promised) = (&ours["outputSchema"], &theirs["outputSchema"]);
        assert_eq!(answered["x-fastmcp-wrap-result"], promised["x-fastmcp-wrap-result"], "{ours:#}");
        assert_eq!(answered["required"], promised["required"], "{ours:#}");
    }
    let resources = session.ask(request(3, "resources/list", json!({}))).await;
    assert_eq!(resources["result"]["resources"], json!([]));
}

#[tokio::test]
async fn a_user_has_three_sandboxes_and_nobody_elses() {
    let server = server().await;
    let (alice, bob) = (key(&server, "alice").await, key(&server, "bob").await);
    let alice = server.begin_at(PATH, VERSION, &alice).await;
    let bob = server.begin_at(PATH, VERSION, &bob).await;
    let first = data(&alice, "create_sandbox", json!({})).await;
    assert_eq!((&first["name"], &first["status"]), (&json!("Sandbox 1"), &json!("active")));
    assert!(first["user_id"].as_str().unwrap().starts_with("key-"), "{first:#}");
    let named = data(&alice, "create_sandbox", json!({ "name": "../../etc/passwd" })).await;
    assert_eq!(named["name"], "../../etc/passwd");
    for name in [json!("x".repeat(2000)), json!("a\nb"), json!(7), json!(["x"])] {
        let refused = error(&alice, "create_sandbox", json!({ "name": name })).await;
        assert_eq!(refused["code"], "invalid_request", "{refused:#}");
    }
    let third = data(&alice, "create_sandbox", json!({ "name": null })).await;
    assert_eq!(third["name"], "Sandbox 3");

    let full = error(&alice, "create_sandbox", json!({})).await;
    let message = full["message"].as_str().unwrap();
    assert!(message.starts_with("You have reached the maximum limit of 3 sandboxes."), "{message}");
    for sandbox in [&first, &named, &third] {
        assert!(message.contains(sandbox["sandbox_id"].as_str().unwrap()), "{message}");
    }
    assert!(message.contains("DELETE /mcp-sandbox/api/users/me/sandboxes/"), "{message}");

    let listed = data(&alice, "list_sandboxes", json!({})).await;
    let names: Vec<_> = listed["result"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["Sandbox 1", "../../etc/passwd", "Sandbox 3"]);
    assert!(listed["result"][0]["installed_packages"].is_array());

    assert_eq!(data(&bob, "list_sandboxes", json!({})).await, json!({ "result": [] }));
    // Bob's key is of the same namespace, and still he is told no more than of one that never was.
    for id in [first["sandbox_id"].as_str().unwrap(), "sbx-nothing", "../../etc", "", "a b"] {
        for (tool, mut arguments) in [
            ("execute_python_code", json!({ "code": "print(1)" })),
            ("execute_terminal_command", json!({ "command": "true" })),
            ("install_package_in_sandbox", json!({ "package_name": "numpy" })),
            ("check_package_installation_status", json!({ "package_name": "numpy" })),
            ("upload_file_to_sandbox", json!({ "local_file_path": "/x", "content": "" })),
        ] {
            arguments["sandbox_id"] = json!(id);
            let refused = error(&bob, tool, arguments).await;
            assert_eq!(
                (&refused["error"], &refused["code"]),
                (&json!(DENIED), &json!("not_found")),
                "{tool}"
            );
            match tool {
                "execute_terminal_command" => {
                    assert_eq!((&refused["stderr"], &refused["exit_code"]), (&json!(DENIED), &json!(-1)));
                }
                "install_package_in_sandbox" | "check_package_installation_status" => {
                    assert_eq!((&refused["status"], &refused["success"]), (&json!("error"), &json!(false)));
                }
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn nobody_gets_past_the_limit_by_asking_at_once() {
    let server = server().await;
    let asked = (0..6).map(|n| server.ask(PATH, call(n, "create_sandbox", json!({}))));
    let answered = futures_util::future::join_all(asked).await;
    let is_made = |answer: &&Answer| answer.json()["result"]["isError"] == false;
    assert_eq!(answered.iter().filter(is_made).count(), 3, "{answered:#?}");
}

#[tokio::test]
async fn code_keeps_its_variables_and_its_files_are_linked() {
    let server = server().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    let ran = python(&session, &sandbox, "import os\nx = 41\nprint(os.getcwd())").await;
    assert_eq!(
        ran,
        json!({ "stdout": "/app/results\n", "stderr": "", "exit_code": 0, "files": [], "file_links": [] })
    );
    let code = "os.makedirs('deep')\nopen('deep/a b.txt', 'w').write('hello')\nprint('''\nEOL\n''', x + 1)";
    let ran = python(&session, &sandbox, code).await;
    assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("\nEOL\n 42\n"), &json!(0)), "{ran:#}");
    assert_eq!(ran["files"], json!(["/app/results/deep/a b.txt"]));
    let link = ran["file_links"][0].as_str().unwrap();
    let path = link.strip_prefix(PUBLIC_URL).unwrap();
    let fetched = send(&server, Method::GET, path, "eve").await;
    assert_eq!((fetched.status.as_u16(), fetched.text.as_str()), (200, "hello"), "{link}");
    let forged = path.replace("/v1/links/", "/v1/links/x");
    assert_eq!(send(&server, Method::GET, &forged, "eve").await.status.as_u16(), 404);

    let ran = python(&session, &sandbox, "print('before')\n1 / 0").await;
    assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("before\n"), &json!(1)), "{ran:#}");
    let stderr = ran["stderr"].as_str().unwrap();
    assert!(
        stderr.starts_with("Traceback") && stderr.ends_with("ZeroDivisionError: division by zero\n"),
        "{stderr}"
    );
    // Files of earlier runs are not told again.
    assert_eq!((&ran["files"], &ran["file_links"]), (&json!([]), &json!([])));
    assert_eq!(python(&session, &sandbox, "x").await["result"], "41");

    for arguments in [
        json!({ "sandbox_id": sandbox }),
        json!({ "sandbox_id": sandbox, "code": 7 }),
        json!({ "sandbox_id": sandbox, "code": "1", "timeout": 5 }),
        json!({ "sandbox_id": [sandbox], "code": "1" }),
    ] {
        assert_eq!(error(&session, "execute_python_code", arguments).await["code"], "invalid_request");
    }
}

#[tokio::test]
async fn a_stopped_sandbox_is_started_again() {
    let server = server().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let native = server.begin_at("/mcp", VERSION, "alice").await;
    let sandbox = create(&session).await;
    python(&session, &sandbox, "open('kept.txt', 'w').write('yes')").await;
    native.data("sandbox_stop", json!({ "name": sandbox, "force": true })).await;
    let ran = python(&session, &sandbox, "print(open('kept.txt').read())").await;
    assert_eq!(ran["stdout"], "yes\n", "{ran:#}");
    assert!(ran["warnings"][0].as_str().unwrap().contains("started"), "{ran:#}");
}

#[tokio::test]
async fn commands_are_read_by_a_shell() {
    let server = server().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    let ran = terminal(&session, &sandbox, "pwd && echo abc | tr a-c x-z; echo oops >&2; exit 3").await;
    assert_eq!(ran, json!({ "stdout": "/app/results\nxyz\n", "stderr": "oops\n", "exit_code": 3 }));
    let wrong = json!({ "sandbox_id": sandbox, "command": ["ls"] });
    assert_eq!(error(&session, "execute_terminal_command", wrong).await["code"], "invalid_request");
}

#[tokio::test]
async fn nothing_runs_for_ever() {
    let settings = Settings { default_timeout_ms: 1500, ..Settings::default() };
    let server = Server::speaking(NATIVE, settings).await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    let ran = terminal(&session, &sandbox, "sleep 1000").await;
    assert_ne!(ran["exit_code"], 0, "{ran:#}");
    assert!(ran["stderr"].as_str().unwrap().contains("timed out"), "{ran:#}");
    let ran = python(&session, &sandbox, "while True: pass").await;
    assert_ne!(ran["exit_code"], 0, "{ran:#}");
    assert!(ran["stderr"].as_str().unwrap().contains("timed out"), "{ran:#}");
}

/// In place of uv: makes what an installed package leaves behind, once it may.
const UV: &str = r#"cat >/usr/local/bin/uv <<'END'
#!/bin/sh
for package; do :; done
case $package in
slow*) while [ ! -e /tmp/go ]; do sleep 0.05; done ;;
bad*) echo "no such package: $package" >&2; exit 1 ;;
esac
name=${package%%[=<>]*}
place=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/$name-1.0.dist-info
mkdir -p "$place"
printf 'Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n' "$name" >"$place/METADATA"
END
chmod +x /usr/local/bin/uv
# Whether uv would be used at all.
[ -w "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" ]"#;

#[tokio::test]
async fn packages_are_installed_by_jobs() {
    let server = server().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    if terminal(&session, &sandbox, UV).await["exit_code"] != 0 {
        eprintln!("not tried: Python's packages are not writable in sandboxes of this host");
        return;
    }
    let package = |name: &str| json!({ "sandbox_id": sandbox, "package_name": name });
    let missing = data(&session, "check_package_installation_status", package("burrow")).await;
    assert_eq!(
        (&missing["status"], &missing["success"], &missing["complete"]),
        (&json!("not_found"), &json!(false), &json!(true)),
        "{missing:#}"
    );
    // It may take longer than the call waits.
    let mut status = data(&session, "install_package_in_sandbox", package("burrow==1.0")).await;
    while status["status"] == "installing" {
        status = data(&session, "check_package_installation_status", package("burrow")).await;
    }
    assert_eq!((&status["status"], &status["success"]), (&json!("success"), &json!(true)), "{status:#}");
    let found = data(&session, "check_package_installation_status", package("burrow==1.0")).await;
    assert_eq!((&found["status"], &found["version"]), (&json!("success"), &json!("1.0")), "{found:#}");
    let listed = data(&session, "list_sandboxes", json!({})).await;
    let packages = listed["result"][0]["installed_packages"].as_array().unwrap();
    assert!(packages.contains(&json!({ "name": "burrow", "version": "1.0" })), "{listed:#}");

    let slow = data(&session, "install_package_in_sandbox", package("slow")).await;
    assert_eq!(
        (&slow["status"], &slow["success"], &slow["complete"]),
        (&json!("installing"), &Value::Null, &json!(false)),
        "{slow:#}"
    );
    assert!(slow["message"].as_str().unwrap().contains("check_package_installation_status"), "{slow:#}");
    terminal(&session, &sandbox, "touch /tmp/go").await;
    let mut status = slow;
    while status["status"] == "installing" {
        status = data(&session, "check_package_installation_status", package("slow")).await;
    }
    assert_eq!(status["status"], "success", "{status:#}");

    let mut failed = data(&session, "install_package_in_sandbox", package("bad")).await;
    while failed["status"] == "installing" {
        failed = data(&session, "check_package_installation_status", package("bad")).await;
    }
    assert_eq!((&failed["status"], &failed["success"]), (&json!("failed"), &json!(false)), "{failed:#}");
    assert!(failed["stderr"].as_str().unwrap().contains("no such package: bad"), "{failed:#}");
    let again = data(&session, "check_package_installation_status", package("bad")).await;
    assert_eq!(again["status"], "failed", "{again:#}");

    for wrong in ["--index-url=http://evil/", "http://evil/x.whl", "../x", "", "a b"] {
        for tool in ["install_package_in_sandbox", "check_package_installation_status"] {
            let refused = error(&session, tool, package(wrong)).await;
            assert_eq!((&refused["code"], &refused["status"]), (&json!("invalid_request"), &json!("error")));
        }
    }
}

#[tokio::test]
async fn files_come_with_the_call_or_from_where_the_operator_allows() {
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("table.csv"), "a,b\n").unwrap();
    let root = HostRoot { path: host.path().to_owned(), write: false };
    let policy = HostPolicy { roots: vec![root], ..HostPolicy::default() };
    let server = Server::speaking(NATIVE, Settings { host: policy, ..Settings::default() }).await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    let path = |name: &str| host.path().join(name).to_str().unwrap().to_owned();
    let table = json!({ "sandbox_id": sandbox, "local_file_path": path("table.csv") });
    let uploaded = data(&session, "upload_file_to_sandbox", table).await;
    assert_eq!((&uploaded["success"], &uploaded["path"]), (&json!(true), &json!("/app/results/table.csv")));
    for (more, inside) in [
        (json!({ "content": "text" }), "/app/results/x.txt"),
        (json!({ "content_base64": "dGV4dA==", "dest_path": "/data/in/" }), "/data/in/x.txt"),
        (json!({ "content": "text", "dest_path": "sub" }), "/app/results/sub/x.txt"),
    ] {
        let mut arguments = json!({ "sandbox_id": sandbox, "local_file_path": r"C:\Users\me\x.txt" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(data(&session, "upload_file_to_sandbox", arguments).await["path"], inside);
    }
    let read = "cat /app/results/table.csv /app/results/x.txt /data/in/x.txt /app/results/sub/x.txt";
    assert_eq!(terminal(&session, &sandbox, read).await["stdout"], "a,b\ntexttexttext");

    let (missing, directory) = (path("none"), host.path().to_str().unwrap().to_owned());
    for (arguments, code) in [
        (json!({ "local_file_path": "/etc/shadow" }), "host_path_denied"),
        (json!({ "local_file_path": format!("{directory}/../../etc/shadow") }), "host_path_denied"),
        (json!({ "local_file_path": missing }), "not_found"),
        (json!({ "local_file_path": directory }), "invalid_request"),
        (json!({ "local_file_path": "/a/.." , "content": "" }), "invalid_request"),
        (json!({ "local_file_path": "x", "content": "", "content_base64": "" }), "invalid_request"),
        (json!({ "local_file_path": "x", "content_base64": "?" }), "invalid_request"),
        (json!({ "local_file_path": 5 }), "invalid_request"),
    ] {
        let mut arguments = arguments;
        arguments["sandbox_id"] = json!(sandbox);
        let refused = error(&session, "upload_file_to_sandbox", arguments.clone()).await;
        assert_eq!(refused["code"], code, "{arguments}: {refused:#}");
        if code == "host_path_denied" {
            assert!(refused["message"].as_str().unwrap().contains("content_base64"), "{refused:#}");
        }
    }
}

#[tokio::test]
async fn files_are_served_by_path_to_those_who_may_read_them() {
    let server = Server::speaking(MCP_SANDBOX, Settings::default()).await;
    let (alice, bob) = (key(&server, "alice").await, key(&server, "bob").await);
    let session = server.begin_at("/mcp", VERSION, &alice).await;
    let sandbox = create(&session).await;
    python(&session, &sandbox, "open('plot.html', 'w').write('<script>1</script>')").await;
    let target = |file: &str| format!("/sandbox/file?sandbox_id={sandbox}&file_path={file}");
    for target in [
        target("/app/results/plot.html"),
        target("plot.html"),
        format!("/mcp-sandbox{}", target("plot.html")),
    ] {
        let answer = send(&server, Method::GET, &target, &alice).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, "<script>1</script>"), "{target}");
        assert!(answer.headers["content-security-policy"].to_str().unwrap().starts_with("sandbox"));
    }
    for (target, who, status) in [
        (target("plot.html"), &bob, 404),
        (target("none.html"), &alice, 404),
        (target("/app/results"), &alice, 409),
        (format!("{}&surprise=1", target("plot.html")), &alice, 400),
        ("/sandbox/file".to_owned(), &alice, 400),
        ("/sandbox/file?sandbox_id=../x&file_path=/etc/passwd".to_owned(), &alice, 404),
        (target("plot.html"), &"wrn_wrong".to_owned(), 401),
    ] {
        let answer = send(&server, Method::GET, &target, who).await;
        assert_eq!(answer.status.as_u16(), status, "{target}: {answer:?}");
        assert!(status == 401 || answer.json()["detail"].is_string(), "{answer:?}");
    }
}

#[tokio::test]
async fn users_are_keys_which_the_operator_makes() {
    let server = Server::speaking(MCP_SANDBOX, Settings::default()).await;
    assert_eq!(send(&server, Method::GET, "/health", "alice").await.json(), json!({ "status": "healthy" }));
    let new = json!({ "username": "carol", "email": "carol@example.org", "password": "x" });
    let made = server.send(posted("/api/register", new.clone(), &[("who", "root")])).await.json();
    let secret = made["api_key"].as_str().unwrap().to_owned();
    assert_eq!((&made["username"], &made["email"]), (&new["username"], &new["email"]));
    for (body, who, status) in [
        (new.clone(), "root", 409),
        (new, secret.as_str(), 403),
        (json!({ "username": "../x" }), "root", 400),
        (json!({ "username": "dave", "surprise": 1 }), "root", 400),
        (json!({ "username": 7 }), "root", 400),
        (json!({}), "root", 400),
        (json!([]), "root", 400),
    ] {
        let refused = server.send(posted("/api/register", body, &[("who", who)])).await;
        assert_eq!(refused.status.as_u16(), status, "{refused:?}");
        assert!(refused.json()["detail"].is_string(), "{refused:?}");
    }
    let me = send(&server, Method::GET, "/api/users/me", &secret).await.json();
    assert_eq!((&me["id"], &me["api_key"]), (&made["id"], &Value::Null));
    for (method, target) in [
        (Method::POST, "/api/token"),
        (Method::GET, "/api/users/me/api-key"),
        (Method::POST, "/api/users/me/api-key/regenerate"),
    ] {
        let refused = send(&server, method, target, &secret).await;
        assert_eq!(refused.status.as_u16(), 501, "{target}");
        assert!(!refused.text.contains(&secret));
    }

    let session = server.begin_at("/mcp", VERSION, &secret).await;
    let sandbox = create(&session).await;
    let listed = send(&server, Method::GET, "/api/users/me/sandboxes", &secret).await.json();
    let listed = &listed["sandboxes"][0];
    assert_eq!((&listed["id"], &listed["user_id"]), (&json!(sandbox), &made["id"]));
    assert_eq!((&listed["name"], &listed["docker_container_id"]), (&json!("Sandbox 1"), &Value::Null));
    let target = format!("/api/users/me/sandboxes/{sandbox}");
    assert_eq!(send(&server, Method::DELETE, &target, "root").await.status.as_u16(), 404);
    let removed = send(&server, Method::DELETE, &target, &secret).await;
    assert_eq!(removed.json(), json!({ "message": "Sandbox Sandbox 1 deleted" }));
    assert_eq!(send(&server, Method::DELETE, &target, &secret).await.status.as_u16(), 404);
    // There is room again.
    create(&session).await;
}

#[tokio::test]
async fn plain_paths_are_the_dialects_only_where_it_is_spoken() {
    let server = server().await;
    for target in ["/health", "/sandbox/file", "/api/users/me"] {
        assert_eq!(send(&server, Method::GET, target, "alice").await.status.as_u16(), 404, "{target}");
    }
    assert_eq!(send(&server, Method::GET, "/mcp-sandbox/health", "alice").await.status.as_u16(), 200);
}

#[tokio::test]
async fn their_transport_serves_their_tools() {
    let server = Server::speaking(MCP_SANDBOX, Settings::default()).await;
    for target in ["/sse", "/sse/mcp-sandbox"] {
        let stream = server.open(Request::get(target).body(Body::empty()).unwrap()).await;
        let mut events = Events::new(stream);
        let endpoint = events.next().await.unwrap().data;
        assert!(endpoint.starts_with(&target.replace("/sse", "/messages")), "{endpoint}");
        for message in [
            hello("2024-11-05"),
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
            call(1, "list_sandboxes", json!({})),
        ] {
            assert_eq!(server.ask(&endpoint, message).await.status.as_u16(), 202);
        }
        let answer = events.answer(1).await;
        assert_eq!(answer["result"]["structuredContent"], json!({ "result": [] }), "{answer:#}");
    }
}
