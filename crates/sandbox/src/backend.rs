//! The waist: a back end makes a place, starts our guest in it, and opens byte streams to it.

use std::{
    fmt,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    pin::Pin,
    time::Duration,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    ByteSize, DiffQuery, DiffReport, Isolation, MountOrigin, Next, SandboxId, SandboxPlan, TreeCopy,
    TreeFacts, Usage, VolumeKind, VolumeStorage,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    Namespace,
    /// A container runtime of the host's, such as `runc` or `crun`.
    Oci,
    /// The same with gVisor's `runsc`.
    Gvisor,
    /// A plain process of the host, without any walls.
    Process,
    Fake,
}

impl BackendKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Oci => "oci",
            Self::Gvisor => "gvisor",
            Self::Process => "process",
            Self::Fake => "fake",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A byte stream to a guest. Frames run over it; see the `guest-protocol` crate.
pub type GuestStream = Box<dyn GuestIo>;

pub trait GuestIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> GuestIo for T {}

/// What makes a sandbox stand still for a copy; see [`Backend::copy_files`].
pub type Holding<'a> = Pin<Box<dyn Future<Output = Result<(), BackendError>> + Send + 'a>>;

/// Something a back end can or cannot do on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Capability {
    Pause,
    MemoryLimit,
    CpuLimit,
    PidsLimit,
    /// A disk limit that no write can pass.
    HardDiskLimit,
}

/// What works here and now, found by trying.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    pub backend: BackendKind,
    pub has: Vec<Capability>,
    /// What is missing, and why, as sentences.
    pub missing: Vec<String>,
}

impl Capabilities {
    pub fn has(&self, capability: Capability) -> bool {
        self.has.contains(&capability)
    }
}

/// Sorted by what the engine can do about it.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("{what}")]
    Unsupported { what: String, next: Option<Next> },
    /// The host is out of something: disk, memory, processes, descriptors.
    #[error("{what}")]
    Exhausted { what: String, next: Option<Next> },
    #[error("{what} took longer than {after:?}")]
    TimedOut { what: String, after: Duration },
    /// What was to do it died or is busy, and nothing came of it: the same call can be made again.
    #[error("{what}")]
    Unavailable { what: String },
    /// The place is not there any more.
    #[error("sandbox {0} is gone")]
    Gone(SandboxId),
    #[error("{what}")]
    Failed {
        what: String,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl BackendError {
    pub fn failed(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { what: what.into(), source: Some(source.into()) }
    }
}

/// A way to make sandboxes on this host.
///
/// The engine never calls two methods for the same sandbox at once; calls for different sandboxes run concurrently.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync {
    fn kind(&self) -> BackendKind;

    /// Reports what works here and now, by trying it.
    async fn probe(&self) -> Result<Capabilities, BackendError>;

    /// Makes the place described by `plan` and starts the guest in it. Files of an earlier life of the same sandbox
    /// (`plan.directory`) are taken up again, so this is `start` too.
    ///
    /// On error nothing is left behind but what was in `plan.directory` before: no process, mount or cgroup.
    async fn create(&self, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError>;

    /// Finds an instance again after the daemon restarts. `None` means it is gone.
    async fn adopt(&self, plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError>;

    /// Takes away everything on the host that belongs to a sandbox which is not in `alive`: processes, mounts, cgroups,
    /// run directories. Never touches `sandboxes/<id>` directories of `known` ids. Returns what it removed.
    async fn sweep(&self, alive: &[SandboxId], known: &[SandboxId]) -> Result<Vec<SandboxId>, BackendError>;

    /// Deletes `directory` of a sandbox that is not live, with all files in it, whoever owns them.
    async fn remove_files(&self, id: &SandboxId, directory: PathBuf) -> Result<(), BackendError>;

    /// Makes what a volume's files are kept in, in the empty directory `directory`: its root belongs to root inside. A
    /// `limit` of a directory is held as well as this host can; a disk is refused where it cannot be had.
    async fn make_volume(
        &self,
        _directory: &Path,
        _kind: VolumeKind,
        _limit: Option<ByteSize>,
    ) -> Result<VolumeStorage, BackendError> {
        Err(no_trees(self.kind()))
    }

    /// Bytes that a volume takes on disk now.
    async fn volume_used(&self, _origin: &MountOrigin) -> Result<u64, BackendError> {
        Err(no_trees(self.kind()))
    }

    /// Deletes the directory of a volume that nobody uses, with all files in it, whoever owns them.
    async fn remove_volume(&self, _directory: &Path) -> Result<(), BackendError> {
        Err(no_trees(self.kind()))
    }

    /// Makes a place that shows a volume as its root and in which nothing runs but our guest. It has a fresh `id` of its own,
    /// so that what is left of it is swept like any place.
    async fn open_volume(
        &self,
        _id: &SandboxId,
        _origin: &MountOrigin,
    ) -> Result<Box<dyn Instance>, BackendError> {
        Err(no_trees(self.kind()))
    }

    /// Copies what the sandbox changed over the layers it is made on into the empty directory `into`, as a tree that
    /// [`SandboxPlan::above`] takes. `hold` is awaited when all else is ready, and at most once: nothing in the sandbox moves
    /// after it, until the caller lets it go on. When it fails nothing is copied, and that is the error.
    async fn copy_files(
        &self,
        _plan: &SandboxPlan,
        _into: PathBuf,
        _hold: Holding<'_>,
    ) -> Result<TreeCopy, BackendError> {
        Err(no_trees(self.kind()))
    }

    /// Writes what a stopped sandbox changed over the layers it is made on as a layer of an image: an uncompressed tar with
    /// whiteouts as OCI has them. What the back end itself put there is left out.
    async fn pack_layer(&self, _plan: &SandboxPlan, _archive: OwnedFd) -> Result<(), BackendError> {
        Err(no_trees(self.kind()))
    }

    /// Reads all of a tree.
    async fn tree_facts(&self, _tree: PathBuf) -> Result<TreeFacts, BackendError> {
        Err(no_trees(self.kind()))
    }

    /// Writes a tree as an uncompressed tar, the same bytes for the same tree.
    async fn pack_tree(&self, _tree: PathBuf, _archive: OwnedFd) -> Result<(), BackendError> {
        Err(no_trees(self.kind()))
    }

    /// Makes a tree in the empty directory `into` from what [`Backend::pack_tree`] wrote, here or elsewhere. The archive may
    /// be hostile.
    async fn unpack_tree(&self, _archive: OwnedFd, _into: PathBuf) -> Result<TreeFacts, BackendError> {
        Err(no_trees(self.kind()))
    }

    /// Deletes a tree, whoever owns what is in it.
    async fn remove_tree(&self, _tree: PathBuf) -> Result<(), BackendError> {
        Err(no_trees(self.kind()))
    }

    /// Compares a sandbox's files with what it was made on. It may be running: then what changes meanwhile may be told
    /// either way.
    async fn diff(&self, _plan: &SandboxPlan, _query: DiffQuery) -> Result<DiffReport, BackendError> {
        Err(no_trees(self.kind()))
    }
}

fn no_trees(kind: BackendKind) -> BackendError {
    let what = format!("the back end {kind} keeps no files on disk");
    BackendError::Unsupported { what, next: Some(Next::Advice("Use the back end namespace.".to_owned())) }
}

/// One live place, made by a [`Backend`].
#[async_trait]
pub trait Instance: fmt::Debug + Send + Sync {
    /// The walls it got.
    fn isolation(&self) -> &Isolation;

    /// Opens a fresh byte stream to the guest.
    async fn connect(&self) -> Result<GuestStream, BackendError>;

    /// Kills what is left of the place and gives back what it held on the host. The engine has asked the guest to end
    /// before, so this is the forced end. Returns when no process is left; slow cleaning goes on behind. Safe to call twice.
    async fn stop(&self) -> Result<(), BackendError>;

    /// Freezes every process of the workload; the guest stays awake.
    async fn pause(&self) -> Result<(), BackendError>;

    async fn resume(&self) -> Result<(), BackendError>;

    async fn usage(&self) -> Result<Usage, BackendError>;

    /// Returns when the place has ended, however it ended. Safe to call from several tasks.
    async fn ended(&self);
}
