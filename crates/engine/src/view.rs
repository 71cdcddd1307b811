//! What callers see of sandboxes and execs: facts of the record, and what is true right now.

use jiff::Timestamp;
use sandbox::{
    ExecId, ExecOutcome, ExecState, Isolation, Label, Lifetime, Namespace, RequestId, SandboxId, SandboxName,
    SandboxPlan, SandboxSpec, SandboxState,
};
use serde::{Deserialize, Serialize};

/// A sandbox as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxView {
    pub id: SandboxId,
    pub name: SandboxName,
    pub namespace: Namespace,
    pub spec: SandboxSpec,
    pub plan: SandboxPlan,
    pub state: SandboxState,
    /// Why it stopped or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub lifetime: Lifetime,
    pub last_active_at: Timestamp,
    pub n_running_execs: usize,
    /// Since when no request touched it and none of its execs ran; absent while one does, or when it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// No new execs are taken; it stops when the running ones have ended.
    #[serde(default)]
    pub draining: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One exec as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecView {
    pub id: ExecId,
    pub sandbox: SandboxId,
    pub command: Vec<String>,
    pub state: ExecState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ExecOutcome>,
    /// What a shell would show; present once it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    pub terminal: bool,
    /// Whether stdin was kept open for writing.
    pub stdin: bool,
    /// Number of the last ledger entry so far; 0 when there is none.
    pub last_entry: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

/// Which sandboxes to list. Everything given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxFilter {
    pub namespace: Option<Namespace>,
    /// Any of these; empty means all.
    pub states: Vec<SandboxState>,
    pub labels: Vec<Label>,
    pub name_contains: Option<String>,
}

impl SandboxFilter {
    pub(crate) fn matches(&self, view: &SandboxView) -> bool {
        let has = |label: &Label| view.spec.labels.get(&label.key) == Some(&label.value);
        self.namespace.as_ref().is_none_or(|namespace| *namespace == view.namespace)
            && (self.states.is_empty() || self.states.contains(&view.state))
            && self.labels.iter().all(has)
            && self.name_contains.as_ref().is_none_or(|part| view.name.as_str().contains(part.as_str()))
    }
}
