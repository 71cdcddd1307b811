//! Stand-in for the types of the `store` branch until it is merged; not a line of this stays.
#![forbid(unsafe_code)]
use bytes::Bytes;

#[derive(Debug, Clone)]
pub struct Store;

#[derive(Debug, Clone)]
pub struct LedgerLimits {
    pub per_sandbox_bytes: u64,
    pub segment_bytes: u64,
}
impl Default for LedgerLimits {
    fn default() -> Self {
        Self { per_sandbox_bytes: 256 << 20, segment_bytes: 8 << 20 }
    }
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    Started,
    Stdin,
    Stdout,
    Stderr,
    Exited,
    Closed,
}
#[derive(Debug, Clone)]
pub struct Entry {
    pub number: u64,
    pub at_ms: i64,
    pub kind: EntryKind,
    pub guest_event: u64,
    pub data: Bytes,
}
#[derive(Debug, Clone)]
pub enum Item {
    Entry(Entry),
    Trimmed { from: u64, through: u64 },
}
