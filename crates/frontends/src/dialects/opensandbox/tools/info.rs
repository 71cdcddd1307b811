//! A sandbox in the words of these tools.

use std::collections::BTreeMap;

use engine::SandboxView;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    dialects::opensandbox::view::{Description, PLATFORM, Platform},
    mcp::Nullable,
};

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
    platform: Platform,
    // Always null: listed because their clients' models have it.
    allocation: (),
    metadata: BTreeMap<String, String>,
    extensions: Nullable<BTreeMap<String, String>>,
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
        let told = Description::of(view);
        Self {
            id: told.id,
            status: Status {
                state: told.state,
                reason: told.reason,
                message: told.message,
                last_transition_at: told.changed_at.to_string(),
            },
            entrypoint: told.entrypoint,
            expires_at: Nullable(told.expires_at.map(|at| at.to_string())),
            created_at: told.created_at.to_string(),
            image: Image { image: told.image, auth: () },
            snapshot_id: Nullable(told.snapshot),
            platform: PLATFORM,
            allocation: (),
            metadata: told.metadata,
            extensions: Nullable(told.extensions),
        }
    }
}
