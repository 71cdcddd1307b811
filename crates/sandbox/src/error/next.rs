//! The subject of an error and the next step: values that every front end puts into its own words.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::BackendKind;

/// The kinds of things that errors are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Thing {
    Sandbox,
    Exec,
    Context,
    PackageJob,
    Volume,
    Snapshot,
    Image,
    Key,
    SshKey,
    Secret,
    File,
    HostPath,
    Patch,
    Archive,
    Route,
    Backend,
    /// A TCP port inside a sandbox, or one of the host that leads there.
    Port,
}

impl Thing {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Exec => "exec",
            Self::Context => "context",
            Self::PackageJob => "package job",
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::Image => "image",
            Self::Key => "key",
            Self::SshKey => "SSH key",
            Self::Secret => "secret",
            Self::File => "file",
            Self::HostPath => "host path",
            Self::Patch => "patch",
            Self::Archive => "archive",
            Self::Route => "route",
            Self::Backend => "back end",
            Self::Port => "port",
        }
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The subject of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Subject {
    pub what: Thing,
    /// Empty if the caller gave something that is not a name.
    pub name: String,
}

impl Subject {
    pub fn new(what: Thing, name: impl Into<String>) -> Self {
        Self { what, name: name.into() }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.name)
    }
}

/// The limits that callers and operators can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Sandboxes of the whole daemon.
    Sandboxes,
    KeySandboxes,
    /// Memory of all sandboxes of a key, in bytes.
    KeyMemory,
    /// Bytes that a volume holds.
    VolumeQuota,
    Volumes,
    Snapshots,
    Keys,
    /// Commands running in one sandbox at the same time.
    Execs,
    PackageJobs,
    /// Requests per second.
    RequestRate,
    /// Streams open at the same time.
    Streams,
}

/// A limit that a request would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Overrun {
    pub limit: Limit,
    pub most: u64,
    /// The total with the request.
    pub asked: u64,
}

/// An offer of the image `host` to a caller whose image cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostImage {
    /// Some of its programs, such as `python3.11`.
    pub programs: Vec<String>,
    /// It has what the requested image is for, so that `image_fallback` would use it.
    pub can_stand_in: bool,
}

impl HostImage {
    /// Its programs as part of a sentence: `python3.11, node and bash`.
    pub fn listed(&self) -> String {
        match self.programs.as_slice() {
            [] => "this machine's programs".to_owned(),
            [only] => only.clone(),
            [first @ .., last] => format!("{} and {last}", first.join(", ")),
        }
    }
}

/// The settings of the daemon that errors lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Addresses beside loopback on which ports may be published.
    PublishAddresses,
    /// Registries that keys may pull from with the daemon's own login.
    Registries,
    /// Whether packages can be installed.
    Packages,
}

/// The caller's next step. Sandboxes are given by the name that the caller knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", content = "with", rename_all = "snake_case")]
pub enum Next {
    /// Any advice that reads the same in every front end, as a full sentence.
    Advice(String),
    /// Repeat the request.
    Retry,
    /// Nothing: the state is already the requested one.
    Nothing,
    /// Start this sandbox.
    Start(String),
    Resume(String),
    Stop(String),
    /// Stop this sandbox, or remove it by force.
    StopOrForce(String),
    /// Try again when the back end of this sandbox answers, or remove the sandbox by force.
    GiveUp(String),
    /// Wait until this sandbox runs.
    AwaitRunning(String),
    /// Wait until this sandbox has stopped.
    AwaitStopped(String),
    /// Wait until this sandbox has stopped, and start it.
    Restart(String),
    /// Stop this sandbox and start it again; its files are kept.
    Reboot(String),
    /// Inspect this sandbox.
    Inspect(String),
    /// Remove this sandbox and create another.
    Replace(String),
    /// List the existing ones.
    List(Thing),
    /// Create one of this kind first.
    Create(Thing),
    /// Give a valid name for this kind of thing.
    Name(Thing),
    /// Choose another name, or remove the thing that has it.
    FreeName(Subject),
    /// Remove some that are no longer needed.
    Remove(Thing),
    /// Remove whatever uses it, or remove it by force.
    RemoveUsers(Thing),
    /// Get this image, or an archive that contains it.
    Pull(String),
    /// Use the image `host`, because the requested one cannot be had.
    HostImage(HostImage),
    /// Have a limit raised, or remove some of the things it counts.
    Raise(Limit),
    /// Give an archive that was saved from this kind of thing.
    Archive(Thing),
    /// Give a disk a size.
    VolumeSize,
    /// Give a directory a quota.
    VolumeQuota,
    /// Get a key, or another one.
    MakeKey,
    /// Begin a session of the dashboard, with a key or a new one-time address.
    SignIn,
    /// Check what the host lacks.
    Diagnose,
    /// Rebuild the records from the files on disk.
    Recover,
    /// Have the daemon listen on the network.
    Listen,
    /// Request this back end.
    UseBackend(BackendKind),
    /// Do without, or have the operator change this setting of the daemon.
    Configure(Setting),
    /// Check the image's name, or log in to its registry.
    LogIn,
    /// Let the sandbox reach this host.
    Allow(String),
    /// Do without these rules, or ask a person to open them: they are beyond what the operator lets callers allow.
    AskNetwork(Vec<String>),
    /// Have the operator set a secret for a host.
    SetSecret {
        name: String,
        host: Option<String>,
    },
}
