//! The back end that a daemon was told to use.

use std::{fmt, sync::Arc};

use backends::{
    fake::FakeBackend,
    namespace::{Directories as NamespaceDirectories, NamespaceBackend},
};
use clap::ValueEnum;
use engine::Unpacker;
use sandbox::{Backend, Error, ErrorKind, Result};

use crate::{directories::Directories, env};

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

/// Back ends that can make sandboxes, the default first.
pub(super) struct Running {
    pub(super) backends: Vec<Arc<dyn Backend>>,
    /// Who unpacks layers with the rights that sandboxes' files need. A daemon without keeps no images.
    pub(super) unpacker: Option<Arc<dyn Unpacker>>,
}

impl BackendChoice {
    /// Called by whoever holds the locks. `open_files`: the soft limit that the daemon was started with.
    pub(super) async fn start(self, directories: Directories, open_files: Option<u64>) -> Result<Running> {
        match self {
            Self::Namespace => {
                let Directories { home, run } = directories;
                let places = NamespaceDirectories { home, run };
                let backend = NamespaceBackend::new(places, open_files).await.map_err(|error| {
                    Error::new(ErrorKind::Unavailable, "sandboxes cannot be made on this host")
                        .with_source(error)
                        .with_hint("`warren doctor` tells what is missing and how to mend it.")
                })?;
                let unpacker = Some(backend.unpacker());
                Ok(Running { backends: vec![Arc::new(backend)], unpacker })
            }
            Self::Fake => Ok(Running { backends: vec![Arc::new(FakeBackend::new())], unpacker: None }),
        }
    }
}
