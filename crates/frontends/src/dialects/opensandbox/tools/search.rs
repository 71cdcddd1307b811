//! `file_search`.

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use sandbox::{FileEntry, FileKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{files::digits, owners::Names, sandboxes::Inside, target::Target, words};
use crate::mcp::{Answer, Call, ToolResult};

/// Most entries in one answer: they take about as much as the longest text.
const MAX_FOUND: u32 = 100;
/// Entries that are looked at at the same time.
const MAX_AT_ONCE: usize = 8;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    #[serde(flatten)]
    inside: Inside,
    path: String,
    pattern: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EntryInfo {
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

pub(super) async fn search(call: Call, arguments: Arguments) -> ToolResult<Vec<EntryInfo>> {
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let (engine, who, which) = (call.engine(), &call.who, &target.which);
    let root = target.absolute(&arguments.path);
    let pattern = anywhere(&arguments.pattern);
    let found = engine.glob(who, which, &root, &pattern, MAX_FOUND).await.map_err(words::failure)?;
    let (users, groups) = (Names::of_users(&call, &target).await, Names::of_groups(&call, &target).await);
    let entries: Vec<_> = stream::iter(found.paths)
        .map(|path| async move { engine.stat(who, which, &path, false).await })
        .buffered(MAX_AT_ONCE)
        // One that is gone meanwhile is not there.
        .filter_map(|entry| async { entry.ok() })
        .map(|entry| EntryInfo::of(entry, &users, &groups))
        .collect()
        .await;
    let more = found.truncated.then(|| {
        format!(
            "There are more than these {}: search a directory further down, or give a narrower pattern.",
            entries.len()
        )
    });
    Ok(Answer::new(entries).warn_all(more))
}

/// A pattern without a directory is about names, at any depth.
fn anywhere(pattern: &str) -> String {
    if pattern.is_empty() || pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") }
}

impl EntryInfo {
    fn of(entry: FileEntry, users: &Names, groups: &Names) -> Self {
        let at =
            Timestamp::from_millisecond(entry.modified_at_ms).unwrap_or(Timestamp::UNIX_EPOCH).to_string();
        Self {
            path: entry.path,
            kind: match entry.kind {
                FileKind::File => "file",
                FileKind::Directory => "directory",
                FileKind::Symlink => "symlink",
                FileKind::Fifo | FileKind::Socket | FileKind::Device => "other",
            },
            mode: digits(entry.mode),
            owner: users.name(entry.uid),
            group: groups.name(entry.gid),
            size: entry.size,
            modified_at: at.clone(),
            created_at: at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_at_any_depth_and_paths_where_they_are() {
        for (pattern, glob) in [("*.py", "**/*.py"), ("src/*.py", "src/*.py"), ("**/a", "**/a"), ("", "")] {
            assert_eq!(anywhere(pattern), glob);
        }
    }
}
