//! Sandboxes that are only simulated, for tests and for building clients on any machine.
//!
//! The guest speaks the whole protocol over memory: toy programs ([`commands`]), pretended interpreters
//! ([`cells`]), files in a map ([`files`]). Places and
//! files live in the [`FakeBackend`] value, so a new engine that is given the same one finds ("adopts") them again.

mod cells;
mod changed;
mod commands;
mod exec;
mod files;
mod guest;
mod hostile;
mod instance;
mod search;
mod shell;
mod switches;
mod trees;
mod volumes;
mod wire;

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use sandbox::{
    Backend, BackendError, BackendKind, BackendSnapshots, BackendVolumes, ByteSize, Capabilities, DiffQuery,
    DiffReport, Holding, Instance, SandboxId, SandboxPlan, SnapshotId, TreeCopy, TreeFacts, VolumeId,
    VolumeKind, VolumeStorage,
};

pub use self::switches::Hostility;
use self::{
    files::Files,
    guest::{Guest, lock},
    instance::FakeInstance,
    switches::Switches,
    volumes::Volumes,
};

/// Makes simulated sandboxes. Clones are the same back end.
#[derive(Debug, Clone)]
pub struct FakeBackend {
    capabilities: Arc<Mutex<Capabilities>>,
    places: Arc<Mutex<BTreeMap<SandboxId, FakeInstance>>>,
    /// Files outlive their place: a stopped sandbox keeps them.
    files: Arc<Mutex<BTreeMap<SandboxId, Arc<Mutex<Files>>>>>,
    volumes: Arc<Volumes>,
    /// Trees of snapshots, as [`trees`] writes them.
    trees: Arc<Mutex<BTreeMap<SnapshotId, Vec<u8>>>>,
    switches: Arc<Switches>,
}

impl Default for FakeBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeBackend {
    pub fn new() -> Self {
        Self {
            capabilities: Arc::new(Mutex::new(Capabilities::all(BackendKind::Fake))),
            places: Arc::default(),
            files: Arc::default(),
            volumes: Arc::default(),
            trees: Arc::default(),
            switches: Arc::default(),
        }
    }

    /// What `probe` answers from now on.
    pub fn set_capabilities(&self, capabilities: Capabilities) {
        *lock(&self.capabilities) = capabilities;
    }

    /// The next `create` fails with this; called twice, the next two do.
    pub fn fail_next_create(&self, error: BackendError) {
        self.switches.fail_next_create(error);
    }

    /// While `is_away`, no sandbox can be found again: the back end does not answer.
    pub fn be_away(&self, is_away: bool) {
        self.switches.be_away(is_away);
    }

    /// The next `n` connections to any guest fail; 0 ends it.
    pub fn fail_next_connects(&self, n: usize) {
        self.switches.fail_next_connects(n);
    }

    /// The next `n` connections to any guest are served by one that breaks the protocol; 0 ends it.
    pub fn be_hostile(&self, hostility: Hostility, n: usize) {
        self.switches.be_hostile(hostility, n);
    }

    /// Every `create` takes this long from now on.
    pub fn delay_starts(&self, delay: Duration) {
        self.switches.delay_starts(delay);
    }

    /// The next copy of a sandbox's files fails with this.
    pub fn fail_next_copy(&self, error: BackendError) {
        self.switches.fail_next_copy(error);
    }

    /// The next removal of a sandbox's files fails with this.
    pub fn fail_next_removal(&self, error: BackendError) {
        self.switches.fail_next_removal(error);
    }

    /// From now on copies of files stop in the middle, while `is_held` says true.
    pub fn hold_copies(&self, is_held: bool) {
        self.switches.hold_copies(is_held);
    }

    /// Returns when so many copies have begun since the back end was made.
    pub async fn copies_begun(&self, n: usize) {
        self.switches.copies_begun(n).await;
    }

    /// Whether the workload of a sandbox is frozen.
    pub fn is_paused(&self, id: &SandboxId) -> bool {
        self.live_place(id).is_some_and(|place| place.is_paused())
    }

    /// The place ends by itself, with everything in it. False when there is none.
    pub fn vanish(&self, id: &SandboxId) -> bool {
        let place = lock(&self.places).remove(id);
        place.inspect(FakeInstance::end).is_some()
    }

    /// Every place that exists now.
    pub fn live(&self) -> Vec<SandboxId> {
        let places = lock(&self.places);
        places.iter().filter(|(_, place)| place.is_live()).map(|(id, _)| id.clone()).collect()
    }

    /// Every sandbox whose files are kept.
    pub fn kept(&self) -> Vec<SandboxId> {
        lock(&self.files).keys().cloned().collect()
    }

    /// Changes what a snapshot holds, as a failing disk would.
    pub fn damage_snapshot(&self, id: &SnapshotId) {
        lock(&self.trees).insert(id.clone(), b"{}".to_vec());
    }

    fn tree(&self, id: &SnapshotId) -> Result<Vec<u8>, BackendError> {
        let missing = || BackendError::Failed { what: format!("there is no snapshot {id}"), source: None };
        lock(&self.trees).get(id).cloned().ok_or_else(missing)
    }

    fn live_place(&self, id: &SandboxId) -> Option<FakeInstance> {
        lock(&self.places).get(id).filter(|place| place.is_live()).cloned()
    }

    fn files_of(&self, plan: &SandboxPlan) -> Result<Arc<Mutex<Files>>, BackendError> {
        let beneath = plan.above.first().map(|id| trees::parse(&self.tree(id)?)).transpose()?;
        let mut all = lock(&self.files);
        let new = || {
            let mut files = Files::new(&plan.hostname, plan.limits.disk.bytes());
            if let Some(nodes) = beneath {
                files.nodes = nodes;
            }
            Arc::new(Mutex::new(files))
        };
        let files = Arc::clone(all.entry(plan.id.clone()).or_insert_with(new));
        drop(all);
        // The working directory is the one thing that a plan promises to be there.
        lock(&files).mkdir(&plan.cwd, true, None).unwrap_or_default();
        Ok(files)
    }
}

#[async_trait]
impl Backend for FakeBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Fake
    }

    async fn probe(&self) -> Result<Capabilities, BackendError> {
        Ok(lock(&self.capabilities).clone())
    }

    async fn create(&self, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError> {
        let delay = self.switches.start_delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if let Some(error) = self.switches.take_create_failure() {
            return Err(error);
        }
        if self.live_place(&plan.id).is_some() {
            return Err(BackendError::Failed {
                what: format!("sandbox {} exists already", plan.id),
                source: None,
            });
        }
        let max_processes = usize::try_from(plan.limits.pids).unwrap_or(usize::MAX);
        let guest = Arc::new(Guest::new(plan.hostname.clone(), max_processes, self.files_of(plan)?));
        let place = FakeInstance::new(plan, guest, Arc::clone(&self.switches));
        lock(&self.places).insert(plan.id.clone(), place.clone());
        Ok(Box::new(place))
    }

    async fn adopt(&self, plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError> {
        self.switches.check_there()?;
        Ok(self.live_place(&plan.id).map(|place| Box::new(place) as _))
    }

    async fn sweep(&self, alive: &[SandboxId], known: &[SandboxId]) -> Result<Vec<SandboxId>, BackendError> {
        let mut swept = BTreeSet::new();
        lock(&self.places).retain(|id, place| {
            let stays = alive.contains(id);
            if !stays {
                // One that ended by itself is no news.
                swept.extend(place.is_live().then(|| id.clone()));
                place.end();
            }
            stays
        });
        lock(&self.files).retain(|id, _| {
            let stays = known.contains(id) || alive.contains(id);
            swept.extend((!stays).then(|| id.clone()));
            stays
        });
        Ok(swept.into_iter().collect())
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), BackendError> {
        self.switches.check_there()?;
        if let Some(error) = self.switches.take_removal_failure() {
            return Err(error);
        }
        self.vanish(id);
        lock(&self.files).remove(id);
        Ok(())
    }

    fn volumes(&self) -> Option<&dyn BackendVolumes> {
        Some(self)
    }

    fn snapshots(&self) -> Option<&dyn BackendSnapshots> {
        Some(self)
    }
}

#[async_trait]
impl BackendVolumes for FakeBackend {
    async fn make(
        &self,
        id: &VolumeId,
        kind: VolumeKind,
        _limit: Option<ByteSize>,
    ) -> Result<VolumeStorage, BackendError> {
        Ok(self.volumes.make(id, kind))
    }

    async fn used(&self, id: &VolumeId) -> Result<u64, BackendError> {
        self.volumes.used(id)
    }

    async fn remove(&self, id: &VolumeId) -> Result<(), BackendError> {
        self.volumes.remove(id);
        Ok(())
    }

    async fn open(&self, place: &SandboxId, id: &VolumeId) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(self.volumes.open(place, id, Arc::clone(&self.switches))?))
    }
}

#[async_trait]
impl BackendSnapshots for FakeBackend {
    async fn take(
        &self,
        plan: &SandboxPlan,
        id: &SnapshotId,
        hold: Holding<'_>,
    ) -> Result<TreeCopy, BackendError> {
        hold.await?;
        self.switches.copying().await;
        if let Some(error) = self.switches.take_copy_failure() {
            return Err(error);
        }
        let nodes = lock(&*self.files_of(plan)?).nodes.clone();
        let (tree, copy) = trees::write(&nodes)?;
        lock(&self.trees).insert(id.clone(), tree);
        Ok(copy)
    }

    async fn facts(&self, id: &SnapshotId) -> Result<TreeFacts, BackendError> {
        trees::facts(&self.tree(id)?)
    }

    async fn export(&self, id: &SnapshotId, archive: OwnedFd) -> Result<(), BackendError> {
        let tree = self.tree(id)?;
        trees::blocking(move || trees::pack(&tree, archive)).await
    }

    async fn import(&self, id: &SnapshotId, archive: OwnedFd) -> Result<TreeFacts, BackendError> {
        let (tree, facts) = trees::blocking(move || trees::unpack(archive)).await?;
        lock(&self.trees).insert(id.clone(), tree);
        Ok(facts)
    }

    async fn remove(&self, id: &SnapshotId) -> Result<(), BackendError> {
        lock(&self.trees).remove(id);
        Ok(())
    }

    async fn diff(&self, plan: &SandboxPlan, query: DiffQuery) -> Result<DiffReport, BackendError> {
        let now = lock(&*self.files_of(plan)?).nodes.clone();
        let before = query.against.first().map(|id| self.tree(id)).transpose()?;
        trees::diff(plan, before, &now, &query)
    }
}
