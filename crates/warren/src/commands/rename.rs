//! `warren rename`

use std::process::ExitCode;

use frontends::rest::v1::SandboxChange;
use sandbox::SandboxName;

use super::Context;
use crate::{error::CommandResult, output};

/// Give a sandbox another name
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren rename brave-otter dev")]
pub(crate) struct Args {
    /// Name or id
    sandbox: String,
    /// New name
    name: SandboxName,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let change = SandboxChange { name: Some(args.name), ..SandboxChange::default() };
    let changed = context.client().await?.change(&args.sandbox, &change).await?;
    if context.json {
        output::json(&changed)?;
    } else {
        output::line(changed.name.as_str())?;
    }
    Ok(ExitCode::SUCCESS)
}
