//! `warren snapshot create`, `warren snapshot rm`, `warren snapshot restore`

use std::{process::ExitCode, time::Duration};

use frontends::rest::v1;
use sandbox::{Label, Lifetime, SandboxName, SnapshotName};

use crate::{
    arguments,
    commands::{Context, targets, warnings},
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
    /// Name of the snapshot [default: generated from the sandbox's name]
    #[arg(long)]
    name: Option<SnapshotName>,
    /// Label
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<Label>,
    /// Take the name over from an existing snapshot, which is deleted unless it is in use
    #[arg(long)]
    replace: bool,
}

/// Remove snapshots
///
/// Fails if sandboxes or other snapshots are based on it. With --force, it loses its name and is deleted with the last
/// of them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot rm ready
  warren snapshot rm -f old older")]
pub(super) struct RmArgs {
    /// Names or digests
    #[arg(required = true, value_name = "SNAPSHOT")]
    snapshots: Vec<String>,
    /// Remove it even if it is in use; it is deleted when nothing uses it any more
    #[arg(long, short)]
    force: bool,
}

/// Create a sandbox from a snapshot and print its name
///
/// It gets the environment, user, working directory and limits of the sandbox that the snapshot was taken from.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot restore ready
  warren snapshot restore ready --name again -e DEBUG=1 --ttl 1h")]
pub(super) struct RestoreArgs {
    /// Name or digest
    snapshot: String,
    /// Name of the sandbox [default: generated]
    #[arg(long)]
    name: Option<SandboxName>,
    /// Additional environment variable
    #[arg(long, short = 'e', value_name = "KEY=VALUE", value_parser = arguments::variable)]
    env: Vec<arguments::Variables>,
    /// User for its commands [default: the source's]
    #[arg(long, short = 'u')]
    user: Option<String>,
    /// Label
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<Label>,
    /// Maximum lifetime from its start, such as 30m or 2h
    #[arg(long, value_name = "TIME", value_parser = arguments::duration)]
    ttl: Option<Duration>,
    /// Replace the sandbox that has the name; it keeps its settings and mounts
    #[arg(long, requires = "name")]
    replace: bool,
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
        env: arguments::environment(&[], &args.env),
        labels: args.label.into_iter().map(|label| (label.key, label.value)).collect(),
        lifetime: Lifetime { ttl: args.ttl, ..Lifetime::default() },
        limits: None,
        replace: args.replace,
    };
    let made = context.client().await?.restore_snapshot(&args.snapshot, &request).await?;
    if context.json {
        output::json(&made)?;
    } else {
        warnings::tell([&made]);
        output::line(made.name.as_str())?;
    }
    Ok(ExitCode::SUCCESS)
}
