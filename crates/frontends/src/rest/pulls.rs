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
use tokio::time::Instant;

use super::{
    Rest,
    stream::{Format, Numbered, answer},
    v1,
};
use crate::{
    http::{ApiResult, HttpRequestId},
    images::Pulling,
};

/// Between two looks at how far a pull is.
pub(super) const TELL_EVERY: Duration = Duration::from_millis(100);

type Line = Result<Numbered<v1::PullEvent>>;

/// Streams what a pull tells, and `last` of what came of it. A failure before the first line is an answer like any other.
pub(super) async fn follow<T: Send + 'static>(
    rest: &Rest,
    id: HttpRequestId,
    headers: &HeaderMap,
    pulling: Pulling,
    work: impl Future<Output = Result<T>> + Send + 'static,
    last: impl FnOnce(T) -> v1::PullEvent + Send + 'static,
) -> ApiResult<Response> {
    let work = work.map(|done| done.map(last)).boxed();
    let mut lines = lines(pulling, work);
    let first = match lines.next().await {
        Some(Err(error)) => return Err(error.into()),
        first => first,
    };
    let lines = stream::iter(first).chain(lines).boxed();
    Ok(answer(Format::of(headers), id, &rest.stop, lines))
}

struct Following {
    pulling: Pulling,
    /// None once it ended.
    work: Option<BoxFuture<'static, Result<v1::PullEvent>>>,
    ready: VecDeque<Line>,
    next_look: Instant,
}

fn lines(pulling: Pulling, work: BoxFuture<'static, Result<v1::PullEvent>>) -> BoxStream<'static, Line> {
    let following =
        Following { pulling, work: Some(work), ready: VecDeque::new(), next_look: Instant::now() };
    stream::unfold(following, |mut following| async move {
        let line = following.next().await?;
        Some((line, following))
    })
    .boxed()
}

impl Following {
    async fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            let work = self.work.as_mut()?;
            let events = self.pulling.news(self.next_look);
            tokio::select! {
                biased;
                ended = work => {
                    self.work = None;
                    self.ready.extend(self.pulling.fresh().into_iter().map(told));
                    self.ready.push_back(ended.map(numbered));
                }
                events = events => {
                    self.next_look = Instant::now() + TELL_EVERY;
                    self.ready.extend(events.into_iter().map(told));
                }
            }
        }
    }
}

fn told(event: PullEvent) -> Line {
    Ok(numbered(event_of(event)))
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

fn numbered(value: v1::PullEvent) -> Numbered<v1::PullEvent> {
    let event = match &value {
        v1::PullEvent::Resolved { .. } => "resolved",
        v1::PullEvent::Layer { .. } => "layer",
        v1::PullEvent::Retrying { .. } => "retrying",
        v1::PullEvent::Done { .. } => "done",
        v1::PullEvent::Created { .. } => "created",
    };
    Numbered { number: None, event, value }
}
