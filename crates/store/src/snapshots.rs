//! SQL for snapshots.

use rusqlite::{Row, named_params};
use sandbox::{KeyId, SnapshotId, SnapshotName};

use crate::{
    CorruptRow, SnapshotRecord, SnapshotRows, StoreError,
    database::Database,
    row::{Columns, Reason, time},
};

const INSERT: &str = "INSERT INTO snapshots VALUES (:id, :namespace, :name, :digest, :manifest, :held_micros, :owner, \
     :created_at)";

const UPDATE: &str = "UPDATE snapshots SET namespace = :namespace, name = :name, digest = :digest, \
     manifest = :manifest, held_micros = :held_micros, owner = :owner, created_at = :created_at WHERE id = :id";

pub(crate) fn insert(database: &Database, record: &SnapshotRecord) -> Result<(), StoreError> {
    match write(database, INSERT, record) {
        Ok(_) => Ok(()),
        Err(source) => Err(refusal(database, record, source)),
    }
}

/// Both or neither.
pub(crate) fn replace(
    database: &Database,
    before: &SnapshotId,
    record: &SnapshotRecord,
) -> Result<(), StoreError> {
    let both = || {
        let transaction = database.connection.unchecked_transaction()?;
        database
            .connection
            .prepare_cached("UPDATE snapshots SET name = NULL WHERE id = ?1")?
            .execute([before.as_str()])?;
        write(database, INSERT, record)?;
        transaction.commit()
    };
    both().map_err(|source| refusal(database, record, source))
}

pub(crate) fn update(database: &Database, record: &SnapshotRecord) -> Result<(), StoreError> {
    match write(database, UPDATE, record) {
        Ok(0) => Err(StoreError::Missing { what: "snapshot", id: record.id.to_string() }),
        Ok(_) => Ok(()),
        Err(source) => Err(refusal(database, record, source)),
    }
}

fn write(database: &Database, sql: &str, record: &SnapshotRecord) -> Result<usize, rusqlite::Error> {
    database.connection.prepare_cached(sql)?.execute(named_params! {
        ":id": record.id.as_str(),
        ":namespace": record.namespace.as_str(),
        ":name": record.name.as_ref().map(SnapshotName::as_str),
        ":digest": record.digest,
        ":manifest": record.manifest,
        ":held_micros": record.held_micros.map(|micros| i64::try_from(micros).unwrap_or(i64::MAX)),
        ":owner": record.owner.as_ref().map(KeyId::as_str),
        ":created_at": time(record.created_at),
    })
}

fn refusal(database: &Database, record: &SnapshotRecord, source: rusqlite::Error) -> StoreError {
    if source.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) {
        let name = record.name.as_ref().map_or_else(|| record.digest.clone(), ToString::to_string);
        return StoreError::SnapshotTaken { name, namespace: record.namespace.clone() };
    }
    database.error("writing a snapshot", source)
}

/// Whether there was one of that id.
pub(crate) fn remove(database: &Database, id: &SnapshotId) -> Result<bool, StoreError> {
    let removed = database
        .connection
        .prepare_cached("DELETE FROM snapshots WHERE id = ?1")
        .and_then(|mut statement| statement.execute([id.as_str()]));
    removed.map(|n| n > 0).map_err(|source| database.error("removing a snapshot", source))
}

/// Oldest first.
pub(crate) fn all(database: &Database) -> Result<SnapshotRows, StoreError> {
    let mut rows = SnapshotRows::default();
    let mut collect = || {
        let mut statement = database.connection.prepare_cached("SELECT * FROM snapshots ORDER BY rowid")?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            match read(row) {
                Ok(record) => rows.records.push(record),
                Err(corrupt) => rows.corrupt.push(corrupt),
            }
        }
        Ok(())
    };
    collect().map_err(|source| database.error("listing snapshots", source))?;
    Ok(rows)
}

fn read(row: &Row<'_>) -> Result<SnapshotRecord, CorruptRow> {
    let columns = Columns(row);
    read_columns(&columns).map_err(|reason| CorruptRow { id: columns.raw_id(), reason })
}

fn read_columns(columns: &Columns<'_>) -> Result<SnapshotRecord, Reason> {
    Ok(SnapshotRecord {
        id: columns.parsed("id")?,
        namespace: columns.parsed("namespace")?,
        name: columns.maybe_parsed("name")?,
        digest: columns.text("digest")?.to_owned(),
        manifest: columns.text("manifest")?.to_owned(),
        held_micros: columns.number("held_micros")?,
        owner: columns.maybe_parsed("owner")?,
        created_at: columns.time("created_at")?,
    })
}
