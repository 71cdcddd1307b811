//! `warren down`

use std::process::ExitCode;

use super::{Context, sure};
use crate::{
    error::CommandResult,
    sandboxfile::{Action, FileArgs, OnFailure, Project, ProjectSandboxes, carry_out, question},
};

/// Stop the sandboxes of a Sandboxfile, keeping their files
///
/// Sandboxes are stopped before those that they depend on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren down
  warren down api
  warren down --rm --yes")]
pub(crate) struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Remove them too, with their files; volumes are kept
    #[arg(long)]
    rm: bool,
    /// Do not ask before removing
    #[arg(long, short, requires = "rm")]
    yes: bool,
    /// Sandboxes of the file [default: all of the project]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let project = Project::read(&args.file, context.namespace.clone().unwrap_or_default())?;
    let chosen = project.chosen(&args.names)?;
    let client = context.client_in(&project.namespace).await?;
    let found = ProjectSandboxes::new(&project, client.list(&[]).await?)?;
    let mut steps = Vec::new();
    if args.names.is_empty() {
        steps.extend(found.surplus(&project, if args.rm { Action::Remove } else { Action::Stop }));
    }
    steps.extend(found.steps_down(&project, &chosen, args.rm));
    if let Some(question) = question(&steps).filter(|_| !args.yes)
        && !sure::is_sure_or(&question, "--yes")?
    {
        return Ok(ExitCode::FAILURE);
    }
    carry_out(context, &client, &project, steps, OnFailure::GoOn).await
}
