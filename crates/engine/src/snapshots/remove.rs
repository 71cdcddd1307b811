//! Removal: the description first, then the record, then the files. An unnamed snapshot is removed with its last user.

use std::sync::Arc;

use sandbox::{Error, ErrorKind, Next, Result, Thing};
use store::SnapshotRecord;

use super::{
    disk,
    registry::{Going, Snapshot},
    view::SnapshotFate,
};
use crate::{Force, core::Core, disk::may_block, error, images};

/// Removes it, or names its users. By force a used one loses its name, and is removed with the last user: the files of
/// a sandbox are never removed from under it.
pub(super) async fn remove(core: &Arc<Core>, snapshot: &Arc<Snapshot>, force: Force) -> Result<SnapshotFate> {
    let id = &snapshot.record.id;
    let users = match core.snapshots.begin_going(id) {
        Going::Gone => return Err(super::registry::no_such_snapshot(snapshot.label())),
        Going::Held => vec!["a request that is reading it".to_owned()],
        Going::Begun => {
            let users = core.snapshot_users(snapshot);
            if users.is_empty() {
                take_away(core, snapshot).await?;
                collect(core).await;
                return Ok(SnapshotFate::Removed);
            }
            core.snapshots.stay(id);
            users
        }
    };
    match force {
        Force::Yes => {
            take_name(core, snapshot).await?;
            collect(core).await;
            Ok(match core.snapshots.is_known(id) {
                true => SnapshotFate::Unnamed,
                false => SnapshotFate::Removed,
            })
        }
        Force::No => {
            let message = format!("{} is used by {}", snapshot.label(), users.join(", "));
            Err(Error::new(ErrorKind::WrongState, message).with_next(Next::RemoveUsers(Thing::Snapshot)))
        }
    }
}

/// From now on it is kept only for its users.
pub(super) async fn take_name(core: &Core, snapshot: &Arc<Snapshot>) -> Result<()> {
    if snapshot.record.name.is_none() {
        return Ok(());
    }
    let mut record = snapshot.record.clone();
    record.name = None;
    core.store.update_snapshot(record.clone()).await.map_err(error::from_store)?;
    renamed(core, record)
}

/// Updates memory and disk after the store.
pub(super) fn renamed(core: &Core, record: SnapshotRecord) -> Result<()> {
    if let Err(error) = may_block(|| disk::write_about(&core.snapshots.directory, &record))
        && core.snapshots.is_known(&record.id)
    {
        tracing::warn!(snapshot = %record.id, error = &error as &dyn std::error::Error, "its earlier name stays on disk");
    }
    core.snapshots.replace(Arc::new(Snapshot::new(record)?));
    Ok(())
}

async fn take_away(core: &Arc<Core>, snapshot: &Snapshot) -> Result<()> {
    let id = &snapshot.record.id;
    // Without a record and a description it is a leftover, which the next daemon would sweep.
    let removed = match may_block(|| disk::undescribe(&core.snapshots.directory, id)) {
        Ok(()) => core.store.remove_snapshot(id.clone()).await.map_err(error::from_store),
        Err(error) => Err(error),
    };
    if let Err(error) = removed {
        core.snapshots.stay(id);
        return Err(error);
    }
    core.snapshots.remove(id);
    if snapshot.manifest.image_digest.is_some() {
        images::collect_behind(core);
    }
    disk::remove(core, id).await;
    Ok(())
}

/// Removes every snapshot without a name and a user. Removing one may free the one beneath.
pub(crate) async fn collect(core: &Arc<Core>) {
    // An unknown sandbox may use any of them.
    if !core.knows_all_sandboxes() {
        return;
    }
    loop {
        let users = core.snapshots_users();
        let all = core.snapshots.all().into_iter();
        let unused = all.filter(|snapshot| snapshot.record.name.is_none() && users.of(snapshot).is_empty());
        let mut is_done = true;
        for snapshot in unused {
            if core.snapshots.begin_going(&snapshot.record.id) != Going::Begun {
                continue;
            }
            // New users are refused now; earlier ones are seen here.
            if !core.snapshot_users(&snapshot).is_empty() {
                core.snapshots.stay(&snapshot.record.id);
                continue;
            }
            match take_away(core, &snapshot).await {
                Ok(()) => is_done = false,
                Err(error) => {
                    tracing::warn!(snapshot = %snapshot.record.id, error = &error as &dyn std::error::Error, "a snapshot that nobody uses stays");
                }
            }
        }
        if is_done {
            return;
        }
    }
}
