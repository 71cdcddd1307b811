//! The tools for files: `file_…`.

use sandbox::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    MAX_ANSWER_BYTES, MAX_ENTRIES,
    encoding::{Encoding, utf8},
    sandboxes::{Done, Inside, done},
    target::Target,
    words,
};
use crate::{
    dialects::opensandbox::{
        files::{self, EntryInfo, Permissions, Removed, Replacement},
        handle::{SandboxHandle, shown},
    },
    links::FilePart,
    mcp::{Answer, Call, Failure, ToolResult, once},
    output::until_character_border,
};

/// Most entries that a search answers: they take about as much as the longest text.
const MAX_FOUND: u32 = 100;

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
    let (sandbox, path) = (target.sandbox(&call), arguments.path);
    let piece = match &arguments.range_header {
        Some(range) => Some(piece(sandbox, &path, range).await?),
        None => None,
    };
    // A caller who says how much it wants gets that much.
    let most = call.max_bytes(None).min(if piece.is_some() { usize::MAX } else { MAX_ANSWER_BYTES });
    let (offset, length) = piece.unwrap_or((0, most));
    let found = sandbox.read(&path, offset, length.min(most)).await;
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
    Ok(Answer::new(Contents { path, content }).warn_all(rest))
}

/// Returns the beginning and the length of a range.
async fn piece(sandbox: SandboxHandle<'_>, path: &str, range: &str) -> Result<(u64, usize), Failure> {
    let SandboxHandle { engine, who, which } = sandbox;
    let entry = engine.stat(who, which, path, true).await.map_err(words::failure)?;
    let shown = shown(range);
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

fn usual_mode() -> u32 {
    755
}

pub(super) async fn write(call: Call, arguments: WriteArguments) -> ToolResult<Done> {
    let WriteArguments { inside, path, content, encoding, mode, owner, group } = arguments;
    let bytes = once(Encoding::named(&encoding)?.encode(content)?);
    let target = Target::find(&call, &inside.sandbox_id).await?;
    let permissions = Permissions { mode: Some(mode), owner, group };
    files::write(target.sandbox(&call), &path, &permissions, bytes).await.map_err(words::failure)?;
    Ok(done("written"))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PathsArguments {
    #[serde(flatten)]
    inside: Inside,
    paths: Vec<String>,
}

pub(super) async fn delete(call: Call, arguments: PathsArguments) -> ToolResult<Done> {
    remove(call, arguments, Removed::Files).await
}

async fn remove(call: Call, arguments: PathsArguments, what: Removed) -> ToolResult<Done> {
    few("paths", arguments.paths.len())?;
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    files::remove(target.sandbox(&call), &arguments.paths, what).await.map_err(words::failure)?;
    Ok(done("deleted"))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SearchArguments {
    #[serde(flatten)]
    inside: Inside,
    path: String,
    pattern: String,
}

pub(super) async fn search(call: Call, arguments: SearchArguments) -> ToolResult<Vec<EntryInfo>> {
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let found = files::search(target.sandbox(&call), &arguments.path, &arguments.pattern, MAX_FOUND).await;
    let (entries, has_more) = found.map_err(words::failure)?;
    let more = has_more.then(|| {
        format!(
            "There are more than these {}: search a directory further down, or give a narrower pattern.",
            entries.len()
        )
    });
    Ok(Answer::new(entries).warn_all(more))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DirectoriesArguments {
    #[serde(flatten)]
    inside: Inside,
    entries: Vec<DirectoryEntry>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct DirectoryEntry {
    path: String,
    /// Octal digits
    #[serde(default = "usual_mode")]
    mode: u32,
    owner: Option<String>,
    group: Option<String>,
}

pub(super) async fn create_directories(call: Call, arguments: DirectoriesArguments) -> ToolResult<Done> {
    few("entries", arguments.entries.len())?;
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let entries = arguments.entries.into_iter().map(|entry| {
        let DirectoryEntry { path, mode, owner, group } = entry;
        (path, Permissions { mode: Some(mode), owner, group })
    });
    files::create_directories(target.sandbox(&call), entries).await.map_err(words::failure)?;
    Ok(done("created"))
}

pub(super) async fn delete_directories(call: Call, arguments: PathsArguments) -> ToolResult<Done> {
    remove(call, arguments, Removed::Directories).await
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct MoveArguments {
    #[serde(flatten)]
    inside: Inside,
    entries: Vec<MoveEntry>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct MoveEntry {
    source: String,
    destination: String,
}

pub(super) async fn move_all(call: Call, arguments: MoveArguments) -> ToolResult<Done> {
    few("entries", arguments.entries.len())?;
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let sandbox = target.sandbox(&call);
    for (index, MoveEntry { source, destination }) in arguments.entries.iter().enumerate() {
        let moved = files::rename(sandbox, source, destination).await;
        moved.map_err(|error| not_moved(error, index, destination))?;
    }
    Ok(done("moved"))
}

/// Says what was moved before, because that stays moved.
fn not_moved(error: Error, n_moved: usize, to: &str) -> Failure {
    let is_taken = error.kind() == ErrorKind::AlreadyExists;
    let failure = match n_moved {
        0 => words::failure(error),
        _ => words::failure(
            error.reworded(|words| format!("{words} (the first {n_moved} entries were moved)")),
        ),
    };
    match is_taken {
        true => failure.with_hint(format!("Delete {to} first, or choose another destination.")),
        false => failure,
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ReplaceArguments {
    #[serde(flatten)]
    inside: Inside,
    entries: Vec<ReplaceEntry>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ReplaceEntry {
    path: String,
    old_content: String,
    new_content: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Replaced {
    path: String,
    replaced_count: usize,
}

pub(super) async fn replace(call: Call, arguments: ReplaceArguments) -> ToolResult<Vec<Replaced>> {
    few("entries", arguments.entries.len())?;
    let target = Target::find(&call, &arguments.inside.sandbox_id).await?;
    let entries = arguments.entries.into_iter();
    let asked: Vec<_> = entries
        .map(|ReplaceEntry { path, old_content: old, new_content: new }| Replacement { path, old, new })
        .collect();
    let counts = files::replace(target.sandbox(&call), &asked).await.map_err(words::failure)?;
    let replaced: Vec<_> = asked
        .into_iter()
        .zip(counts)
        .map(|(one, replaced_count)| Replaced { path: one.path, replaced_count })
        .collect();
    let absent = replaced.iter().filter(|one| one.replaced_count == 0);
    let warnings: Vec<_> = absent.map(|one| format!("old_content does not occur in {}.", one.path)).collect();
    Ok(Answer::new(replaced).warn_all(warnings))
}

/// Refuses lists that are too long.
fn few(what: &str, n: usize) -> Result<(), Failure> {
    if n <= MAX_ENTRIES {
        return Ok(());
    }
    Err(Failure::invalid(format!("{what} has {n} entries; the limit is {MAX_ENTRIES}"))
        .with_hint("Make several calls."))
}
