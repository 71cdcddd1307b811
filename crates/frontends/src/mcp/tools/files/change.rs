//! `sandbox_fs_mkdir`, `sandbox_fs_remove`, `sandbox_fs_rename`.

use engine::FilesOf;
use sandbox::{Error, ErrorKind, FileEntry, FileKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{explained, explained_of, not_moved, octal};
use crate::mcp::{Answer, Call, Failure, Tool, ToolResult};

pub(super) fn tools() -> Vec<Tool> {
    tools! { Files;
        "sandbox_fs_mkdir", "Create a directory", SETS, mkdir:
            "Create a directory in a sandbox, with missing parents.";
        "sandbox_fs_remove", "Remove a path", DESTROYS, remove:
            "Remove a file, or a directory with everything in it, from a sandbox.";
        // With replace, what was there is gone.
        "sandbox_fs_rename", "Rename a path", DESTROYS_MORE, rename:
            "Move a file or directory within a sandbox. Fails if the new path exists, unless replace is set.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct MkdirArguments {
    name: String,
    path: String,
    /// Octal, such as 755.
    mode: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp::tools) struct Made {
    pub(in crate::mcp::tools) path: String,
    pub(in crate::mcp::tools) created: bool,
}

async fn mkdir(call: Call, arguments: MkdirArguments) -> ToolResult<Made> {
    let which = call.sandbox(&arguments.name)?;
    let mode = octal(arguments.mode.as_deref())?;
    call.engine().mkdir(&call.who, &which, &arguments.path, true, mode).await.map_err(explained)?;
    Ok(Answer::new(Made { path: arguments.path, created: true }))
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::mcp::tools) enum RemoveKind {
    #[default]
    Auto,
    File,
    Dir,
}

impl RemoveKind {
    /// Refuses what is of another kind.
    fn check(self, entry: &FileEntry) -> Result<(), Failure> {
        let is_right = self == Self::Auto || (entry.kind == FileKind::Directory) == (self == Self::Dir);
        if is_right {
            return Ok(());
        }
        let what = if self == Self::Dir { "not a directory" } else { "a directory" };
        Err(Failure::from(Error::new(ErrorKind::WrongState, format!("{} is {what}", entry.path)))
            .with_hint("Omit kind to remove it whatever it is."))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::mcp::tools) struct RemoveArguments {
    pub(in crate::mcp::tools) name: String,
    pub(in crate::mcp::tools) path: String,
    /// Refuse anything else; auto takes both.
    pub(in crate::mcp::tools) kind: Option<RemoveKind>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp::tools) struct Removed {
    pub(in crate::mcp::tools) path: String,
    pub(in crate::mcp::tools) removed: bool,
}

async fn remove(call: Call, arguments: RemoveArguments) -> ToolResult<Removed> {
    let RemoveArguments { name, path, kind } = arguments;
    remove_path(&call, (&call.sandbox(&name)?).into(), &path, kind).await?;
    Ok(Answer::new(Removed { path, removed: true }))
}

/// Removes what is at a path, if it is of the kind that was asked for.
pub(in crate::mcp::tools) async fn remove_path(
    call: &Call,
    of: FilesOf<'_>,
    path: &str,
    kind: Option<RemoveKind>,
) -> Result<(), Failure> {
    let (engine, who, kind) = (call.engine(), &call.who, kind.unwrap_or_default());
    if kind != RemoveKind::Auto {
        kind.check(&engine.stat(who, of, path, false).await.map_err(|error| explained_of(of, error))?)?;
    }
    let recursive = kind != RemoveKind::File;
    engine.remove_path(who, of, path, recursive).await.map_err(|error| explained_of(of, error))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct RenameArguments {
    name: String,
    from: String,
    to: String,
    /// Replace what exists there.
    replace: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp::tools) struct Renamed {
    pub(in crate::mcp::tools) from: String,
    pub(in crate::mcp::tools) to: String,
    pub(in crate::mcp::tools) renamed: bool,
}

async fn rename(call: Call, arguments: RenameArguments) -> ToolResult<Renamed> {
    let which = call.sandbox(&arguments.name)?;
    let RenameArguments { from, to, replace, .. } = arguments;
    let renamed = call.engine().rename_path(&call.who, &which, &from, &to, replace.unwrap_or(false)).await;
    renamed.map_err(|error| {
        not_moved(error, &from, &to)
            .or_hint(ErrorKind::AlreadyExists, "Set replace to replace what exists there.")
    })?;
    Ok(Answer::new(Renamed { from, to, renamed: true }))
}
