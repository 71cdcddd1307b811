//! SQL for keys.

use jiff::Timestamp;
use rusqlite::{ErrorCode, Row, named_params};
use sandbox::{KeyId, KeyLabel, KeyView, Namespace};

use crate::{
    KeyRecord, StoreError,
    database::Database,
    row::{Columns, Reason, json, time},
};

const INSERT: &str = "INSERT INTO keys (id, label, hash, namespace, max_sandboxes, max_memory, read_only, network, \
     created_at, expires_at, revoked_at, last_used_at) VALUES (:id, :label, :hash, :namespace, :max_sandboxes, :max_memory, \
     :read_only, :network, :created_at, :expires_at, :revoked_at, :last_used_at)";

pub(crate) fn insert(database: &Database, record: &KeyRecord) -> Result<(), StoreError> {
    let KeyRecord { key, hash } = record;
    let written = database.connection.prepare_cached(INSERT).and_then(|mut statement| {
        statement.execute(named_params! {
            ":id": key.id.as_str(),
            ":label": key.label.as_ref().map(KeyLabel::as_str),
            ":hash": hash,
            ":namespace": key.namespace.as_ref().map(Namespace::as_str),
            ":max_sandboxes": key.max_sandboxes,
            ":max_memory": key.max_memory.map(|memory| i64::try_from(memory.bytes()).unwrap_or(i64::MAX)),
            ":read_only": key.read_only,
            ":network": key.network.as_ref().map(json).transpose()?,
            ":created_at": time(key.created_at),
            ":expires_at": key.expires_at.map(time),
            ":revoked_at": key.revoked_at.map(time),
            ":last_used_at": key.last_used_at.map(time),
        })
    });
    match (written, &key.label) {
        (Ok(_), _) => Ok(()),
        (Err(source), Some(label)) if source.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(StoreError::LabelTaken { label: label.clone() })
        }
        (Err(source), _) => Err(database.error("writing a key", source)),
    }
}

pub(crate) fn revoke(database: &Database, id: &KeyId, at: Timestamp) -> Result<(), StoreError> {
    set_time(database, "UPDATE keys SET revoked_at = ?2 WHERE id = ?1", id, at)
}

pub(crate) fn touch(database: &Database, id: &KeyId, at: Timestamp) -> Result<(), StoreError> {
    set_time(database, "UPDATE keys SET last_used_at = ?2 WHERE id = ?1", id, at)
}

/// One column at a time: a use that is told late must not undo a revocation.
fn set_time(database: &Database, sql: &str, id: &KeyId, at: Timestamp) -> Result<(), StoreError> {
    let written = database
        .connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.execute([id.as_str(), &time(at)]));
    match written.map_err(|source| database.error("writing a key", source))? {
        0 => Err(StoreError::Missing { what: "key", id: id.to_string() }),
        _ => Ok(()),
    }
}

/// Oldest first. A row that cannot be read is left out and logged: it opens nothing.
pub(crate) fn all(database: &Database) -> Result<Vec<KeyRecord>, StoreError> {
    let mut records = Vec::new();
    let mut collect = || {
        let mut statement = database.connection.prepare_cached("SELECT * FROM keys ORDER BY rowid")?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            match read(row) {
                Ok(record) => records.push(record),
                Err(reason) => {
                    tracing::error!(
                        key = Columns(row).raw_id(),
                        reason,
                        "a key cannot be read and opens nothing"
                    );
                }
            }
        }
        Ok(())
    };
    collect().map_err(|source| database.error("listing keys", source))?;
    Ok(records)
}

/// Ids that are gone already are fine.
pub(crate) fn remove(database: &mut Database, ids: &[KeyId]) -> Result<(), StoreError> {
    let transaction = database.connection.transaction();
    let removed = transaction.and_then(|transaction| {
        let mut statement = transaction.prepare_cached("DELETE FROM keys WHERE id = ?1")?;
        for id in ids {
            statement.execute([id.as_str()])?;
        }
        drop(statement);
        transaction.commit()
    });
    removed.map_err(|source| database.error("removing keys", source))
}

fn read(row: &Row<'_>) -> Result<KeyRecord, Reason> {
    let columns = Columns(row);
    let key = KeyView {
        id: columns.parsed("id")?,
        label: columns.maybe_parsed("label")?,
        namespace: columns.maybe_parsed("namespace")?,
        created_at: columns.time("created_at")?,
        expires_at: columns.maybe_time("expires_at")?,
        revoked_at: columns.maybe_time("revoked_at")?,
        last_used_at: columns.maybe_time("last_used_at")?,
        max_sandboxes: columns.number("max_sandboxes")?,
        max_memory: columns.number("max_memory")?.map(sandbox::ByteSize),
        read_only: columns.number::<i64>("read_only")? != Some(0),
        network: columns.maybe_json("network")?,
    };
    let hash = row.get("hash").map_err(|error| format!("hash: {error}"))?;
    Ok(KeyRecord { key, hash })
}
