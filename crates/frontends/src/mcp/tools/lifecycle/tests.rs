//! Sandboxes through their lives, as a client sees them.

use std::time::Duration;

use engine::Principal;
use sandbox::{Capability, ExecSpec, KeySpec};
use serde_json::{Value, json};

use crate::mcp::{
    Settings,
    call::Session,
    testing::{Client, PATIENCE},
};

async fn with(names: &[&str]) -> Client {
    let client = Client::new().await;
    for name in names {
        client
            .data("sandbox_create", json!({ "name": name, "labels": { "team": "red", "name": name } }))
            .await;
    }
    client
}

fn names(rows: &Value) -> Vec<&str> {
    rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
}

async fn status(client: &Client, name: &str) -> Value {
    client.data("sandbox_status", json!({ "name": name })).await[0]["status"].clone()
}

/// Starts a command that runs until it is stopped.
async fn keep_busy(client: &Client, name: &str) {
    let which = client.call.sandbox(name).unwrap();
    let spec = ExecSpec::argv(["sleep", "1000"]);
    client.call.engine().exec(&client.call.who, &which, spec).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_is_stopped_started_paused_resumed_and_removed() {
    let client = with(&["web"]).await;
    let web = || json!({ "name": "web" });
    let can_pause = client.has(Capability::Pause);
    for (tool, first, again) in [
        (
            "sandbox_pause",
            json!({ "paused": true, "status": "paused" }),
            json!({ "paused": false, "alreadyPaused": true, "status": "paused" }),
        ),
        (
            "sandbox_resume",
            json!({ "resumed": true, "status": "running" }),
            json!({ "resumed": false, "alreadyRunning": true, "status": "running" }),
        ),
        (
            "sandbox_stop",
            json!({ "stopped": true, "status": "stopped" }),
            json!({ "stopped": false, "alreadyStopped": true, "status": "stopped" }),
        ),
        (
            "sandbox_start",
            json!({ "started": true, "status": "running" }),
            json!({ "started": false, "alreadyRunning": true, "status": "running" }),
        ),
    ] {
        if !can_pause && ["sandbox_pause", "sandbox_resume"].contains(&tool) {
            continue;
        }
        for expected in [first, again] {
            let mut expected = expected;
            expected["name"] = json!("web");
            expected["ok"] = json!(true);
            assert_eq!(client.data(tool, web()).await, json!([expected]), "{tool}");
        }
    }
    let error = client.error("sandbox_remove", web(), "wrong_state").await;
    assert!(error["hint"].as_str().unwrap().contains("sandbox_stop"), "{error}");
    let removed = client.data("sandbox_remove", json!({ "name": "web", "force": true })).await;
    assert_eq!(removed, json!([{ "name": "web", "ok": true, "removed": true }]));
    for tool in
        ["sandbox_start", "sandbox_stop", "sandbox_status", "sandbox_wait", "sandbox_remove", "sandbox_renew"]
    {
        let error = client.error(tool, web(), "not_found").await;
        assert!(error["hint"].as_str().unwrap().contains("sandbox_list"), "{tool}: {error}");
    }
    client.error("sandbox_inspect", web(), "not_found").await;
}

#[tokio::test]
async fn one_whose_record_cannot_be_read_is_removed_by_force() {
    let client = with(&["a", "b"]).await;
    let id = client.data("sandbox_inspect", json!({ "name": "a" })).await["id"].clone();
    let client = client
        .restarted(|home| {
            let database = rusqlite::Connection::open(home.join("warren.db")).unwrap();
            database.execute_batch("UPDATE sandboxes SET state = 'dancing' WHERE name = 'a'").unwrap();
        })
        .await;
    assert_eq!(names(&client.data("sandbox_list", json!({})).await), ["b"]);
    let warnings = client.ask("runtime_check", json!({})).await["warnings"].to_string();
    assert!(warnings.contains(id.as_str().unwrap()), "{warnings}");
    client.error("sandbox_remove", json!({ "name": id }), "internal").await;
    let rows = client.data("sandbox_remove", json!({ "name": id, "force": true })).await;
    assert_eq!(rows, json!([{ "name": id, "ok": true, "removed": true }]));
    assert_eq!(client.backend.live().len(), 1);
    assert!(client.ask("runtime_check", json!({})).await.get("warnings").is_none());
}

#[tokio::test]
async fn refusals_name_the_tool_that_leads_on() {
    let client = with(&["web"]).await;
    if client.has(Capability::Pause) {
        client.data("sandbox_pause", json!({ "name": "web" })).await;
        let error = client.error("sandbox_start", json!({ "name": "web" }), "wrong_state").await;
        assert!(error["hint"].as_str().unwrap().contains("sandbox_resume"), "{error}");
    }
    client.data("sandbox_stop", json!({ "name": "web", "force": true })).await;
    for tool in ["sandbox_pause", "sandbox_resume", "sandbox_metrics"] {
        let error = client.error(tool, json!({ "name": "web" }), "wrong_state").await;
        assert!(error["hint"].as_str().unwrap().contains("sandbox_start"), "{tool}: {error}");
    }
}

#[tokio::test]
async fn each_target_gets_its_own_answer() {
    let client = with(&["a", "b", "c"]).await;
    if !client.has(Capability::Pause) {
        return;
    }
    client.data("sandbox_pause", json!({ "name": "b" })).await;
    client.data("sandbox_stop", json!({ "name": "a" })).await;
    let envelope = client.ask("sandbox_start", json!({ "names": ["c", "b", "a", "nope", "a"] })).await;
    let rows = &envelope["data"];
    assert_eq!(names(rows), ["a", "b", "c", "nope"], "{envelope:#}");
    assert_eq!((&rows[0]["started"], &rows[2]["alreadyRunning"]), (&json!(true), &json!(true)));
    assert_eq!((&rows[1]["ok"], &rows[1]["error"]["code"]), (&json!(false), &json!("wrong_state")));
    assert_eq!(rows[3]["error"]["code"], "not_found");
    assert_eq!(envelope["warnings"], json!(["2 of 4 sandboxes failed; see their rows."]));

    let error = client.error("sandbox_stop", json!({ "names": ["no", "nope"] }), "not_found").await;
    assert_eq!(names(&error["details"]["targets"]), ["no", "nope"]);
    let error = client.error("sandbox_stop", json!({ "names": ["a/b"] }), "invalid_request").await;
    assert_eq!(error["details"]["targets"][0]["ok"], false);
}

#[tokio::test]
async fn sandboxes_are_selected_by_names_labels_and_status() {
    let client = with(&["a", "b", "c"]).await;
    if !client.has(Capability::Pause) {
        return;
    }
    client.data("sandbox_stop", json!({ "name": "b" })).await;
    client.data("sandbox_pause", json!({ "name": "c" })).await;
    for (selector, expected) in [
        (json!({}), vec!["a", "b", "c"]),
        (json!({ "status": "all" }), vec!["a", "b", "c"]),
        (json!({ "status": "running" }), vec!["a"]),
        (json!({ "status": "stopped" }), vec!["b"]),
        (json!({ "status": "paused" }), vec!["c"]),
        (json!({ "status": "crashed" }), vec![]),
        (json!({ "labels": { "team": "red", "name": "c" } }), vec!["c"]),
        (json!({ "labels": { "team": "blue" } }), vec![]),
        (json!({ "name": "a", "labels": { "name": "b" } }), vec!["a", "b"]),
        (json!({ "names": ["a", "b"], "status": "stopped" }), vec!["b"]),
    ] {
        assert_eq!(names(&client.data("sandbox_list", selector.clone()).await), expected, "{selector}");
    }
    // Unlike the list, the status shows what runs unless something is named.
    assert_eq!(names(&client.data("sandbox_status", json!({})).await), ["a"]);
    assert_eq!(names(&client.data("sandbox_status", json!({ "names": ["b", "c"] })).await), ["b", "c"]);
    for tool in
        ["sandbox_start", "sandbox_stop", "sandbox_drain", "sandbox_wait", "sandbox_remove", "sandbox_pause"]
    {
        let error = client.error(tool, json!({ "labels": {}, "names": [] }), "invalid_request").await;
        assert_eq!(error["message"], "at least one selector is required", "{tool}");
    }
    let envelope = client.ask("sandbox_stop", json!({ "labels": { "team": "blue" } })).await;
    assert_eq!(envelope["warnings"], json!(["No sandbox matches."]));
    let error = client.error("sandbox_list", json!({ "status": "runing" }), "invalid_request").await;
    assert!(error["hint"].as_str().unwrap().contains("running"), "{error}");
    let error = client.error("sandbox_stop", json!({ "nmae": "a" }), "invalid_request").await;
    assert!(error["hint"].as_str().unwrap().contains("name"), "{error}");
}

#[tokio::test]
async fn force_on_what_is_not_named_needs_a_word_more() {
    let client = with(&["a", "b"]).await;
    for tool in ["sandbox_stop", "sandbox_remove"] {
        for selector in [
            json!({ "labels": { "team": "red" } }),
            json!({ "status": "all" }),
            json!({ "name": "a", "labels": { "name": "b" } }),
        ] {
            let mut arguments = selector;
            arguments["force"] = json!(true);
            let error = client.error(tool, arguments, "dangerous_operation_disabled").await;
            assert!(error["hint"].as_str().unwrap().contains("confirm: true"), "{error}");
        }
    }
    assert_eq!(client.backend.live().len(), 2);
    client.data("sandbox_stop", json!({ "status": "running", "force": true, "confirm": true })).await;
    // A removal cannot be undone, by force or not: others may have meant to start them again.
    let by_labels = json!({ "labels": { "name": "a" } });
    let error = client.error("sandbox_remove", by_labels, "dangerous_operation_disabled").await;
    assert!(!error["message"].as_str().unwrap().contains("force"), "{error}");
    assert_eq!(names(&client.data("sandbox_list", json!({})).await), ["a", "b"]);
    client.data("sandbox_remove", json!({ "labels": { "name": "a" }, "confirm": true })).await;
    assert_eq!(names(&client.data("sandbox_list", json!({})).await), ["b"]);

    let client = Client::with(Settings { dangerous_enabled: true, ..Settings::default() }).await;
    client.data("sandbox_create", json!({ "name": "a" })).await;
    client.data("sandbox_remove", json!({ "status": "all", "force": true })).await;
    assert!(client.backend.kept().is_empty());
}

#[tokio::test]
async fn a_long_list_comes_in_pages() {
    let client = with(&["a", "b", "c", "d", "e"]).await;
    let (mut seen, mut cursor) = (Vec::new(), Value::Null);
    for _ in 0..3 {
        let envelope = client.ask("sandbox_list", json!({ "limit": 2, "cursor": cursor })).await;
        seen.extend(names(&envelope["data"]).into_iter().map(ToOwned::to_owned));
        cursor = json!(seen.last());
        let is_last = seen.len() == 5;
        assert_eq!(envelope.get("warnings").is_none(), is_last, "{envelope:#}");
        if !is_last {
            assert!(
                envelope["warnings"][0].as_str().unwrap().contains(&format!("\"cursor\":{cursor}")),
                "{envelope}"
            );
        }
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e"]);
    assert_eq!(client.data("sandbox_list", json!({ "cursor": "e" })).await, json!([]));
}

#[tokio::test]
async fn a_list_that_is_too_long_for_an_answer_names_the_call_for_the_rest() {
    let client = Client::with(Settings { max_output_bytes: Some(600), ..Settings::default() }).await;
    for name in ["a", "b", "c", "d", "e"] {
        client.data("sandbox_create", json!({ "name": name })).await;
    }
    let envelope = client.ask("sandbox_list", json!({})).await;
    let seen = names(&envelope["data"]);
    let (n_seen, last) = (seen.len(), seen.last().copied().unwrap());
    assert!((1..5).contains(&n_seen), "{envelope:#}");
    let cut = &envelope["truncated"][0];
    let expected = format!("{n_seen} of 5 sandboxes are shown: call sandbox_list {{\"cursor\":\"{last}\"}}");
    assert!(cut["hint"].as_str().unwrap().starts_with(&expected), "{cut}");
    assert!(cut["returnedBytes"].as_u64().unwrap() <= 600, "{cut}");
    let rest = client.ask("sandbox_list", json!({ "cursor": last })).await;
    assert_ne!(names(&rest["data"])[0], last);
    // Who says how many gets as many.
    assert_eq!(names(&client.data("sandbox_list", json!({ "limit": 5 })).await).len(), 5);
    let status = client.ask("sandbox_status", json!({})).await;
    assert_eq!(names(&status["data"]).len(), n_seen, "{status:#}");
}

#[tokio::test]
async fn a_list_shows_what_matters_and_an_inspection_all_but_secrets() {
    let client = Client::new().await;
    let env = json!({ "API_TOKEN": "t0p", "PLAIN": "shown", "DB": "pg://u:hunter2@h/x" });
    client.data("sandbox_create", json!({ "name": "web", "env": env, "maxDuration": 60 })).await;
    let row = client.data("sandbox_list", json!({})).await[0].clone();
    for field in ["id", "status", "image", "labels", "createdAt", "updatedAt", "expiresAt", "runningExecs"] {
        assert!(!row[field].is_null(), "{field} in {row}");
    }
    let detail = client.data("sandbox_inspect", json!({ "name": row["id"] })).await;
    assert_eq!(
        (&detail["name"], &detail["state"], &detail["namespace"]),
        (&json!("web"), &json!("running"), &json!("default"))
    );
    assert_eq!(detail["isolation"]["backend"], "namespace");
    let shown = &detail["config"]["process"]["env"];
    assert_eq!(
        (&shown["API_TOKEN"], &shown["DB"], &shown["PLAIN"]),
        (&json!("[redacted]"), &json!("[redacted]"), &json!("shown"))
    );
    assert!(!detail.to_string().contains("hunter2") && !detail.to_string().contains("t0p"), "{detail:#}");
}

#[tokio::test]
async fn a_renewal_changes_what_it_names_and_keeps_the_rest() {
    let client = Client::new().await;
    client.data("sandbox_create", json!({ "name": "web", "maxDuration": 60, "idleTimeout": 30 })).await;
    let before = client.data("sandbox_list", json!({})).await[0]["expiresAt"].clone();
    let row = client
        .data("sandbox_renew", json!({ "name": "web", "ttlSecs": 6000, "onExpiry": "remove" }))
        .await[0]
        .clone();
    assert!(row["expiresAt"].as_str() > before.as_str(), "{row}");
    assert_eq!(
        (&row["renewed"], &row["idleSecs"], &row["onExpiry"]),
        (&json!(true), &json!(30), &json!("remove"))
    );
    let row =
        client.data("sandbox_renew", json!({ "name": "web", "ttlSecs": 0, "idleSecs": 0 })).await[0].clone();
    assert!(row.get("expiresAt").is_none() && row.get("idleSecs").is_none(), "{row}");
    let huge = json!({ "name": "web", "ttlSecs": u64::MAX });
    assert_eq!(client.data("sandbox_renew", huge).await[0]["renewed"], true);
}

#[tokio::test]
async fn limits_change_while_a_sandbox_runs() {
    let client = Client::new().await;
    client.data("sandbox_create", json!({ "name": "web", "memoryMib": 128 })).await;
    let row = client.data("sandbox_update", json!({ "name": "web", "memoryMib": 256, "cpus": 0.5 })).await[0]
        .clone();
    assert_eq!(
        (&row["memoryMib"], &row["cpus"], &row["status"]),
        (&json!(256), &json!(0.5), &json!("running"))
    );
    let error = client.error("sandbox_update", json!({ "name": "web" }), "invalid_request").await;
    assert!(error["hint"].as_str().unwrap().contains("memoryMib"), "{error}");
}

#[tokio::test]
async fn waiting_ends_with_the_sandbox_or_with_the_time() {
    let client = with(&["a", "b"]).await;
    client.data("sandbox_stop", json!({ "name": "b" })).await;
    let rows = client.data("sandbox_wait", json!({ "names": ["a", "b"], "timeoutMs": 500 })).await;
    assert_eq!((&rows[0]["timedOut"], &rows[0]["status"]), (&json!(true), &json!("running")));
    assert_eq!((&rows[1]["timedOut"], &rows[1]["status"]), (&json!(false), &json!("stopped")));
    assert!(
        rows[1]["observedAt"].is_string() && rows[1]["exitCode"].is_null() && rows[1]["signal"].is_null()
    );

    let waited = client.data("sandbox_wait", json!({ "name": "a", "timeoutMs": 0 }));
    let (rows, _) = tokio::join!(waited, client.data("sandbox_stop", json!({ "name": "a" })));
    assert_eq!(rows[0]["status"], "stopped");

    // One that ended by itself has ended.
    client.data("sandbox_start", json!({ "name": "a" })).await;
    assert!(client.backend.vanish(&client.backend.live()[0]));
    let rows = client.data("sandbox_wait", json!({ "name": "a" })).await;
    assert!(rows[0]["timedOut"] == false && rows[0]["reason"].is_string(), "{rows}");
}

#[tokio::test]
async fn a_cancelled_wait_ends_and_says_so() {
    let client = with(&["a"]).await;
    let waited = client.error("sandbox_wait", json!({ "name": "a", "timeoutMs": 0 }), "cancelled");
    let cancel = async { client.call.cancelled.cancel() };
    tokio::join!(waited, cancel);
}

#[tokio::test]
async fn a_drain_takes_no_more_commands_and_outlives_the_call() {
    let client = with(&["busy", "free", "off"]).await;
    keep_busy(&client, "busy").await;
    client.data("sandbox_stop", json!({ "name": "off" })).await;
    let error = client.error("sandbox_drain", json!({ "name": "busy", "timeoutMs": 5 }), "timed_out").await;
    assert!(error["hint"].as_str().unwrap().contains("sandbox_drain"), "{error}");
    let takes_commands_again = async {
        while status(&client, "busy").await != "running" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, takes_commands_again).await.unwrap();

    let rows = client.data("sandbox_drain", json!({ "status": "all" })).await;
    assert_eq!(rows[0], json!({ "name": "busy", "ok": true, "drainRequested": true, "status": "draining" }));
    assert_eq!((&rows[1]["drainRequested"], &rows[2]["drainRequested"]), (&json!(true), &json!(false)));
    let which = client.call.sandbox("busy").unwrap();
    let refused = client.call.engine().exec(&client.call.who, &which, ExecSpec::argv(["true"])).await;
    assert_eq!(refused.unwrap_err().kind(), sandbox::ErrorKind::WrongState);
    client.data("sandbox_wait", json!({ "name": "free", "timeoutMs": 60_000 })).await;
    assert_eq!(names(&client.data("sandbox_list", json!({ "status": "draining" })).await), ["busy"]);
    assert_eq!(status(&client, "free").await, "stopped");
    client.data("sandbox_stop", json!({ "name": "busy", "force": true })).await;
}

#[tokio::test]
async fn other_namespaces_do_not_exist_for_a_call() {
    let mut client = with(&["a"]).await;
    client.call.namespace = Some("blue".parse().unwrap());
    client.data("sandbox_create", json!({ "name": "a" })).await;
    client.data("sandbox_create", json!({ "name": "b" })).await;
    assert_eq!(names(&client.data("sandbox_list", json!({})).await), ["a", "b"]);
    let blue = client.data("sandbox_inspect", json!({ "name": "a" })).await;
    client.call.namespace = None;
    assert_eq!(names(&client.data("sandbox_list", json!({})).await), ["a"]);
    // Who may see every namespace can name what is elsewhere by its id.
    let both = client.data("sandbox_list", json!({ "names": ["a", blue["id"]] })).await;
    assert_eq!(names(&both), ["a", "a"]);
    client.call.who = Principal::of_namespace("key", "default".parse().unwrap());
    client.call.session = Session::kept();
    assert_eq!(names(&client.data("sandbox_list", json!({})).await), ["a"]);
    client.error("sandbox_stop", json!({ "name": "b" }), "not_found").await;
    client.data("sandbox_remove", json!({ "status": "all", "force": true, "confirm": true })).await;
    assert_eq!(client.backend.live().len(), 2);
    assert_eq!(client.data("sandbox_metrics_all", json!({})).await, json!({}));
}

#[tokio::test]
async fn progress_is_told_target_by_target() {
    let mut client = with(&["a", "b"]).await;
    let (send, mut told) = tokio::sync::mpsc::unbounded_channel();
    client.call.progress = crate::mcp::call::Progress::new(move |step| {
        send.send(step).unwrap();
        Box::pin(async {})
    });
    client
        .data(
            "sandbox_stop",
            json!({ "names": ["a", "b"], "timeoutMs": Duration::from_secs(1).as_millis() as u64 }),
        )
        .await;
    let steps = [told.try_recv().unwrap(), told.try_recv().unwrap()];
    assert_eq!(steps.map(|step| (step.done, step.total)), [(1.0, Some(2.0)), (2.0, Some(2.0))]);
}

#[tokio::test]
async fn a_wait_without_a_limit_of_its_own_has_the_default_one() {
    let client = Client::with(Settings { default_timeout_ms: 5, ..Settings::default() }).await;
    client.data("sandbox_create", json!({ "name": "a" })).await;
    let rows = client.data("sandbox_wait", json!({ "name": "a" })).await;
    assert_eq!((&rows[0]["timedOut"], &rows[0]["status"]), (&json!(true), &json!("running")));
}

#[tokio::test]
async fn who_has_as_many_as_allowed_is_told_to_remove_one() {
    let mut client = Client::new().await;
    let spec = KeySpec { max_sandboxes: Some(1), ..KeySpec::default() };
    let key = client.call.engine().create_key(&client.call.who, spec).await.unwrap();
    client.call.who = client.call.engine().authenticate_key(&key.secret).await.unwrap();
    client.data("sandbox_create", json!({ "name": "a" })).await;
    let error = client.error("sandbox_create", json!({ "name": "b" }), "limit_reached").await;
    assert!(error["hint"].as_str().unwrap().contains("sandbox_remove"), "{error}");
    let command = json!({ "name": "a", "command": "true", "env": { "A=B": "x" } });
    let error = client.error("sandbox_exec", command, "invalid_request").await;
    let told = error["message"].as_str().unwrap();
    assert!(error["hint"].as_str().unwrap().contains(told), "{error}");
}
