//! The back end that a daemon was told to use.

use std::{fmt, future::pending, sync::Arc};

use backends::{
    fake::FakeBackend,
    namespace::{Directories as NamespaceDirectories, NamespaceBackend},
};
use clap::ValueEnum;
use engine::Unpacker;
use futures_util::{FutureExt as _, future::BoxFuture};
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

/// A back end, and the news that it cannot go on, which ends the daemon.
pub(super) struct Running {
    pub(super) backend: Arc<dyn Backend>,
    /// Who unpacks layers with the rights that sandboxes' files need. A back end without keeps no images.
    pub(super) unpacker: Option<Arc<dyn Unpacker>>,
    /// Never ready while the back end can do its work.
    pub(super) ended: BoxFuture<'static, Error>,
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
                let spawner =
                    jail::start_spawner(guest_main, backends::namespace::worker).map_err(|error| {
                        Error::new(ErrorKind::Unavailable, "could not start the spawner").with_source(error)
                    })?;
                Ok(Self::Namespace(spawner))
            }
            BackendChoice::Fake => Ok(Self::Fake),
        }
    }

    pub(super) async fn backend(self, directories: &Directories) -> Result<Running> {
        match self {
            Self::Namespace(spawner) => {
                let places =
                    NamespaceDirectories { home: directories.home.clone(), run: directories.run.clone() };
                let backend = NamespaceBackend::new(spawner, places).await.map_err(|error| {
                    Error::new(ErrorKind::Unavailable, "sandboxes cannot be made on this host")
                        .with_source(error)
                        .with_hint("`warren doctor` tells what is missing and how to mend it.")
                })?;
                let ended = backend.spawner_ended().map(|()| {
                    Error::new(
                        ErrorKind::Unavailable,
                        "the spawner ended, so no sandbox can be made or removed",
                    )
                    .with_hint("The sandboxes live on. Start the daemon again; it finds them.")
                });
                let unpacker = Some(backend.unpacker());
                Ok(Running { backend: Arc::new(backend), unpacker, ended: ended.boxed() })
            }
            Self::Fake => {
                let backend = Arc::new(FakeBackend::new());
                Ok(Running { backend, unpacker: None, ended: pending().boxed() })
            }
        }
    }
}
