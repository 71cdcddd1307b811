//! The log of an exec as a stream: a cursor over its ledger that any reader can set anywhere.

use axum::{Extension, extract::State, http::HeaderMap, response::Response};
use bytes::{Bytes, BytesMut};
use engine::{Entry, Follow};
use futures_util::{StreamExt, stream::BoxStream};
use sandbox::{Error, Result};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::AskExec,
    stream::{self, Format, Numbered},
    v1::{self, ENTRIES_MEDIA_TYPE, ExecEntry},
};
use crate::http::{ApiResult, HttpRequestId};

/// Entries that are ready at the same moment travel in one piece, up to this many.
const MAX_BATCH: usize = 64;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(entries))
}

/// Streams the exec's log from any entry: as SSE (resumed by `Last-Event-ID`), as lines of JSON, or as compact frames.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/execs/{exec}/entries", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), ("exec" = String, Path), v1::EntriesQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The last entry that was read.")),
    responses((status = 200, content(
        (ExecEntry = "application/x-ndjson"),
        (ExecEntry = "text/event-stream"),
        (Vec<u8> = "application/vnd.warren.entries")))))]
async fn entries(
    State(rest): State<Rest>,
    Extension(id): Extension<HttpRequestId>,
    headers: HeaderMap,
    ask: AskExec<v1::EntriesQuery>,
) -> ApiResult<Response> {
    let from = match last_event_id(&headers)? {
        Some(last) => last.saturating_add(1),
        None => ask.query.from.unwrap_or(1),
    };
    let follow = if ask.query.follow { Follow::Yes } else { Follow::No };
    let items = rest.engine.exec_entries(&ask.who, &ask.which, &ask.exec, from, follow).await?;
    Ok(match Format::of(&headers) {
        Format::Frames => {
            let items = items.take_until(rest.stop.clone().cancelled_owned()).boxed();
            stream::raw(ENTRIES_MEDIA_TYPE, frames(items))
        }
        format => stream::answer(format, id, &rest.stop, numbered(items)),
    })
}

pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| Error::invalid(format!("the Last-Event-ID {value:?} is not a number")))
}

fn numbered(items: BoxStream<'static, Result<Entry>>) -> BoxStream<'static, Result<Numbered<ExecEntry>>> {
    items
        .map(|item| {
            item.map(|entry| Numbered {
                number: Some(entry.number),
                event: "entry",
                value: ExecEntry::from(&entry),
            })
        })
        .boxed()
}

fn frames(items: BoxStream<'static, Result<Entry>>) -> impl futures_util::Stream<Item = Result<Bytes>> {
    items.ready_chunks(MAX_BATCH).map(|batch| {
        let mut bytes = BytesMut::new();
        for item in batch {
            // A reader sees the cut stream and asks again; what came before the error is lost with this batch only.
            v1::encode_frame(&item?, &mut bytes);
        }
        Ok(bytes.freeze())
    })
}
