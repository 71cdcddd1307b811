//! Views of sandboxes and execs for callers: facts of the record, and the current state.

use jiff::Timestamp;
use sandbox::{
    ContextName, Enforcement, ExecId, ExecOutcome, ExecState, Isolation, KeyId, Label, Language, Lifetime,
    LimitKind, LimitStatement, Limits, Namespace, PortView, RequestId, SandboxId, SandboxName, SandboxPlan,
    SandboxSpec, SandboxState, TerminalSize,
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

/// Sentences about the sandbox's isolation for its owner, who asked for these limits. Each limit is in one of them.
pub fn weaknesses(isolation: &Isolation, asked: &Limits) -> Vec<String> {
    let of_limits = [defaults_not_held(isolation, asked), not_held_as_asked(isolation, asked)];
    isolation.warnings.iter().cloned().chain(of_limits.into_iter().flatten()).collect()
}

/// One sentence about the limits that were asked for and that nothing enforces, or something weaker than the limit.
pub fn not_held_as_asked(isolation: &Isolation, asked: &Limits) -> Option<String> {
    let statements = isolation.limits.iter().filter(|statement| is_asked(asked, statement.limit));
    let said: Vec<_> = statements.filter_map(said_of_asked).collect();
    (!said.is_empty()).then(|| format!("Limits not held here as asked for: {}.", said.join(", ")))
}

fn said_of_asked(statement: &LimitStatement) -> Option<String> {
    let limit = limit_name(statement.limit);
    match statement.enforcement {
        Enforcement::NotHeld => Some(format!("{limit} (not held)")),
        // What a note says behind its first part is why; the statement has it.
        _ if is_weaker(statement) => {
            let note = statement.note.as_deref().unwrap_or("held more weakly");
            let how = note.split(": ").next().unwrap_or(note).trim_end_matches('.');
            Some(format!("{limit} ({})", how.to_lowercase()))
        }
        _ => None,
    }
}

/// Whether something holds it, but not what the limit says.
fn is_weaker(statement: &LimitStatement) -> bool {
    match statement.enforcement {
        // For each process, not for the whole sandbox.
        Enforcement::Rlimit => statement.limit != LimitKind::OpenFiles,
        Enforcement::Affinity => !statement.value.is_multiple_of(1000),
        Enforcement::CgroupV1
        | Enforcement::CgroupV2
        | Enforcement::UserNamespace
        | Enforcement::FileSystem
        | Enforcement::Accounting
        | Enforcement::NotHeld => false,
    }
}

/// The names of the limits that nothing enforces, of those that nobody asked for.
pub fn names_of_defaults_not_held(isolation: &Isolation, asked: &Limits) -> Vec<&'static str> {
    let not_held = isolation.not_held().filter(|statement| !is_asked(asked, statement.limit));
    not_held.map(|statement| limit_name(statement.limit)).collect()
}

/// One sentence about the limits that nothing enforces, of those that nobody asked for.
fn defaults_not_held(isolation: &Isolation, asked: &Limits) -> Option<String> {
    let names = names_of_defaults_not_held(isolation, asked);
    let (last, others) = names.split_last()?;
    Some(match others {
        [] => format!("This host does not hold the {last} limit."),
        others => format!("This host does not hold the limits {} and {last}.", others.join(", ")),
    })
}

fn is_asked(limits: &Limits, kind: LimitKind) -> bool {
    match kind {
        LimitKind::Memory => limits.memory.is_some(),
        LimitKind::Swap => limits.swap.is_some(),
        LimitKind::Cpus => limits.cpus.is_some(),
        LimitKind::Pids => limits.pids.is_some(),
        LimitKind::OpenFiles => limits.open_files.is_some(),
        LimitKind::Disk => limits.disk.is_some(),
        LimitKind::Tmp => limits.tmp.is_some(),
        LimitKind::Shm => limits.shm.is_some(),
    }
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
    use sandbox::{BackendKind, CpuCount};

    use super::*;

    fn isolation(limits: Vec<LimitStatement>) -> Isolation {
        Isolation {
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
            limits,
            warnings: vec!["Something to know.".into()],
        }
    }

    fn statement(
        limit: LimitKind,
        value: u64,
        enforcement: Enforcement,
        note: Option<&str>,
    ) -> LimitStatement {
        LimitStatement { limit, value, enforcement, note: note.map(ToOwned::to_owned) }
    }

    #[test]
    fn limits_that_nothing_holds_are_warned_of() {
        let isolation = isolation(vec![
            statement(LimitKind::Pids, 512, Enforcement::NotHeld, Some("no cgroup was delegated.")),
            // Nobody asked for half a processor, so nobody misses it.
            statement(
                LimitKind::Cpus,
                500,
                Enforcement::Affinity,
                Some("Held as 1 whole processor: no cgroup."),
            ),
            statement(LimitKind::OpenFiles, 512, Enforcement::Rlimit, None),
        ]);
        let expected = ["Something to know.", "This host does not hold the pids limit."];
        assert_eq!(weaknesses(&isolation, &Limits::default()), expected);
    }

    #[test]
    fn limits_that_were_asked_for_and_are_held_more_weakly_are_said_once_and_with_those_that_nothing_holds() {
        let isolation = isolation(vec![
            statement(LimitKind::Memory, 9, Enforcement::Rlimit, Some("Held for each process.")),
            statement(LimitKind::Swap, 0, Enforcement::NotHeld, Some("No cgroup.")),
            statement(
                LimitKind::Cpus,
                500,
                Enforcement::Affinity,
                Some("Held as 1 whole processor: no cgroup."),
            ),
            statement(LimitKind::Pids, 64, Enforcement::NotHeld, Some("No cgroup.")),
            statement(LimitKind::OpenFiles, 512, Enforcement::Rlimit, Some("Shared.")),
            statement(LimitKind::Disk, 512, Enforcement::Accounting, Some("Looked at every second.")),
        ]);
        let asked = Limits {
            memory: Some(sandbox::ByteSize(9)),
            cpus: Some(CpuCount { millis: 500 }),
            pids: Some(64),
            open_files: Some(512),
            disk: Some(sandbox::ByteSize(512)),
            ..Limits::default()
        };
        let expected = [
            "Something to know.",
            "This host does not hold the swap limit.",
            "Limits not held here as asked for: memory (held for each process), cpus (held as 1 whole \
             processor), pids (not held).",
        ];
        assert_eq!(weaknesses(&isolation, &asked), expected);
    }

    #[test]
    fn whole_processors_by_affinity_are_what_was_asked_for() {
        let isolation =
            isolation(vec![statement(LimitKind::Cpus, 2000, Enforcement::Affinity, Some("Two."))]);
        let asked = Limits { cpus: Some(CpuCount::whole(2)), ..Limits::default() };
        assert_eq!(not_held_as_asked(&isolation, &asked), None);
    }
}
