//! Errors of the product, sorted by what the reader can do next.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

pub use self::next::{HostImage, Limit, Next, Overrun, Setting, Subject, Thing};
use crate::SandboxState;

mod next;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The twelve kinds. Each front end maps them in one `match` without a wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Malformed or contradictory; the caller must change the request.
    InvalidRequest,
    /// No or bad credentials.
    Unauthenticated,
    /// Understood and refused by policy.
    Denied,
    /// No such thing, or not yours.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// Not now: `exec` on a stopped sandbox.
    WrongState,
    /// Quota, size, rate.
    LimitReached,
    /// The caller went away.
    Cancelled,
    /// Our fault.
    Internal,
    /// This back end or host cannot do it.
    Unsupported,
    /// A dependency is down: the disk, a daemon, a cluster.
    Unavailable,
    /// It took too long; the outcome is known.
    TimedOut,
}

impl ErrorKind {
    pub const ALL: [Self; 12] = [
        Self::InvalidRequest,
        Self::Unauthenticated,
        Self::Denied,
        Self::NotFound,
        Self::AlreadyExists,
        Self::WrongState,
        Self::LimitReached,
        Self::Cancelled,
        Self::Internal,
        Self::Unsupported,
        Self::Unavailable,
        Self::TimedOut,
    ];

    /// The stable name in API bodies and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::Unauthenticated => "unauthenticated",
            Self::Denied => "denied",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::WrongState => "wrong_state",
            Self::LimitReached => "limit_reached",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "unavailable",
            Self::TimedOut => "timed_out",
        }
    }

    /// Whether the same request may succeed later without anyone changing it.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::LimitReached | Self::Internal | Self::Unavailable | Self::TimedOut => true,
            Self::InvalidRequest
            | Self::Unauthenticated
            | Self::Denied
            | Self::NotFound
            | Self::AlreadyExists
            | Self::WrongState
            | Self::Cancelled
            | Self::Unsupported => false,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

type Source = dyn std::error::Error + Send + Sync;

/// An error as values: its kind, its subject, the reason, and the next step.
///
/// The message is for people and can only be displayed: code that decides something looks at the values. Each front end
/// has one table that puts [`Next`] into its own words.
#[derive(Debug, Clone)]
pub struct Error(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    kind: ErrorKind,
    message: String,
    subject: Option<Subject>,
    state: Option<SandboxState>,
    limit: Option<Overrun>,
    next: Option<Next>,
    /// Shared, since several callers may wait for the same error.
    source: Option<Arc<Source>>,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Parts {
            kind,
            message,
            subject: None,
            state: None,
            limit: None,
            next: None,
            source: None,
        }))
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Nothing has this name; the next step is to list what exists.
    pub fn no_such(what: Thing, name: impl Into<String>) -> Self {
        let name = name.into();
        Self::not_found(format!("no {what} {name}")).about(what, name).with_next(Next::List(what))
    }

    /// A limit would be exceeded. `asked`: the total with the request. The next step is to have the limit raised.
    pub fn over_limit(limit: Limit, most: u64, asked: u64, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::LimitReached, message).over(limit, most, asked).with_next(Next::Raise(limit))
    }

    /// A sandbox is in the wrong state for the request.
    pub fn wrong_state(sandbox: &Subject, state: SandboxState, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::WrongState, message).about(sandbox.what, &sandbox.name).in_state(state)
    }

    /// A full sentence that says what to do next. It names no command, tool or route, which differ between front ends:
    /// use [`Error::with_next`] for those.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        self.with_next(Next::Advice(hint.into()))
    }

    #[must_use]
    pub fn with_next(mut self, next: impl Into<Option<Next>>) -> Self {
        self.0.next = next.into();
        self
    }

    #[must_use]
    pub fn about(mut self, what: Thing, name: impl Into<String>) -> Self {
        self.0.subject = Some(Subject { what, name: name.into() });
        self
    }

    /// The sandbox's state, if that is the reason.
    #[must_use]
    pub fn in_state(mut self, state: SandboxState) -> Self {
        self.0.state = Some(state);
        self
    }

    /// The limit that would be exceeded, if that is the reason.
    #[must_use]
    pub fn over(mut self, limit: Limit, most: u64, asked: u64) -> Self {
        self.0.limit = Some(Overrun { limit, most, asked });
        self
    }

    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<Source>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// The same error with a new message, for example prefixed with where it happened.
    #[must_use]
    pub fn reworded(mut self, words: impl FnOnce(&dyn fmt::Display) -> String) -> Self {
        self.0.message = words(&self.0.message);
        self
    }

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub fn subject(&self) -> Option<&Subject> {
        self.0.subject.as_ref()
    }

    /// Whether the error is about a thing of this kind.
    pub fn is_about(&self, what: Thing) -> bool {
        self.0.subject.as_ref().is_some_and(|subject| subject.what == what)
    }

    pub fn state(&self) -> Option<SandboxState> {
        self.0.state
    }

    pub fn limit(&self) -> Option<Overrun> {
        self.0.limit
    }

    pub fn next(&self) -> Option<&Next> {
        self.0.next.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// The causes of an error, the nearest first. A cause is left out if the text before it already ends with it.
pub fn causes(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let mut said = error.to_string();
    let mut causes = Vec::new();
    for cause in std::iter::successors(error.source(), |cause| cause.source()) {
        let cause = cause.to_string();
        if !said.ends_with(&cause) {
            said.clone_from(&cause);
            causes.push(cause);
        }
    }
    causes
}

macro_rules! invalid_from {
    ($($type:ty),*) => {$(
        impl From<$type> for Error {
            fn from(error: $type) -> Self {
                Self::invalid(error.to_string())
            }
        }
    )*};
}

invalid_from!(
    crate::InvalidId,
    crate::InvalidSize,
    crate::InvalidImage,
    crate::InvalidExec,
    crate::InvalidPackage,
    crate::UnknownLanguage
);

impl From<crate::InvalidName> for Error {
    fn from(invalid: crate::InvalidName) -> Self {
        let error = Self::invalid(invalid.to_string());
        match invalid.thing() {
            Some(what) => error.about(what, "").with_next(Next::Name(what)),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_was_said_is_not_said_again() {
        let in_use = || std::io::Error::other("Address in use");
        let chain = |message: &str, cause: &str| {
            let cause = Error::new(ErrorKind::Unavailable, cause).with_source(in_use());
            causes(&Error::new(ErrorKind::Unavailable, message).with_source(cause))
        };
        assert_eq!(chain("could not start", "could not listen"), ["could not listen", "Address in use"]);
        assert_eq!(
            chain("could not start", "could not listen: Address in use"),
            ["could not listen: Address in use"]
        );
        assert_eq!(chain("no listener: Address in use", "Address in use"), [""; 0]);
        assert_eq!(causes(&Error::invalid("alone")), [""; 0]);
    }
}
