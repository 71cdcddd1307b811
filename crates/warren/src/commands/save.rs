//! `warren save`

use std::{
    io,
    io::IsTerminal as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use bytes::Bytes;
use clap::ValueEnum;
use futures_util::Stream;
use sandbox::Error;
use serde::Serialize;

use super::Context;
use crate::{
    copy::{self, Landing, Progress, Readers},
    error::CommandResult,
    interrupt::unless_interrupted,
    output,
};

/// Save images to an archive
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren save alpine -o alpine.tar
  warren save app:1 app:2 --format oci -o apps.tar
  warren save app | docker load")]
pub(crate) struct Args {
    /// Names or digests
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
    /// File to write, or `-` for stdout [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// The format of `docker save`
    #[default]
    Docker,
    /// An OCI layout
    Oci,
}

impl Format {
    fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Oci => "oci",
        }
    }
}

#[derive(Serialize)]
struct Saved {
    path: PathBuf,
    bytes: u64,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let path = args.output.filter(|path| path != Path::new("-"));
    if path.is_none() && io::stdout().is_terminal() {
        return Err(Error::invalid("not writing an archive to a terminal")
            .with_hint("Give a file with --output, or use a pipe.")
            .into());
    }
    let client = context.client().await?;
    let progress = Progress::new(!args.quiet && !context.json && path.is_some());
    let tar = client.save_images(&args.images, args.format.as_str()).await?;
    let tar = Box::pin(progress.count(tar));
    finish(context, tar, path, Readers::Usual, &progress).await
}

/// Writes an archive to its file, or to stdout.
pub(super) async fn finish(
    context: &Context,
    tar: impl Stream<Item = io::Result<Bytes>> + Unpin,
    path: Option<PathBuf>,
    readers: Readers,
    progress: &Progress,
) -> CommandResult {
    let Some(path) = path else {
        copy::pour(tar, &mut tokio::io::stdout()).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let bytes = unless_interrupted(async { Landing::at(&path, readers).await?.take(tar).await }).await?;
    progress.finish();
    if context.json {
        output::json(&Saved { path, bytes })?;
    }
    Ok(ExitCode::SUCCESS)
}
