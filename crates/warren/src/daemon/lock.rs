//! Locks that allow one daemon per data directory and per run directory. The kernel releases them when their holder
//! dies.
//!
//! Two daemons with the same run directory would replace each other's socket, and sweep each other's sandboxes.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use sandbox::{Error, ErrorKind, Result};

use crate::directories::Directories;

const NAME: &str = "daemon.lock";
/// A process id, and the longest path that Linux takes.
const MAX_NOTE_BYTES: u64 = 32 + 4096;

/// Held as long as the daemon lives.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Another daemon has the data directory.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("daemon.lock is locked")]
pub(super) struct Held {
    pub(super) pid: Option<i32>,
    pub(super) gives_way: bool,
}

impl Held {
    /// Whether this is the cause of an error.
    pub(super) fn of(error: &Error) -> Option<Self> {
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<Self>()).copied()
    }
}

/// The holder's note in its lock file.
#[derive(Debug, Default)]
struct Note {
    pid: Option<i32>,
    home: Option<String>,
    gives_way: bool,
}

/// Whether anyone asked for the daemon that takes the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A person started it, and it stays.
    ByPerson,
    /// A command started it because none was running. It gives way to one that a person starts.
    ByCommand,
}

/// The third line of the note of a daemon that gives way.
const GIVES_WAY: &str = "gives way";

impl Note {
    fn read(mut file: File) -> Self {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.take(MAX_NOTE_BYTES).read_to_end(&mut bytes)).ok();
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines();
        let pid = lines.next().and_then(|line| line.trim().parse().ok());
        let home = lines.next().filter(|line| !line.is_empty()).map(str::to_owned);
        Self { pid, home, gives_way: lines.next() == Some(GIVES_WAY) }
    }

    fn holder(&self) -> String {
        self.pid.map_or("another process".to_owned(), |pid| format!("pid {pid}"))
    }
}

impl Lock {
    pub(super) fn path(directory: &Path) -> PathBuf {
        directory.join(NAME)
    }

    pub(super) fn of_home(directories: &Directories, asked: Asked) -> Result<Self> {
        let note = match asked {
            Asked::ByPerson => String::new(),
            Asked::ByCommand => format!("\n{GIVES_WAY}"),
        };
        Self::take(&directories.home, note.as_bytes())?.map_err(|note| already_served(directories, &note))
    }

    /// Taken after the lock of the data directory. None if both directories are the same.
    pub(super) fn of_run(directories: &Directories) -> Result<Option<Self>> {
        let Directories { home, run } = directories;
        if let (Ok(home), Ok(run)) = (home.canonicalize(), run.canonicalize())
            && home == run
        {
            return Ok(None);
        }
        let taken = Self::take(run, home.as_os_str().as_bytes())?;
        taken.map(Some).map_err(|note| match note.home.as_deref() {
            // The previous daemon of our own home: the kernel releases its locks one after the other.
            Some(other) if Path::new(other) == home => already_served(directories, &note),
            other => in_use(directories, &note, other.unwrap_or("another data directory")),
        })
    }

    /// The lock, or the note of its holder.
    fn take(directory: &Path, after_pid: &[u8]) -> Result<std::result::Result<Self, Note>> {
        let path = Self::path(directory);
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
            Err(TryLockError::WouldBlock) => return Ok(Err(Note::read(file))),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // Only the lock matters; failing to write the note is fine.
        let note = [format!("{}\n", std::process::id()).as_bytes(), after_pid].concat();
        file.set_len(0).and_then(|()| file.write_all(&note)).ok();
        Ok(Ok(Self { _file: file }))
    }
}

fn already_served(directories: &Directories, note: &Note) -> Error {
    let message =
        format!("a daemon ({}) is already running for {}", note.holder(), directories.home.display());
    Error::new(ErrorKind::AlreadyExists, message)
        .with_hint("Use that one, or replace it with `warren serve --take-over`; its sandboxes keep running.")
        .with_source(Held { pid: note.pid, gives_way: note.gives_way })
}

fn in_use(directories: &Directories, note: &Note, other: &str) -> Error {
    let Directories { home, run } = directories;
    let message =
        format!("the run directory {} is in use by the daemon ({}) of {other}", run.display(), note.holder());
    Error::new(ErrorKind::AlreadyExists, message).with_hint(format!(
        "Use a separate run directory for {} with --run-dir or WARREN_RUN.",
        home.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_told_who_is_first() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories { home: place.path().to_owned(), run: place.path().join("run") };
        let first = Lock::of_home(&directories, Asked::ByPerson).unwrap();
        let error = Lock::of_home(&directories, Asked::ByPerson).unwrap_err();
        assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
        drop(first);
        Lock::of_home(&directories, Asked::ByPerson).unwrap();
    }

    #[test]
    fn a_daemon_that_nobody_asked_for_says_so() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories { home: place.path().to_owned(), run: place.path().join("run") };
        for (asked, gives_way) in [(Asked::ByCommand, true), (Asked::ByPerson, false)] {
            let _first = Lock::of_home(&directories, asked).unwrap();
            let error = Lock::of_home(&directories, Asked::ByPerson).unwrap_err();
            assert_eq!(Held::of(&error).unwrap().gives_way, gives_way, "{asked:?}");
        }
    }

    #[test]
    fn a_daemon_of_another_home_is_named() {
        let place = tempfile::tempdir().unwrap();
        let of = |home: &str| Directories { home: place.path().join(home), run: place.path().to_owned() };
        let first = Lock::of_run(&of("first")).unwrap();
        let error = Lock::of_run(&of("second")).unwrap_err();
        assert!(
            error.to_string().contains("first") && crate::error::hint(&error).unwrap().contains("--run-dir"),
            "{error}"
        );
        // The same home means a daemon that is starting or shutting down: worth another attempt.
        let error = Lock::of_run(&of("first")).unwrap_err();
        assert!(error.to_string().contains("is already running for"), "{error}");
        drop(first);
        Lock::of_run(&of("second")).unwrap();
    }

    #[test]
    fn one_directory_for_both_needs_one_lock() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories { home: place.path().to_owned(), run: place.path().to_owned() };
        let _home = Lock::of_home(&directories, Asked::ByPerson).unwrap();
        assert!(Lock::of_run(&directories).unwrap().is_none());
    }
}
