//! The audit of HTTP: every request that changes something, that gives out a signed right or that was refused, with
//! who asked and how it went. One layer, outside of the one that finds out who asks, so that nothing slips by.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use axum::{
    RequestExt as _,
    extract::{MatchedPath, Query, RawPathParams, Request, State},
    http::{Method, StatusCode, header::USER_AGENT},
    middleware::Next,
    response::Response,
};
use engine::{CallRecord, Engine, Frontend, Principal};
use sandbox::{ErrorKind, KeyId, Namespace, SandboxName};
use tokio::runtime::Handle;

use super::error::Failure;
use crate::links;

/// The paths where MCP is spoken: tools write down their own calls. Any other path is REST, our own or a dialect's.
const MCP_PATHS: [&str; 3] = ["/mcp", "/sse", "/messages"];

/// The front end that a path belongs to.
pub(super) fn frontend(path: &str) -> Frontend {
    if is_mcp(path) { Frontend::Mcp } else { Frontend::Rest }
}

fn is_mcp(path: &str) -> bool {
    let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
    MCP_PATHS.iter().any(|known| path.strip_prefix(known).is_some_and(below))
}

/// Told by the layer that finds out who asks; empty while nobody has.
#[derive(Debug, Clone, Default)]
pub(super) struct Asker(Arc<OnceLock<Option<Principal>>>);

impl Asker {
    pub(super) fn tell(&self, who: &Principal) {
        // The first word counts; there is one layer that says it.
        self.0.set(Some(who.clone())).unwrap_or_default();
    }

    /// Leaves the request out of the audit: nobody asks who this is, and nothing is written down.
    pub(super) fn ignore(&self) {
        self.0.set(None).unwrap_or_default();
    }

    fn is_ignored(&self) -> bool {
        matches!(self.0.get(), Some(None))
    }
}

/// An answer's extension: what the request was about, where its route does not say.
#[derive(Debug, Clone)]
pub(crate) enum About {
    Sandbox {
        name: SandboxName,
        namespace: Namespace,
    },
    Key(KeyId),
    /// By its name.
    Image(String),
    /// The method of a message, and the sandbox it was about, as its caller named it.
    Method {
        method: &'static str,
        sandbox: Option<String>,
        namespace: Option<Namespace>,
    },
}

/// An extension of answers that give out a signed token: the audit has them although nothing was changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Granted;

impl About {
    fn complete(&self, call: &mut CallRecord) {
        match self {
            Self::Sandbox { name, namespace } => {
                call.sandbox = Some(name.to_string());
                call.namespace = Some(namespace.clone());
            }
            Self::Key(id) => call.action = format!("{} ({id})", call.action),
            Self::Image(name) => call.action = format!("{} ({name})", call.action),
            Self::Method { method, sandbox, namespace } => {
                call.action = format!("{} ({method})", call.action);
                call.sandbox.clone_from(sandbox);
                call.namespace.clone_from(namespace);
            }
        }
    }
}

/// Writes down what happened, whether or not the caller waited for it.
pub(super) async fn audit(State(engine): State<Engine>, mut request: Request, next: Next) -> Response {
    let asker = Asker::default();
    request.extensions_mut().insert(asker.clone());
    let call = describe(&mut request).await;
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let mut pending = Pending { engine, asker, call: Some(call), changes, began: Instant::now() };
    let response = next.run(request).await;
    if let Some(call) = pending.answered(&response) {
        record(&pending.engine, &pending.asker, call, pending.began).await;
    }
    response
}

async fn describe(request: &mut Request) -> CallRecord {
    let frontend = frontend(request.uri().path());
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let shown = route.as_deref().unwrap_or_else(|| links::shown_path(request.uri().path()));
    let action = format!("{} {}", request.method(), shown);
    let parameters = request.extract_parts::<RawPathParams>().await.ok();
    let sandbox = parameters.as_ref().and_then(|parameters| {
        parameters.iter().find(|(name, _)| *name == "sandbox").map(|(_, value)| value.to_owned())
    });
    let client = request.headers().get(USER_AGENT).and_then(|value| value.to_str().ok()).map(str::to_owned);
    CallRecord {
        frontend,
        action,
        sandbox,
        namespace: named_namespace(request),
        outcome: Ok(()),
        duration: std::time::Duration::ZERO,
        client,
    }
}

fn named_namespace(request: &Request) -> Option<Namespace> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(request.uri()).ok()?;
    pairs.into_iter().find(|(name, _)| name == "namespace")?.1.parse().ok()
}

/// A request that has no answer yet.
struct Pending {
    engine: Engine,
    asker: Asker,
    call: Option<CallRecord>,
    changes: bool,
    began: Instant,
}

impl Pending {
    /// Returns the record of a call that is worth writing down, now that there is an answer.
    fn answered(&mut self, response: &Response) -> Option<CallRecord> {
        let mut call = self.call.take()?;
        let status = response.status();
        if self.asker.is_ignored() {
            return None;
        }
        let is_refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let is_granted = response.extensions().get::<Granted>().is_some();
        if !is_refused && !is_granted && (!self.changes || call.frontend == Frontend::Mcp) {
            return None;
        }
        call.outcome = outcome(response);
        if let Some(about) = response.extensions().get::<About>() {
            about.complete(&mut call);
        }
        Some(call)
    }
}

impl Drop for Pending {
    /// The caller went away before the answer. What was asked for may have happened, or happen yet.
    fn drop(&mut self) {
        let Some(mut call) = self.call.take().filter(|call| self.changes && call.frontend == Frontend::Rest)
        else {
            return;
        };
        let Ok(runtime) = Handle::try_current() else { return };
        call.outcome = Err(ErrorKind::Cancelled.as_str().to_owned());
        let (engine, asker, began) = (self.engine.clone(), self.asker.clone(), self.began);
        runtime.spawn(async move { record(&engine, &asker, call, began).await });
    }
}

async fn record(engine: &Engine, asker: &Asker, mut call: CallRecord, began: Instant) {
    call.duration = began.elapsed();
    match asker.0.get().and_then(Option::as_ref) {
        Some(who) => engine.record_call(who, call).await,
        None => engine.record_unknown_call(call).await,
    }
}

pub(super) fn outcome(response: &Response) -> Result<(), String> {
    let status = response.status();
    match response.extensions().get::<Failure>() {
        Some(Failure(failure)) => Err(failure.kind().as_str().to_owned()),
        // A front end with failures of its own shape.
        None if status == StatusCode::UNAUTHORIZED => Err(ErrorKind::Unauthenticated.as_str().to_owned()),
        None if status == StatusCode::FORBIDDEN => Err(ErrorKind::Denied.as_str().to_owned()),
        None if status.is_client_error() || status.is_server_error() => {
            Err(format!("http_{}", status.as_u16()))
        }
        None => Ok(()),
    }
}
