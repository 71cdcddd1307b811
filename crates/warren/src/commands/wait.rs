//! `warren wait`

use std::{process::ExitCode, time::Duration};

use sandbox::{Error, ErrorKind, ExecId, SandboxState};

use super::Context;
use crate::{arguments, error::CommandResult, output};

/// The exit code of `timeout(1)`.
const EXIT_TIMED_OUT: u8 = 124;

/// Wait until a command ends or a sandbox reaches a state
///
/// With EXEC, prints the command's exit code and exits with it. The exit code is 124 on timeout.
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
    /// Maximum time to wait
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
        let error = Error::new(ErrorKind::TimedOut, format!("{exec} is still running"));
        crate::error::CommandError::from(error).report(context.json);
        return Ok(ExitCode::from(EXIT_TIMED_OUT));
    };
    if !context.json {
        output::line(&code.to_string())?;
    }
    Ok(ExitCode::from(code))
}
