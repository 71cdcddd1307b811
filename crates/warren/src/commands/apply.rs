//! `warren apply`

use std::process::ExitCode;

use super::{Context, sure};
use crate::{
    error::CommandResult,
    sandboxfile::{Action, Difference, FileArgs, OnFailure, Opened, carry_out, open, question, show_plan},
};

/// Make the sandboxes as a Sandboxfile says
///
/// Creates those that are missing, starts those that are stopped, replaces those whose entry changed, and removes those
/// that are no longer in the file. Asks before files are lost; volumes are kept. May be interrupted and run again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren apply --dry-run
  warren apply --yes
  warren apply api")]
pub(crate) struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before replacing or removing sandboxes
    #[arg(long, short)]
    yes: bool,
    /// Sandboxes of the file, with those that they depend on; others are left alone [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let Opened { project, chosen, client, found } = open(context, &args.file, &args.names).await?;
    let mut steps = Vec::new();
    if args.names.is_empty() {
        steps.extend(found.surplus(&project, Action::Remove));
    }
    steps.extend(found.steps(&project, &chosen, Difference::Replace)?);
    if args.dry_run {
        return show_plan(context, &project, steps);
    }
    if let Some(question) = question(&steps).filter(|_| !args.yes)
        && !sure::is_sure_or(&question, "--yes")?
    {
        return Ok(ExitCode::FAILURE);
    }
    carry_out(context, &client, &project, steps, OnFailure::End).await
}
