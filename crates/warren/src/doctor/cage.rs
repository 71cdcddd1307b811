//! The steps that set up a sandbox, listed without creating one.

use backends::namespace::{Directories as NamespaceDirectories, NamespaceBackend};
use sandbox::{Defaults, Error, ErrorKind, Result, SandboxId, SandboxSpec};

use super::Scratch;
use crate::directories::Directories;

/// The steps that would set up a sandbox with default settings. Starts a separate spawner, which only prepares.
pub(crate) async fn read_cage(directories: &Directories) -> Result<Vec<String>> {
    let scratch = Scratch::new(directories, "cage");
    scratch.directories.make()?;
    let Directories { home, run, .. } = scratch.directories.clone();
    let (id, name) = (SandboxId::from_random([0; 8]), "example".parse()?);
    let plan = sandbox::plan(
        &id,
        &name,
        &SandboxSpec::default(),
        &Defaults::default(),
        &sandbox::Base::host(),
        &[sandbox::Capabilities::all(sandbox::BackendKind::Namespace)],
    )?;
    let backend = NamespaceBackend::new(NamespaceDirectories { home, run }, None).await;
    let backend = backend.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "this host cannot run sandboxes").with_source(error)
    })?;
    Ok(backend.explain(&plan))
}
