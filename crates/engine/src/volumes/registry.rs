//! Every volume, in memory; the store has the same.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sandbox::{Error, ErrorKind, Namespace, Next, Result, SandboxName, Thing, VolumeId, VolumeName};
use store::{CorruptRow, StoreError, VolumeRecord, VolumeState};
use tokio::sync::Semaphore;

use super::{MEASURE_AT_ONCE, Measured, VolumeLimits, open::OpenVolumes};
use crate::{Principal, error};

#[derive(Debug)]
pub(crate) struct Volumes {
    limits: VolumeLimits,
    all: Mutex<BTreeMap<VolumeId, Entry>>,
    /// Records that could not be read when the engine opened; their files are left alone.
    corrupt: Mutex<Vec<CorruptRow>>,
    /// Instances of volumes whose files are in use.
    pub(crate) in_use: OpenVolumes,
    /// Turns to measure a volume, for lists and for writers: a list does not hold up a writer.
    to_tell: Arc<Semaphore>,
    to_write: Arc<Semaphore>,
}

#[derive(Debug)]
struct Entry {
    record: VolumeRecord,
    /// It is being made or removed right now.
    is_busy: bool,
}

impl Volumes {
    pub(crate) fn new(limits: VolumeLimits) -> Self {
        Self {
            limits,
            all: Mutex::default(),
            corrupt: Mutex::default(),
            in_use: OpenVolumes::default(),
            to_tell: Arc::new(Semaphore::new(MEASURE_AT_ONCE)),
            to_write: Arc::new(Semaphore::new(MEASURE_AT_ONCE)),
        }
    }

    pub(super) fn turns_to_measure(&self, why: Measured) -> Arc<Semaphore> {
        Arc::clone(match why {
            Measured::ToTell => &self.to_tell,
            Measured::ToWrite => &self.to_write,
        })
    }

    /// Loads the store's records.
    pub(super) fn load(&self, records: Vec<VolumeRecord>, corrupt: Vec<CorruptRow>) {
        let entries = records.into_iter().map(|record| {
            let is_busy = record.state != VolumeState::Ready;
            (record.id.clone(), Entry { record, is_busy })
        });
        self.all().extend(entries);
        *self.corrupt() = corrupt;
    }

    /// Takes the name for a volume that `who` is about to make.
    pub(super) fn reserve(&self, who: &Principal, record: VolumeRecord) -> Result<()> {
        let mut all = self.all();
        self.limits.check(who, &record.spec, all.values().map(|entry| &entry.record))?;
        let (namespace, name) = (record.spec.namespace.clone(), record.spec.name.clone());
        if all.values().any(|entry| entry.is_called(&namespace, &name)) {
            return Err(error::from_store(StoreError::VolumeTaken { name, namespace }));
        }
        all.insert(record.id.clone(), Entry { record, is_busy: true });
        Ok(())
    }

    /// It is complete now.
    pub(super) fn publish(&self, record: VolumeRecord) {
        self.all().insert(record.id.clone(), Entry { record, is_busy: false });
    }

    pub(super) fn forget(&self, id: &VolumeId) {
        self.all().remove(id);
    }

    /// Whether any trace of it is known, whatever its state: such files are not leftovers.
    pub(super) fn knows(&self, id: &VolumeId) -> bool {
        self.all().contains_key(id) || self.corrupt().iter().any(|row| row.id == id.as_str())
    }

    /// Returns the volumes that callers may see, oldest first.
    pub(super) fn ready(&self) -> Vec<VolumeRecord> {
        let mut ready: Vec<_> =
            self.all().values().filter(|entry| entry.is_ready()).map(Entry::copy).collect();
        ready.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        ready
    }

    pub(crate) fn named(&self, namespace: &Namespace, name: &VolumeName) -> Option<VolumeRecord> {
        let all = self.all();
        all.values().find(|entry| entry.is_ready() && entry.is_called(namespace, name)).map(Entry::copy)
    }

    pub(crate) fn get(&self, id: &VolumeId) -> Option<VolumeRecord> {
        self.all().get(id).filter(|entry| entry.is_ready()).map(Entry::copy)
    }

    /// Marks one for removal, unless `users` finds a user. From then on nobody new finds it: a sandbox that had found
    /// it before and was not yet among its users looks for it again before it starts.
    pub(super) fn begin_removal(
        &self,
        namespace: &Namespace,
        name: &VolumeName,
        users: impl FnOnce(&VolumeId) -> Vec<SandboxName>,
    ) -> Result<Option<VolumeRecord>> {
        let mut all = self.all();
        let Some(entry) = all.values_mut().find(|entry| entry.is_called(namespace, name) && !entry.is_busy)
        else {
            return Ok(None);
        };
        let users = users(&entry.record.id);
        if !users.is_empty() {
            return Err(in_use(name, &users));
        }
        entry.record.state = VolumeState::Removing;
        entry.is_busy = true;
        Ok(Some(entry.copy()))
    }

    /// It could not be removed. It stays as it is, perhaps incomplete, until somebody tries again.
    pub(super) fn removal_failed(&self, id: &VolumeId) {
        if let Some(entry) = self.all().get_mut(id) {
            entry.is_busy = false;
        }
    }

    /// Whether one is being made, removed or used.
    pub(crate) fn is_at_work(&self) -> bool {
        !self.in_use.is_empty() || self.all().values().any(|entry| entry.is_busy)
    }

    /// Records of an earlier daemon that was cut short.
    pub(super) fn unfinished(&self) -> Vec<VolumeRecord> {
        self.all()
            .values()
            .filter(|entry| entry.record.state != VolumeState::Ready)
            .map(Entry::copy)
            .collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Entry>> {
        // Every change in there is one insert, one remove or one mark; a panic elsewhere leaves it consistent.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn corrupt(&self) -> MutexGuard<'_, Vec<CorruptRow>> {
        self.corrupt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_ready(&self) -> bool {
        self.record.state == VolumeState::Ready
    }

    fn is_called(&self, namespace: &Namespace, name: &VolumeName) -> bool {
        self.record.spec.namespace == *namespace && self.record.spec.name == *name
    }

    fn copy(&self) -> VolumeRecord {
        self.record.clone()
    }
}

/// Most users that a message names.
const MAX_NAMED_USERS: usize = 8;

fn in_use(name: &VolumeName, users: &[SandboxName]) -> Error {
    let mut named: Vec<_> = users.iter().take(MAX_NAMED_USERS).map(ToString::to_string).collect();
    if users.len() > MAX_NAMED_USERS {
        named.push(format!("{} more", users.len() - MAX_NAMED_USERS));
    }
    let message = format!("volume {name} is used by {}", named.join(", "));
    Error::new(ErrorKind::WrongState, message).with_next(Next::RemoveUsers(Thing::Volume))
}
