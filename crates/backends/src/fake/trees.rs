//! Trees of simulated sandboxes: one file with all that a file system in memory holds. A tree has everything, not only what
//! changed, so the topmost one is all that is looked at.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use sandbox::{
    BackendError, Change, ChangeKind, DiffQuery, DiffReport, FileKind, SandboxPlan, TreeCopy, TreeFacts,
};
use serde::{Deserialize, Serialize};

use super::files::{Content, Files, MAX_FILES_BYTES, Node};

const FILE: &str = "files.json";
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

pub(super) fn write(nodes: &Nodes, into: &Path) -> Result<TreeCopy, BackendError> {
    let kept: BTreeMap<&String, Kept> = nodes.iter().map(|(path, node)| (path, kept(node))).collect();
    let text = serde_json::to_vec(&kept).map_err(|source| failed("write", into, source.into()))?;
    fs::write(into.join(FILE), text).map_err(|source| failed("write", into, source))?;
    Ok(TreeCopy { bytes: bytes_of(nodes), n_entries: nodes.len() as u64, shared_bytes: 0 })
}

pub(super) fn read(tree: &Path) -> Result<Nodes, BackendError> {
    let text = fs::read(tree.join(FILE)).map_err(|source| failed("read", tree, source))?;
    parse(&text).map_err(|source| failed("read", tree, source.into()))
}

pub(super) fn facts(tree: &Path) -> Result<TreeFacts, BackendError> {
    let text = fs::read(tree.join(FILE)).map_err(|source| failed("read", tree, source))?;
    let nodes = parse(&text).map_err(|source| failed("read", tree, source.into()))?;
    let digest = images::Digest::of(&text).to_string();
    Ok(TreeFacts { digest, bytes: bytes_of(&nodes), n_entries: nodes.len() as u64 })
}

pub(super) fn pack(tree: &Path, archive: OwnedFd) -> Result<(), BackendError> {
    let text = fs::read(tree.join(FILE)).map_err(|source| failed("read", tree, source))?;
    File::from(archive).write_all(&text).map_err(|source| failed("pack", tree, source))
}

pub(super) fn unpack(archive: OwnedFd, into: &Path) -> Result<TreeFacts, BackendError> {
    let mut text = Vec::new();
    File::from(archive)
        .take(MAX_TREE_BYTES)
        .read_to_end(&mut text)
        .and_then(|_| fs::write(into.join(FILE), &text))
        .map_err(|source| failed("unpack", into, source))?;
    facts(into)
}

/// What differs from the tree that `query` means, or from a sandbox that is new.
pub(super) fn diff(plan: &SandboxPlan, now: &Nodes, query: &DiffQuery) -> Result<DiffReport, BackendError> {
    let before = match query.against.first() {
        Some(tree) => read(tree)?,
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

fn parse(text: &[u8]) -> Result<Nodes, serde_json::Error> {
    let kept: BTreeMap<String, Kept> = serde_json::from_slice(text)?;
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

fn failed(what: &str, path: &Path, source: io::Error) -> BackendError {
    BackendError::failed(format!("could not {what} the tree {}", path.display()), source)
}

/// Reading and writing of pipes waits, so it has a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(BackendError::failed("work on a tree ended", error)))
}

pub(super) fn remove(tree: &PathBuf) -> Result<(), BackendError> {
    match fs::remove_dir_all(tree) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed("remove", tree, source)),
        _ => Ok(()),
    }
}
