//! Trees: what sandboxes changed, as snapshots keep it. Words only; back ends do the work.

use serde::{Deserialize, Serialize};

use crate::SnapshotId;

/// What a tree is, found by reading all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeFacts {
    /// `sha256:` and the digest of everything in it: names, kinds, owners, modes, times, attributes, links and contents. The
    /// same tree has the same digest on every host and in every mode.
    pub digest: String,
    /// Sum of the lengths of its files.
    pub bytes: u64,
    pub n_entries: u64,
}

/// What a copy took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeCopy {
    pub bytes: u64,
    pub n_entries: u64,
    /// Of `bytes`, what the file system shares between both instead of having it twice.
    pub shared_bytes: u64,
}

/// What to compare, and how much of it to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffQuery {
    /// Snapshots, the topmost first, that make what it is compared with, above the image that both have: none is the image itself.
    pub against: Vec<SnapshotId>,
    /// Only what is beneath this path; `/` is everything.
    pub under: String,
    /// Whether changes of text files are told as a patch.
    pub patch: bool,
    pub max_changes: usize,
    pub max_patch_bytes: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffReport {
    /// By path.
    pub changes: Vec<Change>,
    /// There are more than were asked for, or there was no time to look for more.
    pub changes_cut: bool,
    /// As `diff -u` writes it, for `patch -p1`; text files only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    pub patch_cut: bool,
    /// Changed files and links that a patch cannot tell: no text, or too long.
    #[serde(default)]
    pub patch_left_out: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// As inside. What is no UTF-8 is shown with replacement characters.
    pub path: String,
    pub kind: ChangeKind,
    pub file: crate::FileKind,
    /// Length now; 0 for what is gone.
    pub size: u64,
    /// Why, where the content is the same: owner, mode, attributes.
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
