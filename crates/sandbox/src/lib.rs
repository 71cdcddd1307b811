//! The domain: what a sandbox is, what callers may request, what was decided, and how it can fail.
//!
//! Nothing here performs I/O, reads the clock or draws random numbers; those come in as arguments.
#![forbid(unsafe_code)]

mod backend;
mod base;
mod call;
mod code;
mod error;
mod event;
mod exec;
mod file;
mod id;
mod isolation;
mod key;
mod limits;
mod mount;
mod name;
pub mod network;
mod object;
mod package;
mod patch;
mod plan;
mod port;
mod secret;
mod size;
mod snapshot;
mod spec;
mod ssh_key;
mod state;
mod tree;
mod usage;
mod volume;

pub use backend::{
    Backend, BackendError, BackendImages, BackendKind, BackendNetwork, BackendSnapshots, BackendVolumes,
    Capabilities, Capability, GuestIo, GuestStream, Holding, Instance, NetworkHeld,
};
pub use base::{Base, BaseConfig, ResolvedVolume};
pub use call::{Call, Frontend};
pub use code::{CellSpec, Language, MAX_CODE_BYTES, MAX_RECORDED_CODE_BYTES, UnknownLanguage};
pub use error::{Error, ErrorKind, HostImage, Limit, Next, Overrun, Result, Setting, Subject, Thing, causes};
pub use event::{Event, EventKind};
pub use exec::{
    ExecOutcome, ExecSpec, ExecState, InvalidExec, KillReason, MAX_ARG_BYTES, MAX_EXEC_BYTES, MAX_VARIABLES,
    NotStarted, RLIMIT_RESOURCES, Rlimit, TerminalMode, TerminalSize,
};
pub use file::{FileEntry, FileKind, WriteMode};
pub use id::{
    ExecId, InvalidId, KeyId, NetworkRequestId, PackageJobId, SandboxId, ShareId, SnapshotId, SshKeyId,
    VolumeId,
};
pub use isolation::{Enforcement, Isolation, LimitKind, LimitStatement, NetworkHold, Walls};
pub use key::{KeyFormat, KeySpec, KeyView};
pub use limits::{CpuCount, Limits, LimitsPlan};
pub use mount::{FileIdentity, MAX_MOUNTS, MountOrigin, MountPlan, MountSource, MountSpec, check_guest_path};
pub use name::{
    ContextName, InvalidName, KeyLabel, Label, NameKind, Namespace, RequestId, SandboxName, SnapshotName,
    VolumeName,
};
pub use network::{
    DnsName, HostTraffic, NetworkEvent, NetworkEventKind, NetworkGrant, NetworkHosts, NetworkLimits,
    NetworkPlan, NetworkReport, NetworkRequest, NetworkRequestSpec, NetworkRequestState, NetworkSpec,
    NetworkTraffic, Policy, Preset, PublishedPort, plan_network,
};
pub use package::{
    InstalledPackage, InvalidPackage, MAX_PACKAGES, Package, PackageManager, PackageSpec, PackageState,
};
pub use patch::{MAX_PATCH_BYTES, MAX_PATCHES, Patch, check_patches, is_beneath, path_from};
pub use plan::{
    DEFAULT_SHELL, Defaults, RootfsPlan, SandboxPlan, at_mount, change_limits, check_labels, check_spec,
    limit_warnings, plan,
};
pub use port::{ExposedPort, MAX_EXPOSED_PORTS, PortSpec, PortView, check_ports};
pub use secret::{
    Authority, CA_BUNDLE, CA_VARIABLES, HeldSecret, HeldSecrets, MAX_SECRET_BYTES, MAX_SECRET_HOSTS,
    MAX_SECRET_NAME_BYTES, MAX_SECRETS, ResolvedSecret, SecretKey, SecretName, SecretPlan, SecretRules,
    SecretUse, SecretValue, secret_place,
};
pub use size::{ByteSize, InvalidSize};
pub use snapshot::{
    MAX_SNAPSHOT_CHAIN, MAX_SNAPSHOT_LABELS, SNAPSHOT_FORMAT, SnapshotManifest, SnapshotSource,
    check_snapshot_labels, is_digest, is_hex,
};
pub use spec::{ImageRef, InitSpec, InvalidImage, Lifetime, OnExpiry, PullPolicy, RootfsSpec, SandboxSpec};
pub use ssh_key::SshKeyView;
pub use state::{Action, SandboxState};
pub use tree::{Change, ChangeKind, DiffQuery, DiffReport, TreeCopy, TreeFacts};
pub use usage::{ProcessEntry, Usage};
pub use volume::{VolumeKind, VolumeSpec, VolumeStorage, check_volume};
