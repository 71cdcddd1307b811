//! The records that last: of sandboxes, execs, keys, secrets, events and calls in SQLite, copies of some of them beside
//! the files that they tell of, and the exec ledger in plain files.
//!
//! [`Store`] is a façade over one blocking thread that owns the database. [`Ledger`] has no thread: its writes go to
//! the page cache, which outlives the daemon.
#![forbid(unsafe_code)]

mod calls;
mod database;
mod desk;
mod error;
mod events;
mod execs;
mod home;
mod keys;
mod ledger;
mod packages;
mod record;
mod row;
mod sandboxes;
mod secrets;
mod shares;
mod snapshots;
mod ssh_keys;
mod store;
mod volumes;

pub use calls::{MAX_CALLS, MAX_CALLS_EACH, MAX_UNKNOWN_CALLS};
pub use error::StoreError;
pub use events::MAX_EVENTS;
pub use home::{Described, RecordedDirectory, Survey, find_in_home};
pub use ledger::{
    Entry, EntryKind, Item, Ledger, LedgerError, LedgerLimits, LedgerReader, LedgerWriter, MAX_ENTRY_BYTES,
    Trimmed,
};
pub use packages::MAX_PACKAGE_JOBS;
pub use record::{
    CallQuery, CorruptRow, ExecRecord, KeyRecord, NewCall, NewEvent, OwnSecret, PackageJobRecord,
    SandboxRecord, SandboxRows, SandboxSecrets, SecretRecord, ShareRecord, SnapshotRecord, SnapshotRows,
    VolumeRecord, VolumeRows, VolumeState,
};
pub use store::Store;
