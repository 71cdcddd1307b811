//! What an error is about, and what comes next: values that every front end puts into its own words.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::BackendKind;

/// The sorts of things that errors are about.
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
    File,
    HostPath,
    Patch,
    Archive,
    Route,
    Backend,
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
            Self::File => "file",
            Self::HostPath => "host path",
            Self::Patch => "patch",
            Self::Archive => "archive",
            Self::Route => "route",
            Self::Backend => "back end",
        }
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What an error is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Subject {
    pub what: Thing,
    /// Empty where what was given is no name.
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
    /// Sandboxes of the daemon.
    Sandboxes,
    /// Sandboxes of a key.
    KeySandboxes,
    /// Memory of all sandboxes of a key, in bytes.
    KeyMemory,
    /// Bytes that a volume holds.
    VolumeQuota,
    Volumes,
    Snapshots,
    Keys,
    /// Commands that run in one sandbox at once.
    Execs,
    PackageJobs,
    /// Requests in a second.
    RequestRate,
    /// Streams that are open at once.
    Streams,
}

/// A limit that a request would pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Overrun {
    pub limit: Limit,
    pub most: u64,
    /// What there would be with the request.
    pub asked: u64,
}

/// What the caller can do next. Sandboxes are given by the name that the caller knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", content = "with", rename_all = "snake_case")]
pub enum Next {
    /// Anything that reads the same everywhere, as a full sentence.
    Advice(String),
    /// The same again.
    Retry,
    /// Nothing: it is as it was asked for.
    Nothing,
    /// Start this sandbox.
    Start(String),
    Resume(String),
    Stop(String),
    /// Stop this sandbox, or remove it by force.
    StopOrForce(String),
    /// Wait until this sandbox runs.
    AwaitRunning(String),
    /// Wait until this sandbox has stopped.
    AwaitStopped(String),
    /// Wait until this sandbox has stopped, and start it.
    Restart(String),
    /// Look at this sandbox.
    Inspect(String),
    /// Remove this sandbox and create another.
    Replace(String),
    /// See which there are.
    List(Thing),
    /// Create one of this sort first.
    Create(Thing),
    /// Give a name that things of this sort can have.
    Name(Thing),
    /// Choose another name, or remove what has it.
    FreeName(Subject),
    /// Remove some that are not needed.
    Remove(Thing),
    /// Remove what uses it, or remove it by force.
    RemoveUsers(Thing),
    /// Get this image, or an archive that has it inside.
    Pull(String),
    /// Have a limit raised, or remove some of what it counts.
    Raise(Limit),
    /// Give an archive that was saved from one of this sort.
    Archive(Thing),
    /// Give a disk a size.
    VolumeSize,
    /// Give a directory a quota.
    VolumeQuota,
    /// Get a key, or another one.
    MakeKey,
    /// Look at what the host lacks.
    Diagnose,
    /// Make the records anew from what is on disk.
    Recover,
    /// Have the daemon listen on the network.
    Listen,
    /// Ask for this back end.
    UseBackend(BackendKind),
}
