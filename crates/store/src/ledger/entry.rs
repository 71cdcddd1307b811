//! One entry, in memory and on disk.
//!
//! On disk: `[crc32][len: u32][number: u64][at_ms: i64][guest_event: u64][kind: u8][data: len bytes]`, little-endian.
//! The checksum covers everything after itself, the length too.

use bytes::Bytes;

/// Longest data of one entry: what a reader may be made to hold. Above the longest frame of a guest.
pub const MAX_ENTRY_BYTES: usize = 8 * 1024 * 1024;
pub(super) const HEAD_BYTES: usize = 33;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    Started,
    Stdin,
    Stdout,
    Stderr,
    Exited,
    Closed,
    /// Lines of JSON: what a cell showed besides its output.
    Rich,
}

impl EntryKind {
    const ALL: [Self; 7] =
        [Self::Started, Self::Stdin, Self::Stdout, Self::Stderr, Self::Exited, Self::Closed, Self::Rich];

    /// The byte that stands for it, on disk and elsewhere. Never 0.
    pub fn code(self) -> u8 {
        match self {
            Self::Started => 1,
            Self::Stdin => 2,
            Self::Stdout => 3,
            Self::Stderr => 4,
            Self::Exited => 5,
            Self::Closed => 6,
            Self::Rich => 7,
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Whether an exec whose last entry is this one has ended.
    pub(super) fn is_end(self) -> bool {
        matches!(self, Self::Exited | Self::Closed)
    }
}

/// One thing that an exec did, or that was done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// From 1, without gaps.
    pub number: u64,
    pub at_ms: i64,
    pub kind: EntryKind,
    /// Number of the guest's event that it came from; 0 for `Stdin`.
    pub guest_event: u64,
    /// Bytes of input or output; for `Started` and `Exited` JSON, which the engine reads.
    pub data: Bytes,
}

/// An item that a reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Entry(Entry),
    /// These entries are gone, both ends included: trimmed, or lost to damage that was told before.
    Trimmed {
        from: u64,
        through: u64,
    },
}

/// An entry without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    crc: u32,
    pub(super) len: usize,
    pub(super) number: u64,
    pub(super) at_ms: i64,
    pub(super) guest_event: u64,
    pub(super) kind: EntryKind,
}

impl Head {
    /// Reads a head; says why when it cannot be one. Whether the data belong to it is another question: [`Head::fits`].
    pub(super) fn parse(bytes: &[u8; HEAD_BYTES]) -> Result<Self, String> {
        let len = u32_at(bytes, 4) as usize;
        if len > MAX_ENTRY_BYTES {
            return Err(format!("a length of {len} bytes"));
        }
        let kind = EntryKind::from_code(bytes[32]).ok_or_else(|| format!("unknown kind {}", bytes[32]))?;
        Ok(Self {
            crc: u32_at(bytes, 0),
            len,
            number: u64_at(bytes, 8),
            at_ms: u64_at(bytes, 16).cast_signed(),
            guest_event: u64_at(bytes, 24),
            kind,
        })
    }

    pub(super) fn size(&self) -> usize {
        HEAD_BYTES + self.len
    }

    /// Whether `record`, head and data, is as it was written.
    pub(super) fn fits(&self, record: &[u8]) -> bool {
        record.len() == self.size() && crc32fast::hash(&record[4..]) == self.crc
    }

    pub(super) fn with_data(self, data: Bytes) -> Entry {
        let Self { number, at_ms, kind, guest_event, .. } = self;
        Entry { number, at_ms, kind, guest_event, data }
    }
}

/// The bytes before `data`.
pub(super) fn head(
    number: u64,
    at_ms: i64,
    kind: EntryKind,
    guest_event: u64,
    data: &[u8],
) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    // The caller has checked the length against MAX_ENTRY_BYTES.
    head[4..8].copy_from_slice(&(data.len() as u32).to_le_bytes());
    head[8..16].copy_from_slice(&number.to_le_bytes());
    head[16..24].copy_from_slice(&at_ms.to_le_bytes());
    head[24..32].copy_from_slice(&guest_event.to_le_bytes());
    head[32] = kind.code();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head[4..]);
    hasher.update(data);
    head[..4].copy_from_slice(&hasher.finalize().to_le_bytes());
    head
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}
