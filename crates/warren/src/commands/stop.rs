//! `warren stop`

use std::time::Duration;

use super::{Context, targets};
use crate::{arguments, error::CommandResult};

/// Stop sandboxes, gracefully and then by force, keeping their files
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// How long to wait for processes to exit before killing them
    #[arg(long, short = 't', alias = "time", value_name = "SPAN", value_parser = arguments::duration)]
    grace: Option<Duration>,
    /// Accept no new commands and let running ones finish first
    #[arg(long)]
    drain: bool,
    /// Maximum time for --drain
    #[arg(long, value_name = "SPAN", value_parser = arguments::duration, requires = "drain")]
    timeout: Option<Duration>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = &context.client().await?;
    let Args { grace, drain, timeout, .. } = args;
    targets::each(context, &args.sandboxes, |sandbox| async move {
        if drain {
            client.drain_sandbox(sandbox, timeout).await?;
        }
        client.act_with_grace(sandbox, "stop", grace).await
    })
    .await
}
