//! `sandbox_diff`.

use engine::{DiffSpec, Since};
use sandbox::{Change, ChangeKind, FileKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::waiting;
use crate::{
    mcp::{
        Answer, Call, ToolResult, Truncated, call::MAX_OUTPUT_BYTES, next_call::written, tools::fitting::fit,
    },
    output::until_character_border,
};

/// The values of `since` for the image, and for the files that the sandbox began with.
const IMAGE: &str = "image";
const START: &str = "start";

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
        under: arguments.path.clone(),
        patch: arguments.patch.unwrap_or(false),
        max_changes: arguments.limit,
        // As much as a call can ask for, so that the hint can say how much there is.
        max_patch_bytes: usize::try_from(MAX_OUTPUT_BYTES).ok(),
    };
    let report = waiting(&call, call.engine().diff_sandbox(&call.who, &which, spec)).await?;
    let mut changes: Vec<_> = report.changes.into_iter().map(Changed::from).collect();
    // All of them if the caller said how many there may be.
    let changes_cut = match arguments.limit {
        None => cut_changes(&mut changes, call.max_bytes(None), &arguments),
        Some(_) => None,
    };
    let mut patch = report.patch;
    let patch_cut =
        patch.as_mut().and_then(|patch| cut_patch(patch, call.max_bytes(arguments.max_bytes), &arguments));
    let left_out = (report.patch_left_out > 0).then(|| {
        let n = report.patch_left_out;
        format!("The patch omits {n} changed files or links that are not text or are too long.")
    });
    let incomplete = report.changes_cut.then(|| {
        "The list is incomplete: too many changes, or the search took too long. Set path to compare less, or a \
         larger limit."
            .to_owned()
    });
    let told = Diff {
        name: arguments.name,
        since: arguments.since.unwrap_or_else(|| IMAGE.to_owned()),
        more_changes: report.changes_cut || changes_cut.is_some(),
        patch_cut: report.patch_cut || patch_cut.is_some(),
        changes,
        patch,
    };
    Ok(Answer::new(told).truncate(changes_cut).truncate(patch_cut).warn_all(left_out).warn_all(incomplete))
}

/// Leaves out the changes that do not fit into so many bytes.
fn cut_changes(changes: &mut Vec<Changed>, max_bytes: usize, arguments: &DiffArguments) -> Option<Truncated> {
    let n_found = changes.len();
    let mut cut = fit("changes", changes, max_bytes)?;
    let all = again(arguments, json!({ "limit": n_found }));
    let directory = changes.iter().rev().find(|change| change.kind == "directory");
    let below = directory.map(|directory| again(arguments, json!({ "path": directory.path })));
    let below = below.map(|below| format!("{} for one directory, or ", written("sandbox_diff", &below)));
    cut.hint = Some(format!(
        "{} of {n_found} changes are listed. Call {}{} for all of them.",
        changes.len(),
        below.unwrap_or_default(),
        written("sandbox_diff", &all)
    ));
    Some(cut)
}

/// Shortens a patch to whole lines of so many bytes.
fn cut_patch(patch: &mut String, max_bytes: usize, arguments: &DiffArguments) -> Option<Truncated> {
    let total = patch.len();
    if total <= max_bytes {
        return None;
    }
    let kept = until_character_border(&patch.as_bytes()[..max_bytes]).len();
    patch.truncate(patch[..kept].rfind('\n').map_or(kept, |end| end + 1));
    let whole = again(arguments, json!({ "patch": true, "maxBytes": total }));
    Some(Truncated {
        field: "patch".to_owned(),
        returned_bytes: patch.len() as u64,
        total_bytes: total as u64,
        hint: Some(format!(
            "Call {} for the whole patch, or set path to one file or directory.",
            written("sandbox_diff", &whole)
        )),
    })
}

/// The same comparison, with something else asked of it.
fn again(arguments: &DiffArguments, other: Value) -> Value {
    let DiffArguments { name, since, path, .. } = arguments;
    let mut call = json!({ "name": name });
    for (field, value) in [("since", since), ("path", path)] {
        if let Some(value) = value {
            call[field] = json!(value);
        }
    }
    if let (Some(call), Value::Object(other)) = (call.as_object_mut(), other) {
        call.extend(other);
    }
    call
}
