//! How a copy fails. Whoever asked for it words this for its own reader.

use std::{io, path::PathBuf};

use rustix::io::Errno;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("could not {act} {}: {errno}", path.display())]
    Io { act: &'static str, path: PathBuf, errno: Errno },
    /// Something of another kind is where an entry is to go.
    #[error("{} is in the way", path.display())]
    InTheWay { path: PathBuf, is_link: bool },
    #[error("{} is neither a file nor a directory", path.display())]
    OddKind { path: PathBuf },
    #[error("{} changed while it was copied", path.display())]
    Changed { path: PathBuf },
    #[error("{} has more than {limit} directories within each other", path.display())]
    TooDeep { path: PathBuf, limit: usize },
    #[error("there are more than {limit} files to copy")]
    TooMany { limit: u64 },
    #[error("there are more than {limit} bytes to copy")]
    TooLarge { limit: u64 },
    /// An entry of an archive that no honest sandbox sends.
    #[error("{} {why}", entry.display())]
    Refused { entry: PathBuf, why: &'static str },
    #[error("the archive cannot be read: {0}")]
    Archive(String),
    /// The archive holds a file or a link where a directory was asked for.
    #[error("it did not come as a directory")]
    NotADirectory,
    /// Nobody takes the bytes any more, or nobody sends them.
    #[error("the copy broke off")]
    BrokenOff,
}

impl Error {
    pub fn io(act: &'static str, path: impl Into<PathBuf>, errno: Errno) -> Self {
        Self::Io { act, path: path.into(), errno }
    }

    /// For the standard library's functions.
    pub fn of_io(act: &'static str, path: impl Into<PathBuf>, error: &io::Error) -> Self {
        Self::io(act, path, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }
}

impl From<archive::Error> for Error {
    fn from(error: archive::Error) -> Self {
        Self::Archive(error.to_string())
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { errno, .. } => errno.into(),
            other => Self::other(other),
        }
    }
}
