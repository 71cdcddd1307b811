//! The cage of a sandbox, step by step, without making one.

use backends::namespace::{Directories as NamespaceDirectories, NamespaceBackend};
use jail::SpawnerHandle;
use sandbox::{Defaults, Error, ErrorKind, Result, SandboxId, SandboxSpec};

use super::Scratch;
use crate::{directories::Directories, guest_role::guest_main};

/// Holds a spawner of its own, which only prepares.
pub(crate) struct CageReader {
    spawner: SpawnerHandle,
}

impl CageReader {
    /// Forks, so the process must have one thread.
    pub(crate) fn start() -> Result<Self> {
        let spawner = jail::start_spawner(guest_main, backends::namespace::worker).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "could not start the spawner").with_source(error)
        })?;
        Ok(Self { spawner })
    }

    /// The steps that would make a sandbox of which nothing special was asked.
    pub(crate) async fn read(self, directories: &Directories) -> Result<Vec<String>> {
        let scratch = Scratch::new(directories, "cage");
        scratch.directories.make()?;
        let Directories { home, run } = scratch.directories.clone();
        let (id, name) = (SandboxId::from_random([0; 8]), "example".parse()?);
        let plan = sandbox::plan(
            &id,
            &name,
            &SandboxSpec::default(),
            home.join("sandboxes/example"),
            &Defaults::default(),
            &sandbox::Base::host(),
        )?;
        let backend = NamespaceBackend::new(self.spawner, NamespaceDirectories { home, run }).await;
        let backend = backend.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "sandboxes cannot be made on this host").with_source(error)
        })?;
        Ok(backend.explain(&plan))
    }
}
