//! Maps failures to errors by what the engine can do about them.

use std::io;

use sandbox::{BackendError, Next};

/// Kernel errors that mean "no more of it", and the exhausted resource.
fn exhausted(errno: Option<i32>) -> Option<&'static str> {
    Some(match errno? {
        libc::ENOSPC | libc::EDQUOT => "disk space",
        libc::ENOMEM => "memory",
        libc::EAGAIN => "processes",
        libc::EMFILE | libc::ENFILE => "open files",
        libc::EUSERS => "user namespaces",
        _ => return None,
    })
}

fn sort(what: String, errno: Option<i32>, source: Box<dyn std::error::Error + Send + Sync>) -> BackendError {
    if errno == Some(libc::EBUSY) {
        return BackendError::Unavailable { what: format!("{what}: it is still in use: {source}") };
    }
    match exhausted(errno) {
        Some(thing) => BackendError::Exhausted {
            what: format!("{what}: the host is out of {thing}"),
            next: Some(Next::Advice(format!(
                "Remove sandboxes that are not needed, or give the host more {thing}."
            ))),
        },
        None => BackendError::Failed { what, source: Some(source) },
    }
}

pub(crate) fn from_io(what: impl Into<String>, error: io::Error) -> BackendError {
    let errno = error.raw_os_error();
    sort(what.into(), errno, error.into())
}

pub(crate) fn from_failure(what: impl Into<String>, failure: jail::Failure) -> BackendError {
    let what = format!("{}: {failure}", what.into());
    if failure.is_refusal {
        let hint = "Check what the sandbox's image or snapshot has at that path, or use another one.";
        return BackendError::Unsupported { what, next: Some(Next::Advice(hint.to_owned())) };
    }
    let errno = failure.errno;
    sort(what, errno, failure.into())
}

/// A refused archive is the caller's problem; everything else is the host's.
pub(crate) fn from_tree(what: impl Into<String>, failure: trees::Error) -> BackendError {
    let what = format!("{}: {failure}", what.into());
    match failure {
        trees::Error::Refused { .. } | trees::Error::Damaged(_) => {
            BackendError::Unsupported { what, next: None }
        }
        trees::Error::TooLarge { .. } => {
            let hint = "Remove the files that are too large or too deep, then try again.";
            BackendError::Exhausted { what, next: Some(Next::Advice(hint.to_owned())) }
        }
        failure => sort(what, failure.errno(), failure.into()),
    }
}

pub(crate) fn from_cgroup(error: jail::cgroup::CgroupError) -> BackendError {
    let errno = error.source.raw_os_error();
    sort(error.to_string(), errno, error.into())
}

/// A blocking task ended without a result: it panicked, or the runtime is shutting down.
pub(crate) fn from_join(error: tokio::task::JoinError) -> BackendError {
    BackendError::failed("a task of the namespace back end was lost", error)
}
