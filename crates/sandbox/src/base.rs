//! What a sandbox is made on: an image's layers and what the image says about how it is run.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::RootfsPlan;

/// What the engine found behind an image reference, a snapshot or a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    pub rootfs: RootfsPlan,
    /// Trees of snapshots over the root file system, the topmost first; see [`crate::SandboxPlan::above`].
    pub above: Vec<PathBuf>,
    /// Of the image's manifest; none for image `host`.
    pub image_digest: Option<String>,
    /// Digest of the snapshot it comes from.
    pub snapshot: Option<String>,
    pub config: BaseConfig,
    /// Where it is not quite what was asked: sentences for whoever did.
    pub warnings: Vec<String>,
}

impl Base {
    pub fn host() -> Self {
        Self {
            rootfs: RootfsPlan::Host,
            above: Vec::new(),
            image_digest: None,
            snapshot: None,
            config: BaseConfig::default(),
            warnings: Vec::new(),
        }
    }
}

/// Defaults that an image brings; a spec wins over them, they win over the daemon's. Empty where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BaseConfig {
    /// In order; a later one wins.
    pub env: Vec<(String, String)>,
    pub user: Option<String>,
    pub cwd: Option<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub exposed_ports: Vec<String>,
    /// As a name or a number: `SIGINT`.
    pub stop_signal: Option<String>,
    pub shell: Vec<String>,
    pub labels: std::collections::BTreeMap<String, String>,
}
