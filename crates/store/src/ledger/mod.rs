//! The exec ledger: for each exec an append-only, numbered log in segment files.
//!
//! ```text
//! <directory of the sandbox's logs>/<exec id>/00000000000000000001.seg     entries 1…
//!                                             00000000000000004711.seg     entries 4711…, still growing
//! ```
//!
//! Blocking, without a thread: an append is one write to the page cache, which the death of the daemon does not lose. A
//! torn tail (the daemon died within a write, the machine lost power) is found by length and checksum and cut off when
//! the exec's writer is opened again.
//!
//! Whether an exec has finished is not stored: at open its last entry tells (see `state::has_ended` for where that is
//! only looked at cheaply), and [`Ledger::finish`] says it for sure. A ledger with an open writer never counts as
//! finished.

mod entry;
mod error;
mod reader;
mod segment;
mod state;
mod writer;

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    sync::Arc,
};

use sandbox::ExecId;
use tokio::sync::watch;

use self::state::Shared;
pub use self::{
    entry::{Entry, EntryKind, Item, MAX_ENTRY_BYTES},
    error::LedgerError,
    reader::LedgerReader,
    writer::LedgerWriter,
};

/// How much a sandbox's ledger may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerLimits {
    pub per_sandbox_bytes: u64,
    /// A segment is what is trimmed at once from a running exec.
    pub segment_bytes: u64,
}

impl Default for LedgerLimits {
    fn default() -> Self {
        Self { per_sandbox_bytes: 256 * 1024 * 1024, segment_bytes: 8 * 1024 * 1024 }
    }
}

/// The entries that a trim took away: all of `exec` up to and including `through`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trimmed {
    pub exec: ExecId,
    pub through: u64,
    /// All that there was: the exec had finished.
    pub whole: bool,
}

/// The ledgers of all execs of one sandbox. Clones share their accounting.
#[derive(Debug, Clone)]
pub struct Ledger {
    shared: Arc<Shared>,
}

impl Ledger {
    /// Makes the directory where it is missing and measures what is there.
    pub fn open(directory: PathBuf, limits: LedgerLimits) -> Result<Self, LedgerError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(LedgerError::io("make the directory", &directory))?;
        Ok(Self { shared: Arc::new(Shared::measure(directory, limits)?) })
    }

    /// Opens the exec's writer: at its end, with a torn tail cut off; from number 1 when there is nothing yet. `Busy`
    /// while another is open.
    pub fn writer(&self, exec: &ExecId) -> Result<LedgerWriter, LedgerError> {
        LedgerWriter::open(self.shared.clone(), exec)
    }

    /// A cursor that begins with entry `from` (1 is the first). An exec without entries is no error: they may come.
    pub fn reader(&self, exec: &ExecId, from: u64) -> Result<LedgerReader, LedgerError> {
        Ok(LedgerReader::new(self.shared.clone(), exec.clone(), from))
    }

    /// Tells that this exec is done, so that it may be trimmed first once its writer is dropped.
    pub fn finish(&self, exec: &ExecId) {
        self.shared.lock().finish(exec);
    }

    /// Holds the sandbox to its cap: the oldest finished execs go whole, then the oldest segments of running ones.
    /// Returns what went since the last call, by this one or by appends.
    pub fn trim(&self) -> Result<Vec<Trimmed>, LedgerError> {
        let mut state = self.shared.lock();
        state.trim(&self.shared.directory, self.shared.limits.per_sandbox_bytes)?;
        Ok(state.take_untold())
    }

    /// Removes all of an exec's ledger; `Busy` while its writer is open. Fine when there is none.
    pub fn remove(&self, exec: &ExecId) -> Result<(), LedgerError> {
        let mut state = self.shared.lock();
        if state.execs.get(exec).is_some_and(|exec| exec.published.is_some()) {
            return Err(LedgerError::Busy { exec: exec.clone() });
        }
        state.recall(&self.shared.directory, exec)?;
        let directory = self.shared.exec_directory(exec);
        match fs::remove_dir_all(&directory) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(LedgerError::io("remove the ledger", &directory)(source));
            }
            _ => {}
        }
        state.forget(exec);
        Ok(())
    }

    /// Every exec that has a ledger, in no order.
    pub fn execs(&self) -> Result<Vec<ExecId>, LedgerError> {
        self.shared.listed()
    }

    /// Tells the exec's last number as it grows; `None` when no writer is open.
    pub fn subscribe(&self, exec: &ExecId) -> Option<watch::Receiver<u64>> {
        let state = self.shared.lock();
        state.execs.get(exec)?.published.as_ref().map(watch::Sender::subscribe)
    }

    /// Number of the exec's last entry, trimmed or not; 0 when there never was one.
    pub fn last_number(&self, exec: &ExecId) -> Result<u64, LedgerError> {
        self.shared.lock().last_number(&self.shared.directory, exec)
    }

    /// Bytes on disk, as accounted.
    pub fn total_bytes(&self) -> u64 {
        self.shared.lock().total_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exec that has printed one line and ended.
    fn run(ledger: &Ledger, n: u16) -> ExecId {
        let mut seed = [0; 8];
        seed[..2].copy_from_slice(&n.to_be_bytes());
        let exec = ExecId::from_random(seed);
        let mut writer = ledger.writer(&exec).unwrap();
        writer.append(n.into(), EntryKind::Stdout, 1, b"a line of output").unwrap();
        writer.append(n.into(), EntryKind::Exited, 2, b"{}").unwrap();
        drop(writer);
        ledger.finish(&exec);
        exec
    }

    fn printed(ledger: &Ledger, exec: &ExecId) -> Vec<Vec<u8>> {
        let mut reader = ledger.reader(exec, 1).unwrap();
        let mut printed = Vec::new();
        while let Some(item) = reader.next().unwrap() {
            if let Item::Entry(entry) = item {
                printed.push(entry.data.to_vec());
            }
        }
        printed
    }

    #[test]
    fn memory_does_not_grow_with_execs_and_those_that_left_it_are_as_they_were() {
        let directory = tempfile::tempdir().unwrap();
        let open = |limits| Ledger::open(directory.path().join("logs"), limits).unwrap();
        let ledger = open(LedgerLimits::default());
        let (running, first) = (ExecId::from_random([9; 8]), run(&ledger, 0));
        let bytes = ledger.total_bytes();
        let mut writer = ledger.writer(&running).unwrap();
        let empty = ledger.total_bytes() - bytes;
        for n in 1..200 {
            run(&ledger, n);
            assert!(ledger.shared.lock().execs.len() <= 9, "{n}");
        }
        assert_eq!(ledger.total_bytes(), 200 * bytes + empty);
        // The one that runs is not among those that left.
        assert_eq!(writer.append(0, EntryKind::Stdout, 1, b"here").unwrap(), 1);
        assert!(ledger.subscribe(&running).is_some());
        drop(writer);

        // The first one left memory long ago.
        assert_eq!(ledger.last_number(&first).unwrap(), 2);
        assert_eq!(printed(&ledger, &first), [&b"a line of output"[..], b"{}"]);
        assert_eq!(ledger.execs().unwrap().len(), 201);
        let before = ledger.total_bytes();
        drop(ledger.writer(&first).unwrap());
        assert_eq!(ledger.total_bytes(), before, "opening it again counts nothing twice");
        ledger.remove(&first).unwrap();
        assert_eq!(ledger.total_bytes(), before - bytes);
        assert_eq!(ledger.last_number(&first).unwrap(), 0);

        // The next daemon counts the same, and the cap drops the oldest first, wherever they are known.
        let limits = LedgerLimits { per_sandbox_bytes: 100 * bytes, ..LedgerLimits::default() };
        let ledger = open(limits);
        assert_eq!(ledger.total_bytes(), before - bytes);
        assert!(ledger.shared.lock().execs.len() <= 9);
        let mut gone: Vec<_> = ledger.trim().unwrap().into_iter().map(|trimmed| trimmed.exec).collect();
        gone.sort();
        let oldest: Vec<_> = (1..=100)
            .map(|n: u16| {
                let mut seed = [0; 8];
                seed[..2].copy_from_slice(&n.to_be_bytes());
                ExecId::from_random(seed)
            })
            .collect();
        assert_eq!(gone.len(), oldest.len());
        assert!(oldest.iter().all(|exec| gone.contains(exec)));
        assert!(ledger.shared.lock().execs.len() <= 9);
    }
}
