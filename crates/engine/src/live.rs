//! Execs that are not over: running, or with output still open. All others are in the store.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use sandbox::{Error, ExecId, ExecState, RequestId, Result};
use store::{EntryKind, ExecRecord, LedgerError, LedgerWriter};
use tokio::sync::watch;

/// Entries that an exec may be ahead of a reader that must miss nothing. An entry holds at most a few hundred KiB, so
/// this stays far below what a sandbox's ledger holds.
const MAX_ENTRIES_AHEAD: u64 = 64;
/// Most open execs of one sandbox. Each holds a connection and a file on the host.
pub(crate) const MAX_OPEN_EXECS: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct LiveExecs {
    by_id: Mutex<HashMap<ExecId, Arc<LiveExec>>>,
}

impl LiveExecs {
    pub(crate) fn insert(&self, exec: Arc<LiveExec>) {
        self.lock().insert(exec.id.clone(), exec);
    }

    pub(crate) fn remove(&self, id: &ExecId) {
        self.lock().remove(id);
    }

    pub(crate) fn get(&self, id: &ExecId) -> Option<Arc<LiveExec>> {
        self.lock().get(id).cloned()
    }

    pub(crate) fn requested(&self, request: &RequestId) -> Option<Arc<LiveExec>> {
        self.lock()
            .values()
            .find(|exec| exec.progress.borrow().record.spec.request_id.as_ref() == Some(request))
            .cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The execs that are being started now.
    pub(crate) fn starting(&self) -> Vec<Arc<LiveExec>> {
        let is_starting = |exec: &&Arc<LiveExec>| exec.progress.borrow().record.state == ExecState::Starting;
        self.lock().values().filter(is_starting).cloned().collect()
    }

    pub(crate) fn count(&self, matches: impl Fn(&ExecRecord) -> bool) -> usize {
        self.lock().values().filter(|exec| matches(&exec.progress.borrow().record)).count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ExecId, Arc<LiveExec>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct LiveExec {
    pub(crate) id: ExecId,
    /// Only the exec's own task sends.
    pub(crate) progress: watch::Sender<Progress>,
    writer: Mutex<Option<LedgerWriter>>,
    /// The writer's last numbers, for readers that must not wait for it: it may be waiting for the disk.
    last_number: AtomicU64,
    last_guest_event: AtomicU64,
    /// Pieces of output that never reached the ledger.
    n_lost: AtomicU64,
    /// Held by a writer to stdin, so that two writers do not mix.
    pub(crate) stdin: tokio::sync::Mutex<()>,
    /// A caller asked us to kill it.
    kill_requested: AtomicBool,
    /// The last entry that was taken by the reader that must miss nothing, if there is one.
    taken: watch::Sender<Option<u64>>,
}

/// Makes an exec wait for its reader, until this is dropped.
#[derive(Debug)]
pub(crate) struct Pace(Arc<LiveExec>);

impl Pace {
    /// The reader has taken all entries up to this number.
    pub(crate) fn has_taken(&self, number: u64) {
        self.0.taken.send_replace(Some(number));
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.0.taken.send_replace(None);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Progress {
    pub(crate) record: ExecRecord,
    /// It could not be recorded or started, through no fault of the command.
    pub(crate) refused: Option<Error>,
}

impl LiveExec {
    pub(crate) fn new(record: ExecRecord) -> Self {
        let n_lost = record.n_lost;
        Self {
            id: record.id.clone(),
            progress: watch::Sender::new(Progress { record, refused: None }),
            writer: Mutex::default(),
            last_number: AtomicU64::new(0),
            last_guest_event: AtomicU64::new(0),
            n_lost: AtomicU64::new(n_lost),
            stdin: tokio::sync::Mutex::default(),
            kill_requested: AtomicBool::new(false),
            taken: watch::Sender::new(None),
        }
    }

    /// Makes the exec wait for a reader that must miss nothing. `from`: the first entry that it will read.
    pub(crate) fn pace(self: &Arc<Self>, from: u64) -> Pace {
        self.taken.send_replace(Some(from.saturating_sub(1)));
        Pace(Arc::clone(self))
    }

    /// Returns when the reader that must miss nothing, if there is one, is close enough behind.
    pub(crate) async fn reader_is_near(&self) {
        let is_near = |taken: &Option<u64>| {
            taken.is_none_or(|taken| self.last_number() <= taken.saturating_add(MAX_ENTRIES_AHEAD))
        };
        if !is_near(&self.taken.borrow()) {
            // `self` holds the sender, so waiting cannot fail.
            drop(self.taken.subscribe().wait_for(is_near).await);
        }
    }

    pub(crate) fn record(&self) -> ExecRecord {
        self.progress.borrow().record.clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut ExecRecord)) -> ExecRecord {
        self.progress.send_modify(|progress| change(&mut progress.record));
        self.record()
    }

    /// It could not be started; waiting callers are told.
    pub(crate) fn refuse(&self, error: &Error) {
        let refusal = error.clone();
        self.progress.send_modify(|progress| progress.refused = Some(refusal));
    }

    pub(crate) fn open(&self, writer: LedgerWriter) {
        self.remember(&writer);
        *self.lock_writer() = Some(writer);
        self.nudge();
    }

    /// Closes the ledger; nothing more will come.
    pub(crate) fn close(&self) {
        *self.lock_writer() = None;
        self.nudge();
    }

    /// Wakes waiting tasks.
    pub(crate) fn nudge(&self) {
        self.progress.send_modify(|_| {});
    }

    /// Writes to the ledger; `None` if it is closed.
    pub(crate) fn append(
        &self,
        at_ms: i64,
        kind: EntryKind,
        guest_event: u64,
        data: &[u8],
    ) -> Option<Result<u64, LedgerError>> {
        let mut writer = self.lock_writer();
        let writer = writer.as_mut()?;
        let appended = writer.append(at_ms, kind, guest_event, data);
        self.remember(writer);
        Some(appended)
    }

    pub(crate) fn last_number(&self) -> u64 {
        self.last_number.load(Ordering::Relaxed)
    }

    pub(crate) fn last_guest_event(&self) -> u64 {
        self.last_guest_event.load(Ordering::Relaxed)
    }

    pub(crate) fn lose_output(&self, n_lost: u64) {
        self.n_lost.fetch_add(n_lost, Ordering::Relaxed);
    }

    pub(crate) fn n_lost(&self) -> u64 {
        self.n_lost.load(Ordering::Relaxed)
    }

    fn remember(&self, writer: &LedgerWriter) {
        self.last_number.store(writer.last_number(), Ordering::Relaxed);
        self.last_guest_event.store(writer.last_guest_event(), Ordering::Relaxed);
    }

    pub(crate) fn request_kill(&self) {
        self.kill_requested.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_kill_requested(&self) -> bool {
        self.kill_requested.load(Ordering::Relaxed)
    }

    /// Waits until it runs or is over.
    pub(crate) async fn started(&self) -> Result<ExecRecord> {
        self.reached(|progress| progress.refused.is_some() || progress.record.state != ExecState::Starting)
            .await
    }

    pub(crate) async fn done(&self) -> Result<ExecRecord> {
        self.reached(|progress| progress.refused.is_some() || progress.record.state == ExecState::Done).await
    }

    async fn reached(&self, is_there: impl FnMut(&Progress) -> bool) -> Result<ExecRecord> {
        let mut progress = self.progress.subscribe();
        // `self` holds the sender, so waiting cannot fail.
        let progress = progress
            .wait_for(is_there)
            .await
            .map_or_else(|_closed| self.progress.borrow().clone(), |progress| progress.clone());
        match progress.refused {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(progress.record),
        }
    }

    fn lock_writer(&self) -> MutexGuard<'_, Option<LedgerWriter>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
