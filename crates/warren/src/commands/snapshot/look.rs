//! `warren snapshot ls`, `inspect`, `verify`, `reindex`

use std::process::ExitCode;

use frontends::rest::v1;

use crate::{
    commands::{Context, targets},
    error::CommandResult,
    output,
    pulls::short,
};

/// List snapshots
///
/// Snapshots without a name belong to forks, and are deleted with the last of them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot ls
  warren snapshot ls --json")]
pub(super) struct LsArgs {
    /// Print only names, or digests of those without a name
    #[arg(long, short)]
    quiet: bool,
}

/// Show all details of snapshots
///
/// Prints JSON: an object for one snapshot, an array for several.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot inspect ready")]
pub(super) struct InspectArgs {
    /// Names or digests
    #[arg(required = true, value_name = "SNAPSHOT")]
    snapshots: Vec<String>,
}

/// Read a whole snapshot and compare it with its recorded digests
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot verify ready
  warren snapshot verify ready --parents")]
pub(super) struct VerifyArgs {
    /// Name or digest
    snapshot: String,
    /// Also verify the snapshots it is based on
    #[arg(long)]
    parents: bool,
}

/// List snapshots again that are on the daemon's disk but missing from its records
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot reindex")]
pub(super) struct ReindexArgs {}

pub(super) async fn list(context: &Context, args: &LsArgs) -> CommandResult {
    let snapshots = context.client().await?.snapshots().await?;
    if args.quiet {
        for snapshot in &snapshots {
            output::line(&called(snapshot))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if context.json {
        output::json(&v1::SnapshotList { snapshots })?;
        return Ok(ExitCode::SUCCESS);
    }
    let heading = ["SNAPSHOT", "DIGEST", "IMAGE", "FROM", "SIZE", "CREATED", "HELD", "USERS"];
    let row = |snapshot: &v1::Snapshot| {
        [
            snapshot.name.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            short(&snapshot.digest),
            snapshot.image.to_string(),
            snapshot.source_sandbox.to_string(),
            output::bytes(snapshot.size_bytes),
            output::ago(snapshot.created_at),
            snapshot.held_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms")),
            snapshot.used_by.len().to_string(),
        ]
    };
    output::table(heading, snapshots.iter().map(row))?;
    Ok(ExitCode::SUCCESS)
}

fn called(snapshot: &v1::Snapshot) -> String {
    snapshot.name.as_ref().map_or_else(|| snapshot.digest.clone(), ToString::to_string)
}

pub(super) async fn inspect(context: &Context, args: &InspectArgs) -> CommandResult {
    let client = &context.client().await?;
    targets::inspect(&args.snapshots, |snapshot| client.snapshot(snapshot)).await
}

pub(super) async fn verify(context: &Context, args: &VerifyArgs) -> CommandResult {
    let found = context.client().await?.verify_snapshot(&args.snapshot, args.parents).await?;
    if context.json {
        output::json(&found)?;
    } else {
        output::line(&found.digest)?;
        for parent in &found.parents {
            output::line(parent)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn reindex(context: &Context) -> CommandResult {
    let found = context.client().await?.reindex_snapshots().await?;
    if context.json {
        output::json(&found)?;
    } else {
        output::line(&found.found.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
