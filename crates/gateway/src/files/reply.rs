//! Files as answers.

use std::{io, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, stream};
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED},
};
use tokio::sync::watch;

use super::{
    Whole,
    download::{Head, Phase, Progress},
    range::{self, Share},
};
use crate::{
    reply::{self, Body, PIECE_BYTES, Part, blocking, read_at},
    stats::Counters,
};

pub(super) fn from_blob(
    whole: Whole,
    headers: &HeaderMap,
    content_type: &str,
    counters: &Arc<Counters>,
) -> Response<Body> {
    let etag = format!("\"{}\"", whole.sha256);
    let last_modified = whole.link.as_ref().and_then(|link| link.last_modified.as_deref());
    let mut response = if range::is_known(headers, &etag, last_modified) {
        reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        let (status, from, to) = match range::share(headers, whole.size, &etag, last_modified) {
            Share::Whole => (StatusCode::OK, 0, whole.size),
            Share::Part(from, to) => (StatusCode::PARTIAL_CONTENT, from, to),
            Share::Nothing => {
                let mut response = reply::empty(StatusCode::RANGE_NOT_SATISFIABLE);
                reply::set(&mut response, CONTENT_RANGE, &format!("bytes */{}", whole.size));
                return response;
            }
        };
        let part = Part { file: Arc::new(whole.file), from, to, cuts: Vec::new(), inserted: Bytes::new() };
        let mut response = Response::new(reply::pieces(part.stream(), Arc::clone(counters)));
        *response.status_mut() = status;
        reply::set_length(&mut response, to - from);
        reply::set(&mut response, CONTENT_TYPE, content_type);
        if status == StatusCode::PARTIAL_CONTENT {
            let range = format!("bytes {from}-{}/{}", to - 1, whole.size);
            reply::set(&mut response, CONTENT_RANGE, &range);
        }
        response
    };
    reply::set(&mut response, ETAG, &etag);
    reply::set(&mut response, ACCEPT_RANGES, "bytes");
    if let Some(last_modified) = last_modified {
        reply::set(&mut response, LAST_MODIFIED, last_modified);
    }
    response
}

/// The whole file, in order: ranges are not offered while it is being downloaded.
pub(super) fn from_download(
    head: Arc<Head>,
    progress: watch::Receiver<Progress>,
    content_type: &str,
    counters: &Arc<Counters>,
) -> Response<Body> {
    let total = head.total;
    let last_modified = head.last_modified.clone();
    let mut response = Response::new(reply::pieces(follow(head, progress), Arc::clone(counters)));
    reply::set(&mut response, CONTENT_TYPE, content_type);
    if let Some(total) = total {
        reply::set_length(&mut response, total);
    }
    if let Some(last_modified) = last_modified {
        reply::set(&mut response, LAST_MODIFIED, &last_modified);
    }
    response
}

/// Streams a download as it is written. The last byte is held back until the whole is verified, so that nothing false
/// can ever be complete.
fn follow(
    head: Arc<Head>,
    progress: watch::Receiver<Progress>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold((0_u64, progress), move |(position, mut progress)| {
        let head = Arc::clone(&head);
        async move {
            let seen = progress
                .wait_for(|now| match now.phase {
                    Phase::Coming(_) => now.written > position + 1,
                    _ => true,
                })
                .await
                .map_err(io::Error::other)?
                .clone();
            let readable = match seen.phase {
                Phase::Done(_) => seen.written,
                Phase::Coming(_) => seen.written - 1,
                Phase::Failed(failure) => return Err(io::Error::other(failure.detail)),
                Phase::Asking | Phase::Same => return Err(io::Error::other("a download that went back")),
            };
            if position >= readable {
                return Ok(None);
            }
            let until = readable.min(position + PIECE_BYTES);
            let bytes = blocking(move || read_at(&head.file, position, until)).await?;
            Ok(Some((Bytes::from(bytes), (until, progress))))
        }
    })
}
