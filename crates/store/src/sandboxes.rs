//! SQL for sandboxes.

use rusqlite::{OptionalExtension, Params, Row, named_params, params_from_iter};
use sandbox::{KeyId, Namespace, RequestId, SandboxId, SandboxName};

use crate::{
    CorruptRow, ExecRecord, SandboxRecord, SandboxRows, StoreError,
    database::Database,
    execs,
    row::{Columns, Reason, json, time},
    secrets,
};

const INSERT: &str = "INSERT INTO sandboxes VALUES (:id, :namespace, :name, :request_id, :state, :reason, :spec, \
     :plan, :isolation, :lifetime, :created_at, :started_at, :stopped_at, :expires_at, :last_active_at, \
     :owner, :replaces, :ports, :network_requests, :request_hash)";

const UPDATE: &str = "UPDATE sandboxes SET namespace = :namespace, name = :name, request_id = :request_id, \
     state = :state, reason = :reason, spec = :spec, plan = :plan, isolation = :isolation, lifetime = :lifetime, \
     created_at = :created_at, started_at = :started_at, stopped_at = :stopped_at, expires_at = :expires_at, \
     last_active_at = :last_active_at, owner = :owner, replaces = :replaces, ports = :ports, \
     network_requests = :network_requests, request_hash = :request_hash WHERE id = :id";

/// Other sandboxes with the same name, and those of the same request: its id is its owner's own.
const OF_NAME: &str = "SELECT id FROM sandboxes WHERE namespace = ?1 AND id <> ?2 AND name = ?3";
const OF_REQUEST: &str = "SELECT id FROM sandboxes WHERE namespace = ?1 AND id <> ?2 AND request_id = ?3 \
     AND COALESCE(owner, '') = ?4";

pub(crate) fn insert(database: &Database, record: &SandboxRecord) -> Result<(), StoreError> {
    match write(database, INSERT, record) {
        Ok(_) => Ok(()),
        Err(source) => Err(refusal(database, record, source)),
    }
}

pub(crate) fn insert_with(
    database: &Database,
    record: &SandboxRecord,
    first: &ExecRecord,
) -> Result<(), StoreError> {
    let failed = |source| database.error("writing a sandbox", source);
    // Dropped without a commit, it takes both back.
    let transaction = database.connection.unchecked_transaction().map_err(failed)?;
    insert(database, record)?;
    execs::insert(database, first)?;
    transaction.commit().map_err(failed)
}

pub(crate) fn update(database: &Database, record: &SandboxRecord) -> Result<(), StoreError> {
    match write(database, UPDATE, record) {
        Ok(0) => Err(StoreError::Missing { what: "sandbox", id: record.id.to_string() }),
        Ok(_) => Ok(()),
        Err(source) => Err(refusal(database, record, source)),
    }
}

fn write(database: &Database, sql: &str, record: &SandboxRecord) -> Result<usize, rusqlite::Error> {
    database.connection.prepare_cached(sql)?.execute(named_params! {
        ":id": record.id.as_str(),
        ":namespace": record.namespace.as_str(),
        ":name": record.name.as_str(),
        ":request_id": record.spec.request_id.as_ref().map(RequestId::as_str),
        ":state": record.state.as_str(),
        ":reason": record.reason,
        ":spec": json(&record.spec)?,
        ":plan": json(&record.plan)?,
        ":isolation": record.isolation.as_ref().map(json).transpose()?,
        ":lifetime": json(&record.lifetime)?,
        ":created_at": time(record.created_at),
        ":started_at": record.started_at.map(time),
        ":stopped_at": record.stopped_at.map(time),
        ":expires_at": record.expires_at.map(time),
        ":last_active_at": time(record.last_active_at),
        ":owner": record.owner.as_ref().map(KeyId::as_str),
        ":replaces": record.replaces.as_ref().map(SandboxId::as_str),
        ":ports": (!record.ports.is_empty()).then(|| json(&record.ports)).transpose()?,
        ":network_requests":
            (!record.network_requests.is_empty()).then(|| json(&record.network_requests)).transpose()?,
        ":request_hash": record.request_hash,
    })
}

/// Says which uniqueness was hurt. The request comes first: a request sent twice carries the same name too.
fn refusal(database: &Database, record: &SandboxRecord, source: rusqlite::Error) -> StoreError {
    if source.sqlite_error_code() != Some(rusqlite::ErrorCode::ConstraintViolation) {
        return database.error("writing a sandbox", source);
    }
    let holder = |sql: &str, keys: &[&str]| {
        database.connection.query_row(sql, params_from_iter(keys), |row| row.get::<_, String>(0)).optional()
    };
    let (namespace, own) = (record.namespace.as_str(), record.id.as_str());
    if let Some(request) = &record.spec.request_id
        && let owner = record.owner.as_ref().map_or("", KeyId::as_str)
        && let Ok(Some(id)) = holder(OF_REQUEST, &[namespace, own, request.as_str(), owner])
    {
        return match id.parse() {
            Ok(id) => StoreError::RequestKnown { id },
            Err(reason) => StoreError::Corrupt { what: "sandbox", id, reason: format!("id: {reason}") },
        };
    }
    if let Ok(Some(_id)) = holder(OF_NAME, &[namespace, own, record.name.as_str()]) {
        return StoreError::NameTaken { name: record.name.clone(), namespace: record.namespace.clone() };
    }
    database.error("writing a sandbox", source)
}

pub(crate) fn by_id(database: &Database, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
    one(database, "SELECT * FROM sandboxes WHERE id = ?1", [id.as_str()])
}

pub(crate) fn by_name(
    database: &Database,
    namespace: &Namespace,
    name: &SandboxName,
) -> Result<Option<SandboxRecord>, StoreError> {
    let sql = "SELECT * FROM sandboxes WHERE namespace = ?1 AND name = ?2";
    one(database, sql, [namespace.as_str(), name.as_str()])
}

fn one(database: &Database, sql: &str, keys: impl Params) -> Result<Option<SandboxRecord>, StoreError> {
    let found = database
        .connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(keys, |row| Ok(read(row))).optional())
        .map_err(|source| database.error("reading a sandbox", source))?;
    match found {
        None => Ok(None),
        Some(Ok(record)) => Ok(Some(record)),
        Some(Err(CorruptRow { id, reason })) => Err(StoreError::Corrupt { what: "sandbox", id, reason }),
    }
}

pub(crate) fn all(database: &Database, namespace: Option<&Namespace>) -> Result<SandboxRows, StoreError> {
    let mut rows = SandboxRows::default();
    let mut collect = || {
        let sql = "SELECT * FROM sandboxes WHERE ?1 IS NULL OR namespace = ?1 ORDER BY rowid";
        let mut statement = database.connection.prepare_cached(sql)?;
        let mut found = statement.query([namespace.map(Namespace::as_str)])?;
        while let Some(row) = found.next()? {
            match read(row) {
                Ok(record) => rows.records.push(record),
                Err(corrupt) => rows.corrupt.push(corrupt),
            }
        }
        Ok(())
    };
    collect().map_err(|source| database.error("listing sandboxes", source))?;
    Ok(rows)
}

pub(crate) fn remove(database: &Database, id: &SandboxId) -> Result<(), StoreError> {
    let had_secrets = secrets::has_of_sandbox(database, id)?;
    // The execs and secrets go with it, by the foreign key.
    let n_removed = database
        .connection
        .prepare_cached("DELETE FROM sandboxes WHERE id = ?1")
        .and_then(|mut statement| statement.execute([id.as_str()]))
        .map_err(|source| database.error("removing a sandbox", source))?;
    if n_removed == 0 {
        return Err(StoreError::Missing { what: "sandbox", id: id.to_string() });
    }
    if had_secrets {
        database.forget();
    }
    Ok(())
}

fn read(row: &Row<'_>) -> Result<SandboxRecord, CorruptRow> {
    let columns = Columns(row);
    read_columns(&columns).map_err(|reason| CorruptRow { id: columns.raw_id(), reason })
}

fn read_columns(columns: &Columns<'_>) -> Result<SandboxRecord, Reason> {
    Ok(SandboxRecord {
        id: columns.parsed("id")?,
        name: columns.parsed("name")?,
        namespace: columns.parsed("namespace")?,
        spec: columns.json("spec")?,
        plan: columns.json("plan")?,
        state: columns.parsed("state")?,
        reason: columns.owned("reason")?,
        isolation: columns.maybe_json("isolation")?,
        created_at: columns.time("created_at")?,
        started_at: columns.maybe_time("started_at")?,
        stopped_at: columns.maybe_time("stopped_at")?,
        expires_at: columns.maybe_time("expires_at")?,
        lifetime: columns.json("lifetime")?,
        last_active_at: columns.time("last_active_at")?,
        owner: columns.maybe_parsed("owner")?,
        replaces: columns.maybe_parsed("replaces")?,
        ports: columns.maybe_json("ports")?.unwrap_or_default(),
        network_requests: columns.maybe_json("network_requests")?.unwrap_or_default(),
        request_hash: columns.owned("request_hash")?,
    })
}
