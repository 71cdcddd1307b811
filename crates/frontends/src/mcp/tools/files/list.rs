//! `sandbox_fs_list`, `sandbox_fs_stat`, `sandbox_fs_exists`: what is there.

use engine::{FilesOf, Listing};
use sandbox::{Action, ErrorKind, FileEntry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Kind, explained, explained_at, explained_of, full_mode, iso};
use crate::mcp::{
    Answer, Call, Failure, Nullable, Tool, ToolResult, next_call::written, tools::fitting::fit,
    words::KnownTools,
};

/// Entries in one answer when the caller does not say, and at most.
const DEFAULT_LIMIT: u32 = 1000;
pub(in crate::mcp::tools) const MAX_LIMIT: u32 = 10_000;

const SEARCH: &str = "sandbox_fs_search";

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
    /// Entries to skip
    pub(in crate::mcp::tools) offset: Option<u32>,
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
    let limit = arguments.up_to(DEFAULT_LIMIT);
    let listed = call.engine().list(&call.who, &which, &arguments.path, recursive, limit).await;
    let found = match listed {
        Ok(found) => found,
        Err(error) => return Err(explained_at(&call, &which, &arguments.name, &arguments.path, error).await),
    };
    Ok(listed_entries(&call, "sandbox_fs", &arguments, found))
}

impl ListArguments {
    /// How many entries must be found for this page.
    pub(in crate::mcp::tools) fn up_to(&self, default: u32) -> u32 {
        self.offset.unwrap_or(0).saturating_add(self.limit.unwrap_or(default)).min(MAX_LIMIT)
    }

    /// The same call with `more`.
    fn again(&self, tools: &str, more: Value) -> String {
        let mut call = json!({ "name": self.name, "path": self.path });
        if self.recursive == Some(true) {
            call["recursive"] = json!(true);
        }
        if let (Some(call), Value::Object(more)) = (call.as_object_mut(), more) {
            call.extend(more);
        }
        written(&format!("{tools}_list"), &call)
    }
}

/// The entries that fit an answer. All of them do if the caller said how many there may be. `tools`: what the names of
/// the tools for these files begin with.
pub(in crate::mcp::tools) fn listed_entries(
    call: &Call,
    tools: &str,
    arguments: &ListArguments,
    found: Listing,
) -> Answer<Vec<FsEntry>> {
    let (n_found, n_skipped) = (found.entries.len(), arguments.offset.unwrap_or(0) as usize);
    let mut entries: Vec<_> = found.entries.into_iter().skip(n_skipped).map(FsEntry::from).collect();
    let mut cut = None;
    if arguments.limit.is_none() {
        cut = fit("data", &mut entries, call.max_bytes(None));
    }
    let n_seen = n_skipped + entries.len();
    let is_page = found.truncated && cut.is_none();
    let known = KnownTools::of(call, &call.surface);
    let searches = tools == "sandbox_fs" && known.has(SEARCH);
    let next_of = |ways: &[String]| match known.way_to(SEARCH).filter(|_| searches) {
        Some(way) => format!("{} {way}", next_of(ways)),
        None => next_of(ways),
    };
    if let Some(cut) = &mut cut {
        let at_least = if found.truncated { "more than " } else { "" };
        let mut ways = ways_on(tools, arguments, &entries, n_seen, searches);
        if !found.truncated && n_skipped == 0 {
            ways.push(format!("{} for all of them", arguments.again(tools, json!({ "limit": n_found }))));
        }
        let (n_listed, next) = (entries.len(), next_of(&ways));
        cut.hint = Some(format!("{n_listed} of {at_least}{n_found} entries are listed. {next}"));
    }
    let more = is_page.then(|| {
        let next = next_of(&ways_on(tools, arguments, &entries, n_seen, searches));
        format!("There are more entries, or listing them took too long. {next}")
    });
    Answer::new(entries).truncate(cut).warn_all(more)
}

fn next_of(ways: &[String]) -> String {
    match ways {
        [] => "List the directories below it one by one.".to_owned(),
        ways => format!("Call {}.", ways.join(", or ")),
    }
}

/// The calls that lead on from a listing that is not whole. `searches`: whether the caller can search by name.
fn ways_on(
    tools: &str,
    arguments: &ListArguments,
    entries: &[FsEntry],
    n_seen: usize,
    searches: bool,
) -> Vec<String> {
    let ListArguments { name, path, recursive, limit, .. } = arguments;
    let mut ways = Vec::new();
    if !entries.is_empty() && n_seen < MAX_LIMIT as usize {
        let more = match limit {
            Some(limit) => json!({ "offset": n_seen, "limit": limit }),
            None => json!({ "offset": n_seen }),
        };
        ways.push(format!("{} for the next ones", arguments.again(tools, more)));
    }
    let directory = entries.iter().rev().find(|entry| entry.kind == Kind::Directory);
    if let Some(directory) = directory.filter(|_| recursive.unwrap_or(false)) {
        let one = json!({ "name": name, "path": directory.path });
        ways.push(format!("{} for one directory", written(&format!("{tools}_list"), &one)));
    }
    if searches {
        let some = json!({ "name": name, "path": path, "glob": "*.py" });
        ways.push(format!("{} for those of a name", written(SEARCH, &some)));
    }
    ways
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
