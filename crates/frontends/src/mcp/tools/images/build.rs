//! `image_build`

use std::{collections::BTreeMap, time::Duration};

use engine::{BuildEvent, BuildSpec, BuiltImage, DockerfileSource, QUEUED_BUILD_EVENTS};
use sandbox::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::refused;
use crate::{
    builds::{platform, reference},
    mcp::{
        call::Call,
        envelope::{Answer, Failure, ToolResult},
        hostfs::Source,
    },
};

/// The end of what the commands printed that an answer has.
const MAX_OUTPUT_BYTES: usize = 8 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct BuildArguments {
    /// Host path of the context: a directory, or a tar of one
    context_path: String,
    /// Path in the context, or the text itself; default Dockerfile
    dockerfile: Option<String>,
    /// What to call the image
    tag: Option<String>,
    /// Several names
    tags: Option<Vec<String>>,
    /// Values for ARG
    build_args: Option<BTreeMap<String, String>>,
    /// Stage to build; default the last
    target: Option<String>,
    /// Make every layer anew
    no_cache: Option<bool>,
    /// Default this machine's
    platform: Option<String>,
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
    /// The end of what commands printed
    output: String,
    built: bool,
}

pub(super) async fn build(call: Call, arguments: BuildArguments) -> ToolResult<Built> {
    let spec = spec_of(&arguments)?;
    let source = Source::open(&call, &arguments.context_path)
        .await
        .map_err(|failure| failure.naming("contextPath"))?;
    let (sender, mut events) = mpsc::channel(QUEUED_BUILD_EVENTS);
    let mut told = Told { call: &call, output: String::new() };
    let work = call.engine().build_image(&call.who, spec, source.into_stream(), sender);
    let mut work = std::pin::pin!(work);
    let built: BuiltImage = loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => told.take(event).await,
            built = &mut work => break built.map_err(|error| told.failed(error))?,
            () = call.cancelled.cancelled() => {
                let error = Error::new(ErrorKind::Cancelled, "the build was given up");
                return Err(Failure::from(error)
                    .with_hint("Call image_build again to go on: layers that were made are kept."));
            }
        }
    };
    Ok(Answer::new(Built {
        manifest_digest: built.digest.to_string(),
        references: built.names.iter().map(ToString::to_string).collect(),
        steps: built.n_steps,
        cached: built.n_cached,
        output: told.output,
        built: true,
    })
    .warn_all(built.warnings))
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
        timeout: arguments.timeout_seconds.map(Duration::from_secs),
        ..BuildSpec::default()
    })
}

struct Told<'a> {
    call: &'a Call,
    output: String,
}

impl Told<'_> {
    async fn take(&mut self, event: BuildEvent) {
        match event {
            BuildEvent::Step { number, total, text, .. } => {
                let message = format!("[{number}/{total}] {text}");
                self.call.progress.tell(number as f64, Some(total as f64), message).await;
            }
            BuildEvent::Output { text, .. } => {
                self.output.push_str(&text);
                let too_many = self.output.len().saturating_sub(MAX_OUTPUT_BYTES);
                let cut = (too_many..=self.output.len()).find(|at| self.output.is_char_boundary(*at));
                self.output.drain(..cut.unwrap_or(0));
            }
            BuildEvent::Cached { .. } | BuildEvent::Layer { .. } | BuildEvent::Warning { .. } => {}
        }
    }

    /// With what the command said, which is nowhere else.
    fn failed(&self, error: Error) -> Failure {
        let mut failure = refused(error);
        if !self.output.is_empty() {
            failure.message = format!("{}\nIt printed:\n{}", failure.message, self.output);
        }
        failure
    }
}
