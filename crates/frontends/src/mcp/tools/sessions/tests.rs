use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use engine::{Principal, SandboxRef};
use sandbox::{ExecId, ExecOutcome, KeySpec, KillReason, SandboxState};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::mcp::{
    Settings,
    testing::Client,
    tools::exec::tests::{client_with_box, make_box},
};

async fn start(client: &Client, arguments: Value) -> String {
    let mut all = json!({ "name": "box" });
    all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
    let started = client.data("sandbox_exec_start", all).await;
    assert_eq!(started["sandbox"], "box");
    started["execSessionId"].as_str().unwrap().to_owned()
}

async fn poll(client: &Client, session: &str, more: Value) -> Value {
    let mut all = json!({ "execSessionId": session });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.data("sandbox_exec_poll", all).await
}

/// Writes bytes and waits until the session has printed something behind `cursor`; returns the new cursor.
async fn echo(client: &Client, session: &str, bytes: &[u8], cursor: u64) -> u64 {
    let data = BASE64_STANDARD.encode(bytes);
    client.data("sandbox_exec_write_stdin", json!({ "execSessionId": session, "dataBase64": data })).await;
    let more = json!({ "cursor": cursor, "waitMs": 60_000, "encoding": "base64" });
    let polled = poll(client, session, more).await;
    assert_eq!(polled["events"][0]["event"]["kind"], "stdout", "{polled}");
    polled["nextCursor"].as_u64().unwrap()
}

/// Reads to the end in pages; returns what the pages said.
async fn read_all(client: &Client, session: &str, page: Value) -> (String, Value) {
    let mut text = String::new();
    let mut cursor = json!(0);
    loop {
        let mut more = page.clone();
        more["cursor"] = cursor;
        more["waitMs"] = json!(60_000);
        let polled = poll(client, session, more).await;
        for event in polled["events"].as_array().unwrap() {
            text.push_str(event["event"]["data"].as_str().unwrap_or_default());
        }
        if polled["done"] == true {
            return (text, polled);
        }
        cursor = polled["nextCursor"].clone();
    }
}

async fn outcome(client: &Client, session: &str) -> ExecOutcome {
    let exec: ExecId = session.parse().unwrap();
    let (engine, who) = (client.call.engine(), &client.call.who);
    let which: SandboxRef = "box".parse().unwrap();
    engine.wait_exec(who, &which, &exec, None).await.unwrap().outcome.unwrap()
}

#[tokio::test]
async fn a_session_tells_its_life_in_events() {
    let client = client_with_box().await;
    let session = start(&client, json!({ "command": "echo out; echo err >&2; exit 3", "shell": true })).await;
    let (text, last) = read_all(&client, &session, json!({})).await;
    // Which of two pipes is read first is anybody's guess.
    assert!(["out\nerr\n", "err\nout\n"].contains(&text.as_str()), "{text:?}");
    assert_eq!(last["exitStatus"], json!({ "code": 3, "success": false }));
    let all = poll(&client, &session, json!({})).await;
    let mut kinds: Vec<_> = all["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event"]["kind"].as_str().unwrap())
        .collect();
    kinds[1..3].sort_unstable();
    assert_eq!(kinds, ["started", "stderr", "stdout", "exited"]);
    assert_eq!((&all["events"][0]["index"], &all["nextCursor"]), (&json!(0), &json!(4)));
    assert!(all["events"][0]["event"]["pid"].is_i64() && all["events"][3]["event"]["code"] == 3, "{all}");
    // Behind the end there is nothing, and that it is over is told again; also by a poll that would wait.
    let behind = poll(&client, &session, json!({ "cursor": 4, "waitMs": 60_000 })).await;
    assert_eq!((&behind["events"], &behind["done"]), (&json!([]), &json!(true)));
    assert_eq!(behind["exitStatus"]["code"], 3);
    assert!(behind["nextCursor"].as_u64().unwrap() >= 4, "{behind}");
    // Not all was returned: not done.
    let first = poll(&client, &session, json!({ "limit": 2 })).await;
    assert_eq!(
        (&first["done"], &first["nextCursor"], first.get("exitStatus")),
        (&json!(false), &json!(2), Some(&json!(null)))
    );
}

#[tokio::test]
async fn what_is_not_known_yet_is_null() {
    let client = client_with_box().await;
    let started = client.data("sandbox_exec_start", json!({ "name": "box", "command": "cat" })).await;
    assert_eq!(started.get("stopSandboxOnExit"), Some(&json!(null)), "{started}");
    let polled = client.data("sandbox_exec_poll", json!({ "execSessionId": started["execSessionId"] })).await;
    assert_eq!((polled.get("exitStatus"), polled.get("error")), (Some(&json!(null)), Some(&json!(null))));
}

#[tokio::test]
async fn a_poll_of_bytes_that_are_no_text_names_the_way_to_them() {
    let client = client_with_box().await;
    let arguments = json!({ "command": "cat", "stdinBase64": "Yf9i", "closeStdin": true });
    let session = start(&client, arguments).await;
    outcome(&client, &session).await;
    let envelope = client.ask("sandbox_exec_poll", json!({ "execSessionId": session })).await;
    let warning = envelope["warnings"][0].as_str().unwrap();
    assert!(warning.contains("base64") && warning.contains(&session), "{warning}");
    let exact = json!({ "execSessionId": session, "encoding": "base64" });
    let envelope = client.ask("sandbox_exec_poll", exact).await;
    assert_eq!(envelope["data"]["events"][1]["event"]["data"], "Yf9i");
    assert!(envelope.get("warnings").is_none(), "{envelope}");
}

#[tokio::test]
async fn characters_cut_in_pieces_come_out_whole_however_one_reads() {
    let client = client_with_box().await;
    let session = start(&client, json!({ "command": "cat" })).await;
    let text = "aä€🦀z🦀€ä";
    let mut cursor = client.begun(&session).await;
    for byte in text.as_bytes() {
        cursor = echo(&client, &session, &[*byte], cursor).await;
    }
    client.data("sandbox_exec_write_stdin", json!({ "execSessionId": session, "close": true })).await;
    for page in [
        json!({}),
        json!({ "limit": 1 }),
        json!({ "limit": 2 }),
        json!({ "limit": 3 }),
        json!({ "maxBytes": 4 }),
    ] {
        let (read, last) = read_all(&client, &session, page.clone()).await;
        assert_eq!(read, text, "{page}");
        assert_eq!(last["exitStatus"]["code"], 0);
    }
}

#[tokio::test]
async fn half_a_character_waits_for_its_other_half() {
    let client = client_with_box().await;
    let session = start(&client, json!({ "command": "cat" })).await;
    let crab = "x🦀".as_bytes();
    let begun = client.begun(&session).await;
    let mut cursor = echo(&client, &session, &crab[..2], begun).await;
    cursor = echo(&client, &session, &crab[2..3], cursor).await;
    let held = poll(&client, &session, json!({ "cursor": begun })).await;
    // Past what was written to it, at most.
    assert_eq!(held["events"], json!([]));
    assert!(held["nextCursor"].as_u64().unwrap() <= begun + 1, "{held}");
    let (polled, _) = tokio::join!(
        poll(&client, &session, json!({ "cursor": begun, "waitMs": 60_000 })),
        echo(&client, &session, &crab[3..], cursor)
    );
    assert_eq!(polled["events"][0]["event"]["data"], "x🦀", "{polled}");
}

#[tokio::test]
async fn bytes_that_are_no_text_travel_as_base64() {
    let client = client_with_box().await;
    let bytes: Vec<u8> = (0..=255).collect();
    let arguments =
        json!({ "command": "cat", "stdinBase64": BASE64_STANDARD.encode(&bytes), "closeStdin": true });
    let session = start(&client, arguments).await;
    let (text, _) = read_all(&client, &session, json!({ "encoding": "base64" })).await;
    assert_eq!(BASE64_STANDARD.decode(text).unwrap(), bytes);
}

#[tokio::test]
async fn an_event_longer_than_the_answer_is_cut_and_can_be_read_whole() {
    let client = client_with_box().await;
    let long = "ä".repeat(1000);
    let session = start(&client, json!({ "command": "cat", "stdin": long, "closeStdin": true })).await;
    let (_, _) = read_all(&client, &session, json!({})).await;
    let all = poll(&client, &session, json!({})).await;
    let printed = all["events"].as_array().unwrap().iter().find(|event| event["event"]["kind"] == "stdout");
    let index = &printed.unwrap()["index"];
    for (encoding, returned) in [("utf8", 100), ("base64", 75)] {
        let arguments =
            json!({ "execSessionId": session, "cursor": index, "maxBytes": 101, "encoding": encoding });
        let envelope = client.ask("sandbox_exec_poll", arguments).await;
        assert_eq!(envelope["data"]["events"].as_array().unwrap().len(), 1);
        let cut = &envelope["truncated"][0];
        assert_eq!(
            (&cut["returnedBytes"], &cut["totalBytes"]),
            (&json!(returned), &json!(2000)),
            "{envelope}"
        );
        let next = format!("cursor {index}, limit 1");
        assert!(cut["hint"].as_str().unwrap().contains(&next), "{envelope}");
    }
    let whole = poll(&client, &session, json!({ "cursor": index, "limit": 1, "maxBytes": 2000 })).await;
    assert_eq!(whole["events"][0]["event"]["data"], long);
}

#[tokio::test]
async fn a_long_poll_wakes_up_when_something_is_printed() {
    let client = client_with_box().await;
    let session = start(&client, json!({ "command": "cat" })).await;
    let mut cursor = client.begun(&session).await;
    for round in 0..10 {
        let write = json!({ "execSessionId": session, "data": format!("round {round}\n") });
        let (polled, written) = tokio::join!(
            poll(&client, &session, json!({ "cursor": cursor, "waitMs": 60_000 })),
            client.data("sandbox_exec_write_stdin", write),
        );
        assert_eq!(written["written"], 8);
        assert_eq!(polled["events"][0]["event"]["data"], format!("round {round}\n"), "{polled}");
        assert_eq!(polled["done"], false);
        cursor = polled["nextCursor"].as_u64().unwrap();
    }
    // It wakes up at the end, too.
    let (polled, closed) = tokio::join!(
        poll(&client, &session, json!({ "cursor": cursor, "waitMs": 60_000 })),
        client.data("sandbox_exec_write_stdin", json!({ "execSessionId": session, "close": true })),
    );
    assert_eq!((&closed["stdinClosed"], &polled["done"]), (&json!(true), &json!(true)), "{polled}");
    let late = json!({ "execSessionId": session, "data": "more" });
    let error = client.error("sandbox_exec_write_stdin", late, "wrong_state").await;
    assert!(error["hint"].as_str().unwrap().contains("sandbox_exec_poll"), "{error}");
}

#[tokio::test]
async fn signals_go_by_name_and_by_number() {
    let client = client_with_box().await;
    for (signal, number) in
        [(json!("int"), 2), (json!(15), 15), (json!("SIGTERM"), 15), (json!("Quit"), 3), (json!("1"), 1)]
    {
        let session = start(&client, json!({ "command": "sleep", "args": ["1000"] })).await;
        let sent =
            client.data("sandbox_exec_signal", json!({ "execSessionId": session, "signal": signal })).await;
        assert_eq!((&sent["signaled"], &sent["signal"]), (&json!(true), &json!(number)));
        assert_eq!(outcome(&client, &session).await, ExecOutcome::Signaled { signal: number });
    }
    let session = start(&client, json!({ "command": "sleep", "args": ["1000"] })).await;
    for wrong in [json!("sigfoo"), json!("65"), json!(0), json!(65), json!(1.5)] {
        let arguments = json!({ "execSessionId": session, "signal": wrong });
        client.error("sandbox_exec_signal", arguments, "invalid_request").await;
    }
}

#[tokio::test]
async fn closing_ends_what_runs_and_may_be_said_twice() {
    let client = client_with_box().await;
    // One that ends when asked, one that must be killed.
    let polite = start(&client, json!({ "command": "cat" })).await;
    let stubborn =
        start(&client, json!({ "command": "trap '' TERM; echo ready; sleep 1000", "shell": true })).await;
    client.printed(&stubborn, "ready").await;
    for session in [&polite, &stubborn] {
        let closed = client.data("sandbox_exec_close", json!({ "execSessionId": session })).await;
        assert_eq!((&closed["closed"], &closed["wasRunning"]), (&json!(true), &json!(true)));
    }
    assert_ne!(outcome(&client, &polite).await, ExecOutcome::Killed { reason: KillReason::Request });
    assert_eq!(outcome(&client, &stubborn).await, ExecOutcome::Killed { reason: KillReason::Request });
    let again = client.data("sandbox_exec_close", json!({ "execSessionId": polite })).await;
    assert_eq!((&again["closed"], &again["wasRunning"]), (&json!(true), &json!(false)));
}

#[tokio::test]
async fn a_session_that_nobody_uses_has_its_stdin_closed() {
    let client = Client::with(Settings { session_ttl_ms: 20, ..Settings::default() }).await;
    make_box(&client).await;
    let first = start(&client, json!({ "command": "cat" })).await;
    let second = start(&client, json!({ "command": "cat", "stdin": "hello" })).await;
    // They end by themselves: nobody writes, nobody kills.
    assert_eq!(outcome(&client, &first).await, ExecOutcome::exited(0));
    assert_eq!(outcome(&client, &second).await, ExecOutcome::exited(0));
    // The task that looked after them ended with them, and a next session has one again.
    let third = start(&client, json!({ "command": "cat" })).await;
    assert_eq!(outcome(&client, &third).await, ExecOutcome::exited(0));
}

#[tokio::test]
async fn a_session_whose_key_has_ended_is_looked_after_all_the_same() {
    let mut client = Client::with(Settings { session_ttl_ms: 300, ..Settings::default() }).await;
    make_box(&client).await;
    let (engine, owner) = (client.call.engine().clone(), client.call.who.clone());
    let made = engine.create_key(&owner, KeySpec::default()).await.unwrap();
    client.call.who = engine.authenticate_key(&made.secret).await.unwrap();
    let session = start(&client, json!({ "command": "cat" })).await;
    engine.revoke_key(&owner, made.key.id.as_str()).await.unwrap();
    client.call.who = owner;
    let ended = timeout(Duration::from_secs(60), outcome(&client, &session)).await;
    assert_eq!(ended.expect("an end"), ExecOutcome::exited(0));
}

#[tokio::test]
async fn whoever_may_only_look_does_not_keep_a_session_from_its_end() {
    let mut client = Client::with(Settings { session_ttl_ms: 300, ..Settings::default() }).await;
    make_box(&client).await;
    let session = start(&client, json!({ "command": "cat" })).await;
    let owner = client.call.who.clone();
    client.call.who = Principal { access: engine::Access::ReadOnly, ..Principal::developer("reader") };
    client.error("sandbox_exec_close", json!({ "execSessionId": session }), "denied").await;
    // Again and again: what is refused does not count as use.
    let refused = async {
        loop {
            let write = json!({ "execSessionId": session, "data": "x" });
            client.error("sandbox_exec_write_stdin", write, "denied").await;
            let signal = json!({ "execSessionId": session, "signal": "int" });
            client.error("sandbox_exec_signal", signal, "denied").await;
            // Refusals wait for nothing, and the daemon has a session to sweep.
            tokio::task::yield_now().await;
        }
    };
    let which: SandboxRef = "box".parse().unwrap();
    let exec: ExecId = session.parse().unwrap();
    let ended = client.call.engine().wait_exec(&owner, &which, &exec, Some(Duration::from_secs(60)));
    let view = tokio::select! { view = ended => view.unwrap(), () = refused => unreachable!() };
    assert_eq!(view.outcome, Some(ExecOutcome::exited(0)));
}

#[tokio::test]
async fn sessions_are_listed_newest_first() {
    let client = client_with_box().await;
    let done = start(&client, json!({ "command": "true" })).await;
    outcome(&client, &done).await;
    let running = start(&client, json!({ "command": "cat", "tty": true })).await;
    let ids = |rows: &Value| -> Vec<String> {
        rows.as_array().unwrap().iter().map(|row| row["execSessionId"].as_str().unwrap().to_owned()).collect()
    };
    let all = client.data("sandbox_exec_list", json!({ "name": "box" })).await;
    assert_eq!(ids(&all), [running.clone(), done.clone()]);
    assert_eq!(
        (&all[0]["state"], &all[0]["tty"], &all[1]["exitCode"]),
        (&json!("running"), &json!(true), &json!(0))
    );
    let some = client.data("sandbox_exec_list", json!({ "name": "box", "state": "running" })).await;
    assert_eq!(ids(&some), [running]);
    let envelope = client.ask("sandbox_exec_list", json!({ "name": "box", "limit": 1 })).await;
    assert!(envelope["warnings"][0].as_str().unwrap().starts_with("1 older"), "{envelope}");
}

#[tokio::test]
async fn a_terminal_can_be_given_another_size() {
    let client = client_with_box().await;
    let session = start(&client, json!({ "command": "sh", "tty": true })).await;
    let size = json!({ "execSessionId": session, "rows": 50, "cols": 132 });
    client.data("sandbox_exec_resize", size.clone()).await;
    client
        .data("sandbox_exec_write_stdin", json!({ "execSessionId": session, "data": "stty size\nexit\n" }))
        .await;
    let (text, _) = read_all(&client, &session, json!({})).await;
    assert!(text.contains("50 132"), "{text:?}");
    client.error("sandbox_exec_resize", size, "wrong_state").await;
}

#[tokio::test]
async fn a_sandbox_started_for_a_session_stops_with_it() {
    let client = client_with_box().await;
    let which: SandboxRef = "box".parse().unwrap();
    let (engine, who) = (client.call.engine(), &client.call.who);
    engine.stop_sandbox(who, &which, None).await.unwrap();
    let arguments = json!({ "name": "box", "command": "cat", "startIfStopped": true });
    let started = client.data("sandbox_exec_start", arguments).await;
    assert_eq!(started["stopSandboxOnExit"], "box");
    assert_eq!(engine.sandbox(who, &which).await.unwrap().state, SandboxState::Running);
    client
        .data("sandbox_exec_write_stdin", json!({ "execSessionId": started["execSessionId"], "close": true }))
        .await;
    engine.wait_sandbox(who, &which, SandboxState::Stopped, None).await.unwrap();
}

#[tokio::test]
async fn a_session_outlives_the_daemon_and_belongs_to_its_namespace() {
    let client = client_with_box().await;
    let session = start(&client, json!({ "command": "cat" })).await;
    let cursor = client.begun(&session).await;
    let cursor = echo(&client, &session, b"before ", cursor).await;
    let mut client = client.restarted(|_home| {}).await;
    echo(&client, &session, b"after", cursor).await;
    client.data("sandbox_exec_write_stdin", json!({ "execSessionId": session, "close": true })).await;
    let (text, _) = read_all(&client, &session, json!({})).await;
    assert_eq!(text, "before after");

    let unknown = "exc-0000000000000";
    let words =
        |error: Value| error["message"].as_str().unwrap().replace(unknown, "X").replace(&session, "X");
    let missing = client.error("sandbox_exec_poll", json!({ "execSessionId": unknown }), "not_found").await;
    client.call.who = Principal::of_namespace("other", "other".parse().unwrap());
    let hidden = client.error("sandbox_exec_poll", json!({ "execSessionId": session }), "not_found").await;
    assert_eq!(words(hidden), words(missing));
    client.error("sandbox_exec_poll", json!({ "execSessionId": "../../etc" }), "not_found").await;
    client.error("sandbox_exec_close", json!({ "execSessionId": session }), "not_found").await;
}

#[tokio::test]
async fn a_poll_waits_for_what_it_names() {
    let client = client_with_box().await;
    let script = "read x; printf a; printf b; read x; echo ready; read x; exit 3";
    let shell = json!({ "command": "/bin/sh", "args": ["-c", script] });
    let session = start(&client, shell).await;
    let begun = client.begun(&session).await;
    // Without anything to come it says so, and does not wait for ever.
    let polled = poll(&client, &session, json!({ "cursor": begun, "until": "output", "waitMs": 1 })).await;
    assert_eq!((&polled["reached"], &polled["events"]), (&json!(false), &json!([])), "{polled:#}");
    let write =
        |until: &str| json!({ "execSessionId": session, "data": "\n", "until": until, "waitMs": 60_000 });
    let written = client.data("sandbox_exec_write_stdin", write("ab")).await;
    let output = &written["output"];
    // However many pieces it came in, it is one text.
    assert_eq!(output["events"][0]["event"]["data"], "ab", "{written:#}");
    assert_eq!(
        (&output["reached"], &output["done"], &written["written"]),
        (&json!(true), &json!(false), &json!(1))
    );
    let written = client.data("sandbox_exec_write_stdin", write("ready")).await;
    assert_eq!(written["output"]["events"][0]["event"]["data"], "ready\n", "{written:#}");
    let written = client.data("sandbox_exec_write_stdin", write("exit")).await;
    let output = &written["output"];
    assert_eq!((&output["done"], &output["exitStatus"]["code"]), (&json!(true), &json!(3)), "{written:#}");
    let all = poll(&client, &session, json!({ "until": "exit" })).await;
    assert_eq!(
        (&all["reached"], &all["events"][1]["event"]["data"]),
        (&json!(true), &json!("abready\n")),
        "{all:#}"
    );
    // A text that was never printed is not reached by the end.
    let never = poll(&client, &session, json!({ "until": "never", "waitMs": 60_000 })).await;
    assert_eq!((&never["reached"], &never["done"]), (&json!(false), &json!(true)));
    let empty = json!({ "execSessionId": session, "until": "" });
    client.error("sandbox_exec_poll", empty, "invalid_request").await;
}
