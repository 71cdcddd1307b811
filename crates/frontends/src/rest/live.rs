//! One stream with all that happens, for the dashboard and for whoever else watches.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse as _, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use bytes::Bytes;
use engine::{LiveEvent, LiveSpec, LiveTopic, SandboxRef};
use futures_util::{StreamExt, future, stream, stream::BoxStream};
use sandbox::Error;
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Caller, Params},
    stream::{Format, raw},
    v1::{self, LiveMessage},
};
use crate::http::ApiResult;

/// The time between two comments on a silent stream: shorter than the idle limit of common proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const TOPICS: [(&str, LiveTopic); 6] = [
    ("sandboxes", LiveTopic::Sandboxes),
    ("usage", LiveTopic::Usage),
    ("execs", LiveTopic::Execs),
    ("calls", LiveTopic::Calls),
    ("network", LiveTopic::Network),
    ("pending", LiveTopic::Pending),
];

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(live))
}

/// Streams what happens, as it happens: sandboxes, usage, execs, calls, network decisions and requests for more network
/// that the caller may see.
///
/// Begins with `hello`, then every sandbox and every request that waits for an answer, then `ready`. As SSE, or as lines of JSON. It does not resume: after a break
/// it begins anew.
#[utoipa::path(get, path = "/live", tag = "events", params(v1::LiveQuery),
    responses((status = 200, content((LiveMessage = "text/event-stream"), (LiveMessage = "application/x-ndjson")))))]
async fn live(
    State(rest): State<Rest>,
    Caller(who): Caller,
    headers: HeaderMap,
    Params(query): Params<v1::LiveQuery>,
) -> ApiResult<Response> {
    let events = rest.engine.live(&who, spec(query)?).await?;
    let hello = LiveMessage::Hello(v1::LiveHello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: rest.started_at,
    });
    let messages = stream::once(future::ready(hello)).chain(events.map(message));
    // A daemon that stops ends its streams; their readers come back.
    let messages = messages.take_until(rest.stop.clone().cancelled_owned()).boxed();
    Ok(match Format::asked(&headers) {
        Some(Format::Ndjson) => raw("application/x-ndjson", lines(messages)),
        _ => Sse::new(events_of(messages)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response(),
    })
}

fn spec(query: v1::LiveQuery) -> Result<LiveSpec, Error> {
    let topics = match query.topics.as_deref() {
        None => TOPICS.iter().map(|(_, topic)| *topic).collect(),
        Some(words) => words.split(',').map(topic).collect::<Result<_, Error>>()?,
    };
    let sandbox = query.sandbox.map(|which| SandboxRef::new(&which, query.namespace)).transpose()?;
    Ok(LiveSpec { topics, sandbox })
}

fn topic(word: &str) -> Result<LiveTopic, Error> {
    TOPICS.iter().find(|(name, _)| *name == word).map(|(_, topic)| *topic).ok_or_else(|| {
        let shown: String = word.chars().take(64).collect();
        Error::invalid(format!("{shown:?} is not a topic")).with_hint(
            "The topics are sandboxes, usage, execs, calls, network and pending, separated by commas.",
        )
    })
}

fn message(event: LiveEvent) -> LiveMessage {
    match event {
        LiveEvent::Sandbox(view) => LiveMessage::Sandbox(Box::new((*view).into())),
        LiveEvent::Gone(id) => LiveMessage::Gone(v1::LiveGone { id }),
        LiveEvent::Ready => LiveMessage::Ready(v1::LiveReady {}),
        LiveEvent::Usage { at, sandboxes } => {
            let sandboxes = sandboxes.into_iter().map(|(id, load)| (id.to_string(), load)).collect();
            LiveMessage::Usage(v1::LiveUsage { at, sandboxes })
        }
        LiveEvent::Exec(exec) => LiveMessage::Exec(exec),
        LiveEvent::Call(call) => LiveMessage::Call(call),
        LiveEvent::Network(entry) => LiveMessage::Network(entry),
        LiveEvent::Request(request) => LiveMessage::Request(request),
        LiveEvent::Lagged(missed) => LiveMessage::Lagged(v1::LiveLagged { missed }),
    }
}

fn events_of(messages: BoxStream<'static, LiveMessage>) -> BoxStream<'static, Result<Event, Infallible>> {
    messages
        .map(|message| {
            // The stream sends what the document describes: the name and the data of one message.
            let parts = serde_json::to_value(&message).unwrap_or_default();
            let name = parts.get("event").and_then(Value::as_str).unwrap_or("error");
            let data = parts.get("data").map(ToString::to_string).unwrap_or_default();
            Ok(Event::default().event(name).data(data))
        })
        .boxed()
}

fn lines(messages: BoxStream<'static, LiveMessage>) -> BoxStream<'static, Result<Bytes, Infallible>> {
    messages
        .map(|message| {
            let mut line = serde_json::to_vec(&message).unwrap_or_default();
            line.push(b'\n');
            Ok(Bytes::from(line))
        })
        .boxed()
}
