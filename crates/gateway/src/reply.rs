//! Replies to a client: sentences, and files in pieces.

use std::{fs::File, io, os::unix::fs::FileExt as _, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    body::Frame,
    ext::ReasonPhrase,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue},
};

use crate::{error::Refusal, stats::Counters};

/// How much is read from disk at a time, in bytes, and so what one client costs in memory.
pub(crate) const PIECE_BYTES: u64 = 128 << 10;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(crate) fn refusal(refusal: &Refusal) -> Response<Body> {
    let mut response = Response::new(whole(format!("{}\n", refusal.sentence)));
    *response.status_mut() = refusal.status;
    // pip and apt show nothing of a refusal but its status line.
    if let Ok(reason) = ReasonPhrase::try_from(refusal.sentence.as_bytes()) {
        response.extensions_mut().insert(reason);
    }
    set(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
    response
}

/// A body that is already in memory.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(whole(""));
    *response.status_mut() = status;
    response
}

pub(crate) fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    // A value that cannot be a header is left out; none of ours is indispensable.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

pub(crate) fn set_length(response: &mut Response<Body>, length: u64) {
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
}

/// A body from pieces, counted. An error breaks the connection off, so that the client cannot take it for complete.
pub(crate) fn pieces(
    pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    counters: Arc<Counters>,
) -> Body {
    let frames = pieces.map(move |piece| {
        piece.map(|bytes| {
            counters.count(|stats| stats.bytes_served += bytes.len() as u64);
            Frame::data(bytes)
        })
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A part of a file, with a text put in at some places: how pages come to name the address under which the client knows
/// us.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) file: Arc<File>,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Positions in the file, in ascending order.
    pub(crate) cuts: Vec<u64>,
    pub(crate) inserted: Bytes,
}

impl Part {
    pub(crate) fn length(&self) -> u64 {
        (self.to - self.from) + self.cuts.len() as u64 * self.inserted.len() as u64
    }

    pub(crate) fn stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let part = Arc::new(self);
        stream::try_unfold(part.from, move |position| {
            let part = Arc::clone(&part);
            async move {
                if position >= part.to {
                    return Ok(None);
                }
                let until = part.to.min(position + PIECE_BYTES);
                let bytes = blocking(move || part.read(position, until)).await?;
                Ok(Some((bytes, until)))
            }
        })
    }

    fn read(&self, from: u64, until: u64) -> io::Result<Bytes> {
        let bytes = read_at(&self.file, from, until)?;
        let cuts =
            self.cuts.partition_point(|cut| *cut < from)..self.cuts.partition_point(|cut| *cut < until);
        if cuts.is_empty() {
            return Ok(bytes.into());
        }
        let mut out = Vec::with_capacity(bytes.len() + cuts.len() * self.inserted.len());
        let mut done = 0;
        for cut in &self.cuts[cuts] {
            let cut = usize::try_from(cut - from).map_err(io::Error::other)?;
            out.extend_from_slice(&bytes[done..cut]);
            out.extend_from_slice(&self.inserted);
            done = cut;
        }
        out.extend_from_slice(&bytes[done..]);
        Ok(out.into())
    }
}

/// At most [`PIECE_BYTES`].
pub(crate) fn read_at(file: &File, from: u64, until: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(until - from).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

/// Disk work, off the threads that serve.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_status_line_too() {
        let sentence = "The package index does not have x.".to_owned();
        let told = refusal(&Refusal { status: StatusCode::NOT_FOUND, sentence });
        let reason = told.extensions().get::<ReasonPhrase>().unwrap();
        assert_eq!(reason.as_bytes(), b"The package index does not have x.");
    }

    #[tokio::test]
    async fn texts_are_put_in_at_every_place_across_pieces() {
        let mut file = tempfile::tempfile().unwrap();
        let length = PIECE_BYTES * 2 + 10;
        let content: Vec<u8> = (0..length).map(|n| b"abcdefg"[(n % 7) as usize]).collect();
        file.write_all(&content).unwrap();
        let cuts = vec![0, 5, PIECE_BYTES - 1, PIECE_BYTES, length - 1];
        let mut expected = content.clone();
        for cut in cuts.iter().rev() {
            expected.splice(*cut as usize..*cut as usize, *b"<here>");
        }
        let part = Part { file: Arc::new(file), from: 0, to: length, cuts, inserted: "<here>".into() };
        assert_eq!(part.length(), expected.len() as u64);
        let pieces: Vec<Bytes> = part.stream().map(Result::unwrap).collect().await;
        assert_eq!(pieces.concat(), expected);
    }
}
