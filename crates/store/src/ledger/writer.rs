//! Appending to one exec's ledger, and taking up again where an earlier daemon stopped.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, IoSlice, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use sandbox::ExecId;
use tokio::sync::watch;

use super::{
    entry::{self, EntryKind, HEAD_BYTES, MAX_ENTRY_BYTES},
    error::LedgerError,
    segment::{self, SEGMENT_HEAD_BYTES, Scanner, Step},
    state::{Exec, Segment, Shared, measure_exec},
};

/// When appends pass the cap they make this part of it free at once, so that not every append trims.
const TRIM_SLACK: u64 = 32;

/// The one writer of an exec's ledger. Dropping it lets another be opened.
#[derive(Debug)]
pub struct LedgerWriter {
    shared: Arc<Shared>,
    exec: ExecId,
    directory: PathBuf,
    tail: Tail,
    published: watch::Sender<u64>,
    /// A failed append could not be cut off; it must be before the next one.
    has_torn_tail: bool,
}

/// Where the next entry goes.
#[derive(Debug)]
struct Tail {
    file: File,
    path: PathBuf,
    len: u64,
    last_number: u64,
    last_guest_event: u64,
}

impl LedgerWriter {
    pub(super) fn open(shared: Arc<Shared>, exec: &ExecId) -> Result<Self, LedgerError> {
        let directory = shared.exec_directory(exec);
        let mut state = shared.lock();
        if state.execs.get(exec).is_some_and(|exec| exec.published.is_some()) {
            return Err(LedgerError::Busy { exec: exec.clone() });
        }
        let (tail, mut measured) = if make_directory(&directory)? {
            (Tail::first(&directory)?, Exec::with_first_segment())
        } else {
            // Its bytes are in the sum, as they were before a torn tail is cut.
            state.recall(&shared.directory, exec)?;
            let tail = Tail::resume(&directory)?;
            // Measured again, since resuming may have cut a tail or made the first segment.
            (tail, measure_exec(&directory)?)
        };
        let published = watch::Sender::new(tail.last_number);
        measured.last_number = Some(tail.last_number);
        measured.published = Some(published.clone());
        state.replace(exec, measured);
        state.writer_opened();
        drop(state);
        Ok(Self { shared, exec: exec.clone(), directory, tail, published, has_torn_tail: false })
    }

    /// Writes one entry and returns its number. On error nothing of it stays. Passing the cap trims.
    pub fn append(
        &mut self,
        at_ms: i64,
        kind: EntryKind,
        guest_event: u64,
        data: &[u8],
    ) -> Result<u64, LedgerError> {
        if data.len() > MAX_ENTRY_BYTES {
            return Err(LedgerError::TooLong { len: data.len() });
        }
        let number = self.tail.last_number + 1;
        let size = (HEAD_BYTES + data.len()) as u64;
        self.cut_torn_tail()?;
        self.rotate_if_full(number, size, at_ms)?;
        let head = entry::head(number, at_ms, kind, guest_event, data);
        if let Err(source) = write_all(&self.tail.file, &head, data) {
            self.has_torn_tail = true;
            // Tried again before the next append, should it not work now.
            self.cut_torn_tail().unwrap_or(());
            return Err(LedgerError::io("write to", &self.tail.path)(source));
        }
        self.tail.len += size;
        self.tail.last_number = number;
        self.tail.last_guest_event = self.tail.last_guest_event.max(guest_event);
        self.account(number, at_ms, size);
        self.published.send_replace(number);
        Ok(number)
    }

    /// Number of the last entry; 0 when there is none.
    pub fn last_number(&self) -> u64 {
        self.tail.last_number
    }

    /// Highest guest event in the ledger; 0 when there is none. The guest need not send it again.
    pub fn last_guest_event(&self) -> u64 {
        self.tail.last_guest_event
    }

    /// Tells the last number as it grows. Closes with the writer.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }

    fn cut_torn_tail(&mut self) -> Result<(), LedgerError> {
        if self.has_torn_tail {
            self.tail.file.set_len(self.tail.len).map_err(LedgerError::io("cut back", &self.tail.path))?;
            self.has_torn_tail = false;
        }
        Ok(())
    }

    fn rotate_if_full(&mut self, number: u64, size: u64, at_ms: i64) -> Result<(), LedgerError> {
        if self.tail.len <= SEGMENT_HEAD_BYTES
            || self.tail.len + size <= self.shared.lock().segment_bytes(self.shared.limits)
        {
            return Ok(());
        }
        let path = segment::path(&self.directory, number);
        self.tail.file = segment::create(&path, number, self.tail.last_guest_event)?;
        self.tail.path = path;
        self.tail.len = SEGMENT_HEAD_BYTES;
        let segment = Segment { first: number, bytes: SEGMENT_HEAD_BYTES, at_ms };
        self.shared.lock().add_segment(&self.exec, segment);
        Ok(())
    }

    fn account(&self, number: u64, at_ms: i64, size: u64) {
        let mut state = self.shared.lock();
        state.add_entry(&self.exec, number, at_ms, size);
        let cap = self.shared.limits.per_sandbox_bytes;
        if state.total_bytes() > cap
            && let Err(error) = state.trim(&self.shared.directory, cap - cap / TRIM_SLACK)
        {
            // The entry is written, so the append worked; the next one trims again.
            tracing::warn!(exec = %self.exec, %error, "could not trim the ledger");
        }
    }
}

impl Drop for LedgerWriter {
    fn drop(&mut self) {
        self.cut_torn_tail().unwrap_or(());
        self.shared.lock().writer_closed(&self.exec);
    }
}

/// Whether it is new: then there is nothing in it to look at, which is what nearly every exec begins with.
fn make_directory(directory: &Path) -> Result<bool, LedgerError> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(LedgerError::io("make the directory", directory)(error)),
    }
}

/// Head and data in one system call, as a rule; more only when the kernel takes a part.
fn write_all(mut file: &File, head: &[u8], data: &[u8]) -> io::Result<()> {
    let mut slices = [IoSlice::new(head), IoSlice::new(data)];
    let mut rest = &mut slices[..];
    let mut left = head.len() + data.len();
    while left > 0 {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                left -= n;
                IoSlice::advance_slices(&mut rest, n);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Tail {
    /// Finds the last whole entry and cuts off what is torn behind it. Damage with whole entries behind it stays, for
    /// readers to be told.
    fn resume(directory: &Path) -> Result<Self, LedgerError> {
        let mut firsts: Vec<u64> = measure_exec(directory)?.segments.iter().map(|s| s.first).collect();
        while let Some(first) = firsts.pop() {
            if let Some(tail) = Self::resume_segment(directory, first, firsts.is_empty())? {
                return Ok(tail);
            }
            let path = segment::path(directory, first);
            fs::remove_file(&path).map_err(LedgerError::io("remove the segment", &path))?;
        }
        Self::first(directory)
    }

    /// Makes the first segment.
    fn first(directory: &Path) -> Result<Self, LedgerError> {
        let path = segment::path(directory, 1);
        let file = segment::create(&path, 1, 0)?;
        Ok(Self { file, path, len: SEGMENT_HEAD_BYTES, last_number: 0, last_guest_event: 0 })
    }

    /// `None` when the segment holds nothing that an earlier one would not tell better.
    fn resume_segment(directory: &Path, first: u64, is_only: bool) -> Result<Option<Self>, LedgerError> {
        let path = segment::path(directory, first);
        let open = || OpenOptions::new().append(true).read(true).open(&path);
        let file = open().map_err(LedgerError::io("open the segment", &path))?;
        let before =
            segment::guest_event_before(&file, first).map_err(LedgerError::io("read the segment", &path))?;
        let mut last_guest_event = before.unwrap_or(0);
        let mut scanner = Scanner::new(file, path.clone(), first);
        loop {
            match scanner.next()? {
                Step::Entry(entry) => last_guest_event = last_guest_event.max(entry.guest_event),
                Step::Bad(_) if scanner.skip_damage()? => {}
                Step::End | Step::Bad(_) => break,
            }
        }
        let last_number = scanner.expected - 1;
        let has_entries = scanner.offset > SEGMENT_HEAD_BYTES;
        if before.is_none() && !has_entries {
            if !is_only {
                return Ok(None);
            }
            rewrite_head(scanner.file(), first).map_err(LedgerError::io("write to", &path))?;
        }
        let len = scanner.offset;
        scanner.file().set_len(len).map_err(LedgerError::io("cut back", &path))?;
        // A descriptor of its own: the scanner's is dropped with it.
        let file = open().map_err(LedgerError::io("open the segment", &path))?;
        Ok(Some(Self { file, path, len, last_number, last_guest_event }))
    }
}

/// For the empty file that a trim left, and for one that a crash left.
fn rewrite_head(mut file: &File, first: u64) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(&segment::segment_head(first, 0))
}
