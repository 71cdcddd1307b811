//! Maps lower-level errors to callers' errors: one table for each neighbour.

use std::{fmt::Display, path::Path};

use guest_protocol::{Failure, FailureKind, MAX_FRAME_BYTES};
use sandbox::{Action, BackendError, Error, ErrorKind, Next, SandboxState, Subject, Thing};
use store::{LedgerError, StoreError};

use crate::client::GuestError;

/// Longest guest's text shown to a caller. Guests are hostile; their messages are for people.
const MAX_GUEST_MESSAGE_CHARS: usize = 1024;

pub(crate) fn from_store(error: StoreError) -> Error {
    let kind = match &error {
        StoreError::NameTaken { .. }
        | StoreError::VolumeTaken { .. }
        | StoreError::LabelTaken { .. }
        | StoreError::SshKeyTaken { .. }
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
    let next = error.next();
    Error::new(kind, error.to_string()).with_next(next).with_source(error)
}

pub(crate) fn from_ledger(error: LedgerError) -> Error {
    let (kind, hint) = match &error {
        LedgerError::NoSpace { path } => {
            (ErrorKind::Unavailable, Some(format!("Free space in {}.", parent_of(path))))
        }
        LedgerError::Damaged { .. } => (
            ErrorKind::Internal,
            Some("Continue from a later entry; the others are not affected.".to_owned()),
        ),
        LedgerError::TooLong { .. } => (ErrorKind::InvalidRequest, Some("Send less at once.".to_owned())),
        LedgerError::Busy { .. } => (ErrorKind::Internal, None),
        LedgerError::Io { .. } => (ErrorKind::Unavailable, None),
    };
    Error::new(kind, error.to_string()).with_next(hint.map(Next::Advice)).with_source(error)
}

/// Some of an exec's output did not reach its ledger.
pub(crate) fn lost_output(exec: &sandbox::ExecId, n_lost: u64) -> Error {
    let message =
        format!("{n_lost} pieces of the output of exec {exec} are lost: they could not be written to disk");
    Error::new(ErrorKind::Internal, message).with_hint("Run it again if you need the whole output.")
}

pub(crate) fn from_backend(error: BackendError, subject: &Subject) -> Error {
    let (kind, next) = match &error {
        BackendError::Unsupported { next, .. } => (ErrorKind::Unsupported, next.clone()),
        BackendError::Exhausted { next, .. } => {
            (ErrorKind::LimitReached, Some(next.clone().unwrap_or(Next::Remove(Thing::Sandbox))))
        }
        BackendError::TimedOut { .. } => (ErrorKind::TimedOut, None),
        BackendError::Unavailable { .. } => (ErrorKind::Unavailable, Some(Next::Retry)),
        BackendError::Gone(_) => (ErrorKind::Unavailable, Some(Next::Start(subject.name.clone()))),
        BackendError::Failed { .. } => (ErrorKind::Internal, None),
    };
    Error::new(kind, format!("{subject}: {error}")).with_next(next).with_source(error)
}

pub(crate) fn from_guest(error: GuestError, subject: &Subject) -> Error {
    match error {
        GuestError::Refused(failure) => from_failure(failure, subject),
        GuestError::Source(error) => error,
        GuestError::RequestTooLong { len } => {
            Error::invalid(format!("the request has {len} bytes as JSON; the limit is {MAX_FRAME_BYTES}"))
                .with_hint("Shorten the command or its environment; write long text to a file.")
        }
        GuestError::Connect(error) => from_backend(error, subject),
        GuestError::Io(_) | GuestError::Closed | GuestError::Silent { .. } => {
            Error::new(ErrorKind::Unavailable, format!("{subject} does not answer: {error}"))
                .about(subject.what, &subject.name)
                .with_next(of_sandbox(subject, Next::Inspect))
                .with_source(error)
        }
        GuestError::Foreign(_) | GuestError::TooOld { .. } => Error::new(
            ErrorKind::Unsupported,
            format!("{subject} was started by another version of Warren: {error}"),
        )
        .about(subject.what, &subject.name)
        .with_next(of_sandbox(subject, Next::Reboot))
        .with_source(error),
        GuestError::Protocol(_) | GuestError::Nonsense(_) => Error::new(
            ErrorKind::Internal,
            format!(
                "{subject} sent an invalid answer, so a program in it may have tampered with it: {error}"
            ),
        )
        .about(subject.what, &subject.name)
        .with_next(of_sandbox(subject, Next::Reboot))
        .with_source(error),
    }
}

/// A next step that only a sandbox has: volumes have guests, too.
fn of_sandbox(subject: &Subject, next: impl FnOnce(String) -> Next) -> Option<Next> {
    (subject.what == Thing::Sandbox).then(|| next(subject.name.clone()))
}

fn from_failure(failure: Failure, subject: &Subject) -> Error {
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
    let next = (failure.kind == FailureKind::LimitReached).then(|| {
        Next::Advice(format!(
            "Free the exhausted resource inside {subject}, or create one with higher limits."
        ))
    });
    Error::new(kind, readable(&failure.message)).with_next(next).with_source(failure)
}

/// Nothing accepts connections on this port inside.
pub(crate) fn nobody_listens(port: u16, subject: &Subject) -> Error {
    Error::new(ErrorKind::WrongState, format!("nothing listens on port {port} in {subject}"))
        .about(Thing::Port, port.to_string())
        .with_hint("Start a server on that port inside, on 127.0.0.1 or 0.0.0.0, and try again.")
}

/// Text from a guest, made safe to show: bounded, without control characters.
pub(crate) fn readable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_GUEST_MESSAGE_CHARS).collect()
}

/// Refuses an action in the wrong state, and names the next step.
pub(crate) fn wrong_state(sandbox: &Subject, state: SandboxState, action: Action) -> Error {
    let name = sandbox.name.clone();
    let next = match (state, action) {
        (SandboxState::Creating, _) => Next::AwaitRunning(name),
        (SandboxState::Running, Action::Start | Action::Resume) | (SandboxState::Paused, Action::Pause) => {
            Next::Nothing
        }
        (SandboxState::Paused, Action::Start | Action::Exec | Action::Resume) => Next::Resume(name),
        (SandboxState::Running | SandboxState::Paused, Action::Remove) => Next::StopOrForce(name),
        (SandboxState::Stopping, _) => Next::AwaitStopped(name),
        (SandboxState::Stopped, _) => Next::Start(name),
        (SandboxState::Failed, _) => Next::Replace(name),
        (SandboxState::Running | SandboxState::Paused, _) => Next::Inspect(name),
    };
    let message = match action {
        Action::Exec | Action::Files => format!("{sandbox} is {state}, but must be running for this"),
        _ => format!("cannot {action} {sandbox}: it is {state}"),
    };
    Error::wrong_state(sandbox, state, message).with_next(next)
}

pub(crate) fn no_such_sandbox(which: impl Display) -> Error {
    Error::no_such(Thing::Sandbox, which.to_string())
}

pub(crate) fn no_such_exec(exec: impl Display, sandbox: &Subject) -> Error {
    no_such_session(&exec).reworded(|words| format!("{words} in {sandbox}"))
}

/// Like [`no_such_exec`], for a caller who named no sandbox: the same words whether it never existed or is someone
/// else's.
pub(crate) fn no_such_session(exec: impl Display) -> Error {
    Error::no_such(Thing::Exec, exec.to_string())
}

/// Errors of our own files on the host.
pub(crate) fn from_io(what: &str, path: &Path, source: std::io::Error) -> Error {
    let hint = match source.kind() {
        std::io::ErrorKind::NotFound => {
            Some(format!("Restore the directory {}, or restart the daemon.", parent_of(path)))
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
    Error::new(ErrorKind::Unavailable, message).with_next(hint.map(Next::Advice)).with_source(source)
}

fn parent_of(path: &Path) -> std::path::Display<'_> {
    path.parent().unwrap_or(path).display()
}

pub(crate) fn closing() -> Error {
    Error::new(ErrorKind::Unavailable, "the daemon is shutting down").with_next(Next::Retry)
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
                let error = wrong_state(&Subject::new(Thing::Sandbox, "web"), state, action);
                assert_eq!(error.kind(), ErrorKind::WrongState);
                assert!(error.is_about(Thing::Sandbox) && error.state() == Some(state));
                assert!(error.next().is_some(), "{error}");
            }
        }
    }

    #[test]
    fn a_guests_message_cannot_play_with_the_terminal_or_go_on_for_ever() {
        let failure =
            Failure::new(FailureKind::NotFound, format!("\x1b[2J/no/such{}", "x".repeat(5_000_000)));
        let error = from_failure(failure, &Subject::new(Thing::Sandbox, "web"));
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let shown = error.to_string();
        assert!(shown.len() <= MAX_GUEST_MESSAGE_CHARS && !shown.contains('\x1b'));
    }
}
