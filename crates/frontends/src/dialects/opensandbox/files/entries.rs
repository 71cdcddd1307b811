//! Files as OpenSandbox describes them, and the search for them.

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use sandbox::{FileEntry, FileKind, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::{owners::Owners, permissions::digits};
use crate::dialects::opensandbox::handle::SandboxHandle;

/// Files that are looked at at the same time.
const MAX_AT_ONCE: usize = 32;

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EntryInfo {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Octal digits
    mode: u32,
    owner: String,
    group: String,
    size: u64,
    modified_at: String,
    /// The same: when a file was created is not known
    created_at: String,
}

impl EntryInfo {
    pub(crate) fn of(entry: FileEntry, owners: &Owners) -> Self {
        let modified_at = Timestamp::from_millisecond(entry.modified_at_ms).unwrap_or_default().to_string();
        Self {
            path: entry.path,
            kind: match entry.kind {
                FileKind::File => "file",
                FileKind::Directory => "directory",
                FileKind::Symlink => "symlink",
                FileKind::Fifo | FileKind::Socket | FileKind::Device => "other",
            },
            mode: digits(entry.mode),
            owner: owners.user(entry.uid),
            group: owners.group(entry.gid),
            size: entry.size,
            created_at: modified_at.clone(),
            modified_at,
        }
    }
}

/// Files below `root`, at most `most`, and whether there are more. Directories are not files.
pub(crate) async fn search(
    sandbox: SandboxHandle<'_>,
    root: &str,
    pattern: &str,
    most: u32,
) -> Result<(Vec<EntryInfo>, bool)> {
    let SandboxHandle { engine, who, which } = sandbox;
    let found = engine.glob(who, which, root, &anywhere(pattern), most).await?;
    let owners = Owners::read(sandbox).await;
    let files = stream::iter(found.paths)
        .map(|path| async move { engine.stat(who, which, &path, false).await })
        .buffered(MAX_AT_ONCE)
        // Files that went away meanwhile are not found.
        .filter_map(|entry| async { entry.ok().filter(|entry| entry.kind != FileKind::Directory) })
        .map(|entry| EntryInfo::of(entry, &owners))
        .collect()
        .await;
    Ok((files, found.truncated))
}

/// A pattern without a directory is about names, at any depth.
fn anywhere(pattern: &str) -> String {
    let pattern = pattern.trim_start_matches('/');
    if pattern.is_empty() || pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_at_any_depth_and_paths_where_they_are() {
        for (pattern, glob) in
            [("*.py", "**/*.py"), ("src/*.py", "src/*.py"), ("**/a", "**/a"), ("/src/a", "src/a"), ("", "")]
        {
            assert_eq!(anywhere(pattern), glob);
        }
    }
}
