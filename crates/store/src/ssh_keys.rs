//! SQL for public keys of SSH.

use rusqlite::{ErrorCode, Row, named_params};
use sandbox::{SshKeyId, SshKeyView};

use crate::{
    StoreError,
    database::Database,
    row::{Columns, Reason, time},
};

const INSERT: &str = "INSERT INTO ssh_keys (id, key, fingerprint, algorithm, comment, created_at) VALUES (:id, :key, \
     :fingerprint, :algorithm, :comment, :created_at)";

pub(crate) fn insert(database: &Database, record: &SshKeyView) -> Result<(), StoreError> {
    let written = database.connection.prepare_cached(INSERT).and_then(|mut statement| {
        statement.execute(named_params! {
            ":id": record.id.as_str(),
            ":key": record.key.as_str(),
            ":fingerprint": record.fingerprint,
            ":algorithm": record.algorithm,
            ":comment": record.comment,
            ":created_at": time(record.created_at),
        })
    });
    match written {
        Ok(_) => Ok(()),
        Err(source) if source.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(StoreError::SshKeyTaken { fingerprint: record.fingerprint.clone() })
        }
        Err(source) => Err(database.error("writing an SSH key", source)),
    }
}

/// Oldest first. A row that cannot be read is left out and logged: it opens nothing.
pub(crate) fn all(database: &Database) -> Result<Vec<SshKeyView>, StoreError> {
    let mut records = Vec::new();
    let mut collect = || {
        let mut statement = database.connection.prepare_cached("SELECT * FROM ssh_keys ORDER BY rowid")?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            match read(row) {
                Ok(record) => records.push(record),
                Err(reason) => {
                    tracing::error!(ssh_key = Columns(row).raw_id(), reason, "an SSH key cannot be read");
                }
            }
        }
        Ok(())
    };
    collect().map_err(|source| database.error("listing SSH keys", source))?;
    Ok(records)
}

/// One that is gone already is fine.
pub(crate) fn remove(database: &Database, id: &SshKeyId) -> Result<(), StoreError> {
    let sql = "DELETE FROM ssh_keys WHERE id = ?1";
    let removed =
        database.connection.prepare_cached(sql).and_then(|mut removal| removal.execute([id.as_str()]));
    removed.map(drop).map_err(|source| database.error("removing an SSH key", source))
}

fn read(row: &Row<'_>) -> Result<SshKeyView, Reason> {
    let columns = Columns(row);
    Ok(SshKeyView {
        id: columns.parsed("id")?,
        key: columns.parsed("key")?,
        fingerprint: columns.parsed("fingerprint")?,
        algorithm: columns.parsed("algorithm")?,
        comment: columns.parsed("comment")?,
        created_at: columns.time("created_at")?,
    })
}
