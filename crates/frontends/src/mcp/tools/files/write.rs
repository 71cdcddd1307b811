//! `sandbox_fs_write`.

use engine::WriteOptions;
use sandbox::{Error, ErrorKind, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Encoding, explained, explained_at, octal, once};
use crate::mcp::{Answer, Call, Failure, Tool, ToolResult, next_call::written};

pub(super) fn tools() -> Vec<Tool> {
    tools! { Files;
        // It replaces what is there, and appending twice is not the same as once.
        "sandbox_fs_write", "Write a file", DESTROYS_MORE, write, core:
            "Write a file in a sandbox, creating missing directories. Replaces the file, unless append or createNew is set.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WriteArguments {
    name: String,
    path: String,
    content: String,
    encoding: Option<Encoding>,
    append: Option<bool>,
    /// Fail if the path exists.
    create_new: Option<bool>,
    /// Octal, such as 755.
    mode: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp::tools) struct Written {
    pub(in crate::mcp::tools) path: String,
    pub(in crate::mcp::tools) encoding: Encoding,
    /// Bytes.
    pub(in crate::mcp::tools) written: u64,
}

/// The failure of a write to a full disk. The same call succeeds only after room was made.
fn is_full(name: &str, error: Error) -> Failure {
    let look = written("sandbox_shell", &json!({ "name": name, "command": "df -h" }));
    Failure::from(error).retryable(false).with_hint(format!(
        "See with {look} what is full, and remove files, or create a sandbox with a larger diskMib."
    ))
}

async fn write(call: Call, arguments: WriteArguments) -> ToolResult<Written> {
    let which = call.sandbox(&arguments.name)?;
    let mode = match (arguments.append.unwrap_or(false), arguments.create_new.unwrap_or(false)) {
        (true, true) => {
            return Err(Failure::invalid("append and createNew contradict each other")
                .with_hint("Set one of them, or none to replace the file."));
        }
        (true, false) => WriteMode::Append,
        (false, true) => WriteMode::CreateNew,
        (false, false) => WriteMode::Replace,
    };
    let permissions = octal(arguments.mode.as_deref())?;
    let encoding = arguments.encoding.unwrap_or_default();
    let bytes = once(encoding.decode(arguments.content)?);
    let options = WriteOptions { mode, permissions, parents: true };
    let engine = call.engine();
    let path = arguments.path;
    let written = match engine.write_file(&call.who, &which, &path, options, bytes).await {
        Ok(written) => written,
        Err(error) if error.kind() == ErrorKind::LimitReached => return Err(is_full(&arguments.name, error)),
        Err(error) => {
            return Err(explained_at(&call, &which, &arguments.name, &path, error).await.or_hint(
                ErrorKind::AlreadyExists,
                "Omit createNew to replace it, or write to another path.",
            ));
        }
    };
    if let Some(permissions) = permissions.filter(|_| mode != WriteMode::CreateNew) {
        // A file that was there keeps its own bits when it is written.
        engine.chmod(&call.who, &which, &path, permissions, false).await.map_err(explained)?;
    }
    Ok(Answer::new(Written { path, encoding, written }))
}
