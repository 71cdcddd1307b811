//! Create, list, inspect and remove volumes.

use std::process::ExitCode;

use clap::ValueEnum;
use frontends::rest::v1;
use sandbox::{ByteSize, Label, VolumeKind, VolumeName};
use serde::Serialize;

use crate::{
    commands::{
        Context,
        sure::is_sure,
        targets::{self, Failures},
    },
    error::CommandResult,
    output,
};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Directory,
    Disk,
}

/// Create a volume
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume create data
  warren volume create cache --quota 2g --label team=red
  warren volume create db --size 10g")]
pub(super) struct CreateArgs {
    /// Name of the volume
    name: VolumeName,
    /// Kind: a directory, or a disk (a file system of fixed size) [default: disk with --size, else directory]
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Size of a disk
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Maximum size of a directory
    #[arg(long, value_name = "SIZE")]
    quota: Option<ByteSize>,
    /// Label
    #[arg(long = "label", short = 'l', value_name = "KEY=VALUE")]
    labels: Vec<Label>,
}

pub(super) async fn create(context: &Context, args: CreateArgs) -> CommandResult {
    let body = v1::VolumeRequest {
        name: args.name,
        namespace: context.namespace.clone(),
        kind: match (args.kind, args.size) {
            (Some(Kind::Disk), _) | (None, Some(_)) => VolumeKind::Disk,
            (Some(Kind::Directory), _) | (None, None) => VolumeKind::Directory,
        },
        size: args.size,
        quota: args.quota,
        labels: args.labels.into_iter().map(|label| (label.key, label.value)).collect(),
    };
    let made = context.client().await?.create_volume(&body).await?;
    if context.json {
        output::json(&made)?;
    } else {
        output::line(made.name.as_str())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// List volumes, their sizes and the sandboxes that mount them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume ls
  warren volume ls --json")]
pub(super) struct LsArgs {
    /// Print only names
    #[arg(long, short)]
    quiet: bool,
}

pub(super) async fn list(context: &Context, args: &LsArgs) -> CommandResult {
    let volumes = context.client().await?.volumes().await?;
    if args.quiet {
        volumes.iter().try_for_each(|volume| output::line(volume.name.as_str()))?;
    } else if context.json {
        output::json(&v1::VolumeList { volumes })?;
    } else {
        let heading = ["NAME", "NAMESPACE", "KIND", "USED", "LIMIT", "CREATED", "MOUNTED BY"];
        output::table(heading, volumes.iter().map(row))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(volume: &v1::Volume) -> [String; 7] {
    let bytes =
        |size: Option<ByteSize>| size.map_or_else(|| "-".to_owned(), |size| output::bytes(size.bytes()));
    let users: Vec<_> = volume.used_by.iter().map(ToString::to_string).collect();
    [
        volume.name.to_string(),
        volume.namespace.to_string(),
        match volume.kind {
            VolumeKind::Directory => "directory".to_owned(),
            VolumeKind::Disk => "disk".to_owned(),
        },
        bytes(volume.used),
        bytes(volume.size.or(volume.quota)),
        output::ago(volume.created_at),
        if users.is_empty() { "-".to_owned() } else { users.join(", ") },
    ]
}

/// Show all details of volumes
///
/// Prints JSON: an object for one volume, an array for several.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume inspect data")]
pub(super) struct InspectArgs {
    /// Names
    #[arg(required = true, value_name = "VOLUME")]
    volumes: Vec<String>,
}

pub(super) async fn inspect(context: &Context, args: &InspectArgs) -> CommandResult {
    let client = &context.client().await?;
    targets::inspect(&args.volumes, |volume| client.volume(volume)).await
}

/// Remove volumes and all their files
///
/// Fails for a volume that a sandbox mounts, even if the sandbox is stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume rm data cache")]
pub(super) struct RmArgs {
    /// Names
    #[arg(required = true, value_name = "VOLUME")]
    volumes: Vec<String>,
}

#[derive(Serialize)]
struct Removed {
    removed: Vec<String>,
}

/// Removes all that can be removed, and reports the first failure at the end.
pub(super) async fn remove(context: &Context, args: &RmArgs) -> CommandResult {
    let client = context.client().await?;
    let (mut removed, mut failures) = (Vec::new(), Failures::default());
    for volume in &args.volumes {
        let Some(()) = failures.note(client.remove_volume(volume).await, context.json) else { continue };
        if !context.json {
            output::line(volume)?;
        }
        removed.push(volume.clone());
    }
    if context.json {
        output::json(&Removed { removed })?;
    }
    failures.end()
}

/// Remove every volume that no sandbox mounts
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume prune
  warren volume prune --force --json")]
pub(super) struct PruneArgs {
    /// Do not ask for confirmation
    #[arg(long, short)]
    force: bool,
}

pub(super) async fn prune(context: &Context, args: &PruneArgs) -> CommandResult {
    let client = context.client().await?;
    let mut unused = client.volumes().await?;
    unused.retain(|volume| volume.used_by.is_empty());
    let names: Vec<_> = unused.iter().map(|volume| volume.name.to_string()).collect();
    let question = format!("Remove {} and all their files?", names.join(", "));
    if !args.force && !unused.is_empty() && !is_sure(&question)? {
        return Ok(ExitCode::SUCCESS);
    }
    let (mut removed, mut failures) = (Vec::with_capacity(unused.len()), Failures::default());
    for volume in &unused {
        let Some(()) = failures.note(client.remove_volume_of(volume).await, context.json) else { continue };
        if !context.json {
            output::line(volume.name.as_str())?;
        }
        removed.push(volume.name.to_string());
    }
    if context.json {
        output::json(&Removed { removed })?;
    }
    failures.end()
}
