//! Simulated volumes: files that are only in memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use sandbox::{
    BackendError, Base, Defaults, SandboxId, SandboxSpec, VolumeId, VolumeKind, VolumeStorage, plan,
};

use super::{
    files::{Files, MAX_FILES_BYTES},
    guest::{Guest, lock},
    instance::FakeInstance,
    switches::Switches,
};

/// Nothing runs where a volume is shown.
const MAX_PROCESSES: usize = 0;

/// Files of every volume.
#[derive(Debug, Default)]
pub(super) struct Volumes(Mutex<BTreeMap<VolumeId, Arc<Mutex<Files>>>>);

impl Volumes {
    pub(super) fn make(&self, id: &VolumeId, kind: VolumeKind) -> VolumeStorage {
        lock(&self.0).insert(id.clone(), Arc::new(Mutex::new(Files::empty(MAX_FILES_BYTES))));
        match kind {
            VolumeKind::Directory => VolumeStorage::Directory,
            VolumeKind::Disk => VolumeStorage::Image,
        }
    }

    fn files(&self, id: &VolumeId) -> Result<Arc<Mutex<Files>>, BackendError> {
        let missing = || BackendError::Failed { what: format!("there is no volume {id}"), source: None };
        lock(&self.0).get(id).cloned().ok_or_else(missing)
    }

    pub(super) fn used(&self, id: &VolumeId) -> Result<u64, BackendError> {
        Ok(lock(&*self.files(id)?).bytes())
    }

    pub(super) fn remove(&self, id: &VolumeId) {
        lock(&self.0).remove(id);
    }

    pub(super) fn open(
        &self,
        id: &SandboxId,
        volume: &VolumeId,
        switches: Arc<Switches>,
    ) -> Result<FakeInstance, BackendError> {
        let failed = |what: &str| BackendError::Failed { what: what.to_owned(), source: None };
        let files = self.files(volume)?;
        let name = "volume".parse().map_err(|error| BackendError::failed("no name", error))?;
        let (spec, defaults) = (SandboxSpec::default(), Defaults::default());
        let plan = plan(
            id,
            &name,
            &spec,
            &defaults,
            &Base::host(),
            &[sandbox::Capabilities::all(sandbox::BackendKind::Fake)],
        )
        .map_err(|error| failed(&error.to_string()))?;
        let guest = Arc::new(Guest::new(plan.hostname.clone(), MAX_PROCESSES, files));
        Ok(FakeInstance::new(&plan, guest, switches))
    }
}
