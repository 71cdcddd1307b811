//! Files on the wire.

use std::{fmt, str::FromStr};

use sandbox::{FileKind, WriteMode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Permission bits, written as people write them: `"0644"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^[0-7]{1,4}$", min_length = 1, max_length = 4, example = "0644")]
pub struct Octal(pub u32);

impl fmt::Display for Octal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl FromStr for Octal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        let is_octal = digits.len() <= 5 && digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        match u32::from_str_radix(digits, 8) {
            Ok(bits) if is_octal && bits <= 0o7777 => Ok(Self(bits)),
            _ => Err(format!("{:?} is not a mode; write octal digits such as 0644", cut(text))),
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(32).collect()
}

impl TryFrom<String> for Octal {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Octal> for String {
    fn from(mode: Octal) -> Self {
        mode.to_string()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// Absolute. Bytes that are not UTF-8 are replaced.
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    pub mode: Octal,
    pub uid: u32,
    pub gid: u32,
    pub modified_at_ms: i64,
    /// The target of a symlink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl From<sandbox::FileEntry> for FileEntry {
    fn from(entry: sandbox::FileEntry) -> Self {
        Self {
            path: entry.path,
            kind: entry.kind,
            size: entry.size,
            mode: Octal(entry.mode),
            uid: entry.uid,
            gid: entry.gid,
            modified_at_ms: entry.modified_at_ms,
            target: entry.target,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    pub entries: Vec<FileEntry>,
    /// Whether there were more than `limit`.
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathList {
    pub paths: Vec<String>,
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrepMatch {
    pub path: String,
    /// From 1.
    pub line: u64,
    /// The line without its end, cut to a readable length.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrepMatches {
    pub matches: Vec<GrepMatch>,
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Written {
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkTarget {
    pub target: String,
}

/// Something changed below a watched path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchEvent {
    /// `created`, `modified`, `removed`, `renamed`, or `overflow`: events were lost, look again.
    pub kind: String,
    pub path: String,
    /// The old path of a rename, if it was watched too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

query!(ReadQuery {
    pub path: String,
    /// First byte wanted.
    #[serde(default)]
    pub offset: u64,
    /// At most this many bytes.
    pub length: Option<u64>,
});

query!(WriteQuery {
    pub path: String,
    /// Permission bits in octal.
    pub mode: Option<Octal>,
    /// `replace` (whole or not at all), `append` or `createNew`.
    #[serde(default)]
    pub write: WriteMode,
    /// Make missing directories.
    #[serde(default)]
    pub parents: bool,
});

query!(StatQuery {
    pub path: String,
    /// Follow a symlink to its target.
    #[serde(default)]
    pub follow: bool,
});

query!(ListQuery {
    pub path: String,
    #[serde(default)]
    pub recursive: bool,
    /// Maximum number of entries; 1000 by default.
    pub limit: Option<u32>,
});

query!(GlobQuery {
    /// The directory to search.
    pub root: String,
    /// Such as `**/*.rs`.
    pub pattern: String,
    pub limit: Option<u32>,
});

query!(GrepQuery {
    pub root: String,
    /// A regular expression.
    pub pattern: String,
    /// A glob that file names must match.
    pub include: Option<String>,
    #[serde(default)]
    pub ignore_case: bool,
    /// Take the pattern as plain text.
    #[serde(default)]
    pub literal: bool,
    pub limit: Option<u32>,
});

query!(ArchiveQuery {
    pub path: String,
});

query!(ArchiveInQuery {
    /// The directory to unpack into.
    pub path: String,
    /// Keep the archive's owners; otherwise everything belongs to root inside.
    #[serde(default)]
    pub keep_ids: bool,
});

query!(WatchQuery {
    pub path: String,
    #[serde(default)]
    pub recursive: bool,
});

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MkdirRequest {
    pub path: String,
    /// Make missing parents, and be content with a directory that is there.
    #[serde(default)]
    pub parents: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Octal>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveRequest {
    pub path: String,
    #[serde(default)]
    pub recursive: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CopyRequest {
    pub from: String,
    pub to: String,
    #[serde(default)]
    pub recursive: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenameRequest {
    pub from: String,
    pub to: String,
    /// Replace what exists at `to`.
    #[serde(default)]
    pub replace: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SymlinkRequest {
    pub target: String,
    pub path: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChmodRequest {
    pub path: String,
    pub mode: Octal,
    #[serde(default)]
    pub recursive: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChownRequest {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    #[serde(default)]
    pub recursive: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_text() {
        for (text, bits) in [("0644", 0o644), ("755", 0o755), ("0o600", 0o600), ("4755", 0o4755)] {
            assert_eq!(text.parse(), Ok(Octal(bits)), "{text:?}");
        }
        for text in ["", "8", "-1", "99999", "10000", "rw-r--r--", "0x1ff", "+7"] {
            assert!(text.parse::<Octal>().is_err(), "{text:?}");
        }
        assert_eq!(Octal(0o7).to_string(), "0007");
    }
}
