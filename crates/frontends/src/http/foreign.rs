//! Failures on routes of other systems, in the form that their clients read.

use axum::http::{
    HeaderMap, Method, StatusCode,
    header::{AUTHORIZATION, PROXY_AUTHORIZATION},
};
use sandbox::{Error, ErrorKind, Next};
use serde_json::{Value, json};

use super::{
    error::{hint, http_status},
    inside,
    key_auth::{KEY_HEADER, OPENSANDBOX_KEY_HEADER},
    opensandbox_errors as coded, opensandbox_statuses as statuses,
    theirs::OPENSANDBOX,
};

/// The prefix of microsandbox's routes.
const MICROSANDBOX: &str = "/api/v1/";
/// The prefix of mcp-sandbox's routes where another dialect has the plain paths.
const MCP_SANDBOX: &str = "/mcp-sandbox/";
/// Prefixes of our own paths, on listeners of every dialect.
const OURS: [&str; 4] = ["/v1/", "/assets/", "/mcp/", "/sse/"];

/// The form of failures on one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum ErrorForm {
    Native,
    /// microsandbox's.
    Numbered {
        has_key: bool,
    },
    /// mcp-sandbox's.
    Detailed,
    /// OpenSandbox's.
    Coded {
        family: coded::Family,
        has_key: bool,
        /// The statuses that its clients expect of the route.
        statuses: Option<&'static [u16]>,
    },
}

impl ErrorForm {
    /// `dialect`: the one that the listener's plain paths belong to.
    pub(super) fn of(method: &Method, path: &str, headers: &HeaderMap, dialect: &str) -> Self {
        let has = |names: &[&str]| names.iter().any(|name| headers.contains_key(*name));
        let keys = [AUTHORIZATION.as_str(), KEY_HEADER];
        let numbered = || Self::Numbered { has_key: has(&keys) || has(&[PROXY_AUTHORIZATION.as_str()]) };
        let coded = |own: &str| Self::Coded {
            family: coded::Family::of(own),
            has_key: has(&keys) || has(&[OPENSANDBOX_KEY_HEADER, inside::HEADER]),
            statuses: statuses::listed(method, own),
        };
        if path.starts_with(MICROSANDBOX) {
            return numbered();
        }
        if path.starts_with(MCP_SANDBOX) {
            return Self::Detailed;
        }
        if let Some(own) = path.strip_prefix(OPENSANDBOX) {
            return coded(own);
        }
        if path == "/" || OURS.iter().any(|own| path.starts_with(own)) {
            return Self::Native;
        }
        match dialect {
            "microsandbox" => numbered(),
            "mcp-sandbox" => Self::Detailed,
            "opensandbox" => coded(path),
            _ => Self::Native,
        }
    }

    /// The status that its clients expect in place of our own.
    pub(super) fn status(self, status: StatusCode, error: &Error) -> StatusCode {
        match self {
            Self::Coded { statuses, .. } => statuses::nearest(status, error, statuses),
            Self::Native | Self::Numbered { .. } | Self::Detailed => status,
        }
    }

    /// The body of a failure; `None` where it has our own form.
    pub(super) fn body(self, error: &Error) -> Option<Value> {
        match self {
            Self::Native => None,
            Self::Numbered { has_key } => Some(numbered(error.kind(), &error.to_string(), has_key).1),
            Self::Detailed => Some(detailed(error)),
            Self::Coded { family, has_key, .. } => {
                Some(coded::body(error, coded::hint(error), family, has_key))
            }
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

/// mcp-sandbox's form: one text.
pub(crate) fn detailed(error: &Error) -> Value {
    let hint = match error.next() {
        Some(Next::MakeKey) => Some(
            "Send a key as ?api_key=<key> or in the header X-API-Key; `warren key create` creates one."
                .to_owned(),
        ),
        _ => hint(error),
    };
    let detail = match hint {
        Some(hint) => format!("{} {hint}", sentence(&error.to_string())),
        None => error.to_string(),
    };
    json!({ "detail": detail })
}

/// Adds a full stop, if there is none, so that another sentence can follow.
pub(super) fn sentence(text: &str) -> String {
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_form_of_the_listener_but_on_our_own_paths() {
        let form = |path: &str, dialect: &str| {
            let error = Error::new(ErrorKind::Unauthenticated, "no key was sent").with_next(Next::MakeKey);
            let form = ErrorForm::of(&Method::GET, path, &HeaderMap::new(), dialect);
            let mut fields: Vec<_> = form.body(&error)?.as_object()?.keys().cloned().collect();
            fields.sort_unstable();
            Some(fields.join(" "))
        };
        for path in ["/", "/v1/sandboxes", "/mcp/opensandbox", "/sse/mcp-sandbox", "/assets/x"] {
            for dialect in ["", "warren", "microsandbox", "mcp-sandbox", "opensandbox"] {
                assert_eq!(form(path, dialect), None, "{path} {dialect}");
            }
        }
        for (path, dialect, fields) in [
            ("/mcp", "microsandbox", Some("code error")),
            ("/api/v1/rpc", "", Some("code error")),
            ("/sse", "mcp-sandbox", Some("detail")),
            ("/api/nope", "mcp-sandbox", Some("detail")),
            ("/mcp-sandbox/api/users/me", "", Some("detail")),
            ("/opensandbox/v1/nope", "", Some("code message")),
            ("/mcp", "opensandbox", Some("code message")),
            ("/mcp", "warren", None),
        ] {
            assert_eq!(form(path, dialect).as_deref(), fields, "{path} {dialect}");
        }
    }
}
