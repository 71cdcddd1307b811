//! Files of volumes. Paths begin at the volume's root, with or without a slash.

use engine::{VolumeRef, WriteOptions};
use sandbox::{ErrorKind, FileKind, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{explained, meant};
use crate::mcp::{
    Answer, Call, Failure, Tool, ToolResult, Truncated,
    envelope::INTO_ITSELF,
    tools::files::{
        Encoding, Exists, FsEntry, FsMeta, ListArguments, MAX_LIMIT, Made, Part, PathArguments,
        RemoveArguments, Removed, Renamed, StatArguments, Written, is_there, listed_entries, not_text, once,
        read_up_to, remove_path,
    },
};

pub(super) fn tools() -> Vec<Tool> {
    tools! { Volumes;
        "volume_fs_read", "Read a volume's file", READS, read:
            "Read a file in a volume, or bytes of it from an offset. No sandbox is needed.";
        // It replaces what is there.
        "volume_fs_write", "Write a volume's file", DESTROYS, write:
            "Write a whole file in a volume, creating missing directories. No sandbox is needed.";
        "volume_fs_list", "List a volume's directory", READS, list:
            "List a directory in a volume, or everything below it with recursive.";
        "volume_fs_stat", "Stat a volume's path", READS, stat:
            "Get the kind, size, mode, owner and times of a path in a volume.";
        "volume_fs_exists", "Check a volume's path", READS, exists:
            "Check whether a path exists in a volume.";
        "volume_fs_mkdir", "Create a volume's directory", SETS, mkdir:
            "Create a directory in a volume, with missing parents.";
        "volume_fs_remove", "Remove a volume's path", DESTROYS, remove:
            "Remove a file, or a directory with everything in it, from a volume.";
        // It replaces what is there.
        "volume_fs_copy", "Copy within a volume", DESTROYS, copy:
            "Copy a file or a directory within a volume, creating missing directories.";
        "volume_fs_rename", "Rename within a volume", DESTROYS_MORE, rename:
            "Move a file or directory within a volume, creating missing directories. Replaces a file at the new path.";
    }
}

/// An answer of the tools for sandboxes, with the name of the volume before it.
#[derive(Debug, Serialize, JsonSchema)]
struct InVolume<D> {
    name: String,
    #[serde(flatten)]
    answer: D,
}

/// The path as the engine takes it and as answers tell it: from the root, without `.` and `..`. Nothing could leave the
/// volume; what asks to is told so.
fn within(path: &str) -> Result<String, Failure> {
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part != ".." {
            parts.push(part);
        } else if parts.pop().is_none() {
            let shown: String = path.chars().take(80).collect();
            return Err(Failure::invalid(format!("path traversal outside volume root: {shown}"))
                .with_hint("Paths start at the volume's root, which is /."));
        }
    }
    Ok(format!("/{}", parts.join("/")))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadArguments {
    name: String,
    path: String,
    encoding: Option<Encoding>,
    #[schemars(range(min = 1))]
    max_bytes: Option<u64>,
    offset: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Read {
    name: String,
    path: String,
    encoding: Encoding,
    content: String,
    size: u64,
}

async fn read(call: Call, arguments: ReadArguments) -> ToolResult<Read> {
    let which = meant(&call, &arguments.name)?;
    let (path, max) = (within(&arguments.path)?, call.max_bytes(arguments.max_bytes));
    let (offset, encoding) = (arguments.offset.unwrap_or(0), arguments.encoding.unwrap_or_default());
    let read = read_up_to(call.engine(), &call.who, &which, &path, offset, max).await;
    let (entry, bytes, is_cut) = read.map_err(explained)?;
    let part = Part::of(encoding, &bytes, offset, is_cut);
    let end = offset + (part.skipped + part.used) as u64;
    let cut = is_cut.then(|| Truncated {
        field: "content".to_owned(),
        returned_bytes: part.used as u64,
        total_bytes: entry.size.saturating_sub(offset).max(part.used as u64 + 1),
        hint: Some(format!("Call volume_fs_read with offset {end} for the rest.")),
    });
    let answer = Answer::new(Read {
        name: arguments.name,
        path: arguments.path,
        encoding,
        content: part.content,
        size: entry.size.max(end),
    });
    Ok(answer.truncate(cut).warn_all(part.is_lossy.then(not_text)))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct WriteArguments {
    name: String,
    path: String,
    content: String,
    encoding: Option<Encoding>,
}

async fn write(call: Call, arguments: WriteArguments) -> ToolResult<InVolume<Written>> {
    let WriteArguments { name, path, content, encoding } = arguments;
    let which = meant(&call, &name)?;
    let encoding = encoding.unwrap_or_default();
    let bytes = once(encoding.decode(content)?);
    let options = WriteOptions { mode: WriteMode::Replace, permissions: None, parents: true };
    let written = call.engine().write_file(&call.who, &which, &within(&path)?, options, bytes).await;
    let written = written.map_err(explained)?;
    Ok(Answer::new(InVolume { name, answer: Written { path, encoding, written } }))
}

async fn list(call: Call, arguments: ListArguments) -> ToolResult<Vec<FsEntry>> {
    let which = meant(&call, &arguments.name)?;
    let (recursive, limit) = (arguments.recursive.unwrap_or(false), arguments.up_to(MAX_LIMIT));
    let path = within(&arguments.path)?;
    let listed = call.engine().list(&call.who, &which, &path, recursive, limit).await;
    Ok(listed_entries(&call, "volume_fs", &arguments, listed.map_err(explained)?))
}

async fn stat(call: Call, arguments: StatArguments) -> ToolResult<FsMeta> {
    let which = meant(&call, &arguments.name)?;
    let (path, follow) = (within(&arguments.path)?, arguments.follow.unwrap_or(false));
    let entry = call.engine().stat(&call.who, &which, &path, follow).await.map_err(explained)?;
    Ok(Answer::new(FsMeta::from(entry)))
}

async fn exists(call: Call, arguments: PathArguments) -> ToolResult<InVolume<Exists>> {
    let PathArguments { name, path } = arguments;
    let exists = is_there(&call, (&meant(&call, &name)?).into(), &within(&path)?).await?;
    Ok(Answer::new(InVolume { name, answer: Exists { path, exists } }))
}

async fn mkdir(call: Call, arguments: PathArguments) -> ToolResult<InVolume<Made>> {
    let PathArguments { name, path } = arguments;
    let which = meant(&call, &name)?;
    call.engine().mkdir(&call.who, &which, &within(&path)?, true, None).await.map_err(explained)?;
    Ok(Answer::new(InVolume { name, answer: Made { path, created: true } }))
}

async fn remove(call: Call, arguments: RemoveArguments) -> ToolResult<InVolume<Removed>> {
    let RemoveArguments { name, path, kind } = arguments;
    remove_path(&call, (&meant(&call, &name)?).into(), &within(&path)?, kind).await?;
    Ok(Answer::new(InVolume { name, answer: Removed { path, removed: true } }))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct MoveArguments {
    name: String,
    from: String,
    to: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Copied {
    name: String,
    from: String,
    to: String,
    copied: bool,
}

/// Makes the directories that lead to the target, where there is something to bring there.
async fn make_way(call: &Call, which: &VolumeRef, source: &str, target: &str) -> Result<(), Failure> {
    let (engine, who) = (call.engine(), &call.who);
    let found = engine.stat(who, which, source, false).await.map_err(explained)?;
    let is_beneath = target.strip_prefix(source).is_some_and(|rest| rest.starts_with('/')) || source == "/";
    if is_beneath && found.kind == FileKind::Directory {
        return Err(Failure::invalid(format!(
            "{target} is inside {source}; a directory cannot be copied or moved into itself"
        ))
        .with_hint(INTO_ITSELF));
    }
    match target.rsplit_once('/') {
        None | Some(("", _)) => Ok(()),
        Some((parent, _)) => engine.mkdir(who, which, parent, true, None).await.map_err(explained),
    }
}

async fn copy(call: Call, arguments: MoveArguments) -> ToolResult<Copied> {
    let MoveArguments { name, from, to } = arguments;
    let (which, source, target) = (meant(&call, &name)?, within(&from)?, within(&to)?);
    make_way(&call, &which, &source, &target).await?;
    let copied = call.engine().copy_path(&call.who, &which, &source, &target, true).await;
    copied.map_err(|error| {
        let is_into_itself = sandbox::is_beneath(&target, &source);
        let failure = explained(error);
        if is_into_itself { failure.or_hint(ErrorKind::InvalidRequest, INTO_ITSELF) } else { failure }
    })?;
    Ok(Answer::new(Copied { name, from, to, copied: true }))
}

async fn rename(call: Call, arguments: MoveArguments) -> ToolResult<InVolume<Renamed>> {
    let MoveArguments { name, from, to } = arguments;
    let (which, source, target) = (meant(&call, &name)?, within(&from)?, within(&to)?);
    make_way(&call, &which, &source, &target).await?;
    if source != target {
        let renamed = call.engine().rename_path(&call.who, &which, &source, &target, true).await;
        renamed.map_err(|error| {
            let hint = "Call volume_fs_remove for the existing path, or choose another one.";
            explained(error).or_hint(ErrorKind::AlreadyExists, hint).or_hint(ErrorKind::WrongState, hint)
        })?;
    }
    Ok(Answer::new(InVolume { name, answer: Renamed { from, to, renamed: true } }))
}
