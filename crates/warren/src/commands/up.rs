//! `warren up`

use super::Context;
use crate::{
    error::CommandResult,
    output,
    sandboxfile::{Difference, FileArgs, Found, OnFailure, Project, carry_out},
};

/// Create and start the sandboxes of a Sandboxfile
///
/// Sandboxes are started after those that they depend on. Existing ones are started again with their files, even if the
/// file changed meanwhile: `warren apply` replaces them. They are called PROJECT-NAME; `warren exec PROJECT-NAME SCRIPT`
/// runs one of their scripts.
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
    let project = Project::read(&args.file, context.namespace.clone().unwrap_or_default())?;
    let chosen = project.chosen_with_dependencies(&args.names)?;
    project.warnings.iter().for_each(|warning| output::warn(warning));
    let client = context.client_in(&project.namespace).await?;
    let found = Found::new(&project, client.list(&[]).await?)?;
    let steps = found.steps(&project, &chosen, Difference::Tell)?;
    for step in steps.iter().filter(|_| !context.json) {
        if let Some(reason) = &step.reason {
            output::warn(&format!("{}: {reason}", step.sandbox));
        }
    }
    carry_out(context, &client, &project, steps, OnFailure::End).await
}
