//! Snapshots and forks: changes of sandboxes, kept as trees that others are made on.
//!
//! A snapshot is a tree kept by the back end, a manifest that names everything by digest (`manifest`), and a record.
//! Sandboxes made from one copy nothing: its tree is one more layer beneath theirs (`base`). Its users are found in the
//! records of sandboxes and snapshots; nothing is counted on disk (`registry`).

mod archive;
pub(crate) mod base;
mod diff;
mod disk;
mod fork;
mod make;
mod manifest;
mod reference;
mod registry;
mod reindex;
mod remove;
mod restore;
mod view;

use std::sync::Arc;

use sandbox::{
    Error, ErrorKind, EventKind, Namespace, Next, Result, SandboxName, SandboxPlan, SnapshotId, SnapshotName,
    Subject, Thing, check_snapshot_labels,
};
use store::{NewEvent, SnapshotRecord};

pub use self::{
    archive::SaveOptions,
    diff::{DiffSpec, Since},
    fork::{ForkSpec, MAX_FORKS},
    reference::SnapshotRef,
    reindex::Reindexed,
    restore::RestoreSpec,
    view::{SnapshotCheck, SnapshotFate, SnapshotSpec, SnapshotView},
};
use self::{
    make::Wish,
    registry::{Hold, Snapshot, Users},
};
pub(crate) use self::{
    registry::{Snapshots, TreeUsers},
    reindex::recover,
};
use crate::{
    Engine, Force, Principal,
    core::{Core, until},
    disk::may_block,
    error, names,
};

/// Longest part of a sandbox's name in an invented name of a snapshot.
const MAX_NAME_PART: usize = 48;

impl Engine {
    /// Copies the changes of a sandbox, running or stopped. A running one stands still only for the copy. If the caller
    /// goes away before it is recorded, none is left.
    #[crate::boxed]
    pub async fn create_snapshot(&self, who: &Principal, spec: SnapshotSpec) -> Result<SnapshotView> {
        let core = self.core();
        let sandbox = core.find_to_change(who, &spec.from).await?;
        check_snapshot_labels(&spec.labels)?;
        let name = match spec.name {
            Some(name) => name,
            None => made_up_name(&sandbox.name())?,
        };
        if !spec.replace && core.snapshots.named(&sandbox.subject.namespace, &name).is_some() {
            let message =
                format!("snapshot {name} already exists in namespace {}", sandbox.subject.namespace);
            let taken = Subject::new(Thing::Snapshot, name.as_str());
            return Err(Error::new(ErrorKind::AlreadyExists, message)
                .about(Thing::Snapshot, name.as_str())
                .with_next(Next::FreeName(taken)));
        }
        let wish = Wish { name: Some(name), labels: spec.labels, replace: spec.replace };
        let made = make::make(core, who, sandbox, wish).await?;
        Ok(core.snapshot_view(&made.snapshot))
    }

    /// The oldest first, including unnamed ones.
    #[crate::boxed]
    pub async fn snapshots(
        &self,
        who: &Principal,
        namespace: Option<&Namespace>,
    ) -> Result<Vec<SnapshotView>> {
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        let is_meant = |snapshot: &Arc<Snapshot>| {
            let its = &snapshot.record.namespace;
            who.sees(its) && namespace.is_none_or(|namespace| namespace == its)
        };
        let all = core.snapshots.all().into_iter().filter(is_meant);
        let users = core.snapshots_users();
        let view = |snapshot: Arc<Snapshot>| {
            let path = core.snapshots.directory_of(&snapshot.record.id);
            SnapshotView::new(&snapshot, path, users.of(&snapshot))
        };
        Ok(all.map(view).collect())
    }

    #[crate::boxed]
    pub async fn snapshot(&self, who: &Principal, which: &SnapshotRef) -> Result<SnapshotView> {
        let snapshot = self.core().find_snapshot(who, which)?;
        Ok(self.core().snapshot_view(&snapshot))
    }

    /// Reads all of it, and with `parents` all beneath it, and compares that with the record.
    #[crate::boxed]
    pub async fn verify_snapshot(
        &self,
        who: &Principal,
        which: &SnapshotRef,
        parents: bool,
    ) -> Result<SnapshotCheck> {
        let core = self.core();
        let top = core.find_snapshot(who, which)?;
        let chain = if parents { core.snapshots.chain(&top)? } else { vec![Arc::clone(&top)] };
        let mut digests = Vec::with_capacity(chain.len());
        for snapshot in &chain {
            let held = core.hold_snapshot(snapshot)?;
            core.verify(&held).await?;
            digests.push(snapshot.record.digest.clone());
        }
        Ok(SnapshotCheck {
            digest: digests.remove(0),
            path: core.snapshots.directory_of(&top.record.id),
            tree: top.manifest.tree.clone(),
            parents: digests,
        })
    }

    /// Removes it. Refused while a sandbox or another snapshot is made on it; by force it then loses its name, and is
    /// removed with the last of them.
    #[crate::boxed]
    pub async fn remove_snapshot(
        &self,
        who: &Principal,
        which: &SnapshotRef,
        force: Force,
    ) -> Result<SnapshotFate> {
        who.may_change()?;
        let core = self.core();
        let snapshot = core.find_snapshot(who, which)?;
        let fate = remove::remove(core, &snapshot, force).await?;
        core.emit_of_snapshot(EventKind::SnapshotRemoved, &snapshot).await;
        Ok(fate)
    }
}

impl Core {
    pub(crate) fn find_snapshot(&self, who: &Principal, which: &SnapshotRef) -> Result<Arc<Snapshot>> {
        self.keys.admit(who, self.clock.now())?;
        self.snapshots.find(who, which)
    }

    pub(crate) fn hold_snapshot(&self, snapshot: &Arc<Snapshot>) -> Result<Hold> {
        let gone = || registry::no_such_snapshot(snapshot.label());
        self.snapshots.hold(snapshot).ok_or_else(gone)
    }

    /// Sandboxes and snapshots that are made on snapshots.
    fn snapshots_users(&self) -> Users {
        Users { of_trees: self.tree_users(), children: self.snapshots.children() }
    }

    /// Sandboxes and snapshots that are made on it.
    fn snapshot_users(&self, snapshot: &Snapshot) -> Vec<String> {
        self.snapshots_users().of(snapshot)
    }

    fn snapshot_view(&self, snapshot: &Snapshot) -> SnapshotView {
        SnapshotView::new(
            snapshot,
            self.snapshots.directory_of(&snapshot.record.id),
            self.snapshot_users(snapshot),
        )
    }

    async fn verify(&self, held: &Hold) -> Result<()> {
        let snapshot = &held.snapshot;
        let damaged = |why: String| {
            Error::new(ErrorKind::WrongState, format!("{} is damaged: {why}", snapshot.label())).with_hint(
                "Remove it and everything based on it, and load it again from an archive if you have one.",
            )
        };
        let directory = self.snapshots.directory_of(&snapshot.record.id);
        let text = tokio::task::spawn_blocking(move || disk::read_manifest(&directory)).await;
        let text = text.map_err(|_panicked| error::closing())?.map_err(|error| damaged(error.to_string()))?;
        let digest = manifest::digest_of(text.as_bytes());
        if digest != snapshot.record.digest {
            return Err(damaged(format!("its manifest has the digest {digest}")));
        }
        let facts = self.backends.snapshots()?.facts(&snapshot.record.id).await;
        let facts = facts.map_err(|error| error::from_backend(error, &snapshot.label()))?;
        if facts != snapshot.manifest.tree {
            let expected = &snapshot.manifest.tree.digest;
            return Err(damaged(format!("its files have the digest {}, not {expected}", facts.digest)));
        }
        Ok(())
    }

    async fn emit_of_snapshot(&self, kind: EventKind, snapshot: &Snapshot) {
        let event = NewEvent {
            at: self.clock.now(),
            kind,
            sandbox: None,
            name: None,
            namespace: Some(snapshot.record.namespace.clone()),
            exec: None,
            detail: snapshot.label().to_string(),
        };
        self.events.emit(event).await;
    }
}

/// `<sandbox>-<4 digits>`.
fn made_up_name(sandbox: &SandboxName) -> Result<SnapshotName> {
    let part: String = sandbox.as_str().chars().take(MAX_NAME_PART).collect();
    let number = u16::from_le_bytes(names::random_bytes()?);
    Ok(format!("{part}-{number:04x}").parse()?)
}

/// Registers the snapshots of an earlier daemon. Returns those that it left unfinished.
pub(crate) async fn take_up(core: &Arc<Core>) -> Result<Vec<SnapshotId>> {
    let rows = core.store.snapshots().await.map_err(error::from_store)?;
    for row in &rows.corrupt {
        tracing::error!(snapshot = row.id, reason = row.reason, "the record of a snapshot cannot be read");
    }
    let mut found = may_block(|| disk::look_around(&core.snapshots.directory));
    let unreadable = |id: &SnapshotId| rows.corrupt.iter().any(|row| row.id == id.as_str());
    found.undescribed.retain(|id| !unreadable(id));
    for record in rows.records {
        if found.undescribed.contains(&record.id)
            && let Err(error) = may_block(|| disk::describe(&core.snapshots.directory, &record))
        {
            tracing::warn!(snapshot = %record.id, error = &error as &dyn std::error::Error, "a snapshot is not described");
        }
        make_known(core, record);
    }
    let is_unknown = |id: &&SnapshotId| !core.snapshots.is_known(id);
    let n = found.described.iter().filter(is_unknown).count();
    if n > 0 {
        tracing::warn!(n, "snapshots on disk have no record; reindexing finds them");
    }
    Ok(found.undescribed.iter().filter(is_unknown).cloned().collect())
}

fn make_known(core: &Core, record: SnapshotRecord) {
    let id = record.id.clone();
    match Snapshot::new(record) {
        Ok(snapshot) => core.snapshots.insert(Arc::new(snapshot)),
        Err(error) => {
            tracing::error!(snapshot = %id, error = &error as &dyn std::error::Error, "a snapshot cannot be used");
        }
    }
}

/// Removes leftovers of an earlier daemon, and unused snapshots.
pub(crate) async fn sweep(core: &Arc<Core>, leftovers: Vec<SnapshotId>) {
    // A complete one may lack a record because the database lost it.
    for id in leftovers.iter().filter(|_| core.recovery.is_complete) {
        disk::remove(core, id).await;
    }
    remove::collect(core).await;
    let (task_core, closing) = (Arc::clone(core), core.closing.clone());
    let collecting = async move {
        loop {
            task_core.snapshots.let_go.notified().await;
            remove::collect(&task_core).await;
        }
    };
    core.drivers.spawn(async move { until(&closing, collecting).await });
}

/// A sandbox is gone: it may have been the last user of some snapshot.
pub(crate) fn user_gone(core: &Arc<Core>, plan: &SandboxPlan) {
    if plan.above.is_empty() {
        return;
    }
    let (task_core, closing) = (Arc::clone(core), core.closing.clone());
    core.drivers.spawn(async move {
        until(&closing, remove::collect(&task_core)).await;
    });
}
