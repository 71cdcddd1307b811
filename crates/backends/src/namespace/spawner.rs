//! The spawner of this back end: a lock fences off an earlier daemon's, and it is restarted when it dies.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::OpenOptionsExt as _,
    },
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use jail::{Reply, Request, SpawnError, SpawnerHandle, cgroup::Cgroups};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandbox::BackendError;
use tokio::{sync::watch, task::AbortHandle};

use super::{error, instance, record, watched};

/// How long a dead daemon's spawner may take to end by itself before it is killed. It ends after the current request.
const FENCE_TIME: Duration = Duration::from_secs(5);
/// How long it may take to die: in the middle of disk work it dies when that is done.
const KILL_TIME: Duration = Duration::from_secs(10);
/// Pause between two attempts to take the lock. A lock cannot be awaited with a time limit.
const LOCK_RETRY: Duration = Duration::from_millis(2);
/// How long a request waits while a dead spawner is replaced.
const REPLACE_TIME: Duration = Duration::from_secs(20);
/// Pause between two checks for the new spawner, on a thread that may block.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How soon after a broken connection the death of a spawner is noticed.
const NOTICE_TIME: Duration = Duration::from_millis(200);
/// Pauses before a new spawner is started: each twice the last, until one has lived for a while.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Longest note in the lock: a pid and a start time.
const MAX_NOTE_BYTES: u64 = 64;

/// How every spawner of this daemon is started.
#[derive(Debug)]
pub(crate) struct Starter {
    /// Held by the spawner and all its work in progress.
    pub(crate) lock: PathBuf,
    /// Soft limit of open files for sandboxes.
    pub(crate) open_files: Option<u64>,
}

impl Starter {
    /// Starts a spawner as soon as an earlier one has no work in progress any more. Blocks.
    pub(crate) fn start(&self) -> Result<SpawnerHandle, BackendError> {
        let failed = |error| error::from_io(format!("could not lock {}", self.lock.display()), error);
        let lock = self.take_lock().map_err(failed)?;
        let note = lock.try_clone().map_err(failed)?;
        let spawner = jail::start_spawner(lock, self.open_files)
            .map_err(|error: SpawnError| BackendError::failed("could not start the spawner", error))?;
        write_note(&note, spawner.pid());
        Ok(spawner)
    }

    fn take_lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&self.lock)?;
        if lock_within(&file, FENCE_TIME)? {
            return Ok(file);
        }
        if let Some((pid, handle)) = holder(&file) {
            tracing::warn!(pid, after = ?FENCE_TIME, "the spawner of an earlier daemon has not ended; killing it");
            let _dead = pidfd_send_signal(handle, Signal::KILL);
        }
        if lock_within(&file, KILL_TIME)? {
            return Ok(file);
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "an earlier daemon's work on sandboxes has not ended"))
    }
}

fn lock_within(file: &File, time: Duration) -> io::Result<bool> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if began.elapsed() < time => std::thread::sleep(LOCK_RETRY),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Notes the lock's spawner, so that the next daemon can end one that hangs. The lock counts; the note may be missing.
fn write_note(mut file: &File, pid: i32) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    if let Some((pid, start_time)) = jail::parse_stat(&stat) {
        let note = format!("{pid} {start_time}\n");
        file.set_len(0).and_then(|()| file.write_all(note.as_bytes())).ok();
    }
}

fn holder(file: &File) -> Option<(i32, OwnedFd)> {
    let mut note = String::new();
    file.take(MAX_NOTE_BYTES).read_to_string(&mut note).ok()?;
    let (pid, start_time) = record::parse_pid(&note)?;
    Some((pid, instance::find_process(pid, start_time)?))
}

/// The message to every spawner before its first cage.
#[derive(Debug)]
pub(crate) struct Preparation {
    pub(crate) request: Request,
    pub(crate) cgroups: Cgroups,
}

impl Preparation {
    /// Sends it; the answer says what sandboxes can have.
    pub(crate) fn send(&self, spawner: &SpawnerHandle) -> Result<jail::ReplySocket, BackendError> {
        let guests = self.cgroups.guest_files().map_err(error::from_cgroup)?;
        let beside: Vec<_> = guests.iter().map(OwnedFd::as_fd).collect();
        spawner.request(&self.request, &beside).map_err(gone)
    }
}

/// Keeps a spawner available. Ends with the back end, which releases its spawner cleanly.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// Absent while another is being started.
    now: watch::Receiver<Option<Arc<SpawnerHandle>>>,
    task: AbortHandle,
}

impl Keeper {
    /// Must be called in a Tokio runtime.
    pub(crate) fn new(starter: Starter, preparation: Preparation, first: SpawnerHandle) -> io::Result<Self> {
        let first = Arc::new(first);
        let end = end_of(&first)?;
        let (tell, now) = watch::channel(Some(Arc::clone(&first)));
        let next = Arc::new((starter, preparation));
        let task = tokio::spawn(keep(next, first, end, tell)).abort_handle();
        Ok(Self { now, task })
    }

    /// The spawner, if there is one right now.
    pub(crate) fn now(&self) -> Result<Arc<SpawnerHandle>, BackendError> {
        self.now.borrow().clone().ok_or_else(away)
    }

    /// The spawner; waits while a new one is being started.
    pub(crate) async fn at_hand(&self) -> Result<Arc<SpawnerHandle>, BackendError> {
        let mut now = self.now.clone();
        let found = tokio::time::timeout(REPLACE_TIME, now.wait_for(Option::is_some)).await;
        let found = found.map_err(|_elapsed| away())?.map_err(|_ending| away())?;
        found.clone().ok_or_else(away)
    }

    /// Like [`Self::at_hand`], on a thread that may block.
    pub(crate) fn wait(&self) -> Result<Arc<SpawnerHandle>, BackendError> {
        let began = Instant::now();
        loop {
            match self.now() {
                Err(_away) if began.elapsed() < REPLACE_TIME => std::thread::sleep(LOOK_AGAIN),
                found => return found,
            }
        }
    }

    /// Returns when this spawner has been replaced, or seems to be alive.
    pub(crate) async fn lost(&self, spawner: &Arc<SpawnerHandle>) {
        let mut now = self.now.clone();
        let is_other =
            |now: &Option<Arc<SpawnerHandle>>| !now.as_ref().is_some_and(|now| Arc::ptr_eq(now, spawner));
        drop(tokio::time::timeout(NOTICE_TIME, now.wait_for(is_other)).await);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type End = tokio::io::unix::AsyncFd<OwnedFd>;

fn end_of(spawner: &SpawnerHandle) -> io::Result<End> {
    let pid = Pid::from_raw(spawner.pid()).ok_or(io::ErrorKind::InvalidInput)?;
    watched::readable(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}

async fn keep(
    next: Arc<(Starter, Preparation)>,
    mut spawner: Arc<SpawnerHandle>,
    mut end: End,
    tell: watch::Sender<Option<Arc<SpawnerHandle>>>,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        if end.readable().await.is_err() {
            return; // The runtime is shutting down.
        }
        tell.send_replace(None);
        spawner.reap();
        tracing::error!(pid = spawner.pid(), "the spawner died; starting another. Sandboxes live on");
        if began.elapsed() >= STABLE_AFTER {
            pause = FIRST_PAUSE;
        }
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match start_next(Arc::clone(&next)).await {
                Ok(started) => {
                    (spawner, end) = started;
                    break;
                }
                Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "no new spawner yet"),
            }
        }
        tracing::info!(pid = spawner.pid(), "a new spawner is at work");
        tell.send_replace(Some(Arc::clone(&spawner)));
    }
}

async fn start_next(next: Arc<(Starter, Preparation)>) -> Result<(Arc<SpawnerHandle>, End), BackendError> {
    let start = move || {
        let (starter, preparation) = &*next;
        let spawner = starter.start()?;
        match preparation.send(&spawner)?.receive().map_err(gone)?.0 {
            Reply::Prepared { .. } => Ok(spawner),
            Reply::Failed(failure) => Err(super::unsupported(failure)),
            other => Err(super::unexpected(&other)),
        }
    };
    let spawner = Arc::new(tokio::task::spawn_blocking(start).await.map_err(error::from_join)??);
    let end = end_of(&spawner).map_err(|error| error::from_io("could not watch the spawner", error))?;
    Ok((spawner, end))
}

/// The process working on a request died before it answered.
pub(crate) fn gone(error: io::Error) -> BackendError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            let what = "the process that worked on it died before it was done".to_owned();
            BackendError::Unavailable { what }
        }
        _ => error::from_io("the spawner did not answer", error),
    }
}

fn away() -> BackendError {
    let what = "the spawner died and a new one is being started; sandboxes live on".to_owned();
    BackendError::Unavailable { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_waited_for_and_its_holder_is_known() {
        let place = tempfile::tempdir().unwrap();
        let starter = Starter { lock: place.path().join("spawner.lock"), open_files: None };
        let first = starter.take_lock().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        write_note(&first, own);
        let again = OpenOptions::new().read(true).write(true).open(&starter.lock).unwrap();
        assert!(!lock_within(&again, Duration::ZERO).unwrap());
        assert_eq!(holder(&again).unwrap().0, own);
        drop(first);
        assert!(lock_within(&again, FENCE_TIME).unwrap());
    }
}
