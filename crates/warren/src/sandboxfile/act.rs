//! Carries steps out, one after the other, and says what happened.

use std::{process::ExitCode, time::Duration};

use frontends::dialects;
use sandbox::{Error, ErrorKind, SandboxState};
use serde::Serialize;

use super::{
    Action, PROJECT_LABEL, Step,
    project::{Member, Project},
};
use crate::{
    client::Client,
    commands::{Context, warnings},
    error::{CommandError, CommandResult, EXIT_FAILURE},
    output::{self, Paint},
    pulls::Show,
};

/// How long a sandbox that somebody else starts or stops may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The output of `--json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Done {
    project: String,
    /// Nothing was changed.
    dry_run: bool,
    steps: Vec<DoneStep>,
}

#[derive(Debug, Serialize)]
struct DoneStep {
    #[serde(flatten)]
    step: Step,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<serde_json::Value>,
}

/// Whether a failure ends the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// Later steps may depend on the one that failed.
    End,
    GoOn,
}

/// Shows what would be done.
pub(crate) fn show_plan(context: &Context, project: &Project, steps: Vec<Step>) -> CommandResult {
    if context.json {
        let steps = steps.into_iter().map(|step| DoneStep { step, ok: None, error: None }).collect();
        output::json(&Done { project: project.name.to_string(), dry_run: true, steps })?;
        return Ok(ExitCode::SUCCESS);
    }
    for step in &steps {
        output::line(&format!("would {} {}{}", step.action.planned(), step.sandbox, because(step)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Does every step. The exit code is a failure if one of them failed.
pub(crate) async fn carry_out(
    context: &Context,
    client: &Client,
    project: &Project,
    steps: Vec<Step>,
    on_failure: OnFailure,
) -> CommandResult {
    let mut done = Vec::with_capacity(steps.len());
    let mut code = ExitCode::SUCCESS;
    for step in steps {
        let result = act(context, client, project, &step).await;
        let is_failure = result.is_err();
        let error = match result {
            Ok(()) => {
                if !context.json {
                    output::line(&format!("{} {}", step.action.done(), step.sandbox))?;
                }
                None
            }
            Err(error) => Some(tell_failure(context, &step, &error)),
        };
        done.push(DoneStep { step, ok: Some(!is_failure), error });
        if is_failure {
            code = ExitCode::from(EXIT_FAILURE);
            if on_failure == OnFailure::End {
                break;
            }
        }
    }
    if context.json {
        output::json(&Done { project: project.name.to_string(), dry_run: false, steps: done })?;
    }
    Ok(code)
}

/// Reports a failed step, and returns it for `--json`.
fn tell_failure(context: &Context, step: &Step, error: &CommandError) -> serde_json::Value {
    if !context.json {
        output::error(&format!("could not {} {}", step.action.planned(), step.sandbox));
        let _exit_code = error.report(false);
    }
    let body = serde_json::from_str::<serde_json::Value>(&error.as_json()).ok();
    body.and_then(|mut body| body.get_mut("error").map(serde_json::Value::take)).unwrap_or_default()
}

/// The reason of a step, to be put behind it.
pub(crate) fn because(step: &Step) -> String {
    step.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
}

/// Asks which steps would lose files, as one sentence.
pub(crate) fn question(steps: &[Step]) -> Option<String> {
    let mut losses = steps.iter().filter(|step| step.action.is_destructive()).map(|step| {
        let paint = Paint::for_stderr();
        format!("{} {}{}", step.action.planned(), paint.warn(&step.sandbox), because(step))
    });
    let first = losses.next()?;
    let all = losses.fold(first, |all, next| format!("{all}, {next}"));
    Some(format!("This will {all}; their files are lost. Go on?"))
}

async fn act(context: &Context, client: &Client, project: &Project, step: &Step) -> CommandResult<()> {
    let member = || {
        let found = project.members.iter().find(|member| member.name == step.name);
        found.ok_or_else(|| Error::new(ErrorKind::Internal, format!("no member {:?}", step.name)))
    };
    let sandbox = step.sandbox.as_str();
    match step.action {
        Action::Create => create(context, client, project, member()?).await,
        Action::Replace => {
            remove(client, sandbox).await?;
            create(context, client, project, member()?).await
        }
        Action::Start => start(client, sandbox).await,
        Action::Resume => client.act(sandbox, "resume").await.map(drop),
        Action::Await => {
            client.wait_for_state(sandbox, SandboxState::Running, Some(PATIENCE)).await.map(drop)
        }
        Action::Keep => Ok(()),
        Action::Stop => client.act_with_grace(sandbox, "stop", None).await.map(drop),
        Action::Remove => remove(client, sandbox).await,
    }
}

async fn create(context: &Context, client: &Client, project: &Project, member: &Member) -> CommandResult<()> {
    let made = match client.create_showing(&member.spec, Show::unless(context.json)).await {
        Ok(made) => made,
        // The same command may run twice, or have been interrupted after the daemon had begun.
        Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => {
            let name = member.spec.name.as_ref().map(ToString::to_string).unwrap_or_default();
            let found = client.inspect(&name).await?;
            if found.labels.get(PROJECT_LABEL).map(String::as_str) != Some(project.name.as_str()) {
                return Err(error);
            }
            client.wait_for_state(&name, SandboxState::Running, Some(PATIENCE)).await?
        }
        Err(error) => return Err(error),
    };
    if !context.json {
        warnings::tell([&made]);
    }
    let Some((image, language)) = &member.language else { return Ok(()) };
    let found = client.languages(made.id.as_str()).await?;
    if found.iter().any(|found| found.name == language.as_str()) {
        return Ok(());
    }
    client.remove(made.id.as_str(), true).await?;
    Err(dialects::lacks_language(image, *language).into())
}

/// Starts it, after it has stopped if it is about to.
async fn start(client: &Client, sandbox: &str) -> CommandResult<()> {
    if client.inspect(sandbox).await?.state == SandboxState::Stopping {
        client.wait_for_state(sandbox, SandboxState::Stopped, Some(PATIENCE)).await?;
    }
    client.act(sandbox, "start").await.map(drop)
}

/// Removes it, if it is still there.
async fn remove(client: &Client, sandbox: &str) -> CommandResult<()> {
    match client.remove(sandbox, true).await {
        Err(error) if error.kind() == Some(ErrorKind::NotFound) => Ok(()),
        other => other,
    }
}
