//! `file_read`, `file_write`, `file_delete`.

use engine::WriteOptions;
use sandbox::{Error, ErrorKind, FileKind, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    MAX_ANSWER_BYTES, MAX_ENTRIES,
    encoding::{Encoding, utf8},
    owners::Ownership,
    sandboxes::{Done, Inside, done},
    target::Target,
    words,
};
use crate::{
    links::FilePart,
    mcp::{Answer, Call, Failure, ToolResult, once, read_up_to},
    output::until_character_border,
};

/// All permission bits.
const MAX_MODE: u32 = 0o7777;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ReadArguments {
    #[serde(flatten)]
    inside: Inside,
    path: String,
    /// Or ascii, latin-1, base64
    #[serde(default = "utf8")]
    encoding: String,
    range_header: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Contents {
    path: String,
    content: String,
}

pub(super) async fn read(call: Call, arguments: ReadArguments) -> ToolResult<Contents> {
    let encoding = Encoding::named(&arguments.encoding)?;
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let path = target.absolute(&arguments.path);
    let piece = match &arguments.range_header {
        Some(range) => Some(piece(&call, &target, &path, range).await?),
        None => None,
    };
    // A caller who says how much it wants gets that much.
    let most = call.max_bytes(None).min(if piece.is_some() { usize::MAX } else { MAX_ANSWER_BYTES });
    let (offset, length) = piece.unwrap_or((0, most));
    let found = read_up_to(&call, &target.which, &path, offset, length.min(most)).await;
    let (entry, bytes, is_cut) = found.map_err(words::failure)?;
    let is_short = is_cut && length >= most;
    // Where we cut, the next part begins with a whole character.
    let bytes = match is_short && encoding == Encoding::Utf8 {
        true => until_character_border(&bytes),
        false => &bytes,
    };
    let content = encoding.decode(&path, bytes, piece.is_some())?;
    let next = offset + bytes.len() as u64;
    let rest = is_short.then(|| {
        let last = next + most as u64 - 1;
        format!(
            "content ends at byte {next} of {}: call file_read with range_header \"bytes={next}-{last}\" for more.",
            entry.size
        )
    });
    Ok(Answer::new(Contents { path: arguments.path, content }).warn_all(rest))
}

/// Where a range begins, and how long it is.
async fn piece(call: &Call, target: &Target, path: &str, range: &str) -> Result<(u64, usize), Failure> {
    let entry = call.engine().stat(&call.who, &target.which, path, true).await.map_err(words::failure)?;
    let shown: String = range.chars().take(64).collect();
    match FilePart::parse(range, entry.size) {
        Some(FilePart::Piece { start, length }) => Ok((start, usize::try_from(length).unwrap_or(usize::MAX))),
        Some(FilePart::Nothing | FilePart::Whole) => {
            let message =
                format!("range_header {shown:?} is beyond the end of {path}, which has {} bytes", entry.size);
            Err(Failure::invalid(message).with_hint("Ask for bytes that the file has."))
        }
        None => Err(Failure::invalid(format!("range_header: {shown:?} is not a range"))
            .with_hint("Write it as bytes=0-1023, bytes=1024- or bytes=-1024.")),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct WriteArguments {
    #[serde(flatten)]
    inside: Inside,
    path: String,
    content: String,
    /// Or ascii, latin-1, base64
    #[serde(default = "utf8")]
    encoding: String,
    /// Octal digits
    #[serde(default = "usual_mode")]
    mode: u32,
    owner: Option<String>,
    group: Option<String>,
}

pub(super) fn usual_mode() -> u32 {
    755
}

pub(super) async fn write(call: Call, arguments: WriteArguments) -> ToolResult<Done> {
    let permissions = octal(arguments.mode)?;
    let bytes = Encoding::named(&arguments.encoding)?.encode(arguments.content)?;
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let path = target.absolute(&arguments.path);
    let (owner, group) = (arguments.owner.as_deref(), arguments.group.as_deref());
    let ownership = Ownership::find(&call, &target, owner, group).await?;
    let options = WriteOptions { mode: WriteMode::Replace, permissions: Some(permissions), parents: true };
    let (engine, which) = (call.engine(), &target.which);
    engine.write_file(&call.who, which, &path, options, once(bytes)).await.map_err(words::failure)?;
    // A file that was there before has kept its own.
    engine.chmod(&call.who, which, &path, permissions, false).await.map_err(words::failure)?;
    ownership.apply(&call, &target, &path).await?;
    Ok(done("written"))
}

/// 755 stands for rwxr-xr-x, as people write it.
pub(super) fn octal(mode: u32) -> Result<u32, Failure> {
    let bits = u32::from_str_radix(&mode.to_string(), 8).ok();
    bits.filter(|bits| *bits <= MAX_MODE).ok_or_else(|| {
        Failure::invalid(format!("mode: {mode} are not permission bits"))
            .with_hint("Write octal digits as a number, such as 755 or 644.")
    })
}

/// The other way round.
pub(super) fn digits(mode: u32) -> u32 {
    format!("{mode:o}").parse().unwrap_or_default()
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PathsArguments {
    #[serde(flatten)]
    pub(super) inside: Inside,
    pub(super) paths: Vec<String>,
}

pub(super) async fn delete(call: Call, arguments: PathsArguments) -> ToolResult<Done> {
    remove(&call, &arguments, Removed::Files).await?;
    Ok(done("deleted"))
}

/// What a tool removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    Files,
    Directories,
}

/// Removes all or, where one of them is something else, none.
pub(super) async fn remove(call: &Call, arguments: &PathsArguments, what: Removed) -> Result<(), Failure> {
    few("paths", arguments.paths.len())?;
    let target = Target::find(call, &arguments.inside.sandbox_id).await?;
    let (engine, who, which) = (call.engine(), &call.who, &target.which);
    let mut present = Vec::new();
    for path in arguments.paths.iter().map(|path| target.absolute(path)) {
        match engine.stat(who, which, &path, false).await {
            Ok(entry) => {
                refuse_other(&path, entry.kind, what)?;
                present.push(path);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(words::failure(error)),
        }
    }
    for path in present {
        match engine.remove_path(who, which, &path, what == Removed::Directories).await {
            // One of them was below another.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.map_err(words::failure)?,
        }
    }
    Ok(())
}

fn refuse_other(path: &str, kind: FileKind, what: Removed) -> Result<(), Failure> {
    let (is, tool) = match (what, kind == FileKind::Directory) {
        (Removed::Files, true) => ("a directory", "file_delete_directories"),
        (Removed::Directories, false) => ("not a directory", "file_delete"),
        _ => return Ok(()),
    };
    let error = Error::new(ErrorKind::WrongState, format!("{path} is {is}; nothing was deleted"));
    Err(words::failure(error.with_hint(format!("Call {tool} for it."))))
}

/// Refuses lists that are too long.
pub(super) fn few(what: &str, n: usize) -> Result<(), Failure> {
    if n <= MAX_ENTRIES {
        return Ok(());
    }
    Err(Failure::invalid(format!("{what} has {n} entries; the limit is {MAX_ENTRIES}"))
        .with_hint("Make several calls."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_digits() {
        for (mode, bits) in [(755, 0o755), (0, 0), (7777, 0o7777), (644, 0o644)] {
            assert_eq!(octal(mode).unwrap(), bits);
            assert_eq!(digits(bits), mode);
        }
        for wrong in [800, 99, 10_000, u32::MAX] {
            assert_eq!(octal(wrong).unwrap_err().code, "invalid_request", "{wrong}");
        }
    }
}
