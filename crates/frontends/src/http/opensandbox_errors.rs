//! Failures in the form that OpenSandbox's clients read: a code and a sentence.
//!
//! Codes of its server begin with the runtime (`DOCKER::…`). Ours is `SANDBOX`, a family that its server has too.

use sandbox::{Error, ErrorKind, Next, Thing};
use serde_json::{Value, json};

use super::{error, foreign::sentence};

/// The part of OpenSandbox that a route belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Sandboxes themselves.
    Lifecycle,
    /// The servers inside a sandbox: its daemon `execd`, and the one for the network.
    Inside,
}

impl Family {
    /// `path`: below the prefix of its routes.
    pub(super) fn of(path: &str) -> Self {
        match path.split('/').nth(3) {
            Some("proxy") => Self::Inside,
            _ => Self::Lifecycle,
        }
    }
}

pub(super) fn body(error: &Error, hint: Option<String>, family: Family, has_key: bool) -> Value {
    let message = match hint {
        Some(hint) => format!("{} {hint}", sentence(&error.to_string())),
        None => error.to_string(),
    };
    json!({ "code": code(error, family, has_key), "message": message })
}

/// The next step, with the names that OpenSandbox's interface has for things.
pub(super) fn hint(error: &Error) -> Option<String> {
    Some(match error.next()? {
        Next::MakeKey => {
            "Send the header OPEN-SANDBOX-API-KEY with the whole key; `warren key create` creates one.".to_owned()
        }
        Next::HostImage(host) => format!(
            "Check the image's name and the network, or use the image `host`, which has {}.",
            host.listed()
        ),
        Next::LogIn => "Check the name: registries answer the same for images that do not exist. Or send \
                        `image.auth`: keys use the daemon's own login only for registries that its operator lists."
            .to_owned(),
        Next::Allow(host) => {
            format!("Add {{\"action\": \"allow\", \"target\": {host:?}}} to `networkPolicy.egress`.")
        }
        _ => return error::hint(error),
    })
}

fn code(error: &Error, family: Family, has_key: bool) -> &'static str {
    match (error.kind(), family) {
        (ErrorKind::Unauthenticated, _) if has_key => "INVALID_API_KEY",
        (ErrorKind::Unauthenticated, _) => "MISSING_API_KEY",
        (_, _) if error.is_about(Thing::Sandbox) && error.kind() == ErrorKind::NotFound => {
            "SANDBOX::SANDBOX_NOT_FOUND"
        }
        (kind, Family::Lifecycle) => of_lifecycle(error, kind),
        (kind, Family::Inside) => of_inside(error, kind),
    }
}

fn of_lifecycle(error: &Error, kind: ErrorKind) -> &'static str {
    let about = error.subject().map(|subject| subject.what);
    match kind {
        ErrorKind::InvalidRequest => "SANDBOX::INVALID_PARAMETER",
        ErrorKind::Unauthenticated => "INVALID_API_KEY",
        ErrorKind::Denied => "SANDBOX::FORBIDDEN",
        ErrorKind::NotFound => match about {
            Some(Thing::Snapshot) => "SNAPSHOT::NOT_FOUND",
            Some(Thing::Image) => "SANDBOX::SANDBOX_IMAGE_PULL_FAILED",
            Some(Thing::Volume) => "VOLUME::NOT_FOUND",
            Some(Thing::Route) => "NOT_FOUND",
            _ => "SANDBOX::SANDBOX_NOT_FOUND",
        },
        ErrorKind::AlreadyExists => match about {
            Some(Thing::Snapshot) => "SNAPSHOT::ALREADY_EXISTS",
            _ => "SANDBOX::SANDBOX_ALREADY_EXISTS",
        },
        ErrorKind::WrongState => "SANDBOX::INVALID_STATE",
        ErrorKind::LimitReached => "SANDBOX::QUOTA_EXCEEDED",
        ErrorKind::Unsupported => "SANDBOX::API_NOT_SUPPORTED",
        ErrorKind::Cancelled | ErrorKind::Internal => "SANDBOX::INTERNAL_ERROR",
        ErrorKind::Unavailable if about == Some(Thing::Image) => "SANDBOX::SANDBOX_IMAGE_PULL_FAILED",
        ErrorKind::Unavailable => "SANDBOX::UNAVAILABLE",
        ErrorKind::TimedOut => "SANDBOX::TIMEOUT",
    }
}

fn of_inside(error: &Error, kind: ErrorKind) -> &'static str {
    let about = error.subject().map(|subject| subject.what);
    match (kind, about) {
        (ErrorKind::InvalidRequest, Some(Thing::File)) => "INVALID_FILE",
        // A parameter that the route needs.
        (ErrorKind::InvalidRequest, Some(Thing::Route)) => "MISSING_QUERY",
        (ErrorKind::InvalidRequest, _) => "INVALID_REQUEST_BODY",
        (ErrorKind::NotFound, Some(Thing::Exec | Thing::Context)) => "CONTEXT_NOT_FOUND",
        (ErrorKind::NotFound, Some(Thing::Route)) => "NOT_SUPPORTED",
        (ErrorKind::NotFound, _) => "FILE_NOT_FOUND",
        (ErrorKind::AlreadyExists, _) => "INVALID_FILE",
        (ErrorKind::Unsupported, _) => "NOT_SUPPORTED",
        (
            ErrorKind::Unauthenticated
            | ErrorKind::Denied
            | ErrorKind::WrongState
            | ErrorKind::LimitReached
            | ErrorKind::Cancelled
            | ErrorKind::Internal
            | ErrorKind::Unavailable
            | ErrorKind::TimedOut,
            _,
        ) => "RUNTIME_ERROR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_name_the_part_and_the_thing() {
        let told = |error: &Error, family, has_key| body(error, None, family, has_key)["code"].clone();
        let no_sandbox = Error::no_such(Thing::Sandbox, "x");
        assert_eq!(told(&no_sandbox, Family::Lifecycle, true), "SANDBOX::SANDBOX_NOT_FOUND");
        assert_eq!(told(&no_sandbox, Family::Inside, true), "SANDBOX::SANDBOX_NOT_FOUND");
        let no_file = Error::not_found("no /x").about(Thing::File, "/x");
        assert_eq!(told(&no_file, Family::Inside, true), "FILE_NOT_FOUND");
        let nobody = Error::new(ErrorKind::Unauthenticated, "no key");
        assert_eq!(told(&nobody, Family::Lifecycle, false), "MISSING_API_KEY");
        assert_eq!(told(&nobody, Family::Lifecycle, true), "INVALID_API_KEY");
        assert_eq!(Family::of("/sandboxes/a/proxy/44772/ping"), Family::Inside);
        assert_eq!(Family::of("/sandboxes/a"), Family::Lifecycle);
        let hinted = body(&Error::invalid("no"), Some("Do so.".to_owned()), Family::Inside, true);
        assert_eq!(hinted, json!({ "code": "INVALID_REQUEST_BODY", "message": "no. Do so." }));
    }
}
