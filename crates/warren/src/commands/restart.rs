//! `warren restart`

use std::time::Duration;

use super::{Context, targets};
use crate::{arguments, error::CommandResult};

/// Stop and start sandboxes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// How long to wait for processes to exit before killing them
    #[arg(long, short = 't', value_name = "SPAN", value_parser = arguments::duration)]
    grace: Option<Duration>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = &context.client().await?;
    let grace = args.grace;
    targets::each(context, &args.sandboxes, |sandbox| client.act_with_grace(sandbox, "restart", grace)).await
}
