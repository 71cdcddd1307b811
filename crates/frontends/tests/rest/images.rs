use std::{convert::Infallible, fs, os::unix::fs::MetadataExt as _, time::Duration};

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use bytes::Bytes;
use engine::Principal;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::support::{Api, PATIENCE, next_with, pieces};

/// A tar of a small root file system.
fn root_tar(word: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(word.len() as u64);
    header.set_mode(0o644);
    // Nobody can be given it but whoever runs this test.
    header.set_uid(fs::metadata("/proc/self").unwrap().uid().into());
    header.set_gid(fs::metadata("/proc/self").unwrap().gid().into());
    tar.append_data(&mut header, "etc/word", word.as_bytes()).unwrap();
    tar.into_inner().unwrap()
}

async fn import(api: &Api, word: &str, reference: &str) -> Value {
    let target =
        format!("/v1/images/import?reference={reference}&config=%7B%22env%22%3A%5B%22A%3Db%22%5D%7D");
    api.send_bytes(Method::POST, &target, root_tar(word)).await.expect(200).json()
}

async fn references(api: &Api) -> Vec<String> {
    let listed = api.get("/v1/images").await.expect(200).json();
    let images = listed["images"].as_array().unwrap();
    images.iter().flat_map(|image| image["references"].as_array().unwrap().clone()).map(text).collect()
}

fn text(value: Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_image_comes_is_named_saved_and_goes() {
    let api = Api::with_images().await;
    assert_eq!(api.get("/v1/images").await.expect(200).json(), json!({ "images": [] }));
    let one = import(&api, "one", "team%2Fapp%3A1").await;
    assert_eq!((&one["references"], &one["layerCount"]), (&json!(["docker.io/team/app:1"]), &json!(1)));
    assert_eq!((&one["config"]["env"], &one["layers"][0]["warnings"]), (&json!(["A=b"]), &Value::Null));

    // A reference is one segment of the path.
    let found = api.get("/v1/images/team%2Fapp%3A1").await.expect(200).json();
    assert_eq!((&found["digest"], &found["configDigest"]), (&one["digest"], &one["configDigest"]));
    let digest = text(one["digest"].clone());
    assert_eq!(api.get(&format!("/v1/images/{digest}")).await.expect(200).json()["digest"], one["digest"]);
    api.get("/v1/images/team/app:1").await.expect_error(404, "not_found");
    let tagged = api.post("/v1/images/team%2Fapp%3A1/tag", json!({ "target": "save" })).await.expect(200);
    assert_eq!(tagged.json()["references"], json!(["docker.io/library/save:latest", "docker.io/team/app:1"]));
    // A name that is also a word of ours is written in full.
    api.get("/v1/images/docker.io%2Flibrary%2Fsave").await.expect(200);

    import(&api, "two", "two").await;
    let saved =
        api.get("/v1/images/save?reference=two&reference=team%2Fapp%3A1&format=oci").await.expect(200);
    assert_eq!(saved.headers[header::CONTENT_TYPE], "application/x-tar");
    let usage = api.get("/v1/images/usage").await.expect(200).json();
    assert_eq!((&usage["images"], &usage["partialBytes"]), (&json!(2), &json!(0)));
    let freed = api.act("/v1/images/prune").await.expect(200).json();
    assert_eq!((freed["images"].as_array().unwrap().len(), &freed["layers"]), (2, &json!(2)));
    assert!(references(&api).await.is_empty() && freed["bytes"].as_u64().unwrap() > 0, "{freed}");

    // In pieces, as a network brings it.
    let pieces: Vec<_> =
        saved.bytes.chunks(1000).map(Bytes::copy_from_slice).map(Ok::<_, Infallible>).collect();
    let body = Body::from_stream(stream::iter(pieces));
    let loaded = api.send_bytes(Method::POST, "/v1/images/load", body).await.expect(200).json();
    assert_eq!(loaded["images"].as_array().unwrap().len(), 2, "{loaded}");
    // The names that were asked for, and not the third.
    assert_eq!(references(&api).await, ["docker.io/library/two:latest", "docker.io/team/app:1"]);
    api.post("/v1/images/team%2Fapp%3A1/tag", json!({ "target": "save" })).await.expect(200);
    // An image that is called like a route goes by its full name.
    api.delete("/v1/images/save").await.expect_error(405, "not_found");
    let removed = api.delete("/v1/images/docker.io%2Flibrary%2Fsave").await.expect(200).json();
    assert_eq!(
        (&removed["references"], &removed["images"]),
        (&json!(["docker.io/library/save:latest"]), &json!([]))
    );
    api.delete("/v1/images/none").await.expect_error(404, "not_found");
}

#[tokio::test]
async fn bad_input_is_refused_in_the_one_shape() {
    let api = Api::with_images().await;
    import(&api, "one", "one").await;
    let good = api.get("/v1/images/save?reference=one").await.expect(200).bytes;
    let half = good.slice(..good.len() / 2);
    for (what, body, status) in [
        ("text", Bytes::from_static(&[b'x'; 4096]), 400),
        ("a half", half, 400),
        ("nothing", Bytes::new(), 400),
        ("another tar", root_tar("x").into(), 501),
    ] {
        let answer = api.send_bytes(Method::POST, "/v1/images/load", body).await;
        assert!([status, 501].contains(&answer.status.as_u16()), "{what}: {:?}", answer.bytes);
        assert!(answer.json()["error"]["hint"].is_string(), "{what}: {:?}", answer.bytes);
    }
    // A body that breaks off is no archive, however much of one it was.
    let broken = [Ok(good.clone()), Err(std::io::Error::other("gone"))];
    let body = Body::from_stream(stream::iter(broken));
    let answer = api.send_bytes(Method::POST, "/v1/images/import?reference=broken", body).await;
    assert!(answer.status.is_server_error() || answer.status.is_client_error(), "{:?}", answer.bytes);
    assert_eq!(references(&api).await, ["docker.io/library/one:latest"]);

    for target in ["/v1/images/save", "/v1/images/save?reference=one&format=zip", "/v1/images/save?name=one"]
    {
        api.get(target).await.expect_error(400, "invalid_request");
    }
    api.get("/v1/images/save?reference=none").await.expect_error(404, "not_found");
    for body in [
        json!({ "reference": "UPPER" }),
        json!({ "reference": "a", "platform": "linux" }),
        json!({ "reference": "a", "username": "ana" }),
        json!({ "reference": "a", "username": "ana", "password": 4711 }),
        json!({ "reference": "a", "extra": true }),
    ] {
        let error = api.post("/v1/images/pull", body.clone()).await.expect_error(400, "invalid_request");
        assert!(!error.to_string().contains("4711"), "{body}: {error}");
    }
    let blue = api.by(Principal::of_namespace("blue", "blue".parse().unwrap()));
    let insecure = json!({ "reference": "registry.example/a", "insecure": true });
    blue.post("/v1/images/pull", insecure).await.expect_error(403, "denied");
    blue.delete("/v1/images/one").await.expect_error(403, "denied");
    blue.act("/v1/images/prune").await.expect_error(403, "denied");
    blue.get("/v1/images/one").await.expect(200);
    Api::new().await.get("/v1/images").await.expect_error(501, "unsupported");
}

/// A registry with one image, whose layer begins and never ends.
struct HangingRegistry {
    address: String,
    /// Told when whoever asked for the layer went away.
    left: mpsc::Receiver<()>,
}

impl HangingRegistry {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (leave, left) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, leave.clone()));
            }
        });
        Self { address, left }
    }
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    format!("sha256:{}", hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

async fn serve(mut stream: TcpStream, leave: mpsc::Sender<()>) {
    let zeros = "0".repeat(64);
    let config = json!({ "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{zeros}")] } })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest(config.as_bytes()), "size": config.len() },
        "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": format!("sha256:{zeros}"), "size": 1_000_000 }],
    })
    .to_string();
    let mut asked = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        asked.extend_from_slice(&buffer[..n]);
        if !asked.ends_with(b"\r\n\r\n") {
            continue;
        }
        let head = String::from_utf8_lossy(&asked).into_owned();
        asked.clear();
        let (kind, body) = if head.contains("/manifests/") {
            ("application/vnd.oci.image.manifest.v1+json", manifest.as_str())
        } else if head.contains(&zeros) {
            let begin = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
            stream.write_all(begin.as_bytes()).await.unwrap();
            stream.write_all(&[b'x'; 600_000]).await.unwrap();
            // Silent from here on; what comes back is the end of the connection.
            while let Ok(1..) = stream.read(&mut buffer).await {}
            leave.send(()).await.ok();
            return;
        } else {
            ("application/json", config.as_str())
        };
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn a_pull_ends_with_its_reader() {
    let api = Api::with_images().await;
    let mut registry = HangingRegistry::start().await;
    let body = json!({ "reference": format!("{}/it", registry.address) }).to_string();
    let request = |accept: &str| {
        Request::post("/v1/images/pull")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, accept)
            .body(Body::from(body.clone()))
            .unwrap()
    };
    let mut lines = pieces(api.open(request("application/x-ndjson")).await);
    let resolved: Value = serde_json::from_str(&next_with(&mut lines, "resolved").await).unwrap();
    assert_eq!((&resolved["type"], &resolved["layers"][0]["bytes"]), (&json!("resolved"), &json!(1_000_000)));
    let layer: Value = serde_json::from_str(&next_with(&mut lines, "downloading").await).unwrap();
    assert!(layer["bytes"].as_u64().unwrap() > 0 && layer["total"] == 1_000_000, "{layer}");
    drop(lines);
    tokio::time::timeout(PATIENCE, registry.left.recv()).await.unwrap().unwrap();

    // A daemon that stops ends the next one, in the other form.
    let mut events = pieces(api.open(request("text/event-stream")).await);
    let event = next_with(&mut events, "downloading").await;
    assert!(event.contains("event: layer"), "{event}");
    api.stop.cancel();
    while tokio::time::timeout(PATIENCE, events.next()).await.unwrap().is_some() {}
    drop(events);
    tokio::time::timeout(PATIENCE, registry.left.recv()).await.unwrap().unwrap();
    assert!(references(&api).await.is_empty());
}

#[tokio::test]
async fn what_was_asked_is_in_the_audit_and_passwords_are_not() {
    let api = Api::with_images().await;
    import(&api, "one", "one").await;
    let secret = "a-very-secret-password";
    let pull = json!({ "reference": "127.0.0.1:1/none", "username": "ana", "password": secret });
    let pulling = api.post("/v1/images/pull", pull);
    // Nobody listens there: it is tried again for a while, and given up here.
    tokio::time::timeout(Duration::from_millis(50), pulling).await.ok();
    api.delete("/v1/images/one").await.expect(200);
    let find = async {
        loop {
            let calls = api.get("/v1/calls?from=1").await.expect(200).text().to_owned();
            if calls.contains("POST /v1/images/pull") && calls.contains("DELETE") {
                return calls;
            }
            tokio::task::yield_now().await;
        }
    };
    let calls = tokio::time::timeout(PATIENCE, find).await.unwrap();
    assert!(calls.contains("DELETE /v1/images/{image} (one)") && !calls.contains(secret), "{calls}");
}
