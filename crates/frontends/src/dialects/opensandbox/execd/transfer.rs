//! Files in and out, as streams.

use axum::{
    body::Body,
    extract::{
        Multipart,
        multipart::{Field, MultipartError, MultipartRejection},
    },
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use engine::ByteStream;
use futures_util::{StreamExt, stream};
use sandbox::{Error, ErrorKind, FileKind, Result, Thing};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::paths::expanded;
use crate::{
    dialects::opensandbox::{
        ask::{Ask, Pairs},
        files::{self, Permissions},
        handle::SandboxHandle,
    },
    http::ApiResult,
    links::{FilePart as Part, Version, disposition},
};

/// Longest description of one file.
const MAX_METADATA_BYTES: usize = 64 * 1024;
/// Pieces of a file between the client and the sandbox.
const QUEUED_PIECES: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    path: String,
    mode: Option<u32>,
    owner: Option<String>,
    group: Option<String>,
}

/// Pairs of parts: what a file is to be, and its bytes.
pub(super) async fn upload(ask: Ask, form: Result<Multipart, MultipartRejection>) -> ApiResult<()> {
    let mut form = form.map_err(|refused| Error::invalid(refused.body_text()))?;
    let sandbox = ask.awake().await?;
    let mut described = None;
    while let Some(field) = form.next_field().await.map_err(broken)? {
        match field.name() {
            Some("metadata") => described = Some(metadata(field).await?),
            Some("file") => {
                let Some(metadata) = described.take() else {
                    return Err(Error::invalid("a file came before its metadata").into());
                };
                write(sandbox, metadata, field).await?;
            }
            _ => return Err(Error::invalid("a part is neither metadata nor file").into()),
        }
    }
    match described {
        None => Ok(()),
        Some(Metadata { path, .. }) => {
            Err(Error::invalid(format!("{path}: no file follows its metadata")).into())
        }
    }
}

async fn metadata(mut field: Field<'_>) -> Result<Metadata> {
    let mut text = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(broken)? {
        text.extend_from_slice(&piece);
        if text.len() > MAX_METADATA_BYTES {
            return Err(Error::invalid(format!("metadata of more than {MAX_METADATA_BYTES} bytes")));
        }
    }
    serde_json::from_slice(&text).map_err(|error| Error::invalid(format!("invalid metadata: {error}")))
}

async fn write(sandbox: SandboxHandle<'_>, metadata: Metadata, mut field: Field<'_>) -> Result<()> {
    let Metadata { path, mode, owner, group } = metadata;
    let path = expanded(sandbox, &path).await?;
    let permissions = Permissions { mode, owner, group };
    let (sender, receiver) = mpsc::channel(QUEUED_PIECES);
    let bytes: ByteStream =
        stream::unfold(receiver, |mut pieces| async { pieces.recv().await.map(|piece| (piece, pieces)) })
            .boxed();
    let pump = async move {
        loop {
            let piece = match field.chunk().await {
                Ok(Some(piece)) => Ok(piece),
                Ok(None) => return,
                Err(error) => Err(broken(error)),
            };
            let is_last = piece.is_err();
            // Nobody takes more where the write has failed, which says why.
            if sender.send(piece).await.is_err() || is_last {
                return;
            }
        }
    };
    tokio::join!(files::write(sandbox, &path, &permissions, bytes), pump).0
}

fn broken(error: MultipartError) -> Error {
    match error.status() {
        StatusCode::BAD_REQUEST => Error::invalid(error.body_text()),
        _ => Error::new(ErrorKind::Cancelled, "the body ended early").with_source(error),
    }
}

/// A file, a range of its bytes, or some of its lines.
pub(super) async fn download(ask: Ask, headers: HeaderMap) -> ApiResult<Response> {
    let query = ask.query();
    let (path, lines_asked) = (query.required("path")?, Lines::asked(query)?);
    let sandbox = ask.awake().await?;
    let SandboxHandle { engine, who, which } = sandbox;
    let path = &expanded(sandbox, path).await?;
    let mut entry = engine.stat(who, which, path, false).await?;
    let is_link = entry.kind == FileKind::Symlink;
    if is_link {
        entry = engine.stat(who, which, path, true).await?;
    }
    if entry.kind == FileKind::Directory {
        return Err(Error::invalid(format!("{path} is a directory")).about(Thing::File, path).into());
    }
    if let Some(Lines { skipped, n }) = lines_asked {
        let (_, bytes) = engine.read_file(who, which, path, 0, None).await?;
        let headers = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
        return Ok((headers, Body::from_stream(lines(bytes, skipped, n))).into_response());
    }
    let version = Version { size: entry.size, modified_at_ms: entry.modified_at_ms };
    let (start, length) = match Part::asked(&headers, version) {
        Part::Nothing => {
            let range = [(CONTENT_RANGE, format!("bytes */{}", entry.size))];
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, range).into_response());
        }
        Part::Whole => (0, None),
        Part::Piece { start, length } => (start, Some(length)),
    };
    // Only as much as there is now: what is appended meanwhile would go beyond the length that is told.
    let told = length.or_else(|| known_size(path, entry.size).filter(|_| !is_link));
    let (entry, bytes) = engine.read_file(who, which, path, start, told).await?;
    let mut response = Body::from_stream(bytes).into_response();
    let answer = response.headers_mut();
    answer.insert(CONTENT_TYPE, axum::http::HeaderValue::from_static("application/octet-stream"));
    answer.insert(ACCEPT_RANGES, axum::http::HeaderValue::from_static("bytes"));
    let name = path.rsplit('/').next().unwrap_or_default();
    if let Ok(disposition) = disposition(false, name).parse() {
        answer.insert(CONTENT_DISPOSITION, disposition);
    }
    if let Some(told) = told {
        answer.insert(CONTENT_LENGTH, told.into());
    }
    if let Some(length) = length {
        if let Ok(range) = format!("bytes {start}-{}/{}", start + length - 1, entry.size).parse() {
            answer.insert(CONTENT_RANGE, range);
        }
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// The size of a file that can be relied on. The kernel's own files report another one than they have, and a link may
/// lead to one of them.
fn known_size(path: &str, size: u64) -> Option<u64> {
    let is_of_kernel = ["/proc", "/sys"].iter().any(|place| sandbox::is_beneath(path, place));
    (size > 0 && !is_of_kernel).then_some(size)
}

/// The lines that a client asks for.
struct Lines {
    skipped: u64,
    n: u64,
}

impl Lines {
    /// Both parameters, or none of them.
    fn asked(query: &Pairs) -> Result<Option<Self>> {
        match (query.number("offset")?, query.number("limit")?) {
            (None, None) => Ok(None),
            (Some(first @ 1..), Some(n @ 1..)) => Ok(Some(Self { skipped: first - 1, n })),
            (Some(_), Some(_)) => Err(Error::invalid("the parameters offset and limit begin with 1")),
            (None, Some(_)) | (Some(_), None) => {
                Err(Error::invalid("the parameters offset and limit come together"))
            }
        }
    }
}

/// At most `n` lines, without the first `skipped`.
fn lines(bytes: ByteStream, skipped: u64, n: u64) -> ByteStream {
    let end = skipped.saturating_add(n);
    let cut = stream::unfold((bytes, 0_u64), move |(mut bytes, mut line)| async move {
        while line < end {
            let piece = match bytes.next().await? {
                Ok(piece) => piece,
                Err(error) => return Some((Err(error), (bytes, end))),
            };
            let kept = within(&piece, &mut line, skipped, end);
            if !kept.is_empty() {
                return Some((Ok(kept), (bytes, line)));
            }
        }
        None
    });
    cut.boxed()
}

/// The part of a piece that belongs to the lines from `first` to `end`; `line` is the one it begins in.
fn within(piece: &Bytes, line: &mut u64, first: u64, end: u64) -> Bytes {
    let (mut from, mut at) = (if *line >= first { Some(0) } else { None }, 0);
    for text in piece.split_inclusive(|byte| *byte == b'\n') {
        at += text.len();
        if text.ends_with(b"\n") {
            *line += 1;
            if *line == end {
                break;
            }
            if *line == first {
                from = Some(at);
            }
        }
    }
    from.map_or_else(Bytes::new, |from| piece.slice(from..at))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn cut(pieces: &[&'static str], skipped: u64, n: u64) -> String {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
        let kept: Vec<_> = lines(stream::iter(pieces).boxed(), skipped, n).collect().await;
        kept.into_iter().map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap()).collect()
    }

    #[tokio::test]
    async fn lines_are_cut_out_wherever_the_pieces_end() {
        for pieces in [&["a\nb\nc\nd"][..], &["a", "\nb", "\n", "c\n", "d"], &["a\nb", "\nc\nd"]] {
            assert_eq!(cut(pieces, 0, 2).await, "a\nb\n", "{pieces:?}");
            assert_eq!(cut(pieces, 1, 2).await, "b\nc\n", "{pieces:?}");
            assert_eq!(cut(pieces, 3, u64::MAX).await, "d", "{pieces:?}");
            assert_eq!(cut(pieces, 9, 1).await, "", "{pieces:?}");
            assert_eq!(cut(pieces, 0, 0).await, "", "{pieces:?}");
        }
    }
}
