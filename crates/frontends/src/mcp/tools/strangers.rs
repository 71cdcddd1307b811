//! Someone of one namespace tries everything on what another has: every tool, every resource. A tool that is not in the
//! table fails the test.

use engine::{Follow, Principal};
use futures_util::StreamExt;
use sandbox::{Capability, ExecId, Namespace};
use serde_json::{Value, json};

use crate::mcp::{
    Call, resources,
    testing::{Client, PATIENCE, ask, native},
};

const SECRET: &str = "the secret of red";

/// Red's sandbox and command, by their names.
struct Red {
    name: &'static str,
    id: String,
    exec: String,
}

/// How a tool is tried.
enum Attempt {
    /// It aims at something of red's, and is refused.
    Refused(Vec<Value>),
    /// It names nothing; it answers, and tells nothing of red.
    Silent(Value),
}

fn attempt(tool: &str, target: &str, exec: &str) -> Option<Attempt> {
    use Attempt::{Refused, Silent};
    let on = |more: Value| {
        let mut arguments = json!({ "name": target });
        if let (Value::Object(arguments), Value::Object(more)) = (&mut arguments, more) {
            arguments.extend(more);
        }
        Refused(vec![arguments])
    };
    let path = "/root/secret";
    Some(match tool {
        "sandbox_create" | "sandbox_run" => return None,
        "sandbox_list"
        | "sandbox_status"
        | "sandbox_metrics_all"
        | "runtime_check"
        | "runtime_install"
        | "sandbox_secrets"
        | "toolset_list" => Silent(json!({})),
        "toolset_enable" => Silent(json!({ "toolsets": ["files"] })),
        "sandbox_stop" | "sandbox_remove" => Refused(vec![
            json!({ "name": target, "force": true }),
            json!({ "names": [target], "force": true }),
        ]),
        "sandbox_start"
        | "sandbox_drain"
        | "sandbox_wait"
        | "sandbox_pause"
        | "sandbox_resume"
        | "sandbox_inspect"
        | "sandbox_exec_list"
        | "sandbox_logs_read"
        | "sandbox_logs_stream"
        | "sandbox_metrics"
        | "sandbox_metrics_stream" => on(json!({})),
        "sandbox_ports" => Refused(vec![
            json!({ "name": target }),
            json!({ "name": target, "expose": { "port": 80, "public": true } }),
            json!({ "name": target, "withdraw": 80 }),
        ]),
        "sandbox_get_endpoint" => on(json!({ "port": 80 })),
        "sandbox_network" => on(json!({ "preset": "none" })),
        "sandbox_network_log" => on(json!({})),
        "sandbox_network_request" => on(json!({ "rules": ["api.example.org"], "reason": "a test" })),
        "sandbox_package_install" => on(json!({ "packages": ["numpy"] })),
        "sandbox_package_status" => Refused(vec![
            json!({ "name": target }),
            json!({ "name": target, "package": "numpy" }),
            json!({ "name": target, "jobId": "pkg-0123456789abc" }),
        ]),
        "sandbox_package_list" => on(json!({})),
        "sandbox_update" => on(json!({ "memoryMib": 64 })),
        "sandbox_renew" => on(json!({ "ttlSecs": 1, "onExpiry": "remove" })),
        "sandbox_exec" | "sandbox_shell" | "sandbox_exec_start" => on(json!({ "command": "true" })),
        "sandbox_run_code" => on(json!({ "code": "1", "create": false })),
        "code_context_create" | "code_context_list" => on(json!({})),
        "code_context_reset" | "code_context_remove" | "code_context_fork" => {
            on(json!({ "context": "python" }))
        }
        "code_interrupt" => Refused(vec![
            json!({ "name": target, "context": "python" }),
            json!({ "name": target, "execSessionId": exec }),
            json!({ "name": "own", "execSessionId": exec }),
        ]),
        "sandbox_exec_poll" | "sandbox_exec_close" => Refused(vec![json!({ "execSessionId": exec })]),
        "sandbox_exec_write_stdin" => {
            Refused(vec![json!({ "execSessionId": exec, "data": "x", "close": true })])
        }
        "sandbox_exec_signal" => Refused(vec![json!({ "execSessionId": exec, "signal": "kill" })]),
        "sandbox_exec_resize" => Refused(vec![json!({ "execSessionId": exec, "rows": 9, "cols": 9 })]),
        "sandbox_fs_read" | "sandbox_fs_stat" | "sandbox_fs_exists" | "sandbox_fs_link"
        | "sandbox_fs_remove" => on(json!({ "path": path })),
        "sandbox_fs_list" | "sandbox_fs_tree" => on(json!({ "path": "/root" })),
        "sandbox_fs_mkdir" => on(json!({ "path": "/root/new" })),
        "sandbox_fs_write" => on(json!({ "path": path, "content": "changed" })),
        "sandbox_fs_edit" => on(json!({ "path": path, "edits": [{ "oldText": "red", "newText": "x" }] })),
        "sandbox_fs_search" => on(json!({ "path": "/root", "grep": "secret" })),
        "sandbox_fs_rename" => on(json!({ "from": path, "to": "/root/gone" })),
        "sandbox_fs_copy" => Refused(vec![
            json!({ "name": target, "from": path, "to": "/root/copy" }),
            json!({ "name": target, "from": path, "to": "/root/copy", "toSandbox": "own" }),
            json!({ "name": "own", "from": "/root/own", "to": path, "toSandbox": target }),
        ]),
        "sandbox_fs_copy_from_host" | "sandbox_fs_copy_to_host" => {
            on(json!({ "hostPath": "/etc/hostname", "guestPath": path }))
        }
        "sandbox_ssh_exec" => on(json!({ "command": "cat /root/secret" })),
        "sandbox_sftp_read" | "sandbox_sftp_realpath" | "sandbox_sftp_readlink" => {
            on(json!({ "path": path }))
        }
        "sandbox_sftp_mkdir" => on(json!({ "path": "/root/new" })),
        "sandbox_sftp_write" => on(json!({ "path": path, "content": "changed" })),
        "sandbox_sftp_remove" => on(json!({ "path": path, "kind": "file" })),
        "sandbox_sftp_rename" => on(json!({ "from": path, "to": "/root/gone" })),
        "sandbox_sftp_symlink" => on(json!({ "target": "/", "linkPath": "/root/link" })),
        // In a namespace a name is one's own, so what is refused is what is not there.
        "volume_create" => Silent(json!({ "name": "red-volume" })),
        "volume_list" => Silent(json!({})),
        "volume_inspect" => Refused(vec![json!({ "name": "red-box" })]),
        "volume_remove" => Refused(vec![json!({ "name": "red-box" }), json!({ "names": [target] })]),
        "volume_fs_read" | "volume_fs_list" | "volume_fs_stat" | "volume_fs_exists" | "volume_fs_mkdir"
        | "volume_fs_remove" => Refused(vec![json!({ "name": "red-box", "path": "/secret" })]),
        "volume_fs_write" => Refused(vec![json!({ "name": "red-box", "path": "/secret", "content": "x" })]),
        "volume_fs_copy" | "volume_fs_rename" => {
            Refused(vec![json!({ "name": "red-box", "from": "/secret", "to": "/x" })])
        }
        // Images belong to no namespace. Who is of one may look at them, pull by name, and change what no name stands
        // for.
        "image_list" => Silent(json!({})),
        "image_inspect" => Silent(json!({ "reference": target })),
        "image_pull" => Refused(vec![json!({ "reference": "localhost:1/none", "insecure": true })]),
        "image_load" => Refused(vec![json!({ "path": "/etc/hostname" })]),
        "image_import" => Refused(vec![json!({ "path": "/etc/hostname", "reference": "spy" })]),
        "image_build" => Refused(vec![json!({ "contextPath": "/etc", "tag": "spy" })]),
        "image_save" => Refused(vec![json!({ "path": "/tmp/out.tar", "reference": "spy" })]),
        "image_tag" => Refused(vec![json!({ "reference": "host-image", "target": "spy" })]),
        "image_remove" => Refused(vec![json!({ "reference": "host-image", "force": true, "confirm": true })]),
        "image_prune" => Refused(vec![json!({ "confirm": true })]),
        "snapshot_create" => Refused(vec![
            json!({ "name": "spy", "fromSandbox": target }),
            json!({ "name": "red-snap", "fromSandbox": target, "force": true, "confirm": true }),
        ]),
        "snapshot_list" => Silent(json!({})),
        "snapshot_inspect" | "snapshot_verify" => Refused(vec![json!({ "pathOrName": "red-snap" })]),
        "snapshot_remove" => {
            Refused(vec![json!({ "pathOrName": "red-snap", "force": true, "confirm": true })])
        }
        "snapshot_reindex" => Silent(json!({})),
        "snapshot_save" | "snapshot_export" => {
            Refused(vec![json!({ "pathOrName": "red-snap", "out": "/tmp/out.tar" })])
        }
        "snapshot_load" | "snapshot_import" => Refused(vec![json!({ "archive": "/etc/hostname" })]),
        "sandbox_restore" => Refused(vec![
            json!({ "name": "spy", "snapshot": "red-snap" }),
            json!({ "name": "red-box", "snapshot": "red-snap", "replace": true }),
        ]),
        "sandbox_fork" => on(json!({ "names": ["spy"] })),
        "sandbox_diff" => on(json!({ "patch": true })),
        unknown => panic!("{unknown} is not in this table: say how a stranger would try it"),
    })
}

async fn red_has_things(red: &Client) -> Red {
    let made = red.data("sandbox_create", json!({ "name": "red-box" })).await;
    let write = json!({ "name": "red-box", "path": "/root/secret", "content": SECRET });
    red.data("sandbox_fs_write", write).await;
    let echo = json!({ "name": "red-box", "command": "echo", "args": [SECRET] });
    let echoed = red.data("sandbox_exec", echo).await["execSessionId"].clone();
    closed(red, &echoed.as_str().unwrap().parse().unwrap()).await;
    if red.has(Capability::Pause) {
        red.data("snapshot_create", json!({ "name": "red-snap", "fromSandbox": "red-box" })).await;
    }
    // Of the same name as the sandbox, so that whoever guesses one guesses the other.
    red.data("volume_create", json!({ "name": "red-box" })).await;
    red.data("volume_fs_write", json!({ "name": "red-box", "path": "/secret", "content": SECRET })).await;
    let started = red.data("sandbox_exec_start", json!({ "name": "red-box", "command": "cat" })).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    red.begun(&text(&started["execSessionId"])).await;
    Red { name: "red-box", id: text(&made["id"]), exec: text(&started["execSessionId"]) }
}

/// Waits until nothing more will be written about an exec: one entry follows its end.
async fn closed(red: &Client, exec: &ExecId) {
    let (engine, who) = (red.call.engine(), &red.call.who);
    let which = red.call.sandbox("red-box").unwrap();
    let n_entries =
        engine.exec_entries(who, &which, exec, 1, Follow::Yes).await.unwrap().count().await as u64;
    let is_closed = async {
        while engine.exec_view(who, &which, exec).await.unwrap().last_entry <= n_entries {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, is_closed).await.unwrap();
}

/// Everything of red's that could have changed.
async fn state_of(red: &Client, things: &Red) -> Value {
    let read = json!({ "name": things.name, "path": "/root/secret" });
    json!({
        "status": red.data("sandbox_status", json!({ "status": "all" })).await,
        "file": red.data("sandbox_fs_read", read).await,
        "volumes": red.data("volume_list", json!({})).await,
        "volumeFile": red.data("volume_fs_read", json!({ "name": "red-box", "path": "/secret" })).await,
        "directory": red.data("sandbox_fs_list", json!({ "name": things.name, "path": "/root" })).await,
        "execs": red.data("sandbox_exec_list", json!({ "name": things.name })).await,
    })
}

fn tells_of(answer: &Value, red: &Red) -> bool {
    let text = answer.to_string();
    text.contains(SECRET) || text.contains(&red.id) || text.contains(&red.exec) || text.contains(red.name)
}

async fn try_every_tool(stranger: &Call, things: &Red) {
    for tool in native().tools() {
        for target in [things.name, things.id.as_str()] {
            match attempt(tool.name, target, &things.exec) {
                Some(Attempt::Refused(attempts)) => {
                    for arguments in attempts {
                        let answer = ask(stranger.clone(), tool.name, arguments.clone()).await;
                        let code = answer["error"]["code"].as_str().unwrap_or_default();
                        let is_refused = matches!(code, "not_found" | "denied" | "host_path_denied");
                        assert!(is_refused, "{} {arguments}: {answer:#}", tool.name);
                        assert!(!answer.to_string().contains(SECRET), "{}: {answer:#}", tool.name);
                    }
                }
                Some(Attempt::Silent(arguments)) => {
                    let answer = ask(stranger.clone(), tool.name, arguments).await;
                    assert!(!tells_of(&answer, things), "{}: {answer:#}", tool.name);
                }
                None => {}
            }
        }
    }
}

async fn try_every_resource(stranger: &Call, Red { name, id, exec }: &Red) {
    let things = Red { name, id: id.clone(), exec: exec.clone() };
    for entry in resources::list(stranger).await {
        assert!(!tells_of(&json!(entry.uri), &things), "{}", entry.uri);
        for body in resources::read(stranger, &entry.uri).await.unwrap_or_default() {
            assert!(!tells_of(&json!(format!("{:?}", body.content)), &things), "{}", entry.uri);
        }
    }
    for target in [*name, id.as_str()] {
        let of_sandbox = format!("warren://sandboxes/{target}");
        for uri in [
            of_sandbox.clone(),
            format!("{of_sandbox}/files/root/secret"),
            format!("{of_sandbox}/execs/{exec}"),
            format!("{of_sandbox}/execs/{exec}/output"),
            format!("{of_sandbox}/execs/{exec}/outputs/1"),
        ] {
            assert!(resources::read(stranger, &uri).await.is_err(), "{uri} can be read");
            assert!(resources::watch(stranger, &uri).await.is_err(), "{uri} can be watched");
        }
    }
}

#[tokio::test]
async fn a_stranger_reaches_nothing_of_another_namespace() {
    let (red_space, blue_space): (Namespace, Namespace) = ("red".parse().unwrap(), "blue".parse().unwrap());
    let mut client = Client::new().await;
    client.call.namespace = Some(red_space.clone());
    let things = red_has_things(&client).await;

    let blue =
        Call { who: Principal::of_namespace("blue", blue_space), namespace: None, ..client.call.clone() };
    let own = ask(blue.clone(), "sandbox_create", json!({ "name": "own" })).await;
    assert_eq!(own["ok"], true, "{own:#}");
    let write = json!({ "name": "own", "path": "/root/own", "content": "mine" });
    assert_eq!(ask(blue.clone(), "sandbox_fs_write", write).await["ok"], true);

    let before = state_of(&client, &things).await;
    // Asked plainly, and as someone who names the other namespace.
    for namespace in [None, Some(red_space)] {
        let stranger = Call { namespace: namespace.clone(), ..blue.clone() };
        try_every_tool(&stranger, &things).await;
        try_every_resource(&stranger, &things).await;
        if namespace.is_some() {
            let run = json!({ "name": "spy", "command": "true" });
            for (tool, arguments) in [("sandbox_create", json!({ "name": "spy" })), ("sandbox_run", run)] {
                let answer = ask(stranger.clone(), tool, arguments).await;
                assert_eq!(answer["error"]["code"], "denied", "{tool}: {answer:#}");
            }
        }
    }
    assert_eq!(state_of(&client, &things).await, before);
}
