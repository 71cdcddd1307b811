//! One daemon for a data directory: a lock that the kernel gives back when its holder dies.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use sandbox::{Error, ErrorKind, Result};

/// Held as long as the daemon lives.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Another daemon has the directory.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("daemon.lock is locked")]
pub(super) struct Held {
    pub(super) pid: Option<i32>,
}

impl Lock {
    pub(super) fn take(home: &Path) -> Result<Self> {
        let path = home.join("daemon.lock");
        let failed = |error| {
            Error::new(ErrorKind::Unavailable, format!("could not lock {}", path.display()))
                .with_source(error)
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(home, &mut file)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // The lock counts; the number only helps people, so it may fail to be written.
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).ok();
        Ok(Self { _file: file })
    }
}

fn held(home: &Path, file: &mut File) -> Error {
    let mut text = String::new();
    file.rewind().and_then(|()| file.take(32).read_to_string(&mut text)).ok();
    let pid = text.trim().parse().ok();
    let holder = pid.map_or("another process".to_owned(), |pid: i32| format!("pid {pid}"));
    Error::new(ErrorKind::AlreadyExists, format!("a daemon ({holder}) already serves {}", home.display()))
        .with_hint("Use that one, or give this one another directory with --home.")
        .with_source(Held { pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_told_who_is_first() {
        let home = tempfile::tempdir().unwrap();
        let first = Lock::take(home.path()).unwrap();
        let error = Lock::take(home.path()).unwrap_err();
        assert!(error.message().contains(&format!("pid {}", std::process::id())), "{error}");
        drop(first);
        Lock::take(home.path()).unwrap();
    }
}
