//! `warren prune`

use std::process::ExitCode;

use sandbox::{ErrorKind, SandboxState};
use serde::Serialize;

use super::{Context, sure::is_sure};
use crate::{client::Client, error::CommandResult, output};

/// Remove what nobody uses
///
/// Without a choice: images that no sandbox and no snapshot uses, also named ones. Most can be pulled or built again; what was
/// loaded or imported needs its archive, so `warren save` first what you have no other copy of. Sandboxes, snapshots and
/// volumes hold what cannot be had again, and go only when they are named.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren prune
  warren prune --sandboxes --snapshots
  warren prune --all --force")]
pub(crate) struct Args {
    /// Sandboxes that are stopped, with their files
    #[arg(long)]
    sandboxes: bool,
    /// Snapshots that nothing is made on
    #[arg(long)]
    snapshots: bool,
    /// Volumes that no sandbox mounts
    #[arg(long)]
    volumes: bool,
    /// All of these, and unused images
    #[arg(long)]
    all: bool,
    /// Do not ask
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
    /// By images; the others are not measured before they go.
    image_bytes: u64,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let is_plain = !(args.sandboxes || args.snapshots || args.volumes || args.all);
    let kinds: Vec<_> = [
        (args.sandboxes || args.all, "stopped sandboxes"),
        (args.snapshots || args.all, "snapshots that nothing is made on"),
        (args.volumes || args.all, "volumes that no sandbox mounts"),
        (is_plain || args.all, "images that nothing uses, also those that were loaded or imported"),
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
    // What is gone is told also where the rest failed.
    tell(context, &pruned)?;
    done.map(|()| ExitCode::SUCCESS)
}

async fn prune(client: &Client, args: &Args, is_plain: bool, pruned: &mut Pruned) -> CommandResult<()> {
    // In the order of who uses whom, so that what becomes unused on the way goes too.
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
    output::note(&format!("{} of images given back", output::bytes(*image_bytes)));
    Ok(())
}

async fn sandboxes(client: &Client, pruned: &mut Pruned) -> CommandResult<()> {
    let stopped = [("state".to_owned(), SandboxState::Stopped.as_str().to_owned())];
    for sandbox in client.list(&stopped).await? {
        client.remove(sandbox.id.as_str(), false).await?;
        pruned.sandboxes.push(sandbox.name.to_string());
    }
    Ok(())
}

/// A snapshot may only be there for another one, so until none is left that nobody uses.
async fn snapshots(client: &Client, pruned: &mut Pruned) -> CommandResult<()> {
    loop {
        let mut unused = client.snapshots().await?;
        unused.retain(|snapshot| snapshot.used_by.is_empty());
        if unused.is_empty() {
            return Ok(());
        }
        for snapshot in unused {
            client.remove_snapshot(&snapshot.digest, false).await?;
            pruned.snapshots.push(snapshot.name.map_or(snapshot.digest, |name| name.to_string()));
        }
    }
}

async fn volumes(client: &Client, pruned: &mut Pruned) -> CommandResult<()> {
    let mut unused = client.volumes().await?;
    unused.retain(|volume| volume.used_by.is_empty());
    for volume in &unused {
        client.remove_volume_of(volume).await?;
        pruned.volumes.push(volume.name.to_string());
    }
    Ok(())
}

async fn images(client: &Client, pruned: &mut Pruned) -> CommandResult<()> {
    let freed = match client.prune_images().await {
        // A daemon that keeps no images has none to give back.
        Err(error) if error.kind() == Some(ErrorKind::Unsupported) => return Ok(()),
        freed => freed?,
    };
    (pruned.images, pruned.image_bytes) = (freed.images, freed.bytes);
    Ok(())
}
