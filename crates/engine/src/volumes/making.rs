//! Makes and removes volumes: the record before the effect, and nothing half-made visible.

use std::{fs::DirBuilder, io, os::unix::fs::DirBuilderExt, path::Path, sync::Arc};

use sandbox::{Result, Subject, Thing, VolumeId, VolumeKind};
use store::{Described, StoreError, VolumeRecord, VolumeState};

use super::directory_of;
use crate::{
    core::{Core, until},
    disk::{may_block, remove_directory},
    error,
};

/// Makes the volume of a reserved record. On failure nothing stays.
pub(super) async fn make(core: Arc<Core>, mut record: VolumeRecord) -> Result<VolumeRecord> {
    if let Err(error) = core.store.insert_volume(record.clone()).await {
        core.volumes.forget(&record.id);
        return Err(error::from_store(error));
    }
    if let Err(error) = make_files(&core, &mut record).await {
        clear(&core, &record.id).await;
        return Err(error);
    }
    if let Err(error) = core.store.update_volume(record.clone()).await {
        clear(&core, &record.id).await;
        return Err(error::from_store(error));
    }
    core.volumes.publish(record.clone());
    Ok(record)
}

/// Also completes the record, and writes it beside the files once they are complete.
async fn make_files(core: &Core, record: &mut VolumeRecord) -> Result<()> {
    let directory = directory_of(core, &record.id);
    may_block(|| make_private(&directory))
        .map_err(|error| error::from_io("create the directory", &directory, error))?;
    let limit = match record.spec.kind {
        VolumeKind::Directory => record.spec.quota,
        VolumeKind::Disk => record.spec.size,
    };
    let label = Subject::new(Thing::Volume, record.spec.name.as_str());
    let made = core.backends.volumes()?.make(&record.id, record.spec.kind, limit).await;
    record.storage = Some(made.map_err(|error| error::from_backend(error, &label))?);
    record.state = VolumeState::Ready;
    may_block(|| record.write_manifest(&directory))
        .map_err(|error| error::from_io("write the manifest of", &directory, error))
}

/// Makes a directory for its owner alone, and its parent. The home itself is not made: see `make_directory`.
fn make_private(directory: &Path) -> io::Result<()> {
    let make = |directory: &Path| DirBuilder::new().mode(0o700).create(directory);
    if let Some(all) = directory.parent()
        && let Err(error) = make(all)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    make(directory)
}

/// Removes a volume that is marked for removal. Files first, then the record, whose mark says that they are going.
pub(super) async fn remove(core: Arc<Core>, record: VolumeRecord) -> Result<()> {
    let id = record.id.clone();
    core.volumes.in_use.close(&id).await;
    let removed = async {
        core.store.update_volume(record).await.map_err(error::from_store)?;
        remove_whole(&core, &id).await
    };
    let removed = removed.await;
    if removed.is_err() {
        core.volumes.removal_failed(&id);
    }
    removed
}

async fn remove_whole(core: &Core, id: &VolumeId) -> Result<()> {
    remove_files(core, id).await?;
    match core.store.remove_volume(id.clone()).await {
        Ok(()) | Err(StoreError::Missing { .. }) => {}
        Err(error) => return Err(error::from_store(error)),
    }
    core.volumes.forget(id);
    Ok(())
}

async fn remove_files(core: &Core, id: &VolumeId) -> Result<()> {
    let gone = core.backends.volumes()?.remove(id).await;
    gone.map_err(|error| error::from_backend(error, &Subject::new(Thing::Volume, id.as_str())))?;
    remove_directory(&directory_of(core, id)).await
}

/// Removes whatever exists of an unfinished or removed volume.
async fn clear(core: &Core, id: &VolumeId) {
    if let Err(error) = remove_whole(core, id).await {
        core.volumes.removal_failed(id);
        tracing::warn!(volume = %id, error = &error as &dyn std::error::Error, "an unfinished volume stays until the next start");
    }
}

/// Removes one whose record cannot be read.
pub(super) async fn remove_corrupt(core: Arc<Core>, id: VolumeId) -> Result<()> {
    remove_whole(&core, &id).await?;
    core.volumes.corrupt().retain(|row| row.id != id.as_str());
    Ok(())
}

/// Registers the volumes of an earlier daemon; its unfinished work is completed in the background.
pub(crate) async fn take_up(core: &Arc<Core>) -> Result<()> {
    let rows = core.store.volumes().await.map_err(error::from_store)?;
    for row in &rows.corrupt {
        tracing::error!(volume = row.id, reason = row.reason, "the record of a volume cannot be read");
    }
    core.volumes.load(rows.records, rows.corrupt);
    let (closing, task_core) = (core.closing.clone(), Arc::clone(core));
    // Determined now: later there are also those that this daemon is making.
    let unfinished = core.volumes.unfinished();
    core.drivers.spawn(async move { until(&closing, settle(task_core, unfinished)).await });
    Ok(())
}

async fn settle(core: Arc<Core>, unfinished: Vec<VolumeRecord>) {
    for record in unfinished {
        clear(&core, &record.id).await;
    }
    describe_all(&core);
    if !core.recovery.is_complete {
        // The database does not know everything in the home, so an unknown id is not a leftover.
        return;
    }
    let unreadable = core.recovery.unknown_ids::<VolumeId>();
    let all = core.config.home.join("volumes");
    let entries = may_block(|| std::fs::read_dir(&all).map(|found| found.flatten().collect::<Vec<_>>()));
    for entry in entries.unwrap_or_default() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Anything else is not ours.
        let Ok(id) = name.parse::<VolumeId>() else { continue };
        // Checked now, not before: a volume in the making is known before it has files.
        if core.volumes.knows(&id) || unreadable.contains(&id) {
            continue;
        }
        match remove_files(&core, &id).await {
            Ok(()) => tracing::info!(volume = %id, "swept the remains of a volume"),
            Err(error) => {
                tracing::warn!(volume = %id, error = &error as &dyn std::error::Error, "the remains of a volume stay");
            }
        }
    }
}

/// Writes manifests for volumes of a daemon that wrote none.
fn describe_all(core: &Core) {
    for record in core.volumes.ready() {
        let directory = directory_of(core, &record.id);
        if let Err(error) = may_block(|| record.write_manifest(&directory)) {
            tracing::warn!(volume = %record.id, %error, "could not write its manifest");
        }
    }
}
