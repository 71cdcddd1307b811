//! `warren fork`

use std::{process::ExitCode, time::Duration};

use frontends::rest::v1;
use sandbox::{Label, Lifetime, SandboxName};

use super::{Context, warnings};
use crate::{arguments, error::CommandResult, output};

/// Create copies of a sandbox with its current files, and print their names
///
/// A running source is paused only during the copy. Forks share its files until they change them, and get its limits,
/// environment, labels, mounts and lifetime. Either all forks are created or none.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren fork dev
  warren fork dev --name attempt
  warren fork dev -n 10 --prefix try
  warren fork dev --name left --name right -e SIDE=both")]
pub(crate) struct Args {
    /// Name or id
    sandbox: String,
    /// Number of forks
    #[arg(long = "count", short = 'n', value_name = "N", value_parser = arguments::number::<usize>)]
    count: Option<usize>,
    /// Name of a fork; may be repeated
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<SandboxName>,
    /// Name the forks PREFIX-1, PREFIX-2 and so on
    #[arg(long, value_name = "PREFIX", conflicts_with = "names")]
    prefix: Option<String>,
    /// Additional environment variable
    #[arg(long, short = 'e', value_name = "KEY=VALUE", value_parser = arguments::variable)]
    env: Vec<arguments::Variables>,
    /// Additional label
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<Label>,
    /// Maximum lifetime from their start [default: the source's]
    #[arg(long, value_name = "TIME", value_parser = arguments::duration)]
    ttl: Option<Duration>,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let request = v1::ForkSandboxRequest {
        names: args.names,
        count: args.count,
        name_prefix: args.prefix,
        env: arguments::environment(&[], &args.env),
        labels: args.label.into_iter().map(|label| (label.key, label.value)).collect(),
        limits: None,
        lifetime: args.ttl.map(|ttl| Lifetime { ttl: Some(ttl), ..Lifetime::default() }),
    };
    let forks = context.client().await?.fork(&args.sandbox, &request).await?;
    if context.json {
        output::json(&v1::ForkList { forks })?;
        return Ok(ExitCode::SUCCESS);
    }
    warnings::tell(&forks);
    for fork in &forks {
        output::line(fork.name.as_str())?;
    }
    Ok(ExitCode::SUCCESS)
}
