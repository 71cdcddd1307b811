//! `sandbox_fs_link`: a file for a browser.

use std::time::Duration;

use engine::{LinkTarget, MAX_LINK_TTL};
use sandbox::{ErrorKind, FileKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::explained;
use crate::mcp::{
    Toolset,
    call::Call,
    envelope::{Answer, Failure, ToolResult},
    tool::{Hints, Tool},
};

const MAX_TTL_SECONDS: u64 = MAX_LINK_TTL.as_secs();

pub(super) fn tools() -> Vec<Tool> {
    vec![Tool::new(
        Toolset::Files,
        "sandbox_fs_link",
        "Link to a file",
        "Make a signed link to a file of a sandbox, which a browser opens without a key until it expires.",
        Hints { idempotent: false, ..Hints::READS },
        link,
    )]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LinkArguments {
    name: String,
    path: String,
    /// Default 3600
    #[schemars(range(min = 1, max = MAX_TTL_SECONDS))]
    ttl_seconds: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Link {
    url: String,
    expires_at: String,
}

async fn link(call: Call, arguments: LinkArguments) -> ToolResult<Link> {
    let LinkArguments { name, path, ttl_seconds } = arguments;
    let which = call.sandbox(&name)?;
    let entry = call.engine().stat(&call.who, &which, &path, true).await.map_err(explained)?;
    if entry.kind != FileKind::File {
        return Err(Failure::new(ErrorKind::WrongState.as_str(), format!("{path} is not a file"))
            .with_hint("Call sandbox_fs_list to see which files there are."));
    }
    let sandbox = call.engine().sandbox(&call.who, &which).await?.id;
    let ttl = ttl_seconds.map(Duration::from_secs);
    let (url, expires_at) =
        call.links().sign(&sandbox, &LinkTarget::File { path }, ttl).map_err(|error| {
            Failure::from(error).or_hint(
                ErrorKind::WrongState,
                "This daemon has no address for browsers. Call sandbox_fs_read for the content.",
            )
        })?;
    Ok(Answer::new(Link { url, expires_at: expires_at.to_string() }))
}
