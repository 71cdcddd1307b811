//! Trees of simulated sandboxes: one text with all that a file system in memory holds. A tree has everything, not only what
//! changed, so the topmost one is all that is looked at.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
};

use bytes::Bytes;
use sandbox::{
    BackendError, Change, ChangeKind, DiffQuery, DiffReport, FileKind, SandboxPlan, TreeCopy, TreeFacts,
};
use serde::{Deserialize, Serialize};

use super::files::{Content, Files, MAX_FILES_BYTES, Node};

/// Base file systems in JSON, where a byte may take four.
const MAX_TREE_BYTES: u64 = 5 * MAX_FILES_BYTES;

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    content: KeptContent,
    mode: u32,
    uid: u32,
    gid: u32,
    modified_at_ms: i64,
}

#[derive(Debug, Serialize, Deserialize)]
enum KeptContent {
    File(Vec<u8>),
    Directory,
    Symlink(String),
}

type Nodes = BTreeMap<String, Node>;

/// A tree as it is kept, and what it took.
pub(super) fn write(nodes: &Nodes) -> Result<(Vec<u8>, TreeCopy), BackendError> {
    let kept: BTreeMap<&String, Kept> = nodes.iter().map(|(path, node)| (path, kept(node))).collect();
    let text = serde_json::to_vec(&kept).map_err(|source| BackendError::failed("no tree", source))?;
    Ok((text, TreeCopy { bytes: bytes_of(nodes), n_entries: nodes.len() as u64, shared_bytes: 0 }))
}

pub(super) fn facts(tree: &[u8]) -> Result<TreeFacts, BackendError> {
    let nodes = parse(tree)?;
    let digest = images::Digest::of(tree).to_string();
    Ok(TreeFacts { digest, bytes: bytes_of(&nodes), n_entries: nodes.len() as u64 })
}

pub(super) fn pack(tree: &[u8], archive: OwnedFd) -> Result<(), BackendError> {
    let packed = File::from(archive).write_all(tree);
    packed.map_err(|source| BackendError::failed("could not pack a tree", source))
}

pub(super) fn unpack(archive: OwnedFd) -> Result<(Vec<u8>, TreeFacts), BackendError> {
    let mut text = Vec::new();
    let read = File::from(archive).take(MAX_TREE_BYTES).read_to_end(&mut text);
    read.map_err(|source| BackendError::failed("could not unpack a tree", source))?;
    let facts = facts(&text)?;
    Ok((text, facts))
}

/// What differs from the tree `before`, or from a sandbox that is new.
pub(super) fn diff(
    plan: &SandboxPlan,
    before: Option<Vec<u8>>,
    now: &Nodes,
    query: &DiffQuery,
) -> Result<DiffReport, BackendError> {
    let before = match before {
        Some(tree) => parse(&tree)?,
        None => Files::new(&plan.hostname, plan.limits.disk.bytes()).nodes,
    };
    let mut changes = Vec::new();
    let paths: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let beneath = |path: &str| query.under == "/" || path.starts_with(query.under.trim_end_matches('/'));
    for path in paths.into_iter().filter(|path| beneath(path)) {
        let (kind, node) = match (before.get(path), now.get(path)) {
            (None, Some(node)) => (ChangeKind::Added, node),
            (Some(node), None) => (ChangeKind::Removed, node),
            (Some(old), Some(node)) if kept_text(old) != kept_text(node) => (ChangeKind::Modified, node),
            _ => continue,
        };
        let (file, len) = match &node.content {
            Content::File(bytes) => (FileKind::File, bytes.len() as u64),
            Content::Directory => (FileKind::Directory, 0),
            Content::Symlink(_) => (FileKind::Symlink, 0),
        };
        let size = if kind == ChangeKind::Removed { 0 } else { len };
        changes.push(Change { path: path.clone(), kind, file, size, only_metadata: false });
    }
    let changes_cut = changes.len() > query.max_changes;
    changes.truncate(query.max_changes);
    let patch = query.patch.then(String::new);
    Ok(DiffReport { changes, changes_cut, patch, patch_cut: false, patch_left_out: 0 })
}

/// Times aside: a new sandbox is compared with one that is newer still.
fn kept_text(node: &Node) -> Option<String> {
    serde_json::to_string(&Kept { modified_at_ms: 0, ..kept(node) }).ok()
}

fn kept(node: &Node) -> Kept {
    let content = match &node.content {
        Content::File(bytes) => KeptContent::File(bytes.to_vec()),
        Content::Directory => KeptContent::Directory,
        Content::Symlink(target) => KeptContent::Symlink(target.clone()),
    };
    Kept { content, mode: node.mode, uid: node.uid, gid: node.gid, modified_at_ms: node.modified_at_ms }
}

pub(super) fn parse(text: &[u8]) -> Result<Nodes, BackendError> {
    let kept: BTreeMap<String, Kept> = serde_json::from_slice(text)
        .map_err(|source| BackendError::failed("could not read a tree", source))?;
    let node = |kept: Kept| {
        let content = match kept.content {
            KeptContent::File(bytes) => Content::File(Bytes::from(bytes)),
            KeptContent::Directory => Content::Directory,
            KeptContent::Symlink(target) => Content::Symlink(target),
        };
        let Kept { mode, uid, gid, modified_at_ms, .. } = kept;
        Node { content, mode, uid, gid, modified_at_ms }
    };
    Ok(kept.into_iter().map(|(path, kept)| (path, node(kept))).collect())
}

fn bytes_of(nodes: &Nodes) -> u64 {
    let len = |node: &Node| match &node.content {
        Content::File(bytes) => bytes.len() as u64,
        _ => 0,
    };
    nodes.values().map(len).sum()
}

/// Reading and writing of pipes waits, so it has a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(BackendError::failed("work on a tree ended", error)))
}
