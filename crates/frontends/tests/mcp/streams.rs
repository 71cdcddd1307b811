//! The time between a request and its answer: progress, cancellation, broken connections.

use engine::Principal;
use sandbox::KeySpec;
use serde_json::{Value, json};

use crate::support::{Events, Server, Session, call_with_progress, posted, request, stateless, within};

/// Runs until it is killed, and says so when it has begun.
fn endless() -> Value {
    json!({ "name": "dev", "command": "sleep", "args": ["1000"], "timeout": 0 })
}

async fn with_dev(server: &Server) -> Session<'_> {
    let session = server.begin("2025-11-25", "ana").await;
    session.data("sandbox_create", json!({ "name": "dev" })).await;
    session
}

async fn running(session: &Session<'_>) -> usize {
    let list = session.data("sandbox_exec_list", json!({ "name": "dev" })).await;
    list.as_array().unwrap().iter().filter(|exec| exec["state"] == "running").count()
}

async fn none_runs(session: &Session<'_>) {
    within(async {
        while running(session).await > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn progress_comes_before_the_answer_and_a_cancelled_call_kills_its_command() {
    let server = Server::new().await;
    let session = with_dev(&server).await;
    let mut stream = session.stream(call_with_progress(1, "sandbox_exec", endless())).await;
    let note = stream.note("notifications/progress").await.message.unwrap();
    assert_eq!(note["params"]["progressToken"], "token-1", "{note}");
    assert_eq!(running(&session).await, 1);
    let params = json!({ "requestId": 1, "reason": "enough" });
    session.post(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })).await;
    none_runs(&session).await;
}

#[tokio::test]
async fn a_broken_stream_of_a_session_is_resumed_where_it_broke() {
    let server = Server::new().await;
    let session = with_dev(&server).await;
    let mut stream = session.stream(call_with_progress(1, "sandbox_exec", endless())).await;
    let last = stream.note("notifications/progress").await.id.unwrap();
    drop(stream);
    // The command goes on without anybody listening, and ends before the client is back.
    assert_eq!(running(&session).await, 1);
    session.data("sandbox_stop", json!({ "name": "dev", "force": true, "confirm": true })).await;
    none_runs(&session).await;
    let mut resumed = session.listen(Some(&last)).await;
    assert_eq!(resumed.status.as_u16(), 200);
    let answer = resumed.answer(1).await;
    assert!(answer["result"]["structuredContent"].is_object(), "{answer}");
    assert!(resumed.next().await.is_none(), "a stream ends with its answer");
    // And once more: a client that lost it again gets it again.
    assert_eq!(session.listen(Some(&last)).await.answer(1).await, answer);
}

#[tokio::test]
async fn a_stream_that_is_resumed_in_time_goes_on_live() {
    let server = Server::new().await;
    let session = with_dev(&server).await;
    let mut stream = session.stream(call_with_progress(1, "sandbox_exec", endless())).await;
    let first = stream.next().await.unwrap();
    assert!(first.message.is_none() && first.id.is_some(), "{first:?}");
    drop(stream);
    let mut resumed = session.listen(first.id.as_deref()).await;
    resumed.note("notifications/progress").await;
    session.data("sandbox_stop", json!({ "name": "dev", "force": true, "confirm": true })).await;
    resumed.answer(1).await;
    assert!(resumed.next().await.is_none());
}

#[tokio::test]
async fn what_is_not_known_any_more_ends_at_once() {
    let server = Server::new().await;
    let session = server.begin("2025-11-25", "ana").await;
    let mut resumed = session.listen(Some("77-1")).await;
    assert_eq!(resumed.status.as_u16(), 200);
    assert!(resumed.next().await.is_none());
}

#[tokio::test]
async fn without_a_session_a_broken_connection_ends_the_call() {
    let server = Server::new().await;
    let session = with_dev(&server).await;
    let (message, headers) = stateless(call_with_progress(1, "sandbox_exec", endless()));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut stream = Events::new(server.open(posted("/mcp", message, &headers)).await);
    stream.note("notifications/progress").await;
    assert_eq!(running(&session).await, 1);
    drop(stream);
    none_runs(&session).await;
}

#[tokio::test]
async fn without_a_stream_a_broken_connection_ends_the_call_too() {
    let server = Server::new().await;
    let session = with_dev(&server).await;
    let asked = posted("/mcp", call_with_progress(1, "sandbox_exec", endless()), &[]);
    let waiting = server.open(asked);
    let seen = async {
        while running(&session).await == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answered = waiting => panic!("{answered:?}"),
        () = seen => {}
    }
    none_runs(&session).await;
}

#[tokio::test]
async fn the_end_of_a_session_ends_what_it_began() {
    let server = Server::new().await;
    let (session, other) = (with_dev(&server).await, server.begin("2025-11-25", "ana").await);
    let mut stream = session.stream(call_with_progress(1, "sandbox_exec", endless())).await;
    stream.note("notifications/progress").await;
    assert_eq!(session.end().await.status.as_u16(), 204);
    none_runs(&other).await;
}

#[tokio::test]
async fn a_subscription_tells_of_changes() {
    let server = Server::new().await;
    let session = server.begin("2025-11-25", "ana").await;
    let mut own = session.listen(None).await;
    let answer = session.ask(request(1, "resources/subscribe", json!({ "uri": "warren://sandboxes" }))).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    session.data("sandbox_create", json!({ "name": "dev" })).await;
    let note = own.note("notifications/resources/updated").await.message.unwrap();
    assert_eq!(note["params"]["uri"], "warren://sandboxes");
    let answer =
        session.ask(request(2, "resources/unsubscribe", json!({ "uri": "warren://sandboxes" }))).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    let nothing = session.ask(request(3, "resources/subscribe", json!({ "uri": "warren://nothing" }))).await;
    assert!(nothing["error"]["data"]["uri"] == "warren://nothing", "{nothing}");
}

#[tokio::test]
async fn the_newest_revision_listens_to_changes() {
    let server = Server::new().await;
    let filter = json!({ "notifications": { "resourceSubscriptions": ["warren://sandboxes"] } });
    let (message, headers) = stateless(request(5, "subscriptions/listen", filter));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut stream = Events::new(server.open(posted("/mcp", message, &headers)).await);
    stream.note("notifications/subscriptions/acknowledged").await;
    server.ask("/mcp", crate::support::call(1, "sandbox_create", json!({ "name": "dev" }))).await;
    let note = stream.note("notifications/resources/updated").await.message.unwrap();
    assert_eq!(note["params"]["uri"], "warren://sandboxes");
}

#[tokio::test]
async fn a_key_that_is_revoked_takes_its_running_calls_along() {
    let server = Server::new().await;
    let session = with_dev(&server).await;
    let owner = Principal::operator("ana");
    for n in 0..2 {
        let key = server.engine.create_key(&owner, KeySpec::default()).await.unwrap();
        let of_key = server.begin("2025-11-25", &key.secret).await;
        let mut stream = of_key.stream(call_with_progress(1, "sandbox_exec", endless())).await;
        stream.note("notifications/progress").await;
        // Nobody has to be listening for it.
        let stream = (n == 0).then_some(stream);
        assert_eq!(running(&session).await, 1);
        server.engine.revoke_key(&owner, key.key.id.as_str()).await.unwrap();
        none_runs(&session).await;
        drop(stream);
    }
}
