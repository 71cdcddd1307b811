//! `sandbox_fork` and `sandbox_diff`.

use std::{collections::BTreeMap, time::Duration};

use engine::{DiffSpec, ForkSpec, Since};
use sandbox::{Change, ChangeKind, Error, FileKind, Lifetime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::waiting;
use crate::mcp::{Answer, Call, ToolResult, tools::select::Status};

/// Changes in one answer when the caller does not say: about as long as other answers may be.
const DEFAULT_CHANGES: usize = 200;
/// What `since` says for the image, and for the files that the sandbox began with.
const IMAGE: &str = "image";
const START: &str = "start";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ForkArguments {
    /// The sandbox to fork, running or stopped
    name: String,
    /// Number of forks; default 1
    #[schemars(range(min = 1, max = 256))]
    count: Option<usize>,
    /// One fork for each
    names: Option<Vec<String>>,
    /// With count: prefix-1, prefix-2, …
    name_prefix: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    /// Beside those of the source
    env: Option<BTreeMap<String, String>>,
    #[schemars(extend("x-full-only" = true))]
    labels: Option<BTreeMap<String, String>>,
    #[schemars(extend("x-full-only" = true))]
    /// Seconds until they expire; default as the source
    #[schemars(range(min = 1))]
    max_duration: Option<u64>,
    #[schemars(extend("x-full-only" = true))]
    /// Seconds without work until they expire
    #[schemars(range(min = 1))]
    idle_timeout: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Forked {
    /// The sandbox that was forked.
    name: String,
    forks: Vec<Fork>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Fork {
    name: String,
    id: String,
    status: Status,
}

pub(super) async fn fork(call: Call, arguments: ForkArguments) -> ToolResult<Forked> {
    let names = arguments.names.unwrap_or_default();
    let names = names.iter().map(|name| name.parse()).collect::<Result<_, _>>().map_err(Error::from)?;
    let lifetime = match (arguments.max_duration, arguments.idle_timeout) {
        (None, None) => None,
        (ttl, idle) => Some(Lifetime {
            ttl: ttl.map(Duration::from_secs),
            idle: idle.map(Duration::from_secs),
            ..Lifetime::default()
        }),
    };
    let spec = ForkSpec {
        names,
        count: arguments.count,
        name_prefix: arguments.name_prefix,
        env: arguments.env.unwrap_or_default(),
        labels: arguments.labels.unwrap_or_default(),
        limits: None,
        lifetime,
        by_agent: true,
    };
    let which = call.sandbox(&arguments.name)?;
    let made = waiting(&call, call.engine().fork_sandbox(&call.who, &which, spec)).await?;
    let forks = made.iter().map(|view| Fork {
        name: view.name.to_string(),
        id: view.id.to_string(),
        status: Status::of(view),
    });
    let warnings = made.first().map(|view| view.warnings.clone()).unwrap_or_default();
    Ok(Answer::new(Forked { name: arguments.name, forks: forks.collect() }).warn_all(warnings))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiffArguments {
    name: String,
    /// image (default), start (what it was created from), a snapshot, or the sandbox it was forked from
    since: Option<String>,
    /// Only changes below this path
    path: Option<String>,
    /// Changes of text files as a patch, too
    patch: Option<bool>,
    /// Most changes to list
    #[schemars(range(min = 1))]
    limit: Option<usize>,
    /// Longest patch
    #[schemars(range(min = 1))]
    max_bytes: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Diff {
    name: String,
    since: String,
    changes: Vec<Changed>,
    /// There are more, or there was no time to look for them.
    more_changes: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    /// The patch does not have all of them.
    patch_cut: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Changed {
    path: String,
    /// added, modified or removed
    change: &'static str,
    /// file, directory, symlink or other
    kind: &'static str,
    size: u64,
    /// Owner, mode or attributes only
    only_metadata: bool,
}

impl From<Change> for Changed {
    fn from(change: Change) -> Self {
        Self {
            path: change.path,
            change: match change.kind {
                ChangeKind::Added => "added",
                ChangeKind::Modified => "modified",
                ChangeKind::Removed => "removed",
            },
            kind: match change.file {
                FileKind::File => "file",
                FileKind::Directory => "directory",
                FileKind::Symlink => "symlink",
                _ => "other",
            },
            size: change.size,
            only_metadata: change.only_metadata,
        }
    }
}

pub(super) async fn diff(call: Call, arguments: DiffArguments) -> ToolResult<Diff> {
    let which = call.sandbox(&arguments.name)?;
    let since = match arguments.since.as_deref() {
        None | Some(IMAGE) => Since::Image,
        Some(START) => Since::Start,
        Some(snapshot) => Since::Snapshot(snapshot.to_owned()),
    };
    let spec = DiffSpec {
        since,
        under: arguments.path,
        patch: arguments.patch.unwrap_or(false),
        max_changes: Some(arguments.limit.unwrap_or(DEFAULT_CHANGES)),
        max_patch_bytes: Some(call.max_bytes(arguments.max_bytes)),
    };
    let report = waiting(&call, call.engine().diff_sandbox(&call.who, &which, spec)).await?;
    let left_out = (report.patch_left_out > 0).then(|| {
        let n = report.patch_left_out;
        format!("The patch omits {n} changed files or links that are not text or are too long.")
    });
    let cut = report.changes_cut.then(|| {
        "The list is incomplete: too many changes, or the search took too long. Set path to compare less, or a \
         larger limit."
            .to_owned()
    });
    Ok(Answer::new(Diff {
        name: arguments.name,
        since: arguments.since.unwrap_or_else(|| IMAGE.to_owned()),
        changes: report.changes.into_iter().map(Changed::from).collect(),
        more_changes: report.changes_cut,
        patch: report.patch,
        patch_cut: report.patch_cut,
    })
    .warn_all(left_out)
    .warn_all(cut))
}
