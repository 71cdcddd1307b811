//! `warren create`

use std::process::ExitCode;

use super::{Context, warnings};
use crate::{arguments::SandboxArgs, error::CommandResult, output, pulls::Show};

/// Create a sandbox and leave it running
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren create --name dev --memory 2g --ttl 8h
  warren create --name web -v site:/srv --tmpfs /scratch:64m --init 'python3 -m http.server -d /srv'
  warren exec dev uname -a")]
pub(crate) struct Args {
    #[command(flatten)]
    sandbox: SandboxArgs,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let spec = args.sandbox.spec(context.namespace.clone().unwrap_or_default())?;
    let client = context.client().await?;
    let sandbox = client.create_showing(&spec, Show::unless(context.json)).await?;
    if context.json {
        output::json(&sandbox)?;
        return Ok(ExitCode::SUCCESS);
    }
    warnings::tell_in_brief(&sandbox, &spec.limits);
    output::line(sandbox.name.as_str())?;
    Ok(ExitCode::SUCCESS)
}
