//! Snapshots by the tools.

use sandbox::Capability;
use serde_json::{Value, json};

use crate::mcp::{
    HostPolicy, HostRoot, Settings, Toolsets,
    testing::{Client, ask},
};

struct World {
    client: Client,
    place: tempfile::TempDir,
}

impl World {
    /// With a sandbox `dev` that runs and has a file. Absent where it could not stand still for a copy.
    async fn new() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let roots = vec![HostRoot { path: place.path().to_owned(), write: true }];
        let host = HostPolicy { roots, ..HostPolicy::default() };
        let client = Client::with(Settings { host, ..Settings::default() }).await;
        if !client.has(Capability::Pause) {
            return None;
        }
        let world = Self { client, place };
        world.data("sandbox_create", json!({ "name": "dev" })).await;
        world.write("dev", "one").await;
        Some(world)
    }

    async fn data(&self, tool: &str, arguments: Value) -> Value {
        self.client.data(tool, arguments).await
    }

    async fn refused(&self, tool: &str, arguments: Value) -> Value {
        let answer = ask(self.client.call.clone(), tool, arguments).await;
        assert_eq!(answer["ok"], false, "{answer:#}");
        answer["error"].clone()
    }

    async fn write(&self, sandbox: &str, content: &str) {
        self.data("sandbox_fs_write", json!({ "name": sandbox, "path": "/root/note", "content": content }))
            .await;
    }

    async fn read(&self, sandbox: &str) -> Value {
        self.data("sandbox_fs_read", json!({ "name": sandbox, "path": "/root/note" })).await["content"]
            .clone()
    }
}

#[tokio::test]
async fn a_snapshot_has_the_shapes_that_clients_know() {
    let Some(world) = World::new().await else { return };
    let create =
        json!({ "name": "base", "fromSandbox": "dev", "labels": { "a": "b" }, "recordIntegrity": true });
    let taken = world.data("snapshot_create", create).await;
    assert_eq!(taken["reference"], "base");
    assert_eq!(
        (&taken["referenceKind"], &taken["scope"], &taken["imageRef"]),
        (&json!("name"), &json!("disk"), &json!("host"))
    );
    assert!(taken["sizeBytes"].as_str().unwrap().parse::<u64>().is_ok());
    assert_eq!((&taken["labels"], &taken["sourceSandbox"]), (&json!({ "a": "b" }), &json!("dev")));
    let listed = world.data("snapshot_list", json!({})).await;
    assert_eq!(listed[0]["digest"], taken["digest"]);
    assert_eq!(listed[0]["parentDigest"], Value::Null);
    // By name, by digest and by the path that was told.
    for which in [&listed[0]["name"], &taken["digest"], &taken["path"]] {
        let found = world.data("snapshot_inspect", json!({ "pathOrName": which, "verify": true })).await;
        assert_eq!(found["digest"], taken["digest"]);
        assert_eq!(found["verify"]["upper"]["kind"], "verified");
    }
    let verified = world.data("snapshot_verify", json!({ "pathOrName": "base" })).await;
    assert_eq!(verified["upper"]["algorithm"], "sha256");
    let here = world.place.path();
    for tool in ["snapshot_inspect", "snapshot_verify", "snapshot_remove"] {
        let error = world.refused(tool, json!({ "pathOrName": "/etc/passwd" })).await;
        assert_eq!(error["code"], "host_path_denied", "{tool}");
        let error = world.refused(tool, json!({ "pathOrName": here })).await;
        assert_eq!(error["code"], "not_found", "{tool}");
    }
}

#[tokio::test]
async fn the_older_names_of_its_parameters_are_taken() {
    let Some(world) = World::new().await else { return };
    let taken = world.data("snapshot_create", json!({ "name": "base", "sourceSandbox": "dev" })).await;
    assert_eq!((&taken["reference"], &taken["sourceSandbox"]), (&json!("base"), &json!("dev")));
    let unnamed = world.data("snapshot_create", json!({ "fromSandbox": "dev" })).await;
    assert!(unnamed["reference"].as_str().unwrap().starts_with("dev-"), "{unnamed:#}");
    let path = json!({ "sourceSandbox": "dev", "path": world.place.path() });
    let error = world.refused("snapshot_create", path).await;
    assert_eq!(error["code"], "unsupported");
    assert!(error["hint"].as_str().unwrap().contains("snapshot_save"), "{error:#}");
    for wrong in [json!({ "name": "x" }), json!({ "fromSandbox": "dev", "sourceSandbox": "other" })] {
        let error = world.refused("snapshot_create", wrong).await;
        assert_eq!(error["code"], "invalid_request");
        assert!(error["hint"].as_str().unwrap().contains("fromSandbox"), "{error:#}");
    }
    let error = world.refused("snapshot_create", json!({ "name": "a/b", "fromSandbox": "dev" })).await;
    assert!(error["hint"].as_str().unwrap().contains("snapshot_list"), "{error:#}");
}

#[tokio::test]
async fn who_says_no_means_it_where_danger_is_allowed_too() {
    let client = Client::with(Settings { dangerous_enabled: true, ..Settings::default() }).await;
    client.data("sandbox_create", json!({ "name": "dev" })).await;
    client.data("sandbox_stop", json!({ "name": "dev" })).await;
    client.data("snapshot_create", json!({ "name": "base", "fromSandbox": "dev" })).await;
    let again =
        |confirm: Value| json!({ "name": "base", "fromSandbox": "dev", "force": true, "confirm": confirm });
    client.error("snapshot_create", again(json!(false)), "dangerous_operation_disabled").await;
    client.data("snapshot_create", again(Value::Null)).await;
    let remove = json!({ "pathOrName": "base", "force": true, "confirm": false });
    client.error("snapshot_remove", remove, "dangerous_operation_disabled").await;
}

#[tokio::test]
async fn a_path_is_as_good_as_a_name_and_an_archive_is_loaded() {
    let Some(world) = World::new().await else { return };
    let taken = world.data("snapshot_create", json!({ "name": "base", "fromSandbox": "dev" })).await;
    world.write("dev", "two").await;
    let rootfs = json!({ "kind": "snapshot", "pathOrName": taken["path"] });
    world.data("sandbox_create", json!({ "name": "by-path", "rootfs": rootfs })).await;
    assert_eq!(world.read("by-path").await, "one");
    let rootfs = json!({ "kind": "snapshot", "pathOrName": "/etc/passwd" });
    let error = world.refused("sandbox_create", json!({ "rootfs": rootfs })).await;
    assert_eq!(error["code"], "host_path_denied");
    world.data("sandbox_remove", json!({ "name": "by-path", "force": true, "confirm": true })).await;

    let out = world.place.path().join("base.tar.zst");
    world.data("snapshot_save", json!({ "pathOrName": "base", "out": out })).await;
    world.data("snapshot_remove", json!({ "pathOrName": taken["path"] })).await;
    let restore = |name: &str, snapshot: &std::path::Path| json!({ "name": name, "snapshot": snapshot });
    let restored = world.client.ask("sandbox_restore", restore("again", &out)).await;
    assert!(restored["warnings"][0].as_str().unwrap().contains("snapshot base"), "{restored:#}");
    assert_eq!(world.read("again").await, "one");
    // The snapshot is here already: nothing was loaded that somebody would have to remove.
    let restored = world.client.ask("sandbox_restore", restore("another", &out)).await;
    assert!(!restored.to_string().contains("snapshot_remove"), "{restored:#}");
    for name in ["again", "another"] {
        world.data("sandbox_remove", json!({ "name": name, "force": true, "confirm": true })).await;
    }
    world.data("snapshot_remove", json!({ "pathOrName": "base" })).await;
    let error = world.refused("sandbox_restore", restore("dev", &out)).await;
    assert_eq!((&error["code"], &error["details"]["loaded"]), (&json!("already_exists"), &json!("base")));
    assert!(error["hint"].as_str().unwrap().contains("sandbox_list"), "{error:#}");
    for (path, code) in [("/etc/passwd", "host_path_denied"), ("none", "not_found"), ("", "not_found")] {
        let error = world.refused("sandbox_restore", restore("more", &world.place.path().join(path))).await;
        assert_eq!(error["code"], code, "{path}");
    }
}

#[tokio::test]
async fn who_loads_learns_of_another_name_than_the_wanted_one() {
    let Some(world) = World::new().await else { return };
    world.data("snapshot_create", json!({ "name": "base", "fromSandbox": "dev" })).await;
    let out = world.place.path().join("base.tar.zst");
    world.data("snapshot_save", json!({ "pathOrName": "base", "out": out })).await;
    let load = async |rest: Value| {
        let mut arguments = json!({ "archive": out });
        arguments.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        world.client.ask("snapshot_load", arguments).await
    };
    let same = load(json!({ "dest": "/elsewhere" })).await;
    assert_eq!(same["warnings"], json!(["dest has no effect: snapshots stay with the daemon."]));
    let kept = load(json!({ "name": "other" })).await;
    assert_eq!(kept["data"]["name"], "base");
    assert!(kept["warnings"][0].as_str().unwrap().contains("base, not other"), "{kept:#}");
    world.data("snapshot_remove", json!({ "pathOrName": "base" })).await;
    world.write("dev", "two").await;
    world.data("snapshot_create", json!({ "name": "base", "fromSandbox": "dev" })).await;
    let renamed = load(json!({})).await;
    assert_ne!(renamed["data"]["name"], "base");
    assert!(renamed["warnings"][0].as_str().unwrap().contains("saved name base"), "{renamed:#}");
    std::fs::write(&out, "no archive at all").unwrap();
    let missing = world.refused("snapshot_load", json!({ "archive": world.place.path().join("none") })).await;
    assert!(missing["hint"].as_str().unwrap().contains("path on the host"), "{missing:#}");
    let error = load(json!({})).await["error"].clone();
    assert!(error["message"].as_str().unwrap().contains("is not a snapshot archive"), "{error:#}");
    assert!(error["hint"].as_str().unwrap().contains("snapshot_save"), "{error:#}");
}

#[tokio::test]
async fn it_is_restored_forked_compared_and_removed() {
    let Some(world) = World::new().await else { return };
    world.data("snapshot_create", json!({ "name": "base", "fromSandbox": "dev" })).await;
    world.write("dev", "two").await;
    let restored =
        world.data("sandbox_restore", json!({ "name": "again", "snapshot": "base", "diskOnly": true })).await;
    assert_eq!((&restored["name"], &restored["status"]), (&json!("again"), &json!("running")));
    assert_eq!(world.read("again").await, "one");
    for field in [
        json!({ "vsock": [{ "path": "/x", "port": 1 }] }),
        json!({ "ports": [{ "hostPort": 1, "guestPort": 1 }] }),
    ] {
        let mut arguments = json!({ "name": "more", "snapshot": "base" });
        arguments.as_object_mut().unwrap().extend(field.as_object().unwrap().clone());
        assert_eq!(world.refused("sandbox_restore", arguments).await["code"], "unsupported");
    }

    let forked = world.data("sandbox_fork", json!({ "name": "dev", "count": 2, "namePrefix": "try" })).await;
    assert_eq!(forked["forks"][1]["name"], "try-2");
    assert_eq!(world.read("try-2").await, "two");
    let diff = world.data("sandbox_diff", json!({ "name": "again", "patch": true })).await;
    assert!(
        diff["changes"].as_array().unwrap().iter().any(|change| change["path"] == "/root/note"),
        "{diff:#}"
    );
    let since = world.data("sandbox_diff", json!({ "name": "again", "since": "base" })).await;
    assert_eq!(since["changes"], json!([]));

    let error = world.refused("snapshot_remove", json!({ "pathOrName": "base" })).await;
    assert!(error["message"].as_str().unwrap().contains("sandbox again"), "{error:#}");
    assert!(error["hint"].as_str().unwrap().contains("snapshot_remove"), "{error:#}");
    let force = json!({ "pathOrName": "base", "force": true });
    assert_eq!(world.refused("snapshot_remove", force).await["code"], "dangerous_operation_disabled");
    let force = json!({ "pathOrNames": ["base"], "force": true, "confirm": true });
    assert_eq!(world.data("snapshot_remove", force).await[0]["keptForUsers"], true);
    let none = world.refused("snapshot_remove", json!({})).await;
    assert_eq!(none["message"], "snapshot_remove requires pathOrName or pathOrNames");
}

#[tokio::test]
async fn archives_go_where_the_policy_allows() {
    let Some(world) = World::new().await else { return };
    world.data("snapshot_create", json!({ "name": "base", "fromSandbox": "dev" })).await;
    let out = world.place.path().join("base.tar.zst");
    let denied = json!({ "pathOrName": "base", "out": "/etc/base.tar.zst" });
    assert_eq!(world.refused("snapshot_save", denied).await["code"], "host_path_denied");
    let saved = world.data("snapshot_export", json!({ "pathOrName": "base", "out": out })).await;
    assert_eq!((&saved["saved"], &saved["exported"]), (&json!(true), &json!(true)));
    world.data("snapshot_remove", json!({ "pathOrName": "base" })).await;
    let loaded = world.data("snapshot_import", json!({ "archive": out })).await;
    assert_eq!(loaded["reference"], "base");
    world.data("snapshot_remove", json!({ "pathOrName": "base" })).await;
    let indexed = world.data("snapshot_reindex", json!({ "dir": world.place.path() })).await;
    assert_eq!(indexed["indexed"], 1);
    assert_eq!(world.data("snapshot_list", json!({})).await[0]["name"], "base");
    let mut bytes = std::fs::read(&out).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&out, bytes).unwrap();
    let error = world.refused("snapshot_load", json!({ "archive": out })).await;
    assert_eq!(error["code"], "invalid_request");
    let elsewhere = json!({ "name": "x", "fromSandbox": "dev", "destDir": "/tmp" });
    assert_eq!(world.refused("snapshot_create", elsewhere).await["code"], "unsupported");
}

#[tokio::test]
async fn a_sandbox_returns_to_a_snapshot_and_keeps_its_settings() {
    let Some(world) = World::new().await else { return };
    let create = json!({ "name": "lab", "env": { "KEPT": "yes" }, "labels": { "team": "red" } });
    world.data("sandbox_create", create).await;
    world.write("lab", "before").await;
    world.data("snapshot_create", json!({ "name": "ready", "sandbox": "lab" })).await;
    world.write("lab", "after").await;
    let restore = json!({ "name": "lab", "snapshot": "ready" });
    let error = world.refused("sandbox_restore", restore).await;
    assert_eq!(error["code"], "already_exists");
    assert!(error["hint"].as_str().unwrap().contains("replace: true"), "{error:#}");
    assert_eq!(world.read("lab").await, "after");
    // A failure leaves the old one as it was.
    let missing = json!({ "name": "lab", "snapshot": "nothing", "replace": true });
    assert_eq!(world.refused("sandbox_restore", missing).await["code"], "not_found");
    assert_eq!(world.read("lab").await, "after");
    let replace = json!({ "name": "lab", "snapshot": "ready", "replace": true });
    world.data("sandbox_restore", replace.clone()).await;
    assert_eq!(world.read("lab").await, "before");
    let shell = json!({ "name": "lab", "command": "printf %s \"$KEPT\"" });
    assert_eq!(world.data("sandbox_shell", shell).await["stdout"], "yes");
    // Only one is left, and where there is none, one is made.
    let listed = world.data("sandbox_list", json!({ "status": "all" })).await;
    assert!(!listed.to_string().contains("replaced"), "{listed:#}");
    world.data("sandbox_remove", json!({ "name": "lab", "force": true })).await;
    world.data("sandbox_restore", replace).await;
    assert_eq!(world.read("lab").await, "before");
}

#[tokio::test]
async fn a_fork_is_compared_with_its_source() {
    let Some(world) = World::new().await else { return };
    world.data("sandbox_fork", json!({ "name": "dev", "names": ["try"] })).await;
    let write = json!({ "name": "try", "path": "/root/new", "content": "x" });
    world.data("sandbox_fs_write", write).await;
    for since in ["dev", "start"] {
        let diff =
            world.data("sandbox_diff", json!({ "name": "try", "since": since, "path": "/root" })).await;
        let changed = diff["changes"].as_array().unwrap().iter().filter(|change| change["kind"] == "file");
        let paths: Vec<_> = changed.map(|change| change["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/root/new"], "{since}: {diff:#}");
    }
    let error = world.refused("sandbox_diff", json!({ "name": "try", "since": "nobody" })).await;
    assert_eq!(error["code"], "not_found");
}

/// The arguments of the calls that a hint writes out, in their order.
fn written_calls(hint: &str) -> Vec<Value> {
    let calls = hint.split("sandbox_diff ").skip(1);
    calls.filter_map(|rest| serde_json::Deserializer::from_str(rest).into_iter().next()?.ok()).collect()
}

#[tokio::test]
async fn a_long_list_of_changes_and_a_long_patch_are_cut_with_the_call_for_the_rest() {
    let Some(world) = World::new().await else { return };
    let fill = "mkdir many; cd many; touch $(seq 1 3000); seq 1 100000 > /root/long.txt";
    world.data("sandbox_shell", json!({ "name": "dev", "command": fill })).await;
    let diff = json!({ "name": "dev", "path": "/root", "patch": true });
    let envelope = world.client.ask("sandbox_diff", diff).await;
    let listed = |envelope: &Value| envelope["data"]["changes"].as_array().unwrap().len();
    let [changes, patch] = envelope["truncated"].as_array().unwrap().as_slice() else {
        panic!("{:#}", envelope["truncated"]);
    };
    assert!(envelope["data"]["changes"].to_string().len() <= 24 * 1024 + 2);
    assert_eq!((&changes["field"], &envelope["data"]["moreChanges"]), (&json!("changes"), &json!(true)));
    let hint = changes["hint"].as_str().unwrap();
    let calls = written_calls(hint);
    let one = json!({ "name": "dev", "path": "/root/many" });
    // The file, its directory, and what was there before; the sandbox's home itself may have changed, too.
    let n_found = calls[1]["limit"].as_u64().unwrap();
    assert!(n_found >= 3003, "{hint}");
    assert!(hint.starts_with(&format!("{} of {n_found} changes are listed.", listed(&envelope))), "{hint}");
    assert_eq!(calls, [one, json!({ "name": "dev", "path": "/root", "limit": n_found })]);
    let whole = world.client.ask("sandbox_diff", calls[1].clone()).await;
    assert_eq!((listed(&whole) as u64, whole.get("truncated")), (n_found, None));
    assert_eq!(whole["data"]["moreChanges"], false);

    let shown = envelope["data"]["patch"].as_str().unwrap();
    assert!(shown.len() <= 24 * 1024 && shown.ends_with('\n'), "{}", shown.len());
    assert_eq!((&patch["field"], &envelope["data"]["patchCut"]), (&json!("patch"), &json!(true)));
    let calls = written_calls(patch["hint"].as_str().unwrap());
    let total = patch["totalBytes"].as_u64().unwrap();
    assert_eq!(calls, [json!({ "name": "dev", "path": "/root", "patch": true, "maxBytes": total })]);
    let whole = world.client.ask("sandbox_diff", calls[0].clone()).await;
    let text = whole["data"]["patch"].as_str().unwrap();
    assert_eq!((text.len() as u64, &whole["data"]["patchCut"]), (total, &json!(false)));
    assert!(text.starts_with(shown) && text.contains("\n+100000\n"));
}

#[test]
fn the_source_of_a_snapshot_is_listed_as_required() {
    let tool = crate::mcp::testing::native().find("snapshot_create").unwrap();
    for listed in [tool.input.full(), tool.input.brief(&Toolsets::default())] {
        assert_eq!(listed["required"], json!(["fromSandbox"]));
    }
    assert!(tool.input.checked().get("required").is_none());
}
