//! `warren wait`

use std::{process::ExitCode, time::Duration};

use frontends::rest::v1;
use sandbox::{Error, ErrorKind, ExecId, SandboxState};

use super::{Context, main_exec};
use crate::{
    arguments,
    client::{Client, patiently},
    error::CommandResult,
    output,
};

/// The exit code of `timeout(1)`.
const EXIT_TIMED_OUT: u8 = 124;

/// Wait until a command ends or a sandbox reaches a state
///
/// With EXEC, prints the command's exit code and exits with it; so it does without EXEC for what `warren run` started
/// in the sandbox. Without either, waits until the sandbox is stopped. The exit code is 124 on timeout.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren wait dev
  warren wait dev --state running --timeout 10s
  warren wait dev exc-0123456789abc")]
pub(crate) struct Args {
    /// Name or id
    sandbox: String,
    /// Id of the exec
    #[arg(conflicts_with = "state")]
    exec: Option<ExecId>,
    /// State to wait for [default: stopped]
    #[arg(long)]
    state: Option<SandboxState>,
    /// Maximum time to wait
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = context.client().await?;
    let exec = match (&args.exec, args.state) {
        (None, None) => command_of_run(&client, &args.sandbox).await?,
        (exec, _) => exec.clone(),
    };
    match &exec {
        Some(exec) => wait_for_exec(context, &client, &args, exec).await,
        None => wait_for_state(context, &client, &args).await,
    }
}

/// What the sandbox was made to run, if it has run since the sandbox was started last.
async fn command_of_run(client: &Client, sandbox: &str) -> CommandResult<Option<ExecId>> {
    let view = client.inspect(sandbox).await?;
    if view.init.is_some() || !matches!(view.state, SandboxState::Running | SandboxState::Paused) {
        return Ok(None);
    }
    let execs = client.execs(view.id.as_str()).await?;
    let is_of_this_start = |exec: &&v1::Exec| {
        exec.ended_at.is_none_or(|ended| view.started_at.is_none_or(|started| ended >= started))
    };
    Ok(main_exec::of(&view, &execs).filter(is_of_this_start).map(|exec| exec.id.clone()))
}

async fn wait_for_state(context: &Context, client: &Client, args: &Args) -> CommandResult {
    let state = args.state.unwrap_or(SandboxState::Stopped);
    let waited =
        patiently(args.timeout, async |left| client.wait_for_state(&args.sandbox, state, left).await).await;
    match waited {
        Ok(sandbox) if context.json => output::json(&sandbox)?,
        Ok(sandbox) => output::line(sandbox.state.as_str())?,
        Err(error) if error.kind() == Some(ErrorKind::TimedOut) => {
            error.report(context.json);
            return Ok(ExitCode::from(EXIT_TIMED_OUT));
        }
        Err(error) => return Err(error),
    }
    Ok(ExitCode::SUCCESS)
}

async fn wait_for_exec(context: &Context, client: &Client, args: &Args, exec: &ExecId) -> CommandResult {
    let wait = async |left| client.wait_exec(&args.sandbox, exec.as_str(), left).await;
    let view = patiently(args.timeout, wait).await?;
    if context.json {
        output::json(&view)?;
    }
    let Some(code) = view.exit_code else {
        let error = Error::new(ErrorKind::TimedOut, format!("{exec} is still running"));
        crate::error::CommandError::from(error).report(context.json);
        return Ok(ExitCode::from(EXIT_TIMED_OUT));
    };
    if !context.json {
        output::line(&code.to_string())?;
    }
    Ok(ExitCode::from(code))
}
