//! `warren wait`

use std::{process::ExitCode, time::Duration};

use sandbox::{Error, ErrorKind, ExecId, SandboxState};

use super::Context;
use crate::{arguments, error::CommandResult, output};

/// As `timeout(1)` answers.
const EXIT_TIMED_OUT: u8 = 124;

/// Wait until a command ended, or until a sandbox is in a state
///
/// With EXEC, the command's exit code is printed and is ours. When the time is up the exit code is 124.
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
    /// State to wait for
    #[arg(long, default_value = "stopped")]
    state: SandboxState,
    /// How long to wait
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    match &args.exec {
        Some(exec) => wait_for_exec(context, &args, exec).await,
        None => wait_for_state(context, &args).await,
    }
}

async fn wait_for_state(context: &Context, args: &Args) -> CommandResult {
    let waited = context.client().await?.wait_for_state(&args.sandbox, args.state, args.timeout).await;
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

async fn wait_for_exec(context: &Context, args: &Args, exec: &ExecId) -> CommandResult {
    let view = context.client().await?.wait_exec(&args.sandbox, exec.as_str(), args.timeout).await?;
    if context.json {
        output::json(&view)?;
    }
    let Some(code) = view.exit_code else {
        let error = Error::new(ErrorKind::TimedOut, format!("{exec} still runs"));
        crate::error::CommandError::from(error).report(context.json);
        return Ok(ExitCode::from(EXIT_TIMED_OUT));
    };
    if !context.json {
        output::line(&code.to_string())?;
    }
    Ok(ExitCode::from(code))
}
