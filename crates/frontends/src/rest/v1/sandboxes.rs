//! Sandboxes on the wire.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbox::{
    BackendKind, ImageRef, InitSpec, Isolation, KeyId, Lifetime, Limits, LimitsPlan, MountSpec, Namespace,
    PortView, Preset, ProcessEntry, RequestId, Rlimit, SandboxId, SandboxName, SandboxState,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The changes of a sandbox. Absent members stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub name: Option<SandboxName>,
    /// `memory`, `swap`, `cpus` and `pids` can be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// One sandbox: its spec, the decided settings, and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    pub id: SandboxId,
    pub name: SandboxName,
    pub namespace: Namespace,
    #[serde(default)]
    pub backend: BackendKind,
    pub image: ImageRef,
    pub state: SandboxState,
    /// Why it failed or stopped, if there is a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its back end does not answer: `state` is the last that was known, and `reason` says why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub unreachable: bool,
    pub limits: LimitsPlan,
    pub env: BTreeMap<String, String>,
    pub cwd: String,
    pub user: String,
    /// Shell for command lines; `sh` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Program to run, before `cmd`, if a command names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Ports that the image says it listens on, as `80/tcp`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exposed_ports: Vec<String>,
    /// Started with the sandbox, each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<InitSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rlimits: Vec<Rlimit>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountSpec>,
    /// What it may reach where no rule of its network policy says otherwise.
    #[serde(default)]
    pub network_preset: Preset,
    pub hostname: String,
    pub labels: BTreeMap<String, String>,
    pub lifetime: Lifetime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// Its isolation; absent before its first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub last_active_at: Timestamp,
    /// The key that created it; absent if it was the daemon's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    pub running_execs: usize,
    /// No new execs are taken; it stops when the running ones have ended.
    #[serde(default)]
    pub draining: bool,
    /// Ports that are reachable from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortView>,
    /// Notes for the operator, as sentences.
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SandboxList {
    pub sandboxes: Vec<Sandbox>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessList {
    pub processes: Vec<ProcessEntry>,
}

query!(
    /// The query of a route that takes nothing else.
    NamespaceQuery {}
);

query!(RemoveQuery {
    /// Stop it first if it runs.
    #[serde(default)]
    pub force: bool,
});

query!(StopQuery {
    /// The time processes get to end by themselves before they are killed.
    pub grace_ms: Option<u64>,
});

query!(DrainQuery {
    /// The longest wait for the running execs.
    pub timeout_ms: Option<u64>,
});

query!(WaitQuery {
    /// The state to wait for.
    pub state: SandboxState,
    /// Answer `timed_out` after this long.
    pub timeout_ms: Option<u64>,
});

query!(
    /// Where a port stream leads: exactly one of the two.
    ConnectQuery {
        /// A TCP port on the sandbox's loopback.
        pub port: Option<u16>,
        /// Path of a Unix socket inside.
        pub unix: Option<String>,
    }
);
