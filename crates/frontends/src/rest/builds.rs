//! Images from Dockerfiles. The context comes as the body, what the build tells goes back line by line.

use std::{collections::VecDeque, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    http::HeaderMap,
    response::Response,
};
use engine::{BuildEvent, BuildSpec, BuiltImage, DockerfileSource, PullEvent, QUEUED_BUILD_EVENTS};
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use sandbox::{Error, PullPolicy, Result};
use tokio::{sync::mpsc, time::Instant};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Rest,
    extract::{Caller, byte_stream},
    pulls::{TELL_EVERY, event_of},
    stream::{Format, Numbered, answer},
    v1,
};
use crate::{
    http::{ApiResult, HttpRequestId},
    images::Pulling,
};

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(build))
}

/// Builds an image from the tar of a context, plain or compressed with gzip, and streams what it does, as SSE or as lines of
/// JSON. The last line is `done`, or a failure in the shape of every failure. A reader that goes away ends the build.
#[utoipa::path(post, path = "/images/build", tag = "images",
    params(
        ("tag" = Option<Vec<String>>, Query, description = "Names for the image; may be repeated."),
        ("dockerfile" = Option<String>, Query, description = "Path of the Dockerfile in the context. Default: `Dockerfile`."),
        ("buildArg" = Option<Vec<String>>, Query, description = "`NAME=value`; may be repeated."),
        ("target" = Option<String>, Query, description = "The stage to build. Default: the last one."),
        ("noCache" = Option<bool>, Query, description = "Do not use cached layers."),
        ("platform" = Option<String>, Query, description = "Must be this machine's platform."),
        ("pull" = Option<String>, Query, description = "`always`, `if-missing` or `never`, for the images of `FROM`."),
        ("network" = Option<String>, Query, description = "`default`: commands of `RUN` reach package indexes; `none`: they reach nothing."),
        ("timeoutMs" = Option<u64>, Query, description = "Maximum time for the build."),
    ),
    request_body(content_type = "application/x-tar", content = Vec<u8>),
    responses((status = 200,
        content((v1::BuildEvent = "application/x-ndjson"), (v1::BuildEvent = "text/event-stream")))))]
async fn build(
    State(rest): State<Rest>,
    Caller(who): Caller,
    Extension(id): Extension<HttpRequestId>,
    headers: HeaderMap,
    pairs: Result<Query<Vec<(String, String)>>, QueryRejection>,
    body: Body,
) -> ApiResult<Response> {
    let Query(pairs) = pairs.map_err(|error| Error::invalid(format!("invalid query: {error}")))?;
    let spec = spec_of(pairs)?;
    let (sender, events) = mpsc::channel(QUEUED_BUILD_EVENTS);
    let engine = rest.engine.clone();
    let pulling = Pulling::default();
    let pulls = pulling.progress();
    let work = async move { engine.build_image(&who, spec, byte_stream(body), sender, pulls).await };
    let mut lines = lines(events, pulling, work.boxed());
    // A failure before the first line is an answer like any other.
    let first = match lines.next().await {
        Some(Err(error)) => return Err(error.into()),
        first => first,
    };
    let lines = stream::iter(first).chain(lines).boxed();
    Ok(answer(Format::of(&headers), id, &rest.stop, lines))
}

fn spec_of(pairs: Vec<(String, String)>) -> Result<BuildSpec> {
    let mut spec = BuildSpec::default();
    for (name, value) in pairs {
        match name.as_str() {
            "tag" => spec.tags.push(crate::builds::reference(&value)?),
            "dockerfile" => spec.dockerfile = DockerfileSource::Path(value),
            "buildArg" => {
                let (name, value) = value
                    .split_once('=')
                    .ok_or_else(|| Error::invalid(format!("buildArg takes NAME=value, not {value:?}")))?;
                spec.args.insert(name.to_owned(), value.to_owned());
            }
            "target" => spec.target = Some(value),
            "noCache" => spec.no_cache = flag(&name, &value)?,
            "platform" => spec.platform = Some(crate::builds::platform(&value)?),
            "pull" => spec.pull = pull(&value)?,
            "network" => spec.network = crate::builds::network(&value)?,
            "timeoutMs" => {
                let millis = value
                    .parse()
                    .map_err(|_bad| Error::invalid("timeoutMs takes a number of milliseconds"))?;
                spec.timeout = Some(Duration::from_millis(millis));
            }
            other => {
                let shown: String = other.chars().take(64).collect();
                return Err(Error::invalid(format!("unknown parameter {shown:?}")).with_hint(
                    "Known are tag, dockerfile, buildArg, target, noCache, platform, pull, network and timeoutMs.",
                ));
            }
        }
    }
    Ok(spec)
}

fn flag(name: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_bad| Error::invalid(format!("{name} takes true or false, not {value:?}")))
}

fn pull(value: &str) -> Result<PullPolicy> {
    match value {
        "always" => Ok(PullPolicy::Always),
        "if-missing" => Ok(PullPolicy::IfMissing),
        "never" => Ok(PullPolicy::Never),
        other => Err(Error::invalid(format!("pull takes always, if-missing or never, not {other:?}"))),
    }
}

type Line = Result<Numbered<v1::BuildEvent>>;

struct Following {
    events: mpsc::Receiver<BuildEvent>,
    pulling: Pulling,
    /// None once it ended.
    work: Option<BoxFuture<'static, Result<BuiltImage>>>,
    ready: VecDeque<Line>,
    next_look: Instant,
}

fn lines(
    events: mpsc::Receiver<BuildEvent>,
    pulling: Pulling,
    work: BoxFuture<'static, Result<BuiltImage>>,
) -> BoxStream<'static, Line> {
    let (ready, next_look) = (VecDeque::new(), Instant::now());
    let following = Following { events, pulling, work: Some(work), ready, next_look };
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
                Some(event) = self.events.recv() => self.told(event),
                ended = work => {
                    self.work = None;
                    // What it said last, in the same breath.
                    while let Ok(event) = self.events.try_recv() {
                        self.told(event);
                    }
                    self.ready.extend(self.pulling.fresh().into_iter().map(pulled));
                    self.ready.push_back(ended.map(|built| numbered(built.into())));
                }
                events = events => {
                    self.next_look = Instant::now() + TELL_EVERY;
                    self.ready.extend(events.into_iter().map(pulled));
                }
            }
        }
    }

    fn told(&mut self, event: BuildEvent) {
        // What was told of a pull came before what the build says next.
        self.ready.extend(self.pulling.fresh().into_iter().map(pulled));
        self.ready.push_back(Ok(numbered(event.into())));
    }
}

fn pulled(event: PullEvent) -> Line {
    Ok(numbered(v1::BuildEvent::Pulling { event: event_of(event) }))
}

fn numbered(value: v1::BuildEvent) -> Numbered<v1::BuildEvent> {
    let event = match &value {
        v1::BuildEvent::Step { .. } => "step",
        v1::BuildEvent::Cached { .. } => "cached",
        v1::BuildEvent::Output { .. } => "output",
        v1::BuildEvent::Layer { .. } => "layer",
        v1::BuildEvent::Pull { .. } => "pull",
        v1::BuildEvent::Pulling { .. } => "pulling",
        v1::BuildEvent::Warning { .. } => "warning",
        v1::BuildEvent::Done { .. } => "done",
    };
    Numbered { number: None, event, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_build_says_as_it_ends_comes_before_its_end() {
        let (sender, events) = mpsc::channel(QUEUED_BUILD_EVENTS);
        let pulling = Pulling::default();
        let pulls = pulling.progress();
        let work = async move {
            let warn = |message: &str| BuildEvent::Warning { message: message.to_owned() };
            sender.send(warn("one")).await.unwrap();
            sender.send(warn("two")).await.unwrap();
            pulls.tell(PullEvent::Retrying { wait: Duration::ZERO, why: "no answer".to_owned() });
            Err(Error::invalid("the end"))
        };
        let lines: Vec<Line> = lines(events, pulling, work.boxed()).collect().await;
        let said: Vec<_> = lines
            .into_iter()
            .map(|line| line.map_or_else(|error| error.to_string(), |line| line.event.to_owned()))
            .collect();
        // What is told of pulls and what the build says have no order among them here.
        assert_eq!(said, ["pulling", "warning", "warning", "the end"]);
    }
}
