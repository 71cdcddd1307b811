//! Stories of resources: reading them, being told of changes, and seeing no more than one may.

use std::{collections::BTreeMap, time::Instant};

use engine::{Principal, SandboxRef};
use futures_util::{StreamExt, stream::BoxStream};
use sandbox::{ErrorKind, ExecId, ExecSpec};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::mcp::{
    HostPolicy, HostRoot, Settings,
    complete::{Reference, complete},
    testing::{Client, PATIENCE, ask},
};

async fn text(call: &Call, uri: &str) -> String {
    let bodies = read(call, uri).await.unwrap_or_else(|error| panic!("{uri}: {error}"));
    let [ResourceBody { uri: told, content: Content::Text(text), .. }] = &bodies[..] else {
        panic!("{uri}: {bodies:?}")
    };
    assert_eq!(told, uri);
    text.clone()
}

async fn json_of(call: &Call, uri: &str) -> Value {
    serde_json::from_str(&text(call, uri).await).unwrap()
}

async fn create(call: &Call, name: &str) {
    let made = ask(call.clone(), "sandbox_create", json!({ "name": name })).await;
    assert_eq!(made["ok"], true, "{made}");
}

async fn start(call: &Call, name: &str, command: &[&str]) -> ExecId {
    let mut spec = ExecSpec::argv(command.iter().copied());
    spec.stdin = true;
    let which = call.sandbox(name).unwrap();
    call.engine().exec(&call.who, &which, spec).await.unwrap().id
}

async fn changed(watch: &mut BoxStream<'static, ()>) {
    timeout(PATIENCE, watch.next()).await.expect("a change").expect("no end");
}

#[tokio::test]
async fn the_seven_can_be_read_under_both_names() {
    let host =
        HostPolicy { roots: vec![HostRoot { path: "/srv".into(), write: false }], ..HostPolicy::default() };
    let client = Client::with_images(Settings { host, ..Settings::default() }).await;
    let call = &client.call;
    create(call, "web").await;
    let listed = list(call).await;
    assert_eq!(listed.len(), 15);
    for entry in &listed[..14] {
        let [body] = &read(call, &entry.uri).await.unwrap()[..] else { panic!("one body") };
        assert_eq!(body.mime_type, entry.mime_type, "{}", entry.uri);
    }
    assert_eq!(listed[14].uri, "warren://sandboxes/web");
    let policy = json_of(call, "microsandbox://policy").await;
    assert_eq!(
        policy,
        json!({
            "hostPathPolicy": "allowlist", "hostPaths": ["/srv"], "writableHostPaths": [], "dangerousEnabled": false,
            "maxOutputBytes": 24_576, "defaultTimeoutMs": 120_000, "sessionTtlMs": 900_000,
        })
    );
    let runtime = json_of(call, "warren://runtime").await;
    assert_eq!(runtime["policy"], policy);
    assert_eq!(runtime["installed"], true);
    let sandboxes = json_of(call, "warren://sandboxes").await;
    assert_eq!(sandboxes[0]["name"], "web");
    assert_eq!(json_of(call, "warren://sandboxes/web").await["name"], "web");
    let schema = json_of(call, "warren://schemas/sandbox-create").await;
    assert_eq!(schema["properties"]["name"]["type"], "string");
    assert!(text(call, "warren://policy").await.starts_with("{\n  \""), "it is meant to be read");
    let error = read(call, "warren://sandboxes/nil").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = read(call, "warren://nothing").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::NotFound, "no resource warren://nothing")
    );
}

#[tokio::test]
async fn inventories_are_what_the_tools_list() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("root")).unwrap();
    std::fs::write(place.path().join("root/note"), "x").unwrap();
    let roots = vec![HostRoot { path: place.path().to_owned(), write: false }];
    let host = HostPolicy { roots, ..HostPolicy::default() };
    let client = Client::with_images(Settings { host, ..Settings::default() }).await;
    let call = &client.call;
    create(call, "web").await;
    client.data("volume_create", json!({ "name": "data" })).await;
    client.data("sandbox_stop", json!({ "name": "web" })).await;
    client.data("snapshot_create", json!({ "name": "base", "fromSandbox": "web" })).await;
    let root = place.path().join("root");
    client.data("image_import", json!({ "path": root, "reference": "own:1" })).await;
    for (what, tool, field, value) in [
        ("volumes", "volume_list", "name", "data"),
        ("snapshots", "snapshot_list", "name", "base"),
        ("images", "image_list", "reference", "docker.io/library/own:1"),
    ] {
        for scheme in SCHEMES {
            let read = json_of(call, &format!("{scheme}://{what}")).await;
            assert_eq!(read[0][field], value, "{what}: {read:#}");
            assert_eq!(read, client.data(tool, json!({})).await);
        }
    }
}

#[tokio::test]
async fn changes_of_snapshots_are_told_and_who_asks_for_what_is_not_told_learns_so() {
    let place = tempfile::tempdir().unwrap();
    let roots = vec![HostRoot { path: place.path().to_owned(), write: true }];
    let host = HostPolicy { roots, ..HostPolicy::default() };
    let client = Client::with(Settings { host, ..Settings::default() }).await;
    let call = &client.call;
    create(call, "web").await;
    client.data("sandbox_stop", json!({ "name": "web" })).await;
    let mut snapshots = watch(call, "microsandbox://snapshots").await.unwrap();
    client.data("snapshot_create", json!({ "name": "base", "fromSandbox": "web" })).await;
    changed(&mut snapshots).await;
    let archive = place.path().join("base.tar");
    client.data("snapshot_save", json!({ "pathOrName": "base", "out": archive })).await;
    client.data("snapshot_remove", json!({ "pathOrName": "base" })).await;
    changed(&mut snapshots).await;
    client.data("snapshot_load", json!({ "archive": archive })).await;
    changed(&mut snapshots).await;
    for (what, tool) in [("volumes", "volume_list"), ("images", "image_list")] {
        let error = watch(call, &format!("warren://{what}")).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(crate::mcp::words::hint(&error).unwrap().contains(tool), "{error:?}");
    }
}

#[tokio::test]
async fn files_are_text_or_bytes_with_a_type_and_a_limit() {
    let client = Client::new().await;
    let call = &client.call;
    create(call, "web").await;
    let write = |path: &str, content: &str, encoding: &str| {
        let arguments = json!({ "name": "web", "path": path, "content": content, "encoding": encoding });
        ask(call.clone(), "sandbox_fs_write", arguments)
    };
    write("/w/a b.json", "{}", "utf8").await;
    write("/w/x.png", "iVBORw==", "base64").await;
    write("/w/large", &"x".repeat(MAX_RESOURCE_BYTES + 1), "utf8").await;
    let file = |path: &str| format!("warren://sandboxes/web/files/{path}");
    assert_eq!(text(call, &file("w/a%20b.json")).await, "{}");
    let [body] = &read(call, &file("/w/x.png")).await.unwrap()[..] else { panic!("one body") };
    assert_eq!(body.mime_type, "image/png");
    assert_eq!(body.content, Content::Blob(vec![0x89, b'P', b'N', b'G']));
    let error = read(call, &file("w/large")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert!(crate::mcp::words::hint(&error).unwrap().contains("sandbox_fs_read"), "{error:?}");
    assert_eq!(read(call, &file("w/none")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn what_an_exec_printed_is_a_text_and_growing_is_told() {
    let client = Client::new().await;
    let call = &client.call;
    create(call, "web").await;
    let exec = start(call, "web", &["cat"]).await;
    let uri = format!("warren://sandboxes/web/execs/{exec}/output");
    let mut watch = watch(call, &uri).await.unwrap();
    let which = call.sandbox("web").unwrap();
    let say = async |bytes: &'static str, close: bool| {
        let bytes = Box::pin(futures_util::stream::once(std::future::ready(Ok(bytes.into()))));
        call.engine().exec_stdin(&call.who, &which, &exec, bytes, close).await.unwrap();
    };
    // That it has started is a change, too.
    say("first\n", false).await;
    while text(call, &uri).await != "first\n" {
        changed(&mut watch).await;
    }
    say("second\n", true).await;
    changed(&mut watch).await;
    // It has ended, so there is nothing more to be told, sooner or later.
    timeout(PATIENCE, async { while watch.next().await.is_some() {} }).await.expect("an end");
    assert_eq!(text(call, &uri).await, "first\nsecond\n");
    let view = json_of(call, &format!("warren://sandboxes/web/execs/{exec}")).await;
    assert_eq!((&view["state"], &view["exitCode"]), (&json!("done"), &json!(0)));
    let error = read(call, "warren://sandboxes/web/execs/exc-0000000000000/output").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn changes_of_sandboxes_and_files_are_told_and_bursts_only_now_and_then() {
    let client = Client::new().await;
    let call = &client.call;
    let mut all = watch(call, "microsandbox://sandboxes").await.unwrap();
    create(call, "web").await;
    changed(&mut all).await;
    let mut one = watch(call, "warren://sandboxes/web").await.unwrap();
    let mut file = watch(call, "warren://sandboxes/web/files/tmp/a").await.unwrap();
    let write = |path: &str| {
        let arguments = json!({ "name": "web", "path": path, "content": "x" });
        ask(call.clone(), "sandbox_fs_write", arguments)
    };
    write("/tmp/other").await;
    let burst = async {
        for _ in 0..200 {
            write("/tmp/a").await;
        }
    };
    let (mut n_told, begun) = (0, Instant::now());
    let counting = async {
        while file.next().await.is_some() {
            n_told += 1;
        }
    };
    tokio::select! { () = burst => {}, () = counting => panic!("the watch ended") }
    let most = 1 + begun.elapsed().as_millis() / watch::GAP.as_millis();
    assert!((1..=most).contains(&n_told), "{n_told} of {most}");
    ask(call.clone(), "sandbox_stop", json!({ "name": "web" })).await;
    changed(&mut one).await;
    changed(&mut all).await;
    // A file of a sandbox that stopped cannot change any more.
    timeout(PATIENCE, async { while file.next().await.is_some() {} }).await.expect("an end");
    assert_eq!(watch(call, "warren://nothing").await.err().unwrap().kind(), ErrorKind::NotFound);
}

/// An operator makes things in two namespaces, and each of them sees its own.
#[tokio::test]
async fn a_principal_sees_its_namespace_and_nothing_else() {
    let host = HostPolicy {
        roots: vec![HostRoot { path: "/srv".into(), write: true }],
        unrestricted: true,
        working_directory: None,
    };
    let client = Client::with(Settings { host, ..Settings::default() }).await;
    let of = |name: &str| {
        let mut call = client.call.clone();
        call.who = Principal::of_namespace(name, name.parse().unwrap());
        call
    };
    let (red, blue) = (of("red"), of("blue"));
    let mut in_blue = client.call.clone();
    in_blue.namespace = Some("blue".parse().unwrap());
    create(&in_blue, "theirs").await;
    let exec = start(&in_blue, "theirs", &["cat"]).await;
    let id = in_blue.engine().sandbox(&in_blue.who, &in_blue.sandbox("theirs").unwrap()).await.unwrap().id;
    let mut watch_all = watch(&red, "warren://sandboxes").await.unwrap();

    for name in ["theirs", id.as_str()] {
        for uri in [
            format!("warren://sandboxes/{name}"),
            format!("warren://sandboxes/{name}/files/etc/hostname"),
            format!("warren://sandboxes/{name}/execs/{exec}"),
            format!("warren://sandboxes/{name}/execs/{exec}/output"),
        ] {
            assert_eq!(read(&red, &uri).await.unwrap_err().kind(), ErrorKind::NotFound, "{uri}");
            assert_eq!(watch(&red, &uri).await.err().unwrap().kind(), ErrorKind::NotFound, "{uri}");
            assert!(read(&blue, &uri).await.is_ok() && watch(&blue, &uri).await.is_ok(), "{uri}");
        }
    }
    assert_eq!(json_of(&red, "warren://sandboxes").await, json!([]));
    assert!(list(&red).await.iter().all(|entry| !entry.uri.contains("sandboxes/")));
    assert!(list(&blue).await.iter().any(|entry| entry.uri == "warren://sandboxes/theirs"));
    // An operator who looks elsewhere knows it by its id, since the name means another there.
    assert!(list(&client.call).await.iter().any(|entry| entry.uri.ends_with(id.as_str())));
    let policy = json_of(&red, "warren://policy").await;
    assert_eq!((&policy["hostPathPolicy"], &policy["hostPaths"]), (&json!("none"), &json!([])));

    let context = BTreeMap::from([("name".to_owned(), "theirs".to_owned())]);
    let template = || Reference::Resource("warren://sandboxes/{name}/files/{+path}".to_owned());
    for (argument, expected) in [("name", "theirs"), ("path", "etc/"), ("id", exec.as_str())] {
        assert_eq!(
            complete(&red, template(), argument, "", &context).await.unwrap(),
            Vec::<String>::new(),
            "{argument}"
        );
        let known = complete(&blue, template(), argument, "", &context).await.unwrap();
        assert!(known.iter().any(|value| value == expected), "{argument}: {known:?}");
    }
    // Changes of others are not told: the first news is of one's own.
    ask(in_blue.clone(), "sandbox_stop", json!({ "name": "theirs" })).await;
    assert!(futures_util::FutureExt::now_or_never(watch_all.next()).is_none());
    create(&red, "ours").await;
    changed(&mut watch_all).await;
}

#[tokio::test]
async fn names_paths_and_toolsets_are_completed() {
    let client = Client::new().await;
    let call = &client.call;
    for name in ["web-1", "web-2", "db"] {
        create(call, name).await;
    }
    let ask_for = async |reference: Reference, argument: &str, value: &str| {
        let context = BTreeMap::from([("name".to_owned(), "db".to_owned())]);
        complete(call, reference, argument, value, &context).await.unwrap()
    };
    let template = || Reference::Resource(templates(crate::mcp::testing::native())[1].uri_template.clone());
    assert_eq!(ask_for(template(), "name", "web").await, ["web-1", "web-2"]);
    assert_eq!(ask_for(Reference::Prompt("debug-a-failure".into()), "sandbox", "d").await, ["db"]);
    assert_eq!(ask_for(Reference::Prompt("getting-started".into()), "toolset", "f").await, ["files"]);
    let which: SandboxRef = call.sandbox("db").unwrap();
    for path in ["/data/hosts", "/data/other"] {
        call.engine().mkdir(&call.who, &which, path, true, None).await.unwrap();
    }
    assert_eq!(ask_for(template(), "path", "dat").await, ["data/"]);
    assert_eq!(ask_for(template(), "path", "/data/ho").await, ["/data/hosts/"]);
    assert_eq!(ask_for(template(), "path", "data/").await, ["data/hosts/", "data/other/"]);
    assert_eq!(ask_for(template(), "path", "none/").await, Vec::<String>::new());
    assert_eq!(ask_for(template(), "nothing", "").await, Vec::<String>::new());
    let exec = start(call, "db", &["true"]).await;
    assert_eq!(ask_for(template(), "id", "exc-").await, [exec.to_string()]);
    for n in 0..150 {
        call.engine().mkdir(&call.who, &which, &format!("/many/{n}"), true, None).await.unwrap();
    }
    assert_eq!(ask_for(template(), "path", "many/").await.len(), 100);
}
