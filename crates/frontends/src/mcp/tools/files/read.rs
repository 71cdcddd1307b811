//! `sandbox_fs_read`: a file or a part of it, by bytes or by lines.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use engine::{ByteStream, SandboxRef};
use futures_util::TryStreamExt;
use sandbox::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Encoding, explained, explained_at, read_up_to};
use crate::mcp::{
    Answer, Call, Failure, Tool, ToolResult, Truncated, envelope,
    next_call::written,
    output::{from_character_border, until_character_border},
};

/// The largest picture that an answer shows.
const MAX_PICTURE_BYTES: usize = 1024 * 1024;
/// Bytes that are looked through for line ends at most.
const MAX_SCANNED_BYTES: u64 = 256 * 1024 * 1024;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Files;
        "sandbox_fs_read", "Read a file", READS, read, core:
            "Read a file in a sandbox: all of it, bytes from an offset, or a range of lines.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadArguments {
    name: String,
    path: String,
    encoding: Option<Encoding>,
    #[schemars(range(min = 1))]
    max_bytes: Option<u64>,
    offset: Option<u64>,
    #[schemars(range(min = 1))]
    length: Option<u64>,
    /// From 1; negative counts from the end.
    start_line: Option<i64>,
    end_line: Option<i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Read {
    path: String,
    encoding: Encoding,
    content: String,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u64>,
}

async fn read(call: Call, arguments: ReadArguments) -> ToolResult<Read> {
    let which = call.sandbox(&arguments.name)?;
    let by_lines = arguments.start_line.is_some() || arguments.end_line.is_some();
    let by_bytes = arguments.offset.is_some() || arguments.length.is_some();
    match (by_lines, by_bytes) {
        (true, true) => {
            Err(Failure::invalid("offset and length cannot be combined with startLine and endLine")
                .with_hint("Ask for bytes or for lines."))
        }
        (true, false) if arguments.encoding == Some(Encoding::Base64) => {
            Err(Failure::invalid("lines cannot be read as base64")
                .with_hint("Use offset and length, or omit encoding."))
        }
        (true, false) => read_lines(&call, &which, arguments).await,
        (false, _) => read_bytes(&call, &which, arguments).await,
    }
}

async fn read_bytes(call: &Call, which: &SandboxRef, arguments: ReadArguments) -> ToolResult<Read> {
    let max = call.max_bytes(arguments.max_bytes);
    let wanted = arguments.length.unwrap_or(u64::MAX);
    let asked_offset = arguments.offset.unwrap_or(0);
    let is_short = wanted < max as u64;
    let room = usize::try_from(wanted).unwrap_or(usize::MAX).min(max);
    let read = read_up_to(call.engine(), &call.who, which, &arguments.path, asked_offset, room).await;
    let (entry, bytes, is_more) = match read {
        Ok(read) => read,
        Err(error) => return Err(explained_at(call, which, &arguments.name, &arguments.path, error).await),
    };
    // Bytes that were not asked for are not missing.
    let is_cut = is_more && !is_short;
    let encoding = arguments.encoding.unwrap_or_default();
    let part = Part::of(encoding, &bytes, asked_offset, is_more);
    let is_whole_wanted = asked_offset == 0 && arguments.length.is_none() && arguments.encoding.is_none();
    let mime_type = picture(&bytes).filter(|_| part.is_lossy && is_whole_wanted);
    if let Some(mime_type) = mime_type {
        return read_picture(call, which, arguments, mime_type, entry.size).await;
    }
    let offset = asked_offset + part.skipped as u64;
    let end = offset + part.used as u64;
    // Files of /proc tell no size.
    let size = if bytes.is_empty() { entry.size } else { entry.size.max(end) };
    let is_past = bytes.is_empty() && asked_offset > entry.size;
    let past_the_end =
        is_past.then(|| format!("There is nothing at offset {asked_offset}: the file has {size} bytes."));
    let is_whole = offset == 0 && !is_more;
    let is_plain = encoding == Encoding::Utf8 && !part.is_lossy;
    let cut = is_cut.then(|| Truncated {
        field: "content".to_owned(),
        returned_bytes: part.used as u64,
        total_bytes: size.saturating_sub(offset).min(wanted).max(part.used as u64 + 1),
        hint: Some(rest_of_file(&arguments.name, &arguments.path, &json!({ "offset": end }))),
    });
    let answer = Answer::new(Read {
        path: arguments.path,
        encoding,
        size,
        offset: arguments.offset.map(|_| offset),
        start_line: None,
        end_line: None,
        total_lines: (is_whole && is_plain).then(|| n_lines(&bytes)),
        content: part.content,
    });
    Ok(answer.truncate(cut).warn_all(part.is_lossy.then(not_text)).warn_all(past_the_end))
}

/// Returns the type of a picture, by its first bytes.
fn picture(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// A picture is shown; as text it would be noise.
async fn read_picture(
    call: &Call,
    which: &SandboxRef,
    arguments: ReadArguments,
    mime_type: &'static str,
    size: u64,
) -> ToolResult<Read> {
    let ReadArguments { name, path, .. } = arguments;
    let read = read_up_to(call.engine(), &call.who, which, &path, 0, MAX_PICTURE_BYTES).await;
    let (_, bytes, is_more) = read.map_err(explained)?;
    let exact = written("sandbox_fs_read", &json!({ "name": name, "path": path, "encoding": "base64" }));
    let (shown, picture) = match is_more {
        true => ("too large to be shown here", None),
        false => {
            let base64 = BASE64_STANDARD.encode(&bytes);
            ("shown beside this", Some(envelope::Part::Image { mime_type: mime_type.to_owned(), base64 }))
        }
    };
    let answer = Answer::new(Read {
        path,
        encoding: Encoding::Utf8,
        content: String::new(),
        size,
        offset: None,
        start_line: None,
        end_line: None,
        total_lines: None,
    });
    Ok(answer
        .with_parts(picture)
        .warn(format!("The file is a picture ({mime_type}), {shown}. For its bytes call {exact}.")))
}

/// The calls that find what is missing of a file; `from` says where it goes on.
fn rest_of_file(name: &str, path: &str, from: &Value) -> String {
    let mut read = json!({ "name": name, "path": path });
    if let (Some(read), Some(from)) = (read.as_object_mut(), from.as_object()) {
        read.extend(from.clone());
    }
    let search = json!({ "name": name, "path": path, "grep": "error" });
    format!(
        "Call {} to read on, or {} to find lines (with any pattern).",
        written("sandbox_fs_read", &read),
        written("sandbox_fs_search", &search)
    )
}

pub(in crate::mcp::tools) fn not_text() -> String {
    "The content is not valid UTF-8: invalid bytes are shown as \u{FFFD}. \
     Read with encoding base64 for the exact bytes."
        .to_owned()
}

/// The part of some bytes that is given back as text.
pub(in crate::mcp::tools) struct Part {
    /// Bytes left out at the beginning and used after them.
    pub(in crate::mcp::tools) skipped: usize,
    pub(in crate::mcp::tools) used: usize,
    pub(in crate::mcp::tools) content: String,
    pub(in crate::mcp::tools) is_lossy: bool,
}

impl Part {
    pub(in crate::mcp::tools) fn of(encoding: Encoding, bytes: &[u8], offset: u64, is_cut: bool) -> Self {
        match encoding {
            Encoding::Utf8 => Self::text(bytes, offset, is_cut),
            Encoding::Base64 => Self {
                skipped: 0,
                used: bytes.len(),
                content: BASE64_STANDARD.encode(bytes),
                is_lossy: false,
            },
        }
    }

    /// A read that begins or is cut in the middle of a character leaves that character out.
    fn text(bytes: &[u8], offset: u64, is_cut: bool) -> Self {
        let from = if offset > 0 { from_character_border(bytes) } else { bytes };
        let kept = if is_cut { until_character_border(from) } else { from };
        // Something must be given back, or reading on would never come to an end.
        let kept = if kept.is_empty() { from } else { kept };
        let (content, is_lossy) = match std::str::from_utf8(kept) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (String::from_utf8_lossy(kept).into_owned(), true),
        };
        Self { skipped: bytes.len() - from.len(), used: kept.len(), content, is_lossy }
    }
}

fn n_lines(bytes: &[u8]) -> u64 {
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    ends + u64::from(bytes.last().is_some_and(|last| *last != b'\n'))
}

async fn read_lines(call: &Call, which: &SandboxRef, arguments: ReadArguments) -> ToolResult<Read> {
    let open = || call.engine().read_file(&call.who, which, &arguments.path, 0, None);
    let (start, end) = (arguments.start_line.unwrap_or(1), arguments.end_line.unwrap_or(-1));
    if start == 0 || end == 0 {
        return Err(Failure::invalid("lines are counted from 1").with_hint("The last line is -1."));
    }
    let mut known = None;
    if start < 0 || arguments.end_line.is_some_and(|end| end < 0) {
        let (_, stream) = open().await.map_err(explained)?;
        known = Some(count_lines(stream).await?);
    }
    let from_end = |line: i64| match (u64::try_from(line), known) {
        (Ok(line), _) => line,
        (Err(_), Some(total)) => (total + 1).saturating_sub(line.unsigned_abs()),
        // Only an end that was not given: as far as there is something.
        (Err(_), None) => u64::MAX,
    };
    let (first, last) = (from_end(start).max(1), from_end(end));
    if arguments.start_line.is_some() && arguments.end_line.is_some() && first > last {
        return Err(Failure::invalid(format!("startLine {start} comes after endLine {end}"))
            .with_hint("Give the smaller number as startLine."));
    }
    let (entry, stream) = open().await.map_err(explained)?;
    let mut lines = Lines::new(first, last, call.max_bytes(arguments.max_bytes));
    lines.run(stream).await?;
    let total_lines = lines.total().or(known);
    let past_the_end =
        (lines.total().is_some_and(|total| first > total)).then(|| past_the_end(first, total_lines));
    let cut = lines.truncated(&arguments.name, &arguments.path);
    let (content, is_lossy) = match String::from_utf8(lines.kept) {
        Ok(text) => (text, false),
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
    };
    let answer = Answer::new(Read {
        path: arguments.path,
        encoding: Encoding::Utf8,
        content,
        size: entry.size.max(lines.n_scanned),
        offset: None,
        start_line: Some(first),
        end_line: Some((first + lines.n_kept_lines).saturating_sub(1)),
        total_lines,
    });
    Ok(answer.truncate(cut).warn_all(is_lossy.then(not_text)).warn_all(past_the_end))
}

fn past_the_end(first: u64, total: Option<u64>) -> String {
    format!("There is no line {first}: the file has {}.", total.unwrap_or(0))
}

fn too_long() -> Error {
    Error::new(
        ErrorKind::LimitReached,
        format!("only the first {MAX_SCANNED_BYTES} bytes are searched for lines"),
    )
    .with_hint("Read by offset and length, or search with sandbox_fs_search.")
}

async fn count_lines(mut stream: ByteStream) -> Result<u64, Failure> {
    let (mut n_ends, mut n_scanned, mut last) = (0, 0_u64, b'\n');
    while let Some(chunk) = stream.try_next().await? {
        n_ends += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
        n_scanned += chunk.len() as u64;
        last = chunk.last().copied().unwrap_or(last);
        if n_scanned > MAX_SCANNED_BYTES {
            return Err(too_long().into());
        }
    }
    Ok(n_ends + u64::from(last != b'\n'))
}

/// Picks lines out of a stream, in bounded memory: whole lines as long as they fit.
struct Lines {
    first: u64,
    last: u64,
    max: usize,
    /// The line that is being read.
    line: u64,
    n_scanned: u64,
    /// The offset in the file at which the kept bytes begin.
    kept_offset: u64,
    kept: Vec<u8>,
    n_kept_lines: u64,
    /// Bytes of the lines that were asked for, kept or not.
    n_wanted: u64,
    /// No more fits.
    is_full: bool,
    is_at_end: bool,
    /// The last byte was not the end of a line.
    is_in_line: bool,
}

impl Lines {
    fn new(first: u64, last: u64, max: usize) -> Self {
        Self {
            first,
            last,
            max,
            line: 1,
            n_scanned: 0,
            kept_offset: 0,
            kept: Vec::new(),
            n_kept_lines: 0,
            n_wanted: 0,
            is_full: false,
            is_at_end: false,
            is_in_line: false,
        }
    }

    async fn run(&mut self, mut stream: ByteStream) -> Result<(), Failure> {
        while let Some(chunk) = stream.try_next().await? {
            if self.n_scanned > MAX_SCANNED_BYTES {
                return Err(too_long().into());
            }
            for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
                self.take(piece);
                if self.line > self.last {
                    // Later bytes are of no interest; dropping the stream stops whoever sends.
                    self.tidy();
                    return Ok(());
                }
            }
        }
        self.is_at_end = true;
        self.n_kept_lines += u64::from(self.is_in_line && self.is_wanted() && !self.is_full);
        self.tidy();
        Ok(())
    }

    fn is_wanted(&self) -> bool {
        (self.first..=self.last).contains(&self.line)
    }

    fn take(&mut self, piece: &[u8]) {
        let ends = piece.ends_with(b"\n");
        if self.is_wanted() {
            if self.n_wanted == 0 {
                self.kept_offset = self.n_scanned;
            }
            self.n_wanted += piece.len() as u64;
            let room = self.max - self.kept.len();
            if !self.is_full {
                self.kept.extend_from_slice(&piece[..piece.len().min(room)]);
                self.is_full = piece.len() > room;
                self.n_kept_lines += u64::from(ends && !self.is_full);
            }
        }
        self.n_scanned += piece.len() as u64;
        self.is_in_line = !ends;
        self.line += u64::from(ends);
    }

    /// Leaves out a line that is not whole, unless it is the only one.
    fn tidy(&mut self) {
        if !self.is_full {
            return;
        }
        let until = match self.kept.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None => {
                self.n_kept_lines = 1;
                match until_character_border(&self.kept).len() {
                    0 => self.kept.len(),
                    until => until,
                }
            }
        };
        self.kept.truncate(until);
    }

    /// How many lines there are, where all were seen.
    fn total(&self) -> Option<u64> {
        self.is_at_end.then(|| self.line - 1 + u64::from(self.is_in_line))
    }

    fn truncated(&self, name: &str, path: &str) -> Option<Truncated> {
        let returned = self.kept.len() as u64;
        // In the middle of a line only bytes lead on.
        let from = match self.kept.ends_with(b"\n") {
            true => json!({ "startLine": self.first + self.n_kept_lines }),
            false => json!({ "offset": self.kept_offset + returned }),
        };
        let hint = rest_of_file(name, path, &from);
        self.is_full.then(|| Truncated {
            field: "content".to_owned(),
            returned_bytes: returned,
            total_bytes: self.n_wanted,
            hint: Some(hint),
        })
    }
}
