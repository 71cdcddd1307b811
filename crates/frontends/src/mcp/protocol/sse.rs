//! HTTP+SSE, the transport before Streamable HTTP: the client opens one stream at `/sse`, is told where to post, and
//! reads the answers from the stream. The session is the stream: it ends with it.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::ready,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{Query, Request, State},
    http::StatusCode,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
    routing::{get, post},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures_util::{FutureExt as _, Stream, StreamExt, stream};
use rmcp::{
    RoleServer, ServiceExt as _,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::Transport,
};
use sandbox::{Error, ErrorKind, Result};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    MAX_MESSAGE_BYTES, Profile,
    client::{Client, Owner, Way, principal},
    hello,
    patient::Patient,
};
use crate::http::{ApiError, ApiResult, QueryKey};

const STREAM_PATH: &str = "/sse";
const MESSAGES_PATH: &str = "/messages";
/// Streams open at once, of everyone together.
const MAX_SESSIONS: usize = 1024;
/// Messages on their way in one direction. Whoever sends faster than the other end takes them waits.
const QUEUE: usize = 64;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const ID_BYTES: usize = 18;

#[derive(Debug, Clone)]
struct Front<P> {
    profile: P,
    /// The path to which its clients send.
    messages: Arc<str>,
    open: Arc<Open>,
    stop: CancellationToken,
}

pub(super) fn routes<P: Profile>(profile: P, at: &str, stop: CancellationToken) -> Router {
    let messages = format!("{MESSAGES_PATH}{at}");
    Router::new()
        .route(&format!("{STREAM_PATH}{at}"), get(begin::<P>))
        .route(&messages, post(receive::<P>))
        // Older servers name this path, with its slash, and some clients keep it.
        .route(&format!("{messages}/"), post(receive::<P>))
        .with_state(Front { profile, messages: messages.into(), open: Arc::default(), stop })
}

/// The sessions that are open.
#[derive(Debug, Default)]
struct Open {
    sessions: Mutex<HashMap<String, Session>>,
}

#[derive(Debug)]
struct Session {
    owner: Owner,
    messages: mpsc::Sender<ClientJsonRpcMessage>,
}

impl Open {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, id: String, session: Session) -> Result<()> {
        let mut sessions = self.sessions();
        if sessions.len() >= MAX_SESSIONS {
            let message =
                format!("{MAX_SESSIONS} clients are connected to {STREAM_PATH}, which is the limit");
            return Err(Error::new(ErrorKind::LimitReached, message)
                .with_hint("Use Streamable HTTP at /mcp, which needs no open stream."));
        }
        sessions.insert(id, session);
        Ok(())
    }

    fn inbox(&self, id: &str, owner: &Owner) -> Option<mpsc::Sender<ClientJsonRpcMessage>> {
        let sessions = self.sessions();
        sessions.get(id).filter(|session| session.owner == *owner).map(|session| session.messages.clone())
    }
}

/// Closes the session when the stream is dropped, which is when the client left. What it began goes on.
#[derive(Debug)]
struct SessionGuard {
    open: Arc<Open>,
    id: String,
    gone: CancellationToken,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.open.sessions().remove(&self.id);
        self.gone.cancel();
    }
}

async fn begin<P: Profile>(State(front): State<Front<P>>, request: Request) -> ApiResult<Response> {
    let (parts, _) = request.into_parts();
    let mut client = Client::of(&parts, front.profile.settings(), Way::Connection)?;
    let id = fresh_id()?;
    let (messages, inbox) = mpsc::channel(QUEUE);
    let (outbox, answers) = mpsc::channel(QUEUE);
    front.open.add(id.clone(), Session { owner: Owner::of(&client.who), messages })?;
    let ended = front.stop.child_token();
    client.ended = ended.clone();
    let endpoint =
        Event::default().event("endpoint").data(endpoint(&front.messages, &id, parts.extensions.get()));
    let gone = client.gone.clone();
    let guard = SessionGuard { open: Arc::clone(&front.open), id, gone: gone.clone() };
    let handler = front.profile.handler(client);
    tokio::spawn(async move {
        // Nothing more can be said once the stream is gone, so that there is nothing to look for.
        let patient = Patient::new(Pipe { inbox, outbox }, gone, ready(()).boxed());
        match handler.serve_with_ct(patient, ended).await {
            Ok(service) => drop(service.waiting().await),
            Err(error) => tracing::debug!("a client of {STREAM_PATH} did not begin: {error}"),
        }
    });
    let events = stream::iter([endpoint]).chain(events(answers, guard)).map(Ok::<_, Infallible>);
    let events = events.take_until(front.stop.clone().cancelled_owned());
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Returns the address for posts. A client that can send no header showed its key in the query, and has no other way to
/// show it again.
fn endpoint(messages: &str, id: &str, key: Option<&QueryKey>) -> String {
    let key = key.map(|QueryKey(key)| format!("&{key}")).unwrap_or_default();
    format!("{messages}?sessionId={id}{key}")
}

fn events(answers: mpsc::Receiver<ServerJsonRpcMessage>, guard: SessionGuard) -> impl Stream<Item = Event> {
    stream::unfold((answers, guard), |(mut answers, guard)| async move {
        let message = answers.recv().await?;
        let event = Event::default().event("message");
        let event = event.clone().json_data(&message).unwrap_or(event);
        Some((event, (answers, guard)))
    })
}

#[derive(Debug, Deserialize)]
struct Posted {
    #[serde(rename = "sessionId", alias = "session_id")]
    session_id: String,
}

async fn receive<P: Profile>(State(front): State<Front<P>>, request: Request) -> ApiResult<Response> {
    let (parts, body) = request.into_parts();
    let who = Owner::of(&principal(&parts)?);
    let query = Query::<Posted>::try_from_uri(&parts.uri).map_err(|_missing| {
        Error::invalid("the query has no sessionId").with_hint("Post to the address that /sse returns.")
    })?;
    let inbox = front.open.inbox(&query.session_id, &who).ok_or_else(no_session)?;
    let bytes = axum::body::to_bytes(body, MAX_MESSAGE_BYTES).await.map_err(|error| {
        Error::invalid(format!("cannot read the message: {error}"))
            .with_hint(format!("A message has at most {MAX_MESSAGE_BYTES} bytes."))
    })?;
    let mut message = serde_json::from_slice(&bytes)
        .map_err(|error| Error::invalid(format!("the body is not a JSON-RPC message: {error}")))?;
    hello::cut(&mut message).map_err(|refused| Error::invalid(refused.error.message))?;
    inbox.send(message).await.map_err(|_gone| no_session())?;
    Ok((StatusCode::ACCEPTED, "Accepted").into_response())
}

fn no_session() -> ApiError {
    ApiError(
        Error::not_found("no such MCP session")
            .with_hint("Open /sse again, and post to the address it returns."),
    )
}

/// Long enough not to be guessed.
fn fresh_id() -> Result<String> {
    let mut bytes = [0; ID_BYTES];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::new(ErrorKind::Internal, "no random bytes").with_source(error))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The two queues as the library wants them.
struct Pipe {
    inbox: mpsc::Receiver<ClientJsonRpcMessage>,
    outbox: mpsc::Sender<ServerJsonRpcMessage>,
}

impl Transport<RoleServer> for Pipe {
    type Error = io::Error;

    fn send(&mut self, item: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let outbox = self.outbox.clone();
        async move { outbox.send(item).await.map_err(|_gone| io::ErrorKind::BrokenPipe.into()) }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.inbox.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.inbox.close();
        Ok(())
    }
}
