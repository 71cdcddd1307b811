use axum::{
    body::Body,
    http::{Method, Request},
};
use serde_json::json;

use crate::support::{Api, next_with, pieces};

const FILES: &str = "/v1/sandboxes/box/files";

#[tokio::test]
async fn a_file_is_written_read_by_range_and_described() {
    let api = Api::with_box().await;
    let write = format!("{FILES}/content?path=/srv/note&mode=0640&parents=true");
    assert_eq!(api.send_bytes(Method::PUT, &write, "hello world").await.expect(200).json()["bytes"], 11);
    let read = api.get(&format!("{FILES}/content?path=/srv/note")).await.expect(200);
    assert_eq!((read.text(), &read.headers["x-warren-size"]), ("hello world", &"11".parse().unwrap()));
    assert_eq!(read.headers["x-warren-mode"], "0640");
    let part = api.get(&format!("{FILES}/content?path=/srv/note&offset=6&length=3")).await.expect(200);
    assert_eq!(part.text(), "wor");
    let stat = api.get(&format!("{FILES}/stat?path=/srv/note")).await.expect(200).json();
    assert_eq!((&stat["kind"], &stat["size"], &stat["mode"]), (&json!("file"), &json!(11), &json!("0640")));

    let append = format!("{FILES}/content?path=/srv/note&write=append");
    api.send_bytes(Method::PUT, &append, "!").await.expect(200);
    assert_eq!(api.get(&format!("{FILES}/content?path=/srv/note")).await.text(), "hello world!");
    let new = format!("{FILES}/content?path=/srv/note&write=createNew");
    api.send_bytes(Method::PUT, &new, "x").await.expect_error(409, "already_exists");
    let odd = format!("{FILES}/content?path=/srv/note&write=sometimes");
    api.send_bytes(Method::PUT, &odd, "x").await.expect_error(400, "invalid_request");
    let mode = format!("{FILES}/content?path=/srv/note&mode=99");
    api.send_bytes(Method::PUT, &mode, "x").await.expect_error(400, "invalid_request");
}

#[tokio::test]
async fn trees_are_made_searched_and_changed() {
    let api = Api::with_box().await;
    let act = async |verb: &str, body: serde_json::Value| {
        api.post(&format!("{FILES}/{verb}"), body).await.expect(204);
    };
    act("mkdir", json!({ "path": "/w/a", "parents": true })).await;
    api.send_bytes(Method::PUT, &format!("{FILES}/content?path=/w/a/x.rs"), "fn main() {}\n")
        .await
        .expect(200);
    act("copy", json!({ "from": "/w/a", "to": "/w/b", "recursive": true })).await;
    act("rename", json!({ "from": "/w/b/x.rs", "to": "/w/b/y.rs" })).await;
    act("symlink", json!({ "target": "../a/x.rs", "path": "/w/b/link" })).await;
    act("chmod", json!({ "path": "/w/b/y.rs", "mode": "0600" })).await;
    let isolation = api.get("/v1/sandboxes/box").await.expect(200).json()["isolation"].clone();
    // Without a range of ids there is only one user inside.
    let (uid, gid) = if isolation["idMap"] == "single" { (0, 0) } else { (7, 8) };
    act("chown", json!({ "path": "/w/b/y.rs", "uid": uid, "gid": gid })).await;

    let link = api.get(&format!("{FILES}/link?path=/w/b/link")).await.expect(200).json();
    assert_eq!(link["target"], "../a/x.rs");
    let changed = api.get(&format!("{FILES}/stat?path=/w/b/y.rs")).await.expect(200).json();
    assert_eq!(
        (&changed["mode"], &changed["uid"], &changed["gid"]),
        (&json!("0600"), &json!(uid), &json!(gid))
    );
    let listed = api.get(&format!("{FILES}/list?path=/w&recursive=true")).await.expect(200).json();
    let paths: Vec<_> =
        listed["entries"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/w/a", "/w/a/x.rs", "/w/b", "/w/b/link", "/w/b/y.rs"]);
    let cut = api.get(&format!("{FILES}/list?path=/w&recursive=true&limit=2")).await.expect(200).json();
    assert_eq!((cut["entries"].as_array().unwrap().len(), &cut["truncated"]), (2, &json!(true)));
    let globbed = api.get(&format!("{FILES}/glob?root=/w&pattern=**/*.rs")).await.expect(200).json();
    assert_eq!(globbed["paths"], json!(["/w/a/x.rs", "/w/b/y.rs"]));
    let grepped =
        api.get(&format!("{FILES}/grep?root=/w&pattern=MAIN&ignoreCase=true")).await.expect(200).json();
    assert_eq!(grepped["matches"][0], json!({ "path": "/w/a/x.rs", "line": 1, "text": "fn main() {}" }));

    act("remove", json!({ "path": "/w", "recursive": true })).await;
    api.get(&format!("{FILES}/stat?path=/w")).await.expect_error(404, "not_found");
    let typo = json!({ "path": "/x", "recursve": true });
    api.post(&format!("{FILES}/remove"), typo).await.expect_error(400, "invalid_request");
}

#[tokio::test]
async fn a_tree_goes_out_and_in_as_tar() {
    let api = Api::with_box().await;
    let write = format!("{FILES}/content?path=/t/deep/file&parents=true");
    api.send_bytes(Method::PUT, &write, "inside").await.expect(200);
    let tar = api.get(&format!("{FILES}/archive?path=/t")).await.expect(200);
    assert_eq!(tar.headers["content-type"], "application/x-tar");
    api.post(&format!("{FILES}/mkdir"), json!({ "path": "/copy" })).await.expect(204);
    api.send_bytes(Method::PUT, &format!("{FILES}/archive?path=/copy"), tar.bytes).await.expect(200);
    let read = api.get(&format!("{FILES}/content?path=/copy/t/deep/file")).await.expect(200);
    assert_eq!(read.text(), "inside");
}

#[tokio::test]
async fn changes_are_watched() {
    let api = Api::with_box().await;
    let request = Request::get(format!("{FILES}/watch?path=/root&recursive=true"))
        .header("accept", "text/event-stream");
    let mut stream = pieces(api.open(request.body(Body::empty()).unwrap()).await);
    api.run(&["mkdir", "/root/made"]).await;
    let seen = next_with(&mut stream, "/root/made").await;
    assert!(seen.contains("event: change") && seen.contains("created"), "{seen}");
    // A file that is written whole takes its name when it is complete.
    api.send_bytes(Method::PUT, &format!("{FILES}/content?path=/root/written"), "x").await.expect(200);
    let seen = next_with(&mut stream, "/root/written").await;
    assert!(seen.contains("event: change") && seen.contains("renamed"), "{seen}");
}
