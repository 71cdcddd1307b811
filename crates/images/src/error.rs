//! Errors, sorted by what the caller can do next.

use std::{borrow::Cow, io, path::PathBuf, time::Duration};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::platform::Platform;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something asked of images did not happen. Messages are lower case and name the thing; causes are sources. Can be
/// sent from a process that unpacks.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub enum Error {
    /// Malformed: a reference, a platform, an option.
    #[error("{what}")]
    Invalid { what: String },
    /// No such image here, or none in the registry.
    #[error("{what} was not found")]
    NotFound { what: String },
    /// The registry wants other credentials, or these do not allow it.
    #[error("{what}: the registry refused the credentials")]
    Unauthorized { what: String },
    /// Whoever asks may not reach this registry, or where it leads.
    #[error("{what}: {why}")]
    Denied { what: String, why: String },
    /// The registry asks us to come back later than we are willing to wait.
    #[error("{what}: the registry limits how often it may be asked")]
    RateLimited { what: String, retry_after: Option<Duration> },
    /// The registry cannot be reached or does not do what registries do; trying again later may help.
    #[error("{what}: {why}")]
    Unavailable { what: String, why: String },
    /// Nothing came within the time allowed.
    #[error("{what}: no answer within {} s", .after.as_secs_f32())]
    TimedOut { what: String, after: Duration },
    /// Bytes are not what they were said to be.
    #[error("{what} is corrupt: expected {expected}, got {got}")]
    Corrupt { what: String, expected: String, got: String },
    /// A tar entry that does what no honest layer does.
    #[error("refused the entry {entry:?}: {why}")]
    Refused { entry: String, why: String },
    /// Larger than a limit of [`Limits`](crate::Limits), whose name is `limit`.
    #[error("{what} is over the limit {limit} of {most}")]
    TooLarge { what: String, limit: Cow<'static, str>, most: u64 },
    /// Somebody uses the image.
    #[error("{what} is in use by {}", .by.join(", "))]
    InUse { what: String, by: Vec<String> },
    /// The disk is full, or the cap on what images may take is reached with everything unused gone.
    #[error("no space left for {what}")]
    NoSpace { what: String },
    /// Well-formed, and nothing we can do: schema 1, foreign artifacts, encrypted layers, another platform.
    #[error("{what} is not supported")]
    Unsupported { what: String },
    /// An archive, and not of images.
    #[error("an archive with neither index.json nor manifest.json is not supported")]
    NoImages,
    #[error("compression by {by} is not supported")]
    Compression { by: Cow<'static, str> },
    #[error("could not {act} {}", .path.display())]
    Io {
        act: Cow<'static, str>,
        path: PathBuf,
        #[source]
        #[serde(with = "cause")]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn corrupt(
        what: impl Into<String>,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) -> Self {
        Self::Corrupt { what: what.into(), expected: expected.into(), got: got.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }

    /// The error for an image that was asked for a platform, and is built for others.
    pub(crate) fn no_build(asked: &Platform, built: &str) -> Self {
        Self::unsupported(format!("platform {asked}, for which the image has no build (it has {built}),"))
    }

    /// For a failed system call: a full disk is told apart from the rest.
    pub(crate) fn io(act: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| {
            if is_full(&source) {
                Self::NoSpace { what: path.display().to_string() }
            } else {
                Self::Io { act: act.into(), path, source }
            }
        }
    }

    /// The error for a document that its parser refuses. The parser's text may quote the document, which may be any
    /// server's answer.
    pub(crate) fn unreadable(what: &str, expected: &str, error: &serde_json::Error) -> Self {
        Self::corrupt(what, expected, shortened(error.to_string(), MAX_QUOTED_CHARS))
    }

    /// The same, with words of strangers cut to a length that can be told.
    pub(crate) fn shortened(self) -> Self {
        let cut = |text: String| shortened(text, MAX_TOLD_CHARS);
        let cut_path = |path: PathBuf| match path.to_str() {
            Some(text) if text.len() <= MAX_TOLD_CHARS => path,
            _ => cut(path.to_string_lossy().into_owned()).into(),
        };
        match self {
            Self::Refused { entry, why } => Self::Refused { entry: cut(entry), why: cut(why) },
            Self::Corrupt { what, expected, got } => {
                Self::Corrupt { what: cut(what), expected: cut(expected), got: cut(got) }
            }
            Self::TooLarge { what, limit, most } => Self::TooLarge { what: cut(what), limit, most },
            Self::NoSpace { what } => Self::NoSpace { what: cut(what) },
            Self::Unsupported { what } => Self::Unsupported { what: cut(what) },
            Self::Invalid { what } => Self::Invalid { what: cut(what) },
            Self::Io { act, path, source } => Self::Io { act, path: cut_path(path), source },
            short => short,
        }
    }

    /// Whether the same request may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::RateLimited { .. } | Self::Unavailable { .. } | Self::TimedOut { .. })
    }
}

impl From<archive::Error> for Error {
    fn from(error: archive::Error) -> Self {
        match error {
            archive::Error::Io(error) => Self::io("read", "the archive")(error),
            archive::Error::Damaged(what) => Self::corrupt("the archive", "a sound tar", what),
            archive::Error::OtherLength => Self::io("write", "the archive")(error.into()),
            archive::Error::Unsupported(what) => Self::Unsupported { what },
            archive::Error::LongHeader { .. } => {
                Self::Refused { entry: "an extended header".to_owned(), why: error.to_string() }
            }
            archive::Error::ManyParts { most } => Self::TooLarge {
                what: "the number of parts of a sparse file".to_owned(),
                limit: "parts".into(),
                most: most as u64,
            },
        }
    }
}

/// Longest piece of a stranger's text in an error.
const MAX_TOLD_CHARS: usize = 1000;

/// The same in what a parser says of a document.
const MAX_QUOTED_CHARS: usize = 120;

/// No longer than `most` characters.
pub(crate) fn shortened(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG))
}

/// A cause that can be sent: the kernel's error number if there is one, else the text.
mod cause {
    use std::io;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Cause {
        errno: Option<i32>,
        message: String,
    }

    pub(super) fn serialize<S: Serializer>(error: &io::Error, serializer: S) -> Result<S::Ok, S::Error> {
        Cause { errno: error.raw_os_error(), message: error.to_string() }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<io::Error, D::Error> {
        let Cause { errno, message } = Cause::deserialize(deserializer)?;
        Ok(errno.map_or_else(|| io::Error::other(message), io::Error::from_raw_os_error))
    }
}
