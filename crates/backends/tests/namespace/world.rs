//! A back end on a home of its own, and a small client for the guests it makes.

use std::path::PathBuf;

use backends::namespace::{Directories, NamespaceBackend};
use sandbox::{
    Backend, BackendSnapshots, BackendVolumes, Defaults, Instance, SandboxId, SandboxPlan, SandboxSpec,
    SnapshotId, VolumeId,
};

pub(crate) use crate::client::*;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) backend: NamespaceBackend,
    pub(crate) directories: Directories,
    /// Its sandboxes take places that were made before they were asked for.
    pub(crate) has_pool: bool,
}

/// How often a place that waits is looked for.
const LOOKS: u32 = 2000;

pub(crate) fn fresh_snapshot() -> SnapshotId {
    SnapshotId::from_random(random())
}

pub(crate) fn fresh_volume() -> VolumeId {
    VolumeId::from_random(random())
}

impl World {
    pub(crate) fn plan_with(&self, spec: &SandboxSpec) -> SandboxPlan {
        let id = fresh_id();
        let name = "box".parse().unwrap();
        sandbox::plan(
            &id,
            &name,
            spec,
            &Defaults::default(),
            &sandbox::Base::host(),
            &[sandbox::Capabilities::all(sandbox::BackendKind::Namespace)],
        )
        .unwrap()
    }

    /// The plan of a plain sandbox, which takes a place from the pool where there is one.
    pub(crate) fn plan(&self) -> SandboxPlan {
        let plan = self.plan_with(&SandboxSpec::default());
        if !self.has_pool {
            return plan;
        }
        let found = self.with_place(plan);
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(found))
    }

    /// The same plan, for a place that waits.
    pub(crate) async fn with_place(&self, plan: SandboxPlan) -> SandboxPlan {
        for _ in 0..LOOKS {
            if let Some(id) = self.backend.prepared(&plan) {
                return SandboxPlan { id, ..plan };
            }
            // Longer than the pool rests after somebody asked.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("no place waits");
    }

    pub(crate) async fn create(&self, plan: &SandboxPlan) -> Box<dyn Instance> {
        let made = tokio::time::timeout(PATIENCE, self.backend.create(plan)).await.unwrap();
        made.unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
    }

    /// The directory of the sandbox's own files.
    pub(crate) fn directory(&self, plan: &SandboxPlan) -> PathBuf {
        self.directories.home.join("sandboxes").join(plan.id.as_str())
    }

    /// The directory of a snapshot's files.
    pub(crate) fn tree(&self, id: &SnapshotId) -> PathBuf {
        self.directories.home.join("snapshots").join(id.as_str()).join("tree")
    }

    pub(crate) fn snapshots(&self) -> &dyn BackendSnapshots {
        self.backend.snapshots().unwrap()
    }

    pub(crate) fn volumes(&self) -> &dyn BackendVolumes {
        self.backend.volumes().unwrap()
    }

    pub(crate) fn run_directory(&self, id: &SandboxId) -> PathBuf {
        self.directories.run.join(id.as_str())
    }
}
