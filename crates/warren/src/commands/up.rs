//! `warren up`

use super::Context;
use crate::{
    error::CommandResult,
    output,
    sandboxfile::{Difference, FileArgs, OnFailure, Opened, carry_out, open},
};

/// Create and start the sandboxes of a Sandboxfile
///
/// Sandboxes are started after those that they depend on. Existing ones are started again with their files, even if the
/// file changed meanwhile: `warren apply` replaces them. They are called PROJECT-NAME;
/// `warren exec PROJECT-NAME SCRIPT` runs one of their scripts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren up
  warren up -f services/Sandboxfile api worker
  warren up --project try --allow-host-path ~/data")]
pub(crate) struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Sandboxes of the file, started with those that they depend on [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let Opened { project, chosen, client, found } = open(context, &args.file, &args.names).await?;
    let steps = found.steps(&project, &chosen, Difference::Tell)?;
    for step in steps.iter().filter(|_| !context.json) {
        if let Some(reason) = &step.reason {
            output::warn(&format!("{}: {reason}", step.sandbox));
        }
    }
    carry_out(context, &client, &project, steps, OnFailure::End).await
}
