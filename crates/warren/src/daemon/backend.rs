//! The back end that a daemon was told to use.

use std::{fmt, sync::Arc};

use backends::{
    fake::FakeBackend,
    namespace::{Directories as NamespaceDirectories, NamespaceBackend},
};
use clap::ValueEnum;
use jail::SpawnerHandle;
use sandbox::{Backend, Error, ErrorKind, Result};

use crate::{directories::Directories, env, guest_role::guest_main};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendChoice {
    /// The kernel's own parts: namespaces, cgroups, seccomp
    Namespace,
    /// Pretends; for trying things out without a single privilege
    Fake,
}

impl BackendChoice {
    /// The flag wins over the variable, the variable over the default.
    pub(crate) fn decide(flag: Option<Self>) -> Result<Self> {
        match (flag, env::text(env::BACKEND)) {
            (Some(choice), _) => Ok(choice),
            (None, None) => Ok(Self::Namespace),
            (None, Some(text)) => Self::from_str(&text, true).map_err(|_unknown| {
                Error::invalid(format!("{} is {text:?}, which is not a back end", env::BACKEND))
                    .with_hint("The back ends are namespace and fake.")
            }),
        }
    }
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespace => "namespace",
            Self::Fake => "fake",
        })
    }
}

/// Processes that were forked while there was one thread, and wait for the back end.
pub(super) enum Roles {
    Namespace(SpawnerHandle),
    Fake,
}

impl Roles {
    pub(super) fn fork(choice: BackendChoice) -> Result<Self> {
        match choice {
            BackendChoice::Namespace => {
                let spawner = jail::start_spawner(guest_main).map_err(|error| {
                    Error::new(ErrorKind::Unavailable, "could not start the spawner").with_source(error)
                })?;
                Ok(Self::Namespace(spawner))
            }
            BackendChoice::Fake => Ok(Self::Fake),
        }
    }

    pub(super) async fn backend(self, directories: &Directories) -> Result<Arc<dyn Backend>> {
        match self {
            Self::Namespace(spawner) => {
                let places =
                    NamespaceDirectories { home: directories.home.clone(), run: directories.run.clone() };
                let backend = NamespaceBackend::new(spawner, places).await.map_err(|error| {
                    Error::new(ErrorKind::Unavailable, "sandboxes cannot be made on this host")
                        .with_source(error)
                        .with_hint("`warren doctor` tells what is missing and how to mend it.")
                })?;
                Ok(Arc::new(backend))
            }
            Self::Fake => Ok(Arc::new(FakeBackend::new())),
        }
    }
}
