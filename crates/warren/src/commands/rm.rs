//! `warren rm`

use sandbox::{ErrorKind, Next};

use super::{Context, targets};
use crate::error::CommandResult;

/// Remove sandboxes and their files
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren rm old-one older-one
  warren rm -f $(warren ps -aq)")]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// Stop running sandboxes first, and ignore those that do not exist
    #[arg(long, short)]
    force: bool,
    /// Accepted and without effect: what a sandbox writes outside of volumes goes with it, and volumes have names
    #[arg(long = "volumes", short = 'v', hide = true)]
    volumes: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = &context.client().await?;
    let force = args.force;
    targets::each(context, &args.sandboxes, |sandbox| async move {
        let removed = client.remove(sandbox, force).await;
        // As for rm(1): with --force, what is gone already is no failure.
        removed.map_err(|failed| match failed.kind() {
            Some(ErrorKind::NotFound) if force => failed.map(|error| error.with_next(Next::Nothing)),
            _ => failed,
        })
    })
    .await
}
