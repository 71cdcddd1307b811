//! A sandbox in their words.

use std::collections::BTreeMap;

use engine::SandboxView;
use sandbox::SandboxState;
use schemars::JsonSchema;
use serde::Serialize;

use crate::mcp::Nullable;

/// What runs where nothing else is asked for. Here nothing needs to: a sandbox lives without a process.
pub(super) const DEFAULT_ENTRYPOINT: [&str; 3] = ["tail", "-f", "/dev/null"];

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SandboxInfo {
    id: String,
    status: Status,
    entrypoint: Vec<String>,
    /// Null: never
    expires_at: Nullable<String>,
    created_at: String,
    image: Image,
    snapshot_id: Nullable<String>,
    // Always null: listed because their clients' models have them.
    platform: (),
    allocation: (),
    metadata: BTreeMap<String, String>,
    extensions: (),
}

#[derive(Debug, Serialize, JsonSchema)]
struct Status {
    state: &'static str,
    reason: &'static str,
    message: String,
    last_transition_at: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Image {
    image: String,
    auth: (),
}

impl SandboxInfo {
    pub(super) fn of(view: &SandboxView) -> Self {
        let (state, reason) = words_of(view.state);
        let since = view.stopped_at.or(view.started_at).unwrap_or(view.created_at);
        let message = view.reason.clone().unwrap_or_else(|| format!("The sandbox is {}.", view.state));
        Self {
            id: view.id.to_string(),
            status: Status { state, reason, message, last_transition_at: since.to_string() },
            entrypoint: entrypoint_of(view),
            expires_at: Nullable(view.expires_at.map(|at| at.to_string())),
            created_at: view.created_at.to_string(),
            image: Image { image: view.spec.image.to_string(), auth: () },
            snapshot_id: Nullable(view.plan.snapshot.clone()),
            platform: (),
            allocation: (),
            metadata: view.spec.labels.clone(),
            extensions: (),
        }
    }
}

/// Their name of a state, and the reason that goes with it.
pub(super) fn words_of(state: SandboxState) -> (&'static str, &'static str) {
    match state {
        SandboxState::Creating => ("Pending", "SANDBOX_STARTING"),
        SandboxState::Running => ("Running", "SANDBOX_RUNNING"),
        SandboxState::Paused => ("Paused", "SANDBOX_PAUSED"),
        SandboxState::Stopping => ("Stopping", "SANDBOX_STOPPING"),
        SandboxState::Stopped => ("Terminated", "SANDBOX_STOPPED"),
        SandboxState::Failed => ("Failed", "SANDBOX_FAILED"),
    }
}

fn entrypoint_of(view: &SandboxView) -> Vec<String> {
    match &view.spec.init {
        Some(init) => std::iter::once(&init.path).chain(&init.args).cloned().collect(),
        None => DEFAULT_ENTRYPOINT.map(str::to_owned).to_vec(),
    }
}
