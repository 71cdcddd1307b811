//! SQL for the audit: numbered, bounded, written in batches.

use rusqlite::{Connection, Row, named_params, params_from_iter, types::Value};
use sandbox::{Call, Frontend, KeyId, Namespace};

use crate::{
    CallQuery, NewCall, StoreError,
    database::Database,
    row::{Columns, Reason, time},
};

/// Calls of known callers that are kept; the oldest make room.
pub const MAX_CALLS: u32 = 100_000;
/// Calls of one caller that are kept, of those: nobody pushes out what the others did, however much it does itself.
pub const MAX_CALLS_EACH: u32 = 20_000;
/// Refused calls of unknown callers that are kept. Counted apart: whoever knocks without a key, however often, must not
/// be able to push out what the others did.
pub const MAX_UNKNOWN_CALLS: u32 = 10_000;
/// Old ones are taken away each time that the numbers pass a multiple of this; so many more than the most may be there.
const TRIM_EVERY: i64 = 1000;

const INSERT: &str = "INSERT INTO calls (at, who, key, frontend, action, sandbox, namespace, error, duration_ms, client) \
     VALUES (:at, :who, :key, :frontend, :action, :sandbox, :namespace, :error, :duration_ms, :client)";

/// All of them or none.
pub(crate) fn append(database: &mut Database, calls: &[NewCall]) -> Result<Vec<u64>, StoreError> {
    write(database, calls).map_err(|source| database.error("writing the audit", source))
}

fn write(database: &mut Database, calls: &[NewCall]) -> Result<Vec<u64>, rusqlite::Error> {
    let transaction = database.connection.transaction()?;
    let mut is_due = false;
    let mut numbers = Vec::with_capacity(calls.len());
    let mut statement = transaction.prepare_cached(INSERT)?;
    for call in calls {
        statement.execute(named_params! {
            ":at": time(call.at),
            ":who": call.who,
            ":key": call.key.as_ref().map(KeyId::as_str),
            ":frontend": call.frontend.as_str(),
            ":action": call.action,
            ":sandbox": call.sandbox,
            ":namespace": call.namespace.as_ref().map(Namespace::as_str),
            ":error": call.error,
            ":duration_ms": i64::try_from(call.duration_ms).unwrap_or(i64::MAX),
            ":client": call.client,
        })?;
        let number = transaction.last_insert_rowid();
        is_due |= number % TRIM_EVERY == 0;
        numbers.push(number.unsigned_abs());
    }
    drop(statement);
    if is_due {
        trim_callers(&transaction)?;
        trim(&transaction, "who IS NULL", MAX_UNKNOWN_CALLS)?;
    }
    transaction.commit()?;
    Ok(numbers)
}

/// Whoever has too many loses the oldest of its own. If all have too many together, those with the most lose theirs.
fn trim_callers(connection: &Connection) -> Result<(), rusqlite::Error> {
    let mut counts = connection.prepare_cached(
        "SELECT who, count(*) FROM calls WHERE who IS NOT NULL GROUP BY who ORDER BY 2 DESC, who",
    )?;
    let counted: Vec<(String, u32)> =
        counts.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let each = fair_share(counted.iter().map(|(_, n)| *n), MAX_CALLS).min(MAX_CALLS_EACH);
    let mut delete = connection.prepare_cached(
        "DELETE FROM calls WHERE who = ?1 AND number <= \
         (SELECT number FROM calls WHERE who = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
    )?;
    for (who, _) in counted.into_iter().take_while(|(_, n)| *n > each) {
        delete.execute((who, each))?;
    }
    Ok(())
}

/// The most that each may keep so that all keep at most `total`. `counts` go down.
fn fair_share(counts: impl DoubleEndedIterator<Item = u32> + ExactSizeIterator, total: u32) -> u32 {
    let (mut n_left, mut rest) = (counts.len() as u32, total);
    // Those with the fewest keep all they have, as long as the others can have as much.
    for n in counts.rev() {
        let share = rest / n_left;
        if n > share {
            return share;
        }
        rest -= n;
        n_left -= 1;
    }
    u32::MAX
}

fn trim(connection: &Connection, which: &str, keep: u32) -> Result<(), rusqlite::Error> {
    let sql = format!(
        "DELETE FROM calls WHERE {which} AND number <= \
         (SELECT number FROM calls WHERE {which} ORDER BY number DESC LIMIT 1 OFFSET ?1)"
    );
    connection.prepare_cached(&sql)?.execute([keep])?;
    Ok(())
}

/// All text of a call, one column to a line: where words are looked for.
const TEXT: &str = "lower(action || char(10) || frontend || char(10) || coalesce(who, '') || char(10) || \
     coalesce(key, '') || char(10) || coalesce(sandbox, '') || char(10) || coalesce(namespace, '') || char(10) || \
     coalesce(error, '') || char(10) || coalesce(client, ''))";

/// In order. Without a number to begin with: the last ones. A row that cannot be read is left out and logged.
pub(crate) fn read(database: &Database, query: &CallQuery) -> Result<Vec<Call>, StoreError> {
    let mut calls = Vec::new();
    let mut collect = || {
        let (sql, values) = statement(query);
        let mut statement = database.connection.prepare_cached(&sql)?;
        let mut found = statement.query(params_from_iter(values))?;
        while let Some(row) = found.next()? {
            let number: i64 = row.get("number")?;
            match call(row, number) {
                Ok(call) => calls.push(call),
                Err(reason) => tracing::warn!(number, reason, "a line of the audit cannot be read"),
            }
        }
        Ok(())
    };
    collect().map_err(|source| database.error("reading the audit", source))?;
    calls.sort_by_key(|call| call.number);
    Ok(calls)
}

/// The query as SQL, with the values of its places.
fn statement(query: &CallQuery) -> (String, Vec<Value>) {
    let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
    let mut conditions = vec!["number >= ? AND number < ?".to_owned()];
    let mut values = vec![number(query.from.unwrap_or(0)), number(query.before.unwrap_or(u64::MAX))];
    if let Some(namespace) = &query.namespace {
        conditions.push("namespace = ?".to_owned());
        values.push(Value::from(namespace.as_str().to_owned()));
    }
    if let Some(who) = &query.who {
        conditions.push("(who = ? OR key = ? OR (key IS NOT NULL AND who = 'key ' || ?))".to_owned());
        values.extend([who, who, who].map(|who| Value::from(who.clone())));
    }
    if let Some(has_failed) = query.has_failed {
        conditions.push(format!("error IS {}NULL", if has_failed { "NOT " } else { "" }));
    }
    for word in &query.words {
        conditions.push(format!("instr({TEXT}, lower(?)) > 0"));
        values.push(Value::from(word.clone()));
    }
    values.push(Value::from(query.limit.min(MAX_CALLS)));
    let order = if query.from.is_some() { "ASC" } else { "DESC" };
    let conditions = conditions.join(" AND ");
    (format!("SELECT * FROM calls WHERE {conditions} ORDER BY number {order} LIMIT ?"), values)
}

fn call(row: &Row<'_>, number: i64) -> Result<Call, Reason> {
    let columns = Columns(row);
    Ok(Call {
        number: u64::try_from(number).map_err(|error| error.to_string())?,
        at: columns.time("at")?,
        who: columns.owned("who")?,
        key: columns.maybe_parsed("key")?,
        frontend: columns.parsed::<Frontend>("frontend")?,
        action: columns.text("action")?.to_owned(),
        sandbox: columns.owned("sandbox")?,
        namespace: columns.maybe_parsed("namespace")?,
        error: columns.owned("error")?,
        duration_ms: columns.number("duration_ms")?.unwrap_or(0),
        client: columns.owned("client")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_with_the_most_give() {
        let share = |counts: &[u32], total| fair_share(counts.iter().copied(), total);
        assert_eq!(share(&[5, 3, 1], 9), u32::MAX);
        assert_eq!(share(&[5, 3, 1], 7), 3);
        assert_eq!(share(&[5, 5, 1], 7), 3);
        assert_eq!(share(&[9], 7), 7);
        assert_eq!(share(&[], 7), u32::MAX);
    }
}
