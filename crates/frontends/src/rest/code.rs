//! Code: run to its end, or told of as it runs; and what it showed, read again.

use std::time::Duration;

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use engine::{Entry, EntryBody, ExecView, Principal, Run, RunOptions, SandboxRef, TextDecoder};
use futures_util::{
    StreamExt,
    stream::{self as streams, BoxStream},
};
use sandbox::{CellSpec, Error, ErrorKind, ExecOutcome, ExecSpec, Language, RequestId, Result};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Rest,
    extract::{Ask, AskExec, JsonBody, PathNumber},
    stream::{self, Format, Numbered},
    v1::{self, CodeEvent},
};
use crate::{
    code::{self, Budget, Cell, CellEvent, Collected, Form, OutputKind, PictureCaps, language, surroundings},
    denials,
    http::{ApiResult, HttpRequestId, Refusal},
    links::BaseUrl,
};

/// Kept of each stream in one answer, head and tail.
const MAX_STREAM_BYTES: usize = 128 * 1024;
/// Pictures are read at their own address.
const NO_PICTURES: PictureCaps = PictureCaps { each_bytes: 0, all_bytes: 0 };
/// Pictures and plain text are shown by a browser as they are; nothing else is.
const SHOWN: [&str; 5] = ["image/png", "image/jpeg", "image/gif", "image/webp", "text/plain"];

pub(super) fn routes() -> OpenApiRouter<Rest> {
    OpenApiRouter::new().routes(routes!(run)).routes(routes!(output))
}

/// Runs code and answers when it ended; with `Accept: text/event-stream` or `application/x-ndjson` tells of it as it
/// runs.
///
/// An exception is an answer, not a failure. Code goes on when its caller leaves; the same `requestId` finds it again.
#[utoipa::path(post, path = "/sandboxes/{sandbox}/code", tag = "code",
    params(("sandbox" = String, Path, description = "Id or name."), v1::NamespaceQuery),
    request_body = v1::CodeRequest,
    responses((status = 200, content(
        (v1::CodeResult = "application/json"),
        (CodeEvent = "application/x-ndjson"),
        (CodeEvent = "text/event-stream")))))]
async fn run(
    State(rest): State<Rest>,
    Extension(id): Extension<HttpRequestId>,
    headers: HeaderMap,
    ask: Ask,
    base: Option<Extension<BaseUrl>>,
    JsonBody(asked): JsonBody<v1::CodeRequest>,
) -> ApiResult<Response> {
    let spec = spec(&rest, &ask, asked).await?;
    let ignored = surroundings::ignored(&rest.engine, &ask.who, &ask.which, &spec).await;
    let view = rest.engine.exec(&ask.who, &ask.which, spec).await?;
    let mut running = Running::new(&rest, ask.who, &view, base.as_deref()).await?;
    running.collected.warn(ignored);
    match Format::asked(&headers) {
        Some(format @ (Format::Sse | Format::Ndjson)) => {
            Ok(stream::answer(format, id, &rest.stop, running.events()))
        }
        _ => Ok(Json(running.finish_reading().await?).into_response()),
    }
}

async fn spec(rest: &Rest, ask: &Ask, asked: v1::CodeRequest) -> Result<ExecSpec> {
    let language = match &asked.language {
        Some(text) => language::named(&rest.engine, &ask.who, &ask.which, text).await?,
        None => language::of_context(&rest.engine, &ask.who, &ask.which, asked.context.as_ref()).await,
    };
    exec_spec(asked, language)
}

/// The exec of a cell in this language.
pub(super) fn exec_spec(asked: v1::CodeRequest, language: Language) -> Result<ExecSpec> {
    let spec = ExecSpec {
        env: asked.env,
        cwd: asked.cwd,
        user: asked.user,
        timeout: asked.timeout_ms.map(Duration::from_millis),
        request_id: asked.request_id,
        cell: Some(CellSpec { language, context: asked.context, code: asked.code }),
        track_files: asked.track_files.unwrap_or(true),
        ..ExecSpec::default()
    };
    spec.check()?;
    Ok(spec)
}

/// A cell that is read from its beginning to its end.
pub(super) struct Running {
    rest: Rest,
    who: Principal,
    which: SandboxRef,
    exec: ExecView,
    cell: Cell,
    request: Option<RequestId>,
    run: Run,
    collected: Collected,
    stdout: TextDecoder,
    stderr: TextDecoder,
}

impl Running {
    pub(super) async fn new(
        rest: &Rest,
        who: Principal,
        view: &ExecView,
        base: Option<&BaseUrl>,
    ) -> Result<Self> {
        let which = SandboxRef::from(&view.sandbox);
        // The same request id may have been given to a command before.
        let Some(known) = &view.cell else {
            let message = format!("exec {} with the same requestId does not run code", view.id);
            return Err(Error::new(ErrorKind::AlreadyExists, message).with_hint("Use another requestId."));
        };
        let cell = Cell {
            sandbox: view.sandbox.to_string(),
            exec: view.id.clone(),
            language: known.language,
            context: known.context.clone(),
            links: Some(rest.links.of(&who, base).to(&view.sandbox)),
        };
        let run = rest.engine.run_to_end(&who, view, RunOptions::default()).await?;
        let collected = Collected::new(cell.clone(), MAX_STREAM_BYTES, NO_PICTURES);
        let (stdout, stderr) = (TextDecoder::default(), TextDecoder::default());
        let request = view.request_id.clone();
        let (rest, exec) = (rest.clone(), view.clone());
        Ok(Self { rest, who, which, exec, cell, request, run, collected, stdout, stderr })
    }

    pub(super) async fn finish_reading(mut self) -> Result<v1::CodeResult> {
        while let Some(entry) = self.run.next().await {
            self.collected.take(&entry);
        }
        self.finish().await
    }

    async fn finish(mut self) -> Result<v1::CodeResult> {
        let end = self.run.end().await?;
        if let Some(ExecOutcome::NotStarted { reason, message }) = end.outcome() {
            let (engine, language) = (&self.rest.engine, self.cell.language);
            let why = (*reason, message.as_str());
            let request = self.request.as_ref();
            return Err(language::not_started(engine, &self.who, &self.which, language, why, request).await);
        }
        self.collected.warn(denials::told(&self.rest.engine, &self.who, &self.exec).await);
        let finished = self.collected.finish(end.outcome(), |_cursor| String::new());
        Ok(v1::CodeResult {
            result: finished.result,
            warnings: finished.warnings,
            truncated: finished.truncated.into_iter().map(|cut| cut.field).collect(),
        })
    }

    /// Returns the events as they happen; the last one says how the code ended.
    fn events(self) -> BoxStream<'static, Result<Numbered<CodeEvent>>> {
        let started = CodeEvent::Started {
            exec_session_id: self.cell.exec.to_string(),
            language: self.cell.language.to_string(),
            context: self.cell.context.as_ref().map(ToString::to_string),
        };
        let first = streams::iter([Ok(numbered(started))]);
        let rest = streams::unfold(Some(self), |running| async move {
            let mut running = running?;
            match running.run.next().await {
                Some(entry) => Some((running.told(&entry), Some(running))),
                None => Some((vec![running.done().await.map(numbered)], None)),
            }
        });
        first.chain(rest.flat_map(streams::iter)).boxed()
    }

    fn told(&mut self, item: &Result<Entry>) -> Vec<Result<Numbered<CodeEvent>>> {
        let mut events = Vec::new();
        match item.as_ref().map(|entry| &entry.body) {
            Ok(EntryBody::Stdout(bytes)) => {
                let text = self.stdout.take(bytes);
                events.extend((!text.is_empty()).then_some(CodeEvent::Stdout { text }));
            }
            Ok(EntryBody::Stderr(bytes)) => {
                let text = self.stderr.take(bytes);
                events.extend((!text.is_empty()).then_some(CodeEvent::Stderr { text }));
            }
            _ => {}
        }
        self.collected.take_and_tell(item, |told| events.extend(event(told)));
        events.into_iter().map(|event| Ok(numbered(event))).collect()
    }

    async fn done(self) -> Result<CodeEvent> {
        let mut done = self.finish().await?;
        done.result.stdout.clear();
        done.result.stderr.clear();
        done.result.outputs.clear();
        done.truncated.clear();
        Ok(CodeEvent::Done(Box::new(done)))
    }
}

fn numbered(event: CodeEvent) -> Numbered<CodeEvent> {
    let name = match &event {
        CodeEvent::Started { .. } => "started",
        CodeEvent::Stdout { .. } => "stdout",
        CodeEvent::Stderr { .. } => "stderr",
        CodeEvent::Result(_) => "result",
        CodeEvent::Display(_) => "display",
        CodeEvent::Error(_) => "error",
        CodeEvent::Warning { .. } => "warning",
        CodeEvent::Files { .. } => "files",
        CodeEvent::Done(_) => "done",
    };
    // A reader who lost the connection goes on with the entries of the exec, which have numbers of their own.
    Numbered { number: None, event: name, value: event }
}

fn event(told: &CellEvent) -> Option<CodeEvent> {
    Some(match told {
        CellEvent::Output(shown) => match shown.output.kind {
            OutputKind::Result => CodeEvent::Result(shown.output.clone()),
            OutputKind::Display => CodeEvent::Display(shown.output.clone()),
        },
        CellEvent::Error(error) => CodeEvent::Error(error.clone()),
        CellEvent::Warning(message) => CodeEvent::Warning { message: message.clone() },
        CellEvent::Files { files, truncated } => {
            CodeEvent::Files { files: files.clone(), truncated: *truncated }
        }
        // Part of how it ended.
        CellEvent::State { .. } => return None,
    })
}

/// Something that the code showed, whole, in its best form or in the one asked for.
///
/// A browser shows pictures and plain text and runs nothing.
#[utoipa::path(get, path = "/sandboxes/{sandbox}/execs/{exec}/outputs/{number}", tag = "code",
    params(("sandbox" = String, Path, description = "Id or name."), ("exec" = String, Path),
        ("number" = u32, Path, description = "Numbered from 1, in the order in which they were displayed."), v1::OutputFormQuery),
    responses((status = 200, body = Vec<u8>, content_type = "*/*")))]
async fn output(
    State(rest): State<Rest>,
    ask: AskExec<v1::OutputFormQuery>,
    PathNumber(number): PathNumber,
) -> Result<Response, Refusal> {
    let mime = ask.query.mime.as_deref();
    let form = code::output(rest.links.outputs(), &ask.who, &ask.which, &ask.exec, number, mime).await?;
    served(form, number, &rest.serving.by_key)
}

/// Returns the answer with one form of an output. Whatever it says it is, it was written by the workload, and runs
/// nowhere.
fn served(form: Form, number: u32, budget: &Budget) -> Result<Response, Refusal> {
    let is_shown = SHOWN.contains(&form.mime_type.as_str());
    let place = if is_shown { "inline" } else { "attachment" };
    let media_type = match form.mime_type.strip_prefix("text/") {
        Some(_) => format!("{}; charset=utf-8", form.mime_type),
        None => form.mime_type,
    };
    let fallback = HeaderValue::from_static("application/octet-stream");
    let media_type = HeaderValue::try_from(media_type).unwrap_or(fallback);
    let disposition = HeaderValue::try_from(format!("{place}; filename=\"output-{number}\""));
    let disposition = disposition.unwrap_or(HeaderValue::from_static("attachment"));
    let headers = [
        (header::CONTENT_LENGTH, form.bytes.len().into()),
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_DISPOSITION, disposition),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'")),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
    ];
    Ok((headers, budget.body(form.bytes.into())?).into_response())
}
