//! `file_create_directories`, `file_delete_directories`, `file_move`.

use sandbox::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    files::{PathsArguments, Removed, few, octal, remove, usual_mode},
    owners::Ownership,
    sandboxes::{Done, Inside, done},
    target::Target,
    words,
};
use crate::mcp::{Call, Failure, ToolResult};

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct CreateArguments {
    #[serde(flatten)]
    inside: Inside,
    entries: Vec<DirectoryEntry>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct DirectoryEntry {
    path: String,
    /// Octal digits
    #[serde(default = "usual_mode")]
    mode: u32,
    owner: Option<String>,
    group: Option<String>,
}

pub(super) async fn create(call: Call, arguments: CreateArguments) -> ToolResult<Done> {
    few("entries", arguments.entries.len())?;
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    // All is known to be right before anything is made.
    let mut checked = Vec::new();
    for entry in &arguments.entries {
        let (owner, group) = (entry.owner.as_deref(), entry.group.as_deref());
        let ownership = Ownership::find(&call, &target, owner, group).await?;
        checked.push((target.absolute(&entry.path), octal(entry.mode)?, ownership));
    }
    for (path, mode, ownership) in checked {
        let made = call.engine().mkdir(&call.who, &target.which, &path, true, Some(mode)).await;
        made.map_err(words::failure)?;
        ownership.apply(&call, &target, &path).await?;
    }
    Ok(done("created"))
}

pub(super) async fn delete(call: Call, arguments: PathsArguments) -> ToolResult<Done> {
    remove(&call, &arguments, Removed::Directories).await?;
    Ok(done("deleted"))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct MoveArguments {
    #[serde(flatten)]
    inside: Inside,
    entries: Vec<MoveEntry>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct MoveEntry {
    source: String,
    destination: String,
}

pub(super) async fn move_all(call: Call, arguments: MoveArguments) -> ToolResult<Done> {
    few("entries", arguments.entries.len())?;
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    for (index, entry) in arguments.entries.iter().enumerate() {
        let (from, to) = (target.absolute(&entry.source), target.absolute(&entry.destination));
        let moved = call.engine().rename_path(&call.who, &target.which, &from, &to, false).await;
        moved.map_err(|error| not_moved(error, index, &to))?;
    }
    Ok(done("moved"))
}

/// Says what was moved before, because that stays moved.
fn not_moved(error: Error, n_moved: usize, to: &str) -> Failure {
    let is_taken = error.kind() == ErrorKind::AlreadyExists;
    let mut failure = words::failure(error);
    if n_moved > 0 {
        failure.message = format!("{} (the first {n_moved} entries were moved)", failure.message);
    }
    match is_taken {
        true => failure.with_hint(format!("Delete {to} first, or choose another destination.")),
        false => failure,
    }
}
