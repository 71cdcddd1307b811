//! Failures on routes of other systems, in the form that their clients read.

use axum::http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, PROXY_AUTHORIZATION},
};
use sandbox::{Error, ErrorKind};
use serde_json::{Value, json};

use super::{
    error::{hint, http_status},
    key_auth::OPENSANDBOX_KEY_HEADER,
    opensandbox_errors as coded,
    theirs::OPENSANDBOX,
};

/// The prefix of microsandbox's routes.
const MICROSANDBOX: &str = "/api/v1/";

/// The form of failures on one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum ErrorForm {
    Native,
    Numbered { has_key: bool },
    Coded { family: coded::Family, has_key: bool },
}

impl ErrorForm {
    pub(super) fn of(path: &str, headers: &HeaderMap) -> Self {
        let has_key = headers.contains_key(AUTHORIZATION);
        if path.starts_with(MICROSANDBOX) {
            return Self::Numbered { has_key: has_key || headers.contains_key(PROXY_AUTHORIZATION) };
        }
        match path.strip_prefix(OPENSANDBOX) {
            Some(own) => Self::Coded {
                family: coded::Family::of(own),
                has_key: has_key || headers.contains_key(OPENSANDBOX_KEY_HEADER),
            },
            None => Self::Native,
        }
    }

    /// The body of a failure; `None` where it has our own form.
    pub(super) fn body(self, error: &Error) -> Option<Value> {
        match self {
            Self::Native => None,
            Self::Numbered { has_key } => Some(numbered(error.kind(), &error.to_string(), has_key).1),
            Self::Coded { family, has_key } => Some(coded::body(error, hint(error), family, has_key)),
        }
    }
}

/// microsandbox's form: a sentence and a number. Its numbers go by what the caller can do: 1… is about keys, 2… about
/// what was asked, 3… about rights, 4… about what is not there, 5… about the server.
pub(crate) fn numbered(kind: ErrorKind, message: &str, has_key: bool) -> (StatusCode, Value) {
    let code = match kind {
        ErrorKind::Unauthenticated if has_key => 1004,
        ErrorKind::Unauthenticated => 1001,
        ErrorKind::InvalidRequest
        | ErrorKind::AlreadyExists
        | ErrorKind::WrongState
        | ErrorKind::LimitReached
        | ErrorKind::Cancelled
        | ErrorKind::Unsupported => 2001,
        ErrorKind::Denied => 3001,
        ErrorKind::NotFound => 4001,
        ErrorKind::Internal | ErrorKind::Unavailable | ErrorKind::TimedOut => 5002,
    };
    (http_status(kind), json!({ "error": message, "code": code }))
}
