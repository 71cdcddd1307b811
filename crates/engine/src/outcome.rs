//! From the guest's report to an exec's outcome.

use guest_protocol::{ExitReport, StartFailure};
use sandbox::{EventKind, ExecOutcome, KillReason, NotStarted};

/// SIGKILL, the only signal that the kernel's memory killer and a forced end use.
pub(crate) const SIGKILL: i32 = 9;

pub(crate) fn from_report(report: &ExitReport, kill_requested: bool) -> ExecOutcome {
    let killed = |reason| ExecOutcome::Killed { reason };
    let was_killed = report.signal == Some(SIGKILL);
    match *report {
        // A process that caught the signal and exited politely ran out of time too.
        ExitReport { timed_out: true, .. } => killed(KillReason::TimeLimit),
        ExitReport { disk_limit: true, .. } => killed(KillReason::DiskLimit),
        ExitReport { oom_kills: 1.., .. } if was_killed => killed(KillReason::MemoryLimit),
        ExitReport { shutdown: true, .. } => killed(KillReason::SandboxStopped),
        ExitReport { code: Some(code), oom_kills, .. } => {
            ExecOutcome::Exited { code, memory_limit_hit: oom_kills > 0 }
        }
        ExitReport { signal: Some(_), .. } if was_killed && kill_requested => killed(KillReason::Request),
        ExitReport { signal: Some(signal), .. } => ExecOutcome::Signaled { signal },
        // A guest that reports neither has lost track of it.
        ExitReport { code: None, signal: None, .. } => killed(KillReason::SandboxLost),
    }
}

pub(crate) fn not_started(reason: StartFailure, message: String) -> ExecOutcome {
    let reason = match reason {
        StartFailure::NotFound => NotStarted::NotFound,
        StartFailure::NotExecutable => NotStarted::NotExecutable,
        StartFailure::BadWorkingDirectory => NotStarted::BadWorkingDirectory,
        StartFailure::BadUser => NotStarted::BadUser,
        StartFailure::LimitReached => NotStarted::LimitReached,
        StartFailure::Other => NotStarted::Other,
    };
    ExecOutcome::NotStarted { reason, message }
}

/// The event for an exceeded limit, beside the one of the end.
pub(crate) fn event_of(outcome: &ExecOutcome) -> Option<EventKind> {
    match outcome {
        ExecOutcome::Killed { reason: KillReason::MemoryLimit }
        | ExecOutcome::Exited { memory_limit_hit: true, .. } => Some(EventKind::OutOfMemory),
        ExecOutcome::Killed { reason: KillReason::DiskLimit } => Some(EventKind::DiskLimit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: ExitReport = ExitReport {
        code: None,
        signal: None,
        timed_out: false,
        oom_kills: 0,
        shutdown: false,
        disk_limit: false,
    };

    fn check(report: ExitReport, expected: ExecOutcome) {
        assert_eq!(from_report(&report, false), expected, "{report:?}");
    }

    fn killed(reason: KillReason) -> ExecOutcome {
        ExecOutcome::Killed { reason }
    }

    #[test]
    fn reports_become_outcomes() {
        check(ExitReport { code: Some(3), ..PLAIN }, ExecOutcome::exited(3));
        check(ExitReport { signal: Some(15), ..PLAIN }, ExecOutcome::Signaled { signal: 15 });
        check(ExitReport { signal: Some(9), timed_out: true, ..PLAIN }, killed(KillReason::TimeLimit));
        check(ExitReport { code: Some(0), timed_out: true, ..PLAIN }, killed(KillReason::TimeLimit));
        check(ExitReport { signal: Some(9), oom_kills: 1, ..PLAIN }, killed(KillReason::MemoryLimit));
        check(
            ExitReport { code: Some(1), oom_kills: 2, ..PLAIN },
            ExecOutcome::Exited { code: 1, memory_limit_hit: true },
        );
        check(ExitReport { signal: Some(15), shutdown: true, ..PLAIN }, killed(KillReason::SandboxStopped));
        check(ExitReport { signal: Some(9), disk_limit: true, ..PLAIN }, killed(KillReason::DiskLimit));
        check(PLAIN, killed(KillReason::SandboxLost));
    }

    #[test]
    fn a_kill_that_we_were_asked_for_is_known_as_one() {
        let report = ExitReport { signal: Some(9), ..PLAIN };
        assert_eq!(from_report(&report, true), killed(KillReason::Request));
    }
}
