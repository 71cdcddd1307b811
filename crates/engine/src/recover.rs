//! Restores records from the files of a home: after the database was lost or damaged, or replaced by an old copy.
//!
//! A manifest lies beside the files of each sandbox and each volume, written after its record and removed with the
//! files. So a manifest without a record is never a leftover: the record was lost, and is restored.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    str::FromStr,
};

use jiff::Timestamp;
use sandbox::{ExecId, ExecSpec, ExecState, Result, SandboxState};
use store::{
    CorruptRow, Described, ExecRecord, Item, Ledger, LedgerError, LedgerLimits, RecordedDirectory,
    SandboxRecord, Store, StoreError, VolumeRecord,
};

use crate::{Entry, EntryBody, disk::may_block, error, names, snapshots};

/// Between a name that is taken by now and random letters.
const RECOVERED: &str = "-recovered-";
const MAX_NAME_BYTES: usize = 63;
/// Attempts to find a free name.
const MAX_TRIES: usize = 16;
/// The command of an exec whose record was lost; the ledger does not have it.
const UNKNOWN_COMMAND: &str = "(unknown)";

/// Whether existing unreadable records are restored too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CorruptRecords {
    Leave,
    Mend,
}

/// The result of checking a home's records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Names of the sandboxes whose records were restored.
    pub sandboxes: Vec<String>,
    pub volumes: Vec<String>,
    pub n_snapshots: usize,
    pub n_execs: usize,
    /// Directories that have no record and cannot get one. They are left alone.
    pub unknown: Vec<Unknown>,
    /// Whether the database knows everything in the home. If not, an unknown id is not a leftover.
    pub is_complete: bool,
}

/// The directory of a sandbox or a volume, and why no record can be made for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    pub path: PathBuf,
    pub reason: String,
}

impl Recovery {
    fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.volumes.is_empty() && self.n_snapshots == 0
    }

    /// Ids of unknown directories, which must be left alone.
    pub(crate) fn unknown_ids<T: FromStr>(&self) -> Vec<T> {
        let names = self.unknown.iter().filter_map(|unknown| unknown.path.file_name()?.to_str());
        names.filter_map(|name| name.parse().ok()).collect()
    }

    /// Warnings for an operator.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.is_empty() {
            warnings.push(format!(
                "missing records were rebuilt from the files: {} sandboxes, {} volumes, {} snapshots; keys, events, the audit, \
                 package jobs and the commands of execs cannot be rebuilt",
                self.sandboxes.len(),
                self.volumes.len(),
                self.n_snapshots
            ));
        }
        for Unknown { path, reason } in &self.unknown {
            warnings.push(format!("{} has no record and is left alone: {reason}", path.display()));
        }
        if !self.unknown.is_empty() {
            warnings.push("`warren doctor --recover` sets aside directories without a record".to_owned());
        }
        warnings
    }
}

/// Makes records for everything in `home` that has a manifest and no record. Nothing is deleted.
#[crate::boxed]
pub async fn recover(
    home: &Path,
    store: &Store,
    now: Timestamp,
    corrupt: CorruptRecords,
) -> Result<Recovery> {
    let is_of_home = store.is_of_home().await.map_err(error::from_store)?;
    let mut recovery = Recovery::default();
    recover_sandboxes(home, store, now, corrupt, &mut recovery).await?;
    recover_volumes(home, store, corrupt, &mut recovery).await?;
    if is_of_home {
        // An empty directory without a record, left by a daemon that died in the middle of a create.
        recovery.unknown.retain(|unknown| unknown.reason != NO_MANIFEST);
    } else {
        recovery.n_snapshots = snapshots::recover(&home.join("snapshots"), store).await?;
    }
    recovery.is_complete = is_of_home || recovery.unknown.is_empty();
    if recovery.is_complete && !is_of_home {
        store.bind_to_home().await.map_err(error::from_store)?;
    }
    for warning in recovery.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(recovery)
}

const NO_MANIFEST: &str = "it has no manifest";

/// Reads the records in the home that are not `known`. Directories without a readable manifest go into `recovery`.
fn unrecorded<T: Described>(home: &Path, known: &BTreeSet<T::Id>, recovery: &mut Recovery) -> Result<Vec<T>> {
    let found = may_block(|| store::find_in_home::<T>(home))
        .map_err(|error| error::from_io("list", &home.join(T::DIRECTORY), error))?;
    let mut records = Vec::new();
    for found in found.into_iter().filter(|found| !known.contains(&found.id)) {
        match may_block(|| found.read()) {
            Ok(record) => records.push(record),
            Err(error) => recovery.unknown.push(unknown(found, &error)),
        }
    }
    Ok(records)
}

fn unknown<T: Described>(found: RecordedDirectory<T>, error: &io::Error) -> Unknown {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => NO_MANIFEST.to_owned(),
        _ => format!("cannot read its manifest: {error}"),
    };
    Unknown { path: found.directory, reason }
}

/// Ids of records that count as known.
fn known_ids<Id: FromStr + Ord>(
    readable: impl Iterator<Item = Id>,
    rows: &[CorruptRow],
    corrupt: CorruptRecords,
) -> BTreeSet<Id> {
    let left = rows.iter().filter(|_| corrupt == CorruptRecords::Leave);
    readable.chain(left.filter_map(|row| row.id.parse().ok())).collect()
}

async fn recover_sandboxes(
    home: &Path,
    store: &Store,
    now: Timestamp,
    corrupt: CorruptRecords,
    recovery: &mut Recovery,
) -> Result<()> {
    let rows = store.sandboxes(None).await.map_err(error::from_store)?;
    let known = known_ids(rows.records.iter().map(|record| record.id.clone()), &rows.corrupt, corrupt);
    let mut records = unrecorded::<SandboxRecord>(home, &known, recovery)?;
    records.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
    for mut record in records {
        // Its last use is unknown; it must not expire for that at once.
        record.last_active_at = now;
        if record.state == SandboxState::Creating || record.state == SandboxState::Stopping {
            // Its instance decides: a living one is adopted, otherwise it is stopped.
            record.state = SandboxState::Running;
        }
        let is_corrupt = rows.corrupt.iter().any(|row| row.id == record.id.as_str());
        let name = put_sandbox(home, store, record.clone(), is_corrupt).await?;
        tracing::warn!(sandbox = %record.id, name, "a sandbox without a record got one, from its manifest");
        recovery.sandboxes.push(name);
        if !is_corrupt {
            recovery.n_execs += recover_execs(home, store, &record).await;
        }
    }
    Ok(())
}

/// Writes the record, under another name if its own is taken by now. Returns the name.
async fn put_sandbox(
    home: &Path,
    store: &Store,
    mut record: SandboxRecord,
    is_corrupt: bool,
) -> Result<String> {
    let name = record.name.clone();
    for _ in 0..MAX_TRIES {
        let put = match is_corrupt {
            true => store.update_sandbox(record.clone()).await,
            false => store.insert_sandbox(record.clone()).await,
        };
        match put {
            Ok(()) => return Ok(record.name.to_string()),
            // The sandbox with the record is the one that answered the request last.
            Err(StoreError::RequestKnown { .. }) => record.spec.request_id = None,
            Err(StoreError::NameTaken { .. }) if remove_ghost(home, store, &record).await => {}
            Err(StoreError::NameTaken { .. }) => {
                record.name = another_name(name.as_str())?.parse()?;
                record.spec.name = Some(record.name.clone());
            }
            Err(error) => return Err(error::from_store(error)),
        }
    }
    Err(sandbox::Error::new(
        sandbox::ErrorKind::Internal,
        format!("could not find a free name for {}, which was called {name}", record.id),
    ))
}

/// An old copy of a database has records of removed sandboxes; such a record must not keep a name from an existing one.
async fn remove_ghost(home: &Path, store: &Store, wanted: &SandboxRecord) -> bool {
    let holder = store.sandbox_named(wanted.namespace.clone(), wanted.name.clone()).await;
    let Ok(Some(holder)) = holder else { return false };
    let directory = home.join(SandboxRecord::DIRECTORY).join(holder.id.as_str());
    !directory.exists() && store.remove_sandbox(holder.id).await.is_ok()
}

async fn recover_volumes(
    home: &Path,
    store: &Store,
    corrupt: CorruptRecords,
    recovery: &mut Recovery,
) -> Result<()> {
    let rows = store.volumes().await.map_err(error::from_store)?;
    let known = known_ids(rows.records.iter().map(|record| record.id.clone()), &rows.corrupt, corrupt);
    for record in unrecorded::<VolumeRecord>(home, &known, recovery)? {
        let is_corrupt = rows.corrupt.iter().any(|row| row.id == record.id.as_str());
        let id = record.id.clone();
        let name = put_volume(home, store, record, is_corrupt).await?;
        tracing::warn!(volume = %id, name, "a volume without a record got one, from its manifest");
        recovery.volumes.push(name);
    }
    Ok(())
}

async fn put_volume(
    home: &Path,
    store: &Store,
    mut record: VolumeRecord,
    is_corrupt: bool,
) -> Result<String> {
    let name = record.spec.name.clone();
    if is_corrupt {
        store.remove_volume(record.id.clone()).await.map_err(error::from_store)?;
    }
    for _ in 0..MAX_TRIES {
        match store.insert_volume(record.clone()).await {
            Ok(()) => return Ok(record.spec.name.to_string()),
            Err(StoreError::VolumeTaken { .. }) if remove_ghost_volume(home, store, &record).await => {}
            Err(StoreError::VolumeTaken { .. }) => record.spec.name = another_name(name.as_str())?.parse()?,
            Err(error) => return Err(error::from_store(error)),
        }
    }
    Err(sandbox::Error::new(
        sandbox::ErrorKind::Internal,
        format!("could not find a free name for {}, which was called {name}", record.id),
    ))
}

async fn remove_ghost_volume(home: &Path, store: &Store, wanted: &VolumeRecord) -> bool {
    let Ok(rows) = store.volumes().await else { return false };
    let is_holder = |record: &VolumeRecord| {
        record.spec.namespace == wanted.spec.namespace && record.spec.name == wanted.spec.name
    };
    let Some(holder) = rows.records.into_iter().find(is_holder) else { return false };
    let directory = home.join(VolumeRecord::DIRECTORY).join(holder.id.as_str());
    !directory.exists() && store.remove_volume(holder.id).await.is_ok()
}

fn another_name(name: &str) -> Result<String> {
    let chance = u16::from_le_bytes(names::random_bytes()?);
    let end = format!("{RECOVERED}{chance:04x}");
    // Names are ASCII.
    Ok(format!("{}{end}", &name[..name.len().min(MAX_NAME_BYTES - end.len())]))
}

/// Makes records of the execs that a sandbox has ledgers of: when and how they began and ended. Returns their number.
async fn recover_execs(home: &Path, store: &Store, sandbox: &SandboxRecord) -> usize {
    let logs = home.join(SandboxRecord::DIRECTORY).join(sandbox.id.as_str()).join("logs");
    let read = || -> Result<Vec<ExecRecord>, LedgerError> {
        let ledger = Ledger::open(logs, LedgerLimits::default())?;
        let ids = ledger.execs()?.into_iter();
        let mut execs = ids.map(|id| read_exec(&ledger, sandbox, id)).collect::<Result<Vec<_>, _>>()?;
        execs.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        Ok(execs)
    };
    let execs = may_block(read).unwrap_or_else(|error| {
        tracing::error!(sandbox = %sandbox.id, %error, "its execs cannot be found again");
        Vec::new()
    });
    let mut n_found = 0;
    for exec in execs {
        let id = exec.id.clone();
        match store.insert_exec(exec).await {
            Ok(()) => n_found += 1,
            Err(error) => tracing::warn!(exec = %id, %error, "an exec without a record gets none"),
        }
    }
    n_found
}

fn read_exec(ledger: &Ledger, sandbox: &SandboxRecord, id: ExecId) -> Result<ExecRecord, LedgerError> {
    let mut reader = ledger.reader(&id, 1)?;
    let mut record = ExecRecord {
        id,
        sandbox: sandbox.id.clone(),
        // Its spec is unknown. Its guest knows whether it takes input.
        spec: ExecSpec { stdin: true, ..ExecSpec::argv([UNKNOWN_COMMAND]) },
        state: ExecState::Running,
        outcome: None,
        pid: None,
        created_at: sandbox.created_at,
        started_at: None,
        ended_at: None,
        last_entry: None,
        n_lost: 0,
        asked_by: None,
        request_hash: None,
    };
    loop {
        match reader.next() {
            Ok(Some(Item::Entry(entry))) => {
                let entry = Entry::from(entry);
                let at = Timestamp::from_millisecond(entry.at_ms).unwrap_or(sandbox.created_at);
                if record.started_at.is_none() {
                    record.created_at = at;
                    record.started_at = Some(at);
                }
                match entry.body {
                    EntryBody::Started { pid } => record.pid = pid,
                    EntryBody::Exited(exit) => {
                        record.outcome = exit.map(|exit| exit.outcome);
                        record.ended_at = Some(at);
                        record.state = ExecState::Done;
                        record.last_entry = Some(entry.number);
                    }
                    _ => {}
                }
            }
            Ok(Some(Item::Trimmed { .. })) | Err(LedgerError::Damaged { .. }) => {}
            Ok(None) => return Ok(record),
            Err(error) => return Err(error),
        }
    }
}

/// Moves directories without a record to `lost/<stamp>/`, and ties the database to the home. Returns their new paths.
#[crate::boxed]
pub async fn put_aside(
    home: &Path,
    store: &Store,
    recovery: &Recovery,
    stamp: &str,
) -> Result<Option<PathBuf>> {
    let lost = home.join("lost").join(stamp);
    for Unknown { path, .. } in &recovery.unknown {
        let kind = path.parent().and_then(Path::file_name).unwrap_or_default();
        let into = lost.join(kind);
        let moved = may_block(|| {
            std::fs::create_dir_all(&into)?;
            std::fs::rename(path, into.join(path.file_name().unwrap_or_default()))
        });
        moved.map_err(|error| error::from_io("move aside", path, error))?;
    }
    store.bind_to_home().await.map_err(error::from_store)?;
    Ok((!recovery.unknown.is_empty()).then_some(lost))
}
