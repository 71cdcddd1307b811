//! The waist: a back end makes a place, starts our guest in it, and opens byte streams to it.

use std::{fmt, os::fd::OwnedFd, pin::Pin, str::FromStr, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    ByteSize, DiffQuery, DiffReport, Error, Isolation, Next, SandboxId, SandboxPlan, SnapshotId, TreeCopy,
    TreeFacts, Usage, VolumeId, VolumeKind, VolumeStorage,
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    #[default]
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
    pub const ALL: [Self; 5] = [Self::Namespace, Self::Oci, Self::Gvisor, Self::Process, Self::Fake];

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

impl FromStr for BackendKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let (known, text) =
                (Self::ALL.map(Self::as_str).join(", "), text.chars().take(80).collect::<String>());
            Error::invalid(format!("{text:?} is not a back end: use {known}"))
        })
    }
}

/// A byte stream to a guest. Frames run over it; see the `guest-protocol` crate.
pub type GuestStream = Box<dyn GuestIo>;

pub trait GuestIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> GuestIo for T {}

/// What makes a sandbox stand still for a copy; see [`BackendSnapshots::take`].
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
    /// Sandboxes on images other than `host`.
    Images,
    /// Volumes can be mounted.
    Volumes,
    /// Snapshots can be taken, and sandboxes made on them.
    Snapshots,
    /// Directories and files of the daemon's host can be mounted, and be a root file system.
    HostPaths,
}

impl Capability {
    pub const ALL: [Self; 9] = [
        Self::Pause,
        Self::MemoryLimit,
        Self::CpuLimit,
        Self::PidsLimit,
        Self::HardDiskLimit,
        Self::Images,
        Self::Volumes,
        Self::Snapshots,
        Self::HostPaths,
    ];
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pause => "pauses",
            Self::MemoryLimit => "memory limits",
            Self::CpuLimit => "CPU limits",
            Self::PidsLimit => "process limits",
            Self::HardDiskLimit => "hard disk limits",
            Self::Images => "images",
            Self::Volumes => "volumes",
            Self::Snapshots => "snapshots",
            Self::HostPaths => "host paths",
        })
    }
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
    /// Those of a back end that can do everything.
    pub fn all(backend: BackendKind) -> Self {
        Self { backend, has: Capability::ALL.to_vec(), missing: Vec::new() }
    }

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

/// A way to make places for sandboxes. Everything is named by id or digest; where a back end keeps it is its own business.
///
/// Any method may be called while others run, also for the same sandbox: a back end itself puts in turn what must not overlap.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync {
    fn kind(&self) -> BackendKind;

    /// Reports what works here and now, by trying it.
    async fn probe(&self) -> Result<Capabilities, BackendError>;

    /// Makes the place described by `plan` and starts the guest in it. Files of an earlier life of the same sandbox are taken up
    /// again, so this is `start` too.
    ///
    /// On error nothing is left behind but the files that were there before: no process, mount or cgroup.
    async fn create(&self, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError>;

    /// Finds an instance again after the daemon restarts. `None` means it is gone.
    async fn adopt(&self, plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError>;

    /// Takes away everything that belongs to a sandbox which is not in `alive`: processes, mounts, cgroups, sockets. Files stay
    /// where the sandbox is in `known`. Returns what it removed.
    async fn sweep(&self, alive: &[SandboxId], known: &[SandboxId]) -> Result<Vec<SandboxId>, BackendError>;

    /// Takes away all of one sandbox: what still lives of it, and its files, whoever owns them. Safe to call twice.
    async fn remove(&self, id: &SandboxId) -> Result<(), BackendError>;

    /// Sandboxes on images other than `host`. A back end without has none.
    fn images(&self) -> Option<&dyn BackendImages> {
        None
    }

    fn volumes(&self) -> Option<&dyn BackendVolumes> {
        None
    }

    fn snapshots(&self) -> Option<&dyn BackendSnapshots> {
        None
    }
}

/// What a back end does for images. It finds their layers by the digest in the plan.
#[async_trait]
pub trait BackendImages: Send + Sync {
    /// Writes what a stopped sandbox changed over the layers it is made on as a layer of an image: an uncompressed tar with
    /// whiteouts as OCI has them. What the back end itself put there is left out.
    async fn pack_layer(&self, plan: &SandboxPlan, archive: OwnedFd) -> Result<(), BackendError>;
}

/// Files that outlive sandboxes.
#[async_trait]
pub trait BackendVolumes: Send + Sync {
    /// Makes an empty volume, whose root belongs to root inside. A `limit` of a directory is held as well as this host can; a
    /// disk is refused where it cannot be had.
    async fn make(
        &self,
        id: &VolumeId,
        kind: VolumeKind,
        limit: Option<ByteSize>,
    ) -> Result<VolumeStorage, BackendError>;

    /// Bytes that a volume takes on disk now.
    async fn used(&self, id: &VolumeId) -> Result<u64, BackendError>;

    /// Deletes a volume that nobody uses, with all files in it, whoever owns them. Safe to call twice.
    async fn remove(&self, id: &VolumeId) -> Result<(), BackendError>;

    /// Makes a place that shows a volume as its root and in which nothing runs but our guest. The `place` has a fresh id of its
    /// own, so that what is left of it is swept like any place.
    async fn open(&self, place: &SandboxId, id: &VolumeId) -> Result<Box<dyn Instance>, BackendError>;
}

/// What sandboxes changed, kept as trees that others are made on: see [`SandboxPlan::above`].
#[async_trait]
pub trait BackendSnapshots: Send + Sync {
    /// Copies what the sandbox changed over the layers it is made on into a new tree. `hold` is awaited when all else is ready,
    /// and at most once: nothing in the sandbox moves after it, until the caller lets it go on. When it fails nothing is copied,
    /// and that is the error. A failure may leave half a tree, which the caller removes.
    async fn take(
        &self,
        plan: &SandboxPlan,
        id: &SnapshotId,
        hold: Holding<'_>,
    ) -> Result<TreeCopy, BackendError>;

    /// Reads all of a tree.
    async fn facts(&self, id: &SnapshotId) -> Result<TreeFacts, BackendError>;

    /// Writes a tree as an uncompressed tar, the same bytes for the same tree.
    async fn export(&self, id: &SnapshotId, archive: OwnedFd) -> Result<(), BackendError>;

    /// Makes a tree from what [`BackendSnapshots::export`] wrote, here or elsewhere. The archive may be hostile. A failure may
    /// leave half a tree, which the caller removes.
    async fn import(&self, id: &SnapshotId, archive: OwnedFd) -> Result<TreeFacts, BackendError>;

    /// Deletes a tree, whoever owns what is in it. Safe to call twice.
    async fn remove(&self, id: &SnapshotId) -> Result<(), BackendError>;

    /// Compares a sandbox's files with what it was made on. It may be running: then what changes meanwhile may be told
    /// either way.
    async fn diff(&self, plan: &SandboxPlan, query: DiffQuery) -> Result<DiffReport, BackendError>;
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
