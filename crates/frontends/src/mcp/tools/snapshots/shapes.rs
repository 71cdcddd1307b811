//! The shapes in which callers read snapshots.

use std::collections::BTreeMap;

use engine::{SnapshotCheck, SnapshotView};
use schemars::JsonSchema;
use serde::Serialize;

use crate::mcp::Nullable;

/// The scope of every snapshot: there is no memory in one.
const SCOPE: &str = "disk";
/// A directory with what an overlay changed.
const FORMAT: &str = "tree";
const FILE_SYSTEM: &str = "overlay";

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotHandle {
    /// The name that other tools take.
    reference: String,
    /// name or digest
    reference_kind: &'static str,
    path: String,
    digest: String,
    name: Nullable<String>,
    parent_digest: Nullable<String>,
    scope: &'static str,
    image_ref: String,
    format: &'static str,
    size_bytes: Nullable<String>,
    created_at: String,
}

fn reference(view: &SnapshotView) -> (String, &'static str) {
    match &view.name {
        Some(name) => (name.to_string(), "name"),
        None => (view.digest.clone(), "digest"),
    }
}

impl From<&SnapshotView> for SnapshotHandle {
    fn from(view: &SnapshotView) -> Self {
        let (reference, reference_kind) = reference(view);
        Self {
            reference,
            reference_kind,
            path: view.path.display().to_string(),
            digest: view.digest.clone(),
            name: Nullable(view.name.as_ref().map(ToString::to_string)),
            parent_digest: Nullable(view.parent.clone()),
            scope: SCOPE,
            image_ref: view.image.to_string(),
            format: FORMAT,
            size_bytes: Nullable(Some(view.tree.bytes.to_string())),
            created_at: view.created_at.to_string(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Snapshot {
    reference: String,
    reference_kind: &'static str,
    path: String,
    digest: String,
    size_bytes: String,
    image_ref: String,
    image_manifest_digest: Nullable<String>,
    scope: &'static str,
    format: &'static str,
    fstype: &'static str,
    /// Digest of the snapshot beneath.
    parent: Nullable<String>,
    created_at: String,
    labels: BTreeMap<String, String>,
    source_sandbox: String,
    /// Time that the sandbox stood still, if it ran.
    held_ms: Nullable<f64>,
    used_by: Vec<String>,
}

impl From<&SnapshotView> for Snapshot {
    fn from(view: &SnapshotView) -> Self {
        let (reference, reference_kind) = reference(view);
        Self {
            reference,
            reference_kind,
            path: view.path.display().to_string(),
            digest: view.digest.clone(),
            size_bytes: view.tree.bytes.to_string(),
            image_ref: view.image.to_string(),
            image_manifest_digest: Nullable(view.image_digest.clone()),
            scope: SCOPE,
            format: FORMAT,
            fstype: FILE_SYSTEM,
            parent: Nullable(view.parent.clone()),
            created_at: view.created_at.to_string(),
            labels: view.labels.clone(),
            source_sandbox: view.source_sandbox.to_string(),
            held_ms: Nullable(view.held_ms),
            used_by: view.used_by.clone(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct VerifyReport {
    /// Of the manifest.
    digest: String,
    path: String,
    upper: Upper,
}

/// Of the files.
#[derive(Debug, Serialize, JsonSchema)]
struct Upper {
    kind: &'static str,
    algorithm: &'static str,
    digest: String,
}

impl From<&SnapshotCheck> for VerifyReport {
    fn from(check: &SnapshotCheck) -> Self {
        let upper = Upper { kind: "verified", algorithm: "sha256", digest: check.tree.digest.clone() };
        Self { digest: check.digest.clone(), path: check.path.display().to_string(), upper }
    }
}
