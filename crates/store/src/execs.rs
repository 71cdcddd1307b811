//! SQL for execs.

use rusqlite::{OptionalExtension, Params, Row, ffi, named_params, params, params_from_iter};
use sandbox::{ExecId, ExecState, RequestId, SandboxId};

use crate::{
    CorruptRow, ExecRecord, StoreError,
    database::Database,
    row::{Columns, Reason, json, time, word},
};

const INSERT: &str = "INSERT INTO execs VALUES (:id, :sandbox, :request_id, :state, :spec, :outcome, :pid, \
     :created_at, :started_at, :ended_at, :last_entry, :n_lost, :asked_by, :request_hash)";

const UPDATE: &str = "UPDATE execs SET sandbox = :sandbox, request_id = :request_id, state = :state, spec = :spec, \
     outcome = :outcome, pid = :pid, created_at = :created_at, started_at = :started_at, ended_at = :ended_at, \
     last_entry = :last_entry, n_lost = :n_lost, asked_by = :asked_by, request_hash = :request_hash WHERE id = :id";

pub(crate) fn insert(database: &Database, record: &ExecRecord) -> Result<(), StoreError> {
    match write(database, INSERT, record) {
        Ok(_) => Ok(()),
        Err(source) => Err(refusal(database, record, source)),
    }
}

pub(crate) fn update(database: &Database, record: &ExecRecord) -> Result<(), StoreError> {
    match write(database, UPDATE, record) {
        Ok(0) => Err(StoreError::Missing { what: "exec", id: record.id.to_string() }),
        Ok(_) => Ok(()),
        Err(source) => Err(refusal(database, record, source)),
    }
}

fn write(database: &Database, sql: &str, record: &ExecRecord) -> Result<usize, rusqlite::Error> {
    database.connection.prepare_cached(sql)?.execute(named_params! {
        ":id": record.id.as_str(),
        ":sandbox": record.sandbox.as_str(),
        ":request_id": record.spec.request_id.as_ref().map(RequestId::as_str),
        ":state": word(&record.state)?,
        ":spec": json(&record.spec)?,
        ":outcome": record.outcome.as_ref().map(json).transpose()?,
        ":pid": record.pid,
        ":created_at": time(record.created_at),
        ":started_at": record.started_at.map(time),
        ":ended_at": record.ended_at.map(time),
        ":last_entry": record.last_entry.map(|number| i64::try_from(number).unwrap_or(i64::MAX)),
        ":n_lost": i64::try_from(record.n_lost).unwrap_or(i64::MAX),
        ":asked_by": record.asked_by,
        ":request_hash": record.request_hash,
    })
}

fn refusal(database: &Database, record: &ExecRecord, source: rusqlite::Error) -> StoreError {
    let code = source.sqlite_error().map(|failure| failure.extended_code);
    if code == Some(ffi::SQLITE_CONSTRAINT_FOREIGNKEY) {
        return StoreError::Missing { what: "sandbox", id: record.sandbox.to_string() };
    }
    if code == Some(ffi::SQLITE_CONSTRAINT_UNIQUE)
        && let Some(request) = &record.spec.request_id
    {
        let sql = "SELECT id FROM execs WHERE sandbox = ?1 AND request_id = ?2";
        let keys = [record.sandbox.as_str(), request.as_str()];
        let holder = database.connection.query_row(sql, keys, |row| row.get::<_, String>(0));
        if let Ok(id) = holder {
            return match id.parse() {
                Ok(id) => StoreError::RequestKnownExec { id },
                Err(reason) => StoreError::Corrupt { what: "exec", id, reason: format!("id: {reason}") },
            };
        }
    }
    database.error("writing an exec", source)
}

pub(crate) fn by_id(database: &Database, id: &ExecId) -> Result<Option<ExecRecord>, StoreError> {
    one(database, "SELECT * FROM execs WHERE id = ?1", [id.as_str()])
}

pub(crate) fn by_request(
    database: &Database,
    sandbox: &SandboxId,
    request: &RequestId,
) -> Result<Option<ExecRecord>, StoreError> {
    let sql = "SELECT * FROM execs WHERE sandbox = ?1 AND request_id = ?2";
    one(database, sql, [sandbox.as_str(), request.as_str()])
}

fn one(database: &Database, sql: &str, keys: impl Params) -> Result<Option<ExecRecord>, StoreError> {
    let found = database
        .connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(keys, |row| Ok(read(row))).optional())
        .map_err(|source| database.error("reading an exec", source))?;
    match found {
        None => Ok(None),
        Some(Ok(record)) => Ok(Some(record)),
        Some(Err(CorruptRow { id, reason })) => Err(StoreError::Corrupt { what: "exec", id, reason }),
    }
}

/// Oldest first. A row that cannot be read is left out and logged; asking for it by id says what is wrong with it.
pub(crate) fn of_sandbox(database: &Database, sandbox: &SandboxId) -> Result<Vec<ExecRecord>, StoreError> {
    let sql = "SELECT * FROM execs WHERE sandbox = ?1 ORDER BY rowid";
    several(database, sandbox, || Ok((sql, vec![sandbox.to_string()])))
}

/// As [`of_sandbox`], those that have not ended only.
pub(crate) fn unfinished(database: &Database, sandbox: &SandboxId) -> Result<Vec<ExecRecord>, StoreError> {
    let sql = "SELECT * FROM execs WHERE sandbox = ?1 AND state <> ?2 ORDER BY rowid";
    several(database, sandbox, || Ok((sql, vec![sandbox.to_string(), word(&ExecState::Done)?])))
}

fn several(
    database: &Database,
    sandbox: &SandboxId,
    query: impl FnOnce() -> Result<(&'static str, Vec<String>), rusqlite::Error>,
) -> Result<Vec<ExecRecord>, StoreError> {
    let mut records = Vec::new();
    let collect = || {
        let (sql, keys) = query()?;
        let mut statement = database.connection.prepare_cached(sql)?;
        let mut found = statement.query(params_from_iter(keys))?;
        while let Some(row) = found.next()? {
            match read(row) {
                Ok(record) => records.push(record),
                Err(CorruptRow { id, reason }) => {
                    tracing::warn!(%sandbox, exec = id, reason, "an exec's record cannot be read");
                }
            }
        }
        Ok(())
    };
    collect().map_err(|source| database.error("listing execs", source))?;
    Ok(records)
}

/// Returns the ended execs among all but the newest `n_kept`, oldest first. Only their ids are read: there may be many.
pub(crate) fn surplus(
    database: &Database,
    sandbox: &SandboxId,
    n_kept: u32,
) -> Result<Vec<ExecId>, StoreError> {
    let collect = || {
        let sql = "SELECT id FROM (SELECT rowid AS place, id, state FROM execs WHERE sandbox = ?1 \
             ORDER BY rowid DESC LIMIT -1 OFFSET ?2) WHERE state = ?3 ORDER BY place";
        let mut statement = database.connection.prepare_cached(sql)?;
        let keys = params![sandbox.as_str(), n_kept, word(&ExecState::Done)?];
        let ids = statement.query_map(keys, |row| row.get::<_, String>(0))?;
        ids.collect::<Result<Vec<_>, _>>()
    };
    let ids = collect().map_err(|source| database.error("listing old execs", source))?;
    // One that is no id is left to whoever removes the sandbox.
    Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
}

/// Ids that are gone already are fine: the caller wants them gone.
pub(crate) fn remove(database: &mut Database, ids: &[ExecId]) -> Result<(), StoreError> {
    let transaction = database.connection.transaction();
    let removed = transaction.and_then(|transaction| {
        let mut statement = transaction.prepare_cached("DELETE FROM execs WHERE id = ?1")?;
        for id in ids {
            statement.execute([id.as_str()])?;
        }
        drop(statement);
        transaction.commit()
    });
    removed.map_err(|source| database.error("removing execs", source))
}

fn read(row: &Row<'_>) -> Result<ExecRecord, CorruptRow> {
    let columns = Columns(row);
    read_columns(&columns).map_err(|reason| CorruptRow { id: columns.raw_id(), reason })
}

fn read_columns(columns: &Columns<'_>) -> Result<ExecRecord, Reason> {
    Ok(ExecRecord {
        id: columns.parsed("id")?,
        sandbox: columns.parsed("sandbox")?,
        spec: columns.json("spec")?,
        state: columns.word("state")?,
        outcome: columns.maybe_json("outcome")?,
        pid: columns.number("pid")?,
        created_at: columns.time("created_at")?,
        started_at: columns.maybe_time("started_at")?,
        ended_at: columns.maybe_time("ended_at")?,
        last_entry: columns.number("last_entry")?,
        n_lost: columns.number("n_lost")?.unwrap_or(0),
        asked_by: columns.maybe_parsed("asked_by")?,
        request_hash: columns.owned("request_hash")?,
    })
}
