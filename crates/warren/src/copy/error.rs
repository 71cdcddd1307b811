//! How a copy fails, in words.

use std::io;

use hostfiles::{Counts, Error as Failure};
use sandbox::{Error, ErrorKind};

use crate::{error, output};

pub(super) fn worded(failure: Failure) -> Error {
    // Names in it may come from inside.
    let message = output::printable(&failure.to_string());
    match failure {
        Failure::Io { act, path, errno } => {
            let what = output::printable(&format!("could not {act} {}", path.display()));
            error::failure(Some(what), errno.into())
        }
        Failure::InTheWay { .. } => Error::new(ErrorKind::AlreadyExists, message)
            .with_hint("Choose another name, or remove what is there."),
        Failure::OddKind { .. } => Error::new(ErrorKind::Unsupported, message),
        Failure::Changed { .. } => Error::new(ErrorKind::Unavailable, message).with_hint("Copy it again."),
        Failure::TooDeep { .. } => {
            Error::new(ErrorKind::LimitReached, message).with_hint("Copy a subdirectory.")
        }
        Failure::TooMany { .. } | Failure::TooLarge { .. } => Error::new(ErrorKind::LimitReached, message),
        Failure::NotADirectory => Error::new(ErrorKind::WrongState, message)
            .with_hint("It may have changed while it was copied; try again."),
        Failure::Refused { .. } | Failure::Archive(_) => {
            Error::new(ErrorKind::Unavailable, format!("the tree could not be unpacked: {message}"))
        }
        Failure::BrokenOff => Error::new(ErrorKind::Unavailable, message),
    }
}

/// For a stream on its way to the daemon.
pub(super) fn in_stream(failure: &Failure) -> io::Error {
    io::Error::other(worded(failure.clone()))
}

pub(super) fn warn_of_left_out(counts: &Counts) {
    for path in &counts.left_out_paths {
        output::warn(&format!("{} is left out: not a file, directory or link", output::printable(path)));
    }
    let n_more = counts.left_out.saturating_sub(counts.left_out_paths.len() as u64);
    if n_more > 0 {
        output::warn(&format!("{n_more} more are left out"));
    }
}
