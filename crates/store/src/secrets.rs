//! SQL for secrets. Nothing here puts a value into an error or a log.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, named_params};
use sandbox::{Authority, Namespace, SandboxId, SecretKey, SecretName, SecretValue};

use crate::{
    SandboxSecrets, SecretRecord, StoreError,
    database::Database,
    row::{Columns, Reason, json, time},
};

/// Setting it again keeps when it was made and last used.
const SET: &str = "INSERT INTO secrets VALUES (:namespace, :name, :rules, :value, :created_at, :updated_at, \
     :last_used_at) ON CONFLICT (namespace, name) DO UPDATE SET rules = excluded.rules, value = excluded.value, \
     updated_at = excluded.updated_at";

const SET_OF_SANDBOX: &str =
    "INSERT OR REPLACE INTO sandbox_secrets VALUES (:sandbox, :hosts, :certificate, :key, :own)";

pub(crate) fn set(database: &Database, record: &SecretRecord) -> Result<(), StoreError> {
    let write = || {
        database.connection.prepare_cached(SET)?.execute(named_params! {
            ":namespace": record.namespace.as_str(),
            ":name": record.name.as_str(),
            ":rules": json(&record.rules)?,
            ":value": record.value.expose(),
            ":created_at": time(record.created_at),
            ":updated_at": time(record.updated_at),
            ":last_used_at": record.last_used_at.map(time),
        })
    };
    write().map_err(|source| database.error("writing a secret", source))?;
    database.forget();
    Ok(())
}

/// Returns the secrets of all namespaces, by name. One that cannot be read is left out and logged: it opens nothing.
pub(crate) fn all(database: &Database) -> Result<Vec<SecretRecord>, StoreError> {
    let mut records = Vec::new();
    let mut collect = || {
        let sql = "SELECT *, name AS id FROM secrets ORDER BY namespace, name";
        let mut statement = database.connection.prepare_cached(sql)?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            match read(row) {
                Ok(record) => records.push(record),
                Err(reason) => {
                    tracing::error!(secret = Columns(row).raw_id(), reason, "a secret cannot be read");
                }
            }
        }
        Ok(())
    };
    collect().map_err(|source| database.error("listing secrets", source))?;
    Ok(records)
}

/// Whether there was one.
pub(crate) fn remove(
    database: &Database,
    namespace: &Namespace,
    name: &SecretName,
) -> Result<bool, StoreError> {
    let n_removed = database
        .connection
        .prepare_cached("DELETE FROM secrets WHERE namespace = ?1 AND name = ?2")
        .and_then(|mut statement| statement.execute([namespace.as_str(), name.as_str()]))
        .map_err(|source| database.error("removing a secret", source))?;
    database.forget();
    Ok(n_removed > 0)
}

/// Those that are gone already are fine.
pub(crate) fn touch(
    database: &Database,
    namespace: &Namespace,
    names: &[SecretName],
    at: Timestamp,
) -> Result<(), StoreError> {
    let write = || {
        let sql = "UPDATE secrets SET last_used_at = ?3 WHERE namespace = ?1 AND name = ?2";
        let mut statement = database.connection.prepare_cached(sql)?;
        for name in names {
            statement.execute([namespace.as_str(), name.as_str(), &time(at)])?;
        }
        Ok(())
    };
    write().map_err(|source| database.error("writing a secret", source))
}

/// In place of what the sandbox had. They go with its record.
pub(crate) fn set_of_sandbox(
    database: &Database,
    sandbox: &SandboxId,
    secrets: &SandboxSecrets,
) -> Result<(), StoreError> {
    let write = || {
        database.connection.prepare_cached(SET_OF_SANDBOX)?.execute(named_params! {
            ":sandbox": sandbox.as_str(),
            ":hosts": json(&secrets.hosts)?,
            ":certificate": secrets.authority.certificate,
            ":key": secrets.authority.key.0,
            ":own": json(&secrets.own)?,
        })
    };
    write().map(drop).map_err(|source| database.error("writing the secrets of a sandbox", source))
}

/// Whether a sandbox has an authority, and perhaps secrets of its own.
pub(crate) fn has_of_sandbox(database: &Database, sandbox: &SandboxId) -> Result<bool, StoreError> {
    database
        .connection
        .prepare_cached("SELECT count(*) > 0 FROM sandbox_secrets WHERE sandbox = ?1")
        .and_then(|mut statement| statement.query_row([sandbox.as_str()], |row| row.get(0)))
        .map_err(|source| database.error("reading the secrets of a sandbox", source))
}

pub(crate) fn of_sandbox(
    database: &Database,
    sandbox: &SandboxId,
) -> Result<Option<SandboxSecrets>, StoreError> {
    let found = database
        .connection
        .prepare_cached("SELECT * FROM sandbox_secrets WHERE sandbox = ?1")
        .and_then(|mut statement| {
            statement.query_row([sandbox.as_str()], |row| Ok(read_of_sandbox(row))).optional()
        })
        .map_err(|source| database.error("reading the secrets of a sandbox", source))?;
    found.transpose().map_err(|reason| StoreError::Corrupt {
        what: "the secrets of sandbox",
        id: sandbox.to_string(),
        reason,
    })
}

fn read(row: &Row<'_>) -> Result<SecretRecord, Reason> {
    let columns = Columns(row);
    let value = SecretValue::new(columns.text("value")?.to_owned());
    Ok(SecretRecord {
        namespace: columns.parsed("namespace")?,
        name: columns.parsed("name")?,
        rules: columns.json("rules")?,
        value: value.map_err(|error| format!("value: {error}"))?,
        created_at: columns.time("created_at")?,
        updated_at: columns.time("updated_at")?,
        last_used_at: columns.maybe_time("last_used_at")?,
    })
}

fn read_of_sandbox(row: &Row<'_>) -> Result<SandboxSecrets, Reason> {
    let columns = Columns(row);
    // The reader's own words could quote a value.
    let own = columns.json("own").map_err(|_quotes| "own: it is not what was written".to_owned())?;
    let key = SecretKey(columns.text("key")?.to_owned());
    let authority = Authority { certificate: columns.text("certificate")?.to_owned(), key };
    Ok(SandboxSecrets { authority, hosts: columns.json("hosts")?, own })
}
