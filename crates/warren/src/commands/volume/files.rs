//! Files in volumes, without a running sandbox.

use std::{path::Path, process::ExitCode, str::FromStr};

use frontends::rest::v1;
use sandbox::{Error, FileKind};
use serde::Serialize;
use tokio_util::io::ReaderStream;

use crate::{
    client::{Client, Within},
    commands::Context,
    copy::{self, Endpoint, Links, Progress, Source},
    error::CommandResult,
    output,
};

/// Maximum number of entries in one listing.
const MAX_LISTED: u32 = 10_000;
const PIECE_BYTES: usize = 128 * 1024;

/// `VOLUME:/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Inside {
    volume: String,
    path: String,
}

impl FromStr for Inside {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            // A volume has no working directory: paths start at its root.
            Some((volume, path)) if !volume.is_empty() && !path.is_empty() => {
                Ok(Self { volume: volume.to_owned(), path: format!("/{}", path.trim_start_matches('/')) })
            }
            None if !text.is_empty() => Ok(Self { volume: text.to_owned(), path: "/".to_owned() }),
            _ => Err("write VOLUME:/path".to_owned()),
        }
    }
}

/// List files in a volume
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume files data
  warren volume files -r data:/models")]
pub(super) struct FilesArgs {
    /// VOLUME or VOLUME:/path
    place: Inside,
    /// List directories recursively
    #[arg(long, short)]
    recursive: bool,
}

pub(super) async fn list(context: &Context, args: &FilesArgs) -> CommandResult {
    let Inside { volume, path } = &args.place;
    let found =
        context.client().await?.list_files(Within::Volume(volume), path, args.recursive, MAX_LISTED).await?;
    if context.json {
        output::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |entry: &v1::FileEntry| {
        let shown = match (&entry.kind, &entry.target) {
            (FileKind::Directory, _) => format!("{}/", entry.path),
            (_, Some(target)) => format!("{} -> {target}", entry.path),
            _ => entry.path.clone(),
        };
        [entry.mode.to_string(), output::bytes(entry.size), output::printable(&shown)]
    };
    output::table(["MODE", "SIZE", "PATH"], found.entries.iter().map(row))?;
    if found.truncated {
        output::warn(&format!("only the first {MAX_LISTED} entries are listed"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Print a file in a volume
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume cat data:/notes.txt")]
pub(super) struct CatArgs {
    /// VOLUME:/path
    place: Inside,
}

pub(super) async fn cat(context: &Context, args: &CatArgs) -> CommandResult {
    let Inside { volume, path } = &args.place;
    pour_out(&context.client().await?, volume, path).await?;
    Ok(ExitCode::SUCCESS)
}

/// Copy files and directories into or out of a volume
///
/// One side is VOLUME:/path. If the destination is an existing directory or ends with a slash, the source is copied
/// into it; DIR/. means the contents of DIR. `-` is the contents of one file on stdin or stdout. Files copied in belong
/// to root inside; files copied out belong to you.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume cp notes.txt data:/notes.txt
  warren volume cp ./models data:/
  warren volume cp data:/out ./out
  warren volume cp data:/out.csv - | head")]
pub(super) struct CpArgs {
    /// PATH, VOLUME:/path, or -
    source: Endpoint,
    /// PATH, VOLUME:/path, or -
    destination: Endpoint,
    /// Follow symbolic links in the volume instead of copying the links
    #[arg(long, short = 'L')]
    follow_link: bool,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Serialize)]
struct Copied {
    bytes: u64,
}

pub(super) async fn copy(context: &Context, args: &CpArgs) -> CommandResult {
    let progress = Progress::new(!args.quiet && !context.json);
    let bytes = match (&args.source, &args.destination) {
        (Endpoint::Inside { name, path }, Endpoint::Local(local)) => {
            let links = if args.follow_link { Links::Follow } else { Links::Keep };
            let source = Source { within: Within::Volume(name), path, links };
            copy::download(&context.client().await?, source, local, &progress).await?
        }
        (Endpoint::Local(local), Endpoint::Inside { name, path }) => {
            copy_in(&context.client().await?, local, name, path, &progress).await?
        }
        (Endpoint::Inside { name, path }, Endpoint::Stream) => {
            pour_out(&context.client().await?, name, path).await?
        }
        (Endpoint::Stream, Endpoint::Inside { name, path }) => {
            let bytes = ReaderStream::with_capacity(tokio::io::stdin(), PIECE_BYTES);
            context.client().await?.write_file(Within::Volume(name), path, None, bytes).await?
        }
        (Endpoint::Inside { .. }, Endpoint::Inside { .. }) => {
            return Err(Error::invalid("both sides are volumes")
                .with_hint("Use a pipe: warren volume cp a:/x - | warren volume cp - b:/x")
                .into());
        }
        _ => {
            return Err(Error::invalid("neither side is in a volume")
                .with_hint("Write VOLUME:/path on one side, such as data:/notes.txt.")
                .into());
        }
    };
    progress.finish();
    if context.json && args.destination != Endpoint::Stream {
        output::json(&Copied { bytes })?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn copy_in(
    client: &Client,
    local: &Path,
    volume: &str,
    path: &str,
    progress: &Progress,
) -> CommandResult<u64> {
    let within = Within::Volume(volume);
    if path.ends_with('/') && path != "/" && local.exists() {
        client.make_directory(within, path).await?;
    }
    copy::upload(client, local, within, path, progress).await
}

/// Writes one file's bytes to stdout.
async fn pour_out(client: &Client, volume: &str, path: &str) -> CommandResult<u64> {
    let bytes = client.read_file(Within::Volume(volume), path).await?;
    Ok(copy::pour(bytes, &mut tokio::io::stdout()).await?)
}

/// Remove a file or a directory from a volume
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume unlink data:/old")]
pub(super) struct UnlinkArgs {
    /// VOLUME:/path
    place: Inside,
}

pub(super) async fn unlink(context: &Context, args: &UnlinkArgs) -> CommandResult {
    let Inside { volume, path } = &args.place;
    context.client().await?.remove_path(Within::Volume(volume), path).await?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_alone_means_its_root() {
        assert_eq!("data:x".parse::<Inside>().unwrap().path, "/x");
        assert!("data:".parse::<Inside>().is_err() && ":/x".parse::<Inside>().is_err());
        assert_eq!("data:/x".parse(), Ok(Inside { volume: "data".into(), path: "/x".into() }));
        assert_eq!("data".parse(), Ok(Inside { volume: "data".into(), path: "/".into() }));
    }
}
