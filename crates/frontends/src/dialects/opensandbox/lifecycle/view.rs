//! A sandbox as OpenSandbox's clients see it.

use std::collections::BTreeMap;

use engine::SandboxView;
use sandbox::{Error, Result, SandboxState};
use serde_json::{Map, Value, json};

/// Labels that begin so are ours, and no part of a client's metadata.
pub(super) const RESERVED: &str = "opensandbox.io/";
/// The image that was asked for, where another one stands for it.
pub(super) const IMAGE: &str = "opensandbox.io/image";
/// The program that was asked for and need not run, as a JSON list.
pub(super) const ENTRYPOINT: &str = "opensandbox.io/entrypoint";
/// The snapshot that it was made from.
pub(super) const SNAPSHOT: &str = "opensandbox.io/snapshot-id";
/// Opaque to us, as a JSON object.
pub(super) const EXTENSIONS: &str = "opensandbox.io/extensions";
/// What OpenSandbox runs where nothing else is asked for. It does nothing, so it is not run here.
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

fn reason(state: SandboxState) -> &'static str {
    match state {
        SandboxState::Creating => "CONTAINER_STARTING",
        SandboxState::Running => "CONTAINER_RUNNING",
        SandboxState::Paused => "CONTAINER_PAUSED",
        SandboxState::Stopping | SandboxState::Stopped => "CONTAINER_EXITED",
        SandboxState::Failed => "CONTAINER_EXITED_ERROR",
    }
}

/// What a client called metadata.
pub(super) fn metadata(view: &SandboxView) -> BTreeMap<&str, &str> {
    let labels = view.spec.labels.iter().filter(|(key, _)| !key.starts_with(RESERVED));
    labels.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

pub(super) fn of(view: &SandboxView) -> Value {
    let label = |key: &str| view.spec.labels.get(key);
    let parsed = |key: &str| label(key).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let changed_at = match view.state {
        SandboxState::Stopping | SandboxState::Stopped | SandboxState::Failed => view.stopped_at,
        SandboxState::Creating | SandboxState::Running | SandboxState::Paused => view.started_at,
    };
    let message = view.reason.clone().into_iter().chain(view.warnings.iter().cloned()).collect::<Vec<_>>();
    let mut shown = Map::new();
    shown.insert("id".to_owned(), json!(view.id));
    shown.insert(
        "status".to_owned(),
        json!({
            "state": state(view.state),
            "reason": reason(view.state),
            "message": message.join(" "),
            "lastTransitionAt": changed_at.unwrap_or(view.created_at),
        }),
    );
    match label(SNAPSHOT) {
        Some(snapshot) => shown.insert("snapshotId".to_owned(), json!(snapshot)),
        None => {
            let image = label(IMAGE).map_or(view.plan.image.as_str(), String::as_str);
            shown.insert("image".to_owned(), json!({ "uri": image }))
        }
    };
    let entrypoint = match &view.spec.init {
        Some(init) => json!(init.exec().command),
        None => parsed(ENTRYPOINT).filter(Value::is_array).unwrap_or_else(|| json!(DEFAULT_ENTRYPOINT)),
    };
    shown.insert("entrypoint".to_owned(), entrypoint);
    shown.insert("platform".to_owned(), json!({ "os": "linux", "arch": super::resources::architecture() }));
    shown.insert("metadata".to_owned(), json!(metadata(view)));
    if let Some(extensions) = parsed(EXTENSIONS).filter(Value::is_object) {
        shown.insert("extensions".to_owned(), extensions);
    }
    shown.insert("createdAt".to_owned(), json!(view.created_at));
    if let Some(at) = view.expires_at {
        shown.insert("expiresAt".to_owned(), json!(at));
    }
    Value::Object(shown)
}
