//! The dialect of opensandbox-mcp: every tool of its own, on real sandboxes.

use axum::{body::Body, http::Request};
use engine::{Principal, SandboxRef};
use frontends::mcp::{NATIVE, Settings};
use sandbox::{KeySpec, Namespace};
use serde_json::{Value, json};

use crate::support::{Server, Session, call, call_with_progress, request};

const PATH: &str = "/mcp/opensandbox";
const VERSION: &str = "2025-06-18";

/// The data of an answer, which is the same as text.
async fn data(session: &Session<'_>, tool: &str, arguments: Value) -> Value {
    let answer = session.ask(call(7, tool, arguments)).await;
    let result = &answer["result"];
    assert_eq!(result["isError"], false, "{tool}: {answer:#}");
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, result["structuredContent"], "{tool}");
    text
}

/// The text of a failure.
async fn error(session: &Session<'_>, tool: &str, arguments: Value) -> String {
    let answer = session.ask(call(7, tool, arguments)).await;
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{tool}: {answer:#}");
    assert!(result.get("structuredContent").is_none(), "{tool}: {answer:#}");
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with(&format!("Error executing tool {tool}: ")), "{text}");
    text
}

async fn create(session: &Session<'_>) -> String {
    let made = data(session, "sandbox_create", json!({ "image": "host" })).await;
    assert_eq!(made["sandbox_id"], made["info"]["id"]);
    made["sandbox_id"].as_str().unwrap().to_owned()
}

async fn run(session: &Session<'_>, sandbox: &str, command: &str) -> Value {
    data(session, "command_run", json!({ "sandbox_id": sandbox, "command": command })).await
}

fn lines(log: &Value) -> Vec<&str> {
    log.as_array().unwrap().iter().map(|entry| entry["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_sandbox_lives_as_its_clients_expect() {
    let server = Server::new().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    assert_eq!(session.greeting["result"]["serverInfo"]["name"], "OpenSandbox Sandbox");
    assert!(session.greeting["result"]["instructions"].as_str().unwrap().contains("command_run"));
    let made = data(
        &session,
        "sandbox_create",
        json!({ "image": "host", "metadata": { "team": "a" }, "env": { "COLOUR": "red" }, "timeout_seconds": 900,
                "resource": { "cpu": "500m", "memory": "256Mi" }, "network_policy": { "default_action": "deny" },
                "extensions": { "access.renew.extend.seconds": "300" }, "entrypoint": ["tail", "-f", "/dev/null"] }),
    )
    .await;
    let (id, info) = (&made["sandbox_id"], &made["info"]);
    assert_eq!((&info["status"]["state"], &info["image"]["image"]), (&json!("Running"), &json!("host")));
    assert_eq!((&info["metadata"], &info["platform"]["os"]), (&json!({ "team": "a" }), &json!("linux")));
    assert_eq!(info["extensions"], json!({ "access.renew.extend.seconds": "300" }));
    assert_eq!(info["entrypoint"], json!(["tail", "-f", "/dev/null"]));
    assert!(made["warnings"][0].as_str().unwrap().contains("access.renew"), "{made:#}");

    let by_id = json!({ "sandbox_id": id });
    assert_eq!(data(&session, "sandbox_get_info", by_id.clone()).await["expires_at"], info["expires_at"]);
    assert_eq!(data(&session, "sandbox_healthcheck", by_id.clone()).await["healthy"], true);
    let metrics =
        data(&session, "sandbox_get_metrics", json!({ "sandbox_id": id, "connect_if_missing": true })).await;
    assert_eq!((&metrics["cpu_count"], &metrics["memory_total_in_mib"]), (&json!(0.5), &json!(256.0)));
    let renewed =
        data(&session, "sandbox_renew", json!({ "sandbox_id": id, "timeout_seconds": 90000 })).await;
    assert!(renewed["expires_at"].as_str() > info["expires_at"].as_str(), "{renewed}");

    let other = create(&session).await;
    let filter = json!({ "filter": { "states": ["running"], "metadata": { "team": "a" } } });
    let listed = data(&session, "sandbox_list", filter).await;
    assert_eq!(
        (listed["sandbox_infos"].as_array().unwrap().len(), &listed["sandbox_infos"][0]["id"]),
        (1, id)
    );
    let first = data(&session, "sandbox_list", json!({ "filter": { "page_size": 1 } })).await;
    assert_eq!(first["sandbox_infos"][0]["id"], other.as_str(), "newest first");
    assert_eq!(
        first["pagination"],
        json!({ "page": 1, "page_size": 1, "total_items": 2, "total_pages": 2, "has_next_page": true })
    );

    // Paused and stopped ones become usable again.
    let (who, which) = (Principal::operator("alice"), SandboxRef::new(id.as_str().unwrap(), None).unwrap());
    server.engine.stop_sandbox(&who, &which, None).await.unwrap();
    assert_eq!(data(&session, "sandbox_healthcheck", by_id.clone()).await["healthy"], false);
    let text = error(&session, "file_read", json!({ "sandbox_id": id, "path": "/etc/passwd" })).await;
    assert!(text.contains("Call sandbox_connect"), "{text}");
    let connected = data(&session, "sandbox_connect", by_id.clone()).await;
    assert_eq!(connected["info"]["status"]["state"], "Running");

    assert_eq!(data(&session, "sandbox_kill", by_id.clone()).await, json!({ "status": "killed" }));
    let text = error(&session, "sandbox_get_info", by_id).await;
    assert!(text.contains(id.as_str().unwrap()) && text.contains("sandbox_list"), "{text}");
}

#[tokio::test]
async fn creating_and_listing_tell_how_far_they_are_in_their_words() {
    let server = Server::new().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    for (tool, arguments, expected) in [
        (
            "sandbox_create",
            json!({ "image": "host" }),
            &["Validating input", "Creating sandbox", "Fetching sandbox info", "Done"][..],
        ),
        ("sandbox_list", json!({}), &["Listing sandboxes", "Done"]),
    ] {
        let answer = session.post(call_with_progress(9, tool, arguments)).await;
        let messages = answer.messages();
        let told: Vec<_> =
            messages.iter().filter_map(|message| message["params"]["message"].as_str()).collect();
        assert_eq!(told, expected, "{tool}");
    }
}

#[tokio::test]
async fn commands_answer_line_by_line_and_a_failing_one_is_no_error() {
    let server = Server::new().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    let ran = run(&session, &sandbox, "echo one; echo two | cat; echo bad >&2").await;
    assert_eq!(lines(&ran["logs"]["stdout"]), ["one", "two"]);
    assert_eq!(lines(&ran["logs"]["stderr"]), ["bad"]);
    assert_eq!(ran["logs"]["stderr"][0]["is_error"], true);
    assert_eq!((&ran["exit_code"], &ran["error"], &ran["result"]), (&json!(0), &Value::Null, &json!([])));
    assert!(ran["complete"]["execution_time_in_millis"].is_u64(), "{ran:#}");

    let failed = run(&session, &sandbox, "exit 3").await;
    assert_eq!((&failed["exit_code"], &failed["complete"]), (&json!(3), &Value::Null));
    let told = &failed["error"];
    assert_eq!((&told["name"], &told["value"]), (&json!("CommandExecError"), &json!("3")));
    assert_eq!(told["traceback"], json!(["exit status 3"]));

    // bash, where there is one.
    let shell = run(&session, &sandbox, "[[ -n $BASH_VERSION ]] && echo yes").await;
    assert_eq!(lines(&shell["logs"]["stdout"]), ["yes"]);
    let directory = json!({ "sandbox_id": sandbox, "command": "pwd", "working_directory": "/usr" });
    assert_eq!(lines(&data(&session, "command_run", directory).await["logs"]["stdout"]), ["/usr"]);
    let missing = json!({ "sandbox_id": sandbox, "command": "pwd", "working_directory": "/missing" });
    let text = error(&session, "command_run", missing).await;
    assert!(text.contains("file_create_directories"), "{text}");
}

#[tokio::test]
async fn long_output_keeps_its_ends_and_says_what_is_missing() {
    let server = Server::new().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    let ran = run(&session, &sandbox, "seq 1 100000").await;
    let printed = lines(&ran["logs"]["stdout"]);
    assert_eq!((printed[0], printed[printed.len() - 1]), ("1", "100000"));
    assert!(printed.iter().any(|line| line.contains("lines left out")), "{printed:?}");
    assert!(ran["logs"].to_string().len() < 40 * 1024, "{} bytes", ran["logs"].to_string().len());
    assert!(ran["warnings"][0].as_str().unwrap().contains("file_read"), "{}", ran["warnings"]);
}

#[tokio::test]
async fn a_command_in_the_background_runs_on_until_it_is_interrupted() {
    let server = Server::new().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    let background = json!({ "sandbox_id": sandbox, "command": "mkfifo /tmp/f; echo up > /tmp/f; sleep 1000",
                             "background": true });
    let launched = data(&session, "command_run", background).await;
    assert_eq!((&launched["exit_code"], &launched["error"]), (&Value::Null, &Value::Null));
    assert_eq!(launched["logs"], json!({ "stdout": [], "stderr": [] }));
    // The pipe opens once it runs.
    let up = run(&session, &sandbox, "until [ -p /tmp/f ]; do :; done; cat /tmp/f").await;
    assert_eq!(lines(&up["logs"]["stdout"]), ["up"]);
    let which = json!({ "sandbox_id": sandbox, "execution_id": launched["id"] });
    assert_eq!(data(&session, "command_interrupt", which.clone()).await, json!({ "status": "interrupted" }));
    let text = error(&session, "command_interrupt", which).await;
    assert!(text.contains("has ended"), "{text}");
    // One that does not heed the first signal is killed.
    let stubborn = json!({ "sandbox_id": sandbox, "background": true,
                           "command": "trap '' TERM; touch /tmp/deaf; while :; do sleep 1; done" });
    let launched = data(&session, "command_run", stubborn).await;
    run(&session, &sandbox, "until [ -e /tmp/deaf ]; do :; done").await;
    let which = json!({ "sandbox_id": sandbox, "execution_id": launched["id"] });
    assert_eq!(data(&session, "command_interrupt", which).await["status"], "interrupted");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_and_says_so() {
    let settings = Settings { default_timeout_ms: 300, ..Settings::default() };
    let server = Server::with(settings).await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    let ran = run(&session, &sandbox, "echo begun; sleep 1000").await;
    assert_eq!((&ran["exit_code"], lines(&ran["logs"]["stdout"])), (&json!(124), vec!["begun"]));
    assert!(ran["error"]["traceback"][0].as_str().unwrap().contains("background"), "{ran:#}");
}

#[tokio::test]
async fn files_are_written_found_changed_and_deleted() {
    let server = Server::new().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    let with = |mut arguments: Value| {
        arguments["sandbox_id"] = json!(sandbox);
        arguments
    };
    let write = |path: &str, content: &str| with(json!({ "path": path, "content": content }));
    assert_eq!(data(&session, "file_write", write("/w/a.py", "x = 1\nx = 1\n")).await["status"], "written");
    let more =
        with(json!({ "path": "/w/b.txt", "content": "grüße", "mode": 640, "owner": "nobody", "group": "1" }));
    data(&session, "file_write", more).await;
    let stat = run(&session, &sandbox, "stat -c '%a %U %g' /w/a.py /w/b.txt").await;
    assert_eq!(lines(&stat["logs"]["stdout"]), ["755 root 0", "640 nobody 1"]);
    // A file that is written again gets the mode that is asked for then.
    data(
        &session,
        "file_write",
        with(json!({ "path": "/w/a.py", "content": "x = 1\nx = 1\n", "mode": 600 })),
    )
    .await;

    let found = data(&session, "file_search", with(json!({ "path": "/w", "pattern": "*.py" }))).await;
    let entry = &found["result"][0];
    assert_eq!((found["result"].as_array().unwrap().len(), &entry["path"]), (1, &json!("/w/a.py")));
    let above = data(&session, "file_search", with(json!({ "path": "/", "pattern": "w" }))).await;
    assert!(!above["result"].to_string().contains("\"/w\""), "directories are not files: {above}");
    assert_eq!(
        (&entry["mode"], &entry["owner"], &entry["type"]),
        (&json!(600), &json!("root"), &json!("file"))
    );

    let replaced = data(
        &session,
        "file_replace_contents",
        with(json!({ "entries": [
            { "path": "/w/a.py", "old_content": "x = 1", "new_content": "y = 22" },
            { "path": "/w/a.py", "old_content": "22", "new_content": "3" },
            { "path": "/w/b.txt", "old_content": "nothing", "new_content": "" },
        ] })),
    )
    .await;
    assert_eq!(
        replaced["result"],
        json!([{ "path": "/w/a.py", "replaced_count": 2 }, { "path": "/w/a.py", "replaced_count": 2 },
               { "path": "/w/b.txt", "replaced_count": 0 }])
    );
    let read = data(&session, "file_read", with(json!({ "path": "/w/a.py" }))).await;
    assert_eq!((&read["content"], read["warnings"].is_null()), (&json!("y = 3\ny = 3\n"), true));
    let part = with(json!({ "path": "/w/b.txt", "range_header": "bytes=2-3" }));
    assert_eq!(data(&session, "file_read", part).await["content"], "ü");

    let made = with(json!({ "entries": [{ "path": "/d/e", "mode": 700 }, { "path": "/d/f" }] }));
    assert_eq!(data(&session, "file_create_directories", made).await["status"], "created");
    let moves = with(json!({ "entries": [{ "source": "/w/a.py", "destination": "/d/e/c.py" }] }));
    assert_eq!(data(&session, "file_move", moves.clone()).await["status"], "moved");
    data(&session, "file_write", write("/w/a.py", "again")).await;
    let text = error(&session, "file_move", moves).await;
    assert!(text.contains("Delete /d/e/c.py first"), "{text}");
    let text = error(&session, "file_delete", with(json!({ "paths": ["/w/a.py", "/d"] }))).await;
    assert!(text.contains("/d is a directory; nothing was deleted"), "{text}");
    assert_eq!(
        data(&session, "file_delete", with(json!({ "paths": ["/w/a.py", "/missing"] }))).await["status"],
        "deleted"
    );
    assert_eq!(
        data(&session, "file_delete_directories", with(json!({ "paths": ["/d"] }))).await["status"],
        "deleted"
    );
    let left = run(&session, &sandbox, "ls /w; ls -d /d").await;
    assert_eq!((lines(&left["logs"]["stdout"]), &left["exit_code"]), (vec!["b.txt"], &json!(2)));
}

#[tokio::test]
async fn large_and_binary_files_are_read_in_parts() {
    let server = Server::new().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    run(&session, &sandbox, "yes 'aß✓' | head -n 9000 > /tmp/long; printf 'a\\377b' > /tmp/bytes").await;
    let first = data(&session, "file_read", json!({ "sandbox_id": sandbox, "path": "/tmp/long" })).await;
    let mut whole = first["content"].as_str().unwrap().to_owned();
    // The warning has the next call, word for word.
    let next = first["warnings"][0].as_str().unwrap().split('"').nth(1).unwrap().to_owned();
    assert!(next.starts_with(&format!("bytes={}-", whole.len())), "{next}");
    let all = "aß✓\n".repeat(9000);
    while whole.len() < all.len() {
        let range = format!("bytes={}-{}", whole.len(), whole.len() + 24_575);
        let part = json!({ "sandbox_id": sandbox, "path": "/tmp/long", "range_header": range });
        whole.push_str(data(&session, "file_read", part).await["content"].as_str().unwrap());
    }
    assert_eq!(whole, all);
    let text = error(&session, "file_read", json!({ "sandbox_id": sandbox, "path": "/tmp/bytes" })).await;
    assert!(text.contains("base64"), "{text}");
    let bytes = json!({ "sandbox_id": sandbox, "path": "/tmp/bytes", "encoding": "base64" });
    assert_eq!(data(&session, "file_read", bytes).await["content"], "Yf9i");
    let text = error(&session, "file_read", json!({ "sandbox_id": sandbox, "path": "/tmp/none" })).await;
    assert!(text.contains("/tmp/none") && text.contains("file_search"), "{text}");
}

#[tokio::test]
async fn what_cannot_be_met_is_refused_and_leaves_nothing() {
    let server = Server::new().await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    for (arguments, part) in [
        (json!({ "image": "host", "auth_username": "ana" }), "must be provided together"),
        (json!({ "image": "host", "timeout_seconds": 0 }), "a lifetime of 0 seconds"),
        (json!({ "image": "host", "resource": { "gpu": "1" } }), "gpu"),
        (json!({ "image": "host", "extensions": { "poolRef": "p" } }), "poolRef"),
        (json!({ "image": "host", "metadata": { "opensandbox.io/x": "y" } }), "reserved"),
        (
            json!({ "image": "host", "network_policy": { "egress": [{ "action": "allow", "target": "*" }] } }),
            "egress[0]",
        ),
        (json!({ "image": "/etc" }), "not an image reference"),
        (json!({ "image": "host", "env": { "": "x" } }), "environment"),
        (json!({ "image": "host", "colour": "red" }), "colour"),
    ] {
        let text = error(&session, "sandbox_create", arguments).await;
        assert!(text.contains(part), "{part}: {text}");
    }
    let listed = data(&session, "sandbox_list", json!({})).await;
    assert_eq!(listed["pagination"]["total_items"], 0);
}

#[tokio::test]
async fn a_key_sees_its_own_namespace_and_other_surfaces_see_the_same_sandboxes() {
    let server = Server::new().await;
    let key = async |namespace: &str| {
        let spec = KeySpec { namespace: Some(namespace.parse::<Namespace>().unwrap()), ..KeySpec::default() };
        server.engine.create_key(&Principal::operator("test"), spec).await.unwrap().secret
    };
    let (blue, red) = (key("blue").await, key("red").await);
    let session = server.begin_at(PATH, VERSION, &blue).await;
    let sandbox = create(&session).await;
    let stranger = server.begin_at(PATH, VERSION, &red).await;
    for (tool, more) in [
        ("sandbox_get_info", json!({})),
        ("sandbox_connect", json!({})),
        ("command_run", json!({ "command": "true", "connect_if_missing": true })),
        ("file_read", json!({ "path": "/etc/passwd" })),
        ("sandbox_get_endpoint", json!({ "port": 80 })),
        ("sandbox_kill", json!({})),
    ] {
        let mut arguments = more;
        arguments["sandbox_id"] = json!(sandbox);
        let text = error(&stranger, tool, arguments).await;
        assert!(text.contains("no sandbox"), "{text}");
    }
    assert_eq!(data(&stranger, "sandbox_list", json!({})).await["sandbox_infos"], json!([]));
    let native = server.begin("2025-06-18", &blue).await;
    assert_eq!(native.data("sandbox_inspect", json!({ "name": sandbox })).await["id"], sandbox.as_str());
    assert_eq!(session.ask(request(3, "resources/list", json!({}))).await["result"]["resources"], json!([]));
}

#[tokio::test]
async fn an_endpoint_leads_to_the_port_with_its_headers_and_to_no_other() {
    let server = Server::speaking(NATIVE, Settings::default()).await;
    let session = server.begin_at(PATH, VERSION, "alice").await;
    let sandbox = create(&session).await;
    let page = json!({ "sandbox_id": sandbox, "path": "/srv/page.txt", "content": "hello" });
    data(&session, "file_write", page).await;
    let serve = json!({ "sandbox_id": sandbox, "background": true,
                        "command": "python3 -m http.server 8000 --bind 127.0.0.1 --directory /srv" });
    data(&session, "command_run", serve).await;
    run(&session, &sandbox, "until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do :; done").await;
    let endpoint =
        data(&session, "sandbox_get_endpoint", json!({ "sandbox_id": sandbox, "port": 8000 })).await;
    let address = endpoint["endpoint"].as_str().unwrap();
    let path = address.strip_prefix("warren.test").unwrap().to_owned();
    assert!(
        endpoint["origin"].is_null() && endpoint["headers"].as_object().unwrap().len() == 1,
        "{endpoint}"
    );
    let get = async |path: String| {
        let mut request = Request::get(path).header("host", "warren.test");
        for (name, value) in endpoint["headers"].as_object().unwrap() {
            request = request.header(name, value.as_str().unwrap());
        }
        server.send(request.body(Body::empty()).unwrap()).await
    };
    let answer = get(format!("{path}/page.txt")).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, "hello"), "{answer:?}");
    assert_eq!(get(path.replace("8000", "8001") + "/").await.status.as_u16(), 401);
    let text = error(&session, "sandbox_get_endpoint", json!({ "sandbox_id": sandbox, "port": 0 })).await;
    assert!(text.contains("port"), "{text}");
}
