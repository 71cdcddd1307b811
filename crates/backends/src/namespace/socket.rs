//! Unix sockets at paths of any length.

use std::{
    io::{self, ErrorKind},
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use sandbox::{BackendError, GuestStream, SandboxId};
use tokio::net::UnixStream;

use super::error;

/// Longest path that fits into a Unix socket's address, without its terminator.
const MAX_SOCKET_PATH: usize = 107;

/// A path short enough to bind or connect to, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Reachable {
    path: PathBuf,
    _directory: Option<OwnedFd>,
}

impl Reachable {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Goes through an open directory if the path itself is too long.
pub(crate) fn reachable(path: &Path) -> io::Result<Reachable> {
    if path.as_os_str().len() <= MAX_SOCKET_PATH {
        return Ok(Reachable { path: path.to_owned(), _directory: None });
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, rustix::fs::Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    Ok(Reachable { path, _directory: Some(directory) })
}

/// Opens a stream to the guest of a sandbox.
pub(crate) async fn connect(id: &SandboxId, socket: &Path) -> Result<GuestStream, BackendError> {
    Ok(Box::new(connect_unix(id, socket).await?))
}

/// The same as a Unix socket, which can carry descriptors.
pub(crate) async fn connect_unix(id: &SandboxId, socket: &Path) -> Result<UnixStream, BackendError> {
    let failed = |error| error::from_io(format!("could not reach the guest of {id}"), error);
    let reach = reachable(socket).map_err(failed)?;
    match UnixStream::connect(reach.path()).await {
        Ok(stream) => Ok(stream),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            Err(BackendError::Gone(id.clone()))
        }
        Err(error) => Err(failed(error)),
    }
}
