//! Sandboxes on the wire.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbox::{
    BackendKind, ImageRef, InitSpec, Isolation, KeyId, Lifetime, LimitsPlan, MountSpec, Namespace,
    ProcessEntry, RequestId, Rlimit, SandboxId, SandboxName, SandboxState,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::schema;

/// One sandbox: its spec, the decided settings, and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    #[schema(value_type = String, example = "sbx-0123456789abc")]
    pub id: SandboxId,
    #[schema(value_type = String)]
    pub name: SandboxName,
    #[schema(value_type = String)]
    pub namespace: Namespace,
    #[schema(value_type = String, example = "namespace")]
    #[serde(default)]
    pub backend: BackendKind,
    #[schema(value_type = String, example = "host")]
    pub image: ImageRef,
    #[schema(schema_with = schema::sandbox_state)]
    pub state: SandboxState,
    /// Why it failed or stopped, if there is a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its back end does not answer: `state` is the last that was known, and `reason` says why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub unreachable: bool,
    #[schema(value_type = schema::LimitsPlan)]
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
    #[schema(value_type = Option<schema::InitSpec>)]
    pub init: Option<InitSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<schema::Rlimit>)]
    pub rlimits: Vec<Rlimit>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<schema::MountSpec>)]
    pub mounts: Vec<MountSpec>,
    pub hostname: String,
    pub labels: BTreeMap<String, String>,
    #[schema(value_type = schema::Lifetime)]
    pub lifetime: Lifetime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub request_id: Option<RequestId>,
    /// Its isolation; absent before its first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Isolation>)]
    pub isolation: Option<Isolation>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub stopped_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    pub last_active_at: Timestamp,
    /// The key that created it; absent if it was the daemon's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub owner: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub idle_since: Option<Timestamp>,
    pub running_execs: usize,
    /// No new execs are taken; it stops when the running ones have ended.
    #[serde(default)]
    pub draining: bool,
    /// What an operator should know, as sentences.
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SandboxList {
    pub sandboxes: Vec<Sandbox>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessList {
    #[schema(value_type = Vec<schema::ProcessEntry>)]
    pub processes: Vec<ProcessEntry>,
}

/// The query of a route that takes nothing else.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NamespaceQuery {
    /// The namespace in which a sandbox name is looked up.
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Stop it first if it runs.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StopQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// How long processes may take to end by themselves before they are killed.
    pub grace_ms: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DrainQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// How long to wait for the running execs.
    pub timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// The state to wait for.
    #[param(value_type = String)]
    pub state: SandboxState,
    /// Answer `timed_out` after this long.
    pub timeout_ms: Option<u64>,
}

/// Where a port stream leads: exactly one of the two.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ConnectQuery {
    #[param(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// A TCP port on the sandbox's loopback.
    pub port: Option<u16>,
    /// Path of a Unix socket inside.
    pub unix: Option<String>,
}
