//! The copy of the record beside the sandbox's files, from which it is restored if the database is lost.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use sandbox::{Error, ErrorKind, Result, SandboxState};
use store::{Described, SandboxRecord};
use tokio::task::spawn_blocking;

use super::Driver;
use crate::{disk::may_block, error, live::LiveExec, pump::open_ledger, shared::Shared};

/// The state of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manifest {
    Kept,
    /// The record may have changed.
    Due,
    /// It could not be written, which was logged. Retried with the next event.
    Failing,
}

impl Driver {
    /// Updates the copy, after the caller who waited for the change was answered.
    pub(super) fn keep_manifest(&mut self) {
        // A change in progress is written when it is done.
        let is_settled = !matches!(self.record.state, SandboxState::Creating | SandboxState::Stopping);
        if self.manifest == Manifest::Kept || !is_settled || self.work.is_some() {
            return;
        }
        let directory = self.core.config.sandbox_directory(&self.record.id);
        match may_block(|| write(&self.record, &directory)) {
            Ok(()) => self.manifest = Manifest::Kept,
            Err(error) => {
                if self.manifest == Manifest::Due {
                    tracing::warn!(sandbox = %self.record.id, %error, "could not write its manifest");
                }
                self.manifest = Manifest::Failing;
            }
        }
    }
}

/// Writes the first copy, and opens the ledger of the first exec, if there is one; their records are stored, and the
/// directory exists.
pub(super) async fn write_first(
    record: Arc<SandboxRecord>,
    directory: PathBuf,
    shared: Arc<Shared>,
    first: Option<Arc<LiveExec>>,
) -> Result<()> {
    let written = spawn_blocking(move || {
        let written = write(&record, &directory);
        written.map_err(|error| error::from_io("write the manifest of", &directory, error))?;
        first.map_or(Ok(()), |first| open_ledger(&shared, &first))
    });
    written.await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Internal, "could not write the manifest").with_source(error))
    })
}

fn write(record: &SandboxRecord, directory: &Path) -> io::Result<()> {
    // The time of last use changes all the time, and is useless once the record is lost.
    let record = SandboxRecord { last_active_at: record.created_at, ..record.clone() };
    record.write_manifest(directory)
}
