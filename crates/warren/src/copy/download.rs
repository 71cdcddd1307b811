//! Out of a sandbox.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use frontends::rest::v1::FileEntry;
use futures_util::{Stream, TryStreamExt as _};
use sandbox::{Error, ErrorKind, FileKind};
use tokio::io::AsyncWriteExt as _;

use super::{Progress, place::base_name, tree};
use crate::{
    client::Client,
    error::{CommandResult, io_failure},
};

/// Names tried for a directory that must be fresh.
const MAX_STAGING_TRIES: u32 = 100;

/// Copies a file or directory from inside to `local`; returns the bytes that came.
pub(crate) async fn download(
    client: &Client,
    sandbox: &str,
    path: &str,
    local: &Path,
    progress: &Progress,
) -> CommandResult<u64> {
    let entry = client.stat(sandbox, path).await?;
    match entry.kind {
        FileKind::Directory => download_directory(client, sandbox, path, local, progress).await,
        FileKind::File => {
            let target = file_target(local, path)?;
            progress.expect(entry.size);
            let bytes = progress.count(client.read_file(sandbox, path).await?);
            write_file(std::pin::pin!(bytes), &target, &entry).await?;
            Ok(progress.n_bytes())
        }
        FileKind::Symlink | FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            let message = format!("{path} in {sandbox} is neither a file nor a directory");
            Err(Error::new(ErrorKind::Unsupported, message).into())
        }
    }
}

fn file_target(local: &Path, path: &str) -> CommandResult<PathBuf> {
    if local.is_dir() {
        return Ok(local.join(base_name(path)));
    }
    if local.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(Error::not_found(format!("there is no directory {}", local.display())).into());
    }
    Ok(local.to_owned())
}

/// A file is written beside its place and moved there, so that nobody sees half of it; a device or pipe is written to.
async fn write_file(
    bytes: impl Stream<Item = io::Result<Bytes>> + Unpin,
    target: &Path,
    entry: &FileEntry,
) -> CommandResult<()> {
    let failed = |error| io_failure(target.display().to_string(), error);
    let is_special = fs::metadata(target).is_ok_and(|found| !found.is_file());
    if is_special {
        let file = tokio::fs::OpenOptions::new().write(true).open(target).await.map_err(failed)?;
        return pour(bytes, file).await;
    }
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = Staging::new(directory)?;
    let path = beside.path.join("file");
    let file = tokio::fs::File::create(&path).await.map_err(failed)?;
    pour(bytes, file).await?;
    fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode.0 & 0o777)).map_err(failed)?;
    fs::rename(&path, target).map_err(failed)
}

async fn pour(
    mut bytes: impl Stream<Item = io::Result<Bytes>> + Unpin,
    mut file: tokio::fs::File,
) -> CommandResult<()> {
    while let Some(piece) = bytes.try_next().await? {
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    Ok(())
}

async fn download_directory(
    client: &Client,
    sandbox: &str,
    path: &str,
    local: &Path,
    progress: &Progress,
) -> CommandResult<u64> {
    let is_contents = path.ends_with("/.") || path.ends_with("/./");
    let path = if is_contents { path.trim_end_matches('/').trim_end_matches('.') } else { path };
    let failed = |error| io_failure(local.display().to_string(), error);
    let target = match fs::metadata(local) {
        Ok(found) if !found.is_dir() => {
            let message = format!("{} is a file; a directory cannot be copied onto it", local.display());
            return Err(Error::new(ErrorKind::WrongState, message).into());
        }
        Ok(_) if is_contents || base_name(path).is_empty() => local.to_owned(),
        Ok(_) => local.join(base_name(path)),
        Err(_not_there) => local.to_owned(),
    };
    fs::create_dir_all(&target).map_err(failed)?;
    let staging = Staging::new(&target)?;
    let bytes = progress.count(client.pack(sandbox, path).await?);
    tree::unpack(Box::pin(bytes), staging.path.clone()).await?;
    // Entries are named beneath the directory's name; the root has none.
    let named = staging.path.join(base_name(path));
    let root = if !base_name(path).is_empty() && named.is_dir() { named } else { staging.path.clone() };
    tree::merge(&root, &target).map_err(failed)?;
    Ok(progress.n_bytes())
}

/// A fresh directory beside the target, removed with what is left in it.
struct Staging {
    path: PathBuf,
}

impl Staging {
    fn new(directory: &Path) -> CommandResult<Self> {
        let mut n = 0;
        loop {
            let path = directory.join(format!(".warren-cp-{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                // Left by a command that was killed and had our number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < MAX_STAGING_TRIES => n += 1,
                Err(error) => return Err(io_failure(path.display().to_string(), error)),
            }
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed is named after us; there is nobody to tell.
        fs::remove_dir_all(&self.path).ok();
    }
}

/// Writes a tar stream to stdout.
pub(crate) async fn stream_out(client: &Client, sandbox: &str, path: &str) -> CommandResult<u64> {
    let mut bytes = client.pack(sandbox, path).await?;
    let mut n_bytes = 0;
    while let Some(piece) = bytes.try_next().await? {
        // Blocking is right here: there is nothing else to do until the reader has taken it.
        io::stdout().lock().write_all(&piece)?;
        n_bytes += piece.len() as u64;
    }
    io::stdout().lock().flush()?;
    Ok(n_bytes)
}
