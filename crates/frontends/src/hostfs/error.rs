//! Errors for what the host refused.

use std::path::Path;

use rustix::io::Errno;
use sandbox::{Error, ErrorKind, Thing};

/// Returns the error for a copy that failed.
pub(super) fn worded(error: hostfiles::Error) -> Error {
    use hostfiles::Error as Failure;
    let message = error.to_string();
    match error {
        Failure::Io { act, path, errno } => failed(act, &path, errno),
        Failure::InTheWay { path, is_link: true } => failed("write", &path, Errno::LOOP),
        Failure::InTheWay { path, is_link: false } => failed("write", &path, Errno::EXIST),
        Failure::OddKind { .. } => Error::new(ErrorKind::WrongState, message)
            .with_hint("Pipes, sockets and devices cannot be copied; give a file or a directory."),
        Failure::Changed { .. } => Error::new(ErrorKind::Unavailable, message).with_hint("Copy it again."),
        Failure::TooDeep { .. } => {
            Error::new(ErrorKind::LimitReached, message).with_hint("Copy a subdirectory.")
        }
        Failure::TooMany { .. } => {
            Error::new(ErrorKind::LimitReached, message).with_hint("Copy a subdirectory, or an archive.")
        }
        Failure::TooLarge { .. } => {
            Error::new(ErrorKind::LimitReached, message).with_hint("Copy less at once.")
        }
        Failure::NotADirectory => Error::new(ErrorKind::WrongState, message)
            .with_hint("It may have changed while it was copied; try again."),
        Failure::Refused { .. } | Failure::Archive(_) => {
            Error::new(ErrorKind::Unavailable, format!("what the sandbox sent was refused: {message}"))
        }
        Failure::BrokenOff => Error::new(ErrorKind::Internal, message),
    }
}

/// Returns the error with which the bytes of a file or a tree break off, for whoever takes them.
pub(super) fn broken_off(error: &hostfiles::Error) -> Error {
    Error::new(ErrorKind::Unavailable, error.to_string())
}

pub(super) fn denied(path: &Path, why: &str) -> Error {
    let shown = path.display().to_string();
    Error::new(ErrorKind::Denied, format!("{shown} {why}")).about(Thing::HostPath, shown)
}

/// Returns the error for a kernel error about a host path.
pub(super) fn failed(what: &str, path: &Path, errno: Errno) -> Error {
    let at = path.display();
    let error = match errno {
        Errno::XDEV => return denied(path, "leads out of the allowed directory"),
        Errno::LOOP => return denied(path, "leads through a symbolic link that is not followed"),
        Errno::NOENT => Error::not_found(format!("{at} does not exist on the host"))
            .with_hint("Check the path: it is a path on the host, not in the sandbox."),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            Error::new(ErrorKind::Denied, format!("could not {what} {at} on the host: {errno}"))
                .with_hint("The daemon's user does not have permission.")
        }
        Errno::EXIST | Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY => {
            Error::new(ErrorKind::WrongState, format!("could not {what} {at} on the host: {errno}"))
                .with_hint("A file of another kind exists there; choose another host path.")
        }
        Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE => {
            Error::new(ErrorKind::Unavailable, format!("could not {what} {at} on the host: {errno}"))
        }
        Errno::AGAIN => Error::new(
            ErrorKind::Unavailable,
            format!("{at} was moved on the host while it was being opened"),
        ),
        _ => Error::new(ErrorKind::Internal, format!("could not {what} {at} on the host: {errno}")),
    };
    error.with_source(std::io::Error::from(errno))
}
