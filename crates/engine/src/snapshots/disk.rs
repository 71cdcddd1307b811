//! Snapshots on disk: `snapshots/<id>/{manifest.json,about.json,tree/}`.
//!
//! One that is being made is `.making-<id>`: with a record it is whole and only needs its name, without one it is a
//! leftover. One that is being removed is `.removing-<id>`. A whole one without a record is left alone: reindexing finds it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use sandbox::{KeyId, Namespace, Result, SnapshotId, SnapshotName};
use serde::{Deserialize, Serialize};
use store::SnapshotRecord;

use super::manifest::{self, MAX_MANIFEST_BYTES};
use crate::{core::Core, error};

const MANIFEST: &str = "manifest.json";
const ABOUT: &str = "about.json";
const TREE: &str = "tree";
const MAKING: &str = ".making-";
const REMOVING: &str = ".removing-";

/// What this host knows of a snapshot that is not part of it: so that records can be made anew from the disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    namespace: Namespace,
    name: Option<SnapshotName>,
    held_micros: Option<u64>,
    owner: Option<KeyId>,
    created_at: jiff::Timestamp,
}

/// A directory in which a snapshot comes to be. Nobody sees it before [`Making::publish`].
#[derive(Debug)]
pub(crate) struct Making {
    pub(crate) id: SnapshotId,
    directory: PathBuf,
    all: PathBuf,
}

impl Making {
    pub(crate) fn begin(all: &Path, id: SnapshotId) -> Result<Self> {
        make_private(all).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error::from_io("make the directory", all, error)),
        })?;
        let directory = all.join(format!("{MAKING}{id}"));
        let making = Self { id, directory, all: all.to_owned() };
        for directory in [&making.directory, &making.tree()] {
            make_private(directory)
                .map_err(|error| error::from_io("make the directory", directory, error))?;
        }
        Ok(making)
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.directory.join(TREE)
    }

    /// Writes down what it is. After this it is whole.
    pub(crate) fn describe(&self, record: &SnapshotRecord) -> Result<()> {
        write_new(&self.directory.join(MANIFEST), record.manifest.as_bytes())?;
        write_about(&self.directory, record)
    }

    /// Gives it the place under which others find it; its record stands.
    pub(crate) fn publish(&self) -> Result<()> {
        fs::rename(&self.directory, self.all.join(self.id.as_str()))
            .map_err(|error| error::from_io("give its name to", &self.directory, error))?;
        sync_directory(&self.all);
        Ok(())
    }

    /// Takes all of it away again.
    pub(crate) async fn discard(&self, core: &Core) {
        remove_directory(core, &self.directory).await;
    }
}

/// What an earlier daemon left in the middle of something.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    pub(crate) making: Vec<SnapshotId>,
    pub(crate) removing: Vec<SnapshotId>,
    /// With our beginnings, and no id behind.
    pub(crate) nameless: Vec<PathBuf>,
    /// Whole ones.
    pub(crate) whole: Vec<SnapshotId>,
}

pub(crate) fn look_around(all: &Path) -> Leftovers {
    let mut found = Leftovers::default();
    let Ok(entries) = fs::read_dir(all) else { return found };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (kind, id) = match (name.strip_prefix(MAKING), name.strip_prefix(REMOVING)) {
            (Some(id), _) => (&mut found.making, id),
            (_, Some(id)) => (&mut found.removing, id),
            _ => (&mut found.whole, name.as_str()),
        };
        match id.parse() {
            Ok(id) => kind.push(id),
            Err(_) if id != name => found.nameless.push(entry.path()),
            Err(_) => {}
        }
    }
    found
}

/// Finishes what has a record: everything of it was there before that.
pub(crate) fn finish_making(all: &Path, id: &SnapshotId) -> Result<()> {
    let making = Making { id: id.clone(), directory: all.join(format!("{MAKING}{id}")), all: all.to_owned() };
    making.publish()
}

pub(crate) async fn remove_making(core: &Core, id: &SnapshotId) {
    remove_directory(core, &core.snapshots.directory.join(format!("{MAKING}{id}"))).await;
}

/// Takes a snapshot out of sight in one step, as the first of its removal.
pub(crate) fn hide(all: &Path, id: &SnapshotId) -> Result<PathBuf> {
    let (place, hidden) = (all.join(id.as_str()), all.join(format!("{REMOVING}{id}")));
    match fs::rename(&place, &hidden) {
        Ok(()) => {
            sync_directory(all);
            Ok(hidden)
        }
        // Somebody took its files: then there is only a record to remove.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(hidden),
        Err(error) => Err(error::from_io("take away", &place, error)),
    }
}

pub(crate) fn hidden_directory(all: &Path, id: &SnapshotId) -> PathBuf {
    all.join(format!("{REMOVING}{id}"))
}

/// Whatever cannot be removed now is swept at the next start.
pub(crate) async fn remove_directory(core: &Core, directory: &Path) {
    let tree = directory.join(TREE);
    if tree.exists()
        && let Err(error) = core.backend.remove_tree(tree).await
    {
        return tracing::warn!(directory = %directory.display(), %error, "files of a snapshot stay for now");
    }
    match tokio::fs::remove_dir_all(directory).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(directory = %directory.display(), %error, "a snapshot's directory stays for now");
        }
        _ => {}
    }
}

/// The manifest, as it is on disk.
pub(crate) fn read_manifest(directory: &Path) -> Result<String> {
    let path = directory.join(MANIFEST);
    let bytes = read_bounded(&path, MAX_MANIFEST_BYTES)?;
    String::from_utf8(bytes)
        .map_err(|_not_text| sandbox::Error::invalid(format!("{} is no text", path.display())))
}

/// A record from what is on disk.
pub(crate) fn read_record(all: &Path, id: &SnapshotId) -> Result<SnapshotRecord> {
    let directory = all.join(id.as_str());
    let text = read_manifest(&directory)?;
    manifest::parse(text.as_bytes())?;
    let path = directory.join(ABOUT);
    let about: About = serde_json::from_slice(&read_bounded(&path, MAX_MANIFEST_BYTES)?)
        .map_err(|error| sandbox::Error::invalid(format!("{} cannot be read: {error}", path.display())))?;
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

/// Replaces what this host knows of it.
pub(crate) fn write_about(directory: &Path, record: &SnapshotRecord) -> Result<()> {
    let about = About {
        namespace: record.namespace.clone(),
        name: record.name.clone(),
        held_micros: record.held_micros,
        owner: record.owner.clone(),
        created_at: record.created_at,
    };
    let text = serde_json::to_vec(&about).map_err(|source| {
        sandbox::Error::new(sandbox::ErrorKind::Internal, "a snapshot could not be described")
            .with_source(source)
    })?;
    let (path, new) = (directory.join(ABOUT), directory.join(format!(".{ABOUT}")));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error::from_io("replace", &new, error));
        }
        _ => {}
    }
    write_new(&new, &text)?;
    fs::rename(&new, &path).map_err(|error| error::from_io("replace", &path, error))
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| error::from_io("write", path, error))
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

fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(directory)
}

/// Best effort: a name that a power failure takes back is a snapshot that never was, or is still there.
fn sync_directory(directory: &Path) {
    if let Err(error) = File::open(directory).and_then(|directory| directory.sync_all()) {
        tracing::debug!(directory = %directory.display(), %error, "a directory was not synced");
    }
}
