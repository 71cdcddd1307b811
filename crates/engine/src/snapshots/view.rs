//! Requests for snapshots, and the views that callers get.

use std::{collections::BTreeMap, path::PathBuf};

use jiff::Timestamp;
use sandbox::{ImageRef, KeyId, Limits, Namespace, SandboxName, SnapshotId, SnapshotName, TreeFacts};
use serde::{Deserialize, Serialize};

use super::registry::Snapshot;
use crate::SandboxRef;

/// A request for a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSpec {
    /// Invented from the sandbox's name when absent.
    pub name: Option<SnapshotName>,
    pub from: SandboxRef,
    pub labels: BTreeMap<String, String>,
    /// Takes the name from the snapshot that has it; that one is removed, or stays unnamed while it is in use.
    pub replace: bool,
}

impl SnapshotSpec {
    pub fn new(from: SandboxRef) -> Self {
        Self { name: None, from, labels: BTreeMap::new(), replace: false }
    }
}

/// A snapshot as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotView {
    pub id: SnapshotId,
    /// Absent if it is kept only for forks, and removed with the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<SnapshotName>,
    /// The name it was saved under, if it was just loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_as: Option<SnapshotName>,
    pub namespace: Namespace,
    /// The manifest's digest; the manifest names everything else by digest.
    pub digest: String,
    /// Digest of the snapshot beneath.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    pub image: ImageRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
    /// Its own files, without those beneath.
    pub tree: TreeFacts,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub source_sandbox: SandboxName,
    #[serde(default)]
    pub source_limits: Limits,
    /// When it was taken, here or elsewhere.
    pub created_at: Timestamp,
    /// How long its source stood still for it; absent if that did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<f64>,
    /// The path of its files on the daemon's host.
    pub path: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<KeyId>,
    /// Sandboxes and snapshots made on it, as `sandbox web`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
}

impl SnapshotView {
    pub(crate) fn new(snapshot: &Snapshot, path: PathBuf, used_by: Vec<String>) -> Self {
        let (record, manifest) = (&snapshot.record, &snapshot.manifest);
        Self {
            id: record.id.clone(),
            name: record.name.clone(),
            saved_as: None,
            namespace: record.namespace.clone(),
            digest: record.digest.clone(),
            parent: manifest.parent.clone(),
            image: manifest.image.clone(),
            image_digest: manifest.image_digest.clone(),
            tree: manifest.tree.clone(),
            labels: manifest.labels.clone(),
            source_sandbox: manifest.source.sandbox.clone(),
            source_limits: manifest.source.limits.clone(),
            created_at: manifest.created_at,
            held_ms: record.held_micros.map(|micros| micros as f64 / 1000.0),
            path,
            owner: record.owner.clone(),
            used_by,
        }
    }
}

/// The result of reading a whole snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotCheck {
    /// The manifest's digest.
    pub digest: String,
    pub path: PathBuf,
    /// As it was recorded and found.
    pub tree: TreeFacts,
    /// Digests of the snapshots beneath that were read too, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
}

/// The result of removing a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SnapshotFate {
    Removed,
    /// It lost its name, and is removed with its last user.
    Unnamed,
}
