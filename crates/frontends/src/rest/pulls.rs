//! Pulls as streams: what they tell on the way, and how they end. A reader that goes away gives its pull up.

use std::{collections::VecDeque, time::Duration};

use axum::{http::HeaderMap, response::Response};
use engine::{LayerState, PullEvent};
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use sandbox::Result;
use serde::Serialize;
use tokio::{sync::mpsc, time::Instant};

use super::{
    Rest,
    stream::{Format, Numbered, answer},
    v1,
};
use crate::{
    http::{ApiResult, HttpRequestId},
    images::Pulling,
};

/// The time between two looks at how far a pull is.
const TELL_EVERY: Duration = Duration::from_millis(100);

pub(super) type Line<V> = Result<Numbered<V>>;

/// An event in the stream of a pull, or of something that pulls.
pub(super) trait Progress: Serialize + Send + 'static {
    fn of_pull(event: PullEvent) -> Self;

    /// Returns the kind of the event, for readers of SSE.
    fn kind(&self) -> &'static str;
}

impl Progress for v1::PullEvent {
    fn of_pull(event: PullEvent) -> Self {
        event_of(event)
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Resolved { .. } => "resolved",
            Self::Layer { .. } => "layer",
            Self::Retrying { .. } => "retrying",
            Self::Done { .. } => "done",
            Self::Created { .. } => "created",
        }
    }
}

/// Streams what a pull tells, and `last` of what came of it.
pub(super) async fn follow<T: Send + 'static>(
    rest: &Rest,
    id: HttpRequestId,
    headers: &HeaderMap,
    pulling: Pulling,
    work: impl Future<Output = Result<T>> + Send + 'static,
    last: impl FnOnce(T) -> v1::PullEvent + Send + 'static,
) -> ApiResult<Response> {
    let work = work.map(|done| done.map(last)).boxed();
    // It has nothing to say but what is told of the pull.
    let (_, nothing) = mpsc::channel::<v1::PullEvent>(1);
    respond(rest, id, headers, lines(nothing, pulling, work)).await
}

/// A failure before the first line is an answer like any other.
pub(super) async fn respond<V: Progress>(
    rest: &Rest,
    id: HttpRequestId,
    headers: &HeaderMap,
    mut lines: BoxStream<'static, Line<V>>,
) -> ApiResult<Response> {
    let first = match lines.next().await {
        Some(Err(error)) => return Err(error.into()),
        first => first,
    };
    let lines = stream::iter(first).chain(lines).boxed();
    Ok(answer(Format::of(headers), id, &rest.stop, lines))
}

struct Following<E, V> {
    events: mpsc::Receiver<E>,
    pulling: Pulling,
    /// None once it ended.
    work: Option<BoxFuture<'static, Result<V>>>,
    ready: VecDeque<Line<V>>,
    next_look: Instant,
}

/// Returns the lines of a stream: the `events`, the progress of the pull, and last how the work ended.
pub(super) fn lines<E: Into<V> + Send + 'static, V: Progress>(
    events: mpsc::Receiver<E>,
    pulling: Pulling,
    work: BoxFuture<'static, Result<V>>,
) -> BoxStream<'static, Line<V>> {
    let (ready, next_look) = (VecDeque::new(), Instant::now());
    let following = Following { events, pulling, work: Some(work), ready, next_look };
    stream::unfold(following, |mut following| async move {
        let line = following.next().await?;
        Some((line, following))
    })
    .boxed()
}

impl<E: Into<V>, V: Progress> Following<E, V> {
    async fn next(&mut self) -> Option<Line<V>> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            let work = self.work.as_mut()?;
            let pulled = self.pulling.news(self.next_look);
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => self.take(event),
                ended = work => {
                    self.work = None;
                    // The last events of the work came in the same breath.
                    while let Ok(event) = self.events.try_recv() {
                        self.take(event);
                    }
                    self.take_pulled(self.pulling.fresh());
                    self.ready.push_back(ended.map(numbered));
                }
                pulled = pulled => {
                    self.next_look = Instant::now() + TELL_EVERY;
                    self.take_pulled(pulled);
                }
            }
        }
    }

    fn take(&mut self, event: E) {
        // Events of a pull so far came before the next one of the work.
        self.take_pulled(self.pulling.fresh());
        self.ready.push_back(Ok(numbered(event.into())));
    }

    fn take_pulled(&mut self, events: Vec<PullEvent>) {
        self.ready.extend(events.into_iter().map(|event| Ok(numbered(V::of_pull(event)))));
    }
}

fn numbered<V: Progress>(value: V) -> Numbered<V> {
    Numbered { number: None, event: value.kind(), value }
}

pub(super) fn event_of(event: PullEvent) -> v1::PullEvent {
    match event {
        PullEvent::Resolved { manifest, layers } => v1::PullEvent::Resolved {
            digest: manifest.to_string(),
            layers: layers
                .into_iter()
                .map(|(digest, bytes)| v1::PullLayer { digest: digest.to_string(), bytes })
                .collect(),
        },
        PullEvent::Layer { blob, state } => {
            let (state, bytes, total) = match state {
                LayerState::Present => (v1::PullState::Present, None, None),
                LayerState::Waiting => (v1::PullState::Waiting, None, None),
                LayerState::Downloading { bytes, total } => {
                    (v1::PullState::Downloading, Some(bytes), Some(total))
                }
                LayerState::Unpacking => (v1::PullState::Unpacking, None, None),
                LayerState::Done => (v1::PullState::Done, None, None),
            };
            v1::PullEvent::Layer { digest: blob.to_string(), state, bytes, total }
        }
        PullEvent::Retrying { wait, why } => {
            v1::PullEvent::Retrying { wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX), why }
        }
    }
}
