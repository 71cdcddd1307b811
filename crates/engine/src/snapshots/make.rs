//! Makes a snapshot: the sandbox stands still only for the copy; then the copy is read, described and recorded.

use std::{collections::BTreeMap, sync::Arc};

use sandbox::{
    Error, ErrorKind, EventKind, MAX_SNAPSHOT_CHAIN, Result, RootfsPlan, SNAPSHOT_FORMAT, SandboxPlan,
    SnapshotId, SnapshotManifest, SnapshotName, SnapshotSource,
};
use store::SnapshotRecord;
use tokio::sync::oneshot;

use super::{
    disk, manifest,
    registry::{Hold, Room, Snapshot, short, too_deep},
    remove,
};
use crate::{
    Principal,
    core::{Changeable, Core, until},
    disk::may_block,
    driver::{Captured, Command},
    error,
    lifecycle::ask,
    names,
};

/// The request for a new snapshot.
#[derive(Debug)]
pub(super) struct Wish {
    /// None: for forks.
    pub(super) name: Option<SnapshotName>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) replace: bool,
}

/// Makes one, completely or not at all. If the caller goes away before it is recorded, none is left.
pub(super) async fn make(core: &Arc<Core>, who: &Principal, sandbox: Changeable, wish: Wish) -> Result<Hold> {
    let room = core.snapshots.make_room(who)?;
    let (tell, told) = oneshot::channel();
    let (task_core, owner) = (Arc::clone(core), who.key.clone());
    let closing = core.closing.clone();
    core.drivers.spawn(async move {
        let work = async {
            let is_unwanted = || tell.is_closed();
            let maker = Maker { core: &task_core, sandbox: &sandbox, owner, is_unwanted: &is_unwanted };
            let made = maker.run(wish, room).await;
            // A caller who goes away from here on leaves it.
            drop(tell.send(made));
        };
        until(&closing, work).await;
    });
    told.await.map_err(|_dropped| error::closing())?
}

struct Maker<'a> {
    core: &'a Arc<Core>,
    sandbox: &'a Changeable,
    owner: Option<sandbox::KeyId>,
    /// Whether nobody waits for it any more.
    is_unwanted: &'a (dyn Fn() -> bool + Sync),
}

impl Maker<'_> {
    fn check_wanted(&self) -> Result<()> {
        if (self.is_unwanted)() {
            return Err(Error::new(ErrorKind::Cancelled, "the caller no longer waits for the snapshot"));
        }
        Ok(())
    }

    async fn run(&self, wish: Wish, room: Room) -> Result<Hold> {
        let plan = self.sandbox.status.borrow().record.plan.clone();
        room.keep_image(plan.image_digest.as_ref());
        let label = self.sandbox.label();
        if plan.above.len() >= MAX_SNAPSHOT_CHAIN {
            return Err(too_deep(&label));
        }
        // Held: the sandbox may be removed once it is copied, and its base with it.
        let parent = self.hold_parent(&plan)?;
        let id = SnapshotId::from_random(names::random_bytes()?);
        may_block(|| disk::begin(&self.core.snapshots.directory, &id))?;
        let made = self.fill(&id, wish, parent.as_ref()).await;
        if made.is_err() {
            disk::remove(self.core, &id).await;
        }
        made
    }

    fn hold_parent(&self, plan: &SandboxPlan) -> Result<Option<Hold>> {
        let Some(id) = plan.above.first() else { return Ok(None) };
        let parent = self.core.snapshots.by_id(id);
        let held = parent.and_then(|parent| self.core.snapshots.hold(&parent));
        let lost = || {
            let message = format!("the snapshot that {} was made from is gone", self.sandbox.label());
            Error::new(ErrorKind::WrongState, message).with_hint("Reindex snapshots, then try again.")
        };
        held.map(Some).ok_or_else(lost)
    }

    async fn fill(&self, id: &SnapshotId, wish: Wish, parent: Option<&Hold>) -> Result<Hold> {
        let label = self.sandbox.label();
        let into = id.clone();
        let captured = ask(self.sandbox, |reply| Command::Capture { into, reply }).await?;
        // Describing it takes as long as copying it.
        self.check_wanted()?;
        let facts = self.core.backends.snapshots()?.facts(id).await;
        let tree = facts.map_err(|error| error::from_backend(error, &label))?;
        let Captured { record: source, held, copy } = captured;
        tracing::debug!(
            sandbox = %source.id, ?held, copy.bytes, copy.shared_bytes, copy.n_entries, "files copied for a snapshot"
        );
        let manifest = SnapshotManifest {
            format: SNAPSHOT_FORMAT,
            created_at: self.core.clock.now(),
            image: source.plan.image.clone(),
            image_digest: source.plan.image_digest.clone(),
            host_path: host_path(&source.plan),
            parent: parent.map(|hold| hold.snapshot.record.digest.clone()),
            tree,
            labels: wish.labels,
            config: super::base::config_of(&source),
            source: SnapshotSource {
                sandbox: source.name.clone(),
                limits: source.spec.limits.clone(),
                network: source.spec.network.clone(),
            },
        };
        let text = manifest::canonical(&manifest)?;
        let record = SnapshotRecord {
            id: id.clone(),
            namespace: source.namespace.clone(),
            name: wish.name,
            digest: manifest::digest_of(text.as_bytes()),
            manifest: text,
            held_micros: held.map(|held| u64::try_from(held.as_micros()).unwrap_or(u64::MAX)),
            owner: self.owner.clone(),
            created_at: self.core.clock.now(),
        };
        self.check_wanted()?;
        let hold = publish(self.core, record, wish.replace).await?;
        let told = match &hold.snapshot.record.name {
            Some(name) => name.to_string(),
            None => short(&hold.snapshot.record.digest).to_owned(),
        };
        let of = &self.sandbox;
        self.core.emit(&of.subject, &of.name(), EventKind::SnapshotCreated, None, told).await;
        Ok(hold)
    }
}

/// Records a complete snapshot and registers it. Once recorded it exists, whatever happens to the daemon.
pub(super) async fn publish(core: &Arc<Core>, record: SnapshotRecord, replace: bool) -> Result<Hold> {
    // A snapshot that cannot be read back is never recorded.
    let snapshot = Arc::new(Snapshot::new(record.clone())?);
    let before = match &record.name {
        Some(name) if replace => core.snapshots.named(&record.namespace, name),
        _ => None,
    };
    // Both in one step: the previous one loses its name only to an existing one.
    let recorded = match &before {
        Some(before) => core.store.replace_snapshot(before.record.id.clone(), record.clone()).await,
        None => core.store.insert_snapshot(record.clone()).await,
    };
    recorded.map_err(error::from_store)?;
    if let Err(error) = may_block(|| disk::describe(&core.snapshots.directory, &record)) {
        core.store.remove_snapshot(record.id).await.map_err(error::from_store)?;
        if let Some(before) = &before {
            // Nobody else knows yet that it had lost its name.
            core.store.update_snapshot(before.record.clone()).await.map_err(error::from_store)?;
        }
        return Err(error);
    }
    // In one step: an unnamed one, for forks, is collected as soon as nobody holds it.
    let hold = core.snapshots.insert_held(snapshot);
    if let Some(before) = &before {
        let nameless = SnapshotRecord { name: None, ..before.record.clone() };
        remove::renamed(core, nameless)?;
    }
    if before.is_some() {
        remove::collect(core).await;
    }
    Ok(hold)
}

/// A snapshot's base is named by digest, so that it is the same everywhere; or, if it has none, by its path here.
fn host_path(plan: &SandboxPlan) -> Option<RootfsPlan> {
    match &plan.rootfs {
        RootfsPlan::Host | RootfsPlan::Image => None,
        RootfsPlan::Directory { .. } | RootfsPlan::Disk { .. } => Some(plan.rootfs.clone()),
    }
}
