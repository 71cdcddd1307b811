//! `sandbox_fs_*`: files inside a sandbox.

mod change;
mod copy;
mod edit;
mod host;
#[cfg(test)]
mod host_stories;
mod link;
mod list;
mod ports;
mod read;
mod search;
#[cfg(test)]
mod stories;
mod tree;
mod write;

use engine::{ByteStream, Engine, FilesOf, Principal, SandboxRef};
use futures_util::TryStreamExt;
use jiff::Timestamp;
use sandbox::{Error, ErrorKind, FileEntry, FileKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(super) use self::{
    change::{Made, RemoveArguments, Removed, Renamed, remove_path},
    host::for_call,
    list::{
        Exists, FsEntry, FsMeta, ListArguments, MAX_LIMIT, PathArguments, StatArguments, is_there,
        listed_entries,
    },
    read::{Part, not_text},
    write::Written,
};
use crate::mcp::{Call, Failure, Tool, envelope::INTO_ITSELF, next_call::written, octets::from_base64};

/// Every tool for files, in the order in which they are listed.
pub(super) fn tools() -> Vec<Tool> {
    let groups = [
        read::tools(),
        write::tools(),
        edit::tools(),
        list::tools(),
        tree::tools(),
        search::tools(),
        change::tools(),
        copy::tools(),
        host::tools(),
        link::tools(),
        ports::tools(),
    ];
    groups.into_iter().flatten().collect()
}

// How bytes stand in JSON. No comment for the schema: the names say it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Encoding {
    #[default]
    Utf8,
    Base64,
}

impl Encoding {
    /// The bytes that a caller wrote down.
    pub(super) fn decode(self, content: String) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Utf8 => Ok(content.into_bytes()),
            Self::Base64 => from_base64(&content).map_err(|error| {
                Failure::invalid(format!("content is not base64: {error}"))
                    .with_hint("Encode the bytes again, or omit encoding for text.")
            }),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    Other,
}

impl From<FileKind> for Kind {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::File => Self::File,
            FileKind::Directory => Self::Directory,
            FileKind::Symlink => Self::Symlink,
            FileKind::Fifo | FileKind::Socket | FileKind::Device => Self::Other,
        }
    }
}

/// The mode as `stat` gives it: the kind beside the permission bits.
pub(super) fn full_mode(entry: &FileEntry) -> u32 {
    let kind = match entry.kind {
        FileKind::File => 0o100_000,
        FileKind::Directory => 0o040_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Fifo => 0o010_000,
        FileKind::Socket => 0o140_000,
        // Which of the two kinds of device it is, is not known.
        FileKind::Device => 0o020_000,
    };
    kind | entry.mode
}

/// ISO 8601. A time that no calendar has is the epoch.
pub(super) fn iso(at_ms: i64) -> String {
    Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// `755` and the like.
pub(super) fn octal(mode: Option<&str>) -> Result<Option<u32>, Failure> {
    let Some(text) = mode else { return Ok(None) };
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let bits = u32::from_str_radix(digits, 8).ok().filter(|bits| *bits <= 0o7777 && !digits.starts_with('+'));
    bits.map(Some).ok_or_else(|| {
        let shown: String = text.chars().take(16).collect();
        Failure::invalid(format!("mode: {shown:?} are not permission bits"))
            .with_hint("Give them in octal, such as 755 or 644.")
    })
}

/// A failure of an operation on a sandbox's files, with the next call.
pub(super) fn explained(error: Error) -> Failure {
    explained_by("sandbox_fs", error)
}

/// The same by the names that the tools of these files begin with.
pub(super) fn explained_by(tools: &str, error: Error) -> Failure {
    let has_next = error.next().is_some();
    let failure = Failure::from(error);
    if has_next {
        return failure;
    }
    let list = format!("Call {tools}_list on the parent directory to see what exists.");
    failure.or_hint(ErrorKind::NotFound, &list).or_hint(ErrorKind::WrongState, &list)
}

/// The same for a path that may be of another kind than the tool is for: then the next call is for that kind.
pub(super) async fn explained_at(
    call: &Call,
    which: &SandboxRef,
    name: &str,
    path: &str,
    error: Error,
) -> Failure {
    if error.kind() != ErrorKind::WrongState || error.next().is_some() {
        return explained(error);
    }
    let at = json!({ "name": name, "path": path });
    let hint = match call.engine().stat(&call.who, which, path, true).await.map(|entry| entry.kind) {
        Ok(FileKind::Directory) => format!("It is a directory: call {}.", written("sandbox_fs_list", &at)),
        Ok(FileKind::File) => format!("It is a file: call {}.", written("sandbox_fs_read", &at)),
        _ => return explained(error),
    };
    Failure::from(error).with_hint(hint)
}

fn explained_of(of: FilesOf<'_>, error: Error) -> Failure {
    match of {
        FilesOf::Sandbox(_) => explained(error),
        FilesOf::Volume(_) => explained_by("volume_fs", error),
    }
}

/// The same for something that goes to another path.
pub(super) fn not_moved(error: Error, from: &str, to: &str) -> Failure {
    let is_into_itself = sandbox::is_beneath(to, from);
    let failure = explained(error);
    if is_into_itself { failure.or_hint(ErrorKind::InvalidRequest, INTO_ITSELF) } else { failure }
}

/// One piece of memory as a stream.
pub(crate) fn once(bytes: Vec<u8>) -> ByteStream {
    Box::pin(futures_util::stream::once(std::future::ready(Ok(bytes.into()))))
}

/// A file's bytes from `offset`, at most `max`; whether there are more; and the file as it was when opened.
pub(crate) async fn read_up_to(
    engine: &Engine,
    who: &Principal,
    which: impl Into<FilesOf<'_>>,
    path: &str,
    offset: u64,
    max: usize,
) -> Result<(FileEntry, Vec<u8>, bool), Error> {
    let which = which.into();
    // One more than fits, to see whether that was all.
    let length = Some(max as u64 + 1);
    let (entry, stream) = engine.read_file(who, which, path, offset, length).await?;
    let (mut bytes, mut is_cut) = collect(stream, max).await?;
    // A file of /proc tells no size and gives a page or so at a time.
    let mut is_over = entry.size > 0 || bytes.is_empty();
    while !is_over && !is_cut {
        let (at, room) = (offset + bytes.len() as u64, max - bytes.len());
        let length = Some(room as u64 + 1);
        let (_, stream) = engine.read_file(who, which, path, at, length).await?;
        let (more, is_more_cut) = collect(stream, room).await?;
        is_over = more.is_empty();
        is_cut = is_more_cut;
        bytes.extend_from_slice(&more);
    }
    Ok((entry, bytes, is_cut))
}

/// All of a stream, but no more than `max` bytes; whether there was more.
pub(super) async fn collect(mut bytes: ByteStream, max: usize) -> Result<(Vec<u8>, bool), Error> {
    let mut all = Vec::new();
    while let Some(chunk) = bytes.try_next().await? {
        let room = max - all.len();
        if chunk.len() > room {
            all.extend_from_slice(&chunk[..room]);
            return Ok((all, true));
        }
        all.extend_from_slice(&chunk);
    }
    Ok((all, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        assert_eq!(octal(Some("755")).unwrap(), Some(0o755));
        assert_eq!(octal(Some("0o600")).unwrap(), Some(0o600));
        for wrong in ["rwx", "", "99", "10000", "+7", "-1"] {
            assert_eq!(octal(Some(wrong)).unwrap_err().code(), "invalid_request", "{wrong:?}");
        }
    }
}
