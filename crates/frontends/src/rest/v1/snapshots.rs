//! Snapshots, forks and changes on the wire.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbox::{
    ChangeKind, FileKind, ImageRef, KeyId, Lifetime, Limits, Namespace, SandboxName, SnapshotId, SnapshotName,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Sandbox, schema};

/// The files that a sandbox had changed at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    #[schema(value_type = String, example = "snp-0123456789abc")]
    pub id: SnapshotId,
    /// Absent if it belongs only to forks; it is then deleted with the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub name: Option<SnapshotName>,
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Digest of its manifest, which names everything else by digest.
    pub digest: String,
    /// Digest of the parent snapshot: this one has only the changes since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    #[schema(value_type = String, example = "host")]
    pub image: ImageRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
    pub tree_digest: String,
    /// Lengths of its own files.
    pub size_bytes: u64,
    pub entries: u64,
    pub labels: BTreeMap<String, String>,
    #[schema(value_type = String)]
    pub source_sandbox: SandboxName,
    /// When it was taken, here or elsewhere.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// How long its source was paused; absent if it was not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub owner: Option<KeyId>,
    /// Sandboxes and snapshots that are based on it, such as `sandbox web`.
    pub used_by: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotList {
    /// The oldest first.
    pub snapshots: Vec<Snapshot>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotRequest {
    /// Id or name of the sandbox, running or stopped.
    pub sandbox: String,
    /// In which namespace the sandbox's name is looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Generated from the sandbox's name by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub name: Option<SnapshotName>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Takes the name over from an existing snapshot, which is deleted, or kept without a name while it is in use.
    #[serde(default)]
    pub replace: bool,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct RemoveSnapshotQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Remove it even if it is in use: it loses its name now, and is deleted with its last user.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRemoved {
    /// False if it has lost its name, and will be deleted with its last user.
    pub removed: bool,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct VerifySnapshotQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Also verify all its parents.
    #[serde(default)]
    pub parents: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotVerified {
    /// Of the manifest.
    pub digest: String,
    pub tree_digest: String,
    /// Digests of the parents that were verified too, the nearest first.
    pub parents: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SnapshotsIndexed {
    /// Snapshots that are known now.
    pub indexed: usize,
    /// Those of them that had not been.
    pub found: usize,
}

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct SaveSnapshotQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Include its parents; true by default. Without them it loads only where they exist.
    #[serde(default = "yes")]
    pub parents: bool,
    /// Include its image.
    #[serde(default)]
    pub image: bool,
    /// Not compressed.
    #[serde(default)]
    pub plain: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LoadSnapshotQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Default: the name it was saved under.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 63)]
    pub name: Option<SnapshotName>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoreRequest {
    /// Generated by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub name: Option<SandboxName>,
    /// Overrides the snapshot's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// In addition to the snapshot's; these win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    #[schema(value_type = schema::Lifetime)]
    pub lifetime: Lifetime,
    /// In place of those that the snapshot's source had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Limits>)]
    pub limits: Option<Limits>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForkSandboxRequest {
    /// One fork for each name; if empty, `count` forks with generated names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub names: Vec<SandboxName>,
    /// Default: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// `count` forks called `<prefix>-1`, `<prefix>-2` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_prefix: Option<String>,
    /// Beside the source's; these win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// In place of the source's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Limits>)]
    pub limits: Option<Limits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Lifetime>)]
    pub lifetime: Option<Lifetime>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ForkList {
    pub forks: Vec<Sandbox>,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiffQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// A snapshot of the same image: its own, another sandbox's, or one it was created from. Default: its image.
    pub since: Option<String>,
    /// Only changes below this path.
    pub path: Option<String>,
    /// Changes of text files as a patch, too.
    #[serde(default)]
    pub patch: bool,
    /// Most changes to list.
    pub limit: Option<usize>,
    /// Longest patch.
    pub max_bytes: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    /// By path.
    pub changes: Vec<FileChange>,
    /// There are more, or there was no time to look for them: a path narrows the question.
    pub changes_cut: bool,
    /// As `diff -u` writes it, for `patch -p1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    pub patch_cut: bool,
    /// Changed files and links that a patch cannot tell: no text, or too long.
    #[serde(default)]
    pub patch_left_out: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
// Files that an exec changed have a schema of that name already.
#[schema(as = DiffChange)]
pub struct FileChange {
    pub path: String,
    /// `added`, `modified` or `removed`.
    #[schema(value_type = String, example = "added")]
    pub change: ChangeKind,
    #[schema(value_type = String, example = "file")]
    pub kind: FileKind,
    /// Current length; 0 if it was removed.
    pub size: u64,
    /// Owner, mode or attributes only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_metadata: bool,
}
