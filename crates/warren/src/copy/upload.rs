//! Into a sandbox.

use std::path::{Path, PathBuf};

use frontends::rest::v1::{FileEntry, Octal};
use sandbox::{Error, ErrorKind, FileKind};
use tokio_util::io::ReaderStream;

use super::{
    Progress, RULES,
    endpoint::join,
    error::{in_stream, warn_of_left_out, worded},
};
use crate::{
    client::{Client, Within},
    error::{CommandResult, io_failure},
};

/// Bytes read from stdin at once.
const PIECE_BYTES: usize = 256 * 1024;

/// Copies a local file or directory to `path` inside; returns the bytes that were sent.
pub(crate) async fn upload(
    client: &Client,
    local: &Path,
    within: Within<'_>,
    path: &str,
    progress: &Progress,
) -> CommandResult<u64> {
    let source = hostfiles::Source::open_own(local).map_err(worded)?;
    let existing = existing(client, within, path).await?;
    let Some((mode, size)) = source.file_facts() else {
        let prefix = directory_prefix(client, local, within, path, existing.as_ref()).await?;
        let (bytes, report) = source.into_stream(prefix, RULES, in_stream);
        client.unpack(within, path, false, progress.count(bytes)).await?;
        if let Some(Ok(counts)) = report.take() {
            warn_of_left_out(&counts);
        }
        return Ok(progress.n_bytes());
    };
    let target = match &existing {
        Some(entry) if entry.kind == FileKind::Directory => join(path, &local_name(local)?),
        _ if path.ends_with('/') => {
            return Err(Error::not_found(format!("there is no directory {path} in {within}"))
                .with_hint("Leave the slash at the end away to make a file of that name.")
                .into());
        }
        _ => path.to_owned(),
    };
    progress.expect(size);
    let (bytes, _report) = source.into_stream(PathBuf::new(), RULES, in_stream);
    client.write_file(within, &target, Some(Octal(mode)), progress.count(bytes)).await
}

/// Returns the prefix for the entries of a directory, within the directory `path` inside, which is made if it is not
/// there.
async fn directory_prefix(
    client: &Client,
    local: &Path,
    within: Within<'_>,
    path: &str,
    existing: Option<&FileEntry>,
) -> CommandResult<PathBuf> {
    match existing {
        Some(entry) if entry.kind != FileKind::Directory => {
            let message = format!("{path} in {within} is a file; a directory cannot be copied onto it");
            Err(Error::new(ErrorKind::WrongState, message).into())
        }
        Some(_) if is_contents(local) => Ok(PathBuf::new()),
        Some(_) => Ok(PathBuf::from(local_name(local)?)),
        None => {
            client.make_directory(within, path).await?;
            Ok(PathBuf::new())
        }
    }
}

/// Unpacks a tar stream from stdin into a directory inside.
pub(crate) async fn stream_in(
    client: &Client,
    within: Within<'_>,
    path: &str,
    keep_ids: bool,
    progress: &Progress,
) -> CommandResult<u64> {
    let stdin = ReaderStream::with_capacity(tokio::io::stdin(), PIECE_BYTES);
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
