//! `upload_file_to_sandbox`: a file that the caller sends along, or one of the server's that it may read.
//!
//! Theirs reads any file of the server for anyone. Here the operator says which may be read, which is none at first,
//! and the file can come with the call.

use engine::{ByteStream, PatchSource, SandboxRef, WriteOptions};
use futures_util::{StreamExt, stream};
use sandbox::{Error, ErrorKind, Thing, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{WORK_DIRECTORY, form::sentence, sandboxes, terminal::cancelled, words};
use crate::{
    hostfs::{Report, Source},
    mcp::{Answer, Call, Failure, ToolResult, from_base64},
};

const SEND_IT: &str = "Send the file itself, as content (text) or content_base64.";

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    sandbox_id: String,
    local_file_path: String,
    #[serde(default = "work_directory")]
    dest_path: String,
    content: Option<String>,
    content_base64: Option<String>,
}

fn work_directory() -> String {
    WORK_DIRECTORY.to_owned()
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Uploaded {
    success: bool,
    message: String,
    /// The file's path in the sandbox.
    path: String,
}

/// The file to write.
struct Upload {
    bytes: ByteStream,
    permissions: Option<u32>,
    /// How reading a file of the server went.
    report: Option<Report>,
}

pub(super) async fn upload(call: Call, arguments: Arguments) -> ToolResult<Uploaded> {
    let view = sandboxes::find(&call, &arguments.sandbox_id).await?;
    let name = file_name(&arguments.local_file_path)?.to_owned();
    let path = destination(&arguments.dest_path, &name);
    let (engine, which) = (call.engine(), SandboxRef::from(&view.id));
    let write = async {
        let Upload { bytes, permissions, report } = open(&call, arguments).await?;
        engine.ensure_running(&call.who, &which).await.map_err(words::failure)?;
        let options = WriteOptions { mode: WriteMode::Replace, permissions, parents: true };
        let written = engine.write_file(&call.who, &which, &path, options, bytes).await;
        // A failure at the host comes first: the sandbox only saw that the bytes broke off.
        if let Some(Err(error)) = report.and_then(|report| report.take()) {
            return Err(words::failure(error));
        }
        written.map_err(words::failure)
    };
    call.cancelled.run_until_cancelled(write).await.ok_or_else(cancelled)??;
    let message = format!("File {name} uploaded to {path}");
    Ok(Answer::new(Uploaded { success: true, message, path }))
}

async fn open(call: &Call, arguments: Arguments) -> Result<Upload, Failure> {
    let sent = match (arguments.content, arguments.content_base64) {
        (Some(_), Some(_)) => {
            return Err(Failure::invalid("content and content_base64 contradict each other")
                .with_hint("Send one of the two."));
        }
        (Some(text), None) => text.into_bytes(),
        (None, Some(base64)) => from_base64(&base64).map_err(|error| {
            Failure::invalid(format!("content_base64 is not base64: {error}"))
                .with_hint("Encode the bytes again, or send text as content.")
        })?,
        (None, None) => return of_server(call, &arguments.local_file_path).await,
    };
    let bytes = stream::iter((!sent.is_empty()).then(|| Ok(sent.into()))).boxed();
    Ok(Upload { bytes, permissions: None, report: None })
}

async fn of_server(call: &Call, path: &str) -> Result<Upload, Failure> {
    let source = Source::open(call, path).await.map_err(unread)?;
    match source.into_patch() {
        (PatchSource::File { mode, bytes }, report) => {
            Ok(Upload { bytes, permissions: Some(mode), report: Some(report) })
        }
        (PatchSource::Directory { .. }, _) => Err(Failure::invalid(format!("{path} is a directory"))
            .with_hint("Upload its files one by one, or an archive of it.")),
    }
}

fn unread(error: Error) -> Failure {
    let is_of_host = error.kind() == ErrorKind::NotFound || error.is_about(Thing::HostPath);
    if !is_of_host {
        return words::failure(error);
    }
    let hint = match words::hint(&error) {
        Some(allow) => format!("{SEND_IT} {}", sentence(&allow)),
        None => SEND_IT.to_owned(),
    };
    words::failure(error.with_hint(hint))
}

/// The last part of a path as any system writes it: the file may lie on another one.
fn file_name(path: &str) -> Result<&str, Failure> {
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    if matches!(name, "" | "." | "..") || name.contains('\0') {
        let shown: String = path.chars().take(80).collect();
        return Err(Failure::invalid(format!("local_file_path {shown:?} names no file"))
            .with_hint("Give the path of a file, such as /data/table.csv."));
    }
    Ok(name)
}

/// A relative directory is one below the working directory.
fn destination(directory: &str, name: &str) -> String {
    let directory = directory.trim_end_matches('/');
    match directory.is_empty() || directory.starts_with('/') {
        true => format!("{directory}/{name}"),
        false => format!("{WORK_DIRECTORY}/{directory}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_last_part_of_a_path() {
        for (path, name) in [("/a/b.csv", "b.csv"), ("b.csv", "b.csv"), (r"C:\data\b.csv", "b.csv")] {
            assert_eq!(file_name(path).unwrap(), name);
        }
        for path in ["", "/", "/a/..", ".", "a\0b"] {
            assert_eq!(file_name(path).unwrap_err().code(), "invalid_request", "{path:?}");
        }
    }

    #[test]
    fn destinations_are_directories() {
        for (directory, path) in [
            ("/app/results", "/app/results/x"),
            ("/app/results/", "/app/results/x"),
            ("/", "/x"),
            ("data", "/app/results/data/x"),
        ] {
            assert_eq!(destination(directory, "x"), path);
        }
    }
}
