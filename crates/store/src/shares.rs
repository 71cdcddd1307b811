//! SQL for shares.

use rusqlite::{Row, named_params};
use sandbox::ShareId;

use crate::{
    ShareRecord, StoreError,
    database::Database,
    row::{Columns, Reason, time},
};

const INSERT: &str = "INSERT INTO shares (id, made_by, key, sandbox, shown_key, created_at, expires_at) VALUES (:id, \
     :made_by, :key, :sandbox, :shown_key, :created_at, :expires_at)";

pub(crate) fn insert(database: &Database, record: &ShareRecord) -> Result<(), StoreError> {
    let written = database.connection.prepare_cached(INSERT).and_then(|mut statement| {
        statement.execute(named_params! {
            ":id": record.id.as_str(),
            ":made_by": record.made_by,
            ":key": record.key.as_ref().map(|id| id.as_str()),
            ":sandbox": record.sandbox.as_ref().map(|id| id.as_str()),
            ":shown_key": record.shown_key.as_ref().map(|id| id.as_str()),
            ":created_at": time(record.created_at),
            ":expires_at": time(record.expires_at),
        })
    });
    written.map(drop).map_err(|source| database.error("writing a share", source))
}

/// Oldest first. A row that cannot be read is left out and logged: it shows nothing.
pub(crate) fn all(database: &Database) -> Result<Vec<ShareRecord>, StoreError> {
    let mut records = Vec::new();
    let mut collect = || {
        let mut statement = database.connection.prepare_cached("SELECT * FROM shares ORDER BY rowid")?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            match read(row) {
                Ok(record) => records.push(record),
                Err(reason) => {
                    tracing::error!(share = Columns(row).raw_id(), reason, "a share cannot be read");
                }
            }
        }
        Ok(())
    };
    collect().map_err(|source| database.error("listing shares", source))?;
    Ok(records)
}

/// Those that are gone already are fine.
pub(crate) fn remove(database: &Database, ids: &[ShareId]) -> Result<(), StoreError> {
    let remove = || {
        let mut removal = database.connection.prepare_cached("DELETE FROM shares WHERE id = ?1")?;
        ids.iter().try_for_each(|id| removal.execute([id.as_str()]).map(drop))
    };
    remove().map_err(|source| database.error("removing shares", source))
}

fn read(row: &Row<'_>) -> Result<ShareRecord, Reason> {
    let columns = Columns(row);
    Ok(ShareRecord {
        id: columns.parsed("id")?,
        made_by: columns.parsed("made_by")?,
        key: columns.maybe_parsed("key")?,
        sandbox: columns.maybe_parsed("sandbox")?,
        shown_key: columns.maybe_parsed("shown_key")?,
        created_at: columns.time("created_at")?,
        expires_at: columns.time("expires_at")?,
    })
}
