use frontends::http::{Peer, SERVER_NAME};

use crate::support::{Api, OWNER};

#[tokio::test]
async fn the_daemon_tells_what_it_is_and_what_it_can() {
    let api = Api::new().await;
    let health = api.get("/v1/health").await.expect(200);
    assert_eq!(health.headers["server"], SERVER_NAME);
    assert_eq!(health.json()["status"], "ok");
    let version = api.get("/v1/version").await.expect(200).json();
    assert_eq!(version["api"][0], "v1");
    let capabilities = api.get("/v1/capabilities").await.expect(200).json();
    assert_eq!(capabilities["backend"], "namespace");
    assert_eq!(capabilities["backends"], serde_json::json!(["namespace"]));
    assert!(capabilities["has"].as_array().is_some_and(|has| has.contains(&"snapshots".into())));
}

#[tokio::test]
async fn only_the_owner_and_root_get_in() {
    let mut api = Api::new().await;
    api.peer = Peer::Unix { uid: 0, pid: None };
    api.get("/v1/health").await.expect(200);
    api.peer = Peer::Unix { uid: OWNER + 1, pid: None };
    for target in ["/v1/health", "/v1/sandboxes", "/v1/nothing", "/v1/openapi.json"] {
        let error = api.get(target).await.expect_error(403, "denied");
        assert!(error["message"].as_str().unwrap().contains("1001"), "{error}");
    }
    api.peer = Peer::Tcp(([127, 0, 0, 1], 80).into());
    api.get("/v1/health").await.expect_error(401, "unauthenticated");
}
