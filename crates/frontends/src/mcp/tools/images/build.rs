//! `image_build`

use std::{collections::BTreeMap, time::Duration};

use engine::{BuildEvent, BuildSpec, BuiltImage, ByteStream, DockerfileSource, QUEUED_BUILD_EVENTS};
use sandbox::{Error, ErrorKind, NetworkSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::mpsc, time::Instant};

use super::pull::PROGRESS_EVERY;
use crate::{
    builds::{platform, preset, reference},
    images::Pulling,
    mcp::{Answer, Call, Failure, ToolResult, hostfs::Source, tools::once},
};

/// The end of what the commands printed that an answer has.
const MAX_OUTPUT_BYTES: usize = 8 * 1024;

/// An archive without members is two empty blocks.
const EMPTY_TAR: [u8; 1024] = [0; 1024];

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct BuildArguments {
    /// Host path of the context: a directory, or a tar of one. Not needed for a Dockerfile given as text
    context_path: Option<String>,
    /// Path in the context, or the text itself; default Dockerfile
    dockerfile: Option<String>,
    /// Name of the image
    tag: Option<String>,
    /// Several names
    tags: Option<Vec<String>>,
    /// Values for ARG
    build_args: Option<BTreeMap<String, String>>,
    /// Stage to build; default the last
    target: Option<String>,
    /// Do not use cached layers
    no_cache: Option<bool>,
    /// Default this machine's
    platform: Option<String>,
    /// Network of RUN: none, packages (default: pip, npm, apt), public, public+private, all
    network: Option<String>,
    /// Rules that allow RUN more, such as api.example.org:443
    allow: Option<Vec<String>>,
    deny: Option<Vec<String>>,
    /// Default 3600
    timeout_seconds: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Built {
    manifest_digest: String,
    references: Vec<String>,
    steps: usize,
    /// Of those, how many layers an earlier build had made
    cached: usize,
    /// The end of the commands' output
    output: String,
    built: bool,
}

pub(super) async fn build(call: Call, arguments: BuildArguments) -> ToolResult<Built> {
    let spec = spec_of(&arguments)?;
    let context = context(&call, &arguments, &spec).await?;
    let (sender, mut events) = mpsc::channel(QUEUED_BUILD_EVENTS);
    let pulling = Pulling::default();
    let mut progress = BuildProgress { call: &call, output: String::new(), step: 0.0, total: 0.0, last: 0.0 };
    let mut next_look = Instant::now();
    let work = call.engine().build_image(&call.who, spec, context, sender, pulling.progress());
    let mut work = std::pin::pin!(work);
    let ended = loop {
        let news = pulling.news(next_look);
        tokio::select! {
            biased;
            Some(event) = events.recv() => progress.take(event).await,
            ended = &mut work => break ended,
            () = call.cancelled.cancelled() => {
                let error = Error::new(ErrorKind::Cancelled, "the build was cancelled");
                return Err(Failure::from(error)
                    .with_hint("Call image_build again to continue; finished layers are kept."));
            }
            _facts = news => {
                next_look = Instant::now() + PROGRESS_EVERY;
                progress.pulling(&pulling).await;
            }
        }
    };
    progress.rest(&mut events, &pulling).await;
    let built: BuiltImage = ended.map_err(|error| progress.failed(error))?;
    Ok(Answer::new(Built {
        manifest_digest: built.digest.to_string(),
        references: built.names.iter().map(ToString::to_string).collect(),
        steps: built.n_steps,
        cached: built.n_cached,
        output: progress.output,
        built: true,
    })
    .warn_all(built.warnings))
}

/// The files that the Dockerfile may copy: none where its text is all that is given.
async fn context(call: &Call, arguments: &BuildArguments, spec: &BuildSpec) -> Result<ByteStream, Failure> {
    match (&arguments.context_path, &spec.dockerfile) {
        (Some(path), _) => Ok(Source::open(call, path).await?.into_stream()),
        (None, DockerfileSource::Text(_)) => Ok(once(EMPTY_TAR.to_vec())),
        (None, DockerfileSource::Path(_)) => Err(Failure::invalid("contextPath is missing")
            .with_hint("Give the host path of the context, or the text of the Dockerfile as dockerfile.")),
    }
}

fn spec_of(arguments: &BuildArguments) -> Result<BuildSpec, Failure> {
    let names = arguments.tag.iter().chain(arguments.tags.iter().flatten());
    let dockerfile = match &arguments.dockerfile {
        None => DockerfileSource::default(),
        // No path has lines, and no Dockerfile is without a blank.
        Some(text) if text.contains('\n') || text.to_ascii_uppercase().starts_with("FROM ") => {
            DockerfileSource::Text(text.clone())
        }
        Some(path) => DockerfileSource::Path(path.clone()),
    };
    Ok(BuildSpec {
        dockerfile,
        tags: names.map(|name| reference(name)).collect::<sandbox::Result<_>>()?,
        args: arguments.build_args.clone().unwrap_or_default(),
        target: arguments.target.clone(),
        no_cache: arguments.no_cache.unwrap_or(false),
        platform: arguments.platform.as_deref().map(platform).transpose()?,
        network: NetworkSpec {
            preset: arguments.network.as_deref().map(preset).transpose()?.flatten(),
            allow: arguments.allow.clone().unwrap_or_default(),
            deny: arguments.deny.clone().unwrap_or_default(),
            ..NetworkSpec::default()
        },
        timeout: arguments.timeout_seconds.map(Duration::from_secs),
        ..BuildSpec::default()
    })
}

struct BuildProgress<'a> {
    call: &'a Call,
    output: String,
    step: f64,
    total: f64,
    /// The last number that was told: the next one has to be higher.
    last: f64,
}

impl BuildProgress<'_> {
    async fn take(&mut self, event: BuildEvent) {
        match event {
            BuildEvent::Step { number, total, text, .. } => {
                let message = format!("[{number}/{total}] {text}");
                (self.step, self.total) = (number as f64, total as f64);
                self.last = self.step;
                self.call.progress.tell(self.step, Some(self.total), message).await;
            }
            BuildEvent::Output { text, .. } => {
                self.output.push_str(&text);
                let too_many = self.output.len().saturating_sub(MAX_OUTPUT_BYTES);
                let cut = (too_many..=self.output.len()).find(|at| self.output.is_char_boundary(*at));
                self.output.drain(..cut.unwrap_or(0));
            }
            BuildEvent::Cached { .. }
            | BuildEvent::Layer { .. }
            | BuildEvent::Pull { .. }
            | BuildEvent::Warning { .. } => {}
        }
    }

    /// Takes the last events of a build that has ended, which came in the same breath.
    async fn rest(&mut self, events: &mut mpsc::Receiver<BuildEvent>, pulling: &Pulling) {
        while let Ok(event) = events.try_recv() {
            self.take(event).await;
        }
        if !pulling.fresh().is_empty() {
            self.pulling(pulling).await;
        }
    }

    /// How far a pull is, as a part of its step.
    async fn pulling(&mut self, pulling: &Pulling) {
        let sum = pulling.sum();
        let share = if sum.total == 0 { 0.0 } else { sum.bytes as f64 / sum.total as f64 };
        let now = self.step + share * 0.9;
        if now <= self.last {
            return;
        }
        self.last = now;
        let (n_done, n_layers, bytes, total) = (sum.n_done, sum.n_layers, sum.bytes, sum.total);
        let message = format!("{n_done} of {n_layers} layers, {bytes} of {total} bytes downloaded");
        self.call.progress.tell(now, Some(self.total), message).await;
    }

    /// Returns the failure with the command's output, which is nowhere else.
    fn failed(&self, error: Error) -> Failure {
        let failure = Failure::from(error);
        match self.output.is_empty() {
            true => failure,
            false => failure.reworded(|words| format!("{words}\nIt printed:\n{}", self.output)),
        }
    }
}
