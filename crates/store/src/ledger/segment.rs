//! One file of a ledger: its name, its head, and reading through it.
//!
//! The name is the number of its first entry. The head repeats that and keeps the highest guest event before it, so
//! that a writer that resumes needs no earlier segment, which may be trimmed.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use bytes::{Bytes, BytesMut};

use super::{
    entry::{Entry, HEAD_BYTES, Head, u32_at, u64_at},
    error::LedgerError,
};

pub(super) const SEGMENT_HEAD_BYTES: u64 = 32;
const MAGIC: &[u8; 8] = b"WRNLEDG1";
/// Read at once: little for a follower at the tail, more for a reader that catches up.
const MIN_READ_BYTES: usize = 8 * 1024;
const MAX_READ_BYTES: usize = 256 * 1024;
/// Highest number an entry can have. Nobody ever writes that many, so sums with it cannot overflow.
const MAX_NUMBER: u64 = u64::MAX / 2;
/// Bytes checked while looking for the next whole entry behind a damaged one. A workload could print things that look
/// like entries; this bounds the work they can cause.
const MAX_SEARCH_BYTES: usize = 64 * 1024 * 1024;

pub(super) fn path(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("{first:020}.seg"))
}

pub(super) fn first_from_name(name: &std::ffi::OsStr) -> Option<u64> {
    let digits = name.to_str()?.strip_suffix(".seg")?;
    let first = digits.parse().ok().filter(|_| digits.len() == 20)?;
    (1..=MAX_NUMBER).contains(&first).then_some(first)
}

/// Makes the file of a new segment, with its head. On error nothing stays.
pub(super) fn create(path: &Path, first: u64, guest_event: u64) -> Result<File, LedgerError> {
    let mut file = OpenOptions::new()
        .append(true)
        .read(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(LedgerError::io("make the segment", path))?;
    if let Err(source) = file.write_all(&segment_head(first, guest_event)) {
        // The first error is the one to tell; what could not be removed is removed by the next resume.
        std::fs::remove_file(path).unwrap_or(());
        return Err(LedgerError::io("write the segment", path)(source));
    }
    Ok(file)
}

pub(super) fn segment_head(first: u64, guest_event: u64) -> [u8; SEGMENT_HEAD_BYTES as usize] {
    let mut head = [0; SEGMENT_HEAD_BYTES as usize];
    head[..8].copy_from_slice(MAGIC);
    head[8..16].copy_from_slice(&first.to_le_bytes());
    head[16..24].copy_from_slice(&guest_event.to_le_bytes());
    let crc = crc32fast::hash(&head[..24]);
    head[24..28].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The highest guest event before this segment; `None` when its head is torn or damaged.
pub(super) fn guest_event_before(file: &File, first: u64) -> io::Result<Option<u64>> {
    let mut head = [0; SEGMENT_HEAD_BYTES as usize];
    if read_up_to(file, &mut head, 0)? < head.len() {
        return Ok(None);
    }
    let is_whole =
        head[..8] == *MAGIC && u32_at(&head, 24) == crc32fast::hash(&head[..24]) && u64_at(&head, 8) == first;
    Ok(is_whole.then(|| u64_at(&head, 16)))
}

/// The head of the entry at `offset`, if one can be read there. Its data are not checked.
pub(super) fn peek(file: &File, offset: u64) -> io::Result<Option<Head>> {
    let mut head = [0; HEAD_BYTES];
    if read_up_to(file, &mut head, offset)? < head.len() {
        return Ok(None);
    }
    Ok(Head::parse(&head).ok())
}

fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The next thing that a [`Scanner`] found.
#[derive(Debug)]
pub(super) enum Step {
    Entry(Entry),
    /// The file ends here, between two entries.
    End,
    /// Here is no whole entry: the file ends within it, or it is not what was written.
    Bad(String),
}

/// Reads one segment from front to back, one entry at a time.
#[derive(Debug)]
pub(super) struct Scanner {
    file: File,
    path: PathBuf,
    /// Number of the segment's first entry.
    pub(super) first: u64,
    /// Where the next entry begins.
    pub(super) offset: u64,
    /// Its number.
    pub(super) expected: u64,
    /// Bytes of the file from `offset` on.
    buffer: BytesMut,
    read_bytes: usize,
}

impl Scanner {
    pub(super) fn open(path: PathBuf, first: u64) -> Result<Self, LedgerError> {
        let file = File::open(&path).map_err(LedgerError::io("open the segment", &path))?;
        Ok(Self::new(file, path, first))
    }

    pub(super) fn new(file: File, path: PathBuf, first: u64) -> Self {
        let (offset, buffer) = (SEGMENT_HEAD_BYTES, BytesMut::new());
        Self { file, path, first, offset, expected: first, buffer, read_bytes: MIN_READ_BYTES }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Forgets what was read ahead, so that the file is looked at again.
    pub(super) fn refresh(&mut self) {
        self.buffer.clear();
    }

    pub(super) fn next(&mut self) -> Result<Step, LedgerError> {
        if !self.fill(HEAD_BYTES)? {
            return Ok(match self.buffer.len() {
                0 => Step::End,
                n => Step::Bad(format!("the file ends {n} bytes into an entry")),
            });
        }
        let head = match self.buffer.first_chunk().map(Head::parse) {
            Some(Ok(head)) => head,
            Some(Err(reason)) => return Ok(Step::Bad(reason)),
            None => return Ok(Step::End),
        };
        if head.number != self.expected {
            return Ok(Step::Bad(format!("found entry {} instead of entry {}", head.number, self.expected)));
        }
        if !self.fill(head.size())? {
            let n = self.buffer.len();
            return Ok(Step::Bad(format!("the file ends {n} bytes into an entry of {}", head.size())));
        }
        if !head.fits(&self.buffer[..head.size()]) {
            return Ok(Step::Bad(format!("the checksum of entry {} is wrong", head.number)));
        }
        Ok(Step::Entry(self.take(head)))
    }

    fn take(&mut self, head: Head) -> Entry {
        let record: Bytes = self.buffer.split_to(head.size()).freeze();
        self.offset += record.len() as u64;
        self.expected += 1;
        head.with_data(record.slice(HEAD_BYTES..))
    }

    /// Reads until the buffer holds `wanted` bytes; false when the file ends before.
    fn fill(&mut self, wanted: usize) -> Result<bool, LedgerError> {
        while self.buffer.len() < wanted {
            let held = self.buffer.len();
            let n_asked = self.read_bytes.max(wanted - held);
            self.buffer.resize(held + n_asked, 0);
            let n_read = read_up_to(&self.file, &mut self.buffer[held..], self.offset + held as u64);
            let n_read = match n_read {
                Ok(n_read) => n_read,
                Err(source) => {
                    self.buffer.truncate(held);
                    return Err(LedgerError::io("read the segment", &self.path)(source));
                }
            };
            self.buffer.truncate(held + n_read);
            if n_read < n_asked {
                self.read_bytes = MIN_READ_BYTES;
                break;
            }
            self.read_bytes = (self.read_bytes * 2).min(MAX_READ_BYTES);
        }
        Ok(self.buffer.len() >= wanted)
    }

    /// Stands where it stood before.
    pub(super) fn stand_at(&mut self, offset: u64, expected: u64) {
        self.refresh();
        (self.offset, self.expected) = (offset, expected);
    }

    /// Whether a whole entry comes behind a bad place; a torn tail has none.
    pub(super) fn has_entry_behind_damage(&mut self) -> Result<bool, LedgerError> {
        let (offset, expected) = (self.offset, self.expected);
        let is_found = self.skip_damage()?;
        self.stand_at(offset, expected);
        Ok(is_found)
    }

    /// Looks for the next whole entry behind a bad place and stands before it. False when there is none; then the
    /// scanner stays where it was.
    pub(super) fn skip_damage(&mut self) -> Result<bool, LedgerError> {
        let (offset, expected) = (self.offset, self.expected);
        let len = self.file.metadata().map_err(LedgerError::io("measure the segment", &self.path))?.len();
        // As many entries as could lie in between, if all of them were empty.
        let highest = expected.saturating_add(len.saturating_sub(offset) / HEAD_BYTES as u64);
        let mut budget = MAX_SEARCH_BYTES;
        self.refresh();
        while self.fill(HEAD_BYTES + 1)? {
            bytes::Buf::advance(&mut self.buffer, 1);
            self.offset += 1;
            let Some(Ok(head)) = self.buffer.first_chunk().map(Head::parse) else { continue };
            if head.number <= expected || head.number > highest || self.offset + head.size() as u64 > len {
                continue;
            }
            if head.size() > budget {
                break;
            }
            budget -= head.size();
            if self.fill(head.size())? && head.fits(&self.buffer[..head.size()]) {
                self.expected = head.number;
                return Ok(true);
            }
        }
        self.stand_at(offset, expected);
        Ok(false)
    }
}
