//! The daemon's own files of snapshots: `snapshots/<id>/{manifest.json,about.json}`. The back end keeps the trees.
//!
//! The manifest is written after the record, and removed before it. So a directory with a record is complete. One with
//! only a manifest has lost its record, which reindexing restores. One with neither is a leftover.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use sandbox::{KeyId, Namespace, Result, SnapshotId, SnapshotName};
use serde::{Deserialize, Serialize};
use store::SnapshotRecord;

use super::manifest::{self, MAX_MANIFEST_BYTES};
use crate::{core::Core, error};

const MANIFEST: &str = "manifest.json";
const ABOUT: &str = "about.json";
/// Prefixes of snapshots that an earlier version was making or removing when it ended.
const UNFINISHED: [&str; 2] = [".making-", ".removing-"];

/// Facts of this host that are not part of a snapshot, so that records can be restored from the disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    namespace: Namespace,
    name: Option<SnapshotName>,
    held_micros: Option<u64>,
    owner: Option<KeyId>,
    created_at: jiff::Timestamp,
}

/// Makes the directory of a new snapshot.
pub(crate) fn begin(all: &Path, id: &SnapshotId) -> Result<()> {
    for directory in [all, &all.join(id.as_str())] {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error::from_io("create the directory", directory, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes the description; its record is stored.
pub(crate) fn describe(all: &Path, record: &SnapshotRecord) -> Result<()> {
    let directory = all.join(record.id.as_str());
    write_about(all, record)?;
    replace(&directory, MANIFEST, record.manifest.as_bytes())?;
    sync_directory(all);
    Ok(())
}

/// Removes the description, as the first step of a removal.
pub(crate) fn undescribe(all: &Path, id: &SnapshotId) -> Result<()> {
    let path = all.join(id.as_str()).join(MANIFEST);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error::from_io("remove", &path, error)),
        _ => Ok(()),
    }
}

/// The snapshots that have a directory, by whether they are described.
#[derive(Debug, Default)]
pub(crate) struct OnDisk {
    pub(crate) described: Vec<SnapshotId>,
    pub(crate) undescribed: Vec<SnapshotId>,
}

pub(crate) fn look_around(all: &Path) -> OnDisk {
    let mut found = OnDisk::default();
    let Ok(entries) = fs::read_dir(all) else { return found };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let unfinished = UNFINISHED.iter().find_map(|prefix| name.strip_prefix(prefix));
        let Ok(id) = unfinished.unwrap_or(&name).parse::<SnapshotId>() else { continue };
        if unfinished.is_some() && take_back(all, &entry.path(), &id).is_err() {
            continue;
        }
        match all.join(id.as_str()).join(MANIFEST).exists() {
            true => found.described.push(id),
            false => found.undescribed.push(id),
        }
    }
    found
}

/// Returns an unfinished directory of an earlier version to its usual name, so that its record decides what happens to
/// it.
fn take_back(all: &Path, unfinished: &Path, id: &SnapshotId) -> io::Result<()> {
    let _gone = fs::remove_file(unfinished.join(MANIFEST));
    fs::rename(unfinished, all.join(id.as_str()))
}

/// Files that cannot be removed now are swept at the next start.
pub(crate) async fn remove(core: &Core, id: &SnapshotId) {
    let removed = match core.backends.snapshots() {
        Ok(trees) => trees.remove(id).await,
        Err(_keeps_none) => Ok(()),
    };
    if let Err(error) = removed {
        return tracing::warn!(snapshot = %id, %error, "files of a snapshot stay for now");
    }
    match tokio::fs::remove_dir_all(core.snapshots.directory_of(id)).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(snapshot = %id, %error, "a snapshot's directory stays for now");
        }
        _ => {}
    }
}

/// The manifest, as it is on disk.
pub(crate) fn read_manifest(directory: &Path) -> Result<String> {
    let path = directory.join(MANIFEST);
    let bytes = read_bounded(&path, MAX_MANIFEST_BYTES)?;
    String::from_utf8(bytes)
        .map_err(|_not_text| sandbox::Error::invalid(format!("{} is not text", path.display())))
}

/// A record from what is on disk.
pub(crate) fn read_record(all: &Path, id: &SnapshotId) -> Result<SnapshotRecord> {
    let directory = all.join(id.as_str());
    let text = read_manifest(&directory)?;
    manifest::parse(text.as_bytes())?;
    let path = directory.join(ABOUT);
    let about: About = serde_json::from_slice(&read_bounded(&path, MAX_MANIFEST_BYTES)?)
        .map_err(|error| sandbox::Error::invalid(format!("cannot read {}: {error}", path.display())))?;
    Ok(SnapshotRecord {
        id: id.clone(),
        namespace: about.namespace,
        name: about.name,
        digest: manifest::digest_of(text.as_bytes()),
        manifest: text,
        held_micros: about.held_micros,
        owner: about.owner,
        created_at: about.created_at,
    })
}

/// Replaces the facts of this host.
pub(crate) fn write_about(all: &Path, record: &SnapshotRecord) -> Result<()> {
    let about = About {
        namespace: record.namespace.clone(),
        name: record.name.clone(),
        held_micros: record.held_micros,
        owner: record.owner.clone(),
        created_at: record.created_at,
    };
    let text = serde_json::to_vec(&about).map_err(|source| {
        sandbox::Error::new(sandbox::ErrorKind::Internal, "could not describe a snapshot").with_source(source)
    })?;
    replace(&all.join(record.id.as_str()), ABOUT, &text)
}

/// In one step: a reader sees the old one or the new one.
fn replace(directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let (path, new) = (directory.join(name), directory.join(format!(".{name}")));
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().map_err(|error| error::from_io("write", &path, error))
}

fn read_bounded(path: &Path, most: usize) -> Result<Vec<u8>> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| error::from_io("read", path, error))?;
    if bytes.len() > most {
        return Err(sandbox::Error::invalid(format!("{} has more than {most} bytes", path.display())));
    }
    Ok(bytes)
}

/// Best effort: after a power failure the snapshot may not exist, or may still exist.
fn sync_directory(directory: &Path) {
    if let Err(error) = File::open(directory).and_then(|directory| directory.sync_all()) {
        tracing::debug!(directory = %directory.display(), %error, "a directory was not synced");
    }
}
