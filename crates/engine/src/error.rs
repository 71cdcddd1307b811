//! From what went wrong below to what a caller is told: one table for each neighbour.

use std::{fmt::Display, path::Path};

use guest_protocol::{Failure, FailureKind, MAX_FRAME_BYTES};
use sandbox::{Action, BackendError, Error, ErrorKind, SandboxState};
use store::{LedgerError, StoreError};

use crate::client::GuestError;

/// Longest text of a guest's that is shown to a caller. Guests are hostile; their messages are for people.
const MAX_GUEST_MESSAGE_CHARS: usize = 1024;

/// An error that several callers wait for. [`Error`] itself cannot be cloned, as its source cannot.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind(),
            message: error.message().to_owned(),
            hint: error.hint().map(ToOwned::to_owned),
        }
    }
}

impl Refusal {
    pub(crate) fn to_error(&self) -> Error {
        with_hint(Error::new(self.kind, self.message.clone()), self.hint.clone())
    }
}

pub(crate) fn from_store(error: StoreError) -> Error {
    let kind = match &error {
        StoreError::NameTaken { .. }
        | StoreError::VolumeTaken { .. }
        | StoreError::LabelTaken { .. }
        | StoreError::SnapshotTaken { .. }
        | StoreError::RequestKnown { .. }
        | StoreError::RequestKnownExec { .. } => ErrorKind::AlreadyExists,
        StoreError::Missing { .. } => ErrorKind::NotFound,
        StoreError::Corrupt { .. } => ErrorKind::Internal,
        StoreError::Unreadable { .. }
        | StoreError::NoSpace { .. }
        | StoreError::Locked { .. }
        | StoreError::TooNew { .. }
        | StoreError::Io { .. }
        | StoreError::Sql { .. }
        | StoreError::Closed => ErrorKind::Unavailable,
    };
    let hint = error.hint();
    with_hint(Error::new(kind, error.to_string()), hint).with_source(error)
}

pub(crate) fn from_ledger(error: LedgerError) -> Error {
    let (kind, hint) = match &error {
        LedgerError::NoSpace { path } => {
            (ErrorKind::Unavailable, Some(format!("Free space in {}.", parent_of(path))))
        }
        LedgerError::Damaged { .. } => {
            (ErrorKind::Internal, Some("Read on from a later entry; the others are not affected.".to_owned()))
        }
        LedgerError::TooLong { .. } => (ErrorKind::InvalidRequest, Some("Send less at once.".to_owned())),
        LedgerError::Busy { .. } => (ErrorKind::Internal, None),
        LedgerError::Io { .. } => (ErrorKind::Unavailable, None),
    };
    with_hint(Error::new(kind, error.to_string()), hint).with_source(error)
}

/// Not all that an exec printed came into its ledger.
pub(crate) fn lost_output(exec: &sandbox::ExecId, n_lost: u64) -> Error {
    let message =
        format!("{n_lost} pieces of what exec {exec} printed are lost: they could not be written down");
    Error::new(ErrorKind::Internal, message).with_hint("Run it again if its whole output matters.")
}

pub(crate) fn from_backend(error: BackendError, sandbox: &str) -> Error {
    let (kind, hint) = match &error {
        BackendError::Unsupported { hint, .. } => (ErrorKind::Unsupported, hint.clone()),
        BackendError::Exhausted { hint, .. } => {
            let otherwise = "Remove or stop sandboxes that are not needed, then try again.".to_owned();
            (ErrorKind::LimitReached, Some(hint.clone().unwrap_or(otherwise)))
        }
        BackendError::TimedOut { .. } => (ErrorKind::TimedOut, None),
        BackendError::Unavailable { .. } => (ErrorKind::Unavailable, Some("Try again.".to_owned())),
        BackendError::Gone(_) => (ErrorKind::Unavailable, Some(format!("Start {sandbox} again."))),
        BackendError::Failed { .. } => (ErrorKind::Internal, None),
    };
    with_hint(Error::new(kind, format!("{sandbox}: {error}")), hint).with_source(error)
}

pub(crate) fn from_guest(error: GuestError, sandbox: &str) -> Error {
    match error {
        GuestError::Refused(failure) => from_failure(failure, sandbox),
        GuestError::Source(error) => error,
        GuestError::RequestTooLong { len } => {
            Error::invalid(format!("the request has {len} bytes as JSON; at most {MAX_FRAME_BYTES} fit"))
                .with_hint("Shorten the command or its environment; put long text into a file.")
        }
        GuestError::Connect(error) => from_backend(error, sandbox),
        GuestError::Io(_) | GuestError::Closed | GuestError::Silent { .. } => {
            Error::new(ErrorKind::Unavailable, format!("{sandbox} does not answer: {error}"))
                .with_hint(format!("Look at {sandbox} and restart it if it stays silent."))
                .with_source(error)
        }
        GuestError::Protocol(_) | GuestError::Nonsense(_) => {
            Error::new(ErrorKind::Internal, format!("{sandbox} gave an answer that cannot be read: {error}"))
                .with_hint(format!("Restart {sandbox}: what runs in it may have tampered with it."))
                .with_source(error)
        }
    }
}

fn from_failure(failure: Failure, sandbox: &str) -> Error {
    let kind = match failure.kind {
        FailureKind::InvalidRequest => ErrorKind::InvalidRequest,
        FailureKind::NotFound => ErrorKind::NotFound,
        FailureKind::AlreadyExists => ErrorKind::AlreadyExists,
        FailureKind::Denied => ErrorKind::Denied,
        FailureKind::WrongState => ErrorKind::WrongState,
        FailureKind::LimitReached => ErrorKind::LimitReached,
        FailureKind::Unsupported => ErrorKind::Unsupported,
        FailureKind::Internal => ErrorKind::Internal,
    };
    let hint = (failure.kind == FailureKind::LimitReached)
        .then(|| format!("Free what is used up inside {sandbox}, or create one with higher limits."));
    with_hint(Error::new(kind, readable(&failure.message)), hint).with_source(failure)
}

/// Text from a guest, fit to be shown: no control characters, not endless.
pub(crate) fn readable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_GUEST_MESSAGE_CHARS).collect()
}

/// Refuses an action that the lifecycle does not allow now, and says what would.
pub(crate) fn wrong_state(sandbox: &str, state: SandboxState, action: Action) -> Error {
    let hint = match (state, action) {
        (SandboxState::Creating, _) => format!("Wait until {sandbox} is running."),
        (SandboxState::Running, Action::Start) => {
            "It is running already; nothing needs to be done.".to_owned()
        }
        (SandboxState::Running, Action::Resume) => "It is not paused; nothing needs to be done.".to_owned(),
        (SandboxState::Paused, Action::Pause) => "It is paused already; nothing needs to be done.".to_owned(),
        (SandboxState::Paused, Action::Start | Action::Exec | Action::Resume) => {
            format!("Resume {sandbox} first.")
        }
        (SandboxState::Running | SandboxState::Paused, Action::Remove) => {
            format!("Stop {sandbox} first, or remove it by force.")
        }
        (SandboxState::Stopping, _) => format!("Wait until {sandbox} has stopped."),
        (SandboxState::Stopped, _) => format!("Start {sandbox} first."),
        (SandboxState::Failed, _) => format!("Remove {sandbox} and create another."),
        (SandboxState::Running | SandboxState::Paused, _) => format!("Look at {sandbox} and try again."),
    };
    Error::new(ErrorKind::WrongState, format!("{sandbox} is {state}: {action} is not possible now"))
        .with_hint(hint)
}

pub(crate) fn no_such_sandbox(which: impl Display) -> Error {
    Error::not_found(format!("no sandbox {which}")).with_hint("List sandboxes to see which there are.")
}

pub(crate) fn no_such_exec(exec: impl Display, sandbox: &str) -> Error {
    Error::not_found(format!("no exec {exec} in {sandbox}"))
        .with_hint("List the execs of the sandbox; old ones go when its log is full.")
}

/// As [`no_such_exec`], where the caller named no sandbox: the same words whether it never was or is someone else's.
pub(crate) fn no_such_session(exec: impl Display) -> Error {
    Error::not_found(format!("no exec {exec}"))
        .with_hint("List the execs of the sandbox; old ones go when its log is full.")
}

/// Our own files on the host.
pub(crate) fn from_io(what: &str, path: &Path, source: std::io::Error) -> Error {
    let hint = match source.kind() {
        std::io::ErrorKind::NotFound => {
            Some(format!("Put the directory {} back, or restart the daemon.", parent_of(path)))
        }
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Some(format!("Free space in {}.", parent_of(path)))
        }
        std::io::ErrorKind::PermissionDenied => {
            Some(format!("Give the daemon's user write access to {}.", parent_of(path)))
        }
        _ => None,
    };
    let message = format!("could not {what} {}: {source}", path.display());
    with_hint(Error::new(ErrorKind::Unavailable, message), hint).with_source(source)
}

fn parent_of(path: &Path) -> std::path::Display<'_> {
    path.parent().unwrap_or(path).display()
}

pub(crate) fn closing() -> Error {
    Error::new(ErrorKind::Unavailable, "the daemon is closing").with_hint("Try again when it is back.")
}

fn with_hint(error: Error, hint: Option<String>) -> Error {
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_by_state_names_the_sandbox_the_state_and_a_next_step() {
        let actions =
            [Action::Exec, Action::Files, Action::Start, Action::Pause, Action::Resume, Action::Remove];
        for state in SandboxState::ALL {
            for action in actions.into_iter().filter(|action| !state.allows(*action)) {
                let error = wrong_state("sandbox web", state, action);
                assert_eq!(error.kind(), ErrorKind::WrongState);
                assert!(error.message().contains("web") && error.message().contains(state.as_str()));
                assert!(error.hint().is_some_and(|hint| hint.ends_with('.')), "{error}");
            }
        }
    }

    #[test]
    fn a_guests_message_cannot_play_with_the_terminal_or_go_on_for_ever() {
        let failure =
            Failure::new(FailureKind::NotFound, format!("\x1b[2J/no/such{}", "x".repeat(5_000_000)));
        let error = from_failure(failure, "sandbox web");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.message().len() <= MAX_GUEST_MESSAGE_CHARS && !error.message().contains('\x1b'));
    }
}
