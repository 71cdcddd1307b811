//! Restores records from the disk: after a lost database, or when a snapshot's directory was put back.

use std::{collections::BTreeSet, path::Path};

use sandbox::Result;
use store::Store;

use super::{Snapshot, disk};
use crate::{Engine, Principal, Scope, disk::may_block, error};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reindexed {
    /// Known now, to the caller.
    pub n_known: usize,
    /// Had no record before.
    pub n_found: usize,
}

impl Engine {
    /// Makes records for all snapshots on disk that have none.
    #[crate::boxed]
    pub async fn reindex_snapshots(&self, who: &Principal) -> Result<Reindexed> {
        who.may_change()?;
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        let found = may_block(|| disk::look_around(&core.snapshots.directory));
        let mut n_found = 0;
        for id in found.described.into_iter().filter(|id| !core.snapshots.is_known(id)) {
            let record = match may_block(|| disk::read_record(&core.snapshots.directory, &id)) {
                Ok(record) => record,
                Err(error) => {
                    tracing::warn!(snapshot = %id, error = &error as &dyn std::error::Error, "a snapshot on disk cannot be indexed");
                    continue;
                }
            };
            // One tenant does not restore another's.
            if !who.sees(&record.namespace) || (who.scope != Scope::All && record.owner != who.key) {
                continue;
            }
            let snapshot = Snapshot::new(record.clone())?;
            match core.store.insert_snapshot(record).await {
                Ok(()) => {
                    core.snapshots.insert(std::sync::Arc::new(snapshot));
                    n_found += 1;
                }
                Err(store::StoreError::SnapshotTaken { .. }) => {
                    tracing::warn!(snapshot = %id, "another snapshot has its name, or is the same");
                }
                Err(error) => return Err(error::from_store(error)),
            }
        }
        let all = core.snapshots.all();
        let n_known = all.iter().filter(|snapshot| who.sees(&snapshot.record.namespace)).count();
        Ok(Reindexed { n_known, n_found })
    }
}

/// Makes records for all snapshots in `all` that have none, whoever owns them. Returns their number.
pub(crate) async fn recover(all: &Path, store: &Store) -> Result<usize> {
    let rows = store.snapshots().await.map_err(error::from_store)?;
    let readable = rows.records.iter().map(|record| record.id.to_string());
    let known: BTreeSet<_> = readable.chain(rows.corrupt.into_iter().map(|row| row.id)).collect();
    let found = may_block(|| disk::look_around(all));
    let mut n_found = 0;
    for id in found.described.into_iter().filter(|id| !known.contains(id.as_str())) {
        let inserted = match may_block(|| disk::read_record(all, &id)) {
            Ok(record) => store.insert_snapshot(record).await.map_err(error::from_store),
            Err(error) => Err(error),
        };
        match inserted {
            Ok(()) => n_found += 1,
            Err(error) => {
                tracing::warn!(snapshot = %id, error = &error as &dyn std::error::Error, "a snapshot on disk gets no record");
            }
        }
    }
    Ok(n_found)
}
