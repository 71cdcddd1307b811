//! Images from Dockerfiles. The context comes as the body, what the build tells goes back line by line.

use std::time::Duration;

use axum::{Extension, body::Body, extract::State, http::HeaderMap, response::Response};
use engine::{BuildSpec, DockerfileSource, PullEvent, QUEUED_BUILD_EVENTS};
use futures_util::FutureExt as _;
use sandbox::{Error, PullPolicy, Result};
use tokio::sync::mpsc;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Caller, Params, byte_stream},
    pulls::{self, Progress},
    v1,
};
use crate::{
    http::{ApiResult, HttpRequestId},
    images::Pulling,
};

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(build))
}

/// Builds an image from the tar of a context, plain or compressed with gzip, and streams what it does, as SSE or as
/// lines of JSON.
///
/// The last line is `done`, or a failure in the shape of every failure. A reader that goes away ends the build.
#[utoipa::path(post, path = "/images/build", tag = "images",
    params(
        ("tag" = Option<Vec<String>>, Query, description = "Names for the image; may be repeated."),
        ("dockerfile" = Option<String>, Query, description = "Path of the Dockerfile in the context. Default: `Dockerfile`."),
        ("buildArg" = Option<Vec<String>>, Query, description = "`NAME=value`; may be repeated."),
        ("target" = Option<String>, Query, description = "The stage to build. Default: the last one."),
        ("noCache" = Option<bool>, Query, description = "Do not use cached layers."),
        ("platform" = Option<String>, Query, description = "Must be this machine's platform."),
        ("pull" = Option<String>, Query, description = "`always`, `if-missing` or `never`, for the images of `FROM`."),
        ("network" = Option<String>, Query, description = "The preset of networks for commands of `RUN`. Default: `packages`."),
        ("allow" = Option<Vec<String>>, Query, description = "A rule that allows more; may be repeated."),
        ("deny" = Option<Vec<String>>, Query, description = "A rule that denies; may be repeated."),
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
    Params(pairs): Params<Vec<(String, String)>>,
    body: Body,
) -> ApiResult<Response> {
    let spec = spec_of(pairs)?;
    let (sender, events) = mpsc::channel(QUEUED_BUILD_EVENTS);
    let engine = rest.engine.clone();
    let pulling = Pulling::default();
    let pulls = pulling.progress();
    let work = async move { engine.build_image(&who, spec, byte_stream(body), sender, pulls).await };
    let work = work.map(|built| built.map(v1::BuildEvent::from));
    pulls::respond(&rest, id, &headers, pulls::lines(events, pulling, work.boxed())).await
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
            "network" => spec.network.preset = crate::builds::preset(&value)?,
            "allow" => spec.network.allow.push(value),
            "deny" => spec.network.deny.push(value),
            "timeoutMs" => {
                let millis = value
                    .parse()
                    .map_err(|_bad| Error::invalid("timeoutMs takes a number of milliseconds"))?;
                spec.timeout = Some(Duration::from_millis(millis));
            }
            other => {
                let shown: String = other.chars().take(64).collect();
                return Err(Error::invalid(format!("unknown parameter {shown:?}")).with_hint(
                    "Known are tag, dockerfile, buildArg, target, noCache, platform, pull, network, allow, deny and timeoutMs.",
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

impl Progress for v1::BuildEvent {
    fn of_pull(event: PullEvent) -> Self {
        Self::Pulling { event: v1::PullEvent::of_pull(event) }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Step { .. } => "step",
            Self::Cached { .. } => "cached",
            Self::Output { .. } => "output",
            Self::Layer { .. } => "layer",
            Self::Pull { .. } => "pull",
            Self::Pulling { .. } => "pulling",
            Self::Warning { .. } => "warning",
            Self::Done { .. } => "done",
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::BuildEvent;
    use futures_util::StreamExt as _;

    use super::{pulls::Line, *};

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
        let lines: Vec<Line<v1::BuildEvent>> = pulls::lines(events, pulling, work.boxed()).collect().await;
        let said: Vec<_> = lines
            .into_iter()
            .map(|line| line.map_or_else(|error| error.to_string(), |line| line.event.to_owned()))
            .collect();
        // Events of pulls and of the build have no order among them here.
        assert_eq!(said, ["pulling", "warning", "warning", "the end"]);
    }
}
