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

const SAVED_ARCHIVE: &str = "Use an archive that `warren snapshot save` wrote.";

/// Save a snapshot to an archive
///
/// Includes the snapshots it is based on, so that it loads anywhere. It may hold secrets: all files and the environment
/// of its sandbox.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot save ready -o ready.tar.zst
  warren snapshot save ready --image -o ready-with-image.tar.zst
  warren snapshot save ready | ssh elsewhere warren snapshot load")]
pub(super) struct SaveArgs {
    /// Name or digest
    snapshot: String,
    /// File to write, or `-` for stdout [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave out the snapshots it is based on; it then loads only where they exist
    #[arg(long)]
    no_parents: bool,
    /// Include the image it is based on
    #[arg(long)]
    image: bool,
    /// Write a plain tar, not compressed
    #[arg(long)]
    plain: bool,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

/// Load a snapshot from an archive and print its name
///
/// Refuses an archive if even one byte was changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren snapshot load -i ready.tar.zst
  warren snapshot load --name theirs < ready.tar.zst")]
pub(super) struct LoadArgs {
    /// Archive, or `-` for stdin [default: stdin]
    #[arg(long, short, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Name of the snapshot [default: the name it was saved under]
    #[arg(long)]
    name: Option<SnapshotName>,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

pub(super) async fn save(context: &Context, args: SaveArgs) -> CommandResult {
    let path = args.output.filter(|path| path != Path::new("-"));
    if path.is_none() && io::stdout().is_terminal() {
        return Err(Error::invalid("not writing an archive to a terminal")
            .with_hint("Give a file with --output, or use a pipe.")
            .into());
    }
    let choice = SaveChoice { parents: !args.no_parents, image: args.image, plain: args.plain };
    let progress = Progress::new(!args.quiet && !context.json && path.is_some());
    let archive = context.client().await?.save_snapshot(&args.snapshot, choice).await?;
    // Only our user may read it: it holds the sandbox's files and environment.
    saving::finish(context, Box::pin(progress.count(archive)), path, Readers::Owner, &progress).await
}

pub(super) async fn load(context: &Context, args: LoadArgs) -> CommandResult {
    let progress = Progress::new(!args.quiet && !context.json);
    let archive = images::open(args.input.as_deref(), &progress, SAVED_ARCHIVE).await?;
    let loaded = context.client().await?.load_snapshot(args.name.as_ref(), archive).await?;
    progress.finish();
    if let Some(wanted) = args.name.filter(|wanted| loaded.name.as_ref() != Some(wanted)) {
        let called = loaded.name.as_ref().map_or(loaded.digest.as_str(), SnapshotName::as_str);
        output::warn(&format!("The snapshot already exists and keeps its name: {called}, not {wanted}."));
    }
    if context.json {
        output::json(&loaded)?;
    } else {
        output::line(loaded.name.as_ref().map_or(loaded.digest.as_str(), SnapshotName::as_str))?;
    }
    Ok(ExitCode::SUCCESS)
}
