//! State that the clones of one ledger share: which segments there are, how large they are, and what goes first.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use sandbox::ExecId;
use tokio::sync::watch;

use super::{
    LedgerLimits, Trimmed,
    entry::{EntryKind, HEAD_BYTES},
    error::LedgerError,
    segment::{self, SEGMENT_HEAD_BYTES, Scanner, Step},
};

/// A last segment up to this long is read through at open to see whether its exec ended; of a longer one only the last
/// bytes are looked at.
const MAX_OPEN_SCAN_BYTES: u64 = 64 * 1024;
/// However many execs run, a segment may grow to this before the next one.
const MIN_SEGMENT_BYTES: u64 = 64 * 1024;
/// Finished execs that are kept in memory: those that are asked about most, just after their end. Of the others only
/// the sum of their bytes is kept, so a sandbox that ran thousands costs no more memory than one that ran a few.
const MAX_FINISHED_IN_MEMORY: usize = 4;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) limits: LedgerLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// All that have not finished, and some that have.
    pub(super) execs: HashMap<ExecId, Exec>,
    /// There are finished ones on disk that are not in `execs`. Their bytes are in the sum.
    has_more_on_disk: bool,
    total_bytes: u64,
    n_writers: u64,
    /// Trimmed by appends, not yet told; at most one for each exec.
    untold: HashMap<ExecId, Trimmed>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Exec {
    /// In order, never empty on disk: what was trimmed as a whole leaves an empty file named for the next number.
    pub(super) segments: VecDeque<Segment>,
    pub(super) is_finished: bool,
    /// Known once a writer was open.
    pub(super) last_number: Option<u64>,
    /// Present while a writer is open.
    pub(super) published: Option<watch::Sender<u64>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) first: u64,
    pub(super) bytes: u64,
    /// When its first entry was written; decides which segment is the oldest.
    pub(super) at_ms: i64,
}

impl Exec {
    /// The exec's segments once the first writer was opened.
    pub(super) fn with_first_segment() -> Self {
        let segment = Segment { first: 1, bytes: SEGMENT_HEAD_BYTES, at_ms: i64::MAX };
        Self { segments: [segment].into(), ..Self::default() }
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    fn at_ms(&self) -> i64 {
        self.segments.front().map_or(i64::MAX, |segment| segment.at_ms)
    }

    fn may_go_whole(&self) -> bool {
        self.is_over() && self.bytes() > 0
    }

    fn is_over(&self) -> bool {
        self.is_finished && self.published.is_none()
    }
}

impl Shared {
    /// Measures what is in `directory`. What does not look like ours is left alone.
    pub(super) fn measure(directory: PathBuf, limits: LedgerLimits) -> Result<Self, LedgerError> {
        let mut state = State::default();
        for id in exec_ids(&directory)? {
            let exec = measure_exec(&directory.join(id.as_str()))?;
            state.total_bytes += exec.bytes();
            state.execs.insert(id, exec);
            state.drop_finished();
        }
        Ok(Self { directory, limits, state: Mutex::new(state) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // What a panicking thread left is counters; the next open measures them again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn exec_directory(&self, exec: &ExecId) -> PathBuf {
        self.directory.join(exec.as_str())
    }

    /// Every exec that has a ledger, in no order.
    pub(super) fn listed(&self) -> Result<Vec<ExecId>, LedgerError> {
        exec_ids(&self.directory)
    }
}

fn exec_ids(directory: &Path) -> Result<Vec<ExecId>, LedgerError> {
    let names = list(directory)?.into_iter().map(|entry| entry.file_name());
    Ok(names.filter_map(|name| name.to_str()?.parse().ok()).collect())
}

fn list(directory: &Path) -> Result<Vec<fs::DirEntry>, LedgerError> {
    let entries = fs::read_dir(directory).and_then(Iterator::collect);
    entries.map_err(LedgerError::io("list the ledger", directory))
}

pub(super) fn measure_exec(directory: &Path) -> Result<Exec, LedgerError> {
    let mut segments = Vec::new();
    for entry in list(directory)? {
        let Some(first) = segment::first_from_name(&entry.file_name()) else { continue };
        let path = entry.path();
        let metadata = entry.metadata().map_err(LedgerError::io("measure the segment", &path))?;
        let file = fs::File::open(&path).map_err(LedgerError::io("open the segment", &path))?;
        let head =
            segment::peek(&file, SEGMENT_HEAD_BYTES).map_err(LedgerError::io("read the segment", &path))?;
        let at_ms = head.map_or(i64::MAX, |head| head.at_ms);
        segments.push(Segment { first, bytes: metadata.len(), at_ms });
    }
    segments.sort_by_key(|segment| segment.first);
    let is_finished = match segments.last() {
        Some(last) => has_ended(directory, *last)?,
        None => false,
    };
    Ok(Exec { segments: segments.into(), is_finished, ..Exec::default() })
}

/// Whether the last entry tells an end. Cheap rather than sure: a long segment that ends with `Exited` counts as
/// running until someone calls `finish`.
fn has_ended(directory: &Path, last: Segment) -> Result<bool, LedgerError> {
    if last.bytes == 0 {
        return Ok(true);
    }
    let path = segment::path(directory, last.first);
    let mut scanner = Scanner::open(path, last.first)?;
    if last.bytes > MAX_OPEN_SCAN_BYTES {
        // `Closed` has no data, so it is exactly the last bytes.
        let head = segment::peek(scanner.file(), last.bytes - HEAD_BYTES as u64)
            .map_err(LedgerError::io("read the segment", scanner.path()))?;
        return Ok(head.is_some_and(|head| head.kind == EntryKind::Closed && head.len == 0));
    }
    let mut kind = None;
    while let Step::Entry(entry) = scanner.next()? {
        kind = Some(entry.kind);
    }
    Ok(kind.is_some_and(EntryKind::is_end))
}

impl State {
    /// Counts a new segment of an exec.
    pub(super) fn add_segment(&mut self, exec: &ExecId, segment: Segment) {
        self.total_bytes += segment.bytes;
        self.execs.entry(exec.clone()).or_default().segments.push_back(segment);
    }

    /// An exec from memory, or measured again. `None` if it has no ledger.
    pub(super) fn find(&self, directory: &Path, id: &ExecId) -> Result<Option<Cow<'_, Exec>>, LedgerError> {
        if let Some(exec) = self.execs.get(id) {
            return Ok(Some(Cow::Borrowed(exec)));
        }
        Ok(self.measure_finished(directory, id)?.map(Cow::Owned))
    }

    /// Has an exec in memory from now on, if it has a ledger.
    pub(super) fn recall(&mut self, directory: &Path, id: &ExecId) -> Result<(), LedgerError> {
        if !self.execs.contains_key(id)
            && let Some(exec) = self.measure_finished(directory, id)?
        {
            self.execs.insert(id.clone(), exec);
        }
        Ok(())
    }

    /// An exec that is not in memory: it has finished.
    fn measure_finished(&self, directory: &Path, id: &ExecId) -> Result<Option<Exec>, LedgerError> {
        let directory = directory.join(id.as_str());
        if !self.has_more_on_disk || !directory.is_dir() {
            return Ok(None);
        }
        Ok(Some(Exec { is_finished: true, ..measure_exec(&directory)? }))
    }

    fn recall_all(&mut self, directory: &Path) -> Result<(), LedgerError> {
        if !self.has_more_on_disk {
            return Ok(());
        }
        for id in exec_ids(directory)? {
            self.recall(directory, &id)?;
        }
        self.has_more_on_disk = false;
        Ok(())
    }

    /// Nothing more comes to this exec.
    pub(super) fn finish(&mut self, id: &ExecId) {
        if let Some(exec) = self.execs.get_mut(id) {
            exec.is_finished = true;
        }
        self.drop_finished();
    }

    /// Leaves the oldest finished execs to the disk when there are twice as many as are kept.
    fn drop_finished(&mut self) {
        let finished = self.execs.iter().filter(|(_, exec)| exec.is_over());
        // Of one that was trimmed nobody reads, and it has no time.
        let mut by_age: Vec<_> =
            finished.map(|(id, exec)| (exec.bytes() > 0, exec.at_ms(), id.clone())).collect();
        if by_age.len() <= 2 * MAX_FINISHED_IN_MEMORY {
            return;
        }
        by_age.sort_unstable();
        by_age.truncate(by_age.len() - MAX_FINISHED_IN_MEMORY);
        for (_, _, id) in by_age {
            self.execs.remove(&id);
        }
        self.execs.shrink_to(4 * MAX_FINISHED_IN_MEMORY);
        self.has_more_on_disk = true;
    }

    /// Replaces what is known of an exec, keeping the sum right.
    pub(super) fn replace(&mut self, id: &ExecId, exec: Exec) {
        self.forget(id);
        self.total_bytes += exec.bytes();
        self.execs.insert(id.clone(), exec);
    }

    pub(super) fn forget(&mut self, id: &ExecId) {
        if let Some(exec) = self.execs.remove(id) {
            self.total_bytes = self.total_bytes.saturating_sub(exec.bytes());
        }
        self.untold.remove(id);
    }

    /// Counts one entry that was written to an exec's last segment.
    pub(super) fn add_entry(&mut self, exec: &ExecId, number: u64, at_ms: i64, bytes: u64) {
        let Some(exec) = self.execs.get_mut(exec) else { return };
        exec.last_number = Some(number);
        if let Some(segment) = exec.segments.back_mut() {
            segment.bytes += bytes;
            segment.at_ms = segment.at_ms.min(at_ms);
            self.total_bytes += bytes;
        }
    }

    /// Known while the daemon that wrote it lives; read from the last segment once after that.
    pub(super) fn last_number(&mut self, directory: &Path, id: &ExecId) -> Result<u64, LedgerError> {
        let Some((known, last)) =
            self.find(directory, id)?.map(|exec| (exec.last_number, exec.segments.back().copied()))
        else {
            return Ok(0);
        };
        let number = match (known, last) {
            (Some(number), _) => number,
            (None, Some(last)) if last.bytes == 0 => last.first - 1,
            (None, Some(last)) => last_number(&directory.join(id.as_str()), last)?,
            (None, None) => 0,
        };
        if let Some(exec) = self.execs.get_mut(id) {
            exec.last_number = Some(number);
        }
        Ok(number)
    }

    pub(super) fn writer_opened(&mut self) {
        self.n_writers += 1;
    }

    pub(super) fn writer_closed(&mut self, exec: &ExecId) {
        self.n_writers = self.n_writers.saturating_sub(1);
        if let Some(exec) = self.execs.get_mut(exec) {
            exec.published = None;
        }
        self.drop_finished();
    }

    /// Where a writer begins a new segment. The last segment of a running exec is never trimmed, so with many of them
    /// the segments must be shorter for the cap to hold.
    pub(super) fn segment_bytes(&self, limits: LedgerLimits) -> u64 {
        let share = limits.per_sandbox_bytes / (4 * self.n_writers.max(1));
        limits.segment_bytes.min(share.max(MIN_SEGMENT_BYTES))
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub(super) fn take_untold(&mut self) -> Vec<Trimmed> {
        self.untold.drain().map(|(_exec, trimmed)| trimmed).collect()
    }

    /// Removes the oldest until at most `target` bytes are left, or nothing more may go.
    pub(super) fn trim(&mut self, directory: &Path, target: u64) -> Result<(), LedgerError> {
        if self.total_bytes <= target {
            return Ok(());
        }
        self.recall_all(directory)?;
        let trimmed = self.trim_known(directory, target);
        self.drop_finished();
        trimmed
    }

    fn trim_known(&mut self, directory: &Path, target: u64) -> Result<(), LedgerError> {
        while self.total_bytes > target {
            let finished = self.execs.iter().filter(|(_, exec)| exec.may_go_whole());
            if let Some((id, _)) = finished.min_by_key(|(id, exec)| (exec.at_ms(), *id)) {
                let id = id.clone();
                self.trim_whole(directory, &id)?;
                continue;
            }
            let running = self.execs.iter().filter(|(_, exec)| exec.segments.len() > 1);
            let Some((id, _)) = running.min_by_key(|(id, exec)| (exec.at_ms(), *id)) else { break };
            let id = id.clone();
            self.trim_oldest_segment(directory, &id)?;
        }
        Ok(())
    }

    fn trim_oldest_segment(&mut self, directory: &Path, id: &ExecId) -> Result<(), LedgerError> {
        let Some(exec) = self.execs.get_mut(id) else { return Ok(()) };
        let (Some(oldest), Some(next)) = (exec.segments.front().copied(), exec.segments.get(1)) else {
            return Ok(());
        };
        let through = next.first - 1;
        unlink(&segment::path(&directory.join(id.as_str()), oldest.first))?;
        exec.segments.pop_front();
        self.total_bytes = self.total_bytes.saturating_sub(oldest.bytes);
        self.untold.insert(id.clone(), Trimmed { exec: id.clone(), through, whole: false });
        Ok(())
    }

    fn trim_whole(&mut self, directory: &Path, id: &ExecId) -> Result<(), LedgerError> {
        let Some(exec) = self.execs.get_mut(id) else { return Ok(()) };
        let directory = directory.join(id.as_str());
        let through = match (exec.last_number, exec.segments.back()) {
            (Some(number), _) => number,
            (None, Some(last)) => last_number(&directory, *last)?,
            (None, None) => 0,
        };
        let next = through + 1;
        // The mark comes first, so that a crash in between leaves segments that still join. Without it (a full disk) a
        // reader after the next open would not be told what is gone: no reason to keep the bytes.
        let mark = segment::path(&directory, next);
        let made = fs::OpenOptions::new().write(true).create(true).truncate(true).open(&mark);
        if let Err(error) = made {
            tracing::warn!(path = %mark.display(), %error, "could not mark a trimmed ledger");
        }
        while let Some(oldest) = exec.segments.front().copied() {
            if oldest.first != next {
                unlink(&segment::path(&directory, oldest.first))?;
            }
            exec.segments.pop_front();
            self.total_bytes = self.total_bytes.saturating_sub(oldest.bytes);
        }
        exec.segments.push_back(Segment { first: next, bytes: 0, at_ms: i64::MAX });
        self.untold.insert(id.clone(), Trimmed { exec: id.clone(), through, whole: true });
        Ok(())
    }
}

/// The number of the last whole entry of an exec whose last segment this is.
fn last_number(directory: &Path, last: Segment) -> Result<u64, LedgerError> {
    let mut scanner = Scanner::open(segment::path(directory, last.first), last.first)?;
    loop {
        match scanner.next()? {
            Step::Entry(_) => {}
            Step::Bad(_) if scanner.skip_damage()? => {}
            Step::End | Step::Bad(_) => return Ok(scanner.expected - 1),
        }
    }
}

fn unlink(path: &Path) -> Result<(), LedgerError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(LedgerError::io("remove the segment", path)(source))
        }
        _ => Ok(()),
    }
}
