//! `warren snapshot create`, `warren snapshot rm`, `warren snapshot restore`

use std::{process::ExitCode, time::Duration};

use frontends::rest::v1;
use sandbox::{Label, Lifetime, SandboxName, SnapshotName};

use crate::{
    arguments,
    commands::{Context, targets},
    error::CommandResult,
    output,
};

/// Take a snapshot of a sandbox, running or stopped, and print its name
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot create dev --name ready
  warren snapshot create dev --name nightly --replace --label kind=backup")]
pub(super) struct CreateArgs {
    /// Name or id
    sandbox: String,
    /// Made up from the sandbox's name when absent
    #[arg(long)]
    name: Option<SnapshotName>,
    /// A label of your own
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<Label>,
    /// Take the name from a snapshot that has it, which goes unless it is used
    #[arg(long)]
    replace: bool,
}

/// Remove snapshots
///
/// One that sandboxes or other snapshots are made on is refused. By force it loses its name, and goes with the last of them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot rm ready
  warren snapshot rm -f old older")]
pub(super) struct RmArgs {
    /// Names or digests
    #[arg(required = true, value_name = "SNAPSHOT")]
    snapshots: Vec<String>,
    /// Also while it is used: then it goes with its last user
    #[arg(long, short)]
    force: bool,
}

/// Make a sandbox from a snapshot and print its name
///
/// It gets the environment, user, working directory and limits of the sandbox that the snapshot was taken of.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot restore ready
  warren snapshot restore ready --name again -e DEBUG=1 --ttl 1h")]
pub(super) struct RestoreArgs {
    /// Name or digest
    snapshot: String,
    /// Name of the sandbox; made up when absent
    #[arg(long)]
    name: Option<SandboxName>,
    /// Further variable of its environment
    #[arg(long, short = 'e', value_name = "KEY=VALUE", value_parser = arguments::variable)]
    env: Vec<(String, String)>,
    /// Another user than its source had
    #[arg(long, short = 'u')]
    user: Option<String>,
    /// A label of your own
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<Label>,
    /// Lifetime from its start, such as 30m or 2h
    #[arg(long, value_name = "TIME", value_parser = arguments::duration)]
    ttl: Option<Duration>,
}

pub(super) async fn create(context: &Context, args: CreateArgs) -> CommandResult {
    let request = v1::SnapshotRequest {
        sandbox: args.sandbox,
        namespace: None,
        name: args.name,
        labels: args.label.into_iter().map(|label| (label.key, label.value)).collect(),
        replace: args.replace,
    };
    let taken = context.client().await?.create_snapshot(&request).await?;
    if context.json {
        output::json(&taken)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(taken.name.as_ref().map_or(taken.digest.as_str(), SnapshotName::as_str))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn remove(context: &Context, args: &RmArgs) -> CommandResult {
    let client = &context.client().await?;
    let force = args.force;
    targets::each(context, &args.snapshots, |snapshot| client.remove_snapshot(snapshot, force)).await
}

pub(super) async fn restore(context: &Context, args: RestoreArgs) -> CommandResult {
    let request = v1::RestoreRequest {
        name: args.name,
        user: args.user,
        env: arguments::environment(&args.env),
        labels: args.label.into_iter().map(|label| (label.key, label.value)).collect(),
        lifetime: Lifetime { ttl: args.ttl, ..Lifetime::default() },
        limits: None,
    };
    let made = context.client().await?.restore_snapshot(&args.snapshot, &request).await?;
    if context.json {
        output::json(&made)?;
    } else {
        output::line(made.name.as_str())?;
    }
    Ok(ExitCode::SUCCESS)
}
