//! The output of a command: raw by range, or captured with its head and tail.

use std::time::Duration;

use axum::{Json, extract::State, response::Response};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use engine::{
    Engine, Entry, EntryBody, ExecView, Follow, OutputMatches, OutputSearch, Principal, RECORD_PATIENCE,
    RunEnd, RunOptions, SandboxRef,
};
use futures_util::{StreamExt, stream::BoxStream};
use sandbox::Result;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, AskExec},
    stream,
    v1::{self, CapturedOutput, OutputStream},
};
use crate::{
    denials,
    http::ApiResult,
    links::{AskersLinks, ChangedFiles},
    output::{HeadAndTail, Kept},
};

/// Bytes kept of each captured stream: half of them from its beginning, half from its end.
const MAX_CAPTURED_BYTES: usize = 128 * 1024;

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(output)).routes(routes!(search))
}

/// The output of the command so far, byte for byte.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/execs/{exec}/output", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), ("exec" = String, Path), v1::OutputQuery),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream")))]
async fn output(State(rest): State<Rest>, ask: AskExec<v1::OutputQuery>) -> ApiResult<Response> {
    let items = rest.engine.exec_entries(&ask.who, &ask.which, &ask.exec, 1, Follow::No).await?;
    let v1::OutputQuery { stream, offset, length, .. } = ask.query;
    Ok(stream::raw("application/octet-stream", cut(items, stream, offset, length)))
}

/// Searches what the sandbox's commands printed, the newest command first. Terminals are left out.
///
/// One search reads a bounded part of the output; `next` says where to search on.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/output", tag = "execs",
    params(("sandbox" = String, Path, description = "Id or name."), v1::SearchOutputQuery),
    responses((status = 200, body = v1::OutputFound)))]
async fn search(
    State(rest): State<Rest>,
    ask: Ask<v1::SearchOutputQuery>,
) -> ApiResult<Json<v1::OutputFound>> {
    let v1::SearchOutputQuery { q: text, stream, limit, cursor, .. } = ask.query;
    let stream = match stream {
        OutputStream::Both => None,
        OutputStream::Stdout => Some(engine::OutputStream::Stdout),
        OutputStream::Stderr => Some(engine::OutputStream::Stderr),
    };
    let from = cursor.map(|cursor| cursor.parse()).transpose()?;
    let search = OutputSearch { text, stream, limit, from };
    let OutputMatches { lines, next, at } = rest.engine.search_output(&ask.who, &ask.which, search).await?;
    Ok(Json(v1::OutputFound { lines, next: next.map(|next| next.to_string()), at }))
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
    let mut captured = Captured::new();
    let options = RunOptions { leave_after: timeout, ..RunOptions::default() };
    let mut run = engine.run_to_end(who, exec, options).await?;
    while let Some(entry) = run.next().await {
        captured.take(entry?);
    }
    // The output captured before the time was up is the answer.
    let patience = if run.end().await? == RunEnd::Left { Duration::ZERO } else { RECORD_PATIENCE };
    let view = engine.wait_exec(who, &SandboxRef::from(&exec.sandbox), &exec.id, Some(patience)).await?;
    let (stdout, stderr) = (told(captured.stdout), told(captured.stderr));
    let texts = [&stdout, &stderr].map(|output| output.text.as_deref().unwrap_or_default());
    let has_ended = view.outcome.is_some();
    let warnings = if has_ended { denials::told_beside(engine, who, &view, texts).await } else { Vec::new() };
    Ok(v1::ExecResult {
        files: links.map(|links| captured.files.linked(links, &view.sandbox, view.sandbox.as_str())),
        warnings,
        exec: view,
        stdout: Some(stdout),
        stderr: Some(stderr),
    })
}

struct Captured {
    stdout: HeadAndTail,
    stderr: HeadAndTail,
    files: ChangedFiles,
}

impl Captured {
    fn new() -> Self {
        let output = || HeadAndTail::new(MAX_CAPTURED_BYTES);
        Self { stdout: output(), stderr: output(), files: ChangedFiles::default() }
    }

    fn take(&mut self, entry: Entry) {
        match entry.body {
            EntryBody::Stdout(bytes) => self.stdout.push(&bytes),
            EntryBody::Stderr(bytes) => self.stderr.push(&bytes),
            EntryBody::Rich(bytes) => self.files.push(&bytes),
            _ => {}
        }
    }
}

fn told(output: HeadAndTail) -> CapturedOutput {
    let total_bytes = output.n_total();
    let (bytes, truncated) = match output.finish() {
        Kept::Whole(bytes) => (bytes, false),
        Kept::Ends { head, tail, n_left_out } => {
            let between = format!("\n[{n_left_out} bytes left out]\n");
            ([head, between.into_bytes(), tail].concat(), true)
        }
    };
    let (text, base64) = match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(BASE64_STANDARD.encode(error.as_bytes()))),
    };
    CapturedOutput { text, base64, truncated, total_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(pieces: &[&[u8]]) -> CapturedOutput {
        let mut kept = HeadAndTail::new(MAX_CAPTURED_BYTES);
        pieces.iter().for_each(|piece| kept.push(piece));
        told(kept)
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
        assert!(text.len() <= MAX_CAPTURED_BYTES + 64);
    }

    #[test]
    fn bytes_that_are_no_text_travel_as_base64() {
        let out = capture(&[b"\xff\xfe"]);
        assert_eq!((out.text, out.base64.as_deref()), (None, Some("//4=")));
    }
}
