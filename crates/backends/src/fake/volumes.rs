//! Simulated volumes: directories on disk as the real ones have, with files that are only in memory.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use sandbox::{
    BackendError, Base, Defaults, MountOrigin, SandboxId, SandboxSpec, VolumeKind, VolumeStorage, plan,
};

use super::{
    files::{Files, MAX_FILES_BYTES},
    guest::{Guest, lock},
    instance::FakeInstance,
    switches::Switches,
};

/// Nothing runs where a volume is shown.
const MAX_PROCESSES: usize = 0;

/// Files of every volume, by where they would be.
#[derive(Debug, Default)]
pub(super) struct Volumes(Mutex<BTreeMap<PathBuf, Arc<Mutex<Files>>>>);

impl Volumes {
    pub(super) fn make(directory: &Path, kind: VolumeKind) -> io::Result<VolumeStorage> {
        let storage = match kind {
            VolumeKind::Directory => VolumeStorage::Directory,
            VolumeKind::Disk => VolumeStorage::Image,
        };
        std::fs::create_dir(storage.path(directory))?;
        Ok(storage)
    }

    fn files(&self, origin: &MountOrigin) -> Option<Arc<Mutex<Files>>> {
        let (MountOrigin::Path { path, .. } | MountOrigin::Image { path, .. }) = origin else { return None };
        let new = || Arc::new(Mutex::new(Files::empty(MAX_FILES_BYTES)));
        Some(Arc::clone(lock(&self.0).entry(path.clone()).or_insert_with(new)))
    }

    pub(super) fn used(&self, origin: &MountOrigin) -> u64 {
        self.files(origin).map_or(0, |files| lock(&files).bytes())
    }

    pub(super) fn remove(&self, directory: &Path) -> io::Result<()> {
        lock(&self.0).retain(|path, _| !path.starts_with(directory));
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    pub(super) fn open(
        &self,
        id: &SandboxId,
        origin: &MountOrigin,
        switches: Arc<Switches>,
    ) -> Result<FakeInstance, BackendError> {
        let failed = |what: &str| BackendError::Failed { what: what.to_owned(), source: None };
        let files = self.files(origin).ok_or_else(|| failed("this is no volume"))?;
        let name = "volume".parse().map_err(|error| BackendError::failed("no name", error))?;
        let (spec, defaults) = (SandboxSpec::default(), Defaults::default());
        let plan = plan(id, &name, &spec, PathBuf::new(), &defaults, &Base::host())
            .map_err(|error| failed(&error.to_string()))?;
        let guest = Arc::new(Guest::new(plan.hostname.clone(), MAX_PROCESSES, files));
        Ok(FakeInstance::new(&plan, guest, switches))
    }
}
