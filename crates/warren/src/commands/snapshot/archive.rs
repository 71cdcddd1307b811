//! `warren snapshot save`, `warren snapshot load`

use std::{
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use sandbox::{Error, SnapshotName};

use crate::{
    client::SaveChoice,
    commands::{Context, load as images, save as saving},
    copy::{Progress, Readers},
    error::CommandResult,
    output,
};

const SAVED_ARCHIVE: &str = "Name an archive that `warren snapshot save` wrote.";

/// Write a snapshot to an archive
///
/// With the snapshots beneath it, so that it loads anywhere. It may hold secrets: whatever its sandbox had in files and in its
/// environment.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot save ready -o ready.tar.zst
  warren snapshot save ready --image -o ready-with-image.tar.zst
  warren snapshot save ready | ssh elsewhere warren snapshot load")]
pub(super) struct SaveArgs {
    /// Name or digest
    snapshot: String,
    /// The file; `-` or nothing is stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave the snapshots beneath it out: then it loads only where they are
    #[arg(long)]
    no_parents: bool,
    /// Put the image beneath it in, too
    #[arg(long)]
    image: bool,
    /// A plain tar, not compressed
    #[arg(long)]
    plain: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// Take in a snapshot from an archive and print its name
///
/// An archive that was changed by a single byte is refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot load -i ready.tar.zst
  warren snapshot load --name theirs < ready.tar.zst")]
pub(super) struct LoadArgs {
    /// The archive; `-` or nothing is stdin
    #[arg(long, short, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The name it was saved under when absent
    #[arg(long)]
    name: Option<SnapshotName>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

pub(super) async fn save(context: &Context, args: SaveArgs) -> CommandResult {
    let path = args.output.filter(|path| path != Path::new("-"));
    if path.is_none() && io::stdout().is_terminal() {
        return Err(Error::invalid("an archive is not for a terminal")
            .with_hint("Name a file with --output, or pipe it on.")
            .into());
    }
    let choice = SaveChoice { parents: !args.no_parents, image: args.image, plain: args.plain };
    let progress = Progress::new(!args.quiet && !context.json && path.is_some());
    let archive = context.client().await?.save_snapshot(&args.snapshot, choice).await?;
    // What a sandbox had in its files and its environment is nobody else's.
    saving::finish(context, Box::pin(progress.count(archive)), path, Readers::Owner, &progress).await
}

pub(super) async fn load(context: &Context, args: LoadArgs) -> CommandResult {
    let progress = Progress::new(!args.quiet && !context.json);
    let archive = images::open(args.input.as_deref(), &progress, SAVED_ARCHIVE).await?;
    let loaded = context.client().await?.load_snapshot(args.name.as_ref(), archive).await?;
    progress.finish();
    if let Some(wanted) = args.name.filter(|wanted| loaded.name.as_ref() != Some(wanted)) {
        let called = loaded.name.as_ref().map_or(loaded.digest.as_str(), SnapshotName::as_str);
        output::warn(&format!(
            "The same snapshot was here already and keeps its name: {called}, not {wanted}."
        ));
    }
    if context.json {
        output::json(&loaded)?;
    } else {
        output::line(loaded.name.as_ref().map_or(loaded.digest.as_str(), SnapshotName::as_str))?;
    }
    Ok(ExitCode::SUCCESS)
}
