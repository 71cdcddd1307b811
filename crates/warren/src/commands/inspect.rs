//! `warren inspect`

use frontends::rest::v1;
use sandbox::Usage;
use serde::Serialize;

use super::{Context, targets};
use crate::{client::Client, error::CommandResult};

/// Show all details of sandboxes, including their isolation
///
/// Prints JSON: an object for one sandbox, an array for several.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
}

#[derive(Serialize)]
struct Inspected {
    #[serde(flatten)]
    sandbox: v1::Sandbox,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    execs: Vec<v1::Exec>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = &context.client().await?;
    targets::inspect(&args.sandboxes, |sandbox| inspect(client, sandbox)).await
}

async fn inspect(client: &Client, name: &str) -> CommandResult<Inspected> {
    let sandbox = client.inspect(name).await?;
    let execs = client.execs(sandbox.id.as_str()).await?;
    // A sandbox that is stopping or stopped uses nothing that could be measured.
    let usage = if sandbox.state.is_live() { client.usage(sandbox.id.as_str()).await.ok() } else { None };
    Ok(Inspected { sandbox, usage, execs })
}
