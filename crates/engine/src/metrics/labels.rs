//! The labels, and the few values that each can have.

use prometheus_client::encoding::EncodeLabelSet;
use sandbox::{ErrorKind, ExecOutcome, ExecSpec, Result};

pub(super) const OK: &str = "ok";
/// An error without a kind of ours: of a dialect, or of a server inside.
pub(super) const FAILED: &str = "failed";
/// Results that are refusals.
pub(super) const REFUSALS: [&str; 3] =
    [ErrorKind::Unauthenticated.as_str(), ErrorKind::Denied.as_str(), ErrorKind::LimitReached.as_str()];

/// The kind of work that an exec runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExecKind {
    Command,
    Terminal,
    Cell,
}

impl ExecKind {
    pub(super) const ALL: [Self; 3] = [Self::Command, Self::Terminal, Self::Cell];

    pub(crate) fn of(spec: &ExecSpec) -> Self {
        match (&spec.cell, spec.terminal) {
            (Some(_), _) => Self::Cell,
            (None, Some(_)) => Self::Terminal,
            (None, None) => Self::Command,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Terminal => "terminal",
            Self::Cell => "cell",
        }
    }
}

/// Declares one set of labels.
macro_rules! labels {
    ($($name:ident { $($label:ident: $kind:ty),* })*) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub(super) struct $name {
            $(pub(super) $label: $kind),*
        }
    )*};
}

labels! {
    Outcome { result: &'static str }
    OnBackend { backend: &'static str }
    State { backend: &'static str, state: &'static str }
    Kind { kind: &'static str }
    Of { kind: &'static str }
    ExecStart { kind: &'static str, result: &'static str }
    Action { frontend: &'static str, action: String }
    Request { frontend: &'static str, action: String, result: &'static str }
    Refused { frontend: &'static str, reason: &'static str }
    Decision { decision: &'static str }
    Bytes { direction: &'static str }
}

pub(super) fn result_of<T>(result: &Result<T>) -> &'static str {
    result.as_ref().map_or_else(|error| error.kind().as_str(), |_| OK)
}

/// Callers bring codes of many sorts; those of ours keep their name.
pub(super) fn known_result(error: Option<&str>) -> &'static str {
    let Some(code) = error else { return OK };
    let known = ErrorKind::ALL.iter().map(|kind| kind.as_str()).find(|known| *known == code);
    known.unwrap_or(FAILED)
}

const SIGNALED: &str = "signaled";
const NOT_STARTED: &str = "not_started";
const KILLED: &str = "killed";
/// How an exec can end.
pub(super) const ENDS: [&str; 5] = [OK, FAILED, SIGNALED, NOT_STARTED, KILLED];

pub(super) fn ended(outcome: &ExecOutcome) -> &'static str {
    match outcome {
        ExecOutcome::Exited { code: 0, .. } => OK,
        ExecOutcome::Exited { .. } => FAILED,
        ExecOutcome::Signaled { .. } => SIGNALED,
        ExecOutcome::NotStarted { .. } => NOT_STARTED,
        ExecOutcome::Killed { .. } => KILLED,
    }
}
