//! `warren prune`

use std::process::ExitCode;

use sandbox::{ErrorKind, SandboxState};
use serde::Serialize;

use super::{Context, sure::is_sure};
use crate::{client::Client, error::CommandResult, output};

/// Remove unused objects
///
/// By default, removes images that no sandbox or snapshot uses, even if they have names. Most can be pulled or built
/// again; images that were loaded or imported cannot, so save those you have no other copy of with `warren save` first.
/// Sandboxes, snapshots and volumes cannot be recovered, and are removed only with their own option.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren prune
  warren prune --sandboxes --snapshots
  warren prune --all --force")]
pub(crate) struct Args {
    /// Remove stopped sandboxes with their files
    #[arg(long)]
    sandboxes: bool,
    /// Remove snapshots that nothing depends on
    #[arg(long)]
    snapshots: bool,
    /// Remove volumes that no sandbox mounts
    #[arg(long)]
    volumes: bool,
    /// Remove all of these, and unused images
    #[arg(long)]
    all: bool,
    /// Do not ask for confirmation
    #[arg(long, short, visible_alias = "yes", visible_short_alias = 'y')]
    force: bool,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pruned {
    sandboxes: Vec<String>,
    snapshots: Vec<String>,
    volumes: Vec<String>,
    /// By digest.
    images: Vec<String>,
    /// Bytes freed by images; the other objects are not measured.
    image_bytes: u64,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let is_plain = !(args.sandboxes || args.snapshots || args.volumes || args.all);
    let kinds: Vec<_> = [
        (args.sandboxes || args.all, "stopped sandboxes"),
        (args.snapshots || args.all, "snapshots that nothing depends on"),
        (args.volumes || args.all, "volumes that no sandbox mounts"),
        (is_plain || args.all, "unused images, including loaded and imported ones"),
    ]
    .into_iter()
    .filter_map(|(is_chosen, what)| is_chosen.then_some(what))
    .collect();
    if !args.force && !is_sure(&format!("Remove all {}?", kinds.join(", all ")))? {
        return Ok(ExitCode::SUCCESS);
    }
    let client = context.client().await?;
    let mut pruned = Pruned::default();
    let done = prune(&client, &args, is_plain, &mut pruned).await;
    // Show what was removed even if the rest failed.
    tell(context, &pruned)?;
    done.map(|()| ExitCode::SUCCESS)
}

async fn prune(client: &Client, args: &Args, is_plain: bool, pruned: &mut Pruned) -> CommandResult<()> {
    // Users before what they use, so that what becomes unused on the way is removed too.
    if args.sandboxes || args.all {
        sandboxes(client, pruned).await?;
    }
    if args.snapshots || args.all {
        snapshots(client, pruned).await?;
    }
    if args.volumes || args.all {
        volumes(client, pruned).await?;
    }
    if is_plain || args.all {
        images(client, pruned).await?;
    }
    Ok(())
}

fn tell(context: &Context, pruned: &Pruned) -> CommandResult<()> {
    if context.json {
        return output::json(pruned);
    }
    let Pruned { sandboxes, snapshots, volumes, images, image_bytes } = pruned;
    for (kind, names) in
        [("sandbox", sandboxes), ("snapshot", snapshots), ("volume", volumes), ("image", images)]
    {
        for name in names {
            output::line(&format!("removed {kind} {name}"))?;
        }
    }
    output::note(&format!("freed {} of images", output::bytes(*image_bytes)));
    Ok(())
}

async fn sandboxes(client: &Client, pruned: &mut Pruned) -> CommandResult<()> {
    let stopped = [("state".to_owned(), SandboxState::Stopped.as_str().to_owned())];
    for sandbox in client.list(&stopped).await? {
        if is_removed(client.remove(sandbox.id.as_str(), false).await)? {
            pruned.sandboxes.push(sandbox.name.to_string());
        }
    }
    Ok(())
}

/// Repeats until nothing is left to remove: a removed snapshot may have been the last user of another.
async fn snapshots(client: &Client, pruned: &mut Pruned) -> CommandResult<()> {
    loop {
        let mut unused = client.snapshots().await?;
        unused.retain(|snapshot| snapshot.used_by.is_empty());
        if unused.is_empty() {
            return Ok(());
        }
        for snapshot in unused {
            // One without a name goes by itself with the last that needs it.
            if is_removed(client.remove_snapshot(snapshot.id.as_str(), false).await)? {
                pruned.snapshots.push(snapshot.name.map_or(snapshot.digest, |name| name.to_string()));
            }
        }
    }
}

async fn volumes(client: &Client, pruned: &mut Pruned) -> CommandResult<()> {
    let mut unused = client.volumes().await?;
    unused.retain(|volume| volume.used_by.is_empty());
    for volume in &unused {
        if is_removed(client.remove_volume_of(volume).await)? {
            pruned.volumes.push(volume.name.to_string());
        }
    }
    Ok(())
}

async fn images(client: &Client, pruned: &mut Pruned) -> CommandResult<()> {
    let freed = client.prune_images().await?;
    (pruned.images, pruned.image_bytes) = (freed.images, freed.bytes);
    Ok(())
}

/// False for what was gone already.
fn is_removed<T>(removal: CommandResult<T>) -> CommandResult<bool> {
    match removal {
        Err(error) if error.kind() == Some(ErrorKind::NotFound) => Ok(false),
        removed => removed.map(|_| true),
    }
}
