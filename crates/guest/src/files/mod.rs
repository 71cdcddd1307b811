//! Files inside, on threads that may block; see [`charged`] for requests that take memory.
//!
//! Paths are relative to the sandbox's own root, so symlinks lead wherever they lead. The dangers are waiting forever
//! (a FIFO in place of a file), being redirected in the middle of a tree (a directory swapped for a symlink), and
//! holding more than the bounds here.

mod change;
pub(crate) mod changed;
mod charged;
mod copy;
mod entry;
mod list;
mod pack;
mod read;
mod search;
mod unpack;
mod walk;
mod watch;
mod write;

use std::{
    fmt::Display,
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use guest_protocol::{Failure, FailureKind, Response};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

pub(crate) use change::{chmod, chown, mkdir, readlink, remove, rename, symlink};
pub(crate) use charged::perform;
pub(crate) use copy::copy;
pub(crate) use entry::{QUIET, kind_of};
pub(crate) use list::{Room, list, stat};
pub(crate) use pack::pack;
pub(crate) use read::read;
pub(crate) use search::{Grep, glob, grep};
pub(crate) use watch::watch;

use crate::{background, wire, wire::FrameReader};

/// The answer to a request on files.
pub(crate) type Answer<T = Response> = Result<T, Failure>;

/// Tells a blocking job that nobody waits for it any more.
#[derive(Debug, Clone)]
pub(crate) enum Cancel {
    /// For a thread.
    Flag(Arc<AtomicBool>),
    /// For a process: the other end of this socket is closed.
    HungUp(Arc<UnixStream>),
}

impl Default for Cancel {
    fn default() -> Self {
        Self::Flag(Arc::default())
    }
}

impl Cancel {
    pub(crate) fn at_hangup(link: Arc<UnixStream>) -> Self {
        Self::HungUp(link)
    }

    pub(crate) fn cancel(&self) {
        if let Self::Flag(flag) = self {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Fails once the host has gone; checked at each step of a long job.
    pub(crate) fn check(&self) -> Answer<()> {
        let has_gone = match self {
            Self::Flag(flag) => flag.load(Ordering::Relaxed),
            Self::HungUp(link) => {
                let mut polled = [PollFd::new(link, PollFlags::empty())];
                poll(&mut polled, Some(&Timespec::default())).is_ok()
                    && polled[0].revents().contains(PollFlags::HUP)
            }
        };
        if has_gone {
            return Err(Failure::new(FailureKind::Internal, "the host went away"));
        }
        Ok(())
    }
}

/// Runs a job on a thread that may block, and cancels it when the host disconnects.
pub(crate) async fn in_background<T: Send + 'static>(
    reader: &mut FrameReader<'_>,
    job: impl FnOnce(&Cancel) -> Answer<T> + Send + 'static,
) -> wire::Result<Answer<T>> {
    let cancel = Cancel::default();
    let theirs = cancel.clone();
    let running = match background::spawn(move || job(&theirs)) {
        Ok(running) => running,
        Err(failure) => return Ok(Err(failure)),
    };
    tokio::select! {
        result = running.done() => Ok(result.flatten()),
        () = reader.gone() => {
            cancel.cancel();
            Err(wire::ConnectionError::Gone)
        }
    }
}

/// A job of ours ended without an answer.
pub(crate) fn broken() -> Failure {
    Failure::new(FailureKind::Internal, "a file operation broke off")
}

/// Checks that a request's path is absolute.
pub(crate) fn absolute(path: &str) -> Answer<PathBuf> {
    if !path.starts_with('/') || path.contains('\0') {
        let shown: String = path.chars().take(256).collect();
        return Err(Failure::new(FailureKind::InvalidRequest, format!("{shown:?} is not an absolute path")));
    }
    Ok(PathBuf::from(path))
}

/// Sorts an error of the system by what the caller can do about it. `doing` names the path.
pub(crate) fn failure(doing: impl Display, error: impl Into<io::Error>) -> Failure {
    let error: io::Error = error.into();
    let kind = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => FailureKind::NotFound,
        Some(Errno::EXIST) => FailureKind::AlreadyExists,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => FailureKind::Denied,
        Some(
            Errno::NOTDIR
            | Errno::ISDIR
            | Errno::LOOP
            | Errno::NOTEMPTY
            | Errno::BUSY
            | Errno::XDEV
            | Errno::NXIO
            | Errno::TXTBSY
            | Errno::STALE
            | Errno::NODEV,
        ) => FailureKind::WrongState,
        Some(
            Errno::NOSPC
            | Errno::DQUOT
            | Errno::FBIG
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::MLINK
            | Errno::AGAIN,
        ) => FailureKind::LimitReached,
        Some(Errno::INVAL | Errno::NAMETOOLONG) => FailureKind::InvalidRequest,
        Some(Errno::OPNOTSUPP | Errno::NOSYS) => FailureKind::Unsupported,
        _ => FailureKind::Internal,
    };
    Failure::new(kind, format!("{doing}: {error}"))
}

pub(crate) fn wrong_state(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::WrongState, message)
}

/// Names a path in a message.
pub(crate) fn named(verb: &str, path: &Path) -> String {
    format!("could not {verb} {}", path.display())
}
