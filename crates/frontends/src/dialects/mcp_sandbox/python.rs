//! `execute_python_code`: code in the sandbox's interpreter, which keeps its variables, and the files that it made.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use engine::{RunEnd, RunOptions, SandboxRef};
use sandbox::{CellSpec, ExecOutcome, ExecSpec, Language};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    sandboxes,
    terminal::{cancelled, unusual_end},
    words,
};
use crate::{
    code::{Cell, CellResult, Collected, Finished, PictureCaps, language},
    denials,
    mcp::{Answer, Call, Part, ToolResult},
};

/// Pictures in one answer.
const PICTURES: PictureCaps = PictureCaps { each_bytes: 1024 * 1024, all_bytes: 4 * 1024 * 1024 };
const NO_LINKS: &str =
    "There are no file_links: this server does not listen on TCP. The files are in the sandbox.";

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    sandbox_id: String,
    code: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Ran {
    stdout: String,
    stderr: String,
    exit_code: i32,
    files: Vec<String>,
    file_links: Vec<String>,
    /// Value of the last expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
}

pub(super) async fn execute(call: Call, arguments: Arguments) -> ToolResult<Ran> {
    let view = sandboxes::find(&call, &arguments.sandbox_id).await?;
    let limit = Some(call.settings.default_timeout());
    let cell = CellSpec { language: Language::Python, context: None, code: arguments.code };
    let spec = ExecSpec { timeout: limit, cell: Some(cell), track_files: true, ..ExecSpec::default() };
    spec.check().map_err(|wrong| words::failure(wrong.into()))?;
    let (engine, which) = (call.engine(), SandboxRef::from(&view.id));
    let (exec, started) =
        engine.exec_ensuring_running(&call.who, &which, spec).await.map_err(words::failure)?;
    let cell = Cell {
        sandbox: view.id.to_string(),
        exec: exec.id.clone(),
        language: Language::Python,
        context: exec.cell.as_ref().and_then(|cell| cell.context.clone()),
        links: Some(call.links().to(&view.id)),
    };
    let mut collected = Collected::new(cell, call.max_bytes(None), PICTURES);
    let options = RunOptions { limit, cancelled: Some(call.cancelled.clone()), ..RunOptions::default() };
    let mut run = engine.run_to_end(&call.who, &exec, options).await.map_err(words::failure)?;
    while let Some(entry) = run.next().await {
        collected.take(&entry);
    }
    let end = run.end().await.map_err(words::failure)?;
    match &end {
        RunEnd::Cancelled(_) => return Err(cancelled()),
        RunEnd::Ended(ExecOutcome::NotStarted { reason, message }) => {
            let why = (*reason, message.as_str());
            let error = language::not_started(engine, &call.who, &which, Language::Python, why, None).await;
            return Err(words::failure(error));
        }
        _ => {}
    }
    if started.is_some() {
        collected.warn(Some(
            "The sandbox was started for this call; variables of earlier calls are lost.".to_owned(),
        ));
    }
    collected.warn(denials::told(engine, &call.who, &exec).await);
    Ok(answer(collected.finish(end.outcome(), |_| String::new()), unusual_end(end.outcome())))
}

fn answer(finished: Finished, unusual_end: Option<String>) -> Answer<Ran> {
    let Finished { result, warnings, truncated, pictures, .. } = finished;
    let parts = pictures.into_iter().map(|picture| Part::Image {
        mime_type: picture.mime_type,
        base64: BASE64_STANDARD.encode(picture.bytes),
    });
    let stderr = stderr(&result, unusual_end);
    let CellResult { stdout, exit_code, files, result, .. } = result;
    let file_links: Vec<_> = files.iter().filter_map(|file| file.url.clone()).collect();
    let no_links = (file_links.len() < files.len()).then(|| NO_LINKS.to_owned());
    let files = files.into_iter().map(|file| file.path).collect();
    Answer::new(Ran { stdout, stderr, exit_code, files, file_links, result })
        .warn_all(warnings)
        .warn_all(no_links)
        .truncate(truncated)
        .with_parts(parts)
}

/// With the traceback and an unusual end, which stand apart here.
fn stderr(result: &CellResult, unusual_end: Option<String>) -> String {
    let traceback = result.error.as_ref().map(|error| error.traceback.as_str());
    let mut text = result.stderr.clone();
    for more in [traceback, unusual_end.as_deref()].into_iter().flatten() {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(more.trim_end());
        text.push('\n');
    }
    text
}
