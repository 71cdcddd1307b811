//! Every snapshot, in memory, and its users.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sandbox::{
    Error, ErrorKind, Limit, MAX_SNAPSHOT_CHAIN, Namespace, Next, Result, SnapshotId, SnapshotManifest,
    SnapshotName, Subject, Thing,
};
use store::SnapshotRecord;
use tokio::sync::Notify;

use super::{
    manifest,
    reference::{SnapshotRef, Which},
};
use crate::{Principal, config::EngineConfig};

/// Archives read or written at the same time, in total and for one key. Each has a thread, and the other end may be
/// slow on purpose: threads are few, and others need them.
const MAX_ARCHIVES: usize = 64;
const MAX_ARCHIVES_EACH: usize = 8;

/// One complete snapshot.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) record: SnapshotRecord,
    pub(crate) manifest: SnapshotManifest,
}

impl Snapshot {
    pub(crate) fn new(record: SnapshotRecord) -> Result<Self> {
        let manifest = manifest::parse(record.manifest.as_bytes())?;
        if manifest::digest_of(record.manifest.as_bytes()) != record.digest {
            let message =
                format!("the digests in the record and the manifest of snapshot {} differ", record.id);
            return Err(Error::new(ErrorKind::Internal, message));
        }
        Ok(Self { record, manifest })
    }

    /// Its name in messages.
    pub(crate) fn label(&self) -> Subject {
        let name = self.record.name.as_ref().map_or_else(|| short(&self.record.digest), SnapshotName::as_str);
        Subject::new(Thing::Snapshot, name)
    }
}

/// The beginning of a digest, long enough to identify it.
pub(crate) fn short(digest: &str) -> &str {
    digest.get(..19).unwrap_or(digest)
}

#[derive(Debug)]
pub(crate) struct Snapshots {
    pub(crate) directory: PathBuf,
    most: usize,
    most_each: usize,
    inner: Mutex<Inner>,
    /// An unnamed snapshot was released.
    pub(crate) let_go: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    by_id: BTreeMap<SnapshotId, Kept>,
    /// Snapshots in the making count, and so does their use of images.
    making: BTreeMap<u64, BeingMade>,
    /// The callers who are reading or writing archives.
    archiving: BTreeMap<u64, Option<sandbox::KeyId>>,
    n_begun: u64,
}

#[derive(Debug)]
struct BeingMade {
    owner: Option<sandbox::KeyId>,
    image_digest: Option<String>,
}

#[derive(Debug)]
struct Kept {
    snapshot: Arc<Snapshot>,
    n_holds: usize,
    /// It is being removed: nobody may begin to use it.
    is_going: bool,
}

/// Keeps a snapshot from being removed.
#[derive(Debug)]
pub(crate) struct Hold {
    all: Arc<Snapshots>,
    pub(crate) snapshot: Arc<Snapshot>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(kept) = self.all.inner().by_id.get_mut(&self.snapshot.record.id) {
            kept.n_holds -= 1;
            // It may have lost its name meanwhile, and been kept only for us.
            if kept.n_holds == 0 && kept.snapshot.record.name.is_none() {
                self.all.let_go.notify_one();
            }
        }
    }
}

/// A slot for one more, until that exists.
#[derive(Debug)]
pub(crate) struct Room {
    all: Arc<Snapshots>,
    number: u64,
}

impl Room {
    /// The image that it will be based on: its source may be gone before it exists.
    pub(crate) fn keep_image(&self, digest: Option<&String>) {
        if let Some(being_made) = self.all.inner().making.get_mut(&self.number) {
            being_made.image_digest = digest.cloned();
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.inner().making.remove(&self.number);
    }
}

/// One archive being read or written.
#[derive(Debug)]
pub(crate) struct ArchiveTurn {
    all: Arc<Snapshots>,
    number: u64,
}

impl Drop for ArchiveTurn {
    fn drop(&mut self) {
        self.all.inner().archiving.remove(&self.number);
    }
}

impl Snapshots {
    pub(crate) fn new(config: &EngineConfig) -> Arc<Self> {
        Arc::new(Self {
            directory: config.home.join("snapshots"),
            most: config.max_snapshots,
            most_each: config.max_snapshots_each,
            inner: Mutex::default(),
            let_go: Notify::new(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change in there is one insert, remove or count; a panic elsewhere leaves it consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn directory_of(&self, id: &SnapshotId) -> PathBuf {
        self.directory.join(id.as_str())
    }

    /// A slot for one more of `who`, or why there is none.
    pub(crate) fn make_room(self: &Arc<Self>, who: &Principal) -> Result<Room> {
        let mut inner = self.inner();
        let refuse = |most: usize, has: usize, message: String| {
            Err(Error::over_limit(Limit::Snapshots, most as u64, has as u64 + 1, message))
        };
        let n_all = inner.by_id.len() + inner.making.len();
        if n_all >= self.most {
            return refuse(self.most, n_all, format!("the limit of {} snapshots is reached", self.most));
        }
        if let Some(key) = &who.key {
            let has = inner.by_id.values().map(|kept| &kept.snapshot.record.owner);
            let makes = inner.making.values().map(|being_made| &being_made.owner);
            let n_has = has.chain(makes).filter(|owner| owner.as_ref() == Some(key)).count();
            if n_has >= self.most_each {
                return refuse(
                    self.most_each,
                    n_has,
                    format!("{} may have {} snapshots and already has {n_has}", who.name, self.most_each),
                );
            }
        }
        inner.n_begun += 1;
        let number = inner.n_begun;
        inner.making.insert(number, BeingMade { owner: who.key.clone(), image_digest: None });
        Ok(Room { all: Arc::clone(self), number })
    }

    /// A turn of `who` to read or write an archive, or why there is none.
    pub(crate) fn begin_archive(self: &Arc<Self>, who: &Principal) -> Result<ArchiveTurn> {
        let mut inner = self.inner();
        let refuse = |message: String| {
            Err(Error::new(ErrorKind::LimitReached, message).with_hint("Wait until one of them finishes."))
        };
        if inner.archiving.len() >= MAX_ARCHIVES {
            return refuse(format!("{MAX_ARCHIVES} snapshot archives are already being read or written"));
        }
        let n_has = inner.archiving.values().filter(|owner| owner.is_some() && **owner == who.key).count();
        if n_has >= MAX_ARCHIVES_EACH {
            let name = &who.name;
            return refuse(format!("{name} is already reading or writing {n_has} snapshot archives"));
        }
        inner.n_begun += 1;
        let number = inner.n_begun;
        inner.archiving.insert(number, who.key.clone());
        Ok(ArchiveTurn { all: Arc::clone(self), number })
    }

    pub(crate) fn insert(&self, snapshot: Arc<Snapshot>) {
        let id = snapshot.record.id.clone();
        self.inner().by_id.insert(id, Kept { snapshot, n_holds: 0, is_going: false });
    }

    pub(crate) fn insert_held(self: &Arc<Self>, snapshot: Arc<Snapshot>) -> Hold {
        let kept = Kept { snapshot: Arc::clone(&snapshot), n_holds: 1, is_going: false };
        self.inner().by_id.insert(snapshot.record.id.clone(), kept);
        Hold { all: Arc::clone(self), snapshot }
    }

    /// Updates a snapshot unless it is gone; holds and removals are not affected.
    pub(crate) fn replace(&self, snapshot: Arc<Snapshot>) {
        if let Some(kept) = self.inner().by_id.get_mut(&snapshot.record.id) {
            kept.snapshot = snapshot;
        }
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

    pub(crate) fn by_id(&self, id: &SnapshotId) -> Option<Arc<Snapshot>> {
        self.inner().by_id.get(id).map(|kept| Arc::clone(&kept.snapshot))
    }

    fn find_by(&self, is_it: impl Fn(&SnapshotRecord) -> bool) -> Option<Arc<Snapshot>> {
        let inner = self.inner();
        let found = inner.by_id.values().find(|kept| !kept.is_going && is_it(&kept.snapshot.record));
        found.map(|kept| Arc::clone(&kept.snapshot))
    }

    /// The snapshot that `who` means; an invisible one does not exist for them.
    pub(crate) fn find(&self, who: &Principal, which: &SnapshotRef) -> Result<Arc<Snapshot>> {
        let namespace = which.namespace.clone().unwrap_or_else(|| who.home_namespace());
        let found = match &which.which {
            Which::Id(id) => self.by_id(id),
            // An error about several that match would tell strangers that there are some.
            Which::Digest(_) | Which::Name(..) if !who.sees(&namespace) => None,
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
                Err(Error::invalid(format!("{hex} matches the digests of several snapshots"))
                    .with_hint("Give more digits."))
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
                let message =
                    format!("{} is based on a snapshot that does not exist here: {parent}", top.label());
                Error::new(ErrorKind::WrongState, message)
                    .with_hint("Load an archive that includes its parents.")
            })?;
            beneath = found.manifest.parent.clone();
            chain.push(found);
        }
        Ok(chain)
    }

    /// Keeps it from being removed; `None` if that has begun.
    pub(crate) fn hold(self: &Arc<Self>, snapshot: &Arc<Snapshot>) -> Option<Hold> {
        let mut inner = self.inner();
        let kept = inner.by_id.get_mut(&snapshot.record.id).filter(|kept| !kept.is_going)?;
        kept.n_holds += 1;
        Some(Hold { all: Arc::clone(self), snapshot: Arc::clone(snapshot) })
    }

    /// Whether a sandbox in the making may still use all of these.
    pub(crate) fn check_usable(&self, ids: &[SnapshotId]) -> Result<()> {
        let inner = self.inner();
        match ids.iter().all(|id| inner.by_id.get(id).is_some_and(|kept| !kept.is_going)) {
            true => Ok(()),
            false => {
                Err(Error::not_found("the snapshot was removed meanwhile")
                    .with_next(Next::List(Thing::Snapshot)))
            }
        }
    }

    /// From now on nobody begins to use it. The caller checks for existing users, and undoes this if there are any.
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

    /// Labels of the snapshots made directly on others, by namespace and digest of those.
    pub(crate) fn children(&self) -> Children {
        let mut children = Children::new();
        for kept in self.inner().by_id.values() {
            let child = &kept.snapshot;
            if let Some(parent) = child.manifest.parent.clone() {
                children
                    .entry((child.record.namespace.clone(), parent))
                    .or_default()
                    .push(child.label().to_string());
            }
        }
        children
    }

    /// Calls `uses` with every image that a snapshot is or will be based on, and with the snapshot's label.
    pub(crate) fn each_image(&self, mut uses: impl FnMut(&str, String)) {
        let inner = self.inner();
        for kept in inner.by_id.values() {
            if let Some(digest) = &kept.snapshot.manifest.image_digest {
                uses(digest, kept.snapshot.label().to_string());
            }
        }
        for digest in inner.making.values().filter_map(|being_made| being_made.image_digest.as_ref()) {
            uses(digest, "a snapshot that is being created".to_owned());
        }
    }
}

/// The result of beginning a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Going {
    Begun,
    /// A request is reading it, or makes sandboxes from it.
    Held,
    Gone,
}

pub(crate) fn no_such_snapshot(which: impl std::fmt::Display) -> Error {
    Error::no_such(Thing::Snapshot, which.to_string())
}

pub(crate) fn too_deep(label: &Subject) -> Error {
    let message = format!("{label} is already based on {MAX_SNAPSHOT_CHAIN} snapshots, which is the limit");
    Error::new(ErrorKind::LimitReached, message)
        .with_hint("Copy its files out, and start again from the image with them.")
}

type Children = HashMap<(Namespace, String), Vec<String>>;

/// The users of each snapshot: determined once for any number of snapshots.
#[derive(Debug)]
pub(crate) struct Users {
    pub(crate) of_trees: TreeUsers,
    pub(crate) children: Children,
}

impl Users {
    /// Sandboxes and snapshots made on this one.
    pub(crate) fn of(&self, snapshot: &Snapshot) -> Vec<String> {
        let mut all = self.of_trees.get(&snapshot.record.id).cloned().unwrap_or_default();
        all.sort();
        let key = (snapshot.record.namespace.clone(), snapshot.record.digest.clone());
        all.extend(self.children.get(&key).into_iter().flatten().cloned());
        all
    }
}

/// Which sandboxes use which snapshots.
pub(crate) type TreeUsers = HashMap<SnapshotId, Vec<String>>;
