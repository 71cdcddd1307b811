//! A sandbox as OpenSandbox's clients see it, whichever interface they use.

use std::collections::BTreeMap;

use engine::{Engine, Principal, SandboxFilter, SandboxView};
use jiff::Timestamp;
use sandbox::{Error, ErrorKind, Result, SandboxState};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use super::handle::shown;

/// Labels that begin so are ours, and no part of a client's metadata.
const RESERVED: &str = "opensandbox.io/";
/// The image that was asked for, where another one stands for it.
pub(super) const IMAGE: &str = "opensandbox.io/image";
/// The program that was asked for and need not run, as a JSON list.
pub(super) const ENTRYPOINT: &str = "opensandbox.io/entrypoint";
/// The snapshot that it was made from.
pub(super) const SNAPSHOT: &str = "opensandbox.io/snapshot-id";
/// Opaque to us, as a JSON object of texts.
pub(super) const EXTENSIONS: &str = "opensandbox.io/extensions";
/// The entrypoint that OpenSandbox runs by default. It does nothing, so it is not run here.
pub(super) const DEFAULT_ENTRYPOINT: [&str; 3] = ["tail", "-f", "/dev/null"];

/// Refuses metadata with the keys of our own labels.
pub(super) fn check_keys<'a>(mut keys: impl Iterator<Item = &'a String>) -> Result<()> {
    match keys.find(|key| key.starts_with(RESERVED)) {
        None => Ok(()),
        Some(key) => {
            Err(Error::invalid(format!("the metadata key {key:?} is reserved")).with_hint("Use another key."))
        }
    }
}

/// OpenSandbox's word for a state.
pub(super) fn state(state: SandboxState) -> &'static str {
    match state {
        SandboxState::Creating => "Pending",
        SandboxState::Running => "Running",
        SandboxState::Paused => "Paused",
        SandboxState::Stopping => "Stopping",
        SandboxState::Stopped => "Terminated",
        SandboxState::Failed => "Failed",
    }
}

/// The state that a client calls so, in any case.
pub(super) fn state_named(word: &str) -> Option<SandboxState> {
    SandboxState::ALL.into_iter().find(|known| state(*known).eq_ignore_ascii_case(word))
}

fn reason(state: SandboxState) -> &'static str {
    match state {
        SandboxState::Creating => "CONTAINER_STARTING",
        SandboxState::Running => "CONTAINER_RUNNING",
        SandboxState::Paused => "CONTAINER_PAUSED",
        SandboxState::Stopping | SandboxState::Stopped => "CONTAINER_EXITED",
        SandboxState::Failed => "CONTAINER_EXITED_ERROR",
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Platform {
    os: &'static str,
    arch: &'static str,
}

/// This machine's, by the names that images have for it.
pub(super) const PLATFORM: Platform = Platform {
    os: "linux",
    arch: if cfg!(target_arch = "x86_64") {
        "amd64"
    } else if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        std::env::consts::ARCH
    },
};

/// Refuses what this machine is not.
pub(super) fn check_platform(os: &str, arch: &str) -> Result<()> {
    if (os, arch) == (PLATFORM.os, PLATFORM.arch) {
        return Ok(());
    }
    let message = format!("platform {}/{} cannot be met", shown(os), shown(arch));
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint(format!("Sandboxes here are {}/{}.", PLATFORM.os, PLATFORM.arch)))
}

/// Newest first.
pub(super) async fn list(
    engine: &Engine,
    who: &Principal,
    filter: &SandboxFilter,
) -> Result<Vec<SandboxView>> {
    let mut found = engine.sandboxes(who, filter).await?;
    found.sort_by(|one, other| (other.created_at, &other.id).cmp(&(one.created_at, &one.id)));
    Ok(found)
}

/// A sandbox as clients are told of it; each interface has its own names for the fields.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) id: String,
    pub(super) state: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) changed_at: Timestamp,
    pub(super) image: String,
    pub(super) snapshot: Option<String>,
    pub(super) entrypoint: Vec<String>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) extensions: Option<BTreeMap<String, String>>,
    pub(super) created_at: Timestamp,
    pub(super) expires_at: Option<Timestamp>,
}

impl Description {
    pub(super) fn of(view: &SandboxView) -> Self {
        let labels = &view.spec.labels;
        let changed_at = match view.state {
            SandboxState::Stopping | SandboxState::Stopped | SandboxState::Failed => view.stopped_at,
            SandboxState::Creating | SandboxState::Running | SandboxState::Paused => view.started_at,
        };
        let message: Vec<_> = view.reason.iter().chain(&view.warnings).map(String::as_str).collect();
        let entrypoint = match &view.spec.init {
            Some(init) => init.exec().command,
            None => {
                stored(view, ENTRYPOINT).unwrap_or_else(|| DEFAULT_ENTRYPOINT.map(str::to_owned).to_vec())
            }
        };
        let metadata = labels.iter().filter(|(key, _)| !key.starts_with(RESERVED));
        Self {
            id: view.id.to_string(),
            state: state(view.state),
            reason: reason(view.state),
            message: message.join(" "),
            changed_at: changed_at.unwrap_or(view.created_at),
            image: labels.get(IMAGE).cloned().unwrap_or_else(|| view.plan.image.to_string()),
            snapshot: labels.get(SNAPSHOT).or(view.plan.snapshot.as_ref()).cloned(),
            entrypoint,
            metadata: metadata.map(|(key, value)| (key.clone(), value.clone())).collect(),
            extensions: stored(view, EXTENSIONS),
            created_at: view.created_at,
            expires_at: view.expires_at,
        }
    }
}

/// Reads a value stored in one of our labels. Other interfaces can change labels: nonsense counts as absent.
fn stored<T: DeserializeOwned>(view: &SandboxView, label: &str) -> Option<T> {
    serde_json::from_str(view.spec.labels.get(label)?).ok()
}
