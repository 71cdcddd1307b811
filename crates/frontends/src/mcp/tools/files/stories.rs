//! Stories of the file tools.

use serde_json::{Value, json};

use crate::mcp::{
    Part, Settings,
    testing::{Client, native},
};

pub(super) async fn client(names: &[&str]) -> Client {
    let client = Client::new().await;
    for name in names {
        client.data("sandbox_create", json!({ "name": name })).await;
    }
    client
}

async fn put(client: &Client, path: &str, content: &str) {
    client.data("sandbox_fs_write", json!({ "name": "web", "path": path, "content": content })).await;
}

async fn get(client: &Client, path: &str) -> Value {
    client.data("sandbox_fs_read", json!({ "name": "web", "path": path })).await["content"].clone()
}

#[tokio::test]
async fn what_is_written_is_read_whole_in_parts_and_in_lines() {
    let client = client(&["web"]).await;
    let text = "one\ntwo\nthree\nfour";
    let written =
        client.data("sandbox_fs_write", json!({ "name": "web", "path": "/w/a.txt", "content": text })).await;
    assert_eq!(written, json!({ "path": "/w/a.txt", "encoding": "utf8", "written": 18 }));
    let read = |more: Value| {
        let mut arguments = json!({ "name": "web", "path": "/w/a.txt" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.data("sandbox_fs_read", arguments)
    };
    assert_eq!(
        read(json!({})).await,
        json!({ "path": "/w/a.txt", "encoding": "utf8", "content": text, "size": 18, "totalLines": 4 })
    );
    let part = read(json!({ "offset": 4, "length": 3 })).await;
    assert_eq!((&part["content"], &part["offset"], &part["size"]), (&json!("two"), &json!(4), &json!(18)));
    assert_eq!(read(json!({ "encoding": "base64", "length": 3 })).await["content"], "b25l");
    for (start, end, content, first, last) in [
        (Some(2), Some(3), "two\nthree\n", 2, 3),
        (Some(-2), None, "three\nfour", 3, 4),
        (None, Some(-3), "one\ntwo\n", 1, 2),
        (Some(4), Some(99), "four", 4, 4),
        (Some(-99), Some(1), "one\n", 1, 1),
    ] {
        let lines = read(json!({ "startLine": start, "endLine": end })).await;
        assert_eq!(lines["content"], content, "{start:?} to {end:?}");
        assert_eq!((&lines["startLine"], &lines["endLine"]), (&json!(first), &json!(last)));
    }
    // The end is known only to one who came there.
    assert_eq!(read(json!({ "startLine": 1, "endLine": 2 })).await.get("totalLines"), None);
    assert_eq!(read(json!({ "startLine": 3 })).await["totalLines"], 4);
}

#[tokio::test]
async fn ranges_that_make_no_sense_are_refused() {
    let client = client(&["web"]).await;
    put(&client, "/a", "one\n").await;
    for wrong in [
        json!({ "startLine": 1, "offset": 2 }),
        json!({ "startLine": 0 }),
        json!({ "startLine": 3, "endLine": 2 }),
        json!({ "startLine": 1, "encoding": "base64" }),
    ] {
        let mut arguments = json!({ "name": "web", "path": "/a" });
        arguments.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let error = client.error("sandbox_fs_read", arguments, "invalid_request").await;
        assert!(error["hint"].is_string(), "{error}");
    }
    let past = client.ask("sandbox_fs_read", json!({ "name": "web", "path": "/a", "startLine": 9 })).await;
    assert_eq!(past["data"]["content"], "");
    assert_eq!(past["warnings"][0], "There is no line 9: the file has 1.");
    let error = client.error("sandbox_fs_read", json!({ "name": "web", "path": "/none" }), "not_found").await;
    assert!(error["hint"].as_str().unwrap().contains("sandbox_fs_list"), "{error}");
    client.error("sandbox_fs_read", json!({ "name": "web", "path": "" }), "invalid_request").await;
    let error = client.error("sandbox_fs_read", json!({ "name": "nil", "path": "/a" }), "not_found").await;
    assert!(error["hint"].as_str().unwrap().contains("sandbox_list"), "{error}");
}

#[tokio::test]
async fn what_does_not_fit_is_cut_at_characters_and_lines_and_can_be_read_on() {
    let client = client(&["web"]).await;
    let text = "äöü\nABCDEF\nxyz\n";
    put(&client, "/a", text).await;
    // By bytes: following the hints gives the whole text back, and no character is cut.
    let (mut offset, mut all) = (0, String::new());
    loop {
        let part = client
            .ask("sandbox_fs_read", json!({ "name": "web", "path": "/a", "maxBytes": 3, "offset": offset }))
            .await;
        let content = part["data"]["content"].as_str().unwrap();
        assert!(!content.contains('\u{FFFD}'), "{part}");
        all.push_str(content);
        let Some(cut) = part["truncated"].get(0) else { break };
        assert_eq!(cut["returnedBytes"], content.len());
        assert_eq!(cut["totalBytes"], text.len() - offset);
        offset += content.len();
        assert!(cut["hint"].as_str().unwrap().contains(&format!("\"offset\":{offset},")), "{cut}");
    }
    assert_eq!(all, text);
    // By lines: whole lines as long as they fit.
    let part = client
        .ask("sandbox_fs_read", json!({ "name": "web", "path": "/a", "startLine": 1, "maxBytes": 16 }))
        .await;
    assert_eq!(part["data"]["content"], "äöü\nABCDEF\n");
    assert_eq!(part["data"]["endLine"], 2);
    let cut = &part["truncated"][0];
    assert_eq!((&cut["returnedBytes"], &cut["totalBytes"]), (&json!(14), &json!(18)));
    assert!(cut["hint"].as_str().unwrap().contains("\"startLine\":3"), "{cut}");
    // A line that is too long by itself is continued by bytes.
    let part = client
        .ask("sandbox_fs_read", json!({ "name": "web", "path": "/a", "startLine": 2, "maxBytes": 4 }))
        .await;
    assert_eq!(part["data"]["content"], "ABCD");
    assert!(part["truncated"][0]["hint"].as_str().unwrap().contains("\"offset\":11"), "{part}");
}

#[tokio::test]
async fn bytes_that_are_no_text_come_with_a_warning_and_exactly_as_base64() {
    let client = client(&["web"]).await;
    let write = json!({ "name": "web", "path": "/b", "content": "AP8BYQ==", "encoding": "base64" });
    assert_eq!(client.data("sandbox_fs_write", write).await["written"], 4);
    let lossy = client.ask("sandbox_fs_read", json!({ "name": "web", "path": "/b" })).await;
    assert_eq!(lossy["data"]["content"], "\0\u{FFFD}\u{1}a");
    assert!(lossy["warnings"][0].as_str().unwrap().contains("base64"), "{lossy}");
    let exact = json!({ "name": "web", "path": "/b", "encoding": "base64" });
    assert_eq!(client.data("sandbox_fs_read", exact).await["content"], "AP8BYQ==");
    let wrong = json!({ "name": "web", "path": "/b", "content": "?", "encoding": "base64" });
    client.error("sandbox_fs_write", wrong, "invalid_request").await;
}

#[tokio::test]
async fn the_default_limit_holds_for_base64_too() {
    let settings = Settings { max_output_bytes: Some(10), ..Settings::default() };
    let client = Client::with(settings).await;
    client.data("sandbox_create", json!({ "name": "web" })).await;
    put(&client, "/a", &"x".repeat(100)).await;
    let read =
        client.ask("sandbox_fs_read", json!({ "name": "web", "path": "/a", "encoding": "base64" })).await;
    assert_eq!(read["data"]["content"], "eHh4eHh4eHh4eA==");
    assert_eq!(read["truncated"][0]["totalBytes"], 100);
}

#[tokio::test]
async fn a_write_replaces_appends_or_refuses() {
    let client = client(&["web"]).await;
    put(&client, "/a", "one").await;
    put(&client, "/a", "two").await;
    let write = |more: Value| {
        let mut arguments = json!({ "name": "web", "path": "/a", "content": "+" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    client.data("sandbox_fs_write", write(json!({ "append": true, "mode": "600" }))).await;
    assert_eq!(get(&client, "/a").await, "two+");
    let stat = client.data("sandbox_fs_stat", json!({ "name": "web", "path": "/a" })).await;
    assert_eq!(stat["mode"], 0o100_600);
    let error = client.error("sandbox_fs_write", write(json!({ "createNew": true })), "already_exists").await;
    assert!(error["hint"].as_str().unwrap().contains("createNew"), "{error}");
    client
        .error("sandbox_fs_write", write(json!({ "createNew": true, "append": true })), "invalid_request")
        .await;
    client.error("sandbox_fs_write", write(json!({ "mode": "rwx" })), "invalid_request").await;
    assert_eq!(get(&client, "/a").await, "two+");
}

#[tokio::test]
async fn listings_have_whole_modes_and_times_and_tell_that_they_are_cut() {
    let client = client(&["web"]).await;
    put(&client, "/d/a", "12").await;
    put(&client, "/d/e/b", "1").await;
    let list = client.data("sandbox_fs_list", json!({ "name": "web", "path": "/d" })).await;
    let entry = &list[0];
    assert_eq!((&entry["path"], &entry["kind"], &entry["size"]), (&json!("/d/a"), &json!("file"), &json!(2)));
    assert_eq!((&entry["mode"], &list[1]["mode"]), (&json!(33188), &json!(0o040_755)));
    assert!(entry["modified"].as_str().unwrap().ends_with('Z'), "{entry}");
    assert_eq!(list.as_array().unwrap().len(), 2);
    let all = client
        .ask("sandbox_fs_list", json!({ "name": "web", "path": "/d", "recursive": true, "limit": 2 }))
        .await;
    assert_eq!(all["data"].as_array().unwrap().len(), 2);
    assert!(all["warnings"][0].as_str().unwrap().contains(r#""offset":2"#), "{all}");
    client.error("sandbox_fs_list", json!({ "name": "web", "path": "/d/a" }), "wrong_state").await;
}

#[tokio::test]
async fn a_path_of_another_kind_is_told_with_the_call_for_it() {
    let client = client(&["web"]).await;
    put(&client, "/d/a", "12").await;
    for (tool, path, right) in [
        ("sandbox_fs_read", "/d", "sandbox_fs_list"),
        ("sandbox_fs_write", "/d", "sandbox_fs_list"),
        ("sandbox_fs_list", "/d/a", "sandbox_fs_read"),
    ] {
        let mut arguments = json!({ "name": "web", "path": path });
        if tool == "sandbox_fs_write" {
            arguments["content"] = json!("x");
        }
        let error = client.error(tool, arguments, "wrong_state").await;
        let call = format!("{right} {}", json!({ "name": "web", "path": path }));
        assert!(error["hint"].as_str().unwrap().contains(&call), "{tool}: {error}");
    }
}

#[tokio::test]
async fn a_picture_is_shown_as_one() {
    let client = client(&["web"]).await;
    let base64 =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";
    let picture = json!({ "name": "web", "path": "/p.png", "content": base64, "encoding": "base64" });
    client.data("sandbox_fs_write", picture).await;
    let call = client.call.clone();
    let arguments = json!({ "name": "web", "path": "/p.png" }).as_object().cloned();
    let reply = native().call("sandbox_fs_read", call, arguments).await;
    let expected = Part::Image { mime_type: "image/png".to_owned(), base64: base64.to_owned() };
    assert_eq!(reply.parts, [expected]);
    let told = reply.data.unwrap();
    assert_eq!(told["data"]["content"], "");
    assert!(told["warnings"][0].as_str().unwrap().contains("base64"), "{told}");
    let exact = json!({ "name": "web", "path": "/p.png", "encoding": "base64" });
    assert_eq!(client.data("sandbox_fs_read", exact).await["content"], base64);
}

#[tokio::test]
async fn only_a_missing_path_does_not_exist() {
    let client = client(&["web"]).await;
    put(&client, "/a", "").await;
    for (path, exists) in [("/a", true), ("/", true), ("/b", false), ("/a/b", false)] {
        let answer = client.data("sandbox_fs_exists", json!({ "name": "web", "path": path })).await;
        assert_eq!(answer, json!({ "path": path, "exists": exists }));
    }
    client.error("sandbox_fs_exists", json!({ "name": "nil", "path": "/a" }), "not_found").await;
    client.data("sandbox_stop", json!({ "name": "web" })).await;
    client.error("sandbox_fs_exists", json!({ "name": "web", "path": "/a" }), "wrong_state").await;
}

#[tokio::test]
async fn paths_are_made_moved_and_removed() {
    let client = client(&["web"]).await;
    let made = client.data("sandbox_fs_mkdir", json!({ "name": "web", "path": "/m/n", "mode": "700" })).await;
    assert_eq!(made, json!({ "path": "/m/n", "created": true }));
    client.data("sandbox_fs_mkdir", json!({ "name": "web", "path": "/m/n" })).await;
    put(&client, "/m/n/a", "1").await;
    put(&client, "/m/b", "2").await;
    let rename = json!({ "name": "web", "from": "/m/n/a", "to": "/m/b" });
    let error = client.error("sandbox_fs_rename", rename, "already_exists").await;
    assert!(error["hint"].as_str().unwrap().contains("replace"), "{error}");
    let rename = json!({ "name": "web", "from": "/m/n/a", "to": "/m/b", "replace": true });
    assert_eq!(client.data("sandbox_fs_rename", rename).await["renamed"], true);
    assert_eq!(get(&client, "/m/b").await, "1");
    for (path, kind) in [("/m/b", "dir"), ("/m", "file")] {
        let arguments = json!({ "name": "web", "path": path, "kind": kind });
        client.error("sandbox_fs_remove", arguments, "wrong_state").await;
    }
    let arguments = json!({ "name": "web", "path": "/m", "kind": "dir" });
    assert_eq!(client.data("sandbox_fs_remove", arguments).await, json!({ "path": "/m", "removed": true }));
    client.error("sandbox_fs_remove", json!({ "name": "web", "path": "/m" }), "not_found").await;
}

#[tokio::test]
async fn files_and_trees_are_copied_within_and_across() {
    let client = client(&["web", "peer"]).await;
    put(&client, "/src/a", "1").await;
    put(&client, "/src/d/b", "22").await;
    let copied =
        client.data("sandbox_fs_copy", json!({ "name": "web", "from": "/src", "to": "/x/copy" })).await;
    assert_eq!(copied["from"], json!({ "sandbox": "web", "path": "/src" }));
    assert_eq!(get(&client, "/x/copy/d/b").await, "22");
    let across = |from: &str, to: &str| json!({ "name": "web", "from": from, "to": to, "toSandbox": "peer" });
    let copied = client.data("sandbox_fs_copy", across("/src/a", "/deep/down/a")).await;
    assert_eq!((&copied["copied"], &copied["bytes"]), (&json!(true), &json!(1)));
    let copied = client.data("sandbox_fs_copy", across("/src/", "/there")).await;
    assert_eq!(copied["bytes"], 3);
    let peer =
        client.data("sandbox_fs_list", json!({ "name": "peer", "path": "/there", "recursive": true })).await;
    let paths: Vec<_> = peer.as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
    assert_eq!(paths, ["/there/a", "/there/d", "/there/d/b"]);
    // Temporary files are gone again.
    let top = client.data("sandbox_fs_list", json!({ "name": "peer", "path": "/" })).await;
    assert!(!top.to_string().contains("warren-copy"), "{top}");
    client.error("sandbox_fs_copy", across("/src", "/there"), "already_exists").await;
    client.error("sandbox_fs_copy", across("/", "/all"), "invalid_request").await;
    client.error("sandbox_fs_copy", across("/none", "/x"), "not_found").await;
}

#[tokio::test]
async fn a_tree_is_drawn_and_what_is_near_comes_first() {
    let client = client(&["web"]).await;
    put(&client, "/p/src/deep/x.rs", "x").await;
    put(&client, "/p/src/main.rs", &"y".repeat(2048)).await;
    put(&client, "/p/README", "").await;
    let tree = client.data("sandbox_fs_tree", json!({ "name": "web", "path": "/p" })).await;
    let drawn =
        "/p\n├── README (0 B)\n└── src/\n    ├── deep/\n    │   └── x.rs (1 B)\n    └── main.rs (2.0 KiB)\n";
    assert_eq!(tree["tree"], drawn);
    assert_eq!(
        (&tree["directories"], &tree["files"], &tree["partial"]),
        (&json!(2), &json!(3), &json!(false))
    );
    let shallow = client.data("sandbox_fs_tree", json!({ "name": "web", "path": "/p", "depth": 1 })).await;
    assert_eq!(shallow["tree"], "/p\n├── README (0 B)\n└── src/ …\n");
    assert_eq!(shallow["partial"], true);
    let cut = client.data("sandbox_fs_tree", json!({ "name": "web", "path": "/p", "limit": 3 })).await;
    assert_eq!(cut["tree"], "/p\n├── README (0 B)\n└── src/\n    ├── deep/ …\n    └── …\n");
    client.error("sandbox_fs_tree", json!({ "name": "web", "path": "/none" }), "not_found").await;
}

#[tokio::test]
async fn files_are_found_by_name_and_by_what_is_in_them() {
    let client = client(&["web"]).await;
    put(&client, "/p/a.py", "import os\nx = 1\nprint(x)\n").await;
    put(&client, "/p/sub/b.py", "print('Print(')\n").await;
    put(&client, "/p/c.txt", "print\n").await;
    let search = |more: Value| {
        let mut arguments = json!({ "name": "web", "path": "/p" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.data("sandbox_fs_search", arguments)
    };
    assert_eq!(search(json!({ "glob": "*.py" })).await["paths"], json!(["/p/a.py", "/p/sub/b.py"]));
    assert_eq!(search(json!({ "glob": "sub/*" })).await["paths"], json!(["/p/sub/b.py"]));
    let found = search(json!({ "grep": "^print", "glob": "*.py", "context": 1 })).await;
    let matches = found["matches"].as_array().unwrap();
    assert_eq!(matches.len(), 2);
    assert_eq!(matches[0], json!({ "path": "/p/a.py", "line": 3, "text": "print(x)", "before": ["x = 1"] }));
    let found =
        search(json!({ "grep": "print(", "literal": true, "ignoreCase": true, "include": "b.py" })).await;
    assert_eq!(found["matches"].as_array().unwrap().len(), 1);
    let cut = client
        .ask("sandbox_fs_search", json!({ "name": "web", "path": "/p", "grep": "print", "limit": 1 }))
        .await;
    assert_eq!((&cut["data"]["truncated"], cut["warnings"].as_array().unwrap().len()), (&json!(true), 1));
    for wrong in [json!({}), json!({ "grep": "(" }), json!({ "grep": "x", "glob": "*", "include": "*" })] {
        let mut arguments = json!({ "name": "web" });
        arguments.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        client.error("sandbox_fs_search", arguments, "invalid_request").await;
    }
}

#[tokio::test]
async fn listening_ports_are_read_from_the_tables_inside() {
    let client = client(&["web"]).await;
    client.error("sandbox_ports", json!({ "name": "nil" }), "not_found").await;
    assert_eq!(client.data("sandbox_ports", json!({ "name": "web" })).await["ports"], json!([]));
    // One that listens to all, and one with a connection, which is no port.
    let server = "import os, socket, time\n\
                  near = socket.create_server(('127.0.0.1', 8080))\n\
                  far = socket.create_server(('0.0.0.0', 8081))\n\
                  connection = socket.create_connection(('127.0.0.1', 8080))\n\
                  print('ready', os.getpid(), os.getuid(), flush=True)\n\
                  time.sleep(1000)\n";
    let start = json!({ "name": "web", "command": "python3", "args": ["-c", server] });
    let session = client.data("sandbox_exec_start", start).await["execSessionId"].clone();
    client.printed(session.as_str().unwrap(), "ready").await;
    let all = client.data("sandbox_exec_poll", json!({ "execSessionId": session })).await;
    let said = all["events"].as_array().unwrap().iter().find_map(|event| event["event"]["data"].as_str());
    let own: Vec<u32> = said.unwrap().split_whitespace().skip(1).map(|word| word.parse().unwrap()).collect();
    let (pid, uid) = (own[0], own[1]);
    let mut ports = client.data("sandbox_ports", json!({ "name": "web" })).await["ports"].clone();
    for port in ports.as_array_mut().unwrap() {
        let process = port.as_object_mut().unwrap().remove("process").unwrap_or_default();
        assert!(process.as_str().unwrap_or_default().starts_with("python"), "{process}");
    }
    assert_eq!(
        ports,
        json!([
            { "port": 8080, "address": "127.0.0.1", "loopback": true, "uid": uid, "pid": pid },
            { "port": 8081, "address": "0.0.0.0", "loopback": false, "uid": uid, "pid": pid },
        ])
    );
}

#[tokio::test]
async fn a_read_behind_the_end_tells_where_the_end_is() {
    let client = client(&["web"]).await;
    put(&client, "/a", "12345").await;
    let read =
        |offset: u64| client.ask("sandbox_fs_read", json!({ "name": "web", "path": "/a", "offset": offset }));
    let behind = read(100).await;
    assert_eq!((&behind["data"]["content"], &behind["data"]["size"]), (&json!(""), &json!(5)));
    assert!(behind["warnings"][0].as_str().unwrap().contains("the file has 5 bytes"), "{behind}");
    // Who reads on to the end comes to it exactly.
    assert!(read(5).await.get("warnings").is_none());
    let stat = client.data("sandbox_fs_stat", json!({ "name": "web", "path": "/a" })).await;
    assert_eq!(stat.get("created"), Some(&Value::Null), "{stat}");
}

#[tokio::test]
async fn an_expression_that_is_none_is_told_in_one_line() {
    let client = client(&["web"]).await;
    let arguments = json!({ "name": "web", "path": "/", "grep": "foo(" });
    let error = client.error("sandbox_fs_search", arguments, "invalid_request").await;
    assert_eq!(error["message"], "\"foo(\" is not a regular expression: unclosed group");
    assert!(error["hint"].as_str().unwrap().contains("literal: true"), "{error}");
}

#[tokio::test]
async fn relative_paths_start_at_the_working_directory_in_every_tool() {
    let client = client(&["box"]).await;
    client.data("sandbox_fs_write", json!({ "name": "box", "path": "src/a.txt", "content": "one\n" })).await;
    let read = client.data("sandbox_fs_read", json!({ "name": "box", "path": "/root/src/a.txt" })).await;
    assert_eq!(read["content"], "one\n");
    let edit =
        json!({ "name": "box", "path": "src/a.txt", "edits": [{ "oldText": "one", "newText": "two" }] });
    client.data("sandbox_fs_edit", edit).await;
    client.data("sandbox_fs_copy", json!({ "name": "box", "from": "src/a.txt", "to": "b.txt" })).await;
    client.data("sandbox_fs_rename", json!({ "name": "box", "from": "b.txt", "to": "./c.txt" })).await;
    client.data("sandbox_fs_mkdir", json!({ "name": "box", "path": "made" })).await;
    let listed = client.data("sandbox_fs_list", json!({ "name": "box", "path": "." })).await;
    let paths: Vec<_> = listed.as_array().unwrap().iter().map(|entry| entry["path"].clone()).collect();
    assert_eq!(paths, ["/root/c.txt", "/root/made", "/root/src"]);
    let tree = client.data("sandbox_fs_tree", json!({ "name": "box", "path": "src" })).await;
    assert!(tree["tree"].as_str().unwrap().contains("a.txt"), "{tree}");
    let found =
        client.data("sandbox_fs_search", json!({ "name": "box", "path": "src", "grep": "two" })).await;
    assert_eq!(found["matches"][0]["path"], "/root/src/a.txt");
    let stat = client.data("sandbox_fs_stat", json!({ "name": "box", "path": "c.txt" })).await;
    assert_eq!((&stat["path"], &stat["size"]), (&json!("/root/c.txt"), &json!(4)));
    let inside = json!({ "name": "box", "command": "cat", "args": ["a.txt"], "cwd": "src" });
    assert_eq!(client.data("sandbox_exec", inside).await["stdout"], "two\n");
    let code = json!({ "name": "box", "code": "open('a.txt').read()", "cwd": "src", "context": "in-src" });
    assert_eq!(client.data("sandbox_run_code", code).await["result"], "'two\\n'");
    client.data("sandbox_fs_remove", json!({ "name": "box", "path": "made" })).await;
    let gone = client.data("sandbox_fs_exists", json!({ "name": "box", "path": "made" })).await;
    assert_eq!(gone["exists"], false);
}

#[tokio::test]
async fn long_files_and_long_lists_are_cut_with_the_call_for_the_rest() {
    let client = client(&["box"]).await;
    let fill = "seq 1 100000 > long.txt; mkdir many; cd many; touch $(seq 1 900)";
    client.data("sandbox_shell", json!({ "name": "box", "command": fill })).await;
    let envelope = client.ask("sandbox_fs_read", json!({ "name": "box", "path": "long.txt" })).await;
    assert_eq!(envelope["data"]["content"].as_str().unwrap().len(), 24 * 1024);
    let hint = envelope["truncated"][0]["hint"].as_str().unwrap();
    let next = json!({ "name": "box", "path": "long.txt", "offset": 24 * 1024 });
    assert!(
        hint.contains(&format!("sandbox_fs_read {next}")) && hint.contains("sandbox_fs_search"),
        "{hint}"
    );
    let lines = json!({ "name": "box", "path": "long.txt", "startLine": 2 });
    let envelope = client.ask("sandbox_fs_read", lines).await;
    let hint = envelope["truncated"][0]["hint"].as_str().unwrap();
    let next = json!({ "name": "box", "path": "long.txt", "startLine": envelope["data"]["endLine"].as_u64().unwrap() + 1 });
    assert!(hint.contains(&format!("sandbox_fs_read {next}")), "{hint}");

    let envelope = client.ask("sandbox_fs_list", json!({ "name": "box", "path": "many" })).await;
    let n_listed = envelope["data"].as_array().unwrap().len();
    assert!(n_listed < 900 && envelope["data"].to_string().len() <= 24 * 1024 + 2, "{n_listed}");
    let hint = envelope["truncated"][0]["hint"].as_str().unwrap();
    let all = json!({ "name": "box", "path": "many", "limit": 900 });
    assert!(hint.contains(&format!("sandbox_fs_list {all}")), "{hint}");
    assert!(!hint.contains("for one directory") && hint.contains("sandbox_fs_search"), "{hint}");
    let next = json!({ "name": "box", "path": "many", "offset": n_listed });
    assert!(hint.contains(&format!("sandbox_fs_list {next}")), "{hint}");
    let whole = client.ask("sandbox_fs_list", all).await;
    assert_eq!(whole["data"].as_array().unwrap().len(), 900);
    assert!(whole.get("truncated").is_none());
    let rest = client.data("sandbox_fs_list", next).await;
    assert_eq!(rest[0], whole["data"][n_listed]);

    // More than one answer tells of: nothing promises all of them, and the last page says nothing of more.
    let more = "cd many; touch $(seq 901 2100)";
    client.data("sandbox_shell", json!({ "name": "box", "command": more })).await;
    let envelope = client.ask("sandbox_fs_list", json!({ "name": "box", "path": "many" })).await;
    let hint = envelope["truncated"][0]["hint"].as_str().unwrap();
    assert!(hint.contains("of more than 1000 entries") && !hint.contains("for all"), "{hint}");
    assert!(envelope.get("warnings").is_none(), "{envelope}");
    let page = |offset: u64| json!({ "name": "box", "path": "many", "offset": offset, "limit": 700 });
    let envelope = client.ask("sandbox_fs_list", page(700)).await;
    assert_eq!(envelope["data"].as_array().unwrap().len(), 700);
    assert!(envelope["warnings"].to_string().contains(r#"\"offset\":1400"#), "{envelope}");
    let envelope = client.ask("sandbox_fs_list", page(1400)).await;
    assert_eq!(envelope["data"].as_array().unwrap().len(), 700);
    assert!(envelope.get("warnings").is_none(), "{envelope}");
}
