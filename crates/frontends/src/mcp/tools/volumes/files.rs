//! Files of volumes. Paths begin at the volume's root, with or without a slash.

use engine::{VolumeRef, WriteOptions};
use sandbox::{ErrorKind, FileKind, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{explained, meant};
use crate::mcp::{
    Toolset,
    call::Call,
    envelope::{Answer, Failure, INTO_ITSELF, ToolResult, Truncated},
    tool::{Hints, Tool},
    tools::files::{
        Encoding, FsEntry, FsMeta, MAX_LIMIT, Part, RemoveKind, collect, listed_entries, not_text, once,
    },
};

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            Toolset::Volumes,
            "volume_fs_read",
            "Read a volume's file",
            "Read a file of a volume, or bytes of it from an offset. No sandbox is needed.",
            Hints::READS,
            read,
        ),
        Tool::new(
            Toolset::Volumes,
            "volume_fs_write",
            "Write a volume's file",
            "Write a file of a volume whole, making missing directories. No sandbox is needed.",
            // It replaces what is there.
            Hints::DESTROYS,
            write,
        ),
        Tool::new(
            Toolset::Volumes,
            "volume_fs_list",
            "List a volume's directory",
            "List a directory of a volume, or everything beneath it with recursive.",
            Hints::READS,
            list,
        ),
        Tool::new(
            Toolset::Volumes,
            "volume_fs_stat",
            "Look at a volume's path",
            "Tell what is at a path of a volume: kind, size, mode, owner and times.",
            Hints::READS,
            stat,
        ),
        Tool::new(
            Toolset::Volumes,
            "volume_fs_exists",
            "Check a volume's path",
            "Tell whether something is at a path of a volume.",
            Hints::READS,
            exists,
        ),
        Tool::new(
            Toolset::Volumes,
            "volume_fs_mkdir",
            "Make a volume's directory",
            "Make a directory in a volume, with those above it that are missing.",
            Hints::SETS,
            mkdir,
        ),
        Tool::new(
            Toolset::Volumes,
            "volume_fs_remove",
            "Remove a volume's path",
            "Remove a file, or a directory with everything in it, from a volume.",
            Hints::DESTROYS,
            remove,
        ),
        Tool::new(
            Toolset::Volumes,
            "volume_fs_copy",
            "Copy within a volume",
            "Copy a file or a directory within a volume, making missing directories.",
            // It replaces what is there.
            Hints::DESTROYS,
            copy,
        ),
        Tool::new(
            Toolset::Volumes,
            "volume_fs_rename",
            "Rename within a volume",
            "Move a file or directory within a volume, making missing directories. A file at the new path is replaced.",
            Hints::DESTROYS_MORE,
            rename,
        ),
    ]
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
                .with_hint("Paths begin at the volume's root; / is the root itself."));
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
    // One more than fits, to see whether that was all.
    let length = Some(max as u64 + 1);
    let opened = call.engine().read_file(&call.who, &which, &path, offset, length).await;
    let (entry, stream) = opened.map_err(explained)?;
    let (bytes, is_cut) = collect(stream, max).await.map_err(explained)?;
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

#[derive(Debug, Serialize, JsonSchema)]
struct Written {
    name: String,
    path: String,
    encoding: Encoding,
    /// Bytes.
    written: u64,
}

async fn write(call: Call, arguments: WriteArguments) -> ToolResult<Written> {
    let WriteArguments { name, path, content, encoding } = arguments;
    let which = meant(&call, &name)?;
    let encoding = encoding.unwrap_or_default();
    let bytes = once(encoding.decode(content)?);
    let options = WriteOptions { mode: WriteMode::Replace, permissions: None, parents: true };
    let written = call.engine().write_file(&call.who, &which, &within(&path)?, options, bytes).await;
    let written = written.map_err(explained)?;
    Ok(Answer::new(Written { name, path, encoding, written }))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ListArguments {
    name: String,
    path: String,
    recursive: Option<bool>,
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u32>,
}

async fn list(call: Call, arguments: ListArguments) -> ToolResult<Vec<FsEntry>> {
    let which = meant(&call, &arguments.name)?;
    let (recursive, limit) = (arguments.recursive.unwrap_or(false), arguments.limit.unwrap_or(MAX_LIMIT));
    let path = within(&arguments.path)?;
    let listed = call.engine().list(&call.who, &which, &path, recursive, limit).await;
    Ok(listed_entries(listed.map_err(explained)?))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct StatArguments {
    name: String,
    path: String,
    /// What a symlink leads to, instead of the link.
    follow: Option<bool>,
}

async fn stat(call: Call, arguments: StatArguments) -> ToolResult<FsMeta> {
    let which = meant(&call, &arguments.name)?;
    let (path, follow) = (within(&arguments.path)?, arguments.follow.unwrap_or(false));
    let entry = call.engine().stat(&call.who, &which, &path, follow).await.map_err(explained)?;
    Ok(Answer::new(FsMeta::from(entry)))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct PathArguments {
    name: String,
    path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Exists {
    name: String,
    path: String,
    exists: bool,
}

async fn exists(call: Call, arguments: PathArguments) -> ToolResult<Exists> {
    let PathArguments { name, path } = arguments;
    let which = meant(&call, &name)?;
    let exists = match call.engine().stat(&call.who, &which, &within(&path)?, true).await {
        Ok(_) => true,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WrongState) => {
            // Only where it is the path that is missing, or leads through a file, and not the volume.
            call.engine().volume(&call.who, &which).await.map_err(explained)?;
            false
        }
        Err(error) => return Err(explained(error)),
    };
    Ok(Answer::new(Exists { name, path, exists }))
}

#[derive(Debug, Serialize, JsonSchema)]
struct Made {
    name: String,
    path: String,
    created: bool,
}

async fn mkdir(call: Call, arguments: PathArguments) -> ToolResult<Made> {
    let PathArguments { name, path } = arguments;
    let which = meant(&call, &name)?;
    call.engine().mkdir(&call.who, &which, &within(&path)?, true, None).await.map_err(explained)?;
    Ok(Answer::new(Made { name, path, created: true }))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct RemoveArguments {
    name: String,
    path: String,
    /// Refuse anything else; auto takes both.
    kind: Option<RemoveKind>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Removed {
    name: String,
    path: String,
    removed: bool,
}

async fn remove(call: Call, arguments: RemoveArguments) -> ToolResult<Removed> {
    let RemoveArguments { name, path, kind } = arguments;
    let (which, at, kind) = (meant(&call, &name)?, within(&path)?, kind.unwrap_or_default());
    let (engine, who) = (call.engine(), &call.who);
    if kind != RemoveKind::Auto {
        kind.check(&engine.stat(who, &which, &at, false).await.map_err(explained)?)?;
    }
    let recursive = kind != RemoveKind::File;
    engine.remove_path(who, &which, &at, recursive).await.map_err(explained)?;
    Ok(Answer::new(Removed { name, path, removed: true }))
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
        return Err(Failure::invalid(format!("{target} lies in {source}, which cannot come into itself"))
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

#[derive(Debug, Serialize, JsonSchema)]
struct Renamed {
    name: String,
    from: String,
    to: String,
    renamed: bool,
}

async fn rename(call: Call, arguments: MoveArguments) -> ToolResult<Renamed> {
    let MoveArguments { name, from, to } = arguments;
    let (which, source, target) = (meant(&call, &name)?, within(&from)?, within(&to)?);
    make_way(&call, &which, &source, &target).await?;
    if source != target {
        let renamed = call.engine().rename_path(&call.who, &which, &source, &target, true).await;
        renamed.map_err(|error| {
            let hint = "Call volume_fs_remove for what is there, or choose another to.";
            explained(error).or_hint(ErrorKind::AlreadyExists, hint).or_hint(ErrorKind::WrongState, hint)
        })?;
    }
    Ok(Answer::new(Renamed { name, from, to, renamed: true }))
}
