//! Into a sandbox.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use frontends::rest::v1::{FileEntry, Octal};
use futures_util::Stream;
use sandbox::{Error, ErrorKind, FileKind};
use tokio_util::io::ReaderStream;

use super::{Progress, place::join, tree};
use crate::{
    client::{Client, Within},
    error::{CommandResult, io_failure},
};

/// Bytes read from a file at once.
const PIECE_BYTES: usize = 256 * 1024;

/// Copies a local file or directory to `path` inside; returns the bytes that were sent.
pub(crate) async fn upload(
    client: &Client,
    local: &Path,
    within: Within<'_>,
    path: &str,
    progress: &Progress,
) -> CommandResult<u64> {
    let source = fs::metadata(local).map_err(|error| io_failure(local.display().to_string(), error))?;
    let found = existing(client, within, path).await?;
    if source.is_dir() {
        return upload_directory(client, local, within, path, found.as_ref(), progress).await;
    }
    let target = match &found {
        Some(entry) if entry.kind == FileKind::Directory => join(path, &local_name(local)?),
        _ if path.ends_with('/') => {
            return Err(Error::not_found(format!("there is no directory {path} in {within}"))
                .with_hint("Leave the slash at the end away to make a file of that name.")
                .into());
        }
        _ => path.to_owned(),
    };
    progress.expect(source.len());
    let mode = Octal(source.permissions().mode() & 0o7777);
    let file =
        tokio::fs::File::open(local).await.map_err(|error| io_failure(local.display().to_string(), error))?;
    let bytes = progress.count(ReaderStream::with_capacity(file, PIECE_BYTES));
    client.write_file(within, &target, Some(mode), bytes).await
}

async fn upload_directory(
    client: &Client,
    local: &Path,
    within: Within<'_>,
    path: &str,
    found: Option<&FileEntry>,
    progress: &Progress,
) -> CommandResult<u64> {
    let prefix = match found {
        Some(entry) if entry.kind != FileKind::Directory => {
            let message = format!("{path} in {within} is a file; a directory cannot be copied onto it");
            return Err(Error::new(ErrorKind::WrongState, message).into());
        }
        Some(_) if is_contents(local) => PathBuf::new(),
        Some(_) => PathBuf::from(local_name(local)?),
        None => {
            client.make_directory(within, path).await?;
            PathBuf::new()
        }
    };
    let bytes = progress.count(tree::pack(local.to_owned(), prefix));
    client.unpack(within, path, false, bytes).await?;
    Ok(progress.n_bytes())
}

/// Unpacks a tar stream from stdin into a directory inside.
pub(crate) async fn stream_in(
    client: &Client,
    within: Within<'_>,
    path: &str,
    keep_ids: bool,
    progress: &Progress,
) -> CommandResult<u64> {
    let stdin: std::pin::Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>> =
        Box::pin(ReaderStream::with_capacity(tokio::io::stdin(), PIECE_BYTES));
    client.unpack(within, path, keep_ids, progress.count(stdin)).await?;
    Ok(progress.n_bytes())
}

async fn existing(client: &Client, within: Within<'_>, path: &str) -> CommandResult<Option<FileEntry>> {
    match client.stat(within, path).await {
        Ok(entry) => Ok(Some(entry)),
        // The same kind is used for a sandbox or a volume that is not there; ask, so that the right thing is named.
        Err(error) if error.kind() == Some(ErrorKind::NotFound) => {
            client.check_there(within).await?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// `DIR/.` means what is in it.
fn is_contents(local: &Path) -> bool {
    let text = local.as_os_str().as_encoded_bytes();
    text == b"." || text.ends_with(b"/.") || text.ends_with(b"/./")
}

fn local_name(local: &Path) -> CommandResult<String> {
    let resolved = if local.file_name().is_some() { Ok(local.to_owned()) } else { local.canonicalize() };
    let resolved = resolved.map_err(|error| io_failure(local.display().to_string(), error))?;
    let name = resolved.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| {
        Error::invalid(format!("{} has no name that a sandbox could take", local.display()))
            .with_hint("Give the whole path inside, with a name at its end.")
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_at_the_end_means_what_is_inside() {
        for (text, expected) in [("d/.", true), (".", true), ("d", false), ("d/", false), ("a.", false)] {
            assert_eq!(is_contents(Path::new(text)), expected, "{text:?}");
        }
    }
}
