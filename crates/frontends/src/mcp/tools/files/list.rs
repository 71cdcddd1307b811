//! `sandbox_fs_list`, `sandbox_fs_stat`, `sandbox_fs_exists`: what is there.

use engine::{FilesOf, Listing};
use sandbox::{Action, ErrorKind, FileEntry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Kind, explained, explained_at, explained_of, full_mode, iso};
use crate::mcp::{
    Answer, Call, Failure, Nullable, Tool, ToolResult, next_call::written, tools::fitting::fit,
};

/// Entries in one answer when the caller does not say, and at most.
const DEFAULT_LIMIT: u32 = 1000;
pub(in crate::mcp::tools) const MAX_LIMIT: u32 = 10_000;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Files;
        "sandbox_fs_list", "List a directory", READS, list, core:
            "List a directory in a sandbox, or everything below it with recursive.";
        "sandbox_fs_stat", "Stat a path", READS, stat:
            "Get the kind, size, mode, owner and times of a path in a sandbox.";
        "sandbox_fs_exists", "Check a path", READS, exists: "Check whether a path exists in a sandbox.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::mcp::tools) struct ListArguments {
    pub(in crate::mcp::tools) name: String,
    pub(in crate::mcp::tools) path: String,
    pub(in crate::mcp::tools) recursive: Option<bool>,
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub(in crate::mcp::tools) limit: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp::tools) struct FsEntry {
    path: String,
    kind: Kind,
    size: u64,
    mode: u32,
    modified: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl From<FileEntry> for FsEntry {
    fn from(entry: FileEntry) -> Self {
        Self {
            kind: entry.kind.into(),
            size: entry.size,
            mode: full_mode(&entry),
            modified: iso(entry.modified_at_ms),
            target: entry.target,
            path: entry.path,
        }
    }
}

async fn list(call: Call, arguments: ListArguments) -> ToolResult<Vec<FsEntry>> {
    let which = call.sandbox(&arguments.name)?;
    let recursive = arguments.recursive.unwrap_or(false);
    let limit = arguments.limit.unwrap_or(DEFAULT_LIMIT);
    let listed = call.engine().list(&call.who, &which, &arguments.path, recursive, limit).await;
    let found = match listed {
        Ok(found) => found,
        Err(error) => return Err(explained_at(&call, &which, &arguments.name, &arguments.path, error).await),
    };
    Ok(listed_entries(&call, "sandbox_fs", &arguments, found))
}

/// The entries that fit an answer. All of them do if the caller said how many there may be. `tools`: what the names of
/// the tools for these files begin with.
pub(in crate::mcp::tools) fn listed_entries(
    call: &Call,
    tools: &str,
    arguments: &ListArguments,
    found: Listing,
) -> Answer<Vec<FsEntry>> {
    let n_entries = found.entries.len();
    let mut entries: Vec<_> = found.entries.into_iter().map(FsEntry::from).collect();
    let mut cut = None;
    if arguments.limit.is_none() {
        cut = fit("data", &mut entries, call.max_bytes(None));
    }
    if let Some(cut) = &mut cut {
        let ListArguments { name, path, recursive, .. } = arguments;
        let more = json!({
            "name": name, "path": path, "recursive": recursive.unwrap_or(false), "limit": n_entries,
        });
        let directory = entries.iter().rev().find(|entry| entry.kind == Kind::Directory);
        let one = json!({ "name": name, "path": directory.map_or(path.as_str(), |entry| &entry.path) });
        let hint = format!(
            "{} of {n_entries} entries are listed. Call {} for one directory, or {} for all of them.",
            entries.len(),
            written(&format!("{tools}_list"), &one),
            written(&format!("{tools}_list"), &more)
        );
        cut.hint = Some(hint);
    }
    let answer = Answer::new(entries).truncate(cut);
    answer.warn_all(found.truncated.then(|| {
        format!(
            "Only the first {n_entries} entries are listed: there are more, or listing them took too long. List a \
             subdirectory, or set a larger limit (at most {MAX_LIMIT})."
        )
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::mcp::tools) struct StatArguments {
    pub(in crate::mcp::tools) name: String,
    pub(in crate::mcp::tools) path: String,
    /// Follow a symlink to its target.
    pub(in crate::mcp::tools) follow: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp::tools) struct FsMeta {
    path: String,
    kind: Kind,
    size: u64,
    mode: u32,
    /// No user has write permission.
    readonly: bool,
    modified: String,
    /// Unknown here.
    created: Nullable<String>,
    uid: u32,
    gid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

async fn stat(call: Call, arguments: StatArguments) -> ToolResult<FsMeta> {
    let which = call.sandbox(&arguments.name)?;
    let follow = arguments.follow.unwrap_or(false);
    let found = call.engine().stat(&call.who, &which, &arguments.path, follow).await;
    found.map(|entry| Answer::new(FsMeta::from(entry))).map_err(explained)
}

impl From<FileEntry> for FsMeta {
    fn from(entry: FileEntry) -> Self {
        Self {
            kind: entry.kind.into(),
            size: entry.size,
            mode: full_mode(&entry),
            readonly: entry.mode & 0o222 == 0,
            modified: iso(entry.modified_at_ms),
            created: Nullable(None),
            uid: entry.uid,
            gid: entry.gid,
            target: entry.target,
            path: entry.path,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::mcp::tools) struct PathArguments {
    pub(in crate::mcp::tools) name: String,
    pub(in crate::mcp::tools) path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp::tools) struct Exists {
    pub(in crate::mcp::tools) path: String,
    pub(in crate::mcp::tools) exists: bool,
}

async fn exists(call: Call, arguments: PathArguments) -> ToolResult<Exists> {
    let (which, path) = (call.sandbox(&arguments.name)?, arguments.path);
    let exists = is_there(&call, (&which).into(), &path).await?;
    Ok(Answer::new(Exists { path, exists }))
}

/// Whether something is at a path. Fails where the files themselves are out of reach.
pub(in crate::mcp::tools) async fn is_there(
    call: &Call,
    of: FilesOf<'_>,
    path: &str,
) -> Result<bool, Failure> {
    let (engine, who) = (call.engine(), &call.who);
    match engine.stat(who, of, path, true).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WrongState) => {
            // Only where it is the path that is missing, or leads through a file, and not the sandbox or volume.
            let is_reached = match of {
                FilesOf::Sandbox(which) => engine.sandbox(who, which).await?.state.allows(Action::Files),
                FilesOf::Volume(which) => engine.volume(who, which).await.map(|_| true)?,
            };
            if is_reached { Ok(false) } else { Err(explained_of(of, error)) }
        }
        Err(error) => Err(explained_of(of, error)),
    }
}
