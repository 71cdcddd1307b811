//! A file that a command made or changed, with the ways to it.

use engine::ChangedFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::links;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileLink {
    pub path: String,
    pub size: u64,
    pub mime_type: String,
    pub change: FileChange,
    /// The MCP resource that holds it.
    pub uri: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileChange {
    Created,
    Modified,
}

impl FileLink {
    /// `sandbox` is what the reader calls the sandbox: its name or its id.
    pub(crate) fn new(sandbox: &str, file: ChangedFile) -> Self {
        Self {
            mime_type: links::media_type(&file.path, false).to_owned(),
            uri: links::file_uri(sandbox, &file.path),
            path: file.path,
            size: file.size,
            change: match file.change {
                engine::FileChange::Created => FileChange::Created,
                engine::FileChange::Modified => FileChange::Modified,
            },
            url: None,
        }
    }
}
