use axum::http::Method;
use serde_json::json;

use crate::support::Api;

#[tokio::test]
async fn a_volume_and_its_files() {
    let api = Api::new().await;
    let made =
        api.post("/v1/volumes", json!({ "name": "data", "labels": { "a": "b" } })).await.expect(201).json();
    assert_eq!(
        (&made["name"], &made["kind"], &made["usedBy"]),
        (&json!("data"), &json!("directory"), &json!([]))
    );
    api.post("/v1/volumes", json!({ "name": "data" })).await.expect(409);
    api.post("/v1/volumes", json!({ "name": "data", "colour": "red" })).await.expect(400);
    let files = "/v1/volumes/data/files";
    let put = format!("{files}/content?path=/a/b&parents=true");
    api.send_bytes(Method::PUT, &put, "hello").await.expect(200);
    let read = api.get(&format!("{files}/content?path=/a/b&offset=1")).await.expect(200);
    assert_eq!(read.text(), "ello");
    api.post(&format!("{files}/mkdir"), json!({ "path": "/c" })).await.expect(204);
    api.post(&format!("{files}/copy"), json!({ "from": "/a/b", "to": "/c/b" })).await.expect(204);
    api.post(&format!("{files}/rename"), json!({ "from": "/c/b", "to": "/d" })).await.expect(204);
    api.post(&format!("{files}/remove"), json!({ "path": "/a", "recursive": true })).await.expect(204);
    let listed = api.get(&format!("{files}/list?path=/")).await.expect(200).json();
    let paths: Vec<_> =
        listed["entries"].as_array().unwrap().iter().map(|entry| entry["path"].clone()).collect();
    assert_eq!(paths, ["/c", "/d"]);
    assert_eq!(api.get(&format!("{files}/stat?path=/d")).await.expect(200).json()["size"], 5);

    let packed = api.get(&format!("{files}/archive?path=/d")).await.expect(200);
    let archive = packed.bytes.clone();
    api.send_bytes(Method::PUT, &format!("{files}/archive?path=/c"), archive).await.expect(200);
    assert_eq!(api.get(&format!("{files}/content?path=/c/d")).await.expect(200).text(), "hello");

    let mount = json!({ "kind": "named", "name": "data", "guestPath": "/data" });
    api.post("/v1/sandboxes", json!({ "name": "web", "mounts": [mount] })).await.expect(201);
    let refused = api.delete("/v1/volumes/data").await.expect(409).json();
    assert!(refused["error"]["message"].as_str().unwrap().contains("web"), "{refused}");
    api.delete("/v1/sandboxes/web?force=true").await.expect(204);
    api.delete("/v1/volumes/data").await.expect(204);
    assert_eq!(api.get("/v1/volumes").await.expect(200).json(), json!({ "volumes": [] }));
    api.get("/v1/volumes/data").await.expect(404);
}
