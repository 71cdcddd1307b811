//! Trees: changes of sandboxes, as snapshots keep them. Types only; back ends do the work.

use serde::{Deserialize, Serialize};

use crate::SnapshotId;

/// Facts about a tree, found by reading all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeFacts {
    /// `sha256:` and the digest of everything in it: names, kinds, owners, modes, times, attributes, links and
    /// contents. The same tree has the same digest on every host and in every mode.
    pub digest: String,
    /// Sum of the lengths of its files.
    pub bytes: u64,
    pub n_entries: u64,
}

/// The cost of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeCopy {
    pub bytes: u64,
    pub n_entries: u64,
    /// The part of `bytes` that the file system shares between both copies.
    pub shared_bytes: u64,
}

/// The layers to compare, and how much of the changes to report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffQuery {
    /// The snapshots to compare with, the topmost first, above the image that both have; empty means the image itself.
    pub against: Vec<SnapshotId>,
    /// Only what is beneath this path; `/` is everything.
    pub under: String,
    /// Whether changes of text files are reported as a patch.
    pub patch: bool,
    pub max_changes: usize,
    pub max_patch_bytes: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffReport {
    /// By path.
    pub changes: Vec<Change>,
    /// Some changes are missing: there were more than requested, or the time was up.
    pub changes_cut: bool,
    /// As `diff -u` writes it, for `patch -p1`; text files only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    pub patch_cut: bool,
    /// Changed files and links that the patch leaves out: not text, or too long.
    #[serde(default)]
    pub patch_left_out: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// As inside. Bytes that are not UTF-8 appear as replacement characters.
    pub path: String,
    pub kind: ChangeKind,
    pub file: crate::FileKind,
    /// Length now; 0 if it was removed.
    pub size: u64,
    /// The content is the same; only owner, mode or attributes changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_metadata: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    Added,
    Modified,
    Removed,
}
