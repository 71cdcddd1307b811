//! A back end for tests: real sandboxes of the namespace back end, with faults that a test can ask for.
//!
//! The test program is its own spawner and guest: see [`roles`]. A test that ends or panics leaves the host clean.

mod backend;
mod common;
mod hostile;
mod instance;
mod namespace;
mod network;
mod programs;
mod roles;
mod snapshots;
mod switches;
mod sys;
mod volumes;
mod wire;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use sandbox::{Backend, BackendError, Capabilities, HeldSecrets, Instance, SandboxId, SnapshotId};

use self::{instance::LiveInstance, namespace::TestNamespace, network::StandInNetwork, switches::Switches};
pub use self::{
    programs::{PICTURE, echo_datagrams_on, echo_server, echo_server_on},
    switches::Hostility,
};

/// Makes sandboxes with faults on request. Clones are the same back end; when the last one that a test holds goes, so
/// does everything that was made.
#[derive(Debug, Clone)]
pub struct TestBackend {
    shared: Arc<Shared>,
    _ends_everything: Option<Arc<EndsEverything>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The answer of `probe`, where a test decided that.
    capabilities: Mutex<Option<Capabilities>>,
    switches: Arc<Switches>,
    namespace: TestNamespace,
    network: StandInNetwork,
    instances: Mutex<BTreeMap<SandboxId, Arc<LiveInstance>>>,
    /// Everything that an engine was given, also of volumes.
    given: Mutex<Vec<Weak<LiveInstance>>>,
}

/// Ends all sandboxes when it is dropped.
#[derive(Debug)]
struct EndsEverything(Arc<Shared>);

impl Drop for EndsEverything {
    fn drop(&mut self) {
        for instance in lock(&self.0.given).drain(..).filter_map(|instance| instance.upgrade()) {
            instance.let_go();
        }
        self.0.namespace.end();
    }
}

impl Default for TestBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl TestBackend {
    pub fn new() -> Self {
        Self::on(TestNamespace::default())
    }

    /// One in the home of an engine that keeps images there.
    pub fn in_home(home: &Path) -> Self {
        Self::on(TestNamespace::in_home(home))
    }

    fn on(namespace: TestNamespace) -> Self {
        let shared = Arc::new(Shared { namespace, ..Shared::default() });
        Self { _ends_everything: Some(Arc::new(EndsEverything(Arc::clone(&shared)))), shared }
    }

    /// The same back end for an engine, whose tasks may outlive the test: they keep nothing alive.
    pub fn for_engine(&self) -> Arc<dyn Backend> {
        Arc::new(Self { shared: Arc::clone(&self.shared), _ends_everything: None })
    }

    /// Sets what `probe` answers from now on, instead of the truth.
    pub fn set_capabilities(&self, capabilities: Capabilities) {
        *lock(&self.shared.capabilities) = Some(capabilities);
    }

    /// From now on sandboxes have a network that carries nothing; call it before the engine opens.
    pub fn stand_in_for_network(&self) {
        self.shared.network.begin();
    }

    /// The secrets that the network holds for a sandbox.
    pub fn held_secrets(&self, id: &SandboxId) -> Option<HeldSecrets> {
        self.shared.network.held(id)
    }

    /// The network forgets all secrets, as it does when its daemon dies.
    pub fn forget_secrets(&self) {
        self.shared.network.forget_all();
    }

    /// The next `create` fails with this; called twice, the next two do.
    pub fn fail_next_create(&self, error: BackendError) {
        self.shared.switches.fail_next_create(error);
    }

    /// While `is_away`, no sandbox can be found again: the back end does not answer.
    pub fn be_away(&self, is_away: bool) {
        self.shared.switches.be_away(is_away);
    }

    /// The next `n` connections to any guest fail; 0 ends it.
    pub fn fail_next_connects(&self, n: usize) {
        self.shared.switches.fail_next_connects(n);
    }

    /// The next `n` connections to any guest are served by one that breaks the protocol; 0 ends it.
    pub fn be_hostile(&self, hostility: Hostility, n: usize) {
        self.shared.switches.be_hostile(hostility, n);
    }

    /// Every `create` takes this much longer from now on.
    pub fn delay_starts(&self, delay: Duration) {
        self.shared.switches.delay_starts(delay);
    }

    /// Volumes are made without a limit of their own from now on, as on a host that can only measure them.
    pub fn measure_quotas(&self) {
        self.shared.switches.measure_quotas();
    }

    /// The next copy of a sandbox's files fails with this.
    pub fn fail_next_copy(&self, error: BackendError) {
        self.shared.switches.fail_next_copy(error);
    }

    /// The next removal of a sandbox's files fails with this.
    pub fn fail_next_removal(&self, error: BackendError) {
        self.shared.switches.fail_next_removal(error);
    }

    /// From now on copies of files stop in the middle, while `is_held` says true.
    pub fn hold_copies(&self, is_held: bool) {
        self.shared.switches.hold_copies(is_held);
    }

    /// Returns when so many copies have begun since the back end was made.
    pub async fn copies_begun(&self, n: usize) {
        self.shared.switches.copies_begun(n).await;
    }

    /// Whether the workload of a sandbox is frozen.
    pub fn is_paused(&self, id: &SandboxId) -> bool {
        self.shared.live_instance(id).is_some_and(|instance| instance.is_paused())
    }

    /// The guest dies by itself, and everything in the sandbox with it. False when there is none.
    pub fn vanish(&self, id: &SandboxId) -> bool {
        lock(&self.shared.instances).remove(id);
        self.shared.namespace.kill_guest(id)
    }

    /// Every sandbox that lives now.
    pub fn live(&self) -> Vec<SandboxId> {
        let instances = lock(&self.shared.instances);
        instances.iter().filter(|(_, instance)| !instance.has_ended()).map(|(id, _)| id.clone()).collect()
    }

    /// Every sandbox whose files are kept.
    pub fn kept(&self) -> Vec<SandboxId> {
        let Some(directories) = self.shared.namespace.directories() else { return Vec::new() };
        namespace::ids_in(&directories.home.join("sandboxes"))
    }

    /// Changes what a snapshot holds, as a failing disk would.
    pub fn damage_snapshot(&self, id: &SnapshotId) {
        let home = self.shared.namespace.directories().map(|found| found.home.clone()).unwrap_or_default();
        let upper = home.join("snapshots").join(id.as_str()).join("tree/root/upper");
        fs::write(upper.join("damage"), "x").unwrap_or_else(|error| panic!("{}: {error}", upper.display()));
    }
}

impl Shared {
    fn live_instance(&self, id: &SandboxId) -> Option<Arc<LiveInstance>> {
        lock(&self.instances).get(id).filter(|instance| !instance.has_ended()).cloned()
    }

    /// Stands between the engine and an instance of a sandbox from now on.
    fn keep(&self, id: &SandboxId, real: Box<dyn Instance>) -> Box<dyn Instance> {
        let instance = self.wrap(real);
        lock(&self.instances).insert(id.clone(), Arc::clone(&instance));
        Box::new(instance::TestInstance(instance))
    }

    fn wrap(&self, real: Box<dyn Instance>) -> Arc<LiveInstance> {
        let instance = LiveInstance::new(real.into(), Arc::clone(&self.switches));
        lock(&self.given).push(Arc::downgrade(&instance));
        instance
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panicking test left is still to be cleared away.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
