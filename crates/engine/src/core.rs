//! The state that every driver and every use case shares.

use std::{
    collections::HashMap,
    net::SocketAddr,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sandbox::{
    BackendError, ByteSize, Capability, Error, ErrorKind, KeyId, Limit, MountOrigin, MountPlan, Namespace,
    Next, RequestId, Result, SandboxId, SandboxName, SandboxPlan, Subject, Thing, VolumeId,
};
use store::{CorruptRow, Store};
use tokio::sync::{RwLock, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    Force, Principal, Quota, SandboxRef,
    audit::AuditLog,
    backends::Backends,
    clock::Clock,
    config::EngineConfig,
    disk::{Disk, remove_directory},
    error,
    events::EventLog,
    feed::{Counters, Feed, Sampler},
    images::ImageStore,
    keys::Keys,
    links::LinkSecret,
    metrics::Metrics,
    network::CaughtUp,
    packages::Jobs,
    recover::Recovery,
    reference::Which,
    sessions::Shares,
    shared::Shared,
    snapshots::{Snapshots, TreeUsers},
    ssh_keys::SshKeys,
    tasks::Tasks,
    turns::Turns,
    volumes::Volumes,
};

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: EngineConfig,
    pub(crate) store: Store,
    pub(crate) backends: Backends,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) events: EventLog,
    pub(crate) audit: AuditLog,
    pub(crate) feed: Feed,
    pub(crate) sampler: Sampler,
    pub(crate) counters: Counters,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) keys: Keys,
    pub(crate) ssh_keys: SshKeys,
    pub(crate) shares: Shares,
    pub(crate) link_secret: LinkSecret,
    /// Signs for callers without a key who are not the daemon's owner.
    pub(crate) passing_link_secret: LinkSecret,
    pub(crate) disk: Disk,
    pub(crate) jobs: Jobs,
    pub(crate) volumes: Volumes,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) images: ImageStore,
    /// True once every sandbox of an earlier daemon is adopted, and leftovers are swept.
    pub(crate) is_settled: watch::Sender<bool>,
    /// Held for reading by makers of instances, for writing by the sweep: an instance in the making is not a leftover.
    pub(crate) making: RwLock<()>,
    /// Names whose sandbox is being replaced.
    pub(crate) replacing: Turns<(Namespace, Option<SandboxName>)>,
    /// Serializes creates with the same name, until the first one is published: whoever learns that a name is taken can
    /// find the sandbox that has it.
    pub(crate) naming: Turns<(Namespace, SandboxName)>,
    /// Serializes creates with the same request id.
    pub(crate) requests: Turns<(Namespace, RequestId)>,
    /// Listeners of the daemon itself, which no sandbox may reach. Changes of published ports are told here too.
    pub(crate) own_listeners: watch::Sender<Vec<SocketAddr>>,
    pub(crate) caught_up: CaughtUp,
    registry: Mutex<Registry>,
    /// Records that could not be read when the engine opened.
    corrupt: Mutex<Vec<CorruptRow>>,
    /// The state of the home as the engine found it on opening.
    pub(crate) recovery: Recovery,
    /// Ends every task of the engine, as the death of the daemon would; sandboxes live on.
    pub(crate) closing: CancellationToken,
    pub(crate) drivers: Tasks,
}

/// Every sandbox there is, by id and by name.
#[derive(Debug, Default)]
struct Registry {
    by_id: HashMap<SandboxId, Registered>,
    by_name: HashMap<(Namespace, SandboxName), SandboxId>,
}

impl Registry {
    /// The id that begins so, if the caller sees exactly one.
    fn by_begin(&self, who: &Principal, begin: &str) -> Option<&SandboxId> {
        let mut fitting = self.by_id.iter().filter(|(id, entry)| {
            id.as_str().starts_with(begin)
                && who.sees_sandbox(&entry.shared.subject, entry.shared.owner.as_ref())
        });
        let (id, _) = fitting.next()?;
        fitting.next().is_none().then_some(id)
    }

    /// Whether there is room for one more sandbox of `who`, as if `without` were gone.
    fn check_room(
        &self,
        limit: usize,
        who: &Principal,
        memory: ByteSize,
        without: Option<&SandboxId>,
    ) -> Result<()> {
        let n_gone = usize::from(without.is_some_and(|id| self.by_id.contains_key(id)));
        if self.by_id.len() - n_gone >= limit {
            let message = format!("the limit of {limit} sandboxes is reached");
            return Err(Error::over_limit(Limit::Sandboxes, limit as u64, limit as u64 + 1, message));
        }
        self.check_quota(who, memory, without)
    }

    /// A request id is its caller's own: `owner` is the key, if one was used.
    fn requested(
        &self,
        namespace: &Namespace,
        owner: Option<&KeyId>,
        request: &RequestId,
    ) -> Option<Arc<Shared>> {
        let mut all = self.by_id.values().map(|entry| &entry.shared);
        let found = all.find(|shared| {
            shared.subject.namespace == *namespace
                && shared.owner.as_ref() == owner
                && shared.request_id.as_ref() == Some(request)
        });
        found.map(Arc::clone)
    }

    /// Whether this key's quota leaves room for one more. Stopped sandboxes count, and those in the making.
    fn check_quota(&self, who: &Principal, memory: ByteSize, without: Option<&SandboxId>) -> Result<()> {
        let Some(key) = who.key.as_ref().filter(|_| who.quota != Quota::default()) else { return Ok(()) };
        let others = self.by_id.iter().filter(|(id, _)| Some(*id) != without).map(|(_, entry)| entry);
        let own = others.filter(|entry| entry.shared.owner.as_ref() == Some(key));
        let (n_has, has) = own.fold((0_u32, 0_u64), |(n, sum), entry| {
            (n.saturating_add(1), sum.saturating_add(entry.shared.claimed_memory().bytes()))
        });
        let refused = |message: String, limit: Limit, most: u64, asked: u64| {
            Err(Error::over_limit(limit, most, asked, message))
        };
        if let Some(limit) = who.quota.sandboxes.filter(|limit| n_has >= *limit) {
            return refused(
                format!("{} may have {limit} sandboxes and already has {n_has}", who.name),
                Limit::KeySandboxes,
                limit.into(),
                u64::from(n_has) + 1,
            );
        }
        if let Some(limit) =
            who.quota.memory.filter(|limit| has.saturating_add(memory.bytes()) > limit.bytes())
        {
            let message = format!(
                "{} may have {limit} of memory and already has {}; {memory} more is too much",
                who.name,
                ByteSize(has)
            );
            return refused(message, Limit::KeyMemory, limit.bytes(), has.saturating_add(memory.bytes()));
        }
        Ok(())
    }
}

/// A sandbox that this caller may change. Every change requires it, so that none can forget the check: only
/// [`Core::find_to_change`] makes one.
#[derive(Debug, Clone)]
pub(crate) struct Changeable(Arc<Shared>);

impl Deref for Changeable {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

#[derive(Debug)]
struct Registered {
    shared: Arc<Shared>,
    /// False until its record is in the store: only then its name is its own.
    is_recorded: bool,
}

impl Core {
    #[expect(clippy::too_many_arguments, reason = "called once, where the engine opens")]
    pub(crate) fn new(
        config: EngineConfig,
        store: Store,
        backends: Backends,
        clock: Arc<dyn Clock>,
        events: EventLog,
        keys: Keys,
        ssh_keys: SshKeys,
        shares: Shares,
        corrupt: Vec<CorruptRow>,
        recovery: Recovery,
        closing: CancellationToken,
    ) -> Self {
        let feed = Feed::default();
        let audit = AuditLog::start(store.clone(), closing.clone(), feed.clone());
        let link_secret = LinkSecret::load(&config.home);
        let (snapshots, volumes) = (Snapshots::new(&config), Volumes::new(config.volumes));
        Self {
            config,
            store,
            backends,
            clock,
            metrics: Arc::clone(&events.metrics),
            events,
            audit,
            feed,
            sampler: Sampler::default(),
            counters: Counters::default(),
            keys,
            ssh_keys,
            shares,
            link_secret,
            passing_link_secret: LinkSecret::of_this_run(),
            disk: Disk::new(),
            jobs: Jobs::default(),
            volumes,
            snapshots,
            images: ImageStore::default(),
            is_settled: watch::Sender::new(false),
            making: RwLock::new(()),
            replacing: Turns::default(),
            naming: Turns::default(),
            requests: Turns::default(),
            own_listeners: watch::Sender::default(),
            caught_up: CaughtUp::default(),
            registry: Mutex::default(),
            corrupt: Mutex::new(corrupt),
            recovery,
            closing,
            drivers: Tasks::default(),
        }
    }

    /// Takes one of the slots that `max_sandboxes` and the caller's quota allow: counted and taken in one step. Returns
    /// the sandbox of the same request instead if there is one, or will be: that needs no second slot. `instead_of`: a
    /// sandbox that will be replaced, and does not count.
    pub(crate) fn reserve(
        &self,
        who: &Principal,
        shared: Arc<Shared>,
        instead_of: Option<&SandboxId>,
    ) -> Result<Option<Arc<Shared>>> {
        let mut registry = self.registry();
        if let Some(request) = &shared.request_id
            && let Some(known) = registry.requested(&shared.subject.namespace, shared.owner.as_ref(), request)
        {
            return Ok(Some(known));
        }
        registry.check_room(self.config.max_sandboxes, who, shared.claimed_memory(), instead_of)?;
        // With the registry locked: the removal of a snapshot looks for its users here afterwards.
        self.snapshots.check_usable(&shared.status.borrow().record.plan.above)?;
        registry.by_id.insert(shared.subject.id.clone(), Registered { shared, is_recorded: false });
        Ok(None)
    }

    /// The memory that counts against the owner's quota. If no memory limit covers the sum, the tmpfs mounts are added.
    pub(crate) fn claimed_memory(&self, plan: &SandboxPlan) -> ByteSize {
        let tmpfs_is_memory = self.backends.has(plan, Capability::MemoryLimit);
        let claimed = plan.limits.claimed_memory(tmpfs_is_memory);
        let mounts = plan.mounts.iter().filter(|_| !tmpfs_is_memory).map(|mount| match mount.source {
            MountOrigin::Tmpfs { size } => size.bytes(),
            MountOrigin::Volume { .. } | MountOrigin::Path { .. } | MountOrigin::Image { .. } => 0,
        });
        ByteSize(mounts.fold(claimed.bytes(), u64::saturating_add))
    }

    /// Whether [`Core::reserve`] would find a slot if `without` were gone. Takes none.
    pub(crate) fn check_room(
        &self,
        who: &Principal,
        memory: ByteSize,
        without: Option<&SandboxId>,
    ) -> Result<()> {
        self.registry().check_room(self.config.max_sandboxes, who, memory, without)
    }

    /// Lets a sandbox claim this much memory from now on, if the quota of the key that made it has room, whoever asks.
    /// Only the daemon's owner goes beyond.
    pub(crate) fn claim_memory(&self, who: &Principal, memory: ByteSize, of: &Shared) -> Result<()> {
        let owner = of.owner.as_ref().filter(|_| !who.is_owner);
        let owner = owner.and_then(|key| self.keys.quota_holder(key));
        // Looked at and claimed in one step.
        let registry = self.registry();
        if let Some(owner) = owner.filter(|_| memory > of.claimed_memory()) {
            registry.check_quota(&owner, memory, Some(&of.subject.id))?;
        }
        of.claim_memory(memory);
        Ok(())
    }

    /// Removes everything of a sandbox but its record. By force also when its back end does not answer: whatever the
    /// back end still holds is swept by the first daemon that has it again.
    pub(crate) async fn remove_files(&self, plan: &SandboxPlan, label: &Subject, force: Force) -> Result<()> {
        match self.backends.remove(plan).await {
            Err(error) if force == Force::Yes && is_unavailable(&error) => {
                tracing::warn!(sandbox = %plan.id, %error, "removed without its back end");
            }
            Err(error) if is_unavailable(&error) => {
                let next = Next::GiveUp(label.name.clone());
                return Err(error::from_backend(error, label).with_next(next));
            }
            removed => removed.map_err(|error| error::from_backend(error, label))?,
        }
        remove_directory(&self.config.sandbox_directory(&plan.id)).await
    }

    /// Makes a sandbox findable; its record is in the store.
    pub(crate) fn publish(&self, shared: &Arc<Shared>) {
        let subject = shared.subject.clone();
        let name = shared.status.borrow().record.name.clone();
        let mut registry = self.registry();
        registry.by_name.insert((subject.namespace, name), subject.id.clone());
        registry.by_id.insert(subject.id, Registered { shared: Arc::clone(shared), is_recorded: true });
        drop(registry);
        self.feed.sandbox(&shared.subject.id);
    }

    /// Forgets a sandbox whose record is gone.
    pub(crate) fn forget(&self, shared: &Shared) {
        let subject = &shared.subject;
        let mut registry = self.registry();
        registry.by_id.remove(&subject.id);
        let key = (subject.namespace.clone(), shared.status.borrow().record.name.clone());
        // The name may belong to another sandbox by now.
        if registry.by_name.get(&key) == Some(&subject.id) {
            registry.by_name.remove(&key);
        }
        drop(registry);
        self.feed.sandbox(&subject.id);
    }

    /// Updates the registry after a rename in the record.
    pub(crate) fn renamed(&self, shared: &Shared, before: &SandboxName, after: &SandboxName) {
        let (namespace, id) = (&shared.subject.namespace, &shared.subject.id);
        let mut registry = self.registry();
        let key = (namespace.clone(), before.clone());
        if registry.by_name.get(&key) == Some(id) {
            registry.by_name.remove(&key);
        }
        registry.by_name.insert((namespace.clone(), after.clone()), id.clone());
    }

    /// Returns when everything of an earlier daemon is adopted or removed.
    pub(crate) async fn settled(&self) {
        let mut is_settled = self.is_settled.subscribe();
        tokio::select! {
            _ = is_settled.wait_for(|settled| *settled) => {}
            () = self.closing.cancelled() => {}
        }
    }

    /// Whether a sandbox that callers can see has this name.
    pub(crate) fn is_name_known(&self, namespace: &Namespace, name: &SandboxName) -> bool {
        self.registry().by_name.contains_key(&(namespace.clone(), name.clone()))
    }

    /// The sandbox of that id, recorded or about to be.
    pub(crate) fn reserved(&self, id: &SandboxId) -> Option<Arc<Shared>> {
        self.registry().by_id.get(id).map(|entry| Arc::clone(&entry.shared))
    }

    /// The sandbox of that id, if it is recorded.
    pub(crate) fn recorded(&self, id: &SandboxId) -> Option<Arc<Shared>> {
        let registry = self.registry();
        let found = registry.by_id.get(id).filter(|entry| entry.is_recorded);
        found.map(|entry| Arc::clone(&entry.shared))
    }

    /// The sandbox that this request of this caller made, or is making.
    pub(crate) fn requested(
        &self,
        who: &Principal,
        namespace: &Namespace,
        request: &RequestId,
    ) -> Option<Arc<Shared>> {
        self.registry().requested(namespace, who.key.as_ref(), request)
    }

    /// All sandboxes, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Shared>> {
        let registry = self.registry();
        let recorded = registry.by_id.values().filter(|entry| entry.is_recorded);
        let mut all: Vec<_> = recorded.map(|entry| Arc::clone(&entry.shared)).collect();
        drop(registry);
        all.sort_by_cached_key(|shared| {
            (shared.status.borrow().record.created_at, shared.subject.id.clone())
        });
        all
    }

    /// The sandboxes that mount a volume, running or not, and those that are about to.
    pub(crate) fn volume_users(&self, volume: &VolumeId) -> Vec<SandboxName> {
        let mut users = Vec::new();
        self.each(|shared| {
            let mounts = &shared.status.borrow().record.plan.mounts;
            let shows =
                |mount: &MountPlan| matches!(&mount.source, MountOrigin::Volume { id } if id == volume);
            if mounts.iter().any(shows) {
                users.push(shared.name());
            }
        });
        users.sort();
        users
    }

    /// Which sandboxes use which snapshots, including sandboxes in the making.
    pub(crate) fn tree_users(&self) -> TreeUsers {
        let mut users = TreeUsers::new();
        self.each(|shared| {
            for id in &shared.status.borrow().record.plan.above {
                users.entry(id.clone()).or_default().push(shared.label().to_string());
            }
        });
        users
    }

    /// Calls `look` with every sandbox, including those in the making.
    pub(crate) fn each(&self, mut look: impl FnMut(&Shared)) {
        self.registry().by_id.values().for_each(|entry| look(&entry.shared));
    }

    /// Whether a sandbox in the making has no record yet.
    pub(crate) fn has_unrecorded(&self) -> bool {
        self.registry().by_id.values().any(|entry| !entry.is_recorded)
    }

    /// The sandbox that `who` means; an invisible one does not exist for them.
    pub(crate) fn find(&self, who: &Principal, which: &SandboxRef) -> Result<Arc<Shared>> {
        self.keys.admit(who, self.clock.now())?;
        let registry = self.registry();
        let id = match &which.0 {
            Which::Id(id) => Some(id),
            Which::Name { name, namespace } => {
                let namespace = namespace.clone().unwrap_or_else(|| who.home_namespace());
                registry.by_name.get(&(namespace, name.clone()))
            }
            Which::Begin(begin) => registry.by_begin(who, begin),
        };
        let found = id.and_then(|id| registry.by_id.get(id)).filter(|entry| entry.is_recorded);
        if let Some(entry) =
            found.filter(|entry| who.sees_sandbox(&entry.shared.subject, entry.shared.owner.as_ref()))
        {
            return Ok(Arc::clone(&entry.shared));
        }
        drop(registry);
        match self.corrupt_row(who, which) {
            Some((id, row)) => Err(Error::new(
                ErrorKind::Internal,
                format!("cannot read the record of {id}: {}", row.reason),
            )
            .about(Thing::Sandbox, id.as_str())
            .with_next(Next::Replace(id.to_string()))),
            None => Err(error::no_such_sandbox(which)),
        }
    }

    /// Like [`Core::find`], for changes.
    pub(crate) async fn find_to_change(&self, who: &Principal, which: &SandboxRef) -> Result<Changeable> {
        who.may_change()?;
        self.find_to_look(who, which).await.map(Changeable)
    }

    /// Like [`Core::find_to_change`], for removals: by force, gives up a sandbox whose back end does not answer.
    pub(crate) async fn find_to_remove(
        &self,
        who: &Principal,
        which: &SandboxRef,
        force: Force,
    ) -> Result<Changeable> {
        match self.find_to_change(who, which).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                let shared = self.find(who, which)?;
                match force {
                    Force::Yes if shared.is_unreachable() => {
                        shared.give_up().await;
                        Ok(Changeable(shared))
                    }
                    Force::No if shared.is_unreachable() => {
                        Err(error.with_next(Next::GiveUp(shared.name().to_string())))
                    }
                    _ => Err(error),
                }
            }
            found => found,
        }
    }

    /// Like [`Core::find`], for requests that look inside: waits while it is being adopted from an earlier daemon.
    pub(crate) async fn find_to_look(&self, who: &Principal, which: &SandboxRef) -> Result<Arc<Shared>> {
        let shared = self.find(who, which)?;
        tokio::select! {
            adopted = shared.adopted() => adopted?,
            () = self.closing.cancelled() => return Err(error::closing()),
        }
        Ok(shared)
    }

    /// An unreadable record, for callers who see every namespace: it does not say which namespace it belongs to.
    pub(crate) fn corrupt_row(&self, who: &Principal, which: &SandboxRef) -> Option<(SandboxId, CorruptRow)> {
        let Which::Id(id) = &which.0 else { return None };
        let row = self.corrupt().iter().find(|row| row.id == id.as_str()).cloned()?;
        (who.scope == crate::Scope::All).then(|| (id.clone(), row))
    }

    pub(crate) fn forget_corrupt(&self, id: &SandboxId) {
        self.corrupt().retain(|row| row.id != id.as_str());
    }

    pub(crate) fn corrupt(&self) -> MutexGuard<'_, Vec<CorruptRow>> {
        self.corrupt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the records are complete. If not, any image or snapshot may be in use.
    pub(crate) fn knows_all_sandboxes(&self) -> bool {
        self.corrupt().is_empty() && self.recovery.unknown.is_empty()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Every change in there is one insert or remove; a panic elsewhere leaves it consistent.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_unavailable(error: &BackendError) -> bool {
    matches!(error, BackendError::Unavailable { .. })
}

/// Runs a task of the engine until the engine closes. From that moment on it does nothing more: another daemon may have
/// taken over.
pub(crate) async fn until(closing: &CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = closing.cancelled() => {}
        () = task => {}
    }
}
