//! Facts that happened, as a stream.

use axum::{Extension, extract::State, http::HeaderMap, response::Response};
use engine::Follow;
use futures_util::StreamExt;
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
        None if !query.follow => Some(1),
        from => from,
    };
    let follow = if query.follow { Follow::Yes } else { Follow::No };
    let events = rest.engine.events(&who, from, follow).await?;
    let items = events
        .map(|event| event.map(|event| Numbered { number: Some(event.number), event: "event", value: event }))
        .boxed();
    Ok(stream::answer(Format::of(&headers), id, &rest.stop, items))
}
