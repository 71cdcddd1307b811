//! The failures that each operation can answer with. They all have one body, so each status is described once, as a
//! component.

use utoipa::openapi::{Content, OpenApi, RefOr, Response, path::Operation, schema::Ref};

/// Statuses of failures with the kinds that have them.
const STATUSES: &[(&str, &str, &str)] = &[
    ("400", "InvalidRequest", "The request breaks a rule (`invalid_request`)."),
    ("401", "Unauthenticated", "The key is missing or wrong (`unauthenticated`)."),
    ("403", "Denied", "The key, or a rule of the daemon, does not allow it (`denied`)."),
    ("404", "NotFound", "Something that the request names does not exist (`not_found`)."),
    (
        "409",
        "Conflict",
        "It exists already (`already_exists`), or its state does not allow it (`wrong_state`).",
    ),
    (
        "429",
        "LimitReached",
        "A limit is reached (`limit_reached`); `Retry-After` says when to try again, if that helps.",
    ),
    ("499", "Cancelled", "The request ended early (`cancelled`)."),
    ("500", "Internal", "A fault of the daemon (`internal`); its log has the request's id."),
    ("501", "Unsupported", "This daemon, its back end or this sandbox cannot do it (`unsupported`)."),
    ("503", "Unavailable", "It cannot be done now (`unavailable`); try again."),
    ("504", "TimedOut", "It was not done in time (`timed_out`)."),
];

/// The failures that any request may meet before it reaches its handler, and a fault of the daemon or of what it stands
/// on.
const ALWAYS: &[&str] = &["400", "401", "403", "429", "500", "503"];
const WITH_BODY: &[&str] = &["499"];

/// The other failures, by method (`*`: any) and path (`*` at its end: everything beneath). The first line that fits
/// counts.
const BY_PATH: &[(&str, &str, &[&str])] = &[
    ("POST", "/v1/keys", &["409"]),
    ("DELETE", "/v1/keys/{key}", &["404"]),
    ("*", "/v1/ssh-keys*", &["404", "409"]),
    ("GET", "/v1/links/*", &["404", "409", "501", "504"]),
    ("POST", "/v1/session/once", &["409"]),
    ("POST", "/v1/shares", &["404", "409"]),
    ("DELETE", "/v1/shares/{share}", &["404"]),
    ("GET", "/v1/live", &["404"]),
    ("GET", "/v1/doctor", &["501", "504"]),
    ("*", "/v1/images", &["501"]),
    ("*", "/v1/images/usage", &["501"]),
    ("*", "/v1/images/prune", &["501"]),
    ("*", "/v1/images/{image}*", &["404", "409", "501"]),
    ("*", "/v1/images/*", &["404", "409", "501", "504"]),
    ("GET", "/v1/sandboxes", &[]),
    ("GET", "/v1/sandboxes/{sandbox}", &["404"]),
    ("*", "/v1/sandboxes*", &["404", "409", "501", "504"]),
    ("POST", "/v1/runs", &["404", "409", "501", "504"]),
    ("GET", "/v1/snapshots", &[]),
    ("GET", "/v1/snapshots/{snapshot}", &["404"]),
    ("*", "/v1/snapshots/reindex", &["501"]),
    ("*", "/v1/snapshots*", &["404", "409", "501", "504"]),
    ("GET", "/v1/secrets", &[]),
    ("GET", "/v1/secrets/{secret}", &["404"]),
    ("*", "/v1/secrets/{secret}", &["404", "409"]),
    ("GET", "/v1/volumes", &[]),
    ("GET", "/v1/volumes/{volume}", &["404"]),
    ("*", "/v1/volumes*", &["404", "409", "501", "504"]),
];

/// Adds the failures to every operation.
pub(super) fn describe(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    for (_, name, words) in STATUSES {
        let mut failure = Response::new(*words);
        let body = Content::new(Some(RefOr::Ref(Ref::from_schema_name("ErrorBody"))));
        failure.content.insert("application/json".to_owned(), RefOr::T(body));
        components.responses.insert((*name).to_owned(), RefOr::T(failure));
    }
    for (path, item) in &mut document.paths.paths {
        let methods = [
            ("GET", &mut item.get),
            ("PUT", &mut item.put),
            ("POST", &mut item.post),
            ("PATCH", &mut item.patch),
            ("DELETE", &mut item.delete),
        ];
        for (method, operation) in methods {
            if let Some(operation) = operation {
                add(operation, method, path);
            }
        }
    }
}

fn add(operation: &mut Operation, method: &str, path: &str) {
    let with_body = if operation.request_body.is_some() { WITH_BODY } else { &[] };
    for status in ALWAYS.iter().chain(with_body).chain(by_path(method, path)) {
        if let Some((_, name, _)) = STATUSES.iter().find(|(one, ..)| one == status) {
            let reference = RefOr::Ref(Ref::from_response_name(*name));
            operation.responses.responses.insert((*status).to_owned(), reference);
        }
    }
}

fn by_path(method: &str, path: &str) -> &'static [&'static str] {
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => path.starts_with(beginning),
        None => path == pattern,
    };
    let line = BY_PATH.iter().find(|(of, pattern, _)| (*of == "*" || *of == method) && fits(pattern));
    line.map_or(&[], |(.., statuses)| *statuses)
}
