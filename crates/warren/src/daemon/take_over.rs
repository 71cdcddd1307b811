//! `--take-over`: the daemon that is there is asked to end, and this one goes on with its sandboxes.

use std::{
    fs,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::Path,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandbox::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep};

use super::lock::{Held, Lock};
use crate::directories::Directories;

/// What the other one gets: its own grace for requests, and then some.
const PATIENCE: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(10);

/// Both locks, of the data directory and the run directory.
pub(super) type Locks = (Lock, Option<Lock>);

pub(super) fn take_locks(directories: &Directories) -> Result<Locks> {
    Ok((Lock::of_home(directories)?, Lock::of_run(directories)?))
}

/// Takes the locks, and has every daemon end that holds them: a command may start another one meanwhile.
pub(super) async fn take_over(directories: &Directories) -> Result<Locks> {
    let deadline = Instant::now() + PATIENCE;
    let mut asked = None;
    loop {
        let error = match take_locks(directories) {
            Ok(locks) => return Ok(locks),
            Err(error) => error,
        };
        let Some(held) = Held::of(&error) else { return Err(error) };
        if Instant::now() >= deadline {
            return Err(did_not_end(held));
        }
        if let Some(pid) = held.pid.filter(|pid| asked != Some(*pid))
            && ask_to_end(pid, &Lock::path(&directories.home))?
        {
            tracing::info!(pid, "asked the daemon to end; its sandboxes live on");
            asked = Some(pid);
        }
        sleep(RETRY).await;
    }
}

/// Whether `pid` was asked. Not if it does not hold the lock: the note in the lock may be older than its holder.
fn ask_to_end(pid: i32, lock: &Path) -> Result<bool> {
    let Some(process) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return Ok(false);
    };
    // Looked at after it was opened: whoever it is, it cannot become another one now.
    if !has_open(pid, lock) {
        return Ok(false);
    }
    signal(&process, pid)?;
    Ok(true)
}

fn signal(process: &OwnedFd, pid: i32) -> Result<()> {
    match pidfd_send_signal(process, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => {
            Err(Error::new(ErrorKind::Denied, format!("could not ask the daemon (pid {pid}) to end"))
                .with_source(error))
        }
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
    let message = format!("the daemon ({holder}) has not ended after {} s", PATIENCE.as_secs());
    Error::new(ErrorKind::TimedOut, message)
        .with_hint("Its log may tell why. If nothing helps, `kill -9` ends it, and the sandboxes live on.")
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
        // Were it signalled, this test would end here.
        assert!(!ask_to_end(own, &path).unwrap());
    }

    #[tokio::test]
    async fn a_free_lock_is_just_taken() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories { home: place.path().to_owned(), run: place.path().to_owned() };
        drop(take_over(&directories).await.unwrap());
    }
}
