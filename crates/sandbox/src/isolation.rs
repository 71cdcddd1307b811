//! The actual isolation of a sandbox, as stated by the back end that built it.

use serde::{Deserialize, Serialize};

use crate::BackendKind;

/// The first word of [`Isolation::network`] where an edge serves it.
pub const EDGE_NETWORK: &str = "edge";

/// The walls that one sandbox got, stated by the back end that built them; kept with its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Isolation {
    pub backend: BackendKind,
    /// What stands between the workload and the host.
    #[serde(default)]
    #[schema(required)]
    pub walls: Walls,
    /// Whether the daemon that made it lacked root.
    pub rootless: bool,
    /// `own-range`: host ids that nothing else uses. `subordinate`: the user's subuid range. `single`: only the user's
    /// own id. `host`: the host's own ids, where its file system cannot map others.
    #[serde(default)]
    #[schema(required)]
    pub id_map: String,
    /// As in `lsns`: `user mnt pid net ipc uts cgroup`.
    #[serde(default)]
    #[schema(required)]
    pub namespaces: Vec<String>,
    /// Capabilities that commands keep inside their own user namespace; none of them applies on the host.
    pub capabilities: Vec<String>,
    pub no_new_privileges: bool,
    /// Name of the syscall filter, if there is one.
    pub seccomp: Option<String>,
    /// `none`: loopback only. `packages`: package indexes, through the daemon. `edge (tproxy)`: by its network policy.
    /// `edge (named ports)`: the same for some ports, which `warnings` tell.
    pub network: String,
    /// `v1`, `v2`, `hybrid` or `none`.
    pub cgroups: String,
    pub limits: Vec<LimitStatement>,
    /// What an operator should know, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Isolation {
    /// Whether it has a network that an edge serves.
    pub fn has_edge(&self) -> bool {
        self.network.starts_with(EDGE_NETWORK)
    }
}

/// The kind of walls, by the kernel that the workload talks to. The other fields describe them as far as they apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Walls {
    /// The host's kernel, behind namespaces and filters. Records of earlier versions have only this kind.
    #[default]
    SharedKernel,
    /// A kernel that runs as a host program.
    UserSpaceKernel,
    VirtualMachine,
    /// Whatever a cluster puts around its pods.
    Pod,
    /// No walls: the workload may do whatever the daemon's user may.
    Nothing,
}

/// How one limit is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitStatement {
    pub limit: LimitKind,
    pub value: u64,
    pub enforcement: Enforcement,
    /// Why it is weaker than a hard limit, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum LimitKind {
    Memory,
    Swap,
    /// In thousandths of a processor.
    Cpus,
    Pids,
    OpenFiles,
    Disk,
    Tmp,
    Shm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Enforcement {
    CgroupV1,
    CgroupV2,
    /// For each process on its own, not for their sum.
    Rlimit,
    /// For all processes of the sandbox's user namespace together.
    UserNamespace,
    /// Whole processors, by affinity.
    Affinity,
    /// A file system of that size.
    FileSystem,
    /// Measured periodically; the writer is stopped soon after it passes the limit.
    Accounting,
    NotHeld,
}

impl Isolation {
    /// The limits that nothing enforces; front ends show these.
    pub fn not_held(&self) -> impl Iterator<Item = &LimitStatement> {
        self.limits.iter().filter(|limit| limit.enforcement == Enforcement::NotHeld)
    }
}
