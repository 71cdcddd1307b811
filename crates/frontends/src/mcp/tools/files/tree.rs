//! `sandbox_fs_tree`: a directory as a person would draw it.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write,
    time::Duration,
};

use sandbox::{FileEntry, FileKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::explained;
use crate::mcp::{Answer, Call, Tool, ToolResult};

const DEFAULT_DEPTH: u32 = 3;
const MAX_DEPTH: u32 = 32;
/// Entries in one tree when the caller does not say, and at most.
const DEFAULT_LIMIT: u32 = 400;
const MAX_LIMIT: u32 = 5000;
/// After this long directories are shown closed: whoever asked waits for the tree.
const MAX_TIME: Duration = Duration::from_secs(10);

pub(super) fn tools() -> Vec<Tool> {
    tools! { Files;
        "sandbox_fs_tree", "Show a directory tree", READS, tree:
            "Show a directory in a sandbox as a text tree with sizes.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TreeArguments {
    name: String,
    path: String,
    #[schemars(range(min = 1, max = MAX_DEPTH))]
    depth: Option<u32>,
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Tree {
    path: String,
    tree: String,
    directories: u64,
    files: u64,
    /// Some directories are shown without all that is in them.
    partial: bool,
}

async fn tree(call: Call, arguments: TreeArguments) -> ToolResult<Tree> {
    let which = call.sandbox(&arguments.name)?;
    let root = arguments.path;
    let depth = arguments.depth.unwrap_or(DEFAULT_DEPTH);
    let mut left = arguments.limit.unwrap_or(DEFAULT_LIMIT);
    let mut found = DirectoryTree::default();
    let end = Instant::now() + MAX_TIME;
    // Level by level, so that a limit cuts what is deep before what is near.
    let mut queue = VecDeque::from([(root.clone(), 1)]);
    while let Some((directory, level)) = queue.pop_front() {
        if left == 0 || Instant::now() >= end {
            found.closed.push(directory);
            continue;
        }
        let listing = match call.engine().list(&call.who, &which, &directory, false, left).await {
            Ok(listing) => listing,
            Err(error) if level == 1 => return Err(explained(error)),
            Err(_) => {
                found.closed.push(directory);
                continue;
            }
        };
        left = left.saturating_sub(u32::try_from(listing.entries.len()).unwrap_or(u32::MAX));
        for entry in listing.entries.iter().filter(|entry| entry.kind == FileKind::Directory) {
            if level < depth {
                queue.push_back((entry.path.clone(), level + 1));
            } else {
                found.closed.push(entry.path.clone());
            }
        }
        if listing.truncated {
            found.closed.push(directory.clone());
        }
        found.entries.insert(directory, listing.entries);
    }
    let mut text = format!("{root}\n");
    found.draw(&root, "", &mut text);
    let all = || found.entries.values().flatten();
    let directories = all().filter(|entry| entry.kind == FileKind::Directory).count() as u64;
    Ok(Answer::new(Tree {
        files: all().count() as u64 - directories,
        directories,
        partial: !found.closed.is_empty(),
        tree: text,
        path: root,
    }))
}

#[derive(Debug, Default)]
struct DirectoryTree {
    /// The entries of each directory that was looked into.
    entries: HashMap<String, Vec<FileEntry>>,
    /// Directories that are not shown, or not whole.
    closed: Vec<String>,
}

impl DirectoryTree {
    fn draw(&self, directory: &str, indent: &str, text: &mut String) {
        let entries = self.entries.get(directory).map(Vec::as_slice).unwrap_or_default();
        let is_whole = !self.closed.iter().any(|closed| closed == directory);
        for (index, entry) in entries.iter().enumerate() {
            let is_last = index + 1 == entries.len() && is_whole;
            let (branch, inner) = if is_last { ("└── ", "    ") } else { ("├── ", "│   ") };
            let name = entry.path.rsplit('/').next().unwrap_or_default();
            let is_closed = !self.entries.contains_key(&entry.path);
            let what = match entry.kind {
                FileKind::Directory if is_closed => "/ …".to_owned(),
                FileKind::Directory => "/".to_owned(),
                FileKind::File => format!(" ({})", human(entry.size)),
                FileKind::Symlink => format!(" -> {}", entry.target.as_deref().unwrap_or("?")),
                FileKind::Fifo => " (pipe)".to_owned(),
                FileKind::Socket => " (socket)".to_owned(),
                FileKind::Device => " (device)".to_owned(),
            };
            text.push_str(&format!("{indent}{branch}{name}{what}\n"));
            if entry.kind == FileKind::Directory {
                self.draw(&entry.path, &format!("{indent}{inner}"), text);
            }
        }
        if !is_whole && !entries.is_empty() {
            writeln!(text, "{indent}└── …").unwrap_or(());
        }
    }
}

fn human(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}
