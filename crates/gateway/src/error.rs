//! Errors at opening and between us and an index, and what a client is told of them.

use std::{io, path::PathBuf};

use hyper::StatusCode;
use thiserror::Error;

/// Why a gateway could not be opened.
#[derive(Debug, Error)]
pub enum GatewayError {
    #[error("the package cache {path} cannot be used: {source}")]
    Cache { path: PathBuf, source: io::Error },
    #[error("the package cache {path} is held by another process")]
    Held { path: PathBuf },
    /// The address is shown without credentials.
    #[error("{address} is not an address of a package index: {reason}")]
    Address { address: String, reason: &'static str },
    #[error("cannot make an HTTP client: {0}")]
    Client(String),
}

impl GatewayError {
    pub(crate) fn client(error: impl std::error::Error) -> Self {
        Self::Client(error.to_string())
    }
}

/// The answer to a client instead of what it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// A full sentence, without addresses or credentials of the host.
    pub(crate) sentence: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    pub(crate) fn not_found(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, sentence)
    }

    pub(crate) fn bad_request(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, sentence)
    }

    /// The cache's own disk failed.
    pub(crate) fn disk(counters: &crate::stats::Counters, error: &io::Error) -> Self {
        counters.failed(format!("the package cache: {error}"));
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The package cache on the host cannot be written or read.",
        )
    }
}

/// Why nothing useful came from an index. `detail` is for the host's operator, never for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// No connection.
    Unreachable,
    /// A connection, but no answer in time.
    TimedOut,
    /// An address that we do not reach.
    Forbidden,
    /// An answer that is not what was stated, or not what can be read.
    Garbled,
    /// Larger than our limit.
    TooLarge,
    /// A status other than success.
    Status(u16),
    /// The cache's own disk.
    Disk,
    /// Too much at a time.
    Busy,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// Whether an older copy is better than this.
    pub(crate) fn is_passing(&self) -> bool {
        match self.kind {
            FailureKind::Unreachable | FailureKind::TimedOut | FailureKind::Garbled | FailureKind::Busy => {
                true
            }
            FailureKind::Status(status) => status >= 500 || status == 429 || status == 408,
            FailureKind::Forbidden | FailureKind::TooLarge | FailureKind::Disk => false,
        }
    }

    /// Whether the index as a whole seems to be away, so that asking it again at once would only wait again.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self.kind, FailureKind::Unreachable | FailureKind::TimedOut)
    }

    /// Returns the answer to the client; `what` names the thing that it asked for.
    pub(crate) fn told(&self, what: &str) -> Refusal {
        let (status, sentence) = match self.kind {
            FailureKind::Status(404 | 410) => {
                (StatusCode::NOT_FOUND, format!("The package index does not have {what}."))
            }
            FailureKind::Status(401 | 403) => {
                (StatusCode::FORBIDDEN, format!("The package index refuses to give {what} to this host."))
            }
            FailureKind::Status(status) => (
                StatusCode::BAD_GATEWAY,
                format!("The package index answered {status} when asked for {what}."),
            ),
            FailureKind::Unreachable => (
                StatusCode::BAD_GATEWAY,
                format!("The package index cannot be reached, and {what} is not in the cache."),
            ),
            FailureKind::TimedOut => (
                StatusCode::GATEWAY_TIMEOUT,
                format!("The package index did not answer in time, and {what} is not in the cache."),
            ),
            FailureKind::Forbidden => (
                StatusCode::FORBIDDEN,
                format!("The package index names an address for {what} that this host does not reach."),
            ),
            FailureKind::Garbled => (
                StatusCode::BAD_GATEWAY,
                format!("What the package index sent for {what} is not what it should be."),
            ),
            FailureKind::TooLarge => {
                (StatusCode::BAD_GATEWAY, format!("The package index sent more for {what} than is taken."))
            }
            FailureKind::Disk => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "The package cache on the host cannot be written or read.".to_owned(),
            ),
            FailureKind::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many downloads are under way on this host. Try again.".to_owned(),
            ),
        };
        Refusal { status, sentence }
    }
}
