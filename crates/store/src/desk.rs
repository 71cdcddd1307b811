//! Where the database is: one at a time works at it, the store's thread or a caller with a small write.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{StoreError, database::Database};

/// A slower write than this has met a slow disk…
const SLOW: Duration = Duration::from_millis(2);
/// …and for this long after it callers leave their writes to the thread.
const SLOW_FOR: Duration = Duration::from_secs(1);
/// Writes between two checkpoints. A write changes about five pages, so the log stays near SQLite's own limit of 1000.
const CHECKPOINT_EVERY: u32 = 200;

#[derive(Debug)]
pub(crate) struct Desk {
    seat: Mutex<Seat>,
    opened_at: Instant,
    /// Milliseconds after `opened_at`.
    slow_until: AtomicU64,
}

#[derive(Debug)]
struct Seat {
    /// Absent once it is closed.
    database: Option<Database>,
    n_since_checkpoint: u32,
}

/// The right to use the database until this is dropped.
pub(crate) struct Turn<'a> {
    desk: &'a Desk,
    seat: MutexGuard<'a, Seat>,
}

impl Desk {
    pub(crate) fn new(database: Database) -> Self {
        let seat = Seat { database: Some(database), n_since_checkpoint: 0 };
        Self { seat: Mutex::new(seat), opened_at: Instant::now(), slow_until: AtomicU64::new(0) }
    }

    /// Waits for the database.
    pub(crate) fn turn(&self) -> Turn<'_> {
        // A panic in there left a transaction that was rolled back.
        Turn { desk: self, seat: self.seat.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// None if somebody is at the database, or the disk is slow.
    pub(crate) fn turn_at_once(&self) -> Option<Turn<'_>> {
        if self.slow_until.load(Ordering::Relaxed) > millis(self.opened_at.elapsed()) {
            return None;
        }
        let seat = match self.seat.try_lock() {
            Ok(seat) => seat,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Turn { desk: self, seat })
    }

    pub(crate) fn close(&self) {
        drop(self.turn().seat.database.take());
    }
}

impl Turn<'_> {
    pub(crate) fn database(&mut self) -> Option<&mut Database> {
        self.seat.database.as_mut()
    }

    /// Does a write, and notices if the disk is slow.
    pub(crate) fn timed<T>(
        &mut self,
        work: impl FnOnce(&mut Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let begin = Instant::now();
        self.count_write();
        let result = work(self.database().ok_or(StoreError::Closed)?);
        if begin.elapsed() > SLOW {
            let until = self.desk.opened_at.elapsed() + SLOW_FOR;
            self.desk.slow_until.store(millis(until), Ordering::Relaxed);
        }
        result
    }

    pub(crate) fn count_write(&mut self) {
        self.seat.n_since_checkpoint += 1;
    }

    pub(crate) fn is_checkpoint_due(&self) -> bool {
        self.seat.n_since_checkpoint >= CHECKPOINT_EVERY
    }

    /// Waits for the disk.
    pub(crate) fn checkpoint(&mut self) {
        self.seat.n_since_checkpoint = 0;
        if let Some(Err(error)) = self.database().map(|database| database.checkpoint()) {
            // On a full disk, say. The log has everything, and grows until the next one works.
            tracing::debug!(%error, "the write-ahead log stays as long as it is");
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
