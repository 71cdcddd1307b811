//! `sandbox_fs_copy_from_host`, `sandbox_fs_copy_to_host`.

use engine::{ByteStream, PatchSource, SandboxRef, WriteOptions};
use futures_util::StreamExt;
use sandbox::{Error, ErrorKind, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::explained;
use crate::{
    hostfs::{self, Source},
    mcp::{Answer, Call, Failure, Tool, ToolResult},
};

/// A caller who waits is told after each so many bytes.
const BYTES_PER_STEP: u64 = 8 * 1024 * 1024;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Files;
        // Not harmless: files at the new path are replaced.
        "sandbox_fs_copy_from_host", "Copy from the host", DESTROYS, from_host:
            "Copy a file or directory from the host into a sandbox. Only from allowed host paths.";
        // Not harmless: files at the new path are replaced.
        "sandbox_fs_copy_to_host", "Copy to the host", DESTROYS, to_host:
            "Copy a file or directory from a sandbox to the host. Only to host paths that are allowed for writing.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CopyArguments {
    name: String,
    host_path: String,
    guest_path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Copied {
    host_path: String,
    guest_path: String,
    copied: bool,
    files: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    skipped: u64,
}

fn answer(copied: hostfs::Copied, guest_path: String) -> Answer<Copied> {
    let warning = copied.warning();
    let hostfs::Copied { host_path, counts } = copied;
    Answer::new(Copied {
        host_path,
        guest_path,
        copied: true,
        files: counts.files,
        directories: counts.directories,
        links: counts.links,
        bytes: counts.bytes,
        skipped: counts.left_out,
    })
    .warn_all(warning)
}

fn cancelled() -> Failure {
    explained(Error::new(ErrorKind::Cancelled, "the copy was cancelled; part of it may exist"))
}

async fn from_host(call: Call, arguments: CopyArguments) -> ToolResult<Copied> {
    let which = call.sandbox(&arguments.name)?;
    let copy = async {
        let source = Source::open(&call, &arguments.host_path).await?;
        copy_in(&call, source, &which, &arguments.guest_path).await
    };
    let copied = call.cancelled.run_until_cancelled(copy).await.ok_or_else(cancelled)??;
    Ok(answer(copied, arguments.guest_path))
}

/// Copies into a sandbox. A file becomes `path`; what is in a directory comes beneath `path`. Missing directories are
/// made.
async fn copy_in(
    call: &Call,
    source: Source,
    which: &SandboxRef,
    path: &str,
) -> sandbox::Result<hostfs::Copied> {
    let host_path = source.shown();
    let (source, report) = source.into_patch();
    let (engine, who) = (call.engine(), &call.who);
    let written = match source {
        PatchSource::File { mode, bytes } => {
            let options = WriteOptions { mode: WriteMode::Replace, permissions: Some(mode), parents: true };
            engine.write_file(who, which, path, options, told(call, bytes)).await
        }
        PatchSource::Directory { tar } => {
            engine.mkdir(who, which, path, true, None).await?;
            engine.unpack(who, which, path, false, told(call, tar)).await
        }
    };
    // A failure at the host comes first: the sandbox only saw that the bytes broke off.
    let copied = report.take().transpose()?.unwrap_or_default();
    written?;
    Ok(hostfs::Copied { host_path, ..copied })
}

/// Watches the source of a patch: a caller who waits is told how far it is, and it ends when the caller cancels.
pub(in crate::mcp::tools) fn for_call(call: &Call, source: PatchSource) -> PatchSource {
    let watched = |bytes: ByteStream| {
        let cancelled = call.cancelled.clone();
        let watched = told(call, bytes).map(move |chunk| match cancelled.is_cancelled() {
            true => Err(Error::new(ErrorKind::Cancelled, "the call was cancelled")),
            false => chunk,
        });
        watched.boxed()
    };
    match source {
        PatchSource::File { mode, bytes } => PatchSource::File { mode, bytes: watched(bytes) },
        PatchSource::Directory { tar } => PatchSource::Directory { tar: watched(tar) },
    }
}

/// Tells a caller who waits how far the bytes are.
fn told(call: &Call, bytes: ByteStream) -> ByteStream {
    if !call.progress.is_wanted() {
        return bytes;
    }
    let progress = call.progress.clone();
    let mut done = 0_u64;
    bytes
        .then(move |chunk| {
            let before = done / BYTES_PER_STEP;
            done += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
            let (progress, done, is_due) = (progress.clone(), done, done / BYTES_PER_STEP > before);
            async move {
                if is_due {
                    progress.tell(done as f64, None, format!("{done} bytes copied")).await;
                }
                chunk
            }
        })
        .boxed()
}

async fn to_host(call: Call, arguments: CopyArguments) -> ToolResult<Copied> {
    let which = call.sandbox(&arguments.name)?;
    let watched = |bytes| told(&call, bytes);
    let (from, to) = (&arguments.guest_path, &arguments.host_path);
    let copy = hostfs::copy_out((&call).into(), call.engine(), &which, from, to, watched);
    let copied = call.cancelled.run_until_cancelled(copy).await.ok_or_else(cancelled)??;
    Ok(answer(copied, arguments.guest_path))
}
