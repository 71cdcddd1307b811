//! Images, by the tools: a real store on disk, real archives, a real registry on loopback.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use engine::Principal;
use futures_util::FutureExt;
use serde_json::{Value, json};
use test_registry::Registry;

use crate::mcp::{
    Call, HostPolicy, HostRoot, Progress, Settings,
    testing::{Client, ask},
};

const PASSWORD: &str = "a-very-secret-password";

/// A tar of a small root file system.
fn root_tar(word: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in [("etc/word", word), ("bin/sh", "#!")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        tar.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap()
}

/// A daemon with images, and a directory of the host that may be written.
struct World {
    client: Client,
    place: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let roots = vec![HostRoot { path: place.path().to_owned(), write: true }];
        let host = HostPolicy { roots, ..HostPolicy::default() };
        let client = Client::with_images(Settings { host, ..Settings::default() }).await;
        Self { client, place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    async fn import(&self, word: &str, reference: &str) -> Value {
        let path = self.path(&format!("{word}.tar"));
        fs::write(&path, root_tar(word)).unwrap();
        let config = json!({ "env": ["A=b"], "cmd": ["/bin/sh"], "workingDir": "/etc", "user": "1000" });
        let import = json!({ "path": path, "reference": reference, "config": config });
        self.client.data("image_import", import).await
    }

    async fn references(&self) -> Vec<String> {
        let listed = self.client.data("image_list", json!({})).await;
        let images = listed.as_array().unwrap();
        images.iter().map(|image| image["reference"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn a_dockerfile_in_a_text_needs_no_context() {
    let world = World::new().await;
    world.import("one", "team/app:1").await;
    let dockerfile = "FROM team/app:1\nENV WORD=two\n";
    let build = json!({ "dockerfile": dockerfile, "tag": "team/app:2" });
    let built = world.client.data("image_build", build).await;
    assert_eq!((&built["built"], &built["references"]), (&json!(true), &json!(["docker.io/team/app:2"])));
    let detail = world.client.data("image_inspect", json!({ "reference": "team/app:2" })).await;
    assert!(detail["config"]["env"].to_string().contains("WORD=two"), "{detail}");
    let error = world.client.error("image_build", json!({ "tag": "team/app:3" }), "invalid_request").await;
    assert_eq!(error["message"], "contextPath is missing");
}

#[tokio::test]
async fn an_image_is_imported_looked_at_tagged_and_removed() {
    let world = World::new().await;
    let client = &world.client;
    assert_eq!(client.data("image_list", json!({})).await, json!([]));
    let handle = world.import("one", "team/app:1").await;
    assert_eq!(handle["reference"], "docker.io/team/app:1");
    assert_eq!((&handle["layerCount"], &handle["os"]), (&json!(1), &json!("linux")));
    assert!(handle["sizeBytes"].as_u64().unwrap() > 0 && handle["lastUsedAt"].is_string());

    let detail = client.data("image_inspect", json!({ "reference": "team/app:1" })).await;
    assert_eq!(detail["handle"], handle);
    let config = &detail["config"];
    assert_eq!((&config["env"], &config["workingDir"]), (&json!(["A=b"]), &json!("/etc")));
    assert_eq!((&config["cmd"], &config["entrypoint"]), (&json!(["/bin/sh"]), &Value::Null));
    let layer = &detail["layers"][0];
    assert_eq!((&layer["position"], &layer["erofsSizeBytes"]), (&json!(0), &Value::Null));
    assert!(layer["diffId"].as_str().unwrap().starts_with("sha256:"), "{layer}");
    let by_digest = client.data("image_inspect", json!({ "reference": handle["manifestDigest"] })).await;
    assert_eq!(by_digest["handle"], handle);

    let tag = json!({ "reference": "team/app:1", "target": "latest-app" });
    assert_eq!(client.data("image_tag", tag).await["target"], "docker.io/library/latest-app:latest");
    assert_eq!(world.references().await, ["docker.io/library/latest-app:latest", "docker.io/team/app:1"]);
    let removed = client.data("image_remove", json!({ "references": ["latest-app", "team/app:1"] })).await;
    assert_eq!(removed[1], json!({ "reference": "team/app:1", "removed": true }));
    assert!(world.references().await.is_empty());
    let missing = client.error("image_inspect", json!({ "reference": "team/app:1" }), "not_found").await;
    assert!(missing["hint"].as_str().unwrap().contains("image_pull"), "{missing}");
}

#[tokio::test]
async fn force_and_pruning_need_a_word_more() {
    let world = World::new().await;
    let client = &world.client;
    world.import("one", "one").await;
    world.import("two", "two").await;
    let code = "dangerous_operation_disabled";
    let refused = client.error("image_remove", json!({ "reference": "one", "force": true }), code).await;
    assert_eq!(refused["message"], "image_remove with force requires confirm: true");
    for arguments in [json!({}), json!({ "confirm": false })] {
        let refused = client.error("image_prune", arguments, code).await;
        assert_eq!(refused["message"], "image_prune requires confirm: true");
    }
    client.error("image_remove", json!({}), "invalid_request").await;
    let confirmed = json!({ "reference": "one", "force": true, "confirm": true });
    client.data("image_remove", confirmed).await;
    let failed = client.error("image_remove", json!({ "references": ["two", "none"] }), "not_found").await;
    assert_eq!(failed["details"]["removed"], json!(["two"]));

    world.import("three", "three").await;
    let report = client.data("image_prune", json!({ "confirm": true })).await;
    assert_eq!((&report["imageRefsRemoved"], &report["manifestsRemoved"]), (&json!(1), &json!(1)));
    assert_eq!((&report["layersRemoved"], &report["fsmetaRemoved"]), (&json!(1), &json!(0)));
    assert!(report["bytesReclaimed"].as_u64().unwrap() > 0 && report["vmdkRemoved"] == 0, "{report}");
    assert!(world.references().await.is_empty());

    // Who says no means it where danger is allowed, too.
    let bold = Client::with_images(Settings { dangerous_enabled: true, ..Settings::default() }).await;
    bold.error("image_prune", json!({ "confirm": false }), code).await;
    bold.data("image_prune", json!({})).await;
}

#[tokio::test]
async fn archives_go_out_and_come_in_again() {
    let world = World::new().await;
    let client = &world.client;
    let one = world.import("one", "one").await;
    let two = world.import("two", "two").await;
    for (format, layout) in [("docker", "manifest.json"), ("oci", "index.json")] {
        let path = world.path(&format!("new/{format}.tar"));
        let save = json!({ "references": ["one", "two"], "path": path, "format": format });
        let saved = client.data("image_save", save).await;
        assert_eq!(saved["bytes"].as_u64().unwrap(), fs::metadata(&path).unwrap().len());
        assert!(members(&path).iter().any(|name| name == layout), "{:?}", members(&path));

        client.data("image_remove", json!({ "references": ["one", "two"] })).await;
        let loaded = client.data("image_load", json!({ "path": path })).await;
        let images = loaded["images"].as_array().unwrap();
        assert_eq!(images.len(), 2, "{loaded}");
        assert_eq!(world.references().await.len(), 2);
        let again = client.data("image_inspect", json!({ "reference": "one" })).await;
        assert_eq!(again["config"]["env"], json!(["A=b"]));
        if format == "oci" {
            assert_eq!(images[0]["manifestDigest"], one["manifestDigest"]);
            assert_eq!(images[1]["manifestDigest"], two["manifestDigest"]);
        }
    }
    // The directory of a layout is as good as its tar.
    let layout = world.path("layout");
    tar::Archive::new(fs::File::open(world.path("new/oci.tar")).unwrap()).unpack(&layout).unwrap();
    client.data("image_prune", json!({ "confirm": true })).await;
    let loaded = client.data("image_load", json!({ "path": layout })).await;
    assert_eq!(loaded["images"].as_array().unwrap().len(), 2, "{loaded}");
}

fn members(path: &Path) -> Vec<String> {
    let mut archive = tar::Archive::new(fs::File::open(path).unwrap());
    let entries = archive.entries().unwrap();
    entries.map(|entry| entry.unwrap().path().unwrap().to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn what_is_no_archive_changes_nothing() {
    let world = World::new().await;
    let client = &world.client;
    world.import("one", "one").await;
    client.data("image_save", json!({ "reference": "one", "path": world.path("good.tar") })).await;
    let good = fs::read(world.path("good.tar")).unwrap();
    for (name, bytes, code) in [
        ("text", b"this is no archive".repeat(100), "invalid_request"),
        ("cut.tar", good[..good.len() / 2].to_vec(), "invalid_request"),
        ("other.tar", root_tar("x"), "unsupported"),
        ("empty", Vec::new(), "invalid_request"),
    ] {
        fs::write(world.path(name), bytes).unwrap();
        let envelope = client.ask("image_load", json!({ "path": world.path(name) })).await;
        assert_eq!(envelope["ok"], false, "{name}: {envelope}");
        let found = envelope["error"]["code"].as_str().unwrap();
        assert!([code, "unsupported"].contains(&found), "{name}: {envelope:#}");
        let hint = envelope["error"]["hint"].as_str().unwrap();
        assert!(name != "other.tar" || hint.contains("image_import"), "{name}: {envelope:#}");
    }
    assert_eq!(world.references().await, ["docker.io/library/one:latest"]);
    let missing = client.error("image_load", json!({ "path": world.path("none") }), "not_found").await;
    assert!(missing["hint"].as_str().unwrap().contains("path on the host"), "{missing:#}");

    // A save that fails leaves no file, and what was there stays.
    fs::write(world.path("kept.tar"), "kept").unwrap();
    let save = json!({ "reference": "none", "path": world.path("kept.tar") });
    client.error("image_save", save, "not_found").await;
    assert_eq!(fs::read_to_string(world.path("kept.tar")).unwrap(), "kept");
    let left = fs::read_dir(world.place.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.ends_with(".part")), "{left:?}");

    for (tool, arguments) in [
        ("image_pull", json!({ "reference": "UPPER case" })),
        ("image_pull", json!({ "reference": "a", "platform": "linux" })),
        ("image_pull", json!({ "reference": "a", "username": "ana" })),
        ("image_tag", json!({ "reference": "one", "target": "../x" })),
        ("image_import", json!({ "path": world.path("good.tar"), "reference": "a b" })),
    ] {
        let refused = client.error(tool, arguments, "invalid_request").await;
        assert!(refused["hint"].is_string(), "{tool}: {refused}");
    }
}

#[tokio::test]
async fn host_paths_are_the_policys_business() {
    let world = World::new().await;
    world.import("one", "one").await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    let outside = secret.path();
    std::os::unix::fs::symlink(outside, world.path("door")).unwrap();
    for path in [outside, &world.path("door")] {
        for (tool, arguments) in [
            ("image_load", json!({ "path": path })),
            ("image_import", json!({ "path": path, "reference": "spy" })),
        ] {
            world.client.error(tool, arguments, "host_path_denied").await;
        }
    }
    let save = json!({ "reference": "one", "path": outside });
    world.client.error("image_save", save, "host_path_denied").await;
    assert_eq!(fs::metadata(outside).unwrap().len(), 0);

    // Whoever is of one namespace looks, and names nothing.
    let blue =
        Call { who: Principal::of_namespace("blue", "blue".parse().unwrap()), ..world.client.call.clone() };
    assert_eq!(ask(blue.clone(), "image_list", json!({})).await["data"].as_array().unwrap().len(), 1);
    for (tool, arguments) in [
        ("image_tag", json!({ "reference": "one", "target": "two" })),
        ("image_remove", json!({ "reference": "one" })),
        ("image_prune", json!({ "confirm": true })),
        ("image_pull", json!({ "reference": "localhost:1/one", "insecure": true })),
    ] {
        let answer = ask(blue.clone(), tool, arguments).await;
        assert_eq!(answer["error"]["code"], "denied", "{tool}: {answer}");
    }
}

/// Calls a tool; returns the progress that the caller heard of, and the answer.
async fn told(client: &Client, tool: &str, arguments: Value) -> (Vec<(f64, Option<f64>, String)>, Value) {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&steps);
    let progress = Progress::new(move |step| {
        heard.lock().unwrap().push((step.done, step.total, step.message));
        std::future::ready(()).boxed()
    });
    let answer = ask(Call { progress, ..client.call.clone() }, tool, arguments).await;
    let steps = steps.lock().unwrap().clone();
    (steps, answer)
}

#[tokio::test]
async fn a_pull_tells_how_far_it_is_and_keeps_its_password() {
    let world = World::new().await;
    let client = &world.client;
    let registry = Registry::start_with_password("ana", PASSWORD);
    world.import("pulled", "it").await;
    client.data("image_save", json!({ "reference": "it", "path": world.path("it.tar") })).await;
    let reference = registry.push_archive(&world.path("it.tar"), "team/it:1");
    client.data("image_prune", json!({ "confirm": true })).await;

    let anonymous = client.error("image_pull", json!({ "reference": reference }), "denied").await;
    assert!(anonymous["hint"].as_str().unwrap().contains("username"), "{anonymous}");
    let wrong = json!({ "reference": reference, "username": "ana", "password": "wrong-password" });
    let refused = client.error("image_pull", wrong, "denied").await;
    assert!(!refused.to_string().contains("wrong-password"), "{refused}");
    let number = json!({ "reference": reference, "username": "ana", "password": 4711 });
    let refused = client.error("image_pull", number, "invalid_request").await;
    assert!(!refused.to_string().contains("4711"), "{refused}");

    let asked = json!({ "reference": reference, "username": "ana", "password": PASSWORD });
    let (steps, answer) = told(client, "image_pull", asked.clone()).await;
    assert_eq!(answer["data"]["reference"], reference, "{answer:#}");
    assert!(!answer.to_string().contains(PASSWORD));
    let (done, total, message) = steps.last().unwrap();
    assert_eq!(Some(*done), *total, "{steps:?}");
    assert!(message.contains("1 of 1 layers"), "{steps:?}");
    assert!(steps.windows(2).all(|pair| pair[0].0 < pair[1].0), "{steps:?}");
    let detail = client.data("image_inspect", json!({ "reference": reference })).await;
    assert_eq!(detail["config"]["env"], json!(["A=b"]));

    let missing = json!({ "reference": registry.reference("team/none"),
        "username": "ana", "password": PASSWORD });
    let missing = client.error("image_pull", missing, "not_found").await;
    assert!(!missing.to_string().contains(PASSWORD), "{missing}");

    // Given up before it began.
    let call = Call { cancelled: client.call.cancelled.child_token(), ..client.call.clone() };
    call.cancelled.cancel();
    assert_eq!(ask(call, "image_pull", asked).await["error"]["code"], "cancelled");
}

#[tokio::test]
async fn a_sandbox_is_made_on_an_image_which_it_then_uses() {
    let world = World::new().await;
    let client = &world.client;
    let handle = world.import("base", "base").await;
    client.data("sandbox_create", json!({ "name": "box", "image": "base" })).await;
    let which = client.call.sandbox("box").unwrap();
    let view = client.call.engine().sandbox(&client.call.who, &which).await.unwrap();
    assert_eq!(view.plan.image_digest.as_deref(), handle["manifestDigest"].as_str());
    assert_eq!((view.plan.cwd.as_str(), view.plan.env["A"].as_str()), ("/etc", "b"));
    let refused = client.error("image_remove", json!({ "reference": "base" }), "wrong_state").await;
    assert!(refused["hint"].as_str().unwrap().contains("image_remove with force"), "{refused}");
    let listed = client.data("image_list", json!({})).await;
    assert_eq!(listed[0]["usedBy"].as_array().unwrap().len(), 1, "{listed}");
    let report = client.data("image_prune", json!({ "confirm": true })).await;
    assert_eq!(report["manifestsRemoved"], 0);

    let never = json!({ "rootfs": { "kind": "oci", "reference": "none", "pullPolicy": "never" } });
    let missing = client.error("sandbox_create", never, "not_found").await;
    assert!(missing["message"].as_str().unwrap().contains("none"), "{missing}");
    client.error("sandbox_create", json!({ "image": "a b" }), "invalid_request").await;

    // Directories of the host, as far as the policy goes.
    fs::create_dir(world.path("root")).unwrap();
    client.data("sandbox_create", json!({ "name": "dir", "image": world.path("root") })).await;
    for outside in [
        json!({ "image": "/etc" }),
        json!({ "rootfs": { "kind": "bind", "path": "/etc" } }),
        json!({ "rootfs": { "kind": "disk", "path": "/etc/passwd" } }),
    ] {
        client.error("sandbox_create", outside, "host_path_denied").await;
    }
}

#[tokio::test]
async fn a_sandbox_gets_its_image_with_the_callers_own_password() {
    let world = World::new().await;
    let client = &world.client;
    let registry = Registry::start_with_password("ana", PASSWORD);
    world.import("own", "own").await;
    client.data("image_save", json!({ "reference": "own", "path": world.path("own.tar") })).await;
    let reference = registry.push_archive(&world.path("own.tar"), "own:1");
    client.data("image_prune", json!({ "confirm": true })).await;

    let on = |password: &str| {
        let auth = json!({ "kind": "basic", "username": "ana", "password": password });
        json!({ "name": "box", "rootfs": { "kind": "oci", "reference": reference, "registry": { "auth": auth } } })
    };
    let refused = client.error("sandbox_create", on("wrong-password"), "denied").await;
    assert!(!refused.to_string().contains("wrong-password"), "{refused}");
    let (steps, answer) = told(client, "sandbox_create", on(PASSWORD)).await;
    assert_eq!(answer["data"]["name"], "box", "{answer:#}");
    assert!(steps.last().unwrap().2.contains("1 of 1 layers"), "{steps:?}");
    // Nothing that lasts knows it.
    let inspected = client.data("sandbox_inspect", json!({ "name": "box" })).await;
    assert!(!inspected.to_string().contains(PASSWORD), "{inspected:#}");
    // Once it is here nobody needs a password.
    client.data("sandbox_create", json!({ "name": "again", "image": reference })).await;
}

#[tokio::test]
async fn a_restored_sandbox_is_listed_with_its_image() {
    let world = World::new().await;
    let client = &world.client;
    world.import("base", "base").await;
    client.data("sandbox_create", json!({ "name": "box", "image": "base" })).await;
    client.data("sandbox_stop", json!({ "name": "box" })).await;
    client.data("snapshot_create", json!({ "name": "kept", "fromSandbox": "box" })).await;
    client.data("sandbox_restore", json!({ "name": "again", "snapshot": "kept" })).await;
    let config = &client.data("sandbox_inspect", json!({ "name": "again" })).await["config"];
    assert!(config["image"].as_str().unwrap().contains("base"), "{config:#}");
    for tool in ["sandbox_list", "sandbox_status"] {
        let listed = client.data(tool, json!({ "names": ["again"] })).await;
        assert_eq!(listed[0]["image"], config["image"], "{tool}: {listed:#}");
    }
}
