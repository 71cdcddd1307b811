//! Failures of the ledger, sorted by what the caller can do.

use std::{
    io,
    path::{Path, PathBuf},
};

use sandbox::ExecId;

use super::entry::MAX_ENTRY_BYTES;

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Nothing of the entry stays behind; the same append works again once there is space.
    #[error("no space left for the ledger {}", .path.display())]
    NoSpace { path: PathBuf },
    #[error("an entry of {len} bytes; at most {MAX_ENTRY_BYTES} fit")]
    TooLong { len: usize },
    #[error("the ledger of exec {exec} has a writer already")]
    Busy { exec: ExecId },
    /// Told once for each damaged place; the reader goes on behind it when asked again.
    #[error("the ledger of exec {exec} is damaged in {} at byte {offset}: {reason}", .segment.display())]
    Damaged { exec: ExecId, segment: PathBuf, offset: u64, reason: String },
    #[error("could not {what} {}", .path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl LedgerError {
    /// For `map_err`.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { path },
            _ => Self::Io { what, path, source },
        }
    }
}
