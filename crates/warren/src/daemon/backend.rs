//! The back ends of a daemon: the default one, and those that sandboxes can choose instead.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use backends::{
    namespace::{Directories as NamespaceDirectories, HostProxy, NamespaceBackend, PoolConfig},
    oci::OciBackend,
    process::ProcessBackend,
};
use engine::Unpacker;
use sandbox::{Backend, BackendKind, Error, ErrorKind, Result};

use crate::{
    config::{BackendsConfig, ProgramChoice},
    directories::Directories,
    guest_role::GUEST,
};

/// Directories of administrators' programs, which are not always in the `PATH` of a daemon.
const SYSTEM_PLACES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Back ends that can make sandboxes, the default first.
pub(super) struct Running {
    pub(super) backends: Vec<Arc<dyn Backend>>,
    /// The default one, to take back the places that wait when the daemon ends.
    pub(super) default: Arc<NamespaceBackend>,
    /// Unpacks layers with the privileges that sandboxes' files need.
    pub(super) unpacker: Arc<dyn Unpacker>,
}

/// The caller must hold the locks. `open_files`: the soft limit that the daemon was started with.
pub(super) async fn start(
    directories: Directories,
    open_files: Option<u64>,
    offered: BackendsConfig,
    proxy: Option<HostProxy>,
    pool: PoolConfig,
) -> Result<Running> {
    let Directories { home, run, .. } = directories;
    let places = NamespaceDirectories { home, run };
    let backend = NamespaceBackend::new(places.clone(), open_files).await.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "this host cannot run sandboxes")
            .with_source(error)
            .with_hint("`warren doctor` shows what is missing and how to fix it.")
    })?;
    let default = Arc::new(backend.with_edge(jail::start_edge, proxy).with_pool(pool));
    let unpacker = default.unpacker();
    let mut backends: Vec<Arc<dyn Backend>> = vec![Arc::clone(&default) as _];
    backends.extend(others(&places, &offered));
    Ok(Running { backends, default, unpacker })
}

/// The back ends that can be chosen instead of the default. They are prepared only when first used: an unused one costs
/// nothing, and one that fails reports it to whoever asks for it.
fn others(places: &NamespaceDirectories, offered: &BackendsConfig) -> Vec<Arc<dyn Backend>> {
    let mut others: Vec<Arc<dyn Backend>> = Vec::new();
    let runtimes = [
        (BackendKind::Oci, &offered.oci, &["runc", "crun"][..]),
        (BackendKind::Gvisor, &offered.gvisor, &["runsc"][..]),
    ];
    for (kind, choice, names) in runtimes {
        // Runtimes use root file systems that the daemon mounts.
        if let Some(program) = find(choice, names).filter(|_| rustix::process::geteuid().is_root()) {
            tracing::debug!(%kind, program = %program.display(), "can be chosen");
            others.push(Arc::new(OciBackend::new(places.clone(), kind, program, &[GUEST])));
        }
    }
    if offered.process {
        match ProcessBackend::new(places.clone(), &[GUEST]) {
            Ok(backend) => {
                tracing::warn!(
                    "THE BACK END process IS ENABLED: anyone who may create sandboxes here can do everything that the \
                     user of this daemon can"
                );
                others.push(Arc::new(backend));
            }
            Err(error) => tracing::warn!(%error, "cannot use the back end process"),
        }
    }
    others
}

/// The program of a back end: the configured one, or the first of these names that exists.
fn find(choice: &ProgramChoice, names: &[&str]) -> Option<PathBuf> {
    match choice {
        ProgramChoice::Never => None,
        ProgramChoice::At(path) => Some(path.clone()),
        ProgramChoice::Search => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let places: Vec<PathBuf> = std::env::split_paths(&path)
                .filter(|place| place.is_absolute())
                .chain(SYSTEM_PLACES.map(PathBuf::from))
                .collect();
            let files = names.iter().flat_map(|name| places.iter().map(move |place| place.join(name)));
            files.into_iter().find(|file| Path::is_file(file))
        }
    }
}
