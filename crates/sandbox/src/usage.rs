//! The current resource usage of a sandbox.

use serde::{Deserialize, Serialize};

use crate::NetworkTraffic;

/// The current usage of a sandbox. Absent: this back end cannot tell on this host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    /// Processor time since the sandbox started, in microseconds.
    pub cpu_micros: Option<u64>,
    /// Processes and threads of the workload, without our guest.
    pub pids: Option<u64>,
    pub disk_bytes: Option<u64>,
    /// The number of processes that the kernel killed for lack of memory.
    pub oom_kills: Option<u64>,
    /// For a network that an edge serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkTraffic>,
}

/// One process inside, as the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessEntry {
    pub pid: i32,
    pub parent: i32,
    pub user: u32,
    /// One letter, as in `ps`: R, S, D, Z, T.
    pub state: char,
    pub memory_bytes: u64,
    pub cpu_micros: u64,
    pub command: Vec<String>,
    /// The exec it belongs to, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<String>,
}
