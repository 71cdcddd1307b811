//! Volumes as a client meets them.

use serde_json::json;

use crate::mcp::testing::Client;

#[tokio::test]
async fn a_volume_has_files_with_and_without_a_sandbox() {
    let client = Client::new().await;
    let made = client.data("volume_create", json!({ "name": "data", "labels": { "team": "red" } })).await;
    assert_eq!(
        (&made["name"], &made["kind"], &made["labels"]),
        (&json!("data"), &json!("dir"), &json!({ "team": "red" }))
    );
    assert!(
        made["quotaMib"].is_null() && made["diskFormat"].is_null() && made["createdAt"].is_string(),
        "{made}"
    );
    let again = client.error("volume_create", json!({ "name": "data" }), "already_exists").await;
    assert!(again["hint"].as_str().unwrap().contains("volume_inspect"), "{again}");

    let on = |rest: serde_json::Value| {
        let mut arguments = json!({ "name": "data" });
        arguments.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        arguments
    };
    let written = client.data("volume_fs_write", on(json!({ "path": "/a/b.txt", "content": "héllo" }))).await;
    assert_eq!(written, json!({ "name": "data", "path": "/a/b.txt", "encoding": "utf8", "written": 6 }));
    let read = client.data("volume_fs_read", on(json!({ "path": "a/b.txt" }))).await;
    assert_eq!((&read["content"], &read["path"]), (&json!("héllo"), &json!("a/b.txt")));
    let bytes = client.data("volume_fs_read", on(json!({ "path": "/a/b.txt", "encoding": "base64" }))).await;
    assert_eq!(bytes["content"], "aMOpbGxv");
    let cut = client.ask("volume_fs_read", on(json!({ "path": "/a/b.txt", "maxBytes": 2 }))).await;
    assert_eq!(
        (&cut["data"]["content"], &cut["truncated"][0]["returnedBytes"]),
        (&json!("h"), &json!(1)),
        "{cut}"
    );

    client.data("volume_fs_mkdir", on(json!({ "path": "/deep/er" }))).await;
    client.data("volume_fs_copy", on(json!({ "from": "/a/b.txt", "to": "/deep/copy" }))).await;
    let moved = client.data("volume_fs_rename", on(json!({ "from": "/deep/copy", "to": "/c" }))).await;
    assert_eq!(moved, json!({ "name": "data", "from": "/deep/copy", "to": "/c", "renamed": true }));
    let listed = client.data("volume_fs_list", on(json!({ "path": "/" }))).await;
    let paths: Vec<_> = listed.as_array().unwrap().iter().map(|entry| entry["path"].clone()).collect();
    assert_eq!(paths, ["/a", "/c", "/deep"]);
    let meta = client.data("volume_fs_stat", on(json!({ "path": "/c" }))).await;
    assert_eq!((&meta["kind"], &meta["size"], &meta["readonly"]), (&json!("file"), &json!(6), &json!(false)));
    for (path, exists) in [("/c", true), ("/no", false), ("/c/through/a/file", false)] {
        let found = client.data("volume_fs_exists", on(json!({ "path": path }))).await;
        assert_eq!(found, json!({ "name": "data", "path": path, "exists": exists }));
    }
    client.error("volume_fs_remove", on(json!({ "path": "/deep", "kind": "file" })), "wrong_state").await;
    client.data("volume_fs_remove", on(json!({ "path": "/deep" }))).await;
    for path in ["../etc/passwd", "/a/../../x"] {
        let error = client.error("volume_fs_read", on(json!({ "path": path })), "invalid_request").await;
        assert!(error["message"].as_str().unwrap().contains("path traversal outside volume root"), "{error}");
    }
    let missing = client.error("volume_fs_read", on(json!({ "path": "/no" })), "not_found").await;
    assert!(missing["hint"].as_str().unwrap().contains("volume_fs_list"), "{missing}");
}

#[tokio::test]
async fn a_volume_in_use_stays_and_what_was_removed_before_it_is_told() {
    let client = Client::new().await;
    for name in ["a", "b", "c"] {
        client.data("volume_create", json!({ "name": name })).await;
    }
    let mounts = json!([{ "kind": "named", "name": "b", "guestPath": "/data" }]);
    client.data("sandbox_create", json!({ "name": "web", "volumes": mounts })).await;
    assert_eq!(client.data("volume_inspect", json!({ "name": "b" })).await["usedBy"], json!(["web"]));
    let names = json!({ "name": "a", "names": ["b", "c"] });
    let error = client.error("volume_remove", names, "wrong_state").await;
    assert!(error["message"].as_str().unwrap().contains("web"), "{error}");
    assert_eq!(error["details"], json!({ "removed": ["a"] }));
    assert!(error["hint"].as_str().unwrap().contains("sandbox_remove"), "{error}");
    client.data("sandbox_remove", json!({ "name": "web", "force": true, "confirm": true })).await;
    let removed = client.data("volume_remove", json!({ "names": ["b", "c", "b"] })).await;
    assert_eq!(removed, json!([{ "name": "b", "removed": true }, { "name": "c", "removed": true }]));
    assert_eq!(client.data("volume_list", json!({})).await, json!([]));
    for none in [json!({}), json!({ "names": [] })] {
        let error = client.error("volume_remove", none, "invalid_request").await;
        assert_eq!(error["message"], "volume_remove requires name or names");
    }
    client.data("volume_create", json!({ "name": "d" })).await;
    client.data("volume_remove", json!({ "name": "d", "names": [] })).await;
    let error = client.error("volume_inspect", json!({ "name": "b" }), "not_found").await;
    assert!(error["hint"].as_str().unwrap().contains("volume_list"), "{error}");
}

#[tokio::test]
async fn what_no_volume_can_be_is_refused() {
    let client = Client::new().await;
    for (arguments, named) in [
        (json!({ "name": "a/b" }), "a/b"),
        (json!({ "name": "a", "kind": "disk" }), "size"),
        (json!({ "name": "a", "kind": "disk", "sizeMib": 1 }), "size"),
        (json!({ "name": "a", "sizeMib": 64 }), "directory"),
        (json!({ "name": "a", "kind": "tape" }), "tape"),
        (json!({ "name": "" }), "volume name"),
    ] {
        let error = client.error("volume_create", arguments, "invalid_request").await;
        assert!(error["message"].as_str().unwrap().contains(named), "{named}: {error}");
    }
    for (arguments, next) in [
        (json!({ "name": "" }), "volume_list"),
        (json!({ "name": "a/b" }), "volume_list"),
        (json!({ "name": "a", "kind": "disk" }), "sizeMib"),
        (json!({ "name": "a", "kind": "disk", "quotaMib": 64 }), "sizeMib"),
        (json!({ "name": "a", "sizeMib": 64 }), "quotaMib"),
        (json!({ "name": "a", "quotaMib": 1 }), "quotaMib"),
    ] {
        let error = client.error("volume_create", arguments, "invalid_request").await;
        assert!(error["hint"].as_str().unwrap().contains(next), "{next}: {error}");
    }
    let missing = json!({ "volumes": [{ "kind": "named", "source": "none", "guestPath": "/x" }] });
    let error = client.error("sandbox_create", missing, "not_found").await;
    assert!(error["message"].as_str().unwrap().contains("none"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("volume_create"), "{error}");
}

#[tokio::test]
async fn what_is_moved_replaces_files_and_finds_its_way_made() {
    let client = Client::new().await;
    client.data("volume_create", json!({ "name": "v" })).await;
    for (path, content) in [("/a", "one"), ("/b", "two"), ("/dir/x", "three")] {
        client.data("volume_fs_write", json!({ "name": "v", "path": path, "content": content })).await;
    }
    let two = |from: &str, to: &str| json!({ "name": "v", "from": from, "to": to });
    let read = async |path: &str| {
        client.data("volume_fs_read", json!({ "name": "v", "path": path })).await["content"].clone()
    };
    client.data("volume_fs_rename", two("/a", "/b")).await;
    assert_eq!(read("/b").await, "one");
    client.data("volume_fs_rename", two("/b", "b")).await;
    assert_eq!(read("/b").await, "one");
    client.data("volume_fs_rename", two("/b", "/new/deep/b")).await;
    client.data("volume_fs_copy", two("/new/deep/b", "/more/c")).await;
    assert_eq!(read("more/c").await, "one");
    // A call that fails leaves no directories behind.
    client.error("volume_fs_rename", two("/none", "/left/over"), "not_found").await;
    client.error("volume_fs_rename", two("/none", "/none"), "not_found").await;
    for tool in ["volume_fs_rename", "volume_fs_copy"] {
        let error = client.error(tool, two("/dir", "/dir/y/z"), "invalid_request").await;
        assert!(error["hint"].as_str().unwrap().contains("below `from`"), "{error}");
    }
    let error = client.error("volume_fs_copy", two("/dir", "/dir"), "invalid_request").await;
    assert!(error["hint"].as_str().unwrap().contains("below `from`"), "{error}");
    let paths = async |path: &str| {
        let listed = client.data("volume_fs_list", json!({ "name": "v", "path": path })).await;
        listed.as_array().unwrap().iter().map(|entry| entry["path"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(paths(".").await, ["/dir", "/more", "/new"]);
    assert_eq!(paths("dir/../dir/").await, ["/dir/x"]);
}

#[tokio::test]
async fn a_directory_is_listed_whole_if_asked() {
    let client = Client::new().await;
    client.data("volume_create", json!({ "name": "v" })).await;
    let which = super::meant(&client.call, "v").unwrap();
    for n in 0..1100 {
        let path = format!("/d{n}");
        client.call.engine().mkdir(&client.call.who, &which, &path, true, None).await.unwrap();
    }
    let listed = client.data("volume_fs_list", json!({ "name": "v", "path": "/", "limit": 10_000 })).await;
    assert_eq!(listed.as_array().unwrap().len(), 1100);
    let envelope = client.ask("volume_fs_list", json!({ "name": "v", "path": "/" })).await;
    let hint = envelope["truncated"][0]["hint"].as_str().unwrap();
    let all = json!({ "name": "v", "path": "/", "limit": 1100 });
    assert!(hint.contains(&format!("volume_fs_list {all}")), "{hint}");
}

#[tokio::test]
async fn bytes_are_taken_however_base64_is_written() {
    let client = Client::new().await;
    client.data("volume_create", json!({ "name": "v" })).await;
    let write =
        |content: &str| json!({ "name": "v", "path": "/f", "content": content, "encoding": "base64" });
    for written in ["+/+/AA==", "+/+/\r\n AA\n", "-_-_AA", "+/+/AA="] {
        client.data("volume_fs_write", write(written)).await;
        let read = json!({ "name": "v", "path": "/f", "encoding": "base64" });
        assert_eq!(client.data("volume_fs_read", read).await["content"], "+/+/AA==", "{written:?}");
    }
    let error = client.error("volume_fs_write", write("AA=A"), "invalid_request").await;
    assert!(error["message"].as_str().unwrap().contains("base64"), "{error}");
}
