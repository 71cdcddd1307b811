//! Snapshots by the tools, on sandboxes that are only simulated.

use serde_json::{Value, json};

use crate::mcp::{
    HostPolicy, HostRoot, Settings,
    testing::{Client, ask},
};

struct World {
    client: Client,
    place: tempfile::TempDir,
}

impl World {
    /// With a sandbox `dev` that has a file.
    async fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let roots = vec![HostRoot { path: place.path().to_owned(), write: true }];
        let host = HostPolicy { roots, ..HostPolicy::default() };
        let client = Client::with(Settings { host, ..Settings::default() }).await;
        let world = Self { client, place };
        world.data("sandbox_create", json!({ "name": "dev" })).await;
        world.write("dev", "one").await;
        world
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
    let world = World::new().await;
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
    let error = world.refused("snapshot_inspect", json!({ "pathOrName": "/etc/passwd" })).await;
    assert_eq!(error["code"], "not_found");
}

#[tokio::test]
async fn it_is_restored_forked_compared_and_removed() {
    let world = World::new().await;
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
    let world = World::new().await;
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
    let elsewhere = [
        ("snapshot_create", json!({ "name": "x", "fromSandbox": "dev", "destDir": "/tmp" })),
        ("snapshot_load", json!({ "archive": out, "dest": "/tmp" })),
    ];
    for (tool, arguments) in elsewhere {
        assert_eq!(world.refused(tool, arguments).await["code"], "unsupported");
    }
}
