//! A socket of the daemon in the run directory.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sandbox::{Error, ErrorKind, Result};
use tokio::{net::UnixListener, sync::watch};
use tokio_util::sync::CancellationToken;

use super::lock::Lock;
use crate::directories::{self, Directories};

/// Pause between two looks at the sockets' names. A client waits longer than this for a daemon that holds the lock.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The path that this daemon listens on.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    inode: AtomicU64,
    listener: watch::Sender<Arc<UnixListener>>,
}

impl Socket {
    /// Called under the lock: an existing socket belongs to a daemon that died.
    pub(super) fn listen(path: PathBuf) -> Result<Self> {
        let (listener, inode) = bind(&path)?;
        Ok(Self { path, inode: inode.into(), listener: watch::Sender::new(Arc::new(listener)) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The listener, which is another one after the path was lost.
    pub(super) fn listener(&self) -> watch::Receiver<Arc<UnixListener>> {
        self.listener.subscribe()
    }

    /// Removes the socket, unless something else has replaced it.
    pub(super) fn remove(&self) {
        if self.is_in_place()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!("could not remove {}: {error}", self.path.display());
        }
    }

    fn is_in_place(&self) -> bool {
        let inode = self.inode.load(Ordering::Acquire);
        fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == inode)
    }

    fn listen_again(&self) -> Result<()> {
        let (listener, inode) = bind(&self.path)?;
        self.inode.store(inode, Ordering::Release);
        self.listener.send_replace(Arc::new(listener));
        tracing::warn!("{} was gone or replaced; listening there again", self.path.display());
        Ok(())
    }
}

fn bind(path: &Path) -> Result<(UnixListener, u64)> {
    let failed = |error: io::Error| {
        Error::new(ErrorKind::Unavailable, format!("could not listen on {}", path.display()))
            .with_source(error)
    };
    match fs::remove_file(path) {
        Ok(()) => tracing::debug!("replaced the socket of an earlier daemon"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    // The directory is already private; this is in case somebody opens it up.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let inode = fs::metadata(path).map_err(failed)?.ino();
    Ok((listener, inode))
}

/// Listens again wherever a socket's name is lost: somebody may clean up the run directory, which a file system's
/// events do not always tell.
pub(super) async fn keep_in_place(
    sockets: &[&Socket],
    directories: &Directories,
    run_lock: &mut Option<Lock>,
    stop: &CancellationToken,
) {
    let mut has_failed = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let result = keep(sockets, directories, run_lock);
        if let Err(error) = &result
            && !has_failed
        {
            tracing::error!("commands cannot reach this daemon: {}", crate::error::in_full(error));
        }
        has_failed = result.is_err();
    }
}

fn keep(sockets: &[&Socket], directories: &Directories, run_lock: &mut Option<Lock>) -> Result<()> {
    let mut lost = sockets.iter().filter(|socket| !socket.is_in_place()).peekable();
    if lost.peek().is_none() {
        return Ok(());
    }
    directories::make_private(&directories.run)?;
    // A new directory has a lock of its own, which the daemon of another data directory may have.
    if run_lock.as_ref().is_some_and(|lock| !lock.is_in(&directories.run)) {
        *run_lock = Lock::of_run(directories)?;
    }
    lost.try_for_each(|socket| socket.listen_again())
}
