//! Files of volumes, with no sandbox running.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
};

use bytes::Bytes;
use frontends::rest::v1;
use futures_util::{Stream, TryStreamExt as _, stream};
use sandbox::{Error, FileKind};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::{client::Client, commands::Context, error::CommandResult, output};

/// Entries that one listing shows.
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
            Some((volume, path)) if !volume.is_empty() && path.starts_with('/') => {
                Ok(Self { volume: volume.to_owned(), path: path.to_owned() })
            }
            None if !text.is_empty() => Ok(Self { volume: text.to_owned(), path: "/".to_owned() }),
            _ => Err("write VOLUME:/path".to_owned()),
        }
    }
}

/// List what is in a volume
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume files data
  warren volume files -r data:/models")]
pub(super) struct FilesArgs {
    /// VOLUME or VOLUME:/path
    place: Inside,
    /// Everything beneath
    #[arg(long, short)]
    recursive: bool,
}

pub(super) async fn list(context: &Context, args: &FilesArgs) -> CommandResult {
    let Inside { volume, path } = &args.place;
    let found = context.client().await?.volume_files(volume, path, args.recursive, MAX_LISTED).await?;
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
        output::warn(&format!("only the first {MAX_LISTED} are listed"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Print a file of a volume
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume cat data:/notes.txt")]
pub(super) struct CatArgs {
    /// VOLUME:/path
    place: Inside,
}

pub(super) async fn cat(context: &Context, args: &CatArgs) -> CommandResult {
    let Inside { volume, path } = &args.place;
    download(&context.client().await?, volume, path, &mut tokio::io::stdout()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Copy a file into a volume or out of one
///
/// One side is VOLUME:/path; `-` is stdin or stdout. For whole trees mount the volume and use `warren cp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren volume cp notes.txt data:/notes.txt
  warren volume cp data:/out.csv ./out.csv")]
pub(super) struct CpArgs {
    /// PATH, VOLUME:/path, or -
    source: Side,
    /// PATH, VOLUME:/path, or -
    destination: Side,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Side {
    Inside(Inside),
    Local(PathBuf),
    Stream,
}

impl FromStr for Side {
    type Err = String;

    /// What is before the first colon is a volume unless there is a slash in it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            _ if text == "-" => Ok(Self::Stream),
            Some((volume, _)) if !volume.contains('/') => text.parse().map(Self::Inside),
            _ if text.is_empty() => Err("a path must not be empty".to_owned()),
            _ => Ok(Self::Local(text.into())),
        }
    }
}

#[derive(Serialize)]
struct Copied {
    bytes: u64,
}

pub(super) async fn copy(context: &Context, args: &CpArgs) -> CommandResult {
    let bytes = match (&args.source, &args.destination) {
        (Side::Inside(_), Side::Inside(_)) => {
            return Err(Error::invalid("both sides are volumes")
                .with_hint("Pipe one into the other: warren volume cp a:/x - | warren volume cp - b:/x")
                .into());
        }
        (Side::Inside(from), to) => copy_out(&context.client().await?, from, to).await?,
        (from, Side::Inside(to)) => copy_in(&context.client().await?, from, to).await?,
        _ => {
            return Err(Error::invalid("neither side is in a volume")
                .with_hint("Write VOLUME:/path on one side, such as data:/notes.txt.")
                .into());
        }
    };
    if context.json && args.destination != Side::Stream {
        output::json(&Copied { bytes })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whole or not at all: a file that is there is replaced when the last byte has come.
async fn copy_out(client: &Client, from: &Inside, to: &Side) -> CommandResult<u64> {
    let Inside { volume, path } = from;
    let Side::Local(local) = to else {
        return download(client, volume, path, &mut tokio::io::stdout()).await;
    };
    let local = if local.is_dir() { local.join(base_name(path)) } else { local.clone() };
    let beside = beside(&local);
    let written = async {
        let mut file = tokio::fs::OpenOptions::new().write(true).create_new(true).open(&beside).await?;
        let bytes = download(client, volume, path, &mut file).await?;
        let mode = client.volume_stat(volume, path).await?.mode.0 & 0o777;
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode)).await?;
        tokio::fs::rename(&beside, &local).await?;
        CommandResult::Ok(bytes)
    };
    let written = written.await;
    if written.is_err() {
        // It may never have been made.
        drop(tokio::fs::remove_file(&beside).await);
    }
    written
}

fn beside(local: &Path) -> PathBuf {
    let name = local.file_name().unwrap_or_default().to_string_lossy();
    local.with_file_name(format!(".{name}.{}.part", std::process::id()))
}

fn base_name(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    trimmed.rsplit('/').next().unwrap_or(trimmed)
}

async fn download(
    client: &Client,
    volume: &str,
    path: &str,
    into: &mut (impl AsyncWrite + Unpin),
) -> CommandResult<u64> {
    let mut bytes = client.read_volume_file(volume, path).await?;
    let mut n_bytes = 0;
    while let Some(piece) = bytes.try_next().await? {
        into.write_all(&piece).await?;
        n_bytes += piece.len() as u64;
    }
    into.flush().await?;
    Ok(n_bytes)
}

async fn copy_in(client: &Client, from: &Side, to: &Inside) -> CommandResult<u64> {
    let Inside { volume, path } = to;
    let Side::Local(local) = from else {
        return client.write_volume_file(volume, path, None, pieces(tokio::io::stdin())).await;
    };
    let is_named = !path.ends_with('/');
    let path = match local.file_name() {
        Some(name) if !is_named => format!("{path}{}", name.to_string_lossy()),
        _ => path.clone(),
    };
    let file = tokio::fs::File::open(local).await.map_err(|error| {
        Error::invalid(format!("{} cannot be read: {error}", local.display()))
            .with_hint("Name a file of this machine that you may read.")
    })?;
    let metadata = file.metadata().await?;
    if !metadata.is_file() {
        return Err(Error::invalid(format!("{} is no file", local.display()))
            .with_hint("Mount the volume in a sandbox and copy trees with `warren cp`.")
            .into());
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
    client.write_volume_file(volume, &path, Some(v1::Octal(mode)), pieces(file)).await
}

fn pieces(
    reader: impl AsyncRead + Unpin + Send + 'static,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    stream::try_unfold(reader, |mut reader| async move {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let n = (&mut reader).take(PIECE_BYTES as u64).read_to_end(&mut piece).await?;
        Ok((n > 0).then(|| (Bytes::from(piece), reader)))
    })
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
    context.client().await?.remove_volume_path(volume, path).await?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_told_apart() {
        let inside = Inside { volume: "data".into(), path: "/x".into() };
        assert_eq!("data:/x".parse(), Ok(Side::Inside(inside)));
        assert_eq!("-".parse(), Ok(Side::Stream));
        assert_eq!("./a:b".parse(), Ok(Side::Local("./a:b".into())));
        assert!("data:x".parse::<Side>().is_err() && ":/x".parse::<Side>().is_err());
        assert_eq!("data".parse(), Ok(Inside { volume: "data".into(), path: "/".into() }));
    }
}
