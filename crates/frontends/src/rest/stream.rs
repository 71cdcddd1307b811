//! Streams of numbered things, in the form that the reader asked for.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{
        HeaderMap,
        header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use sandbox::{Error, Result};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::v1::ENTRIES_MEDIA_TYPE;
use crate::http::{self, HttpRequestId};

/// The time between two comments on a silent SSE stream: shorter than the idle limit of common proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const NDJSON: &str = "application/x-ndjson";

/// How a stream is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Sse,
    Ndjson,
    /// Frames of our own, for entries only.
    Frames,
}

impl Format {
    /// Returns the format that `Accept` prefers among ours; lines of JSON when it does not say.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self::asked(headers).unwrap_or(Self::Ndjson)
    }

    /// Returns the format that `Accept` names among ours.
    pub(super) fn asked(headers: &HeaderMap) -> Option<Self> {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        for range in accept.split(',') {
            match range.split(';').next().unwrap_or(range).trim() {
                "text/event-stream" => return Some(Self::Sse),
                NDJSON => return Some(Self::Ndjson),
                ENTRIES_MEDIA_TYPE => return Some(Self::Frames),
                _ => {}
            }
        }
        None
    }
}

/// One thing of a stream as JSON, with the number by which a reader resumes.
pub(super) struct Numbered<T> {
    pub(super) number: Option<u64>,
    pub(super) event: &'static str,
    pub(super) value: T,
}

/// Writes `items` as SSE or as lines. An error in the middle is the last item, in the shape of every error.
pub(super) fn answer<T: Serialize + Send + 'static>(
    format: Format,
    id: HttpRequestId,
    stop: &CancellationToken,
    items: BoxStream<'static, Result<Numbered<T>>>,
) -> Response {
    // A daemon that stops ends its streams; their readers come back with the last number they saw.
    let items = items.take_until(stop.clone().cancelled_owned());
    match format {
        Format::Sse => {
            Sse::new(sse(items, id)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
        }
        Format::Ndjson | Format::Frames => raw(NDJSON, ndjson(items, id)),
    }
}

fn sse<T: Serialize>(
    items: impl Stream<Item = Result<Numbered<T>>>,
    id: HttpRequestId,
) -> impl Stream<Item = Result<Event, Infallible>> {
    items.map(move |item| {
        Ok(match item {
            Ok(Numbered { number, event, value }) => {
                let fresh = Event::default().event(event);
                let fresh = number.map_or(fresh.clone(), |number| fresh.id(number.to_string()));
                fresh.clone().json_data(value).unwrap_or(fresh)
            }
            Err(failure) => {
                let fresh = Event::default().event("error");
                fresh.clone().json_data(error_body(&failure, &id)).unwrap_or(fresh)
            }
        })
    })
}

fn ndjson<T: Serialize>(
    items: impl Stream<Item = Result<Numbered<T>>>,
    id: HttpRequestId,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    items.map(move |item| {
        let line = match item {
            Ok(Numbered { value, .. }) => serde_json::to_vec(&value),
            Err(failure) => serde_json::to_vec(&error_body(&failure, &id)),
        };
        let mut line = line.unwrap_or_default();
        line.push(b'\n');
        Ok(Bytes::from(line))
    })
}

fn error_body(failure: &Error, id: &HttpRequestId) -> super::v1::ErrorBody {
    tracing::debug!(request = id.0, "a stream ended: {}", http::chain(failure));
    http::error_body(failure, &id.0)
}

/// A file's bytes, with what is known of it.
pub(super) fn file(entry: &sandbox::FileEntry, bytes: engine::ByteStream) -> Response {
    let mut response = raw("application/octet-stream", bytes);
    let headers = response.headers_mut();
    headers.insert("x-warren-size", entry.size.into());
    if let Ok(mode) = super::v1::Octal(entry.mode).to_string().parse() {
        headers.insert("x-warren-mode", mode);
    }
    response
}

/// A streamed body of one media type.
pub(super) fn raw<E>(
    media_type: &'static str,
    bytes: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Response
where
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    ([(CONTENT_TYPE, media_type), (CACHE_CONTROL, "no-cache")], Body::from_stream(bytes)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_decides_the_form() {
        let check = |accept: &'static str, format| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(Format::of(&headers), format, "{accept:?}");
        };
        check("text/event-stream", Format::Sse);
        check("text/html, text/event-stream;q=0.9", Format::Sse);
        check("application/x-ndjson", Format::Ndjson);
        check("application/vnd.warren.entries", Format::Frames);
        check("*/*", Format::Ndjson);
        assert_eq!(Format::of(&HeaderMap::new()), Format::Ndjson);
    }
}
