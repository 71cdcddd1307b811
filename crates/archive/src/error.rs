//! Faults of archives.

use std::io;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Messages quote nothing of the archive: its bytes may be anything.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Says what was found in place of a sound archive.
    #[error("the archive is damaged: {0}")]
    Damaged(&'static str),
    /// Says what it is.
    #[error("{0} is not supported")]
    Unsupported(String),
    #[error("an extended header is longer than {most} bytes")]
    LongHeader { most: u64 },
    #[error("a sparse file has more than {most} parts")]
    ManyParts { most: usize },
    /// Of a member that is written.
    #[error("a file is not as long as it was said to be")]
    OtherLength,
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Io(error) => error,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}

pub(crate) fn cut_short() -> Error {
    Error::Damaged("its end in the middle of a member")
}

/// Without the cause, which would quote the header.
pub(crate) fn malformed(_quotes_it: io::Error) -> Error {
    Error::Damaged("a tar header with something else than numbers in its fields")
}

pub(crate) fn bad_record() -> Error {
    Error::Damaged("an extended header that is malformed")
}

pub(crate) fn bad_map() -> Error {
    Error::Damaged("a sparse file whose map does not fit it")
}
