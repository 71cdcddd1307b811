//! Requests that the daemon is made to send: a listener on this host's loopback must hear nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sandbox::{Error, ErrorKind};
use serde_json::json;
use tokio::net::TcpListener;

use super::{Seen, archives, stage::Stage};
use crate::error::CommandResult;

/// How long an answer may take before it is given up: a connection that was made was counted before.
const TIME: Duration = Duration::from_secs(4);
const JSON: &str = "application/json";

/// Counts who connects, until it is dropped.
struct Ear {
    port: u16,
    heard: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Ear {
    async fn open() -> CommandResult<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let heard = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(connection);
            }
        });
        Ok(Self { port, heard, task })
    }

    fn seen(&self, n_asked: usize) -> Seen {
        match self.heard.load(Ordering::SeqCst) {
            0 => Seen::contained(format!("{n_asked} references to loopback, no connection")),
            n => Seen::open(format!("{n} connections to loopback for {n_asked} references")),
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ways to write the same address.
fn references(port: u16) -> Vec<String> {
    ["127.0.0.1", "localhost", "0.0.0.0", "127.1", "[::ffff:127.0.0.1]"]
        .map(|host| format!("{host}:{port}/attack/image:1"))
        .into()
}

/// What is answered does not matter, unless the key itself was not let in: then nothing was tried.
async fn post(stage: &Stage, target: &str, kind: &str, body: Vec<u8>) -> CommandResult<()> {
    let answer = tokio::time::timeout(TIME, stage.ask(&stage.key, "POST", target, Some((kind, body)))).await;
    match answer {
        Ok(Ok((status @ (401 | 429), _))) => {
            let message = format!("the key was answered with {status}");
            Err(Error::new(ErrorKind::Unavailable, message).into())
        }
        _ => Ok(()),
    }
}

fn json_bytes(value: serde_json::Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

pub(super) async fn pull(stage: &Stage) -> CommandResult<Seen> {
    let ear = Ear::open().await?;
    let references = references(ear.port);
    for reference in &references {
        post(stage, "/v1/images/pull", JSON, json_bytes(json!({ "reference": reference }))).await?;
    }
    let plain = json!({ "reference": references[0], "insecure": true });
    post(stage, "/v1/images/pull", JSON, json_bytes(plain)).await?;
    Ok(ear.seen(references.len() + 1))
}

pub(super) async fn create(stage: &Stage) -> CommandResult<Seen> {
    let ear = Ear::open().await?;
    let references = references(ear.port);
    for reference in &references {
        post(stage, "/v1/sandboxes", JSON, json_bytes(json!({ "image": reference }))).await?;
    }
    Ok(ear.seen(references.len()))
}

pub(super) async fn build(stage: &Stage) -> CommandResult<Seen> {
    let ear = Ear::open().await?;
    let references = references(ear.port);
    for reference in references.iter().take(2) {
        let context = archives::Tar::default().file("Dockerfile", &format!("FROM {reference}\n")).end();
        post(stage, "/v1/images/build", "application/x-tar", context).await?;
    }
    Ok(ear.seen(2))
}
