//! `warren run`

use std::{io::IsTerminal as _, process::ExitCode, time::Duration};

use frontends::rest::v1;
use sandbox::{Error, ExecOutcome, ExecSpec, NotStarted, OnExpiry, SandboxSpec};
use serde::Serialize;

use super::{Context, lacks, main_exec, missing, warnings};
use crate::{
    arguments::{self, AttachArgs, SandboxArgs},
    cli,
    client::Client,
    error::CommandResult,
    interrupt::Signals,
    output,
    pulls::Show,
    session::{self, Attachment, Ended},
};

/// If this command dies, the daemon removes its temporary sandbox after it idles this long.
const ORPHAN_IDLE: Duration = Duration::from_secs(300);
/// With `--detach --rm`, the daemon removes the sandbox after it idles this long: time to ask how its command ended.
const DETACHED_IDLE: Duration = Duration::from_secs(10);

/// How long a signal waits for a sandbox whose image may still be pulled: the pull is given up when we are gone.
const PULL_PATIENCE: Duration = Duration::from_secs(1);

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

/// What becomes of the sandbox.
#[derive(Debug, Clone, Copy)]
struct Keeping {
    /// It outlives its first command.
    afterwards: bool,
    /// It stays even if that command does not begin: because of --keep, or because an idempotency key may have found
    /// the sandbox of an earlier run.
    unused: bool,
}

impl Keeping {
    fn of(args: &Args) -> Self {
        let is_lasting = args.attach.detach || args.sandbox.plain.name.is_some();
        Self {
            afterwards: args.keep || (is_lasting && !args.rm),
            unused: args.keep || args.sandbox.plain.request_id.is_some(),
        }
    }
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let how = Attachment::checked(&args.attach, context.json)?;
    let mut exec = exec_spec(&args, how)?;
    let keeping = Keeping::of(&args);
    let spec = sandbox_spec(context, &args, keeping)?;
    check_command(&args, &spec);
    if !exec.command.is_empty() {
        exec.command.splice(..0, spec.entrypoint.iter().cloned());
    }
    // From here on, a signal leaves nothing behind.
    let mut signals = Signals::new()?;
    let client = signals.unless_interrupted(context.client()).await?;
    let unmake = async |sandbox: &v1::Sandbox| {
        if !keeping.unused {
            remove(&client, sandbox).await;
        }
    };
    // A program that reads our stderr wants only the command's own.
    let show = Show::unless(context.json || !std::io::stderr().is_terminal());
    // Other images may have to be pulled first, which is shown, and may say what to run.
    let (sandbox, begun) = if spec.image.is_host() && !exec.command.is_empty() {
        let unmake = async |(sandbox, _): (v1::Sandbox, v1::Exec), _signal| unmake(&sandbox).await;
        let (sandbox, begun) = signals.unless_unmade(client.run(&spec, &exec), None, unmake).await?;
        warnings::tell_beside_output(&sandbox, &spec.limits);
        (sandbox, Some(begun))
    } else {
        let unmake = async |sandbox: v1::Sandbox, _signal| unmake(&sandbox).await;
        let creating = client.create_showing(&spec, show);
        let sandbox = signals.unless_unmade(creating, Some(PULL_PATIENCE), unmake).await?;
        warnings::tell_beside_output(&sandbox, &spec.limits);
        if let Err(error) = choose_command(&mut exec, &sandbox) {
            remove(&client, &sandbox).await;
            return Err(error);
        }
        (sandbox, None)
    };
    // With another image than `host`, the words are programs of that image.
    let is_host = spec.image.is_host() && spec.rootfs.is_none();
    let has = if is_host { missing::Has::Images } else { missing::Has::Programs };
    let started = signals.unless_interrupted(start(&client, &sandbox, exec, begun)).await;
    let has_begun = started.as_ref().is_ok_and(|(exec, _)| !is_not_started(exec));
    let is_kept = keeping.afterwards && (has_begun || keeping.unused);
    let typed = Typed {
        words: args.command,
        has,
        init: args.sandbox.init().map(str::to_owned),
        keep: args.keep && args.sandbox.plain.name.is_none(),
    };
    let begun = Begun { client, sandbox, is_kept, typed };
    match started {
        Err(error) => {
            begun.end().await;
            Err(error)
        }
        Ok((exec, _)) if args.attach.detach => begun.detached(exec, context.json).await,
        Ok((_, spec)) if context.json => begun.captured(&spec, &mut signals).await,
        Ok((exec, _)) => begun.attached(&exec, how, &mut signals).await,
    }
}

/// A new sandbox and its first command.
struct Begun {
    client: Client,
    sandbox: v1::Sandbox,
    is_kept: bool,
    typed: Typed,
}

/// What was typed, for hints.
struct Typed {
    words: Vec<String>,
    has: missing::Has,
    init: Option<String>,
    keep: bool,
}

impl Begun {
    async fn attached(self, exec: &v1::Exec, how: Attachment, signals: &mut Signals) -> CommandResult {
        let ended = session::attend(&self.client, exec, how, signals).await;
        if let Ok(ended) = &ended {
            let name = self.sandbox.name.as_str();
            let of = if self.is_kept { lacks::Of::Named(name) } else { lacks::Of::Temporary };
            lacks::tell(&self.client, exec, ended, of).await;
        }
        if !matches!(ended, Ok(Ended::Detached)) {
            self.end().await;
        }
        let ended = ended?;
        let code = ended.exit_code();
        let name = &self.sandbox.name;
        match &ended {
            Ended::Outcome(outcome) => hint(&self.client, outcome, &self.typed).await,
            Ended::Detached => output::note(&session::left_running(name.as_str())),
            Ended::Interrupted(_) => {}
        }
        if self.typed.keep && !matches!(ended, Ended::Detached) {
            output::note(&format!(
                "kept sandbox {name}: `warren exec -it {name}` uses it, `warren rm -f {name}` removes it"
            ));
        }
        Ok(code)
    }

    async fn captured(self, spec: &ExecSpec, signals: &mut Signals) -> CommandResult {
        // The same request id finds the command that has begun.
        let waiting = self.client.exec_and_wait(self.sandbox.id.as_str(), spec);
        let result = signals.unless_interrupted(waiting).await;
        self.end().await;
        let exec = result?;
        let code = exec.exec.exit_code.unwrap_or_default();
        output::json(&Ran { sandbox: self.sandbox, exec, removed: !self.is_kept })?;
        Ok(ExitCode::from(code))
    }

    async fn detached(self, exec: v1::Exec, json: bool) -> CommandResult {
        if let Some(outcome @ ExecOutcome::NotStarted { .. }) = &exec.outcome {
            self.end().await;
            let code = Ended::Outcome(outcome.clone()).exit_code();
            hint(&self.client, outcome, &self.typed).await;
            return Ok(code);
        }
        if json {
            let warnings = Vec::new();
            let exec = v1::ExecResult { exec, stdout: None, stderr: None, files: None, warnings };
            output::json(&Ran { sandbox: self.sandbox, exec, removed: false })?;
        } else {
            output::line(self.sandbox.name.as_str())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn end(&self) {
        if !self.is_kept {
            remove(&self.client, &self.sandbox).await;
        }
    }
}

/// What may have been meant by a program that was not found.
async fn hint(client: &Client, outcome: &ExecOutcome, typed: &Typed) {
    if !matches!(outcome, ExecOutcome::NotStarted { reason: NotStarted::NotFound, .. }) {
        return;
    }
    if let Some(init) = &typed.init {
        output::hint(&no_switch(init));
    } else if let Some(hint) = missing::of(client, &typed.words, &missing::own_line(), typed.has).await {
        output::hint(&hint);
    }
}

/// In Docker, --init is a switch.
fn no_switch(init: &str) -> String {
    format!(
        "--init took {init} as its value: it names a program that runs with the sandbox. Docker's --init is not needed: \
         process 1 reaps here."
    )
}

fn sandbox_spec(context: &Context, args: &Args, keeping: Keeping) -> CommandResult<SandboxSpec> {
    let mut spec = args.sandbox.spec(context.namespace.clone().unwrap_or_default())?;
    if !keeping.afterwards && args.sandbox.plain.idle.is_none() {
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
        let because = args.sandbox.init().map(|init| format!(". {}", no_switch(init))).unwrap_or_default();
        let message = format!("the image `host` has no default command: <PROGRAM> is missing{because}");
        cli::fail("run", missing, &message);
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

/// Starts the command, unless it has begun with the sandbox; returns what was asked for in the end.
async fn start(
    client: &Client,
    sandbox: &v1::Sandbox,
    spec: ExecSpec,
    begun: Option<v1::Exec>,
) -> CommandResult<(v1::Exec, ExecSpec)> {
    let exec = match begun {
        Some(begun) => begun,
        None => client.exec(sandbox.id.as_str(), &spec).await?,
    };
    match second_try(exec.outcome.as_ref(), &spec) {
        Some(spec) => Ok((client.exec(sandbox.id.as_str(), &spec).await?, spec)),
        None => Ok((exec, spec)),
    }
}

fn is_not_started(exec: &v1::Exec) -> bool {
    matches!(exec.outcome, Some(ExecOutcome::NotStarted { .. }))
}

/// Hosts often have `python3` and no `python`, but everyone types `python`; so we retry with `python3` and say so.
fn second_try(outcome: Option<&ExecOutcome>, spec: &ExecSpec) -> Option<ExecSpec> {
    let is_missing = matches!(outcome, Some(ExecOutcome::NotStarted { reason: NotStarted::NotFound, .. }));
    if !is_missing || spec.command.first().is_none_or(|program| program != "python") {
        return None;
    }
    output::note("there is no python in the sandbox; running python3 instead");
    let mut spec = spec.clone();
    "python3".clone_into(spec.command.first_mut()?);
    spec.request_id = main_exec::second_request();
    Some(spec)
}

/// A sandbox that could not be removed is worth a warning, but does not change the exit code.
async fn remove(client: &Client, sandbox: &v1::Sandbox) {
    if let Err(error) = client.remove(sandbox.id.as_str(), true).await {
        output::warn(&format!("sandbox {} was not removed; remove it with `warren rm -f {0}`", sandbox.name));
        error.report(false);
    }
}
