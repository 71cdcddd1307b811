//! Facts that happened, as a stream.

use axum::{Extension, extract::State, http::HeaderMap, response::Response};
use engine::{Follow, SandboxRef};
use futures_util::StreamExt;
use sandbox::{Error, Event, EventKind};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    entries::last_event_id,
    extract::{Caller, Params},
    stream::{self, Format, Numbered},
    v1,
};
use crate::http::{ApiResult, HttpRequestId};

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Streams events from any number, as SSE (resumed by `Last-Event-ID`) or as lines of JSON.
#[utoipa::path(get, path = "/events", tag = "events",
    params(v1::EventsQuery, ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was read.")),
    responses((status = 200, content((sandbox::Event = "application/x-ndjson"), (sandbox::Event = "text/event-stream")))))]
async fn events(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Extension(id): Extension<HttpRequestId>,
    headers: HeaderMap,
    Params(query): Params<v1::EventsQuery>,
) -> ApiResult<Response> {
    let resumed = last_event_id(&headers)?.map(|last| last.saturating_add(1));
    let from = match resumed.or(query.from) {
        None if !query.follow || query.since.is_some() => Some(1),
        from => from,
    };
    let wanted = EventFilter::new(&query)?;
    let follow = if query.follow { Follow::Yes } else { Follow::No };
    let events = rest.engine.events(&who, from, follow).await?;
    let items = events
        .filter(move |event| std::future::ready(event.as_ref().map_or(true, |event| wanted.has(event))))
        .map(|event| event.map(|event| Numbered { number: Some(event.number), event: "event", value: event }))
        .boxed();
    Ok(stream::answer(Format::of(&headers), id, &rest.stop, items))
}

/// The events that a caller wants. All given conditions must hold.
struct EventFilter {
    query: v1::EventsQuery,
    kinds: Option<Vec<EventKind>>,
}

impl EventFilter {
    fn new(query: &v1::EventsQuery) -> Result<Self, Error> {
        if let Some(which) = &query.sandbox {
            which.parse::<SandboxRef>()?;
        }
        let parse = |word: &str| word.trim().parse::<EventKind>().map_err(Error::invalid);
        let kinds = match query.kinds.as_deref() {
            Some(words) => Some(words.split(',').map(parse).collect::<Result<Vec<_>, Error>>()?),
            None => None,
        };
        Ok(Self { kinds, query: query.clone() })
    }

    fn has(&self, event: &Event) -> bool {
        let v1::EventsQuery { sandbox, namespace, since, .. } = &self.query;
        // By what the event itself says: the sandbox may be gone, and its name another's.
        let is_of = |which: &String| {
            let by_name = event.name.as_ref().is_some_and(|name| name.as_str() == which);
            by_name || event.sandbox.as_ref().is_some_and(|id| id.as_str() == which)
        };
        sandbox.as_ref().is_none_or(is_of)
            && namespace.as_ref().is_none_or(|wanted| event.namespace.as_ref() == Some(wanted))
            && since.is_none_or(|since| event.at >= since)
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind))
    }
}
