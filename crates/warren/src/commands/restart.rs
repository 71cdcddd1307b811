//! `warren restart`

use std::time::Duration;

use super::{Context, main_exec, targets};
use crate::{arguments, error::CommandResult};

/// Stop and start sandboxes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// How long to wait for processes to exit before killing them
    #[arg(long, short = 't', alias = "time", value_name = "SPAN", value_parser = arguments::duration)]
    grace: Option<Duration>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = &context.client().await?;
    let grace = args.grace;
    targets::each(context, &args.sandboxes, |sandbox| async move {
        let restarted = client.act_with_grace(sandbox, "restart", grace).await?;
        main_exec::note_if_not_begun_again(client, &restarted).await;
        Ok(restarted)
    })
    .await
}
