//! A back end on a home of its own.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use backends::{
    namespace::{Directories, NamespaceBackend},
    oci::OciBackend,
    process::ProcessBackend,
};
use sandbox::{
    Backend, BackendError, BackendKind, Base, Capabilities, Defaults, Instance, SandboxId, SandboxPlan,
    SandboxSpec,
};

use crate::{
    GUEST,
    client::{PATIENCE, fresh_id},
};

#[derive(Debug, Clone)]
pub(crate) enum Which {
    Namespace,
    /// A runtime by its name.
    Oci(&'static str),
    Process,
}

impl Which {
    pub(crate) fn all() -> [Self; 5] {
        [Self::Namespace, Self::Oci("runc"), Self::Oci("crun"), Self::Oci("runsc"), Self::Process]
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Oci(runtime) => runtime,
            Self::Process => "process",
        }
    }

    /// Runtimes are other people's programs; the rest comes with us.
    fn may_be_missing(&self) -> bool {
        matches!(self, Self::Oci(_))
    }

    async fn start(&self, directories: &Directories) -> Result<Box<dyn Backend>, BackendError> {
        let directories = directories.clone();
        Ok(match self {
            Self::Namespace => Box::new(NamespaceBackend::new(directories, None).await?),
            Self::Process => Box::new(ProcessBackend::new(directories, &[GUEST])?),
            Self::Oci(name) => {
                let runtime = find_program(name).ok_or_else(|| BackendError::Unsupported {
                    what: format!("the program {name} is missing"),
                    next: None,
                })?;
                let kind = if *name == "runsc" { BackendKind::Gvisor } else { BackendKind::Oci };
                let backend = OciBackend::new(directories, kind, runtime, &[GUEST]);
                backend.prepare().await?;
                Box::new(backend)
            }
        })
    }
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let all = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    all.map(|directory| directory.join(name)).find(|file| Path::is_file(file))
}

/// Package managers change it.
const ALTERNATIVES: &str = "/etc/alternatives";

/// The host is another one as long as this lives.
pub(crate) struct Changed;

impl Drop for Changed {
    fn drop(&mut self) {
        must(Command::new("umount").arg(ALTERNATIVES));
    }
}

fn must(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

pub(crate) struct World {
    which: Which,
    _place: tempfile::TempDir,
    pub(crate) directories: Directories,
    backend: Option<Box<dyn Backend>>,
}

impl World {
    /// The error names what this machine lacks for the back end; any other problem is a failure.
    pub(crate) async fn new(which: Which) -> Result<Self, String> {
        let place = tempfile::Builder::new().prefix("warren-test-").tempdir().unwrap();
        let directories = Directories { home: place.path().join("home"), run: place.path().join("run") };
        let backend = match which.start(&directories).await {
            Ok(backend) => backend,
            Err(BackendError::Unsupported { what, .. }) if which.may_be_missing() => return Err(what),
            Err(error) => panic!("back end {}: {error}", which.name()),
        };
        Ok(Self { which, _place: place, directories, backend: Some(backend) })
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.backend.as_deref().expect("a back end")
    }

    /// As if the daemon had died and another one started: everything in memory is gone.
    pub(crate) async fn restart(&mut self) {
        drop(self.backend.take());
        self.backend = Some(self.which.start(&self.directories).await.unwrap());
    }

    /// Leaves nothing on the host.
    pub(crate) async fn end(self) {
        self.backend().sweep(&[], &[]).await.unwrap();
    }

    pub(crate) fn plan_with(&self, spec: &SandboxSpec) -> SandboxPlan {
        let id = fresh_id();
        let kind = self.backend().kind();
        let (spec, has) = (SandboxSpec { backend: Some(kind), ..spec.clone() }, [Capabilities::all(kind)]);
        sandbox::plan(&id, &"box".parse().unwrap(), &spec, &Defaults::default(), &Base::host(), &has).unwrap()
    }

    pub(crate) fn plan(&self) -> SandboxPlan {
        self.plan_with(&SandboxSpec::default())
    }

    pub(crate) fn files_of(&self, id: &SandboxId) -> PathBuf {
        self.directories.home.join("sandboxes").join(id.as_str())
    }

    /// The path of requests' `/root`, as commands in this sandbox see it.
    pub(crate) fn root_home(&self, plan: &SandboxPlan) -> String {
        match self.which {
            Which::Process => self.files_of(&plan.id).join("process").display().to_string(),
            _ => "/root".to_owned(),
        }
    }

    /// The uid of root inside, as commands in sandboxes see it.
    pub(crate) fn root_uid(&self) -> u32 {
        if self.has_root() { 0 } else { rustix::process::geteuid().as_raw() }
    }

    /// Whether sandboxes have a root file system of their own.
    pub(crate) fn has_root(&self) -> bool {
        !matches!(self.which, Which::Process)
    }

    /// Puts a file beside the host's alternatives, as a package does, until the answer is dropped. Only this process
    /// and its children see it.
    pub(crate) fn change_alternatives(&self, name: &str) -> Changed {
        let copy = self.directories.home.join("alternatives");
        must(Command::new("cp").arg("-a").arg(ALTERNATIVES).arg(&copy));
        std::fs::write(copy.join(name), name).unwrap();
        must(Command::new("mount").arg("--bind").arg(&copy).arg(ALTERNATIVES));
        Changed
    }

    pub(crate) async fn create(&self, plan: &SandboxPlan) -> Box<dyn Instance> {
        let made = tokio::time::timeout(PATIENCE, self.backend().create(plan)).await.unwrap();
        made.unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
    }
}
