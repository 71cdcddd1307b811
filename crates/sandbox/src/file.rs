//! Files as callers see them.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// Absolute. Bytes that are not UTF-8 are replaced; only `cp` can read a file with such a name.
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    /// Permission bits, without the file type.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified_at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// The effect of a write on an existing file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum WriteMode {
    /// Written to a temporary file and renamed: a reader sees the old file or the new one, never a part.
    #[default]
    Replace,
    Append,
    /// Refused if the path exists.
    CreateNew,
}
