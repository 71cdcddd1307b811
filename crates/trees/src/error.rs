//! Errors of trees.

use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Can be sent to another process: kernel errors are kept as their number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Error {
    #[error("could not {act} {path:?}: {}", io::Error::from_raw_os_error(*errno))]
    Io { act: String, path: String, errno: i32 },
    /// Directories were moved in a tree that should not change.
    #[error("the tree was changed while it was read, at {path:?}")]
    Changed { path: String },
    /// An archive contains something that no tree has, or that would reach out of it.
    #[error("the archive was refused at {entry:?}: {why}")]
    Refused { entry: String, why: String },
    /// An archive that does not match its own description.
    #[error("the archive is damaged: {0}")]
    Damaged(String),
    #[error("{what} passes the limit {limit} of {most}")]
    TooLarge { what: String, limit: String, most: u64 },
    #[error("could not read or write the archive: {message}")]
    Archive { message: String, errno: Option<i32> },
}

impl Error {
    pub(crate) fn io(act: &str, path: String, errno: Errno) -> Self {
        Self::Io { act: act.to_owned(), path, errno: errno.raw_os_error() }
    }

    pub(crate) fn archive(error: &io::Error) -> Self {
        Self::Archive { message: error.to_string(), errno: error.raw_os_error() }
    }

    /// The kernel's error number, if there was one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { errno, .. } => Some(*errno),
            Self::Archive { errno, .. } => *errno,
            _ => None,
        }
    }
}

impl From<archive::Error> for Error {
    fn from(error: archive::Error) -> Self {
        match error {
            archive::Error::Io(error) => Self::archive(&error),
            archive::Error::OtherLength => Self::archive(&error.into()),
            archive::Error::Damaged(what) => Self::Damaged(what.to_owned()),
            archive::Error::Unsupported(_) => Self::Refused { entry: String::new(), why: error.to_string() },
            archive::Error::LongHeader { most } => Self::TooLarge {
                what: "what is said about one file".to_owned(),
                limit: "MAX_HEADER_BYTES".to_owned(),
                most,
            },
            archive::Error::ManyParts { most } => Self::TooLarge {
                what: "the number of parts of a file".to_owned(),
                limit: "MAX_PARTS".to_owned(),
                most: most as u64,
            },
        }
    }
}
