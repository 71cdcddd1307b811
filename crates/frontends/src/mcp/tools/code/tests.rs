use std::{sync::Arc, time::Duration};

use engine::{LedgerLimits, SandboxFilter};
use futures_util::FutureExt;
use sandbox::OnExpiry;
use serde_json::{Value, json};
use test_backend::{Hostility, PICTURE};

use crate::mcp::{
    Progress,
    complete::{Reference, complete},
    envelope::Part,
    resources::{self, Content},
    surface::Reply,
    testing::{Client, ask, native},
    tools::exec::tests::{client_with_box, make_box},
};

async fn run(client: &Client, code: &str) -> Value {
    client.data("sandbox_run_code", json!({ "name": "box", "code": code })).await
}

async fn reply(client: &Client, arguments: Value) -> Reply {
    native().call("sandbox_run_code", client.call.clone(), arguments.as_object().cloned()).await
}

/// Python that shows these forms as they are.
fn shows(forms: &Value) -> String {
    format!("display({forms}, raw=True)\n")
}

#[tokio::test]
async fn variables_stay_between_calls_and_an_exception_is_no_failure() {
    let client = client_with_box().await;
    let first = run(&client, "x = 41\nprint('set')").await;
    assert_eq!((&first["stdout"], &first["name"]), (&json!("set\n"), &json!("box")));
    assert_eq!((&first["success"], &first["stateKept"]), (&json!(true), &json!(true)));
    let second = run(&client, "x + 1").await;
    assert_eq!((&second["result"], second.get("outputs")), (&json!("42"), None));
    let failed = run(&client, "print('before')\nraise ValueError('no')").await;
    assert_eq!((&failed["success"], &failed["exitCode"]), (&json!(false), &json!(1)));
    assert_eq!((&failed["error"]["name"], &failed["error"]["value"]), (&json!("ValueError"), &json!("no")));
    assert_eq!((&failed["stdout"], &failed["stateKept"]), (&json!("before\n"), &json!(true)));
    let strict = json!({ "name": "box", "code": "raise ValueError('no')", "treatErrorAsFailure": true });
    let error = client.error("sandbox_run_code", strict, "exec_failed").await;
    assert_eq!(error["message"], "the code ended with ValueError: no");
    assert_eq!(error["details"]["error"]["name"], "ValueError");
    // By the words of others.
    let other = json!({ "sandbox": "box", "language": "shell", "code": "echo $0 hi" });
    assert_eq!(client.data("sandbox_run_code", other).await["language"], "bash");
}

#[tokio::test]
async fn pictures_stand_beside_the_text_and_what_is_large_behind_a_link() {
    let client = client_with_box().await;
    let forms = shows(&json!({ "text/html": "<b>x</b>", "application/json": { "a": [1] } }));
    let code = format!("{PICTURE}display(Picture(30), Picture(3000000))\n{forms}'value'");
    let Reply { data, parts, .. } = reply(&client, json!({ "name": "box", "code": code })).await;
    let envelope = data.unwrap();
    let data = &envelope["data"];
    let [Part::Image { mime_type, base64 }, Part::Link(link)] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!((mime_type.as_str(), &base64[..11]), ("image/png", "iVBORw0KGgo"));
    assert_eq!((link.mime_type.as_deref(), link.size), (Some("image/png"), Some(3_000_000)));
    assert_eq!(link.uri, data["outputs"][1]["uri"].as_str().unwrap());
    assert_eq!(data["outputs"].as_array().unwrap().len(), 3, "{data:#}");
    assert_eq!((&data["outputs"][2]["html"], &data["result"]), (&json!("<b>x</b>"), &json!("'value'")));
    assert_eq!(data["outputs"][2]["json"], json!({ "a": [1] }));
    assert!(!envelope.to_string().contains("iVBORw0KGgo"), "a picture is no text");

    let read = async |uri: &str| resources::read(&client.call, uri).await.unwrap().remove(0);
    let whole = read(&link.uri).await;
    let Content::Blob(bytes) = &whole.content else { panic!("{whole:?}") };
    assert_eq!((whole.mime_type.as_str(), bytes.len()), ("image/png", 3_000_000));
    let text = read(&format!("{}?mime=text/plain", link.uri)).await;
    assert_eq!((text.mime_type.as_str(), text.content), ("text/plain", Content::Text("<Figure>".into())));
    let html = read(data["outputs"][2]["uri"].as_str().unwrap()).await;
    assert_eq!(html.content, Content::Text("<b>x</b>".into()));
    // The value is an output too, though its text stands in the answer already.
    let last = link.uri.replace("outputs/2", "outputs/4");
    assert_eq!(read(&last).await.content, Content::Text("'value'".into()));
    assert!(resources::read(&client.call, &link.uri.replace("outputs/2", "outputs/5")).await.is_err());

    let context = [("name", "box"), ("id", data["execSessionId"].as_str().unwrap())];
    let context = context.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let template = "warren://sandboxes/{name}/execs/{id}/outputs/{number}".to_owned();
    let found = complete(&client.call, Reference::Resource(template), "number", "", &context).await.unwrap();
    assert_eq!(found, ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_long_value_is_cut_and_says_so_with_the_call_that_reads_on() {
    let client = client_with_box().await;
    let envelope = client.ask("sandbox_run_code", json!({ "name": "box", "code": "'y' * 50000" })).await;
    let (result, cut) = (envelope["data"]["result"].as_str().unwrap(), &envelope["truncated"][0]);
    assert_eq!((&cut["field"], &cut["totalBytes"]), (&json!("result"), &json!(50_002)));
    assert_eq!(cut["returnedBytes"], json!(result.len()));
    let call = r#"sandbox_run_code {"code":"print(repr(_)["#;
    assert!(cut["hint"].as_str().unwrap().contains(call), "{cut}");
}

#[tokio::test]
async fn hostile_records_are_bounded_and_told() {
    let client = Client::new().await;
    // Before the first connection, which is kept for later.
    client.backend.be_hostile(Hostility::RawRecords, usize::MAX);
    make_box(&client).await;
    let raw = |record: &str| shows(&json!({ "text/plain": format!("raw {record}") }));
    let code = [
        raw("garbage"),
        raw(r#"{"type":"state","kept":false}"#),
        shows(&json!({ "../../etc": "x", "image/png": "!!!", "text/plain": "ok" })),
        raw(r#"{"type":"warning","message":"one"}"#),
    ]
    .concat();
    let envelope = client.ask("sandbox_run_code", json!({ "name": "box", "code": code })).await;
    let data = &envelope["data"];
    // The last word on the variables is the guest's.
    assert_eq!((&data["stateKept"], &data["success"]), (&json!(true), &json!(true)));
    assert_eq!(data["outputs"][0]["mimeTypes"], json!(["image/png", "text/plain"]));
    assert_eq!((&data["outputs"][0]["text"], data["outputs"][0].get("image")), (&json!("ok"), None));
    let warnings = envelope["warnings"].to_string();
    assert!(warnings.contains("one") && warnings.contains("Omitted 1 outputs"), "{warnings}");
    // Output without end keeps both its ends.
    let long = json!({ "name": "box", "language": "bash", "code": "seq 100000", "maxBytes": 100 });
    let envelope = client.ask("sandbox_run_code", long).await;
    assert!(envelope["data"]["stdout"].as_str().unwrap().ends_with("99999\n100000\n"));
    assert_eq!(
        (&envelope["truncated"][0]["field"], &envelope["truncated"][0]["returnedBytes"]),
        (&json!("stdout"), &json!(100))
    );
    assert!(envelope["truncated"][0]["hint"].as_str().unwrap().contains("sandbox_exec_poll"));
}

#[tokio::test]
async fn time_is_up_and_the_answer_says_what_became_of_the_variables() {
    let client = client_with_box().await;
    run(&client, "import signal, time").await;
    let code = "x = 1\nprint('before')\ntime.sleep(1000)";
    let slow = json!({ "name": "box", "code": code, "timeoutMs": 2000 });
    let envelope = client.ask("sandbox_run_code", slow).await;
    let data = &envelope["data"];
    assert_eq!((&data["timedOut"], &data["stateKept"]), (&json!(true), &json!(true)));
    assert_eq!(data["outcome"], "interrupted: it timed out");
    assert_eq!((&data["stdout"], &data["success"]), (&json!("before\n"), &json!(false)));
    let warning = envelope["warnings"][0].as_str().unwrap();
    assert!(warning.contains("2000 ms") && warning.contains("variables were kept"), "{warning}");
    assert_eq!(run(&client, "x").await["result"], "1");

    let code = "signal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(1000)";
    let stubborn = json!({ "name": "box", "code": code, "timeout": 2 });
    let envelope = client.ask("sandbox_run_code", stubborn).await;
    assert_eq!(envelope["data"]["stateLost"], "killed");
    assert!(envelope["warnings"].to_string().contains("the interpreter was killed"), "{envelope}");
    assert_eq!(run(&client, "x").await["error"]["name"], "NameError");
}

#[tokio::test]
async fn a_caller_who_leaves_interrupts_the_code_and_heard_its_output() {
    let client = client_with_box().await;
    let (call, heard) = client.leaving_at("hello");
    let code = "import time\nx = 7\nprint('hello')\ntime.sleep(1000)";
    let envelope = ask(call, "sandbox_run_code", json!({ "name": "box", "code": code, "timeout": 0 })).await;
    let error = &envelope["error"];
    assert_eq!((&error["code"], &error["details"]["stdout"]), (&json!("cancelled"), &json!("hello\n")));
    assert!(error["message"].as_str().unwrap().contains("variables were kept"), "{error}");
    let words = heard.lock().unwrap().iter().find(|words| words.contains("hello")).cloned().unwrap();
    assert!(words.starts_with("running for ") && words.contains(", 6 bytes printed\nhello"), "{words}");
    assert_eq!(run(&client, "x").await["result"], "7");
}

#[tokio::test]
async fn code_that_another_call_runs_is_interrupted_by_its_context() {
    let client = client_with_box().await;
    let nothing = json!({ "name": "box", "context": "python" });
    let error = client.error("code_interrupt", nothing.clone(), "wrong_state").await;
    assert!(error["hint"].as_str().unwrap().contains("code_context_list"), "{error}");
    let begun = Arc::new(tokio::sync::Notify::new());
    let mut call = client.call.clone();
    let running = Arc::clone(&begun);
    call.progress = Progress::new(move |step| {
        if step.message.contains("begun") {
            running.notify_one();
        }
        std::future::ready(()).boxed()
    });
    let code = "import time\nprint('begun')\ntime.sleep(1000)";
    let code = json!({ "name": "box", "code": code, "timeout": 0 });
    let running = tokio::spawn(async move { ask(call, "sandbox_run_code", code).await });
    begun.notified().await;
    let busy = client.data("code_context_list", json!({ "name": "box" })).await;
    assert_eq!(
        (&busy["contexts"][0]["state"], &busy["languages"][0]["name"]),
        (&json!("busy"), &json!("python"))
    );
    let stopped = client.data("code_interrupt", nothing).await;
    assert_eq!((&stopped["ended"], &stopped["stateKept"]), (&json!(true), &json!(true)));
    let envelope = running.await.unwrap();
    assert_eq!(
        (&envelope["data"]["interrupted"], &envelope["data"]["exitCode"]),
        (&json!(true), &json!(130))
    );
    assert_eq!(envelope["data"]["execSessionId"], stopped["execSessionId"]);
    let again = json!({ "name": "box", "execSessionId": stopped["execSessionId"] });
    client.error("code_interrupt", again, "wrong_state").await;
    client.error("code_interrupt", json!({ "name": "box" }), "invalid_request").await;
}

#[tokio::test]
async fn contexts_are_made_branched_reset_and_removed() {
    let client = client_with_box().await;
    run(&client, "x = 1").await;
    let branch = json!({ "name": "box", "context": "python", "into": "try" });
    let made = client.data("code_context_fork", branch.clone()).await;
    assert_eq!((&made["context"], &made["parent"]), (&json!("try"), &json!("python")));
    client.error("code_context_fork", branch, "already_exists").await;
    let in_branch = |code: &str| {
        client.data("sandbox_run_code", json!({ "name": "box", "context": "try", "code": code }))
    };
    assert_eq!(in_branch("x = x + 1\nx").await["result"], "2");
    assert_eq!(run(&client, "x").await["result"], "1");
    run(&client, "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()")
        .await;
    let hazard = json!({ "name": "box", "context": "python", "into": "more" });
    let error = client.error("code_context_fork", hazard.clone(), "wrong_state").await;
    assert!(error["hint"].as_str().unwrap().contains("force: true"), "{error}");
    let mut forced = hazard;
    forced["force"] = json!(true);
    let envelope = client.ask("code_context_fork", forced).await;
    assert!(envelope["warnings"][0].as_str().unwrap().contains("Threads"), "{envelope}");
    client.data("code_context_reset", json!({ "name": "box", "context": "try" })).await;
    assert_eq!(in_branch("x").await["error"]["name"], "NameError");
    client.data("code_context_remove", json!({ "name": "box", "context": "try" })).await;
    let gone = json!({ "name": "box", "context": "try" });
    for tool in ["code_context_remove", "code_context_reset", "code_context_fork"] {
        let error = client.error(tool, gone.clone(), "not_found").await;
        assert!(error["hint"].as_str().unwrap().contains("code_context_list"), "{tool}: {error}");
    }
    let shell = json!({ "name": "box", "language": "bash", "context": "sh", "cwd": "/tmp" });
    assert_eq!(client.data("code_context_create", shell).await["cwd"], "/tmp");
    let pwd = json!({ "name": "box", "language": "bash", "context": "sh", "code": "pwd" });
    assert_eq!(client.data("sandbox_run_code", pwd.clone()).await["stdout"], "/tmp\n");
    // Without a language, the context's own.
    let pwd_again = json!({ "name": "box", "context": "sh", "code": "pwd" });
    assert_eq!(client.data("sandbox_run_code", pwd_again).await["stdout"], "/tmp\n");
    // A context keeps what it has, and a caller who asks otherwise is told.
    let mut elsewhere = pwd;
    elsewhere["cwd"] = json!("/etc");
    let envelope = client.ask("sandbox_run_code", elsewhere).await;
    assert_eq!(envelope["data"]["stdout"], "/tmp\n");
    assert!(envelope["warnings"][0].as_str().unwrap().starts_with("No effect: cwd."), "{envelope}");
}

#[tokio::test]
async fn a_sandbox_is_made_or_started_for_the_code() {
    let client = Client::new().await;
    let n_sandboxes = async || {
        let all = client.call.engine().sandboxes(&client.call.who, &SandboxFilter::default()).await;
        all.unwrap().len()
    };
    let refused = json!({ "code": "1", "create": false });
    let error = client.error("sandbox_run_code", refused, "invalid_request").await;
    assert!(error["hint"].as_str().unwrap().contains("omit create"), "{error}");
    client
        .error("sandbox_run_code", json!({ "name": "lab", "code": "1", "create": false }), "not_found")
        .await;
    let gone = json!({ "name": "sbx-0123456789abc", "code": "1" });
    client.error("sandbox_run_code", gone, "not_found").await;
    let bad = json!({ "code": "1", "language": "klingon" });
    client.error("sandbox_run_code", bad, "invalid_request").await;
    assert_eq!(n_sandboxes().await, 0, "nothing is made for what cannot run");

    let unnamed = json!({ "code": "1 + 1", "requestId": "r-1" });
    let envelope = client.ask("sandbox_run_code", unnamed.clone()).await;
    let made = &envelope["data"];
    assert_eq!((&made["created"], &made["result"]), (&json!(true), &json!("2")));
    // Nobody named it, so it does not stay for ever, and says so.
    let warning = envelope["warnings"][0].as_str().unwrap();
    assert!(warning.contains(made["name"].as_str().unwrap()) && warning.contains("60 minutes"), "{warning}");
    let which = client.call.sandbox(made["name"].as_str().unwrap()).unwrap();
    let view = client.call.engine().sandbox(&client.call.who, &which).await.unwrap();
    assert_eq!(
        (view.lifetime.idle, view.lifetime.on_expiry),
        (Some(Duration::from_secs(3600)), OnExpiry::Remove)
    );
    let again = client.data("sandbox_run_code", unnamed).await;
    assert_eq!((&again["name"], &again["execSessionId"]), (&made["name"], &made["execSessionId"]));
    assert_eq!(n_sandboxes().await, 1);

    let named = json!({ "name": "lab", "code": "x = 3" });
    assert_eq!(client.data("sandbox_run_code", named.clone()).await["created"], true);
    let next = json!({ "name": "lab", "code": "x", "create": true });
    let found = client.data("sandbox_run_code", next.clone()).await;
    assert_eq!((found.get("created"), &found["result"]), (None, &json!("3")));
    client.data("sandbox_stop", json!({ "name": "lab" })).await;
    let stopped = json!({ "name": "lab", "code": "1" });
    let error = client.error("sandbox_run_code", stopped, "wrong_state").await;
    assert!(error["hint"].as_str().unwrap().contains("startIfStopped"), "{error}");
    let envelope = client.ask("sandbox_run_code", next).await;
    assert_eq!(envelope["data"]["error"]["name"], "NameError");
    assert!(envelope["warnings"].to_string().contains("variables of earlier calls are lost"), "{envelope}");
    client.call.mcp.quiet().await;
    let status = client.data("sandbox_status", json!({ "name": "lab" })).await;
    assert_eq!(status[0]["status"], "running", "{status}");
    assert_eq!(n_sandboxes().await, 2);
}

#[tokio::test]
async fn several_who_need_the_same_sandbox_make_one() {
    let client = Client::new().await;
    client.backend.delay_starts(Duration::from_millis(30));
    let arguments = json!({ "name": "lab", "code": "1 + 1", "create": true });
    let calls = (0..8).map(|_| client.ask("sandbox_run_code", arguments.clone()));
    let answers = futures_util::future::join_all(calls).await;
    let n_made = answers.iter().filter(|envelope| envelope["data"]["created"] == true).count();
    assert_eq!(n_made, 1, "{answers:#?}");
    assert!(answers.iter().all(|envelope| envelope["data"]["result"] == "2"), "{answers:#?}");
}

#[tokio::test]
async fn what_a_full_log_has_lost_is_told_and_never_taken_for_something_else() {
    let client =
        Client::with_ledger(LedgerLimits { per_sandbox_bytes: 200_000, segment_bytes: 20_000 }).await;
    make_box(&client).await;
    let (first, last) = (shows(&json!({ "text/plain": "first" })), shows(&json!({ "text/plain": "last" })));
    let code = format!("{first}for n in range(100000): print(n)\n{last}");
    let arguments = json!({ "name": "box", "code": code, "requestId": "r-1" });
    let whole = client.ask("sandbox_run_code", arguments.clone()).await;
    let outputs = whole["data"]["outputs"].as_array().unwrap();
    assert!(!outputs.is_empty(), "{whole}");
    for output in outputs {
        // By now only the end of the log is left, where the second is the first.
        let read = resources::read(&client.call, output["uri"].as_str().unwrap()).await;
        assert!(read.unwrap_err().to_string().contains("was full"), "{output}");
    }
    // Who asks again reads what is left.
    let again = client.ask("sandbox_run_code", arguments).await;
    assert!(again["warnings"].to_string().contains("the sandbox's log was full"), "{again}");
    assert_eq!(again["data"]["success"], true, "{again}");
}

#[tokio::test]
async fn what_a_sandbox_cannot_run_is_told_with_what_it_can() {
    let client = client_with_box().await;
    // Whatever else the host has, this one has two shells.
    let shell = |name: &str| json!({ "kind": "symlink", "target": format!("/bin/{name}"), "path": format!("/opt/few/{name}") });
    let patches = json!([{ "kind": "mkdir", "path": "/opt/few" }, shell("bash"), shell("sh")]);
    let few = json!({ "name": "few", "env": { "PATH": "/opt/few" }, "patches": patches });
    client.data("sandbox_create", few).await;
    for (language, package) in [
        ("klingon", ""),
        ("javascript", " The apt package nodejs brings javascript."),
        ("rust", " The apt package rustc brings rust."),
    ] {
        let arguments = json!({ "name": "few", "code": "1", "language": language });
        let error = client.error("sandbox_run_code", arguments, "invalid_request").await;
        assert_eq!(error["hint"], json!(format!("This sandbox has bash, sh.{package}")), "{error}");
    }
    let context = json!({ "name": "few", "language": "javascript" });
    let error = client.error("code_context_create", context, "invalid_request").await;
    assert_eq!(error["hint"], "This sandbox has bash, sh. The apt package nodejs brings javascript.");
    for (field, wrong) in [("code", json!("a\u{0}")), ("context", json!("no/name")), ("timeout", json!(-1))] {
        let mut arguments = json!({ "name": "box", "code": "1" });
        arguments[field] = wrong;
        client.error("sandbox_run_code", arguments, "invalid_request").await;
    }
    for (field, wrong) in [("cwd", "/nowhere"), ("user", "nobody-here")] {
        let mut arguments = json!({ "name": "box", "code": "1" });
        arguments[field] = json!(wrong);
        let error = client.error("sandbox_run_code", arguments, "invalid_request").await;
        assert!(error["message"].as_str().unwrap().contains(wrong), "{error}");
    }
    let stateless =
        client.data("sandbox_run_code", json!({ "name": "box", "language": "sh", "code": "A=b" })).await;
    assert_eq!((stateless.get("context"), stateless.get("stateKept")), (None, None));
    client.data("sandbox_exec", json!({ "name": "box", "command": "true", "requestId": "r-9" })).await;
    let taken = json!({ "name": "box", "code": "1", "requestId": "r-9" });
    client.error("sandbox_run_code", taken, "invalid_request").await;
}

#[tokio::test]
async fn a_cell_that_never_began_is_not_to_be_asked_for_again_by_the_same_request() {
    let client = Client::new().await;
    // Such a cell is a file beneath /tmp, where nothing fits any more.
    let small = json!([{ "kind": "tmpfs", "guestPath": "/tmp", "sizeMib": 1 }]);
    client.data("sandbox_create", json!({ "name": "box", "mounts": small })).await;
    let fill = json!({ "name": "box", "command": "head -c 2M /dev/zero > /tmp/full" });
    client.data("sandbox_shell", fill).await;
    // Another call would make another cell, which may find room.
    let cell = json!({ "name": "box", "language": "sh", "code": "true" });
    let error = client.error("sandbox_run_code", cell, "limit_reached").await;
    assert_eq!(error["retryable"], true, "{error}");
    // The same request is answered with the same cell, however often.
    let cell = json!({ "name": "box", "language": "sh", "code": "true", "requestId": "r-1" });
    for _ in 0..2 {
        let error = client.error("sandbox_run_code", cell.clone(), "wrong_state").await;
        assert_eq!(error["retryable"], false, "{error}");
        assert!(error["hint"].as_str().unwrap().contains("another requestId"), "{error}");
    }
}

#[tokio::test]
async fn what_code_lacks_is_told_with_the_next_call() {
    let client = client_with_box().await;
    let arguments = json!({ "name": "box", "code": "import nonesuch_x" });
    let envelope = client.ask("sandbox_run_code", arguments.clone()).await;
    let install = json!({ "name": "box", "manager": "pip", "packages": ["nonesuch_x"] });
    let call = format!("sandbox_package_install {install}");
    let warnings = envelope["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|told| told.as_str().unwrap().contains(&call)), "{envelope}");
    let mut failing = arguments;
    failing["treatErrorAsFailure"] = json!(true);
    let error = client.error("sandbox_run_code", failing, "exec_failed").await;
    assert!(error["hint"].as_str().unwrap().contains(&call), "{error}");
    let code = "import urllib.request; urllib.request.urlopen('http://example.org')";
    let envelope = client.ask("sandbox_run_code", json!({ "name": "box", "code": code })).await;
    assert!(envelope["warnings"][0].as_str().unwrap().contains("no network"), "{envelope}");
    let envelope = client.ask("sandbox_run_code", json!({ "name": "box", "code": "1 / 0" })).await;
    assert!(envelope.get("warnings").is_none(), "{envelope}");
}
