//! `sandbox_fs_copy_from_host`, `sandbox_fs_copy_to_host`.

use sandbox::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::explained;
use crate::mcp::{
    Toolset,
    call::Call,
    envelope::{Answer, Failure, ToolResult},
    hostfs::{self, Source},
    tool::{Hints, Tool},
};

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            Toolset::Files,
            "sandbox_fs_copy_from_host",
            "Copy from the host",
            "Copy a file or directory of the host into a sandbox. Only beneath host paths that were allowed.",
            // Not harmless: files at the new path are replaced.
            Hints::DESTROYS,
            from_host,
        ),
        Tool::new(
            Toolset::Files,
            "sandbox_fs_copy_to_host",
            "Copy to the host",
            "Copy a file or directory of a sandbox to the host. Only beneath host paths that were allowed for writing.",
            // Not harmless: files at the new path are replaced.
            Hints::DESTROYS,
            to_host,
        ),
    ]
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
    Answer::new(Copied {
        host_path: copied.host_path,
        guest_path,
        copied: true,
        files: copied.files,
        directories: copied.directories,
        links: copied.links,
        bytes: copied.bytes,
        skipped: copied.skipped,
    })
    .warn_all(warning)
}

fn cancelled() -> Failure {
    explained(Error::new(ErrorKind::Cancelled, "the copy was given up; a part of it may be there"))
}

async fn from_host(call: Call, arguments: CopyArguments) -> ToolResult<Copied> {
    let which = call.sandbox(&arguments.name)?;
    let copy = async {
        let source = Source::open(&call, &arguments.host_path).await?;
        source.copy_into(&call, &which, &arguments.guest_path).await
    };
    let copied = call.cancelled.run_until_cancelled(copy).await.ok_or_else(cancelled)??;
    Ok(answer(copied, arguments.guest_path))
}

async fn to_host(call: Call, arguments: CopyArguments) -> ToolResult<Copied> {
    let which = call.sandbox(&arguments.name)?;
    let copy = hostfs::copy_out(&call, &which, &arguments.guest_path, &arguments.host_path);
    let copied = call.cancelled.run_until_cancelled(copy).await.ok_or_else(cancelled)??;
    Ok(answer(copied, arguments.guest_path))
}
