//! Snapshots, forks and changes on the wire.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbox::{
    ChangeKind, FileKind, ImageRef, KeyId, Lifetime, Limits, Namespace, SandboxName, SnapshotId, SnapshotName,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Sandbox;

/// What a sandbox had changed at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    pub id: SnapshotId,
    /// Absent where it is kept for forks only, and goes with the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<SnapshotName>,
    pub namespace: Namespace,
    /// Of its manifest, which names everything else by digest.
    pub digest: String,
    /// Digest of the snapshot beneath: this one has only what changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    pub image: ImageRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
    pub tree_digest: String,
    /// Lengths of its own files.
    pub size_bytes: u64,
    pub entries: u64,
    pub labels: BTreeMap<String, String>,
    pub source_sandbox: SandboxName,
    /// When it was taken, here or elsewhere.
    pub created_at: Timestamp,
    /// How long its source stood still for it; absent where that did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<KeyId>,
    /// Sandboxes and snapshots that are made on it, as `sandbox web`.
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
    pub namespace: Option<Namespace>,
    /// Made up from the sandbox's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<SnapshotName>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Takes the name from a snapshot that has it; that one goes, or stays without a name while somebody uses it.
    #[serde(default)]
    pub replace: bool,
}

query!(RemoveSnapshotQuery {
    /// Also while it is used: it loses its name now, and goes with its last user.
    #[serde(default)]
    pub force: bool,
});

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRemoved {
    /// False: it has no name now, and goes with the last who uses it.
    pub removed: bool,
}

query!(VerifySnapshotQuery {
    /// All snapshots beneath it, too.
    #[serde(default)]
    pub parents: bool,
});

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotVerified {
    /// Of the manifest.
    pub digest: String,
    pub tree_digest: String,
    /// Digests of the snapshots beneath that were read too, the nearest first.
    pub parents: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SnapshotsIndexed {
    /// Snapshots that are known now.
    pub indexed: usize,
    /// Those of them that had not been.
    pub found: usize,
}

query!(SaveSnapshotQuery {
    /// The snapshots beneath it; true when absent. Without them it loads only where they are.
    #[serde(default = "yes")]
    pub parents: bool,
    /// The image beneath it.
    #[serde(default)]
    pub image: bool,
    /// Not compressed.
    #[serde(default)]
    pub plain: bool,
});

fn yes() -> bool {
    true
}

query!(LoadSnapshotQuery {
    /// The name it was saved under when absent.
    pub name: Option<SnapshotName>,
});

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoreRequest {
    /// Made up when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<SandboxName>,
    /// In place of what the snapshot says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Beside what the snapshot says; these win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub lifetime: Lifetime,
    /// In place of those that the snapshot's source had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForkSandboxRequest {
    /// One fork for each; empty: as many as `count` says, with made-up names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<SandboxName>,
    /// One when absent.
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
    pub limits: Option<Limits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ForkList {
    pub forks: Vec<Sandbox>,
}

query!(DiffQuery {
    /// A snapshot on the same image: its own, another sandbox's, or one it was made from; its image when absent.
    pub since: Option<String>,
    /// Only what is beneath.
    pub path: Option<String>,
    /// Changes of text files as a patch, too.
    #[serde(default)]
    pub patch: bool,
    /// Most changes to list.
    pub limit: Option<usize>,
    /// Longest patch.
    pub max_bytes: Option<usize>,
});

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
    pub change: ChangeKind,
    pub kind: FileKind,
    /// Length now; 0 for what is gone.
    pub size: u64,
    /// Owner, mode or attributes only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_metadata: bool,
}
