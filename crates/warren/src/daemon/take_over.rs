//! `--take-over`: stops the running daemon, and adopts its sandboxes. Without it, only a daemon that a command started
//! by itself gives way.

use std::{
    fs,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::Path,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandbox::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep};

use super::lock::{Asked, Held, Lock, LockNote};
use crate::directories::Directories;

/// How long the other daemon may take: its own grace period for requests, and some more.
const PATIENCE: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(10);

/// Both locks, of the data directory and the run directory.
pub(super) type Locks = (Lock, Option<Lock>);

/// The daemons that are stopped for a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaced {
    Any,
    /// Only daemons that a command started by itself.
    Unasked,
}

pub(super) fn take_locks(directories: &Directories, asked: Asked) -> Result<Locks> {
    Ok((Lock::of_home(directories, asked)?, Lock::of_run(directories)?))
}

/// Takes the locks, and stops the daemons that hold them: a command may start another one meanwhile.
pub(super) async fn take_over(directories: &Directories, replaced: Replaced) -> Result<Locks> {
    let deadline = Instant::now() + PATIENCE;
    let mut asked = None;
    loop {
        let error = match take_locks(directories, Asked::ByPerson) {
            Ok(locks) => return Ok(locks),
            Err(error) => error,
        };
        let Some(held) = Held::of(&error) else { return Err(error) };
        // A holder without a number has not written its note yet.
        if replaced == Replaced::Unasked && held.pid.is_some() && !held.gives_way {
            return Err(error);
        }
        if Instant::now() >= deadline {
            return Err(did_not_end(held));
        }
        if let Some(pid) = held.pid.filter(|pid| asked != Some(*pid))
            && ask_to_end(pid, &Lock::path(&directories.home))?
        {
            tracing::info!(pid, "asked the daemon to stop; its sandboxes keep running");
            asked = Some(pid);
        }
        sleep(RETRY).await;
    }
}

/// The daemon that has this data directory and says that it can be reached, if it lives.
pub(crate) fn holder(home: &Path) -> Option<i32> {
    let note = LockNote::of(home).filter(|note| note.is_serving)?;
    note.pid.filter(|pid| has_open(*pid, &Lock::path(home)))
}

/// Stops the running daemon, if there is one, and waits until it has ended. Returns whether there was one.
pub(crate) async fn stop(directories: &Directories) -> Result<bool> {
    match take_locks(directories, Asked::ByPerson) {
        Ok(_nobody) => Ok(false),
        Err(error) if Held::of(&error).is_some() => {
            take_over(directories, Replaced::Any).await.map(|_locks| true)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether `pid` was signalled. It is not if it does not hold the lock: the note may be older than the holder.
fn ask_to_end(pid: i32, lock: &Path) -> Result<bool> {
    let Some(process) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return Ok(false);
    };
    // Checked after the pidfd was opened, which cannot refer to another process from now on.
    if !has_open(pid, lock) {
        return Ok(false);
    }
    signal(&process, pid)?;
    Ok(true)
}

fn signal(process: &OwnedFd, pid: i32) -> Result<()> {
    match pidfd_send_signal(process, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(Error::new(ErrorKind::Denied, format!("could not stop the daemon (pid {pid})"))
            .with_source(error)),
    }
}

fn has_open(pid: i32, path: &Path) -> bool {
    let (Ok(wanted), Ok(descriptors)) = (fs::metadata(path), fs::read_dir(format!("/proc/{pid}/fd"))) else {
        return false;
    };
    let is_it = |found: fs::Metadata| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino());
    descriptors.flatten().any(|descriptor| fs::metadata(descriptor.path()).is_ok_and(is_it))
}

fn did_not_end(held: Held) -> Error {
    let holder = held.pid.map_or_else(|| "another process".to_owned(), |pid| format!("pid {pid}"));
    let message = format!("the daemon ({holder}) has not stopped after {} s", PATIENCE.as_secs());
    Error::new(ErrorKind::TimedOut, message).with_hint(
        "Its log may say why. As a last resort, stop it with `kill -9`; its sandboxes keep running.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_holder_is_asked() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("daemon.lock");
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!has_open(own, &path));
        let file = fs::File::create(&path).unwrap();
        assert!(has_open(own, &path));
        drop(file);
        // If it were signalled, this test would end here.
        assert!(!ask_to_end(own, &path).unwrap());
    }

    #[tokio::test]
    async fn a_free_lock_is_just_taken() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories::at(place.path().to_owned(), place.path().to_owned());
        drop(take_over(&directories, Replaced::Any).await.unwrap());
    }
}
