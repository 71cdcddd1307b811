//! Outputs of a cell, read again from its ledger. Nothing is stored twice.

use std::{sync::Arc, time::Duration};

use engine::{Engine, EntryBody, Follow, MimeBundle, Principal, Rich, RichReader, SandboxRef};
use futures_util::StreamExt;
use sandbox::{Error, ErrorKind, ExecId, Next, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::bundle::{self, Form};

/// The highest number that is looked for: more records than a ledger could hold.
pub(crate) const MAX_OUTPUT_NUMBER: u32 = 1_000_000;

/// Ledgers that are searched for outputs at the same time, for all who ask: each search may hold a whole record.
const MAX_SEARCHES: usize = 4;
/// How long a search waits for others.
const SEARCH_PATIENCE: Duration = Duration::from_secs(10);

/// The searches that are going on. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Searches(Arc<Semaphore>);

impl Default for Searches {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_SEARCHES)))
    }
}

/// One output in the form that is asked for, or in its best one. Bounded by what a record may have.
pub(crate) async fn output(
    (engine, searches): (&Engine, &Searches),
    who: &Principal,
    which: &SandboxRef,
    exec: &ExecId,
    number: u32,
    mime: Option<&str>,
) -> Result<Form> {
    let mut n_seen = 0;
    let found = visit((engine, searches), who, which, exec, |data| {
        n_seen += 1;
        (n_seen == number).then_some(data)
    })
    .await?;
    let data = found.ok_or_else(|| {
        Error::not_found(format!("exec {exec} has no output {number}; it has {n_seen}"))
            .with_hint("Outputs are numbered from 1 in the order in which the code displayed them.")
    })?;
    bundle::chosen(&data, mime).ok_or_else(|| {
        let forms: Vec<_> = bundle::forms(&data).map(|(mime, _)| mime).collect();
        let wanted: String = mime.unwrap_or("a form that can be served").chars().take(127).collect();
        Error::not_found(format!("output {number} of exec {exec} has no {wanted}"))
            .with_hint(format!("Its forms are {}.", forms.join(", ")))
    })
}

/// How many outputs there are.
pub(crate) async fn n_outputs(
    (engine, searches): (&Engine, &Searches),
    who: &Principal,
    which: &SandboxRef,
    exec: &ExecId,
) -> Result<u32> {
    let mut n = 0;
    visit((engine, searches), who, which, exec, |_data| {
        n += 1;
        None::<()>
    })
    .await?;
    Ok(n)
}

/// Shows every output to `look` until it has what it wants.
async fn visit<T>(
    (engine, searches): (&Engine, &Searches),
    who: &Principal,
    which: &SandboxRef,
    exec: &ExecId,
    mut look: impl FnMut(MimeBundle) -> Option<T>,
) -> Result<Option<T>> {
    let _place = searches.place().await?;
    let mut items = engine.exec_entries(who, which, exec, 1, Follow::No).await?;
    let mut reader = RichReader::default();
    while let Some(item) = items.next().await {
        let bytes = match item.map(|entry| entry.body) {
            Ok(EntryBody::Rich(bytes)) => bytes,
            // Later outputs have lost their numbers, and another output under the same one would be a lie.
            Ok(EntryBody::Trimmed { .. }) | Err(_) => return Err(gone(exec)),
            Ok(_) => continue,
        };
        for record in reader.push(&bytes) {
            let (Rich::Result { data } | Rich::Display { data }) = record else { continue };
            if let Some(found) = look(data) {
                return Ok(Some(found));
            }
        }
        tokio::task::consume_budget().await;
    }
    Ok(None)
}

impl Searches {
    async fn place(&self) -> Result<SemaphorePermit<'_>> {
        match tokio::time::timeout(SEARCH_PATIENCE, self.0.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => {
                let message =
                    format!("{MAX_SEARCHES} outputs are already being searched for, which is the limit");
                Err(Error::new(ErrorKind::LimitReached, message).with_next(Next::Retry))
            }
        }
    }
}

fn gone(exec: &ExecId) -> Error {
    let message = format!("the outputs of exec {exec} were dropped: its log was full");
    Error::new(ErrorKind::NotFound, message).with_hint("Run the code again, or have it write a file.")
}
