//! SQL for volumes.

use rusqlite::{ErrorCode, Row, named_params};
use sandbox::{KeyId, VolumeId, VolumeSpec};

use crate::{
    CorruptRow, StoreError, VolumeRecord, VolumeRows,
    database::Database,
    row::{Columns, Reason, json, time, word},
};

const INSERT: &str = "INSERT INTO volumes (id, namespace, name, state, spec, storage, created_at, owner) VALUES (:id, \
     :namespace, :name, :state, :spec, :storage, :created_at, :owner)";

const UPDATE: &str = "UPDATE volumes SET namespace = :namespace, name = :name, state = :state, spec = :spec, \
     storage = :storage, created_at = :created_at, owner = :owner WHERE id = :id";

pub(crate) fn insert(database: &Database, record: &VolumeRecord) -> Result<(), StoreError> {
    match write(database, INSERT, record) {
        Ok(_) => Ok(()),
        Err(source) if source.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            let VolumeSpec { name, namespace, .. } = record.spec.clone();
            Err(StoreError::VolumeTaken { name, namespace })
        }
        Err(source) => Err(database.error("writing a volume", source)),
    }
}

pub(crate) fn update(database: &Database, record: &VolumeRecord) -> Result<(), StoreError> {
    match write(database, UPDATE, record) {
        Ok(0) => Err(StoreError::Missing { what: "volume", id: record.id.to_string() }),
        Ok(_) => Ok(()),
        Err(source) => Err(database.error("writing a volume", source)),
    }
}

fn write(database: &Database, sql: &str, record: &VolumeRecord) -> Result<usize, rusqlite::Error> {
    database.connection.prepare_cached(sql)?.execute(named_params! {
        ":id": record.id.as_str(),
        ":namespace": record.spec.namespace.as_str(),
        ":name": record.spec.name.as_str(),
        ":state": word(&record.state)?,
        ":spec": json(&record.spec)?,
        ":storage": record.storage.as_ref().map(word).transpose()?,
        ":created_at": time(record.created_at),
        ":owner": record.owner.as_ref().map(KeyId::as_str),
    })
}

pub(crate) fn all(database: &Database) -> Result<VolumeRows, StoreError> {
    let mut rows = VolumeRows::default();
    let mut collect = || {
        let mut statement = database.connection.prepare_cached("SELECT * FROM volumes ORDER BY rowid")?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            match read(row) {
                Ok(record) => rows.records.push(record),
                Err(corrupt) => rows.corrupt.push(corrupt),
            }
        }
        Ok(())
    };
    collect().map_err(|source| database.error("listing volumes", source))?;
    Ok(rows)
}

pub(crate) fn remove(database: &Database, id: &VolumeId) -> Result<(), StoreError> {
    let n_removed = database
        .connection
        .prepare_cached("DELETE FROM volumes WHERE id = ?1")
        .and_then(|mut statement| statement.execute([id.as_str()]))
        .map_err(|source| database.error("removing a volume", source))?;
    if n_removed == 0 {
        return Err(StoreError::Missing { what: "volume", id: id.to_string() });
    }
    Ok(())
}

fn read(row: &Row<'_>) -> Result<VolumeRecord, CorruptRow> {
    let columns = Columns(row);
    read_columns(&columns).map_err(|reason| CorruptRow { id: columns.raw_id(), reason })
}

fn read_columns(columns: &Columns<'_>) -> Result<VolumeRecord, Reason> {
    let storage = columns.owned("storage")?.is_some().then(|| columns.word("storage")).transpose()?;
    Ok(VolumeRecord {
        id: columns.parsed("id")?,
        spec: columns.json("spec")?,
        state: columns.word("state")?,
        storage,
        created_at: columns.time("created_at")?,
        owner: columns.maybe_parsed("owner")?,
    })
}
