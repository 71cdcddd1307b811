//! SQL for events: numbered, bounded, in order.

use rusqlite::{Row, named_params};
use sandbox::{Event, ExecId, Namespace, SandboxId, SandboxName};

use crate::{
    NewEvent, StoreError,
    database::Database,
    row::{Columns, Reason, time, word},
};

/// Events kept; the oldest make room. Enough for a client that was away for a busy hour.
pub const MAX_EVENTS: u32 = 10_000;

const INSERT: &str = "INSERT INTO events (at, kind, sandbox, name, namespace, exec, detail) \
     VALUES (:at, :kind, :sandbox, :name, :namespace, :exec, :detail)";

/// All of them or none.
pub(crate) fn append(database: &mut Database, events: Vec<NewEvent>) -> Result<Vec<Event>, StoreError> {
    let numbers = write(database, &events).map_err(|source| database.error("writing events", source))?;
    let numbered = |(number, event): (i64, NewEvent)| {
        let NewEvent { at, kind, sandbox, name, namespace, exec, detail } = event;
        let number = u64::try_from(number).unwrap_or(0);
        Event { number, at, kind, sandbox, name, namespace, exec, detail }
    };
    Ok(numbers.into_iter().zip(events).map(numbered).collect())
}

fn write(database: &mut Database, events: &[NewEvent]) -> Result<Vec<i64>, rusqlite::Error> {
    let transaction = database.connection.transaction()?;
    let mut numbers = Vec::with_capacity(events.len());
    let mut insert = transaction.prepare_cached(INSERT)?;
    for event in events {
        insert.execute(named_params! {
            ":at": time(event.at),
            ":kind": word(&event.kind)?,
            ":sandbox": event.sandbox.as_ref().map(SandboxId::as_str),
            ":name": event.name.as_ref().map(SandboxName::as_str),
            ":namespace": event.namespace.as_ref().map(Namespace::as_str),
            ":exec": event.exec.as_ref().map(ExecId::as_str),
            ":detail": event.detail,
        })?;
        numbers.push(transaction.last_insert_rowid());
    }
    drop(insert);
    if let Some(last) = numbers.last() {
        transaction
            .prepare_cached("DELETE FROM events WHERE number <= ?1")?
            .execute([last - i64::from(MAX_EVENTS)])?;
    }
    transaction.commit()?;
    Ok(numbers)
}

/// Events from number `from` on, at most `limit`. A row that cannot be read is left out and logged.
pub(crate) fn read(database: &Database, from: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
    let mut events = Vec::new();
    let mut collect = || {
        let sql = "SELECT * FROM events WHERE number >= ?1 ORDER BY number LIMIT ?2";
        let mut statement = database.connection.prepare_cached(sql)?;
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let mut found = statement.query([from, i64::from(limit.min(MAX_EVENTS))])?;
        while let Some(row) = found.next()? {
            let number: i64 = row.get("number")?;
            match event(row, number) {
                Ok(event) => events.push(event),
                Err(reason) => tracing::warn!(number, reason, "an event cannot be read"),
            }
        }
        Ok(())
    };
    collect().map_err(|source| database.error("reading events", source))?;
    Ok(events)
}

fn event(row: &Row<'_>, number: i64) -> Result<Event, Reason> {
    let columns = Columns(row);
    Ok(Event {
        number: u64::try_from(number).map_err(|error| error.to_string())?,
        at: columns.time("at")?,
        kind: columns.word("kind")?,
        sandbox: columns.maybe_parsed("sandbox")?,
        name: columns.maybe_parsed("name")?,
        namespace: columns.maybe_parsed("namespace")?,
        exec: columns.maybe_parsed("exec")?,
        detail: columns.text("detail")?.to_owned(),
    })
}
