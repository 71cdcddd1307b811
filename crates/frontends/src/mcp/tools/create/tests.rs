//! `sandbox_create` as a client meets it.

use std::time::Duration;

use engine::ByteStream;
use futures_util::{FutureExt, TryStreamExt};
use sandbox::{BackendError, ByteSize, Capability, KeySpec};
use serde_json::{Value, json};

use super::create_schema;
use crate::mcp::{
    Call, HostPolicy, HostRoot, Progress, Settings,
    testing::{Client, PATIENCE, ask},
};

async fn read(call: &Call, sandbox: &str, path: &str) -> String {
    let which = call.sandbox(sandbox).unwrap();
    let (_, bytes): (_, ByteStream) =
        call.engine().read_file(&call.who, &which, path, 0, None).await.unwrap();
    let bytes: Vec<_> = bytes.try_collect().await.unwrap();
    String::from_utf8(bytes.concat()).unwrap()
}

/// Everything left behind: sandboxes on record, places, files.
async fn left(client: &Client) -> (usize, usize, usize) {
    let listed = client.data("sandbox_list", json!({})).await;
    (listed.as_array().unwrap().len(), client.backend.live().len(), client.backend.kept().len())
}

#[tokio::test]
async fn a_sandbox_is_made_as_asked_and_runs() {
    let client = Client::new().await;
    let envelope = client
        .ask(
            "sandbox_create",
            json!({
                "name": "web", "image": "host", "cpus": 2, "memoryMib": 64, "workdir": "/srv",
                "env": { "A": "flat", "B": "flat" }, "labels": { "team": "red" }, "hostname": "inside",
                "maxDuration": 3600, "idleTimeout": 60, "onExpiry": "remove",
                "resources": { "cpus": 0.5, "diskMib": 100 },
                "process": { "env": { "B": "grouped" }, "labels": { "tier": "x" }, "user": "1000:1000" },
                "lifecycle": { "maxDurationSecs": 7200, "detached": true },
                "network": { "disabled": true },
            }),
        )
        .await;
    assert_eq!(envelope["data"]["name"], "web", "{envelope:#}");
    assert_eq!(envelope["data"]["status"], "running");
    assert!(envelope["data"]["id"].as_str().unwrap().starts_with("sbx-"));
    assert!(envelope["data"]["expiresAt"].as_str().unwrap().ends_with('Z'));
    let warnings = envelope["warnings"].to_string();
    assert!(!warnings.contains("network"), "{warnings}");

    let detail = client.data("sandbox_inspect", json!({ "name": "web" })).await;
    let config = &detail["config"];
    assert_eq!(config["resources"]["cpus"], 0.5);
    assert_eq!(
        (&config["resources"]["memoryMib"], &config["resources"]["diskMib"]),
        (&json!(64), &json!(100))
    );
    assert_eq!(
        (&config["process"]["env"]["A"], &config["process"]["env"]["B"]),
        (&json!("flat"), &json!("grouped"))
    );
    assert_eq!(config["process"]["labels"], json!({ "team": "red", "tier": "x" }));
    assert_eq!(
        (&config["process"]["workdir"], &config["process"]["user"]),
        (&json!("/srv"), &json!("1000:1000"))
    );
    assert_eq!(config["hostname"], "inside");
    assert_eq!(
        config["lifecycle"],
        json!({ "maxDurationSecs": 7200.0, "idleTimeoutSecs": 60.0, "onExpiry": "remove" })
    );
}

#[tokio::test]
async fn a_name_is_made_up_and_a_request_sent_twice_makes_one() {
    let client = Client::new().await;
    let ask =
        json!({ "requestId": "r-1", "patches": [{ "kind": "append", "path": "/root/log", "content": "x" }] });
    let first = client.data("sandbox_create", ask.clone()).await;
    let again = client.data("sandbox_create", ask).await;
    assert_eq!(first["id"], again["id"]);
    let other = client.error("sandbox_create", json!({ "requestId": "r-1" }), "invalid_request").await;
    assert_eq!(other["message"], "requestId r-1 belongs to another request");
    assert_eq!(left(&client).await, (1, 1, 1));
    assert_eq!(read(&client.call, first["name"].as_str().unwrap(), "/root/log").await, "x");
}

#[tokio::test]
async fn requests_sent_at_once_make_one_with_its_files_written_once() {
    let client = Client::new().await;
    let patch = json!({ "kind": "append", "path": "/root/log", "content": "x" });
    let fields =
        json!({ "name": "web", "requestId": "r-2", "lifecycle": { "replace": true }, "patches": [patch] });
    let asked = (0..8).map(|_| client.data("sandbox_create", fields.clone()));
    let made = futures_util::future::join_all(asked).await;
    assert!(made.iter().all(|one| one["id"] == made[0]["id"]), "{made:#?}");
    assert_eq!(read(&client.call, "web", "/root/log").await, "x");
    assert_eq!(left(&client).await, (1, 1, 1));
}

#[tokio::test]
async fn what_this_version_cannot_do_is_refused_by_name_and_makes_nothing() {
    let client = Client::new().await;
    let disk = |field: &str, value: &str| json!({ "mounts": [{ "kind": "disk", "guestPath": "/x", "hostPath": "/y", field: value }] });
    for (fields, named) in [
        (disk("format", "qcow2"), "mounts[0].format qcow2"),
        (disk("format", "vmdk"), "vmdk"),
        (disk("fstype", "xfs"), "xfs"),
        (
            json!({ "secrets": [{ "envVar": "A", "value": "b", "allowedHost": "c", "onViolation": "block-and-terminate" }] }),
            "secrets[0]: onViolation block-and-terminate",
        ),
        (json!({ "network": { "dns": { "allowRebind": true } } }), "network.dns.allowRebind"),
        (json!({ "network": { "tls": { "ports": [443] } } }), "network.tls"),
        (json!({ "network": { "tls": { "blockQuic": false } } }), "network.tls"),
        (json!({ "network": { "rules": ["allow:ingress@private"] } }), "network.rules[0]"),
        (json!({ "network": { "ipv4Pool": "x" } }), "network.ipv4Pool"),
        (json!({ "network": { "ipv6Pool": "x" } }), "network.ipv6Pool"),
        (json!({ "network": { "trustHostCas": true } }), "network.trustHostCas"),
    ] {
        let error = client.error("sandbox_create", fields, "unsupported").await;
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
        assert!(error["hint"].as_str().unwrap().ends_with('.'), "{error}");
        assert_eq!(error["retryable"], false);
    }
    assert_eq!(left(&client).await, (0, 0, 0));
}

#[tokio::test]
async fn a_network_in_microsandboxs_words_is_a_policy() {
    let client = Client::new().await;
    let network = json!({ "policy": "none", "rules": ["deny@*.evil.example"], "maxConnections": 9,
        "dns": { "nameservers": ["9.9.9.9:53"], "allowRebind": false, "queryTimeoutMs": 700 },
        "tls": { "blockQuic": true } });
    let made = client.data("sandbox_create", json!({ "name": "lab", "network": network })).await;
    let policy = client.data("sandbox_network", json!({ "name": "lab" })).await;
    let rules = json!(["deny **.evil.example"]);
    assert_eq!((&policy["preset"], &policy["rules"]), (&json!("none"), &rules));
    assert_eq!((&made["network"], &made["networkRules"]), (&json!("none"), &rules));
    let seen = client.data("sandbox_inspect", json!({ "name": "lab" })).await;
    assert_eq!(seen["config"]["network"], json!({ "preset": "none", "rules": rules }));
    let which = engine::SandboxRef::new("lab", None).unwrap();
    let view = client.call.engine().sandbox(&client.call.who, &which).await.unwrap();
    assert_eq!((view.plan.network.limits.connections, view.plan.network.dns.query_timeout_ms), (9, 700));
    for (network, named) in [
        (json!({ "policy": "none", "preset": "none" }), "network.policy"),
        (json!({ "policy": "everything" }), "everything"),
        (json!({ "disabled": true, "policy": "public" }), "contradict"),
        (json!({ "rules": ["allow@"] }), "network.rules[0]"),
        (json!({ "dns": { "nameservers": ["9.9.9.9:5353"] } }), "9.9.9.9:5353"),
        (json!({ "dns": { "queryTimeoutMs": 1 } }), "dns.queryTimeoutMs: the time is 1;"),
        (json!({ "maxConnections": 65_537 }), "network.maxConnections: 65537 is not between 1 and 65536"),
        (json!({ "maxConnections": u64::MAX }), "network.maxConnections: 18446744073709551615 is not"),
        (json!({ "maxConnections": 0 }), "network.maxConnections: 0 is less than 1"),
    ] {
        let error = client.error("sandbox_create", json!({ "network": network }), "invalid_request").await;
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
}

#[tokio::test]
async fn a_refusal_names_the_members_and_the_kinds_of_a_mount() {
    let client = Client::new().await;
    for (fields, told) in [
        (json!({ "volumes": [{ "guestPath": "/x" }] }), "kind is missing (one of bind, named, tmpfs, disk)"),
        (json!({ "volumes": ["/x"] }), "volumes[0]: \"/x\" is not an object with guestPath, kind, "),
        (json!({ "volumes": 7 }), "volumes: 7 is not a list of objects with guestPath, kind, "),
    ] {
        let error = client.error("sandbox_create", fields, "invalid_request").await;
        assert!(error["message"].as_str().unwrap().contains(told), "{error}");
    }
    let error = client.error("sandbox_create", json!({ "volumes": ["none:/x"] }), "not_found").await;
    assert!(error["message"].as_str().unwrap().contains("none"), "{error}");
}

#[tokio::test]
async fn times_are_milliseconds_and_seconds_by_their_older_names() {
    let client = Client::new().await;
    for (name, given) in [
        ("new", json!({ "maxDurationMs": 7500, "idleTimeoutMs": 2000, "maxDuration": 9 })),
        ("nested", json!({ "idleTimeout": 2, "lifecycle": { "maxDurationSecs": 9 } })),
    ] {
        let mut arguments = given;
        arguments["name"] = json!(name);
        client.data("sandbox_create", arguments).await;
    }
    let which = |name: &str| engine::SandboxRef::new(name, None).unwrap();
    let lifetime = async |name: &str| {
        let view = client.call.engine().sandbox(&client.call.who, &which(name)).await.unwrap();
        (view.lifetime.ttl.unwrap().as_millis(), view.lifetime.idle.unwrap().as_millis())
    };
    assert_eq!((lifetime("new").await, lifetime("nested").await), ((7500, 2000), (9000, 2000)));
}

#[tokio::test]
async fn what_is_wrong_is_refused_with_its_place_and_makes_nothing() {
    let client = Client::new().await;
    for (fields, named) in [
        (json!({ "name": "a/b" }), "a/b"),
        (json!({ "hostname": "-x" }), "-x"),
        (json!({ "requestId": "a b" }), "a b"),
        (json!({ "memoryMib": 1 }), "memoryMib"),
        (json!({ "memoryMib": u64::MAX }), "memory"),
        (json!({ "cpus": 0 }), "cpus"),
        (json!({ "maxDuration": 0 }), "maxDuration"),
        (json!({ "workdir": "srv" }), "srv"),
        (json!({ "env": { "A=B": "x" } }), "A=B"),
        (json!({ "labels": { "": "x" } }), "label"),
        (json!({ "process": { "scripts": { "../x": "" } } }), "../x"),
        (json!({ "patches": [{ "kind": "append" }] }), "patches[0]: a patch of kind append needs path"),
        (json!({ "patches": [{ "kind": "symlink", "path": "/x" }] }), "kind symlink needs target"),
        (json!({ "patches": [{ "kind": "copyFile", "path": "/x" }] }), "kind copyFile needs hostPath"),
        (json!({ "patches": [{ "kind": "file", "path": "/x", "contentBase64": "?" }] }), "contentBase64"),
        (json!({ "patches": [{ "kind": "append", "path": "/x", "contentBase64": "/w" }] }), "needs text"),
        (json!({ "rootfs": { "kind": "weird" } }), "rootfs.kind: \"weird\" is not one of "),
        (json!({ "patches": vec![json!({ "kind": "mkdir", "path": "/x" }); 257] }), "257"),
        (json!({ "lifecycle": { "onExpiry": "explode" } }), "explode"),
        (json!({ "entrypoint": [""] }), "entrypoint"),
        (json!({ "process": { "init": { "path": "" } } }), "init"),
        (json!({ "process": { "init": { "path": "/no/such" } } }), "could not start init"),
        (
            json!({ "mounts": [{ "kind": "bind", "guestPath": "/x" }] }),
            "mounts[0]: a bind mount needs hostPath",
        ),
        (
            json!({ "volumes": [{ "kind": "named", "guestPath": "/x" }] }),
            "volumes[0]: a named mount needs name",
        ),
        (json!({ "volumes": [{ "kind": "tmpfs", "guestPath": "/proc" }] }), "/proc"),
    ] {
        let error = client.error("sandbox_create", fields, "invalid_request").await;
        assert!(error["message"].as_str().unwrap().contains(named), "{named} in {error}");
    }
    assert_eq!(left(&client).await, (0, 0, 0));
}

#[tokio::test]
async fn what_is_wrong_is_told_with_what_would_be_right() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("text"), "no file system").unwrap();
    let roots = vec![HostRoot { path: place.path().to_owned(), write: false }];
    let host = HostPolicy { roots, ..HostPolicy::default() };
    let client = Client::with(Settings { host, ..Settings::default() }).await;
    let disk = |name: &str| json!({ "rootfs": { "kind": "disk", "path": place.path().join(name) } });
    for (fields, code, message, hint) in [
        (
            json!({ "hostname": "bad host" }),
            "invalid_request",
            "\"bad host\" is not a valid hostname",
            "hostname",
        ),
        (
            json!({ "patches": [{ "kind": "mkdir", "path": "srv" }] }),
            "invalid_request",
            "absolute",
            "begins with /",
        ),
        (disk("text"), "invalid_request", "ext4", "mkfs.ext4"),
        (disk("none"), "not_found", "none does not exist", "on the host"),
    ] {
        let error = client.error("sandbox_create", fields, code).await;
        assert!(error["message"].as_str().unwrap().contains(message), "{message}: {error}");
        assert!(error["hint"].as_str().unwrap().contains(hint), "{hint}: {error}");
    }
    let kinds =
        client.error("sandbox_create", json!({ "rootfs": { "kind": "snapshots" } }), "invalid_request");
    let kinds = kinds.await.to_string();
    for kind in ["oci", "bind", "disk", "snapshot", "host", "Did you mean snapshot?"] {
        assert!(kinds.contains(kind), "{kind}: {kinds}");
    }
    assert_eq!(left(&client).await, (0, 0, 0));
}

#[tokio::test]
async fn unknown_fields_are_refused_with_the_nearest_known_one() {
    let client = Client::new().await;
    for (fields, nearest) in [
        (json!({ "name": "a", "memoryMb": 512 }), "memoryMib"),
        (json!({ "name": "a", "lifecycle": { "maxDurationSecond": 5 } }), "maxDurationSecs"),
        (json!({ "name": "a", "patches": [{ "kind": "txt", "path": "/x" }] }), "text"),
    ] {
        let error = client.error("sandbox_create", fields, "invalid_request").await;
        assert!(error["hint"].as_str().unwrap().contains(nearest), "{error}");
    }
}

#[tokio::test]
async fn what_is_met_otherwise_is_accepted_and_told() {
    let client = Client::new().await;
    let envelope = client
        .ask(
            "sandbox_create",
            json!({
                "name": "web", "volumes": [], "secrets": [], "network": { "disabled": false, "ports": [] },
                "lifecycle": { "logLevel": "debug", "quietLogs": true, "detached": false },
                "process": {
                    "shell": "/bin/bash",
                    "rlimits": [
                        { "resource": "nofile", "soft": 100 },
                        { "resource": "RLIMIT_NPROC", "soft": 10, "hard": 20 },
                        { "resource": "core", "soft": 0 },
                    ],
                },
            }),
        )
        .await;
    let warnings = envelope["warnings"].to_string();
    for part in
        ["package indexes only", "lifecycle.logLevel, lifecycle.quietLogs", "outlives", "rlimits nproc"]
    {
        assert!(warnings.contains(part), "{part:?} in {warnings}");
    }
    let config = client.data("sandbox_inspect", json!({ "name": "web" })).await["config"].clone();
    assert_eq!((&config["resources"]["openFiles"], &config["resources"]["pids"]), (&json!(4096), &json!(20)));
    let limit = |resource: &str, soft: u64| json!({ "resource": resource, "soft": soft, "hard": soft });
    assert_eq!(config["process"]["rlimits"], json!([limit("nofile", 100), limit("core", 0)]));
    assert_eq!(config["process"]["env"]["SHELL"], "/bin/bash");
    // It reads command lines that name no other.
    let said = client.data("sandbox_shell", json!({ "name": "web", "command": "echo here" })).await;
    assert_eq!(said["stdout"], "here\n");
    let listed = client.call.engine().execs(&client.call.who, &client.call.sandbox("web").unwrap()).await;
    assert_eq!(listed.unwrap()[0].command[0], "/bin/bash");
}

#[tokio::test]
async fn what_is_made_of_limits_on_files_and_processes_is_told() {
    let client = Client::new().await;
    let create = |limits: serde_json::Value| json!({ "process": { "rlimits": limits } });
    let told = async |limits| client.ask("sandbox_create", create(limits)).await["warnings"].to_string();
    let both = told(json!([{ "resource": "nofile", "soft": 256, "hard": 512 }])).await;
    assert!(!both.contains("nofile"), "{both}");
    let processes = told(json!([{ "resource": "nproc", "soft": 50 }])).await;
    assert!(processes.contains("of the sandbox together: 50"), "{processes}");
    let unknown = create(json!([{ "resource": "files", "soft": 1 }]));
    let error = client.error("sandbox_create", unknown, "invalid_request").await;
    assert!(error["hint"].as_str().unwrap().contains("nofile"), "{error}");
}

#[tokio::test]
async fn patches_and_scripts_are_there_when_the_call_answers() {
    let client = Client::new().await;
    client
        .data(
            "sandbox_create",
            json!({
                "name": "web",
                "patches": [
                    { "kind": "text", "path": "/srv/app/a.txt", "content": "one" },
                    { "kind": "append", "type": "append", "guestPath": "/srv/app/a.txt", "content": " two" },
                    { "kind": "file", "path": "/srv/b", "contentBase64": "aGk=", "mode": 33279 },
                    { "kind": "text", "path": "/srv/b", "content": "replaced", "replace": true },
                    { "kind": "mkdir", "path": "/srv/dir" },
                    { "kind": "mkdir", "path": "/srv/dir" },
                    { "kind": "symlink", "target": "app/a.txt", "linkPath": "/srv/link" },
                    { "kind": "symlink", "target": "app/a.txt", "linkPath": "/srv/link", "replace": true },
                    { "kind": "text", "path": "/srv/gone", "content": "" },
                    { "kind": "remove", "path": "/srv/gone" },
                    { "kind": "remove", "path": "/srv/never" },
                    { "kind": "text", "path": "/srv/empty/text" },
                    { "kind": "file", "path": "/srv/empty/file" },
                    { "kind": "append", "path": "/srv/empty/append" },
                    { "kind": "append", "path": "/srv/empty/append", "contentBase64": "aG\nk" },
                ],
                "process": { "scripts": { "build": "#!/bin/sh\necho built\n" } },
            }),
        )
        .await;
    assert_eq!(read(&client.call, "web", "/srv/link").await, "one two");
    assert_eq!(read(&client.call, "web", "/srv/b").await, "replaced");
    for (name, content) in [("text", ""), ("file", ""), ("append", "hi")] {
        assert_eq!(read(&client.call, "web", &format!("/srv/empty/{name}")).await, content, "{name}");
    }
    let which = client.call.sandbox("web").unwrap();
    let (engine, who) = (client.call.engine(), &client.call.who);
    assert_eq!(engine.stat(who, &which, "/usr/local/bin/build", false).await.unwrap().mode, 0o755);
    assert!(engine.stat(who, &which, "/srv/gone", false).await.is_err());
}

#[tokio::test]
async fn a_first_program_and_an_entry_point_are_kept_with_the_sandbox() {
    let client = Client::new().await;
    let init = json!({ "path": "sh", "args": ["-c", "echo $WHO; sleep 1000"], "env": { "WHO": "init", "TOKEN": "t" } });
    let process = json!({ "init": init, "entrypoint": ["grouped"] });
    client.data("sandbox_create", json!({ "name": "web", "entrypoint": ["flat"], "process": process })).await;
    let config = client.data("sandbox_inspect", json!({ "name": "web" })).await["config"].clone();
    assert_eq!(config["process"]["entrypoint"], json!(["grouped"]));
    assert_eq!(config["process"]["init"]["path"], "sh");
    assert_eq!(config["process"]["init"]["env"], json!({ "WHO": "init", "TOKEN": "[redacted]" }));
    let which = client.call.sandbox("web").unwrap();
    let execs = client.call.engine().execs(&client.call.who, &which).await.unwrap();
    assert_eq!((execs.len(), execs[0].outcome.is_none()), (1, true));
}

#[tokio::test]
async fn a_patch_that_fails_is_named_and_the_sandbox_is_not_made() {
    let client = Client::new().await;
    let text = |content: &str| json!({ "kind": "text", "path": "/srv/a", "content": content });
    let fields = json!({ "name": "web", "patches": [text("one"), text("two")] });
    let error = client.error("sandbox_create", fields, "already_exists").await;
    assert!(error["message"].as_str().unwrap().starts_with("patches[1] failed"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("replace: true"), "{error}");
    assert_eq!(left(&client).await, (0, 0, 0));
    client.data("sandbox_create", json!({ "name": "web", "patches": [text("one")] })).await;
}

#[tokio::test]
async fn host_files_are_copied_where_the_policy_lets_them_and_nothing_is_made_where_not() {
    let host = tempfile::tempdir().unwrap();
    let root = host.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("tree")).unwrap();
    std::fs::write(root.join("tree/a"), "aa").unwrap();
    std::fs::write(root.join("one"), "1").unwrap();
    let roots = vec![HostRoot { path: root.clone(), write: false }];
    let settings = Settings { host: HostPolicy { roots, ..HostPolicy::default() }, ..Settings::default() };
    let client = Client::with(settings).await;
    let copy =
        |kind: &str, from: &str, to: &str| json!({ "kind": kind, "hostPath": root.join(from), "path": to });
    let replaced = json!({ "kind": "copyFile", "hostPath": root.join("one"), "path": "/copy/a", "mode": 0o600, "replace": true });
    let patches = json!([copy("copyDir", "tree", "/copy"), replaced]);
    client.data("sandbox_create", json!({ "name": "web", "patches": patches })).await;
    assert_eq!(read(&client.call, "web", "/copy/a").await, "1");
    let which = client.call.sandbox("web").unwrap();
    assert_eq!(
        client.call.engine().stat(&client.call.who, &which, "/copy/a", false).await.unwrap().mode,
        0o600
    );

    let outside = json!({ "kind": "copyFile", "hostPath": "/etc/passwd", "path": "/x" });
    for (patches, code, named) in [
        (json!([outside]), "host_path_denied", "/etc/passwd"),
        (json!([copy("copyFile", "tree", "/x")]), "invalid_request", "is a directory"),
        (json!([copy("copyDir", "one", "/x")]), "invalid_request", "is a file"),
        (json!([copy("copyFile", "none", "/x")]), "not_found", "none"),
        (
            json!([copy("copyFile", "one", "/x"), copy("copyFile", "one", "/x")]),
            "already_exists",
            "patches[1]",
        ),
    ] {
        // The last one is only found out inside, when what it would replace is put aside.
        let fields = json!({ "patches": patches, "name": "web", "lifecycle": { "replace": true } });
        let error = client.error("sandbox_create", fields, code).await;
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
    // It did not cost the one that was to be replaced, which runs under its own name.
    assert_eq!(read(&client.call, "web", "/copy/a").await, "1");
    assert_eq!(left(&client).await, (1, 1, 1));
}

#[tokio::test]
async fn a_back_end_that_fails_leaves_nothing_and_the_name_is_free() {
    let client = Client::new().await;
    let full = BackendError::Exhausted { what: "no memory is left".to_owned(), next: None };
    client.backend.fail_next_create(full);
    let error = client.error("sandbox_create", json!({ "name": "web" }), "limit_reached").await;
    assert_eq!(error["retryable"], true);
    assert_eq!(left(&client).await, (0, 0, 0));
    client.data("sandbox_create", json!({ "name": "web" })).await;
    let error = client.error("sandbox_create", json!({ "name": "web" }), "already_exists").await;
    assert!(error["hint"].as_str().unwrap().contains("lifecycle.replace: true"), "{error}");
}

#[tokio::test]
async fn replacing_removes_the_one_before_and_only_for_a_sandbox_that_can_be_made() {
    let client = Client::new().await;
    let replace = json!({ "replace": true });
    let first = client.data("sandbox_create", json!({ "name": "web", "lifecycle": replace })).await;
    let bad = json!({ "name": "web", "lifecycle": replace, "workdir": "relative" });
    client.error("sandbox_create", bad, "invalid_request").await;
    let kept = client.data("sandbox_inspect", json!({ "name": "web" })).await;
    assert_eq!(kept["id"], first["id"]);

    let second = client.data("sandbox_create", json!({ "name": "web", "lifecycle": replace })).await;
    assert_ne!(first["id"], second["id"]);
    let quick = json!({ "replaceTimeoutMs": 0 });
    let third = client.data("sandbox_create", json!({ "name": "web", "lifecycle": quick })).await;
    assert_ne!(second["id"], third["id"]);
    // Whoever says no means it.
    let refused = json!({ "replace": false, "replaceTimeoutMs": 1000 });
    client.error("sandbox_create", json!({ "name": "web", "lifecycle": refused }), "already_exists").await;
    let kept = client.data("sandbox_inspect", json!({ "name": "web" })).await;
    assert_eq!(kept["id"], third["id"]);
    assert_eq!(left(&client).await, (1, 1, 1));
}

/// A client with a key of its own.
async fn holder(client: &Client, spec: KeySpec) -> Call {
    let engine = client.call.engine();
    let made = engine.create_key(&client.call.who, spec).await.unwrap();
    Call { who: engine.authenticate_key(&made.secret).await.unwrap(), ..client.call.clone() }
}

#[tokio::test]
async fn who_has_no_room_for_the_new_one_does_not_lose_the_old() {
    let client = Client::new().await;
    if !client.has(Capability::MemoryLimit) {
        return;
    }
    let ana = holder(&client, KeySpec { max_memory: Some(ByteSize::mib(100)), ..KeySpec::default() }).await;
    let ben = holder(&client, KeySpec { max_sandboxes: Some(1), ..KeySpec::default() }).await;
    let replacing = |mib: u64| json!({ "name": "web", "memoryMib": mib, "lifecycle": { "replace": true } });
    let first = ask(ana.clone(), "sandbox_create", replacing(64)).await["data"]["id"].clone();
    let too_much = ask(ana.clone(), "sandbox_create", replacing(128)).await;
    assert_eq!(too_much["error"]["code"], "limit_reached", "{too_much}");
    // Another key that has all it may have cannot do away with it either.
    assert_eq!(ask(ben.clone(), "sandbox_create", json!({ "name": "own" })).await["ok"], true);
    let full = ask(ben, "sandbox_create", replacing(64)).await;
    assert_eq!(full["error"]["code"], "limit_reached", "{full}");
    let kept = client.data("sandbox_inspect", json!({ "name": "web" })).await;
    assert_eq!((&kept["id"], &kept["status"]), (&first, &json!("running")));
    // The old one's own memory is free for the new one.
    let second = ask(ana, "sandbox_create", replacing(100)).await;
    assert!(second["ok"] == true && second["data"]["id"] != first, "{second}");
}

#[tokio::test]
async fn a_key_that_ends_in_the_middle_leaves_no_half_made_sandbox() {
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("big"), vec![7; 9 * 1024 * 1024]).unwrap();
    let roots = vec![HostRoot { path: host.path().to_owned(), write: false }];
    let settings = Settings { host: HostPolicy { roots, ..HostPolicy::default() }, ..Settings::default() };
    let client = Client::with(settings).await;
    let mut ana = holder(&client, KeySpec::default()).await;
    let (engine, owner, key) = (client.call.engine().clone(), client.call.who.clone(), ana.who.key.clone());
    // Its key is revoked while the first file goes in.
    ana.progress = Progress::new(move |_step| {
        let (engine, owner, key) = (engine.clone(), owner.clone(), key.clone().unwrap());
        async move { drop(engine.revoke_key(&owner, key.as_str()).await.unwrap()) }.boxed()
    });
    let copy = json!({ "kind": "copyFile", "hostPath": host.path().join("big"), "path": "/srv/big" });
    let patches = json!([copy, { "kind": "text", "path": "/srv/a", "content": "x" }]);
    let envelope = ask(ana, "sandbox_create", json!({ "name": "web", "patches": patches })).await;
    assert_eq!(envelope["error"]["code"], "unauthenticated", "{envelope}");
    assert!(envelope["error"]["message"].as_str().unwrap().starts_with("patches[1]"), "{envelope}");
    assert_eq!(left(&client).await, (0, 0, 0));
}

#[tokio::test]
async fn a_cancelled_call_leaves_no_sandbox() {
    let client = Client::new().await;
    client.call.cancelled.cancel();
    client.error("sandbox_create", json!({ "name": "web" }), "cancelled").await;
    assert_eq!((client.backend.live().len(), client.backend.kept().len()), (0, 0));
}

#[tokio::test]
async fn a_caller_who_goes_away_leaves_a_whole_sandbox() {
    let client = Client::new().await;
    client.backend.delay_starts(Duration::from_millis(20));
    let fields = json!({ "name": "web", "patches": [{ "kind": "text", "path": "/srv/a", "content": "x" }] });
    let mut asked = Box::pin(client.ask("sandbox_create", fields));
    assert!(futures_util::poll!(&mut asked).is_pending());
    drop(asked);
    let wrote = async {
        let which = client.call.sandbox("web").unwrap();
        while client.call.engine().stat(&client.call.who, &which, "/srv/a", false).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wrote).await.unwrap();
}

#[tokio::test]
async fn the_schema_has_every_field_in_full() {
    let schema = create_schema();
    assert_eq!(
        schema.pointer("/properties/patches/items/properties/kind/type"),
        Some(&Value::from("string"))
    );
    assert!(
        schema.pointer("/properties/network/properties/tls/properties/caKeyPath").is_some(),
        "{schema:#}"
    );
}

#[tokio::test]
async fn a_new_sandbox_says_what_it_has() {
    let client = Client::new().await;
    let made =
        client.data("sandbox_create", json!({ "name": "lab", "memoryMib": 64, "workdir": "/srv" })).await;
    assert_eq!(
        (&made["image"], &made["workdir"], &made["user"]),
        (&json!("host"), &json!("/srv"), &json!("root"))
    );
    assert_eq!((&made["shell"], &made["network"]), (&json!("/bin/bash"), &json!("packages")));
    assert_eq!(
        (&made["memoryMib"], &made["cpus"], &made["timeoutMs"]),
        (&json!(64), &json!(1.0), &json!(120_000))
    );
    let languages = made["languages"].as_array().unwrap();
    assert!(languages.contains(&json!("python")) && languages.contains(&json!("bash")), "{made}");
    let own = json!({ "process": { "shell": "dash", "user": "1000" } });
    let made = client.data("sandbox_create", own).await;
    assert_eq!((&made["shell"], &made["user"]), (&json!("dash"), &json!("1000")));
}

#[tokio::test]
async fn an_image_that_cannot_be_had_is_not_replaced_unless_asked() {
    let client = Client::new().await;
    for image in ["python:3.12-slim", "node:20"] {
        let error = client.error("sandbox_create", json!({ "image": image }), "unsupported").await;
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.contains("image: \"host\"") && hint.contains("python3"), "{error}");
        let has_interpreter = !image.starts_with("node") || std::path::Path::new("/usr/bin/node").exists();
        assert_eq!(hint.contains("imageFallback: true"), has_interpreter, "{error}");
    }
    assert_eq!(client.data("sandbox_list", json!({})).await, json!([]));
    let asked = json!({ "image": "python:3.12-slim", "imageFallback": true });
    let envelope = client.ask("sandbox_create", asked).await;
    assert_eq!(envelope["data"]["image"], "host", "{envelope}");
    assert!(envelope["warnings"][0].as_str().unwrap().contains("python:3.12-slim is not used"), "{envelope}");
}

const VALUE: &str = "ghp_the-value-0123456789";

/// One whose sandboxes have a network, which carries nothing, and an operator who set a secret.
async fn with_secret() -> Client {
    let backend = test_backend::TestBackend::new();
    backend.stand_in_for_network();
    let client = Client::over(backend, crate::mcp::Settings::default()).await;
    let which = engine::SecretRef { namespace: None, name: "TOKEN".parse().unwrap() };
    let rules = serde_json::from_value(json!({ "hosts": ["api.example.org"] })).unwrap();
    let value = sandbox::SecretValue::new(VALUE.to_owned()).unwrap();
    let spec = engine::SecretSpec { rules, value };
    client.call.engine().set_secret(&client.call.who, &which, spec).await.unwrap();
    client
}

#[tokio::test]
async fn secrets_are_asked_for_by_name_or_come_with_the_call_and_are_shown_nowhere() {
    let client = with_secret().await;
    let listed = client.data("sandbox_secrets", json!({})).await;
    let expected = json!({ "name": "TOKEN", "hosts": ["api.example.org"], "headers": ["authorization"] });
    assert_eq!(listed["secrets"], json!([expected]));
    let network = json!({ "allow": ["*.example.org"] });
    for (name, secrets, values) in [
        ("a", json!(["TOKEN"]), vec![VALUE]),
        ("b", json!(["TOKEN=GH_TOKEN", { "name": "TOKEN", "env": "OTHER" }]), vec![VALUE, VALUE]),
        (
            "c",
            json!([{ "envVar": "GH", "valueEnv": "TOKEN", "allowedHost": "API.example.org", "onViolation": "block-and-log" }]),
            vec![VALUE],
        ),
        (
            "d",
            json!([{ "envVar": "GH", "value": "own-value", "allowedHost": "own.example.org" }]),
            vec!["own-value"],
        ),
    ] {
        let made = client
            .data("sandbox_create", json!({ "name": name, "secrets": secrets, "network": network }))
            .await;
        let held = client.backend.held_secrets(&made["id"].as_str().unwrap().parse().unwrap()).unwrap();
        let found: Vec<_> = held.secrets.iter().map(|secret| secret.value.expose()).collect();
        assert_eq!(found, values, "{name}");
        let shown = client.data("sandbox_inspect", json!({ "name": name })).await.to_string();
        assert!(!shown.contains(VALUE) && !shown.contains("own-value"), "{shown}");
    }
    let view =
        client.call.engine().sandbox(&client.call.who, &client.call.sandbox("d").unwrap()).await.unwrap();
    let held = client.backend.held_secrets(&view.id).unwrap();
    assert_eq!(held.secrets[0].rules.headers, ["authorization", "x-api-key"]);
    assert!(view.plan.env["GH"].starts_with("wrn-secret-"));
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_refused_with_what_the_operator_must_run() {
    let client = with_secret().await;
    let open = json!({ "preset": "public" });
    let own = |host: &str| json!([{ "envVar": "A", "value": "own-value", "allowedHost": host }]);
    for (secrets, network, code, message, hint) in [
        (
            json!(["NONE"]),
            &open,
            "not_found",
            "secrets[0]: there is no secret NONE",
            "warren secret set NONE --host HOST",
        ),
        (
            json!([{ "envVar": "A", "valueEnv": "TOKEN", "allowedHost": "evil.example.org" }]),
            &open,
            "denied",
            "secrets[0]: the secret TOKEN is not for evil.example.org",
            "warren secret set TOKEN --host evil.example.org",
        ),
        (
            json!([{ "envVar": "A", "valueEnv": "HOME", "allowedHost": "evil.example.org" }]),
            &open,
            "not_found",
            "there is no secret HOME for evil.example.org",
            "warren secret set HOME --host evil.example.org",
        ),
        // Asking for a host does not open it.
        (
            own("own.example.org"),
            &json!({}),
            "invalid_request",
            "secrets.A: A is for own.example.org",
            "network.allow",
        ),
        (
            json!(["TOKEN"]),
            &json!({}),
            "invalid_request",
            "secrets[0]: TOKEN is for api.example.org",
            "network.allow",
        ),
        (own("*.example.org"), &open, "invalid_request", "secrets[0]: allowedHost", ""),
        (json!([{ "value": "own-value" }]), &open, "invalid_request", "secrets[0]: envVar is missing", ""),
        (json!([{}]), &open, "invalid_request", "secrets[0]: name is missing", ""),
        (json!([{ "value": "own-value", "allowdHost": "a.b" }]), &open, "invalid_request", "allowdHost", ""),
        (
            json!([{ "envVar": "A", "value": "own-value\n", "allowedHost": "a.b" }]),
            &open,
            "invalid_request",
            "visible ASCII",
            "",
        ),
    ] {
        let error =
            client.error("sandbox_create", json!({ "secrets": secrets, "network": network }), code).await;
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
        assert!(error["hint"].as_str().unwrap_or_default().contains(hint), "{error}");
        assert!(!error.to_string().contains("own-value"), "{error}");
    }
    assert_eq!(left(&client).await, (0, 0, 0));
}
