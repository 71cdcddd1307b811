//! `sandbox_run_code`: one cell, answered when it ended.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use engine::{NetworkDenials, RunEnd, RunOptions, SandboxRef};
use sandbox::{CellSpec, Error, ErrorKind, ExecOutcome, ExecSpec, Language, MAX_CODE_BYTES, NotStarted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{code_sandbox, code_sandbox::CodeSandbox, context_name, refused};
use crate::{
    code::{Cell, CellResult, Collected, Finished, Output, PictureCaps, language, surroundings},
    mcp::{
        Answer, Call, Failure, Tool, ToolResult,
        envelope::{Link, Part},
        next_call::written,
        tools::{
            changed_files, denials,
            exec::{Launched, Prepared, launch, rest_of_output, time_limit},
            lacks::{self, FailedCommand},
            telling::{Followed, while_running},
        },
        words::KnownTools,
    },
};

/// The warning that variables in memory did not outlive the stop.
const STARTED_WARNING: &str = "The sandbox was started for this call; variables of earlier calls are lost.";
/// Pictures in one answer. Larger ones are read at their address.
const PICTURES: PictureCaps = PictureCaps { each_bytes: 1024 * 1024, all_bytes: 4 * 1024 * 1024 };
/// Links to what does not fit an answer.
const MAX_LINKS: usize = 20;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Code;
        "sandbox_run_code", "Run code", ADDS, run, core:
            "Run code; variables persist between calls. Returns output, last value, pictures, error, files.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Sandbox; made if missing
    name: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    /// Same as name
    sandbox: Option<String>,
    code: String,
    /// python (default), javascript, typescript, bash, …
    language: Option<String>,
    /// Keeps the variables; default one per language
    context: Option<String>,
    /// false: do not make a missing sandbox; true: start a stopped one, too
    create: Option<bool>,
    /// Of a new sandbox
    #[schemars(extend("x-full-only" = true))]
    image: Option<String>,
    /// Of a new context
    cwd: Option<String>,
    /// Of a new context
    env: Option<BTreeMap<String, String>>,
    #[schemars(extend("x-full-only" = true))]
    user: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    /// Seconds; 0: none
    #[schemars(range(min = 0), extend("x-unlisted" = true))]
    timeout: Option<f64>,
    #[schemars(range(min = 1))]
    timeout_ms: Option<u64>,
    /// Per stream
    #[schemars(range(min = 1))]
    max_bytes: Option<u64>,
    #[schemars(extend("x-full-only" = true))]
    start_if_stopped: Option<bool>,
    /// An exception fails the call
    #[schemars(extend("x-full-only" = true))]
    treat_error_as_failure: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    /// The same again returns the same run
    request_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Ran {
    /// Sandbox
    name: String,
    /// It was created for this.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    created: bool,
    #[serde(flatten)]
    result: CellResult,
}

async fn run(call: Call, arguments: Arguments) -> ToolResult<Ran> {
    let name = arguments.name.or(arguments.sandbox);
    let request = arguments.request_id.map(|id| id.parse()).transpose().map_err(Error::from)?;
    let timeout = time_limit(arguments.timeout, arguments.timeout_ms, Some(call.settings.default_timeout()))?;
    let context = arguments.context.as_deref().map(context_name).transpose()?;
    // Everything that can be wrong with what was asked is told before a sandbox is made for it.
    let language = match arguments.language.as_deref() {
        None => match &name {
            Some(name) => {
                let which = call.sandbox(name)?;
                language::of_context(call.engine(), &call.who, &which, context.as_ref()).await
            }
            None => language::DEFAULT,
        },
        Some(text) => match (text.parse(), &name) {
            (Ok(language), _) => language,
            (Err(_unknown), Some(name)) => {
                language::named(call.engine(), &call.who, &call.sandbox(name)?, text).await?
            }
            (Err(unknown), None) => return Err(language::unknown(&unknown).into()),
        },
    };
    let cell = CellSpec { language, context, code: arguments.code };
    let spec = ExecSpec {
        env: arguments.env.unwrap_or_default(),
        cwd: arguments.cwd,
        user: arguments.user,
        timeout,
        request_id: request.clone(),
        cell: Some(cell.clone()),
        track_files: true,
        ..ExecSpec::default()
    };
    spec.check().map_err(|wrong| unfit(wrong.into(), &cell))?;
    let choice = code_sandbox::SandboxChoice {
        name,
        image: arguments.image,
        creates: arguments.create.unwrap_or(true),
        request,
    };
    let target = code_sandbox::find(&call, choice).await?;
    let prepared = Prepared {
        sandbox: target.name.clone(),
        spec,
        stdin: None,
        max_bytes: arguments.max_bytes,
        takes_default_shell: false,
        start_if_stopped: arguments.create.or(arguments.start_if_stopped).unwrap_or(false),
        // A sandbox that is stopped has lost its variables, which are what code is run for.
        keep_running: true,
        fail_on_non_zero: arguments.treat_error_as_failure.unwrap_or(false),
    };
    run_in(&call, &target, prepared, &cell).await
}

fn unfit(error: Error, cell: &CellSpec) -> Error {
    match cell.code.len() > MAX_CODE_BYTES {
        true => error.with_hint("Write it to a file with sandbox_fs_write and run the file."),
        false => error,
    }
}

async fn run_in(call: &Call, target: &CodeSandbox, prepared: Prepared, spec: &CellSpec) -> ToolResult<Ran> {
    let named = call.sandbox(&prepared.sandbox)?;
    let ignored = surroundings::ignored(call.engine(), &call.who, &named, &prepared.spec).await;
    let launched = launch(call, &prepared).await?;
    let Some(known) = &launched.exec.cell else {
        let message = format!("exec {} with the same requestId does not run code", launched.exec.id);
        return Err(Failure::new(ErrorKind::AlreadyExists, message).with_hint("Use another requestId."));
    };
    let cell = Cell {
        sandbox: target.name.clone(),
        exec: launched.exec.id.clone(),
        language: known.language,
        context: known.context.clone(),
        links: Some(call.links().to(&launched.exec.sandbox)),
    };
    let (max_bytes, limit) = (call.max_bytes(prepared.max_bytes), prepared.spec.timeout);
    let mut collected = Collected::new(cell, max_bytes, PICTURES).preferring_text();
    let options = RunOptions { limit, cancelled: Some(call.cancelled.clone()), ..RunOptions::default() };
    let run = call.engine().run_to_end(&call.who, &launched.exec, options).await?;
    let Followed { end, .. } = while_running(call, run, limit, |entry| collected.take(entry)).await?;
    if let RunEnd::Ended(ExecOutcome::NotStarted { reason, message }) = &end {
        let (which, language, why) = (&launched.which, spec.language, (*reason, message.as_str()));
        let request = launched.exec.request_id.as_ref();
        let error = language::not_started(call.engine(), &call.who, which, language, why, request).await;
        let failure = refused(error);
        return Err(match &spec.context {
            Some(context) if *reason == NotStarted::Other && failure.error().next().is_none() => failure
                .with_hint(format!(
                    "A context keeps one language: omit language, or give another context than {context}."
                )),
            _ => failure,
        });
    }
    let network = denials::during(call, &launched.exec).await;
    collected.warn(ignored);
    collected.warn(denials::told(call, &network, Some(&target.name)));
    collected.warn((launched.was_started && !target.is_new).then(|| STARTED_WARNING.to_owned()));
    let exec = &launched.exec.id;
    let rest = |cursor| rest_of_output(call, &target.name, exec, cursor);
    let mut finished = collected.finish(end.outcome(), rest);
    tell_rest_of_result(&mut finished, &target.name);
    let known = KnownTools::of(call, &call.surface);
    finished.truncated.extend(changed_files::shorten(&mut finished.result.files, Some(&target.name), &known));
    conclude(call, finished, &launched, &end, target, &prepared, &network).await
}

async fn conclude(
    call: &Call,
    finished: Finished,
    launched: &Launched,
    end: &RunEnd,
    target: &CodeSandbox,
    prepared: &Prepared,
    network: &NetworkDenials,
) -> ToolResult<Ran> {
    let parts = parts(&finished);
    let Finished { result, mut warnings, truncated, .. } = finished;
    let exec = &launched.exec.id;
    match end {
        RunEnd::Ended(_) => {}
        RunEnd::Cancelled(_) => {
            let message = match result.state_kept {
                Some(true) => "the call was cancelled and the code interrupted; its variables were kept",
                Some(false) => "the call was cancelled and the code stopped; its variables are lost",
                None => "the call was cancelled and the code interrupted",
            };
            return Err(Failure::new(ErrorKind::Cancelled, message)
                .with_hint(format!("Call sandbox_exec_poll with execSessionId {exec} to read its output."))
                .with_details(json!(result)));
        }
        RunEnd::Overdue | RunEnd::Left => {
            let message =
                format!("exec {exec} exceeded its time limit, and its sandbox did not report how it ended");
            return Err(Failure::new(ErrorKind::TimedOut, message)
                .retryable(false)
                .with_hint("Call sandbox_status: a paused sandbox ends code only when it is resumed.")
                .with_details(json!(result)));
        }
    }
    let failed_code = FailedCommand {
        sandbox: Some(&target.name),
        cwd: prepared.spec.cwd.as_deref(),
        outcome: end.outcome(),
        ..FailedCommand::new(&[], network, &call.surface)
    };
    let lack = lack(call, &launched.which, &result, failed_code).await;
    warnings.extend(time_warning(&result, prepared.spec.timeout, lack.is_some()));
    warnings.extend(state_warning(&result));
    if prepared.fail_on_non_zero && !result.success {
        let failure = failed(&result);
        return Err(match lack {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        });
    }
    warnings.extend(lack);
    let ran = Ran { name: target.name.clone(), created: target.is_new, result };
    Ok(Answer::new(ran)
        .warn_all(target.warnings.clone())
        .warn_all(warnings)
        .truncate(truncated)
        .with_parts(parts))
}

/// Python keeps the last value in `_`, so the call that reads on can be written out.
fn tell_rest_of_result(finished: &mut Finished, sandbox: &str) {
    let Finished { result, truncated, .. } = finished;
    let Some(context) = result.context.as_ref().filter(|_| result.language == Language::Python.as_str())
    else {
        return;
    };
    if let Some(cut) = truncated.iter_mut().find(|cut| cut.field == "result") {
        let (from, to) = (cut.returned_bytes / 2, cut.returned_bytes * 3 / 2);
        let code = format!("print(repr(_)[{from}:{to}])");
        let call = written("sandbox_run_code", &json!({ "name": sandbox, "context": context, "code": code }));
        let resource = cut.hint.take().unwrap_or_default();
        cut.hint = Some(format!("Call {call} for the next part of it. {resource}"));
    }
}

/// Returns the warning about what failed code lacked, as far as its exception and its last words tell.
async fn lack(
    call: &Call,
    which: &SandboxRef,
    result: &CellResult,
    code: FailedCommand<'_>,
) -> Option<String> {
    if result.success {
        return None;
    }
    let exception =
        result.error.as_ref().map(|error| format!("{}\n{}: {}", error.traceback, error.name, error.value));
    let failed = FailedCommand {
        exit_code: result.exit_code,
        timed_out: result.timed_out,
        texts: [exception.as_deref().unwrap_or(&result.stdout), &result.stderr],
        ..code
    };
    lacks::warning(call, which, &failed).await
}

fn failed(result: &CellResult) -> Failure {
    let message = match &result.error {
        Some(error) => format!("the code ended with {}: {}", error.name, error.value),
        None => format!("the code ended with status {}", result.exit_code),
    };
    Failure::of_exec(message)
        .with_hint("Check details.error and details.stderr, correct the code and call again.")
        .with_details(json!(result))
}

fn time_warning(result: &CellResult, limit: Option<Duration>, lacks_something: bool) -> Option<String> {
    let limit = limit.filter(|_| result.timed_out)?;
    let kept = match result.state_kept {
        Some(true) => ", its variables were kept",
        Some(false) | None => "",
    };
    let advice = if lacks_something { "" } else { " Set a larger timeoutMs." };
    Some(format!("The code was stopped at its time limit of {} ms{kept}.{advice}", limit.as_millis()))
}

fn state_warning(result: &CellResult) -> Option<String> {
    if result.state_kept != Some(false) {
        return None;
    }
    let context = result.context.as_deref().unwrap_or("this code");
    let why = result.state_lost.map(|lost| format!(": {}", lost.words())).unwrap_or_default();
    Some(format!("The variables of context {context} are lost{why}. The next call starts without them."))
}

/// Pictures as pictures; what is not in the answer whole as a link to it.
fn parts(finished: &Finished) -> Vec<Part> {
    let pictures = finished.pictures.iter().map(|picture| Part::Image {
        mime_type: picture.mime_type.clone(),
        base64: BASE64_STANDARD.encode(&picture.bytes),
    });
    let is_partial = |output: &&Output| finished.partial.contains(&output.number);
    let links = finished.result.outputs.iter().filter(is_partial).take(MAX_LINKS).map(|output| {
        let best = output.mime_types.iter().find(|mime| *mime != "text/plain").or(output.mime_types.first());
        let image = output.image.as_ref();
        Part::Link(Link {
            uri: output.uri.clone(),
            name: format!("output-{}", output.number),
            mime_type: image.map(|image| image.mime_type.clone()).or_else(|| best.cloned()),
            size: image.map(|image| image.bytes),
        })
    });
    pictures.chain(links).collect()
}
