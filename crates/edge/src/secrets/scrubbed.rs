//! A server's answers, without the values of secrets.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use hyper::{
    HeaderMap,
    body::{Body, Frame, Incoming, SizeHint},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::scrub::{Patterns, Scrubber};

/// Bytes read at a time from a connection that stopped being HTTP.
const READ_BYTES: usize = 16 * 1024;

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Scrubbed {
    body: Incoming,
    scrubber: Scrubber,
    /// Trailers, which come after the last of what the scrubber held.
    trailers: Option<HeaderMap>,
    is_over: bool,
}

impl Scrubbed {
    pub(crate) fn new(body: Incoming, patterns: Arc<Patterns>) -> Self {
        Self { body, scrubber: Scrubber::new(patterns), trailers: None, is_over: false }
    }

    /// Returns what is left when nothing follows from the server.
    fn rest(&mut self) -> Option<Frame<Bytes>> {
        let rest = self.scrubber.finish();
        if rest.is_empty() { self.trailers.take().map(Frame::trailers) } else { Some(Frame::data(rest)) }
    }
}

impl Body for Scrubbed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        while !self.is_over {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)?) else {
                self.is_over = true;
                break;
            };
            match frame.into_data() {
                Ok(data) => {
                    let clean = self.scrubber.pass(data);
                    if !clean.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(clean))));
                    }
                }
                Err(frame) => {
                    if let Ok(mut trailers) = frame.into_trailers() {
                        self.scrubber.patterns().scrub_headers(&mut trailers);
                        self.trailers = Some(trailers);
                        self.is_over = true;
                    }
                }
            }
        }
        Poll::Ready(self.rest().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        (self.is_over || self.body.is_end_stream()) && self.scrubber.held() == 0 && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let held = u64::try_from(self.scrubber.held()).unwrap_or(u64::MAX);
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(held));
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

/// Carries bytes both ways once a connection stopped being HTTP, until both are at their end.
pub(crate) async fn carry(
    inside: impl AsyncRead + AsyncWrite,
    outside: impl AsyncRead + AsyncWrite,
    patterns: Arc<Patterns>,
) -> io::Result<()> {
    let (mut from_inside, mut to_inside) = tokio::io::split(inside);
    let (mut from_outside, mut to_outside) = tokio::io::split(outside);
    let out = async {
        tokio::io::copy(&mut from_inside, &mut to_outside).await?;
        to_outside.shutdown().await
    };
    let back = async {
        let mut scrubber = Scrubber::new(patterns);
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        while from_outside.read_buf(&mut buffer).await? > 0 {
            to_inside.write_all(&scrubber.pass(buffer.split().freeze())).await?;
            to_inside.flush().await?;
            buffer.reserve(READ_BYTES);
        }
        to_inside.write_all(&scrubber.finish()).await?;
        to_inside.shutdown().await
    };
    tokio::try_join!(out, back)?;
    Ok(())
}
