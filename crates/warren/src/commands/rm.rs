//! `warren rm`

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
    /// Stop running sandboxes first
    #[arg(long, short)]
    force: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = &context.client().await?;
    let force = args.force;
    targets::each(context, &args.sandboxes, |sandbox| client.remove(sandbox, force)).await
}
