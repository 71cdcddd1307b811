//! What is said about limits that a host does not hold as they were asked for.

use sandbox::{Enforcement, Isolation, LimitKind, LimitStatement, Limits};

/// One line about the limits that the user set and that are not held, or held more weakly; nothing if all are held.
pub(super) fn weaker(isolation: &Isolation, asked: &Limits) -> Option<String> {
    let statements = isolation.limits.iter().filter(|statement| is_asked(asked, statement.limit));
    let said: Vec<_> = statements.filter_map(said_of).collect();
    (!said.is_empty())
        .then(|| format!("limits are not held here as they were asked for: {}", said.join("; ")))
}

fn said_of(statement: &LimitStatement) -> Option<String> {
    let is_weak = match statement.enforcement {
        Enforcement::NotHeld => true,
        // For each process, not for the whole sandbox.
        Enforcement::Rlimit => statement.limit != LimitKind::OpenFiles,
        Enforcement::Affinity => !statement.value.is_multiple_of(1000),
        Enforcement::CgroupV1
        | Enforcement::CgroupV2
        | Enforcement::UserNamespace
        | Enforcement::FileSystem
        | Enforcement::Accounting => false,
    };
    let limit = name(statement.limit);
    let note = statement.note.as_deref().unwrap_or("not held").trim_end_matches('.');
    is_weak.then(|| match statement.enforcement {
        Enforcement::NotHeld => format!("{limit}: not held. {note}"),
        _ => format!("{limit}: {note}"),
    })
}

fn name(limit: LimitKind) -> &'static str {
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
