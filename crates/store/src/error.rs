//! Failures of the database, sorted by what the caller can do.

use std::{io, path::PathBuf};

use rusqlite::{ErrorCode, ffi};
use sandbox::{ExecId, KeyLabel, Namespace, Next, SandboxId, SandboxName, Subject, Thing, VolumeName};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the name {name} is taken in the namespace {namespace}")]
    NameTaken { name: SandboxName, namespace: Namespace },
    /// A sandbox was made for this request before; answer with that one.
    #[error("the request was answered before with sandbox {id}")]
    RequestKnown { id: SandboxId },
    /// An exec was made for this request before; answer with that one.
    #[error("the request was answered before with exec {id}")]
    RequestKnownExec { id: ExecId },
    #[error("the label {label} is taken by another key")]
    LabelTaken { label: KeyLabel },
    #[error("the SSH key {fingerprint} is bound already")]
    SshKeyTaken { fingerprint: String },
    #[error("namespace {namespace} already has a volume {name}")]
    VolumeTaken { name: VolumeName, namespace: Namespace },
    #[error("namespace {namespace} already has a snapshot {name}")]
    SnapshotTaken { name: String, namespace: Namespace },
    #[error("there is no record of {what} {id}")]
    Missing { what: &'static str, id: String },
    /// One row cannot be read; the others can.
    #[error("the record of {what} {id:?} cannot be read: {reason}")]
    Corrupt { what: &'static str, id: String, reason: String },
    /// The file as a whole cannot be read. It is left as it is.
    #[error("the database {} cannot be used: {reason}", .path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("no space left for the database {}", .path.display())]
    NoSpace { path: PathBuf },
    #[error("the database {} is locked by another process", .path.display())]
    Locked { path: PathBuf },
    #[error("the database {} has version {found}; this program knows versions up to {known}", .path.display())]
    TooNew { path: PathBuf, found: i64, known: i64 },
    #[error("could not {what} {}", .path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the database {} refused: {what}", .path.display())]
    Sql {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// The store was closed before or while this was asked.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Returns the next step, where there is something to do.
    pub fn next(&self) -> Option<Next> {
        let next = match self {
            Self::NameTaken { name, .. } => Next::FreeName(Subject::new(Thing::Sandbox, name.as_str())),
            Self::VolumeTaken { name, .. } => Next::FreeName(Subject::new(Thing::Volume, name.as_str())),
            Self::LabelTaken { label } => Next::FreeName(Subject::new(Thing::Key, label.as_str())),
            Self::SshKeyTaken { .. } => Next::List(Thing::SshKey),
            Self::SnapshotTaken { name, .. } => Next::FreeName(Subject::new(Thing::Snapshot, name)),
            Self::Corrupt { what: "sandbox", id, .. } => Next::Replace(id.clone()),
            Self::Unreadable { .. } => Next::Recover,
            Self::NoSpace { path } => {
                let directory = path.parent().unwrap_or(path);
                Next::Advice(format!(
                    "Free some space on the file system of {} and try again.",
                    directory.display()
                ))
            }
            Self::Locked { .. } => {
                Next::Advice("Stop the other program that has the database open.".to_owned())
            }
            Self::TooNew { .. } => {
                Next::Advice("Use the newer warren that wrote it, or another data directory.".to_owned())
            }
            _ => return None,
        };
        Some(next)
    }
}

/// Places an error of SQLite in a kind.
pub(crate) fn from_sql(path: PathBuf, what: &'static str, source: rusqlite::Error) -> StoreError {
    let Some(failure) = source.sqlite_error() else { return StoreError::Sql { what, path, source } };
    match failure.code {
        // Growing the index of the write-ahead log fails with its own code when the disk is full.
        _ if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => StoreError::NoSpace { path },
        ErrorCode::DiskFull => StoreError::NoSpace { path },
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Locked { path },
        ErrorCode::NotADatabase => {
            StoreError::Unreadable { path, reason: "it is not a SQLite file".to_owned() }
        }
        ErrorCode::DatabaseCorrupt => StoreError::Unreadable { path, reason: "it is damaged".to_owned() },
        _ => StoreError::Sql { what, path, source },
    }
}
