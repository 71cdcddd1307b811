//! `warren pause`

use super::{Context, targets};
use crate::error::CommandResult;

/// Pause sandboxes: freeze all their processes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = &context.client().await?;
    targets::each(context, &args.sandboxes, |sandbox| client.act(sandbox, "pause")).await
}
