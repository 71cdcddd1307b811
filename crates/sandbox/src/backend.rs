//! The waist: a back end builds an isolated instance, starts our guest in it, and opens byte streams to it.

use std::{
    any::Any, collections::BTreeMap, fmt, net::SocketAddr, os::fd::OwnedFd, pin::Pin, str::FromStr,
    time::Duration,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::broadcast,
};

use crate::{
    Authority, ByteSize, DiffQuery, DiffReport, DnsName, Error, HeldSecrets, Isolation, LimitsPlan,
    NetworkHosts, NetworkPlan, NetworkReport, Next, PublishedPort, SandboxId, SandboxPlan, SnapshotId,
    TreeCopy, TreeFacts, Usage, VolumeId, VolumeKind, VolumeStorage,
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    #[default]
    Namespace,
    /// A container runtime on the host, such as `runc` or `crun`.
    Oci,
    /// Like `Oci`, with gVisor's `runsc`.
    Gvisor,
    /// A plain host process without isolation.
    Process,
}

impl BackendKind {
    pub const ALL: [Self; 4] = [Self::Namespace, Self::Oci, Self::Gvisor, Self::Process];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Oci => "oci",
            Self::Gvisor => "gvisor",
            Self::Process => "process",
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

pub trait GuestIo: AsyncRead + AsyncWrite + Send + Unpin {
    /// The stream itself. Descriptors come over it if it is a `tokio::net::UnixStream`.
    fn as_any(&self) -> &dyn Any;
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> GuestIo for T {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A future that brings a sandbox to a standstill for a copy; see [`BackendSnapshots::take`].
pub type Holding<'a> = Pin<Box<dyn Future<Output = Result<(), BackendError>> + Send + 'a>>;

/// Something a back end can or cannot do on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
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
    /// Directories and files of the daemon's host can be mounted or used as a root file system.
    HostPaths,
    /// A network that follows a policy, beyond package indexes.
    Network,
    /// UDP ports can be published.
    UdpPorts,
}

impl Capability {
    pub const ALL: [Self; 11] = [
        Self::Pause,
        Self::MemoryLimit,
        Self::CpuLimit,
        Self::PidsLimit,
        Self::HardDiskLimit,
        Self::Images,
        Self::Volumes,
        Self::Snapshots,
        Self::HostPaths,
        Self::Network,
        Self::UdpPorts,
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
            Self::Network => "network policies",
            Self::UdpPorts => "published UDP ports",
        })
    }
}

/// The capabilities that work here and now, found by trying.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    pub backend: BackendKind,
    pub has: Vec<Capability>,
    /// The missing ones and why, as sentences.
    pub missing: Vec<String>,
}

impl Capabilities {
    /// The capabilities of a back end that can do everything.
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
    /// The component in charge died or is busy, and nothing was done: the same call can be repeated.
    #[error("{what}")]
    Unavailable { what: String },
    /// The instance no longer exists.
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

/// Builds instances for sandboxes. Everything is named by id or digest; each back end decides where it keeps its files.
///
/// Any method may be called while others run, even for the same sandbox: the back end serializes what must not overlap.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync {
    fn kind(&self) -> BackendKind;

    /// Reports what works here and now, by trying it.
    async fn probe(&self) -> Result<Capabilities, BackendError>;

    /// The id of a place that was made beforehand and fits this plan of a new sandbox, if there is one. The same
    /// plan with this id takes it; if it is not given to [`Backend::create`] within seconds, the place is removed.
    fn prepared(&self, _plan: &SandboxPlan) -> Option<SandboxId> {
        None
    }

    /// Builds the instance described by `plan` and starts the guest in it. Files from an earlier run of the same
    /// sandbox are reused, so this is `start` too.
    ///
    /// After an error only the files that existed before remain: no process, mount or cgroup.
    async fn create(&self, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError>;

    /// Finds an instance again after the daemon restarts. `None` means it is gone.
    async fn adopt(&self, plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError>;

    /// Removes the processes, mounts, cgroups and sockets of every sandbox that is not in `alive`. Files stay if the
    /// sandbox is in `known`. Returns the sandboxes it removed.
    async fn sweep(&self, alive: &[SandboxId], known: &[SandboxId]) -> Result<Vec<SandboxId>, BackendError>;

    /// Removes everything of one sandbox: whatever still runs, and its files, whoever owns them. Safe to call twice.
    async fn remove(&self, id: &SandboxId) -> Result<(), BackendError>;

    /// Support for images other than `host`, if this back end has it.
    fn images(&self) -> Option<&dyn BackendImages> {
        None
    }

    fn volumes(&self) -> Option<&dyn BackendVolumes> {
        None
    }

    fn snapshots(&self) -> Option<&dyn BackendSnapshots> {
        None
    }

    /// The network of sandboxes beyond their loopback. Each instance holds the policy of its own plan.
    fn network(&self) -> Option<&dyn BackendNetwork> {
        None
    }
}

/// Image support of a back end. It finds an image's layers by the digest in the plan.
#[async_trait]
pub trait BackendImages: Send + Sync {
    /// Writes the changes of a stopped sandbox over its layers as an image layer: an uncompressed tar with OCI
    /// whiteouts. Files that the back end itself added are left out.
    async fn pack_layer(&self, plan: &SandboxPlan, archive: OwnedFd) -> Result<(), BackendError>;
}

/// Files that outlive sandboxes.
#[async_trait]
pub trait BackendVolumes: Send + Sync {
    /// Makes an empty volume whose root belongs to root inside. A directory's `limit` is enforced as well as this host
    /// can; a disk is refused where the host cannot provide one.
    async fn make(
        &self,
        id: &VolumeId,
        kind: VolumeKind,
        limit: Option<ByteSize>,
    ) -> Result<VolumeStorage, BackendError>;

    /// Bytes that a volume occupies on disk now.
    async fn used(&self, id: &VolumeId) -> Result<u64, BackendError>;

    /// Deletes an unused volume with all its files, whoever owns them. Safe to call twice.
    async fn remove(&self, id: &VolumeId) -> Result<(), BackendError>;

    /// Starts an instance with a volume as its root, in which only our guest runs. `place` is a fresh id of its own, so
    /// that its leftovers are swept like those of any sandbox.
    async fn open(&self, place: &SandboxId, id: &VolumeId) -> Result<Box<dyn Instance>, BackendError>;
}

/// Changes of sandboxes, kept as trees that other sandboxes build on: see [`SandboxPlan::above`].
#[async_trait]
pub trait BackendSnapshots: Send + Sync {
    /// Copies the sandbox's changes over its layers into a new tree. `hold` is awaited at most once, when everything
    /// else is ready; from then on nothing in the sandbox moves until the caller resumes it. If `hold` fails, nothing
    /// is copied and its error is returned. A failure may leave half a tree, which the caller removes.
    async fn take(
        &self,
        plan: &SandboxPlan,
        id: &SnapshotId,
        hold: Holding<'_>,
    ) -> Result<TreeCopy, BackendError>;

    /// Reads a whole tree.
    async fn facts(&self, id: &SnapshotId) -> Result<TreeFacts, BackendError>;

    /// Writes a tree as an uncompressed tar; the same tree always gives the same bytes.
    async fn export(&self, id: &SnapshotId, archive: OwnedFd) -> Result<(), BackendError>;

    /// Makes a tree from an archive of [`BackendSnapshots::export`], made here or elsewhere. The archive may be
    /// hostile. A failure may leave half a tree, which the caller removes.
    async fn import(&self, id: &SnapshotId, archive: OwnedFd) -> Result<TreeFacts, BackendError>;

    /// Deletes a tree, whoever owns its files. Safe to call twice.
    async fn remove(&self, id: &SnapshotId) -> Result<(), BackendError>;

    /// Compares a sandbox's files with what it was made on. In a running sandbox, a file that changes meanwhile may be
    /// reported either way.
    async fn diff(&self, plan: &SandboxPlan, query: DiffQuery) -> Result<DiffReport, BackendError>;
}

/// Since when a network policy holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkHeld {
    Now,
    /// It allows more than the instance was built for.
    FromNextStart,
}

/// Holds the network policies of all instances of a back end.
pub trait BackendNetwork: Send + Sync {
    /// Decisions as they are made. A reader that falls behind misses some.
    fn reports(&self) -> broadcast::Receiver<NetworkReport>;

    /// Has everything told that happened so far, and then [`NetworkReport::CaughtUp`] with this number.
    fn catch_up(&self, number: u64);

    /// Replaces what sandboxes must not reach on the host: `closed`, the daemon's own listeners, never; `published`,
    /// ports that lead into sandboxes, only by a rule that names the sandbox.
    fn surround(&self, closed: Vec<SocketAddr>, published: BTreeMap<u16, PublishedPort>);

    /// Keeps the secrets of a sandbox, in place of those it had, for as long as it is told nothing else. Called before
    /// the instance is made or adopted, and when they change; `None` when the sandbox has none, or ends.
    fn hold_secrets(&self, id: &SandboxId, secrets: Option<HeldSecrets>);

    /// Makes a certificate authority that can vouch for these hosts only.
    fn make_authority(&self, hosts: &[DnsName]) -> Result<Authority, BackendError>;
}

/// One live instance, built by a [`Backend`].
#[async_trait]
pub trait Instance: fmt::Debug + Send + Sync {
    /// The isolation it got.
    fn isolation(&self) -> &Isolation;

    /// Opens a fresh byte stream to the guest.
    async fn connect(&self) -> Result<GuestStream, BackendError>;

    /// Kills whatever is left of the instance and releases its host resources. This is the forced end: the engine has
    /// already asked the guest to end. Returns when no process is left; slow cleanup continues in the background. Safe
    /// to call twice.
    async fn stop(&self) -> Result<(), BackendError>;

    /// Freezes every process of the workload; the guest stays awake.
    async fn pause(&self) -> Result<(), BackendError>;

    async fn resume(&self) -> Result<(), BackendError>;

    async fn usage(&self) -> Result<Usage, BackendError>;

    /// Like [`Instance::usage`], but without what takes long to measure, such as the disk: for those who ask every
    /// second.
    async fn quick_usage(&self) -> Result<Usage, BackendError> {
        self.usage().await
    }

    /// Holds this network policy from now on. Open connections that it forbids end.
    async fn hold_network(&self, plan: &NetworkPlan) -> Result<NetworkHeld, BackendError> {
        if !plan.needs_edge() {
            return Ok(NetworkHeld::Now);
        }
        Err(BackendError::Unsupported {
            what: "this back end has no network policies".to_owned(),
            next: None,
        })
    }

    /// Returns the traffic to each host of its network; nothing where no edge serves it.
    async fn network_hosts(&self) -> Result<NetworkHosts, BackendError> {
        Ok(NetworkHosts::default())
    }

    /// Holds these limits of memory, swap, processors and processes from now on.
    async fn hold_limits(&self, _limits: &LimitsPlan) -> Result<(), BackendError> {
        Err(BackendError::Unsupported {
            what: "this back end cannot change the limits of a running sandbox".to_owned(),
            next: None,
        })
    }

    /// Returns sentences about what is true of it now and was not when it started. Takes
    /// seconds at most.
    async fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns when the instance has ended, for whatever reason. Safe to call from several tasks.
    async fn ended(&self);
}
