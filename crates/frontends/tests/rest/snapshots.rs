use axum::http::Method;
use engine::Principal;
use sandbox::Capability;
use serde_json::{Value, json};

use crate::support::Api;

/// With a running sandbox `box` that has a note, and a snapshot `base` of it. Absent where it could not stand still for
/// a copy.
async fn with_base() -> Option<Api> {
    let api = Api::with_box().await;
    if !api.has(Capability::Pause) {
        return None;
    }
    let put = "/v1/sandboxes/box/files/content?path=/note";
    api.send_bytes(Method::PUT, put, "one").await.expect(200);
    let asked = json!({ "sandbox": "box", "name": "base", "labels": { "team": "a" } });
    let made = api.post("/v1/snapshots", asked).await.expect(201).json();
    assert!(made["heldMs"].as_f64().is_some() && made["treeDigest"].as_str().is_some(), "{made}");
    assert_eq!((&made["sourceSandbox"], &made["image"]), (&json!("box"), &json!("host")));
    Some(api)
}

fn names(list: &Value) -> Vec<&Value> {
    list["snapshots"].as_array().unwrap().iter().map(|snapshot| &snapshot["name"]).collect()
}

#[tokio::test]
async fn a_snapshot_from_its_beginning_to_its_end() {
    let Some(api) = with_base().await else { return };
    let base = api.get("/v1/snapshots/base").await.expect(200).json();
    assert_eq!(base["labels"], json!({ "team": "a" }));
    let digest = base["digest"].as_str().unwrap();
    for which in [digest, &digest[..17], base["id"].as_str().unwrap()] {
        assert_eq!(api.get(&format!("/v1/snapshots/{which}")).await.expect(200).json(), base);
    }
    let verified = api.act("/v1/snapshots/base/verify?parents=true").await.expect(200).json();
    assert_eq!(verified, json!({ "digest": digest, "treeDigest": base["treeDigest"], "parents": [] }));
    let restored =
        api.post("/v1/snapshots/base/restore", json!({ "name": "again" })).await.expect(201).json();
    assert_eq!(restored["state"], "running");
    let read = api.get("/v1/sandboxes/again/files/content?path=/note").await.expect(200);
    assert_eq!(read.text(), "one");
    let error = api.delete("/v1/snapshots/base").await.expect_error(409, "wrong_state");
    assert!(error["message"].as_str().unwrap().contains("sandbox again"), "{error}");
    assert_eq!(
        api.delete("/v1/snapshots/base?force=true").await.expect(200).json(),
        json!({ "removed": false })
    );
    let list = api.get("/v1/snapshots").await.expect(200).json();
    assert_eq!(
        (names(&list), &list["snapshots"][0]["usedBy"]),
        (vec![&Value::Null], &json!(["sandbox again"]))
    );
    api.post("/v1/snapshots", json!({ "sandbox": "box", "name": "base" })).await.expect(201);
    assert_eq!(api.delete("/v1/snapshots/base").await.expect(200).json(), json!({ "removed": true }));
    api.get("/v1/snapshots/base").await.expect_error(404, "not_found");
}

#[tokio::test]
async fn archives_go_out_and_come_in() {
    let Some(here) = with_base().await else { return };
    let there = Api::new().await;
    for (query, media_type) in [("", "application/zstd"), ("?plain=true", "application/x-tar")] {
        let archive = here.get(&format!("/v1/snapshots/base/archive{query}")).await.expect(200);
        assert_eq!(archive.headers["content-type"], media_type);
        let bytes = archive.bytes.to_vec();
        let mut changed = bytes.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        let load = "/v1/snapshots/load?name=theirs";
        there.send_bytes(Method::POST, load, changed).await.expect_error(400, "invalid_request");
        there.send_bytes(Method::POST, load, bytes[..middle].to_vec()).await.expect(400);
        assert_eq!(names(&there.get("/v1/snapshots").await.expect(200).json()), [""; 0]);
        let loaded = there.send_bytes(Method::POST, load, bytes).await.expect(201).json();
        assert_eq!(loaded["name"], "theirs");
        assert_eq!(loaded["digest"], here.get("/v1/snapshots/base").await.expect(200).json()["digest"]);
        there.delete("/v1/snapshots/theirs").await.expect(200);
    }
    assert_eq!(
        here.act("/v1/snapshots/reindex").await.expect(200).json(),
        json!({ "indexed": 1, "found": 0 })
    );
    here.get("/v1/snapshots/none/archive").await.expect_error(404, "not_found");
}

#[tokio::test]
async fn forks_and_changes() {
    let Some(api) = with_base().await else { return };
    let asked = json!({ "count": 2, "namePrefix": "try", "env": { "A": "b" }, "labels": { "of": "box" } });
    let made = api.post("/v1/sandboxes/box/fork", asked.clone()).await.expect(201).json();
    let forks: Vec<_> = made["forks"].as_array().unwrap().iter().map(|fork| fork["name"].clone()).collect();
    assert_eq!(forks, ["try-1", "try-2"]);
    api.post("/v1/sandboxes/box/fork", asked).await.expect_error(409, "already_exists");
    for (wrong, status) in [
        (json!({ "count": 0 }), 400),
        (json!({ "count": 257 }), 400),
        (json!({ "names": ["a", "a"] }), 400),
        (json!({ "colour": "red" }), 400),
        (json!({ "limits": { "memory": 1 } }), 400),
    ] {
        api.post("/v1/sandboxes/box/fork", wrong).await.expect(status);
    }
    let put = "/v1/sandboxes/try-1/files/content?path=/more";
    api.send_bytes(Method::PUT, put, "two").await.expect(200);
    let changed = |diff: Value| -> Vec<Value> {
        diff["changes"].as_array().unwrap().iter().map(|change| change["path"].clone()).collect()
    };
    let diff = api.get("/v1/sandboxes/try-1/diff?path=/more&patch=true&limit=10").await.expect(200).json();
    assert_eq!((changed(diff.clone()), &diff["changesCut"]), (vec![json!("/more")], &json!(false)));
    let diff = api.get("/v1/sandboxes/try-1/diff?limit=1").await.expect(200).json();
    assert_eq!(diff["changesCut"], json!(true));
    let diff = api.get("/v1/sandboxes/try-1/diff?since=base").await.expect(200).json();
    assert_eq!(changed(diff), ["/more"]);
    api.get("/v1/sandboxes/try-1/diff?since=none").await.expect_error(404, "not_found");
    let diff = api.get("/v1/sandboxes/try-1/diff?path=relative").await.expect(200).json();
    assert_eq!(changed(diff), Vec::<Value>::new());
}

#[tokio::test]
async fn what_is_wrong_is_told_and_strangers_see_nothing() {
    let Some(api) = with_base().await else { return };
    for (asked, status, kind) in [
        (json!({ "sandbox": "box", "name": "base" }), 409, "already_exists"),
        (json!({ "sandbox": "none" }), 404, "not_found"),
        (json!({ "sandbox": "box", "name": "../x" }), 400, "invalid_request"),
        (json!({ "sandbox": "box", "labels": { "a b": "c" } }), 400, "invalid_request"),
        (json!({ "sandbox": "box", "path": "/etc" }), 400, "invalid_request"),
    ] {
        api.post("/v1/snapshots", asked).await.expect_error(status, kind);
    }
    let stranger = api.by(Principal::of_namespace("ana", "red".parse().unwrap()));
    assert_eq!(stranger.get("/v1/snapshots").await.expect(200).json(), json!({ "snapshots": [] }));
    let base = api.get("/v1/snapshots/base").await.expect(200).json();
    let digest = base["digest"].as_str().unwrap();
    for which in ["base", digest, base["id"].as_str().unwrap()] {
        let at = format!("/v1/snapshots/{which}");
        for answer in [
            stranger.get(&at).await,
            stranger.delete(&format!("{at}?force=true")).await,
            stranger.act(&format!("{at}/verify")).await,
            stranger.get(&format!("{at}/archive")).await,
            stranger.post(&format!("{at}/restore"), json!({})).await,
        ] {
            let error = answer.expect_error(404, "not_found");
            assert!(!error["message"].as_str().unwrap().contains("box"), "{error}");
        }
    }
    let looker = Principal { access: engine::Access::ReadOnly, ..Principal::operator("looker") };
    let looker = api.by(looker);
    looker.get("/v1/snapshots/base/archive").await.expect(200);
    looker.act("/v1/snapshots/base/verify").await.expect(200);
    for answer in [
        looker.delete("/v1/snapshots/base").await,
        looker.act("/v1/snapshots/reindex").await,
        looker.post("/v1/snapshots", json!({ "sandbox": "box" })).await,
        looker.post("/v1/sandboxes/box/fork", json!({})).await,
        looker.post("/v1/snapshots/base/restore", json!({})).await,
        looker.send_bytes(Method::POST, "/v1/snapshots/load", "x").await,
    ] {
        answer.expect_error(403, "denied");
    }
}
