//! Views of sandboxes and execs for callers: facts of the record, and the current state.

use jiff::Timestamp;
use sandbox::{
    ContextName, ExecId, ExecOutcome, ExecState, Isolation, KeyId, Label, Language, Lifetime, LimitKind,
    Namespace, PortView, RequestId, SandboxId, SandboxName, SandboxPlan, SandboxSpec, SandboxState,
    TerminalSize,
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
    /// Its back end does not answer, as `reason` says. Its state is the last known one, and nothing of it is removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
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
    /// The key that made it; absent for the daemon's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<KeyId>,
    pub n_running_execs: usize,
    /// Since when no request used it and none of its execs ran; absent while one does, or if it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// It accepts no new execs, and stops when the running ones have ended.
    #[serde(default)]
    pub draining: bool,
    /// Reachable from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Sentences about the sandbox's isolation for its owner.
pub fn weaknesses(isolation: &Isolation) -> Vec<String> {
    isolation.warnings.iter().cloned().chain(limits_not_held(isolation, |_| true)).collect()
}

/// One sentence about the limits that nothing enforces, of those that are asked about.
pub fn limits_not_held(isolation: &Isolation, is_asked: impl Fn(LimitKind) -> bool) -> Option<String> {
    let not_held: Vec<_> = isolation.not_held().filter(|statement| is_asked(statement.limit)).collect();
    let names: Vec<_> = not_held.iter().map(|statement| limit_name(statement.limit)).collect();
    let (last, others) = names.split_last()?;
    let limits = match others {
        [] => format!("The {last} limit is"),
        others => format!("The limits {} and {last} are", others.join(", ")),
    };
    // Most often one cause is behind all of them.
    let mut notes: Vec<&str> = Vec::new();
    for note in not_held.iter().filter_map(|statement| statement.note.as_deref()) {
        let note = note.trim_end_matches('.');
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    let why = if notes.is_empty() { String::new() } else { format!(": {}", notes.join("; ")) };
    Some(format!("{limits} not held{why}."))
}

fn limit_name(limit: LimitKind) -> &'static str {
    match limit {
        LimitKind::Memory => "memory",
        LimitKind::Swap => "swap",
        LimitKind::Cpus => "cpus",
        LimitKind::Pids => "pids",
        LimitKind::OpenFiles => "open files",
        LimitKind::Disk => "disk",
        LimitKind::Tmp => "/tmp",
        LimitKind::Shm => "/dev/shm",
    }
}

/// One command run in a sandbox, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Exec)]
pub struct ExecView {
    pub id: ExecId,
    pub sandbox: SandboxId,
    pub command: Vec<String>,
    pub state: ExecState,
    /// The outcome; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ExecOutcome>,
    /// The exit code a shell would show; present once it is done.
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
    /// The size of its terminal, as it was set last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_size: Option<TerminalSize>,
    /// Whether stdin was kept open for writing.
    #[serde(default)]
    pub stdin: bool,
    /// Number of the last ledger entry so far; 0 if there is none.
    pub last_entry: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The caller who asked for it, as named in the audit. Absent for a sandbox's own init, and for execs of earlier
    /// releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<String>,
    /// Present when it runs code instead of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellView>,
}

/// A cell, without its code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellView {
    #[schema(value_type = String)]
    pub language: Language,
    /// Absent for languages that keep no variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextName>,
}

/// Which sandboxes to list. All given conditions must hold.
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

#[cfg(test)]
mod tests {
    use sandbox::{BackendKind, Enforcement, LimitStatement};

    use super::*;

    #[test]
    fn limits_that_nothing_holds_are_warned_of() {
        let statement = |limit, enforcement, note: Option<&str>| LimitStatement {
            limit,
            value: 512,
            enforcement,
            note: note.map(ToOwned::to_owned),
        };
        let isolation = Isolation {
            backend: BackendKind::Namespace,
            walls: sandbox::Walls::SharedKernel,
            rootless: true,
            id_map: "single".into(),
            namespaces: vec![],
            capabilities: vec![],
            no_new_privileges: true,
            seccomp: None,
            network: sandbox::NetworkHold::Loopback,
            cgroups: "none".into(),
            limits: vec![
                statement(LimitKind::Pids, Enforcement::NotHeld, Some("no cgroup was delegated")),
                statement(LimitKind::OpenFiles, Enforcement::Rlimit, None),
            ],
            warnings: vec!["Something to know.".into()],
        };
        let expected = ["Something to know.", "The pids limit is not held: no cgroup was delegated."];
        assert_eq!(weaknesses(&isolation), expected);
    }
}
