//! Other systems' surfaces, each under its own name beside ours.

use serde_json::{Value, json};

use crate::support::{Server, Session, request};

const VERSION: &str = "2025-06-18";
/// The tools of microsandbox-mcp, in its order.
const THEIRS: &str = include_str!("../data/microsandbox-mcp-tools.json");

async fn names(session: &Session<'_>) -> Vec<String> {
    let listed = session.ask(request(2, "tools/list", json!({}))).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn microsandbox_mcp_has_its_own_list_and_shares_the_sandboxes() {
    let server = Server::new().await;
    let native = server.begin("2025-06-18", "alice").await;
    let theirs = server.begin_at("/mcp/microsandbox-mcp", VERSION, "alice").await;
    let facts: Vec<Value> = serde_json::from_str(THEIRS).unwrap();
    let expected: Vec<_> = facts.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        (names(&theirs).await, expected.len()),
        (expected.iter().map(ToString::to_string).collect(), 70)
    );
    let older = server.begin_at("/mcp/microsandbox-mcp-0.6", VERSION, "alice").await;
    let before = expected.iter().filter(|name| **name != "sandbox_restore").map(|name| match *name {
        "snapshot_save" => "snapshot_export".to_owned(),
        "snapshot_load" => "snapshot_import".to_owned(),
        name => name.to_owned(),
    });
    assert_eq!(names(&older).await, before.collect::<Vec<_>>());

    let resources = theirs.ask(request(3, "resources/list", json!({}))).await;
    let uris: Vec<_> =
        resources["result"]["resources"].as_array().unwrap().iter().map(|one| &one["uri"]).collect();
    assert_eq!(uris.len(), 7);
    assert!(uris.iter().all(|uri| uri.as_str().unwrap().starts_with("microsandbox://")), "{uris:?}");

    theirs.data("sandbox_create", json!({ "name": "shared", "image": "host" })).await;
    let seen: Value = native.data("sandbox_inspect", json!({ "name": "shared" })).await;
    assert_eq!(seen["name"], "shared");
    // What is ours alone is not theirs.
    let answer =
        theirs.ask(request(4, "tools/call", json!({ "name": "sandbox_run_code", "arguments": {} }))).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
}

#[tokio::test]
async fn a_list_that_was_made_once_is_the_list_that_the_library_makes() {
    let server = Server::new().await;
    for path in ["/mcp/microsandbox-mcp", "/mcp/microsandbox", "/mcp/opensandbox", "/mcp/mcp-sandbox"] {
        let session = server.begin_at(path, VERSION, "alice").await;
        let made_once = session.post(request(5, "tools/list", json!({}))).await;
        assert_eq!(made_once.headers["content-type"], "application/json", "{path}");
        // Without a session, the library answers.
        let answered = server.ask(path, request(5, "tools/list", json!({}))).await;
        assert_eq!(made_once.json(), answered.json(), "{path}");

        // Who has no session gets no list, and neither does who asks for a page that is not there.
        let stranger = server.begin_at(path, VERSION, "bob").await;
        session.end().await;
        assert_eq!(session.post(request(6, "tools/list", json!({}))).await.status, 404, "{path}");
        let paged = stranger.ask(request(7, "tools/list", json!({ "cursor": "2" }))).await;
        assert_eq!(paged["error"]["code"], -32602, "{paged}");
    }
}
