//! The lifecycle of a sandbox.
//!
//! ```text
//!   Creating ─→ Running ⇄ Paused
//!       ↑          └────┬────┘
//!     start             ▼
//!       └─ Stopped ←─ Stopping
//! ```
//!
//! Any state but `Stopped` may fall to `Failed`, which only removal leaves.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    Creating,
    Running,
    Paused,
    Stopping,
    Stopped,
    Failed,
}

/// An action of a caller on an existing sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Run a command, touch files, open a port: anything that needs the guest and the workload awake.
    Exec,
    /// Read and write files, look around: needs the guest, which a pause leaves awake.
    Files,
    Start,
    Pause,
    Resume,
    Snapshot,
    Stop,
    Remove,
}

impl SandboxState {
    pub const ALL: [Self; 6] =
        [Self::Creating, Self::Running, Self::Paused, Self::Stopping, Self::Stopped, Self::Failed];

    /// The whole lifecycle in one place; every refused action is refused here.
    pub fn allows(self, action: Action) -> bool {
        use Action as A;
        match self {
            Self::Creating => matches!(action, A::Stop),
            Self::Running => matches!(action, A::Exec | A::Files | A::Pause | A::Snapshot | A::Stop),
            Self::Paused => matches!(action, A::Files | A::Resume | A::Snapshot | A::Stop),
            Self::Stopping => false,
            Self::Stopped => matches!(action, A::Start | A::Snapshot | A::Remove),
            Self::Failed => matches!(action, A::Remove),
        }
    }

    /// Whether it has an instance on the host.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Creating | Self::Running | Self::Paused | Self::Stopping)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for SandboxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for SandboxState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|state| state.as_str()).collect();
            format!("{text:?} is not a state; the states are {}", known.join(", "))
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exec => "exec",
            Self::Files => "files",
            Self::Start => "start",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Snapshot => "snapshot",
            Self::Stop => "stop",
            Self::Remove => "remove",
        })
    }
}
