//! What a command printed: raw by range, or captured with its head and tail.

use std::{collections::VecDeque, time::Duration};

use axum::{extract::State, response::Response};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use engine::{Engine, Entry, EntryBody, ExecView, Follow, Principal, RunEnd, RunOptions, SandboxRef};
use futures_util::{StreamExt, stream::BoxStream};
use sandbox::Result;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Rest,
    extract::AskExec,
    stream,
    v1::{self, CapturedOutput, OutputStream},
};
use crate::{
    http::ApiResult,
    links::{AskersLinks, ChangedFiles},
};

/// Bytes kept from the beginning, and from the end, of each captured stream.
const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_TAIL_BYTES: usize = 64 * 1024;
/// The record of an end is written right after its ledger entry.
const RECORD_PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(output))
}

/// What the command printed so far, byte for byte.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/execs/{exec}/output", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), ("exec" = String, Path), v1::OutputQuery),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream")))]
async fn output(State(rest): State<Rest>, ask: AskExec<v1::OutputQuery>) -> ApiResult<Response> {
    let items = rest.engine.exec_entries(&ask.who, &ask.which, &ask.exec, 1, Follow::No).await?;
    let v1::OutputQuery { stream, offset, length, .. } = ask.query;
    Ok(stream::raw("application/octet-stream", cut(items, stream, offset, length)))
}

fn wanted(entry: Entry, stream: OutputStream) -> Option<Bytes> {
    match (entry.body, stream) {
        (EntryBody::Stdout(bytes), OutputStream::Stdout | OutputStream::Both)
        | (EntryBody::Stderr(bytes), OutputStream::Stderr | OutputStream::Both) => Some(bytes),
        _ => None,
    }
}

/// The bytes of one stream from `offset` on, at most `length` of them.
fn cut(
    items: BoxStream<'static, Result<Entry>>,
    stream: OutputStream,
    offset: u64,
    length: Option<u64>,
) -> impl futures_util::Stream<Item = Result<Bytes>> {
    let state = (items, offset, length.unwrap_or(u64::MAX));
    futures_util::stream::try_unfold(state, move |(mut items, mut skip, mut left)| async move {
        while left > 0 {
            let Some(item) = items.next().await else { break };
            let Some(bytes) = wanted(item?, stream) else { continue };
            let skipped = skip.min(bytes.len() as u64);
            skip -= skipped;
            let mut piece = bytes.slice(skipped as usize..);
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            if !piece.is_empty() {
                left -= piece.len() as u64;
                return Ok(Some((piece, (items, skip, left))));
            }
        }
        Ok(None)
    })
}

/// Follows an exec to its end, or until `timeout`, and answers with what it printed.
pub(super) async fn wait_and_capture(
    engine: &Engine,
    who: &Principal,
    exec: &ExecView,
    timeout: Option<Duration>,
    links: Option<&AskersLinks>,
) -> Result<v1::ExecResult> {
    let mut captured = Captured::default();
    let options = RunOptions { leave_after: timeout, ..RunOptions::default() };
    let mut run = engine.run_to_end(who, exec, options).await?;
    while let Some(entry) = run.next().await {
        captured.take(entry?);
    }
    // What was captured before the time was up is the answer.
    let patience = if run.end().await? == RunEnd::Left { Duration::ZERO } else { RECORD_PATIENCE };
    let view = engine.wait_exec(who, &SandboxRef::from(&exec.sandbox), &exec.id, Some(patience)).await?;
    Ok(v1::ExecResult {
        files: links.map(|links| captured.files.linked(links, &view.sandbox, view.sandbox.as_str())),
        exec: view.into(),
        stdout: Some(captured.stdout.finish()),
        stderr: Some(captured.stderr.finish()),
    })
}

#[derive(Default)]
struct Captured {
    stdout: HeadAndTail,
    stderr: HeadAndTail,
    files: ChangedFiles,
}

impl Captured {
    fn take(&mut self, entry: Entry) {
        match entry.body {
            EntryBody::Stdout(bytes) => self.stdout.push(&bytes),
            EntryBody::Stderr(bytes) => self.stderr.push(&bytes),
            EntryBody::Rich(bytes) => self.files.push(&bytes),
            _ => {}
        }
    }
}

/// The beginning and the end of a stream of any length, in bounded memory.
#[derive(Default)]
struct HeadAndTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl HeadAndTail {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = MAX_HEAD_BYTES - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(MAX_TAIL_BYTES)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(MAX_TAIL_BYTES);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    fn finish(self) -> CapturedOutput {
        let Self { mut head, tail, total } = self;
        let mut tail = Vec::from(tail);
        let truncated = (head.len() + tail.len()) as u64 != total;
        if truncated {
            cut_to_characters(&mut head, &mut tail);
            let left_out = total - (head.len() + tail.len()) as u64;
            head.extend_from_slice(format!("\n[{left_out} bytes left out]\n").as_bytes());
        }
        head.append(&mut tail);
        match String::from_utf8(head) {
            Ok(text) => CapturedOutput { text: Some(text), base64: None, truncated, total_bytes: total },
            Err(error) => CapturedOutput {
                text: None,
                base64: Some(BASE64_STANDARD.encode(error.as_bytes())),
                truncated,
                total_bytes: total,
            },
        }
    }
}

/// Takes half a character from the end of the head and the beginning of the tail, so that text stays text.
fn cut_to_characters(head: &mut Vec<u8>, tail: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(head)
        && error.error_len().is_none()
    {
        head.truncate(error.valid_up_to());
    }
    let continuation = tail.iter().take(3).take_while(|byte| (**byte & 0xC0) == 0x80).count();
    tail.drain(..continuation);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(pieces: &[&[u8]]) -> CapturedOutput {
        let mut kept = HeadAndTail::default();
        pieces.iter().for_each(|piece| kept.push(piece));
        kept.finish()
    }

    #[test]
    fn short_output_is_whole() {
        let out = capture(&[b"one\n", b"two\n"]);
        assert_eq!((out.text.as_deref(), out.truncated, out.total_bytes), (Some("one\ntwo\n"), false, 8));
    }

    #[test]
    fn long_output_keeps_head_and_tail_on_character_borders() {
        let long = "é".repeat(100_000);
        let out = capture(&[b"x", long.as_bytes(), b"end"]);
        let text = out.text.unwrap();
        assert!(text.starts_with("xé") && text.ends_with("éend"));
        assert!(out.truncated && text.contains("bytes left out"));
        assert_eq!(out.total_bytes, 200_004);
        assert!(text.len() <= MAX_HEAD_BYTES + MAX_TAIL_BYTES + 64);
    }

    #[test]
    fn bytes_that_are_no_text_travel_as_base64() {
        let out = capture(&[b"\xff\xfe"]);
        assert_eq!((out.text, out.base64.as_deref()), (None, Some("//4=")));
    }
}
