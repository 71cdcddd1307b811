//! Events: facts in the order they happened.

use std::{fmt, str::FromStr};

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
    SandboxRenamed,
    SnapshotCreated,
    SnapshotRemoved,
    ExecStarted,
    ExecEnded,
    OutOfMemory,
    DiskLimit,
    LedgerTrimmed,
    /// Traffic was refused by the sandbox's network policy.
    NetworkDenied,
    /// Somebody asked for more than the policy allows.
    NetworkRequested,
    NetworkGranted,
    NetworkRefused,
    /// The time of a grant is over.
    NetworkGrantEnded,
}

impl EventKind {
    pub const ALL: [Self; 23] = [
        Self::SandboxCreated,
        Self::SandboxStarted,
        Self::SandboxPaused,
        Self::SandboxResumed,
        Self::SandboxStopped,
        Self::SandboxFailed,
        Self::SandboxExpired,
        Self::SandboxAdopted,
        Self::SandboxRemoved,
        Self::SandboxRenewed,
        Self::SandboxRenamed,
        Self::SnapshotCreated,
        Self::SnapshotRemoved,
        Self::ExecStarted,
        Self::ExecEnded,
        Self::OutOfMemory,
        Self::DiskLimit,
        Self::LedgerTrimmed,
        Self::NetworkDenied,
        Self::NetworkRequested,
        Self::NetworkGranted,
        Self::NetworkRefused,
        Self::NetworkGrantEnded,
    ];

    /// As in records and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SandboxCreated => "sandbox_created",
            Self::SandboxStarted => "sandbox_started",
            Self::SandboxPaused => "sandbox_paused",
            Self::SandboxResumed => "sandbox_resumed",
            Self::SandboxStopped => "sandbox_stopped",
            Self::SandboxFailed => "sandbox_failed",
            Self::SandboxExpired => "sandbox_expired",
            Self::SandboxAdopted => "sandbox_adopted",
            Self::SandboxRemoved => "sandbox_removed",
            Self::SandboxRenewed => "sandbox_renewed",
            Self::SandboxRenamed => "sandbox_renamed",
            Self::SnapshotCreated => "snapshot_created",
            Self::SnapshotRemoved => "snapshot_removed",
            Self::ExecStarted => "exec_started",
            Self::ExecEnded => "exec_ended",
            Self::OutOfMemory => "out_of_memory",
            Self::DiskLimit => "disk_limit",
            Self::LedgerTrimmed => "ledger_trimmed",
            Self::NetworkDenied => "network_denied",
            Self::NetworkRequested => "network_requested",
            Self::NetworkGranted => "network_granted",
            Self::NetworkRefused => "network_refused",
            Self::NetworkGrantEnded => "network_grant_ended",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for EventKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let shown: String = text.chars().filter(|c| !c.is_control()).take(64).collect();
            let known: Vec<_> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
            format!("{shown:?} is not a kind of event; the kinds are {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_one_name_everywhere() {
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert!("sandbox_eaten".parse::<EventKind>().unwrap_err().contains("sandbox_created"));
    }
}
