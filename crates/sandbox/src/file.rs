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
    /// Absolute. Bytes that are not UTF-8 are replaced; such a name can be read by `cp` only.
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    /// Permission bits, without the kind.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified_at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// What a write does to what is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum WriteMode {
    /// Written beside and moved into place: a reader sees the old file or the new one, never a part.
    #[default]
    Replace,
    Append,
    /// Refused when something is there.
    CreateNew,
}
