//! Every snapshot there is, in memory; and who uses which.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sandbox::{Error, ErrorKind, MAX_SNAPSHOT_CHAIN, Namespace, Result, SnapshotId, SnapshotManifest};
use store::SnapshotRecord;

use super::{
    manifest,
    reference::{SnapshotRef, Which},
};
use crate::{Principal, config::EngineConfig};

/// One snapshot that is all there.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) record: SnapshotRecord,
    pub(crate) manifest: SnapshotManifest,
    /// `snapshots/<id>`.
    pub(crate) directory: PathBuf,
    /// What [`sandbox::SandboxPlan::above`] takes.
    pub(crate) tree: PathBuf,
}

impl Snapshot {
    pub(crate) fn new(record: SnapshotRecord, directory: PathBuf) -> Result<Self> {
        let manifest = manifest::parse(record.manifest.as_bytes())?;
        if manifest::digest_of(record.manifest.as_bytes()) != record.digest {
            let message =
                format!("the record of snapshot {} has another digest than its manifest", record.id);
            return Err(Error::new(ErrorKind::Internal, message));
        }
        let tree = directory.join("tree");
        Ok(Self { record, manifest, directory, tree })
    }

    /// As messages call it.
    pub(crate) fn label(&self) -> String {
        match &self.record.name {
            Some(name) => format!("snapshot {name}"),
            None => format!("snapshot {}", short(&self.record.digest)),
        }
    }
}

/// The beginning of a digest, long enough to name it.
pub(crate) fn short(digest: &str) -> &str {
    digest.get(..19).unwrap_or(digest)
}

#[derive(Debug)]
pub(crate) struct Snapshots {
    pub(crate) directory: PathBuf,
    most: usize,
    most_each: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_id: BTreeMap<SnapshotId, Kept>,
    /// Owners of those that are being made: they count.
    making: Vec<Option<sandbox::KeyId>>,
}

#[derive(Debug)]
struct Kept {
    snapshot: Arc<Snapshot>,
    n_holds: usize,
    /// It is being removed: nobody may begin to use it.
    is_going: bool,
}

/// Keeps a snapshot from being removed as long as it exists.
#[derive(Debug)]
pub(crate) struct Hold {
    all: Arc<Snapshots>,
    pub(crate) snapshot: Arc<Snapshot>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(kept) = self.all.inner().by_id.get_mut(&self.snapshot.record.id) {
            kept.n_holds -= 1;
        }
    }
}

/// A place for one more, until that is there.
#[derive(Debug)]
pub(crate) struct Room {
    all: Arc<Snapshots>,
    owner: Option<sandbox::KeyId>,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut inner = self.all.inner();
        if let Some(at) = inner.making.iter().position(|owner| *owner == self.owner) {
            inner.making.swap_remove(at);
        }
    }
}

impl Snapshots {
    pub(crate) fn new(config: &EngineConfig) -> Arc<Self> {
        Arc::new(Self {
            directory: config.home.join("snapshots"),
            most: config.max_snapshots,
            most_each: config.max_snapshots_each,
            inner: Mutex::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change in there is one insert, remove or count; a panic elsewhere leaves it whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn directory_of(&self, id: &SnapshotId) -> PathBuf {
        self.directory.join(id.as_str())
    }

    /// Room for one more of `who`, or why there is none.
    pub(crate) fn make_room(self: &Arc<Self>, who: &Principal) -> Result<Room> {
        let mut inner = self.inner();
        let refuse = |message: String| {
            Err(Error::new(ErrorKind::LimitReached, message)
                .with_hint("Remove snapshots that are not needed, or raise the daemon's limit."))
        };
        if inner.by_id.len() + inner.making.len() >= self.most {
            return refuse(format!("there are {} snapshots already", self.most));
        }
        if let Some(key) = &who.key {
            let has = inner.by_id.values().map(|kept| &kept.snapshot.record.owner);
            let n_has = has.chain(&inner.making).filter(|owner| owner.as_ref() == Some(key)).count();
            if n_has >= self.most_each {
                return refuse(format!("{} may have {} snapshots and has {n_has}", who.name, self.most_each));
            }
        }
        inner.making.push(who.key.clone());
        Ok(Room { all: Arc::clone(self), owner: who.key.clone() })
    }

    pub(crate) fn insert(&self, snapshot: Arc<Snapshot>) {
        let id = snapshot.record.id.clone();
        let mut inner = self.inner();
        // One that replaces another under the same id keeps whoever holds it.
        let n_holds = inner.by_id.get(&id).map_or(0, |kept| kept.n_holds);
        inner.by_id.insert(id, Kept { snapshot, n_holds, is_going: false });
    }

    pub(crate) fn remove(&self, id: &SnapshotId) {
        self.inner().by_id.remove(id);
    }

    /// All of them, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Snapshot>> {
        let mut all: Vec<_> = self.inner().by_id.values().map(|kept| Arc::clone(&kept.snapshot)).collect();
        all.sort_by(|a, b| (a.record.created_at, &a.record.id).cmp(&(b.record.created_at, &b.record.id)));
        all
    }

    pub(crate) fn is_known(&self, id: &SnapshotId) -> bool {
        self.inner().by_id.contains_key(id)
    }

    pub(crate) fn named(&self, namespace: &Namespace, name: &sandbox::SnapshotName) -> Option<Arc<Snapshot>> {
        self.find_by(|record| record.namespace == *namespace && record.name.as_ref() == Some(name))
    }

    pub(crate) fn by_digest(&self, namespace: &Namespace, digest: &str) -> Option<Arc<Snapshot>> {
        self.find_by(|record| record.namespace == *namespace && record.digest == digest)
    }

    pub(crate) fn by_tree(&self, tree: &Path) -> Option<Arc<Snapshot>> {
        let inner = self.inner();
        let found = inner.by_id.values().find(|kept| kept.snapshot.tree == tree);
        found.map(|kept| Arc::clone(&kept.snapshot))
    }

    fn find_by(&self, is_it: impl Fn(&SnapshotRecord) -> bool) -> Option<Arc<Snapshot>> {
        let inner = self.inner();
        let found = inner.by_id.values().find(|kept| !kept.is_going && is_it(&kept.snapshot.record));
        found.map(|kept| Arc::clone(&kept.snapshot))
    }

    /// The snapshot that `who` means; what they may not see does not exist for them.
    pub(crate) fn find(&self, who: &Principal, which: &SnapshotRef) -> Result<Arc<Snapshot>> {
        let namespace = which.namespace.clone().unwrap_or_else(|| who.home_namespace());
        let found = match &which.which {
            Which::Id(id) => self.inner().by_id.get(id).map(|kept| Arc::clone(&kept.snapshot)),
            Which::Digest(hex) => self.by_digits(&namespace, hex)?,
            Which::Name(name, digits) => match (self.named(&namespace, name), digits) {
                (None, Some(hex)) => self.by_digits(&namespace, hex)?,
                (found, _) => found,
            },
        };
        found.filter(|snapshot| who.sees(&snapshot.record.namespace)).ok_or_else(|| no_such_snapshot(which))
    }

    fn by_digits(&self, namespace: &Namespace, hex: &str) -> Result<Option<Arc<Snapshot>>> {
        let inner = self.inner();
        let mut found = inner.by_id.values().filter(|kept| {
            let record = &kept.snapshot.record;
            record.namespace == *namespace
                && record.digest.strip_prefix("sha256:").is_some_and(|digest| digest.starts_with(hex))
        });
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => {
                Err(Error::invalid(format!("{hex} is the beginning of more than one snapshot's digest"))
                    .with_hint("Give more of its digits."))
            }
            (first, _) => Ok(first.map(|kept| Arc::clone(&kept.snapshot))),
        }
    }

    /// The snapshot and those beneath it, the topmost first.
    pub(crate) fn chain(&self, top: &Arc<Snapshot>) -> Result<Vec<Arc<Snapshot>>> {
        let mut chain = vec![Arc::clone(top)];
        let mut beneath = top.manifest.parent.clone();
        while let Some(parent) = beneath {
            if chain.len() >= MAX_SNAPSHOT_CHAIN {
                return Err(too_deep(&top.label()));
            }
            let found = self.by_digest(&top.record.namespace, &parent).ok_or_else(|| {
                let message = format!("{} is made on a snapshot that is not here: {parent}", top.label());
                Error::new(ErrorKind::WrongState, message)
                    .with_hint("Load an archive that has its parents inside.")
            })?;
            beneath = found.manifest.parent.clone();
            chain.push(found);
        }
        Ok(chain)
    }

    /// Keeps it from being removed; `None` when that has begun.
    pub(crate) fn hold(self: &Arc<Self>, snapshot: &Arc<Snapshot>) -> Option<Hold> {
        let mut inner = self.inner();
        let kept = inner.by_id.get_mut(&snapshot.record.id).filter(|kept| !kept.is_going)?;
        kept.n_holds += 1;
        Some(Hold { all: Arc::clone(self), snapshot: Arc::clone(snapshot) })
    }

    /// Whether all of these trees may still be used by a sandbox that is about to be made.
    pub(crate) fn check_trees(&self, trees: &[PathBuf]) -> Result<()> {
        if trees.is_empty() {
            return Ok(());
        }
        let inner = self.inner();
        let usable: std::collections::HashSet<&Path> = inner
            .by_id
            .values()
            .filter(|kept| !kept.is_going)
            .map(|kept| kept.snapshot.tree.as_path())
            .collect();
        match trees.iter().all(|tree| usable.contains(tree.as_path())) {
            true => Ok(()),
            false => Err(Error::not_found("the snapshot was removed meanwhile")
                .with_hint("List snapshots to see which there are.")),
        }
    }

    /// From now on nobody begins to use it. The caller looks who does already, and takes it back where somebody does.
    pub(crate) fn begin_going(&self, id: &SnapshotId) -> Going {
        match self.inner().by_id.get_mut(id) {
            None => Going::Gone,
            Some(kept) if kept.is_going => Going::Gone,
            Some(kept) if kept.n_holds > 0 => Going::Held,
            Some(kept) => {
                kept.is_going = true;
                Going::Begun
            }
        }
    }

    pub(crate) fn stay(&self, id: &SnapshotId) {
        if let Some(kept) = self.inner().by_id.get_mut(id) {
            kept.is_going = false;
        }
    }

    /// Names of the snapshots that are made directly on this one.
    pub(crate) fn children(&self, of: &Snapshot) -> Vec<String> {
        let inner = self.inner();
        let children = inner.by_id.values().filter(|kept| {
            let other = &kept.snapshot;
            other.record.namespace == of.record.namespace
                && other.manifest.parent.as_ref() == Some(&of.record.digest)
        });
        children.map(|kept| kept.snapshot.label()).collect()
    }

    /// Calls `look` with every snapshot.
    pub(crate) fn each(&self, mut look: impl FnMut(&Snapshot)) {
        self.inner().by_id.values().for_each(|kept| look(&kept.snapshot));
    }
}

/// How the beginning of a removal went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Going {
    Begun,
    /// Somebody is reading it, or makes sandboxes from it.
    Held,
    Gone,
}

pub(crate) fn no_such_snapshot(which: impl std::fmt::Display) -> Error {
    Error::not_found(format!("no snapshot {which}")).with_hint("List snapshots to see which there are.")
}

pub(crate) fn too_deep(label: &str) -> Error {
    let message = format!("{label} lies on {MAX_SNAPSHOT_CHAIN} snapshots already, which is the most");
    Error::new(ErrorKind::LimitReached, message)
        .with_hint("Save an archive of its files (`warren cp`), and begin again from the image with those.")
}

/// Which sandboxes use which trees.
pub(crate) type TreeUsers = HashMap<PathBuf, Vec<String>>;
