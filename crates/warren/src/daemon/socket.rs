//! The daemon's socket in the run directory.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use sandbox::{Error, ErrorKind, Result};
use tokio::net::UnixListener;

/// The path that this daemon listens on.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    inode: u64,
}

impl Socket {
    /// Called under the lock: an existing socket belongs to a daemon that died.
    pub(super) fn listen(path: PathBuf) -> Result<(Self, UnixListener)> {
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Unavailable, format!("could not listen on {}", path.display()))
                .with_source(error)
        };
        match fs::remove_file(&path) {
            Ok(()) => tracing::debug!("replaced the socket of an earlier daemon"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        // The directory is already private; this is in case somebody opens it up.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let inode = fs::metadata(&path).map_err(failed)?.ino();
        Ok((Self { path, inode }, listener))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the socket, unless something else has replaced it.
    pub(super) fn remove(&self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!("could not remove {}: {error}", self.path.display());
        }
    }
}
