//! The events of builds.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PullEvent;

/// One line of a build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BuildEvent {
    /// An instruction begins.
    Step {
        number: usize,
        total: usize,
        /// The stage's name, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stage: Option<String>,
        /// In the Dockerfile.
        line: usize,
        text: String,
    },
    /// Its layer is cached from an earlier build.
    Cached {
        number: usize,
    },
    /// Output of a `RUN` command; `stream` is `stdout` or `stderr`.
    Output {
        stream: String,
        text: String,
    },
    /// Its layer is finished; `bytes` is the uncompressed size.
    Layer {
        number: usize,
        bytes: u64,
    },
    /// An image of `FROM` or `--from` is asked for at its registry.
    Pull {
        reference: String,
    },
    /// The progress so far.
    Pulling {
        event: PullEvent,
    },
    Warning {
        message: String,
    },
    /// The image is there.
    Done {
        digest: String,
        references: Vec<String>,
        steps: usize,
        cached: usize,
        warnings: Vec<String>,
    },
}

impl From<engine::BuildEvent> for BuildEvent {
    fn from(event: engine::BuildEvent) -> Self {
        use engine::BuildEvent as E;
        match event {
            E::Step { number, total, stage, line, text } => Self::Step { number, total, stage, line, text },
            E::Cached { number } => Self::Cached { number },
            E::Output { stream, text } => Self::Output { stream: stream.as_str().to_owned(), text },
            E::Layer { number, bytes } => Self::Layer { number, bytes },
            E::Pull { reference } => Self::Pull { reference },
            E::Warning { message } => Self::Warning { message },
        }
    }
}

impl From<engine::BuiltImage> for BuildEvent {
    fn from(built: engine::BuiltImage) -> Self {
        Self::Done {
            digest: built.digest.to_string(),
            references: built.names.iter().map(ToString::to_string).collect(),
            steps: built.n_steps,
            cached: built.n_cached,
            warnings: built.warnings,
        }
    }
}
