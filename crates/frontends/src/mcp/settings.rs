//! The rights of one MCP client, and how it is answered. The daemon has one such set for HTTP; each stdio client brings
//! its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Toolsets;
use crate::hostfs::HostPolicy;

/// Passed along by `warren mcp`, whose command line and environment it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    pub host: HostPolicy,
    /// Destructive calls need no `confirm`.
    pub dangerous_enabled: bool,
    /// Longest text in one field of an answer, unless the call asks for less or more. Absent: what the surface has.
    #[serde(default)]
    pub max_output_bytes: Option<u64>,
    /// The time limit of a command that names none.
    pub default_timeout_ms: u64,
    /// After this long without a call and without output an exec session's stdin is closed.
    pub session_ttl_ms: u64,
    pub toolsets: Toolsets,
}

impl Settings {
    pub const DEFAULT_TIMEOUT_MS: u64 = 120_000;
    pub const DEFAULT_SESSION_TTL_MS: u64 = 900_000;

    pub(crate) fn default_timeout(&self) -> Duration {
        Duration::from_millis(self.default_timeout_ms)
    }

    pub(crate) fn session_ttl(&self) -> Duration {
        Duration::from_millis(self.session_ttl_ms)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            host: HostPolicy::default(),
            dangerous_enabled: false,
            max_output_bytes: None,
            default_timeout_ms: Self::DEFAULT_TIMEOUT_MS,
            session_ttl_ms: Self::DEFAULT_SESSION_TTL_MS,
            toolsets: Toolsets::default(),
        }
    }
}
