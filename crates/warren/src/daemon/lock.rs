//! Locks that allow one daemon per data directory and per run directory. The kernel releases them when their holder
//! dies.
//!
//! Two daemons with the same run directory would replace each other's socket, and sweep each other's sandboxes.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use sandbox::{Error, ErrorKind, Result};

use crate::directories::Directories;

const NAME: &str = "daemon.lock";
/// A process id, some words, and the longest path that Linux takes.
const MAX_NOTE_BYTES: u64 = 64 + 4096;

/// Held as long as the daemon lives.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    note_len: u64,
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

/// The note in a lock file, of its holder or the last one. Its lines: the process id; in a run directory the data
/// directory; in a data directory `gives way` or nothing, the run directory, and `serving` once the socket is there.
#[derive(Debug, Default)]
pub(crate) struct LockNote {
    pub(crate) pid: Option<i32>,
    home: Option<String>,
    gives_way: bool,
    pub(crate) run: Option<PathBuf>,
    pub(crate) is_serving: bool,
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

/// The last line of the note of a daemon that commands can reach.
const SERVING: &str = "\nserving";

impl LockNote {
    /// The note of the daemon that has or had this directory, if the file is ours.
    pub(crate) fn of(directory: &Path) -> Option<Self> {
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(Lock::path(directory)).ok()?;
        let is_ours = file.metadata().ok()?.uid() == rustix::process::geteuid().as_raw();
        is_ours.then(|| Self::read(file))
    }

    /// The run directory of the daemon that has or had this data directory, if it is still that daemon's and private.
    pub(crate) fn run_of(home: &Path) -> Option<PathBuf> {
        let run = Self::of(home)?.run.filter(|run| run.is_absolute())?;
        let found = fs::symlink_metadata(&run).ok()?;
        let own = rustix::process::geteuid().as_raw();
        let is_private = found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0;
        let home = home.canonicalize().ok()?;
        let is_home = |path: &Path| path.canonicalize().is_ok_and(|path| path == home);
        // One directory for both has one lock.
        let is_its = is_home(&run) || Self::of(&run)?.home.is_some_and(|its| is_home(Path::new(&its)));
        (is_private && is_its).then_some(run)
    }

    fn read(mut file: File) -> Self {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.take(MAX_NOTE_BYTES).read_to_end(&mut bytes)).ok();
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines();
        let pid = lines.next().and_then(|line| line.trim().parse().ok());
        let home = lines.next().filter(|line| !line.is_empty()).map(str::to_owned);
        let gives_way = lines.next() == Some(GIVES_WAY);
        let run = lines.next().filter(|line| !line.is_empty()).map(PathBuf::from);
        Self { pid, home, gives_way, run, is_serving: lines.next() == Some(SERVING.trim_start()) }
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
        let gives_way = match asked {
            Asked::ByPerson => "",
            Asked::ByCommand => GIVES_WAY,
        };
        let note = [format!("\n{gives_way}\n").as_bytes(), directories.run.as_os_str().as_bytes()].concat();
        Self::take(&directories.home, &note)?.map_err(|note| already_served(directories, &note))
    }

    /// Says in the note whether commands can reach the daemon. Only the lock matters; failing to write is fine.
    pub(super) fn say_serving(&self, is_serving: bool) {
        let mut file = &self.file;
        match is_serving {
            true => file.write_all(SERVING.as_bytes()).ok(),
            false => file.set_len(self.note_len).ok(),
        };
    }

    /// Whether this is the lock that others find in `directory`: somebody may have replaced the directory.
    pub(super) fn is_in(&self, directory: &Path) -> bool {
        let same =
            |found: fs::Metadata, own: fs::Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
        let both = fs::metadata(Self::path(directory)).ok().zip(self.file.metadata().ok());
        both.is_some_and(|(found, own)| same(found, own))
    }

    /// Taken after the lock of the data directory. None if both directories are the same.
    pub(super) fn of_run(directories: &Directories) -> Result<Option<Self>> {
        let Directories { home, run, .. } = directories;
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
    fn take(directory: &Path, after_pid: &[u8]) -> Result<std::result::Result<Self, LockNote>> {
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
            Err(TryLockError::WouldBlock) => return Ok(Err(LockNote::read(file))),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // Only the lock matters; failing to write the note is fine.
        let note = [format!("{}\n", std::process::id()).as_bytes(), after_pid].concat();
        file.set_len(0).and_then(|()| file.write_all(&note)).ok();
        Ok(Ok(Self { file, note_len: note.len() as u64 }))
    }
}

fn already_served(directories: &Directories, note: &LockNote) -> Error {
    let message =
        format!("a daemon ({}) is already running for {}", note.holder(), directories.home.display());
    Error::new(ErrorKind::AlreadyExists, message)
        .with_hint("Use that one, or replace it with `warren serve --take-over`; its sandboxes keep running.")
        .with_source(Held { pid: note.pid, gives_way: note.gives_way })
}

fn in_use(directories: &Directories, note: &LockNote, other: &str) -> Error {
    let Directories { home, run, .. } = directories;
    let message =
        format!("the run directory {} is in use by the daemon ({}) of {other}", run.display(), note.holder());
    Error::new(ErrorKind::AlreadyExists, message).with_hint(format!(
        "Use a separate run directory for {} with --run-dir or WARREN_RUN.",
        home.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_second_daemon_is_told_who_is_first() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories::at(place.path().to_owned(), place.path().join("run"));
        let first = Lock::of_home(&directories, Asked::ByPerson).unwrap();
        let error = Lock::of_home(&directories, Asked::ByPerson).unwrap_err();
        assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
        drop(first);
        Lock::of_home(&directories, Asked::ByPerson).unwrap();
    }

    #[test]
    fn a_daemon_that_nobody_asked_for_says_so() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories::at(place.path().to_owned(), place.path().join("run"));
        for (asked, gives_way) in [(Asked::ByCommand, true), (Asked::ByPerson, false)] {
            let _first = Lock::of_home(&directories, asked).unwrap();
            let error = Lock::of_home(&directories, Asked::ByPerson).unwrap_err();
            assert_eq!(Held::of(&error).unwrap().gives_way, gives_way, "{asked:?}");
        }
    }

    #[test]
    fn a_daemon_of_another_home_is_named() {
        let place = tempfile::tempdir().unwrap();
        let of = |home: &str| Directories::at(place.path().join(home), place.path().to_owned());
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
        let directories = Directories::at(place.path().to_owned(), place.path().to_owned());
        let _home = Lock::of_home(&directories, Asked::ByPerson).unwrap();
        assert!(Lock::of_run(&directories).unwrap().is_none());
    }

    #[test]
    fn the_note_leads_to_the_run_directory_that_is_its_own() {
        let place = tempfile::tempdir().unwrap();
        let [home, run, other] = ["home", "run", "other"].map(|name| place.path().join(name));
        let directories = Directories::at(home.clone(), run.clone());
        directories.make().unwrap();
        assert_eq!(LockNote::run_of(&home), None);
        let lock = Lock::of_home(&directories, Asked::ByCommand).unwrap();
        assert_eq!(LockNote::run_of(&home), None, "the run directory is not its own yet");
        let run_lock = Lock::of_run(&directories).unwrap().unwrap();
        assert_eq!(LockNote::run_of(&home).as_ref(), Some(&run));
        let said = || LockNote::of(&home).map(|note| (note.gives_way, note.is_serving));
        assert_eq!(said(), Some((true, false)));
        lock.say_serving(true);
        assert_eq!(said(), Some((true, true)));
        lock.say_serving(false);
        assert_eq!(said(), Some((true, false)));
        // Sandboxes outlive a daemon, and the next one finds them where they are.
        drop((lock, run_lock));
        assert_eq!(LockNote::run_of(&home).as_ref(), Some(&run));
        fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(LockNote::run_of(&home), None, "open to others");
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
        drop(Lock::of_run(&Directories::at(other, run)).unwrap());
        assert_eq!(LockNote::run_of(&home), None, "another data directory's");
    }

    #[test]
    fn a_replaced_directory_does_not_have_the_lock() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories::at(place.path().join("home"), place.path().join("run"));
        directories.make().unwrap();
        let lock = Lock::of_run(&directories).unwrap().unwrap();
        assert!(lock.is_in(&directories.run));
        fs::remove_dir_all(&directories.run).unwrap();
        assert!(!lock.is_in(&directories.run));
        directories.make().unwrap();
        let _next = Lock::of_run(&directories).unwrap().unwrap();
        assert!(!lock.is_in(&directories.run));
    }
}
