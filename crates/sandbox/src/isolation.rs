//! The actual isolation of a sandbox, as stated by the back end that built it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::BackendKind;

/// The walls that one sandbox got, stated by the back end that built them; kept with its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Isolation {
    pub backend: BackendKind,
    /// The walls between the workload and the host.
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
    /// `edge (named ports)`: the same for some ports, which `warnings` tell. `host`: the host's own, without a policy.
    #[schema(value_type = String)]
    pub network: NetworkHold,
    /// `v1`, `v2`, `hybrid` or `none`.
    pub cgroups: String,
    pub limits: Vec<LimitStatement>,
    /// Notes for the operator, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Isolation {
    /// Whether it has a network that an edge serves.
    pub fn has_edge(&self) -> bool {
        self.network.is_edge()
    }
}

/// The means by which a sandbox's network is held, written as [`NetworkHold::as_str`] in records and answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "&'static str")]
pub enum NetworkHold {
    /// There is only loopback.
    #[default]
    Loopback,
    /// The daemon's package indexes are all there is.
    Packages,
    /// An edge, which takes every connection.
    Edge,
    /// An edge, which takes the connections to some ports; there are no others.
    EdgeByNamedPorts,
    /// Nothing: it is the host's own.
    Host,
}

impl NetworkHold {
    const ALL: [Self; 5] = [Self::Loopback, Self::Packages, Self::Edge, Self::EdgeByNamedPorts, Self::Host];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loopback => "none",
            Self::Packages => "packages",
            Self::Edge => "edge (tproxy)",
            Self::EdgeByNamedPorts => "edge (named ports)",
            Self::Host => "host",
        }
    }

    pub const fn is_edge(self) -> bool {
        matches!(self, Self::Edge | Self::EdgeByNamedPorts)
    }
}

impl fmt::Display for NetworkHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<NetworkHold> for &'static str {
    fn from(hold: NetworkHold) -> Self {
        hold.as_str()
    }
}

/// A record of another version may say what this one does not know. Its sandbox is served no network then.
impl From<String> for NetworkHold {
    fn from(text: String) -> Self {
        Self::ALL.into_iter().find(|hold| hold.as_str() == text).unwrap_or_default()
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

/// The enforcement of one limit.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_a_network_is_written_as_in_records_of_earlier_versions() {
        for hold in NetworkHold::ALL {
            let written = serde_json::to_string(&hold).unwrap();
            assert_eq!(written, format!("{:?}", hold.as_str()));
            assert_eq!(serde_json::from_str::<NetworkHold>(&written).unwrap(), hold);
        }
        let unknown = serde_json::from_str::<NetworkHold>("\"edge (of another kind)\"").unwrap();
        assert_eq!(unknown, NetworkHold::Loopback);
    }
}
