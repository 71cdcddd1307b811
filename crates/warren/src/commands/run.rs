//! `warren run`

use std::{io::IsTerminal as _, process::ExitCode, time::Duration};

use clap::CommandFactory as _;
use frontends::rest::v1;
use sandbox::{Error, ExecOutcome, ExecSpec, NotStarted, OnExpiry, SandboxSpec};
use serde::Serialize;

use super::{Context, image_hint, main_exec, warnings};
use crate::{
    arguments::{self, AttachArgs, SandboxArgs},
    client::Client,
    error::CommandResult,
    output,
    pulls::Show,
    session::{self, Attachment, Ended},
};

/// If this command dies, the daemon removes its temporary sandbox after it idles this long.
const ORPHAN_IDLE: Duration = Duration::from_secs(300);
/// With `--detach --rm`, the daemon removes the sandbox after it idles this long: time to ask how its command ended.
const DETACHED_IDLE: Duration = Duration::from_secs(10);

/// Run a command in a new sandbox
///
/// Prints output as it comes; the exit code is that of the command. Without a program, runs the image's default
/// command. The sandbox is removed afterwards unless it has a name, or --keep or --detach is given. With --detach,
/// `warren wait` and `warren logs` are about the command; it does not run again when the sandbox is restarted, as a
/// program of --init does.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren run python3 -c 'print(6 * 7)'
  echo hello | warren run -i wc -c
  warren run -it --memory 2g bash
  warren run --image alpine -p 8080:80 -e MODE=dev -v $PWD:/srv -w /srv sh serve.sh
  warren run -v models:/data:ro --copy ./app:/srv -w /srv python3 main.py
  warren run --name web -d -- python3 -m http.server")]
pub(crate) struct Args {
    #[command(flatten)]
    sandbox: SandboxArgs,
    #[command(flatten)]
    attach: AttachArgs,
    /// Remove the sandbox afterwards, even if it has a name; with --detach, once nothing has run in it for 10 seconds
    #[arg(long, conflicts_with = "keep")]
    rm: bool,
    /// Keep the sandbox afterwards
    #[arg(long)]
    keep: bool,
    /// Program and arguments [default: the image's command]
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

/// The output of `--json`: the sandbox, and the exec with its output.
#[derive(Serialize)]
struct Ran {
    sandbox: v1::Sandbox,
    exec: v1::ExecResult,
    removed: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let how = Attachment::checked(&args.attach, context.json)?;
    let mut exec = exec_spec(&args, how)?;
    let is_kept =
        args.keep || (args.attach.detach && !args.rm) || (args.sandbox.plain.name.is_some() && !args.rm);
    let spec = sandbox_spec(context, &args, is_kept)?;
    check_command(&args, &spec);
    if !exec.command.is_empty() {
        exec.command.splice(..0, spec.entrypoint.iter().cloned());
    }
    let client = context.client().await?;
    // A program that reads our stderr wants only the command's own.
    let show = Show::unless(context.json || !std::io::stderr().is_terminal());
    // Other images may have to be pulled first, which is shown, and may say what to run.
    let (sandbox, begun) = if spec.image.is_host() && !exec.command.is_empty() {
        let waits = context.json && !args.attach.detach;
        let (sandbox, begun) = client.run(&spec, &exec, waits).await?;
        warnings::tell_beside_output(&sandbox, &spec.limits);
        (sandbox, Some(begun))
    } else {
        let sandbox = client.create_showing(&spec, show).await?;
        warnings::tell_beside_output(&sandbox, &spec.limits);
        if let Err(error) = choose_command(&mut exec, &sandbox) {
            remove(&client, &sandbox).await;
            return Err(error);
        }
        (sandbox, None)
    };
    // Programs of another image than `host` are that image's affair.
    let is_host = spec.image.is_host() && spec.rootfs.is_none();
    let words = if is_host { exec.command.clone() } else { Vec::new() };
    if args.attach.detach {
        let is_unnamed = args.sandbox.plain.name.is_none() || args.rm;
        let started = match begun {
            Some(begun) => begun.exec,
            None => client.exec(sandbox.id.as_str(), &exec).await?,
        };
        return answer_detached(context, &client, sandbox, started, is_unnamed, &words).await;
    }
    if context.json {
        return run_captured(&client, sandbox, exec, begun, is_kept).await;
    }
    let ended = run_attached(&client, &sandbox, exec, begun, how).await;
    if !is_kept && !matches!(ended, Ok(Ended::Detached)) {
        remove(&client, &sandbox).await;
    }
    let ended = ended?;
    let code = ended.exit_code();
    if let Ended::Outcome(outcome) = &ended {
        hint(&client, outcome, &words).await;
    }
    Ok(code)
}

/// A program that was not found may be the name of an image.
async fn hint(client: &Client, outcome: &ExecOutcome, words: &[String]) {
    let is_missing = matches!(outcome, ExecOutcome::NotStarted { reason: NotStarted::NotFound, .. });
    if is_missing && let Some(hint) = image_hint::of(client, words).await {
        output::hint(&hint);
    }
}

fn sandbox_spec(context: &Context, args: &Args, is_kept: bool) -> CommandResult<SandboxSpec> {
    let mut spec = args.sandbox.spec(context.namespace.clone().unwrap_or_default())?;
    if !is_kept && args.sandbox.plain.idle.is_none() {
        spec.lifetime.idle = Some(if args.attach.detach { DETACHED_IDLE } else { ORPHAN_IDLE });
        spec.lifetime.on_expiry = OnExpiry::Remove;
    }
    if args.rm && args.attach.detach {
        spec.lifetime.on_expiry = OnExpiry::Remove;
    }
    Ok(spec)
}

/// The image `host` has no default command, so the user must name a program.
fn check_command(args: &Args, spec: &SandboxSpec) {
    let is_host = spec.image.is_host() && spec.rootfs.is_none();
    if args.command.is_empty() && spec.entrypoint.is_empty() && is_host {
        let missing = clap::error::ErrorKind::MissingRequiredArgument;
        let message = "the image `host` has no default command: <PROGRAM> is missing";
        crate::cli::Cli::command().error(missing, message).exit();
    }
}

/// Follows Docker: an entry point given by flag comes before the arguments; without either, the image decides what to
/// run.
fn choose_command(exec: &mut ExecSpec, sandbox: &v1::Sandbox) -> CommandResult<()> {
    if exec.command.is_empty() {
        exec.command = sandbox.entrypoint.iter().chain(&sandbox.cmd).cloned().collect();
    }
    if exec.command.is_empty() {
        return Err(Error::invalid(format!("image {} has no default command", sandbox.image))
            .with_hint("Give a program to run.")
            .into());
    }
    exec.check()?;
    Ok(())
}

fn exec_spec(args: &Args, how: Attachment) -> CommandResult<ExecSpec> {
    let mut spec = match args.command.is_empty() {
        true => ExecSpec::default(),
        false => ExecSpec::argv(arguments::command(&args.command)?),
    };
    spec.stdin = how.stdin;
    spec.terminal = how.terminal_size();
    spec.timeout = args.attach.timeout;
    spec.request_id = main_exec::first_request();
    if how.terminal
        && let Some(term) = crate::env::text("TERM")
    {
        spec.env.insert("TERM".to_owned(), term);
    }
    Ok(spec)
}

async fn answer_detached(
    context: &Context,
    client: &Client,
    sandbox: v1::Sandbox,
    started: v1::Exec,
    is_unnamed: bool,
    words: &[String],
) -> CommandResult {
    if let Some(outcome @ ExecOutcome::NotStarted { .. }) = &started.outcome {
        if is_unnamed {
            remove(client, &sandbox).await;
        }
        let code = Ended::Outcome(outcome.clone()).exit_code();
        hint(client, outcome, words).await;
        return Ok(code);
    }
    if context.json {
        let warnings = Vec::new();
        let exec = v1::ExecResult { exec: started, stdout: None, stderr: None, files: None, warnings };
        output::json(&Ran { sandbox, exec, removed: false })?;
    } else {
        output::line(sandbox.name.as_str())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn run_attached(
    client: &Client,
    sandbox: &v1::Sandbox,
    spec: ExecSpec,
    begun: Option<v1::ExecResult>,
    how: Attachment,
) -> CommandResult<Ended> {
    let exec = match begun {
        Some(begun) => begun.exec,
        None => client.exec(sandbox.id.as_str(), &spec).await?,
    };
    let exec = match second_try(exec.outcome.as_ref(), spec) {
        Some(spec) => client.exec(sandbox.id.as_str(), &spec).await?,
        None => exec,
    };
    session::attend(client, &exec, how).await
}

/// Hosts often have `python3` and no `python`, but everyone types `python`; so we retry with `python3` and say so.
fn second_try(outcome: Option<&ExecOutcome>, mut spec: ExecSpec) -> Option<ExecSpec> {
    let is_missing = matches!(outcome, Some(ExecOutcome::NotStarted { reason: NotStarted::NotFound, .. }));
    if !is_missing || spec.command.first().is_none_or(|program| program != "python") {
        return None;
    }
    output::note("there is no python in the sandbox; running python3 instead");
    "python3".clone_into(spec.command.first_mut()?);
    spec.request_id = main_exec::second_request();
    Some(spec)
}

async fn run_captured(
    client: &Client,
    sandbox: v1::Sandbox,
    spec: ExecSpec,
    begun: Option<v1::ExecResult>,
    is_kept: bool,
) -> CommandResult {
    let result = captured(client, &sandbox, spec, begun).await;
    if !is_kept {
        remove(client, &sandbox).await;
    }
    let exec = result?;
    let code = exec.exec.exit_code.unwrap_or_default();
    output::json(&Ran { sandbox, exec, removed: !is_kept })?;
    Ok(ExitCode::from(code))
}

async fn captured(
    client: &Client,
    sandbox: &v1::Sandbox,
    spec: ExecSpec,
    begun: Option<v1::ExecResult>,
) -> CommandResult<v1::ExecResult> {
    let result = match begun {
        Some(begun) => begun,
        None => client.exec_and_wait(sandbox.id.as_str(), &spec).await?,
    };
    match second_try(result.exec.outcome.as_ref(), spec) {
        Some(spec) => client.exec_and_wait(sandbox.id.as_str(), &spec).await,
        None => Ok(result),
    }
}

/// A sandbox that could not be removed is worth a warning, but does not change the exit code.
async fn remove(client: &Client, sandbox: &v1::Sandbox) {
    if let Err(error) = client.remove(sandbox.id.as_str(), true).await {
        output::warn(&format!("sandbox {} was not removed; remove it with `warren rm -f {0}`", sandbox.name));
        error.report(false);
    }
}
