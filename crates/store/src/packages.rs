//! SQL for jobs that install packages.

use rusqlite::{OptionalExtension, Params, Row, ffi, named_params};
use sandbox::{ExecId, PackageJobId, PackageState, RequestId, SandboxId};

use crate::{
    CorruptRow, PackageJobRecord, StoreError,
    database::Database,
    row::{Columns, Reason, json, time, word},
};

/// Jobs of one sandbox that are kept; the oldest that have ended make room.
pub const MAX_PACKAGE_JOBS: u32 = 256;

const INSERT: &str = "INSERT INTO package_jobs VALUES (:id, :sandbox, :request_id, :manager, :packages, :state, :exec, \
     :port, :message, :installed, :created_at, :started_at, :ended_at, :request_hash)";

const UPDATE: &str = "UPDATE package_jobs SET sandbox = :sandbox, request_id = :request_id, manager = :manager, \
     packages = :packages, state = :state, exec = :exec, port = :port, message = :message, installed = :installed, \
     created_at = :created_at, started_at = :started_at, ended_at = :ended_at, request_hash = :request_hash WHERE id = :id";

const TRIM: &str = "DELETE FROM package_jobs WHERE sandbox = ?1 AND state != 'installing' AND rowid NOT IN \
     (SELECT rowid FROM package_jobs WHERE sandbox = ?1 ORDER BY rowid DESC LIMIT ?2)";

pub(crate) fn insert(database: &Database, record: &PackageJobRecord) -> Result<(), StoreError> {
    let written = write(database, INSERT, record).and_then(|_| {
        let mut trim = database.connection.prepare_cached(TRIM)?;
        trim.execute((record.sandbox.as_str(), MAX_PACKAGE_JOBS))
    });
    match written {
        Ok(_) => Ok(()),
        Err(source) => Err(refusal(database, record, source)),
    }
}

pub(crate) fn update(database: &Database, record: &PackageJobRecord) -> Result<(), StoreError> {
    match write(database, UPDATE, record) {
        Ok(0) => Err(StoreError::Missing { what: "package job", id: record.id.to_string() }),
        Ok(_) => Ok(()),
        Err(source) => Err(refusal(database, record, source)),
    }
}

fn write(database: &Database, sql: &str, record: &PackageJobRecord) -> Result<usize, rusqlite::Error> {
    database.connection.prepare_cached(sql)?.execute(named_params! {
        ":id": record.id.as_str(),
        ":sandbox": record.sandbox.as_str(),
        ":request_id": record.request_id.as_ref().map(RequestId::as_str),
        ":manager": record.manager.as_str(),
        ":packages": json(&record.packages)?,
        ":state": word(&record.state)?,
        ":exec": record.exec.as_ref().map(ExecId::as_str),
        ":port": record.port,
        ":message": record.message,
        ":installed": json(&record.installed)?,
        ":created_at": time(record.created_at),
        ":started_at": record.started_at.map(time),
        ":ended_at": record.ended_at.map(time),
        ":request_hash": record.request_hash,
    })
}

fn refusal(database: &Database, record: &PackageJobRecord, source: rusqlite::Error) -> StoreError {
    match source.sqlite_error().map(|failure| failure.extended_code) {
        Some(ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => {
            StoreError::Missing { what: "sandbox", id: record.sandbox.to_string() }
        }
        _ => database.error("writing a package job", source),
    }
}

pub(crate) fn by_id(database: &Database, id: &PackageJobId) -> Result<Option<PackageJobRecord>, StoreError> {
    one(database, "SELECT * FROM package_jobs WHERE id = ?1", [id.as_str()])
}

pub(crate) fn by_request(
    database: &Database,
    sandbox: &SandboxId,
    request: &RequestId,
) -> Result<Option<PackageJobRecord>, StoreError> {
    let sql = "SELECT * FROM package_jobs WHERE sandbox = ?1 AND request_id = ?2";
    one(database, sql, [sandbox.as_str(), request.as_str()])
}

fn one(database: &Database, sql: &str, keys: impl Params) -> Result<Option<PackageJobRecord>, StoreError> {
    let found = database
        .connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(keys, |row| Ok(read(row))).optional())
        .map_err(|source| database.error("reading a package job", source))?;
    match found {
        None => Ok(None),
        Some(Ok(record)) => Ok(Some(record)),
        Some(Err(CorruptRow { id, reason })) => Err(StoreError::Corrupt { what: "package job", id, reason }),
    }
}

/// Oldest first. A row that cannot be read is left out and logged.
pub(crate) fn of_sandbox(
    database: &Database,
    sandbox: &SandboxId,
) -> Result<Vec<PackageJobRecord>, StoreError> {
    let sql = "SELECT * FROM package_jobs WHERE sandbox = ?1 ORDER BY rowid";
    many(database, sql, [sandbox.as_str()])
}

/// Returns the jobs that no daemon has seen the end of.
pub(crate) fn unfinished(database: &Database) -> Result<Vec<PackageJobRecord>, StoreError> {
    let installing =
        word(&PackageState::Installing).map_err(|source| database.error("listing package jobs", source))?;
    many(database, "SELECT * FROM package_jobs WHERE state = ?1 ORDER BY rowid", [installing])
}

fn many(database: &Database, sql: &str, keys: impl Params) -> Result<Vec<PackageJobRecord>, StoreError> {
    let mut records = Vec::new();
    let collect = || {
        let mut statement = database.connection.prepare_cached(sql)?;
        let mut found = statement.query(keys)?;
        while let Some(row) = found.next()? {
            match read(row) {
                Ok(record) => records.push(record),
                Err(CorruptRow { id, reason }) => {
                    tracing::warn!(job = id, reason, "the record of a package job cannot be read");
                }
            }
        }
        Ok(())
    };
    collect().map_err(|source| database.error("listing package jobs", source))?;
    Ok(records)
}

fn read(row: &Row<'_>) -> Result<PackageJobRecord, CorruptRow> {
    let columns = Columns(row);
    read_columns(&columns).map_err(|reason| CorruptRow { id: columns.raw_id(), reason })
}

fn read_columns(columns: &Columns<'_>) -> Result<PackageJobRecord, Reason> {
    Ok(PackageJobRecord {
        id: columns.parsed("id")?,
        sandbox: columns.parsed("sandbox")?,
        request_id: columns.maybe_parsed("request_id")?,
        manager: columns.parsed("manager")?,
        packages: columns.json("packages")?,
        state: columns.word("state")?,
        exec: columns.maybe_parsed("exec")?,
        port: columns.number("port")?,
        message: columns.owned("message")?,
        installed: columns.json("installed")?,
        created_at: columns.time("created_at")?,
        started_at: columns.maybe_time("started_at")?,
        ended_at: columns.maybe_time("ended_at")?,
        request_hash: columns.owned("request_hash")?,
    })
}
