//! Commands that act on several sandboxes: each is reported, and a failure does not stop the others.

use std::{io::Write as _, process::ExitCode};

use futures_util::{StreamExt as _, stream};
use sandbox::Next;
use serde::Serialize;

use super::{Context, main_exec, near};
use crate::{
    error::{CommandError, CommandResult, EXIT_FAILURE},
    output,
};

/// Sandboxes worked on at the same time.
const MAX_AT_ONCE: usize = 8;

/// One line of `--json`: the result for one sandbox.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a, T> {
    target: &'a str,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<T>,
    /// Why there was nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<serde_json::Value>,
}

/// The sandboxes that a command without options is about.
#[derive(Debug, clap::Args)]
pub(crate) struct Sandboxes {
    /// Names or ids
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
}

impl Sandboxes {
    /// Does what the API has a verb for.
    pub(super) async fn act(&self, context: &Context, verb: &str) -> CommandResult {
        let client = &context.client().await?;
        each(context, &self.sandboxes, |sandbox| client.act(sandbox, verb)).await
    }

    pub(super) async fn start(&self, context: &Context) -> CommandResult {
        let client = &context.client().await?;
        each(context, &self.sandboxes, |sandbox| async move {
            let started = client.act(sandbox, "start").await?;
            main_exec::note_if_not_begun_again(client, &started).await;
            Ok(started)
        })
        .await
    }
}

/// Shows all there is about each: an object for one, a list for several.
pub(super) async fn inspect<'a, T: Serialize, F: Future<Output = CommandResult<T>>>(
    names: &'a [String],
    look: impl Fn(&'a str) -> F,
) -> CommandResult {
    let mut inspected = Vec::with_capacity(names.len());
    for name in names {
        inspected.push(look(name).await?);
    }
    match inspected.as_slice() {
        [one] => output::json(one)?,
        several => output::json(&several)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Applies `act` to each target and reports the results. The exit code is a failure if any of them failed.
pub(super) async fn each<'a, T: Serialize, F>(
    context: &Context,
    targets: &'a [String],
    act: impl Fn(&'a str) -> F,
) -> CommandResult
where
    F: Future<Output = CommandResult<T>>,
{
    let mut work = stream::iter(targets.iter().map(|target| {
        let doing = act(target.as_str());
        async move { (target.as_str(), doing.await) }
    }))
    .buffered(MAX_AT_ONCE);
    let (mut answers, mut code) = (Vec::new(), ExitCode::SUCCESS);
    while let Some((target, result)) = work.next().await {
        let result = match result {
            Ok(done) => Ok(Done::Now(done)),
            Err(error) => match nothing_to_do(&error) {
                Some(already) => Ok(already),
                None => {
                    code = ExitCode::from(EXIT_FAILURE);
                    Err(near::explain(context, error).await)
                }
            },
        };
        if context.json {
            answers.push(answer(target, result));
        } else {
            say(target, result)?;
        }
    }
    if context.json {
        output::json(&answers)?;
    }
    std::io::stdout().flush()?;
    Ok(code)
}

/// What came of one target.
enum Done<T> {
    Now(T),
    /// It was so before.
    Already {
        note: String,
        is_there: bool,
    },
}

/// Whether an error says only that there was nothing to do, as when a running sandbox is started.
fn nothing_to_do<T>(error: &CommandError) -> Option<Done<T>> {
    let CommandError::Failed { error, .. } = error else { return None };
    if !matches!(error.next(), Some(Next::Nothing)) {
        return None;
    }
    let note = match (error.state(), error.subject()) {
        (Some(state), Some(subject)) => format!("{subject} is {state} already"),
        _ => error.to_string(),
    };
    Some(Done::Already { note, is_there: error.state().is_some() })
}

fn say<T>(target: &str, result: CommandResult<Done<T>>) -> CommandResult<()> {
    match result {
        Ok(Done::Now(_)) => return output::line(target),
        Ok(Done::Already { note, is_there }) => {
            output::note(&note);
            if is_there {
                return output::line(target);
            }
        }
        Err(error) => drop(error.report(false)),
    }
    Ok(())
}

/// Failures among several independent things. The first is reported last, where users look for it.
#[derive(Default)]
pub(super) struct Failures {
    first: Option<CommandError>,
}

impl Failures {
    /// The result for one of them, unless it failed.
    pub(super) fn note<T>(&mut self, result: CommandResult<T>, json: bool) -> Option<T> {
        match result {
            Ok(done) => return Some(done),
            Err(error) if self.first.is_none() => self.first = Some(error),
            Err(error) => drop(error.report(json)),
        }
        None
    }

    pub(super) fn end(self) -> CommandResult {
        self.first.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

fn answer<T>(target: &str, result: CommandResult<Done<T>>) -> Answer<'_, T> {
    match result {
        Ok(Done::Now(value)) => Answer { target, ok: true, sandbox: Some(value), note: None, error: None },
        Ok(Done::Already { note, .. }) => {
            Answer { target, ok: true, sandbox: None, note: Some(note), error: None }
        }
        Err(error) => {
            let body: Option<serde_json::Value> = serde_json::from_str(&error.as_json()).ok();
            Answer {
                target,
                ok: false,
                sandbox: None,
                note: None,
                error: body.and_then(|body| body.get("error").cloned()),
            }
        }
    }
}
