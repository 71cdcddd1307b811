//! `sandbox_fs_copy`: within a sandbox, or from one to another.

use std::{
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use engine::{ByteStream, SandboxRef, WriteOptions};
use sandbox::{Error, ErrorKind, FileEntry, FileKind, Result, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{explained, not_moved};
use crate::mcp::{Answer, Call, Failure, Tool, ToolResult};

/// Files that are counted after a tree was copied.
const MAX_LISTED: u32 = 10_000;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Files;
        // Not harmless: a file at the new path is replaced.
        "sandbox_fs_copy", "Copy a path", DESTROYS, copy:
            "Copy a file or directory within a sandbox, or to another one with toSandbox. A file at the new path is replaced.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CopyArguments {
    name: String,
    from: String,
    to: String,
    to_sandbox: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Copied {
    from: Side,
    to: Side,
    copied: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Side {
    sandbox: String,
    path: String,
}

async fn copy(call: Call, arguments: CopyArguments) -> ToolResult<Copied> {
    let CopyArguments { name, from, to, to_sandbox } = arguments;
    let to_sandbox = to_sandbox.unwrap_or_else(|| name.clone());
    let (source, target) = (call.sandbox(&name)?, call.sandbox(&to_sandbox)?);
    let engine = call.engine();
    let source_id = engine.sandbox(&call.who, &source).await?.id;
    let is_same = engine.sandbox(&call.who, &target).await?.id == source_id;
    let entry = engine.stat(&call.who, &source, &from, true).await.map_err(explained)?;
    check(&entry, &from)?;
    if let Some(above) = parent(&to) {
        engine.mkdir(&call.who, &target, above, true, None).await.map_err(explained)?;
    }
    let is_directory = entry.kind == FileKind::Directory;
    let bytes = if is_same {
        let copied = engine.copy_path(&call.who, &source, &from, &to, is_directory).await;
        copied.map_err(|error| not_moved(error, &from, &to))?;
        None
    } else if is_directory {
        copy_tree(&call, (&source, &from), (&target, &to)).await?
    } else {
        let (entry, bytes) = engine.read_file(&call.who, &source, &from, 0, None).await.map_err(explained)?;
        // Bits that lend the owner's rights do not go to another owner's file.
        let permissions = Some(entry.mode & 0o777);
        let options = WriteOptions { mode: WriteMode::Replace, permissions, parents: true };
        Some(engine.write_file(&call.who, &target, &to, options, bytes).await.map_err(explained)?)
    };
    Ok(Answer::new(Copied {
        from: Side { sandbox: name, path: from },
        to: Side { sandbox: to_sandbox, path: to },
        copied: true,
        bytes,
    }))
}

fn check(entry: &FileEntry, from: &str) -> Result<(), Failure> {
    match entry.kind {
        FileKind::File | FileKind::Directory => Ok(()),
        FileKind::Symlink | FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            let message = format!("{from} is neither a file nor a directory");
            Err(Failure::new(ErrorKind::WrongState, message)
                .with_hint("Pipes, sockets and devices cannot be copied."))
        }
    }
}

fn parent(path: &str) -> Option<&str> {
    let (above, _) = path.trim_end_matches('/').rsplit_once('/')?;
    (!above.is_empty()).then_some(above)
}

/// As a stream of tar, unpacked beside the new path and then moved there: it appears whole.
async fn copy_tree(
    call: &Call,
    (source, from): (&SandboxRef, &str),
    (target, to): (&SandboxRef, &str),
) -> Result<Option<u64>, Failure> {
    let engine = call.engine();
    let Some(base) = from.trim_end_matches('/').rsplit('/').next().filter(|base| !base.is_empty()) else {
        return Err(Failure::invalid("cannot copy the whole file system to another sandbox")
            .with_hint("Copy the directories that you need."));
    };
    if matches!(base, "." | "..") {
        return Err(Failure::invalid(format!("{from} does not end with a name"))
            .with_hint("Give the full path of the directory."));
    }
    match engine.stat(&call.who, target, to, false).await {
        Ok(_) => {
            return Err(Failure::from(Error::new(ErrorKind::AlreadyExists, format!("{to} exists")))
                .with_hint("Remove it with sandbox_fs_remove, or copy to another path."));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(explained(error)),
    }
    let packed = engine.pack(&call.who, source, from).await.map_err(explained)?;
    let beside = beside(to);
    engine.mkdir(&call.who, target, &beside, false, None).await.map_err(explained)?;
    let moved = unpack(call, target, packed, &beside, base, to).await;
    let swept = engine.remove_path(&call.who, target, &beside, true).await;
    moved.map_err(explained)?;
    swept.map_err(explained)?;
    size_of(call, target, to).await.map_err(explained)
}

async fn unpack(
    call: &Call,
    target: &SandboxRef,
    packed: ByteStream,
    beside: &str,
    base: &str,
    to: &str,
) -> Result<()> {
    let engine = call.engine();
    engine.unpack(&call.who, target, beside, false, packed).await?;
    let unpacked = match engine.list(&call.who, target, beside, false, 2).await?.entries.as_slice() {
        // Named by where it really is, if the path led through a link.
        [only] => only.path.clone(),
        _ => format!("{beside}/{base}"),
    };
    engine.rename_path(&call.who, target, &unpacked, to.trim_end_matches('/'), false).await
}

/// Bytes of all files of a tree that was copied, where one listing shows them all.
async fn size_of(call: &Call, target: &SandboxRef, to: &str) -> Result<Option<u64>> {
    let found = call.engine().list(&call.who, target, to, true, MAX_LISTED).await?;
    let files = found.entries.iter().filter(|entry| entry.kind == FileKind::File);
    Ok((!found.truncated).then(|| files.map(|entry| entry.size).sum()))
}

fn beside(to: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let above = parent(to).unwrap_or("");
    format!("{above}/.warren-copy-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
