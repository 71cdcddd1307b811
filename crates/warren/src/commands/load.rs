//! `warren load`

use std::{
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use bytes::Bytes;
use frontends::rest::v1;
use futures_util::{Stream, StreamExt as _, stream::BoxStream};
use sandbox::Error;
use tokio_util::io::ReaderStream;

use super::Context;
use crate::{
    copy::Progress,
    error::{CommandResult, io_failure},
    output,
};

/// Bytes read at once.
const CHUNK_BYTES: usize = 128 * 1024;

/// Load images from an archive
///
/// Reads tar archives by `docker save`, `skopeo` or `warren save`, or of an OCI layout, compressed or not.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren load -i app.tar
  docker save app | warren load
  tar c -C layout . | warren load")]
pub(crate) struct Args {
    /// Archive, or `-` for stdin [default: stdin]
    #[arg(long, short, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Platform to load from a layout with several [default: this machine's]
    #[arg(long)]
    platform: Option<String>,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let progress = Progress::new(!args.quiet && !context.json);
    let directory = args.input.as_deref().unwrap_or(Path::new(".")).display();
    let instead = format!("Pipe it in as a tar: tar c -C {directory} . | warren load");
    let tar = open(args.input.as_deref(), &progress, &instead).await?;
    let client = context.client().await?;
    let loaded = client.load_images(args.platform.as_deref(), tar).await;
    let archive = args.input.as_deref().filter(|path| *path != Path::new("-"));
    let images = loaded.map_err(|failed| match archive {
        Some(path) => failed.map(|error| error.reworded(|words| format!("{}: {words}", path.display()))),
        None => failed,
    })?;
    progress.finish();
    if context.json {
        output::json(&v1::ImageList { images })?;
        return Ok(ExitCode::SUCCESS);
    }
    for image in &images {
        for reference in image.references.iter().chain(image.references.is_empty().then_some(&image.digest)) {
            output::line(reference)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The bytes of a file or of stdin, counted. `instead` is the hint if the path is a directory.
pub(super) async fn open(
    input: Option<&Path>,
    progress: &Progress,
    instead: &str,
) -> CommandResult<impl Stream<Item = io::Result<Bytes>> + Send + use<>> {
    let path = input.filter(|path| *path != Path::new("-"));
    let bytes: BoxStream<'static, io::Result<Bytes>> = match path {
        Some(path) => {
            let failed = |error: io::Error| io_failure(format!("could not open {}", path.display()), error);
            let file = tokio::fs::File::open(path).await.map_err(failed)?;
            let found = file.metadata().await.map_err(failed)?;
            if found.is_dir() {
                let shown = path.display();
                return Err(Error::invalid(format!("{shown} is a directory")).with_hint(instead).into());
            }
            progress.expect(found.len());
            ReaderStream::with_capacity(file, CHUNK_BYTES).boxed()
        }
        None if io::stdin().is_terminal() => {
            return Err(Error::invalid("there is no archive on stdin")
                .with_hint("Give a file, or pipe an archive in.")
                .into());
        }
        None => ReaderStream::with_capacity(tokio::io::stdin(), CHUNK_BYTES).boxed(),
    };
    Ok(progress.count(bytes))
}
