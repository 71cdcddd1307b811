use std::sync::Arc;

use engine::SandboxRef;
use sandbox::{Capability, SandboxSpec, SandboxState};
use serde_json::json;

use crate::mcp::testing::{Client, ask};

/// A client with one running sandbox called `box`.
pub(crate) async fn client_with_box() -> Client {
    let client = Client::new().await;
    make_box(&client).await;
    client
}

pub(crate) async fn make_box(client: &Client) {
    let spec = SandboxSpec { name: Some("box".parse().unwrap()), ..SandboxSpec::default() };
    client.call.engine().create_sandbox(&client.call.who, spec).await.unwrap();
}

async fn state(client: &Client) -> SandboxState {
    let which: SandboxRef = "box".parse().unwrap();
    client.call.engine().sandbox(&client.call.who, &which).await.unwrap().state
}

#[tokio::test]
async fn a_command_answers_with_its_output_and_exit_code() {
    let client = client_with_box().await;
    let data = client
        .data("sandbox_exec", json!({ "name": "box", "command": "echo", "args": ["hi", "there"] }))
        .await;
    assert_eq!((&data["stdout"], &data["stderr"]), (&json!("hi there\n"), &json!("")));
    assert_eq!((&data["exitCode"], &data["success"]), (&json!(0), &json!(true)));
    assert!(data["execSessionId"].as_str().unwrap().starts_with("exc-"), "{data}");
    assert!(
        data["durationMs"].is_u64() && data.get("timedOut").is_none() && data.get("outcome").is_none(),
        "{data}"
    );

    let script = "echo out; echo err >&2; exit 3";
    let data = client.data("sandbox_shell", json!({ "name": "box", "command": script })).await;
    assert_eq!((&data["stdout"], &data["stderr"]), (&json!("out\n"), &json!("err\n")));
    assert_eq!((&data["exitCode"], &data["success"]), (&json!(3), &json!(false)));
}

#[tokio::test]
async fn directory_environment_and_stdin_reach_the_command() {
    let client = client_with_box().await;
    let data =
        client.data("sandbox_exec", json!({ "name": "box", "command": "pwd", "workdir": "/tmp" })).await;
    assert_eq!(data["stdout"], "/tmp\n");
    let both = json!({ "name": "box", "command": "pwd", "workdir": "/tmp", "cwd": "/etc" });
    assert_eq!(client.data("sandbox_exec", both).await["stdout"], "/etc\n");
    let env = json!({ "name": "box", "command": "echo $WHO", "env": { "WHO": "me" } });
    assert_eq!(client.data("sandbox_shell", env).await["stdout"], "me\n");
    let text = json!({ "name": "box", "command": "cat", "stdin": "für dich" });
    assert_eq!(client.data("sandbox_exec", text).await["stdout"], "für dich");
    let bytes = json!({ "name": "box", "command": "cat", "stdin": "no", "stdinBase64": "eWVz" });
    assert_eq!(client.data("sandbox_exec", bytes).await["stdout"], "yes");
    // Nothing given: stdin is empty, also at a terminal, and nothing waits for it.
    for tty in [false, true] {
        let data = client.data("sandbox_exec", json!({ "name": "box", "command": "cat", "tty": tty })).await;
        assert_eq!((&data["stdout"], &data["exitCode"]), (&json!(""), &json!(0)), "tty {tty}");
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_as_a_shell_would() {
    let client = client_with_box().await;
    let data = client.data("sandbox_exec", json!({ "name": "box", "command": "nonesuch" })).await;
    assert_eq!((&data["exitCode"], &data["success"]), (&json!(127), &json!(false)));
    assert!(data["stderr"].as_str().unwrap().contains("nonesuch"), "{data}");
    assert!(data["outcome"].as_str().unwrap().contains("did not start"), "{data}");
}

#[tokio::test]
async fn long_output_keeps_both_ends_and_says_where_to_read_on() {
    let client = client_with_box().await;
    let arguments = json!({ "name": "box", "command": "seq", "args": ["100000"], "maxBytes": 100 });
    let envelope = client.ask("sandbox_exec", arguments).await;
    let stdout = envelope["data"]["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("1\n2\n3\n") && stdout.ends_with("99999\n100000\n"), "{stdout}");
    let total: u64 = (1..=100_000_u64).map(|n| n.to_string().len() as u64 + 1).sum();
    let cut = &envelope["truncated"][0];
    assert_eq!(
        (&cut["field"], &cut["returnedBytes"], &cut["totalBytes"]),
        (&json!("stdout"), &json!(100), &json!(total))
    );
    let hint = cut["hint"].as_str().unwrap();
    let session = envelope["data"]["execSessionId"].as_str().unwrap();
    let search = json!({ "name": "box", "sessionIds": [session], "grep": "error" });
    assert!(hint.contains(&format!("sandbox_logs_read {search}")), "{hint}");
    let read_on = json!({ "execSessionId": session, "cursor": 1 });
    assert!(hint.contains(&format!("sandbox_exec_poll {read_on}")), "{hint}");
    assert!(stdout.contains(&format!("{} bytes left out", total - 100)), "{stdout}");
}

#[tokio::test]
async fn a_time_limit_ends_the_command_and_keeps_what_it_printed() {
    let client = client_with_box().await;
    let script = "echo before; sleep 1000; echo after";
    let arguments = json!({ "name": "box", "command": script, "timeoutMs": 2000 });
    let envelope = client.ask("sandbox_shell", arguments).await;
    let data = &envelope["data"];
    assert_eq!((&data["stdout"], &data["timedOut"]), (&json!("before\n"), &json!(true)));
    assert_eq!((&data["exitCode"], &data["success"]), (&json!(124), &json!(false)));
    assert!(envelope["warnings"][0].as_str().unwrap().contains("2000 ms"), "{envelope}");
    // In seconds, and as a failure.
    let arguments = json!({ "name": "box", "command": script, "timeout": 2, "treatNonZeroAsError": true });
    let error = client.error("sandbox_shell", arguments, "exec_failed").await;
    assert_eq!(
        (&error["details"]["stdout"], &error["details"]["timedOut"]),
        (&json!("before\n"), &json!(true))
    );
}

#[tokio::test]
async fn the_default_time_limit_holds_where_none_is_named() {
    let mut client = client_with_box().await;
    let settings = crate::mcp::Settings { default_timeout_ms: 30, ..Default::default() };
    client.call.settings = Arc::new(settings);
    let data = client.data("sandbox_shell", json!({ "name": "box", "command": "sleep 1000" })).await;
    assert_eq!(data["timedOut"], true);
    let none = json!({ "name": "box", "command": "sleep 0.1; echo done", "timeout": 0 });
    assert_eq!(client.data("sandbox_shell", none).await["stdout"], "done\n");
}

#[tokio::test]
async fn another_exit_code_can_be_asked_to_be_a_failure() {
    let client = client_with_box().await;
    let script = json!({ "name": "box", "command": "echo why >&2; exit 3", "treatNonZeroAsError": true });
    let error = client.error("sandbox_shell", script, "exec_failed").await;
    assert_eq!(error["message"], "shell command exited with status 3");
    let details = &error["details"];
    assert_eq!(
        (&details["stderr"], &details["exitCode"], &details["success"]),
        (&json!("why\n"), &json!(3), &json!(false))
    );
    let fine = json!({ "name": "box", "command": "true", "treatNonZeroAsError": true });
    assert_eq!(client.data("sandbox_exec", fine).await["success"], true);
}

#[tokio::test]
async fn cancelling_the_call_kills_the_command_and_says_so() {
    let client = client_with_box().await;
    let (call, told) = client.leaving_at("here");
    let arguments = json!({ "name": "box", "command": "echo here; sleep 1000", "timeout": 0 });
    let envelope = ask(call, "sandbox_shell", arguments).await;
    let error = &envelope["error"];
    assert_eq!(
        (&error["code"], &error["details"]["stdout"]),
        (&json!("cancelled"), &json!("here\n")),
        "{envelope}"
    );
    assert!(error["details"]["outcome"].as_str().unwrap().contains("killed on request"), "{envelope}");
    assert!(told.lock().unwrap().iter().any(|words| words.contains("5 bytes printed\nhere")), "{told:?}");
}

#[tokio::test]
async fn a_stopped_sandbox_is_started_for_one_command_and_stopped_again() {
    let client = client_with_box().await;
    let which: SandboxRef = "box".parse().unwrap();
    let engine = client.call.engine();
    engine.stop_sandbox(&client.call.who, &which, None).await.unwrap();
    let error =
        client.error("sandbox_exec", json!({ "name": "box", "command": "true" }), "wrong_state").await;
    assert!(error["hint"].as_str().unwrap().contains("startIfStopped"), "{error}");

    // Several in a row: the later ones find the sandbox still up, on its way down, or down.
    for round in 0..4 {
        let arguments = json!({ "name": "box", "command": "echo", "args": ["up"], "startIfStopped": true });
        let envelope = client.ask("sandbox_exec", arguments).await;
        assert_eq!(envelope["data"]["stdout"], "up\n", "{envelope}");
        if round == 0 {
            let warning = envelope["warnings"][0].as_str().unwrap();
            assert!(warning.contains("will be stopped afterward"), "{envelope}");
        }
        tokio::task::yield_now().await;
    }
    client.call.mcp.quiet().await;
    assert_eq!(state(&client).await, SandboxState::Stopped);

    let arguments = json!({ "name": "box", "command": "true", "startIfStopped": true, "keepRunning": true });
    let envelope = client.ask("sandbox_exec", arguments).await;
    assert_eq!((&envelope["ok"], envelope.get("warnings")), (&json!(true), None));
    client.call.mcp.quiet().await;
    assert_eq!(state(&client).await, SandboxState::Running);
}

#[tokio::test]
async fn the_same_request_again_is_the_same_exec() {
    let client = client_with_box().await;
    let arguments = json!({ "name": "box", "command": "cat", "stdin": "once\n", "requestId": "r-1" });
    let first = client.data("sandbox_exec", arguments.clone()).await;
    let again = client.data("sandbox_exec", arguments).await;
    assert_eq!(first["stdout"], "once\n");
    assert_eq!((&first["execSessionId"], &first["stdout"]), (&again["execSessionId"], &again["stdout"]));
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_told_in_the_envelope() {
    let client = client_with_box().await;
    client.error("sandbox_exec", json!({ "name": "nobody", "command": "true" }), "not_found").await;
    client.error("sandbox_exec", json!({ "name": "box", "command": "" }), "invalid_request").await;
    client
        .error("sandbox_exec", json!({ "name": "box", "command": "pwd", "cwd": "" }), "invalid_request")
        .await;
    client
        .error("sandbox_exec", json!({ "name": "box", "command": "pwd", "timeout": -1 }), "invalid_request")
        .await;
    let error = client
        .error("sandbox_exec", json!({ "name": "box", "command": "pwd", "arg": [] }), "invalid_request")
        .await;
    assert!(error["hint"].as_str().unwrap().contains("args"), "{error}");
}

#[tokio::test]
async fn a_sandbox_that_cannot_run_it_says_which_tool_leads_on() {
    let client = client_with_box().await;
    let hint = async |tool: &str, arguments: serde_json::Value| {
        let error = client.error(tool, arguments, "wrong_state").await;
        assert!(!error["message"].as_str().unwrap().contains("files"), "{error}");
        error["hint"].as_str().unwrap().to_owned()
    };
    let exec = json!({ "name": "box", "command": "true" });
    if client.has(Capability::Pause) {
        client.data("sandbox_pause", json!({ "name": "box" })).await;
        for tool in ["sandbox_exec", "sandbox_shell", "sandbox_exec_start"] {
            let paused = hint(tool, exec.clone()).await;
            assert!(paused.starts_with(r#"Call sandbox_resume {"name":"box"} first."#), "{paused}");
        }
        client.data("sandbox_resume", json!({ "name": "box" })).await;
    }
    client.data("sandbox_exec_start", json!({ "name": "box", "command": "sleep", "args": ["1000"] })).await;
    client.data("sandbox_drain", json!({ "name": "box" })).await;
    let draining = hint("sandbox_exec", exec.clone()).await;
    let calls =
        r#"Call sandbox_wait {"name":"box"}, then sandbox_start {"name":"box"}, or use another sandbox."#;
    assert!(draining.starts_with(calls), "{draining}");
    client.data("sandbox_stop", json!({ "name": "box", "force": true })).await;
    assert!(hint("sandbox_exec", exec).await.contains("startIfStopped"));
    for (tool, arguments) in [
        ("sandbox_fs_read", json!({ "name": "box", "path": "/etc/passwd" })),
        ("sandbox_fs_exists", json!({ "name": "box", "path": "/etc/passwd" })),
        ("sandbox_metrics", json!({ "name": "box" })),
    ] {
        assert_eq!(hint(tool, arguments).await, r#"Call sandbox_start {"name":"box"} first."#, "{tool}");
    }
}

#[tokio::test]
async fn a_wrong_name_is_told_what_a_right_one_looks_like() {
    let client = Client::new().await;
    for tool in ["sandbox_exec", "sandbox_create"] {
        let arguments = json!({ "name": "no/name", "command": "true" });
        let arguments = if tool == "sandbox_create" { json!({ "name": "no/name" }) } else { arguments };
        let error = client.error(tool, arguments, "invalid_request").await;
        assert!(error["hint"].as_str().unwrap().contains("sandbox_list"), "{error}");
    }
}

#[tokio::test]
async fn output_that_is_no_text_names_the_way_to_the_bytes() {
    let client = client_with_box().await;
    for max_bytes in [1000, 10] {
        let arguments = json!({ "name": "box", "command": "cat", "stdinBase64": "/2hlYWQgYW5kIGEgbG9uZywgbG9uZyB0YWls", "maxBytes": max_bytes });
        let envelope = client.ask("sandbox_shell", arguments).await;
        let warning = envelope["warnings"].to_string();
        let session = envelope["data"]["execSessionId"].as_str().unwrap();
        assert!(warning.contains("sandbox_exec_poll") && warning.contains(session), "{envelope}");
        assert!(warning.contains("base64"), "{envelope}");
    }
    let envelope = client.ask("sandbox_run", json!({ "command": "cat", "stdinBase64": "/w==" })).await;
    assert!(envelope["warnings"].to_string().contains("keep: true"), "{envelope}");
    let envelope = client.ask("sandbox_shell", json!({ "name": "box", "command": "echo ä" })).await;
    assert!(envelope.get("warnings").is_none(), "{envelope}");
}

#[tokio::test]
async fn a_command_with_blanks_and_no_arguments_is_a_line_for_bash() {
    let client = client_with_box().await;
    let line = "x=(a b c); echo ${#x[@]} | tr 3 4";
    for tool in ["sandbox_exec", "sandbox_shell", "sandbox_run"] {
        let mut arguments = json!({ "command": line });
        if tool != "sandbox_run" {
            arguments["name"] = json!("box");
        }
        let data = client.data(tool, arguments).await;
        assert_eq!(data["stdout"], "4\n", "{tool}: {data}");
    }
    let session = client.data("sandbox_exec_start", json!({ "name": "box", "command": line })).await;
    let poll = json!({ "execSessionId": session["execSessionId"], "waitMs": 60_000 });
    client.printed_to_the_end(poll, "4\n").await;
    // With args it is a program, also with an empty list and with a blank in its name.
    for args in [json!([]), json!(["x"])] {
        let arguments = json!({ "name": "box", "command": "ls -la /", "args": args });
        let envelope = client.ask("sandbox_exec", arguments).await;
        assert_eq!(envelope["data"]["exitCode"], 127, "{envelope}");
        assert!(envelope["warnings"].to_string().contains("Omit args"), "{envelope}");
    }
    let program =
        json!({ "name": "box", "path": "/tmp/my program", "content": "#!/bin/sh\necho mine", "mode": "755" });
    client.data("sandbox_fs_write", program).await;
    let arguments = json!({ "name": "box", "command": "/tmp/my program", "args": [] });
    assert_eq!(client.data("sandbox_exec", arguments).await["stdout"], "mine\n");
    let limited = json!({ "name": "box", "command": "true", "rlimits": [{ "resource": "x", "soft": 1 }] });
    let error = client.error("sandbox_exec", limited, "invalid_request").await;
    assert!(error["hint"].as_str().unwrap().contains("nofile"), "{error}");
}

#[tokio::test]
async fn a_line_finds_bash_also_in_a_sandbox_that_is_started_for_it() {
    let client = client_with_box().await;
    client.data("sandbox_stop", json!({ "name": "box" })).await;
    let line = "x=(a b); echo ${#x[@]}";
    let arguments = json!({ "name": "box", "command": line, "startIfStopped": true });
    let envelope = client.ask("sandbox_exec", arguments).await;
    assert_eq!(envelope["data"]["stdout"], "2\n", "{envelope}");
    assert!(envelope["warnings"].to_string().contains("will be stopped afterward"), "{envelope}");
    client.call.mcp.quiet().await;
    assert_eq!(state(&client).await, SandboxState::Stopped);
}

#[tokio::test]
async fn a_line_in_the_background_is_answered_at_once_and_followed_later() {
    let client = client_with_box().await;
    let arguments =
        json!({ "name": "box", "command": "cat; echo started; exec sleep 1000", "background": true });
    let envelope = client.ask("sandbox_shell", arguments).await;
    let session = envelope["data"]["execSessionId"].as_str().unwrap();
    let follow = json!({ "execSessionId": session, "cursor": 0 });
    assert!(envelope["warnings"].to_string().contains("sandbox_exec_poll"), "{envelope}");
    // Its stdin is at its end, and it has no time limit of ours.
    client.printed(session, "started").await;
    assert_eq!(client.data("sandbox_exec_poll", follow).await["done"], false);
    client.data("sandbox_exec_signal", json!({ "execSessionId": session, "signal": "term" })).await;
    client.data("sandbox_exec_close", json!({ "execSessionId": session })).await;
}

#[tokio::test]
async fn what_a_command_lacks_is_told_with_the_next_call() {
    let client = client_with_box().await;
    let warnings = async |arguments: serde_json::Value| {
        let envelope = client.ask("sandbox_shell", arguments).await;
        envelope["warnings"].to_string()
    };
    let told = warnings(json!({ "name": "box", "command": "python3 -c 'import nonesuch_x'" })).await;
    assert!(told.contains("sandbox_package_install") && told.contains("nonesuch_x"), "{told}");
    let script = "python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'";
    let told = warnings(json!({ "name": "box", "command": script })).await;
    assert!(told.contains("no network"), "{told}");
    let told =
        warnings(json!({ "name": "box", "command": "echo No space left on device >&2; exit 1" })).await;
    assert!(told.contains("diskMib"), "{told}");
    // A command that ended well, whatever it printed, lacked nothing.
    let told = warnings(json!({ "name": "box", "command": "echo Could not resolve host" })).await;
    assert_eq!(told, "null");
    let waits = json!({ "name": "box", "command": "echo EAI_AGAIN; sleep 1000", "timeoutMs": 2000 });
    let told = warnings(waits.clone()).await;
    assert!(told.contains("no network") && !told.contains("larger timeoutMs"), "{told}");
    let mut failing = waits;
    failing["treatNonZeroAsError"] = json!(true);
    let error = client.error("sandbox_shell", failing, "exec_failed").await;
    assert!(error["hint"].as_str().unwrap().contains("no network"), "{error}");
    // Nothing can be installed in a sandbox that is gone.
    let envelope = client.ask("sandbox_run", json!({ "command": "python3 -c 'import nonesuch_x'" })).await;
    assert!(envelope["warnings"].to_string().contains("sandbox_create, then"), "{envelope}");
}

#[tokio::test]
async fn a_missing_program_is_told_by_every_tool_that_runs_commands() {
    let client = client_with_box().await;
    let lacks = |envelope: &serde_json::Value| {
        let warnings = envelope["warnings"].to_string();
        assert!(
            warnings.contains("sandbox_package_install") && warnings.contains("no-such-program"),
            "{envelope}"
        );
    };
    let program = json!({ "name": "box", "command": "no-such-program", "args": ["-v"] });
    lacks(&client.ask("sandbox_exec", program.clone()).await);
    lacks(&client.ask("sandbox_exec_start", program).await);
    let line = json!({ "name": "box", "command": "sleep 0.1; no-such-program -v", "background": true });
    let session = client.data("sandbox_shell", line).await;
    let poll = json!({ "execSessionId": session["execSessionId"], "until": "exit", "waitMs": 60_000 });
    let polled = client.ask("sandbox_exec_poll", poll).await;
    lacks(&polled);
    // By id: an exec may be in a namespace where the name alone leads to no sandbox, or to another one.
    assert!(polled["warnings"].to_string().contains("sbx-"), "{polled}");
}

#[tokio::test]
async fn a_module_of_the_callers_own_is_no_missing_package() {
    let client = client_with_box().await;
    for (path, content) in [("/root/proj/calc/core.py", ""), ("/root/proj/tests/a.py", "import calc.core")] {
        client.data("sandbox_fs_write", json!({ "name": "box", "path": path, "content": content })).await;
    }
    let run = json!({ "name": "box", "command": "cd /root/proj && python3 tests/a.py" });
    let envelope = client.ask("sandbox_shell", run.clone()).await;
    let warnings = envelope["warnings"].to_string();
    assert!(warnings.contains("PYTHONPATH") && warnings.contains("/root/proj"), "{envelope}");
    assert!(!warnings.contains("sandbox_package_install"), "{envelope}");
    let mut as_told = run;
    as_told["env"] = json!({ "PYTHONPATH": "/root/proj" });
    assert_eq!(client.data("sandbox_shell", as_told).await["exitCode"], 0);
}

#[tokio::test]
async fn who_waits_for_events_does_not_wait_for_the_start() {
    let client = client_with_box().await;
    let arguments = json!({ "name": "box", "command": "read x; echo got $x" });
    let session = client.data("sandbox_exec_start", arguments).await;
    let write = json!({ "execSessionId": session["execSessionId"], "data": "it\n", "waitMs": 60_000 });
    let written = client.data("sandbox_exec_write_stdin", write).await;
    assert!(written["output"].to_string().contains("got it"), "{written}");
}

#[tokio::test]
async fn a_command_whose_sandbox_goes_is_not_told_to_go_on_in_it() {
    let client = client_with_box().await;
    let arguments = json!({ "command": "exec sleep 1000", "timeoutMs": 2000 });
    let envelope = client.ask("sandbox_run", arguments).await;
    let warnings = envelope["warnings"].to_string();
    assert!(warnings.contains("call sandbox_create, then sandbox_shell"), "{envelope}");
    assert_eq!(envelope["data"]["removed"], true);
}

#[tokio::test]
async fn one_stream_takes_24_kb_unless_the_call_says_otherwise() {
    let client = client_with_box().await;
    let envelope = client
        .ask("sandbox_shell", json!({ "name": "box", "command": "seq 700000 | tee /dev/stderr" }))
        .await;
    for (index, stream) in ["stdout", "stderr"].into_iter().enumerate() {
        assert_eq!(envelope["truncated"][index]["returnedBytes"], 24 * 1024, "{stream}");
    }
    assert!(envelope.to_string().len() < 60 * 1024, "{}", envelope.to_string().len());
    let more = json!({ "name": "box", "command": "seq 20000", "maxBytes": 200_000 });
    assert!(client.ask("sandbox_shell", more).await.get("truncated").is_none());
}
