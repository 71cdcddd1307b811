//! Events: facts in the order they happened.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ExecId, Namespace, SandboxId, SandboxName};

/// One numbered event. Numbers only grow; a reader that was away resumes from a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub number: u64,
    pub at: Timestamp,
    /// Such as `sandbox_created` or `exec_ended`.
    pub kind: EventKind,
    pub sandbox: Option<SandboxId>,
    pub name: Option<SandboxName>,
    pub namespace: Option<Namespace>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecId>,
    /// A sentence for people; programs read `kind`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    SandboxCreated,
    SandboxStarted,
    SandboxPaused,
    SandboxResumed,
    SandboxStopped,
    SandboxFailed,
    SandboxExpired,
    SandboxAdopted,
    SandboxRemoved,
    SandboxRenewed,
    SnapshotCreated,
    SnapshotRemoved,
    ExecStarted,
    ExecEnded,
    OutOfMemory,
    DiskLimit,
    LedgerTrimmed,
    /// Traffic was refused by the sandbox's network policy.
    NetworkDenied,
}
