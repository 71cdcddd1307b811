//! Other systems' surfaces, each under its own name beside ours.

use std::time::Duration;

use engine::{Principal, SandboxRef};
use frontends::mcp::Settings;
use sandbox::OnExpiry;
use serde_json::{Value, json};

use crate::support::{Server, Session, call, posted, request};

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
    // Tools that are ours alone are not theirs.
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

/// The answer says that the sandbox stops after ninety minutes without use, and it does.
async fn has_a_limit_of_time(server: &Server, answer: &Value, sandbox: &str) {
    let told = answer.to_string();
    assert!(told.contains("No limit of time was set, so it stops after 90 min without use"), "{answer:#}");
    let which = SandboxRef::new(sandbox, None).unwrap();
    let view = server.engine.sandbox(&Principal::operator("test"), &which).await.unwrap();
    let lifetime = (view.lifetime.idle, view.lifetime.ttl, view.lifetime.on_expiry);
    assert_eq!(lifetime, (Some(Duration::from_secs(5400)), None, OnExpiry::Stop), "{sandbox}");
}

#[tokio::test]
async fn what_an_agent_makes_without_a_limit_of_time_has_one_by_every_dialect() {
    let server = Server::configured(Settings::default(), |config| {
        config.agent_idle = Some(Duration::from_secs(5400));
    })
    .await;
    let server = &server;
    let at = async |path: &str, tool: &str, arguments: Value| {
        let session = server.begin_at(path, VERSION, "alice").await;
        session.ask(call(7, tool, arguments)).await["result"].clone()
    };
    let made = at("/mcp", "sandbox_create", json!({ "name": "ours" })).await;
    has_a_limit_of_time(server, &made, "ours").await;
    let made =
        at("/mcp/microsandbox-mcp", "sandbox_create", json!({ "name": "theirs", "image": "host" })).await;
    has_a_limit_of_time(server, &made, "theirs").await;
    let lab = json!({ "sandbox": "lab", "namespace": "default" });
    let made = at("/mcp/microsandbox", "sandbox_start", lab).await;
    has_a_limit_of_time(server, &made, "lab").await;
    let made = at("/mcp/mcp-sandbox", "create_sandbox", json!({})).await;
    let id = made["structuredContent"]["sandbox_id"].as_str().unwrap();
    has_a_limit_of_time(server, &made, id).await;
    // opensandbox-mcp sets a limit itself, and the interface beside it does not.
    let asked = json!({ "image": { "uri": "host" }, "resourceLimits": {}, "entrypoint": ["tail", "-f", "/dev/null"] });
    let made = server.send(posted("/opensandbox/v1/sandboxes", asked, &[("who", "alice")])).await.json();
    has_a_limit_of_time(server, &made, made["id"].as_str().unwrap()).await;
}

#[tokio::test]
async fn forks_and_restored_sandboxes_of_agents_have_a_limit_of_time_too() {
    let server = Server::configured(Settings::default(), |config| {
        config.agent_idle = Some(Duration::from_secs(5400));
    })
    .await;
    let owner = Principal::operator("test");
    // A person made it, and it lives until somebody removes it.
    let spec =
        sandbox::SandboxSpec { name: Some("kept".parse().unwrap()), ..sandbox::SandboxSpec::default() };
    server.engine.create_sandbox(&owner, spec).await.unwrap();
    let session = server.begin(VERSION, "alice").await;
    let ask =
        async |tool: &str, arguments: Value| session.ask(call(7, tool, arguments)).await["result"].clone();
    let made = ask("sandbox_fork", json!({ "name": "kept", "names": ["branch"] })).await;
    has_a_limit_of_time(&server, &made, "branch").await;
    ask("snapshot_create", json!({ "fromSandbox": "kept", "name": "ready" })).await;
    let made = ask("sandbox_restore", json!({ "name": "again", "snapshot": "ready" })).await;
    has_a_limit_of_time(&server, &made, "again").await;
    // One that has the name keeps its settings, and the time it may live is one of them.
    let made = ask("sandbox_restore", json!({ "name": "kept", "snapshot": "ready", "replace": true })).await;
    assert!(!made.to_string().contains("No limit of time"), "{made:#}");
    let view = server.engine.sandbox(&owner, &SandboxRef::new("kept", None).unwrap()).await.unwrap();
    assert_eq!(view.lifetime, sandbox::Lifetime::default());
}
