//! Errors of the product, sorted by what the reader can do next.

use std::fmt;

use serde::{Deserialize, Serialize};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The twelve kinds. Each front end maps them in one `match` without a wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// This back end or host cannot.
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

    /// The stable name, as it stands in API bodies and events.
    pub fn as_str(self) -> &'static str {
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

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What a caller is told: a kind, a message that names the thing, a hint at the next step. The source is for the log.
#[derive(Debug)]
pub struct Error(Box<Parts>);

#[derive(Debug)]
struct Parts {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Source>,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Parts { kind, message: message.into(), hint: None, source: None }))
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// A full sentence that says what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
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
    crate::InvalidName,
    crate::InvalidSize,
    crate::InvalidImage,
    crate::InvalidExec,
    crate::InvalidPackage,
    crate::UnknownLanguage
);
