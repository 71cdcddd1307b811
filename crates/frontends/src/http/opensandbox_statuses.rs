//! The statuses that OpenSandbox's specification lists for the failures of each route. Its generated clients read the
//! code of a failure only if the status is one of these.

use axum::http::{Method, StatusCode};
use sandbox::{Error, ErrorKind, Thing};

type Row = (&'static str, &'static str, &'static [u16]);

/// Method, path below the prefix, and statuses. `*` is one segment. Routes that are not listed may fail with any.
const ROUTES: &[Row] = &[
    ("GET", "/sandboxes", &[400, 401, 500]),
    ("POST", "/sandboxes", &[400, 401, 403, 409, 429, 500]),
    ("GET", "/sandboxes/*", &[401, 403, 404, 500]),
    ("DELETE", "/sandboxes/*", &[401, 403, 404, 409, 500]),
    ("PATCH", "/sandboxes/*/metadata", &[400, 401, 403, 404, 409, 500]),
    ("POST", "/sandboxes/*/pause", &[401, 403, 404, 409, 500]),
    ("POST", "/sandboxes/*/resume", &[401, 403, 404, 409, 500]),
    ("POST", "/sandboxes/*/renew-expiration", &[400, 401, 403, 404, 409, 500]),
    ("POST", "/sandboxes/*/snapshots", &[400, 401, 403, 404, 409, 500]),
    ("GET", "/sandboxes/*/endpoints/*", &[400, 401, 403, 404, 500]),
    ("GET", "/sandboxes/*/diagnostics/*", &[400, 401, 403, 404, 500, 501]),
    ("GET", "/sandboxes/*/networkpolicy", &[401, 403, 404, 500, 503]),
    ("PUT", "/sandboxes/*/networkpolicy", &[400, 401, 403, 404, 409, 500, 503]),
    ("PATCH", "/sandboxes/*/networkpolicy", &[400, 401, 403, 404, 409, 500, 503]),
    ("DELETE", "/sandboxes/*/networkpolicy", &[400, 401, 403, 404, 409, 500, 503]),
    ("GET", "/snapshots", &[400, 401, 500]),
    ("GET", "/snapshots/*", &[401, 403, 404, 409, 500]),
    ("DELETE", "/snapshots/*", &[401, 403, 404, 409, 500]),
    ("POST", "/sandboxes/*/proxy/44772/command", &[400, 500]),
    ("DELETE", "/sandboxes/*/proxy/44772/command", &[400, 500]),
    ("GET", "/sandboxes/*/proxy/44772/command/status/*", &[400, 404, 500]),
    ("GET", "/sandboxes/*/proxy/44772/command/*/logs", &[400, 404, 500]),
    ("POST", "/sandboxes/*/proxy/44772/session", &[400, 500]),
    ("DELETE", "/sandboxes/*/proxy/44772/session/*", &[400, 404, 500]),
    ("POST", "/sandboxes/*/proxy/44772/session/*/run", &[400, 500]),
    ("POST", "/sandboxes/*/proxy/44772/code", &[400, 500]),
    ("DELETE", "/sandboxes/*/proxy/44772/code", &[400, 500]),
    ("POST", "/sandboxes/*/proxy/44772/code/context", &[400, 500]),
    ("GET", "/sandboxes/*/proxy/44772/code/contexts", &[400, 500]),
    ("DELETE", "/sandboxes/*/proxy/44772/code/contexts", &[400, 500]),
    ("GET", "/sandboxes/*/proxy/44772/code/contexts/*", &[404, 500]),
    ("DELETE", "/sandboxes/*/proxy/44772/code/contexts/*", &[400, 404, 500]),
    ("DELETE", "/sandboxes/*/proxy/44772/files", &[500]),
    ("GET", "/sandboxes/*/proxy/44772/files/info", &[404, 500]),
    ("GET", "/sandboxes/*/proxy/44772/files/search", &[400, 404, 500]),
    ("GET", "/sandboxes/*/proxy/44772/files/download", &[400, 404, 416, 500]),
    ("POST", "/sandboxes/*/proxy/44772/files/upload", &[400, 500]),
    ("POST", "/sandboxes/*/proxy/44772/files/mv", &[400, 404, 500]),
    ("POST", "/sandboxes/*/proxy/44772/files/permissions", &[400, 500]),
    ("POST", "/sandboxes/*/proxy/44772/files/replace", &[400, 500]),
    ("POST", "/sandboxes/*/proxy/44772/directories", &[400, 500]),
    ("DELETE", "/sandboxes/*/proxy/44772/directories", &[500]),
    ("GET", "/sandboxes/*/proxy/44772/directories/list", &[400, 404, 500]),
    ("GET", "/sandboxes/*/proxy/44772/metrics", &[500]),
    ("GET", "/sandboxes/*/proxy/44772/metrics/watch", &[500]),
    ("GET", "/sandboxes/*/proxy/18080/policy", &[401, 500]),
    ("PATCH", "/sandboxes/*/proxy/18080/policy", &[400, 401, 500]),
    ("DELETE", "/sandboxes/*/proxy/18080/policy", &[400, 401, 500]),
];

/// The statuses of a route. `path`: below the prefix of its routes.
pub(super) fn listed(method: &Method, path: &str) -> Option<&'static [u16]> {
    let is_it = |(own, pattern, _): &&Row| method.as_str() == *own && is_like(pattern, path);
    ROUTES.iter().find(is_it).map(|(.., statuses)| *statuses)
}

fn is_like(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut parts) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), parts.next()) {
            (None, None) => return true,
            (Some("*"), Some(part)) if !part.is_empty() => {}
            (Some(wanted), Some(part)) if wanted == part => {}
            _ => return false,
        }
    }
}

/// The status to send in place of `status`: one that is listed for the route, unless all of their clients understand
/// `status` on every route.
pub(super) fn nearest(status: StatusCode, error: &Error, listed: Option<&'static [u16]>) -> StatusCode {
    let Some(listed) = listed.filter(|listed| !listed.contains(&status.as_u16())) else { return status };
    let about = |what| error.is_about(what);
    let is_same_everywhere = match error.kind() {
        // A denial is final: another status would have clients try again, or mend what is not wrong.
        ErrorKind::Unauthenticated | ErrorKind::Denied | ErrorKind::LimitReached => true,
        // Their clients send no malformed requests, so none of them has to read the code.
        ErrorKind::InvalidRequest => !about(Thing::File),
        ErrorKind::NotFound => about(Thing::Sandbox),
        _ => false,
    };
    if is_same_everywhere {
        return status;
    }
    let is_request_wrong = matches!(
        error.kind(),
        ErrorKind::InvalidRequest | ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::Unsupported
    );
    match is_request_wrong && listed.contains(&400) {
        true => StatusCode::BAD_REQUEST,
        false => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_no_client_expects_becomes_one_that_it_does() {
        let told = |method: Method, path: &str, error: &Error| {
            let status = crate::http::http_status(error.kind());
            nearest(status, error, listed(&method, path)).as_u16()
        };
        let at = |path: &str| format!("/sandboxes/sbx-1/proxy/44772{path}");
        let no_file = Error::not_found("no /x").about(Thing::File, "/x");
        assert_eq!(told(Method::POST, &at("/files/permissions"), &no_file), 400);
        assert_eq!(told(Method::GET, &at("/files/info"), &no_file), 404);
        assert_eq!(told(Method::POST, &at("/pty"), &no_file), 404);
        let directory = Error::invalid("a directory").about(Thing::File, "/x");
        assert_eq!(told(Method::DELETE, &at("/files"), &directory), 500);
        assert_eq!(told(Method::POST, &at("/directories"), &directory), 400);
        let in_use = Error::new(ErrorKind::WrongState, "busy");
        assert_eq!(told(Method::POST, &at("/command"), &in_use), 500);
        assert_eq!(told(Method::DELETE, &at("/files"), &Error::invalid("unknown parameter")), 400);
        assert_eq!(told(Method::POST, "/sandboxes", &Error::no_such(Thing::Image, "x")), 400);
        let later = Error::new(ErrorKind::Unavailable, "later");
        assert_eq!(told(Method::POST, "/sandboxes", &later), 500);
        let nobody = Error::new(ErrorKind::Unauthenticated, "no key");
        assert_eq!(told(Method::GET, &at("/files/info"), &nobody), 401);
        let denied = Error::new(ErrorKind::Denied, "this key is read-only");
        assert_eq!(told(Method::DELETE, &at("/files"), &denied), 403);
        let gone = Error::no_such(Thing::Sandbox, "sbx-1");
        assert_eq!(told(Method::POST, &at("/command"), &gone), 404);
    }
}
