//! How a command fails, and what people and programs then see.

use std::{error::Error as _, io, io::Write as _, process::ExitCode};

use frontends::rest::v1::{ErrorBody, ErrorDetail};
use sandbox::{Error, ErrorKind};

/// Our own failure, as opposed to that of the program that ran.
pub(crate) const EXIT_FAILURE: u8 = 125;

pub(crate) type CommandResult<T = ExitCode> = Result<T, CommandError>;

#[derive(Debug)]
pub(crate) enum CommandError {
    Failed {
        error: Error,
        /// Finds the request in the daemon's log.
        request_id: Option<String>,
    },
    /// Whoever read our output has seen enough. Not a failure.
    BrokenPipe,
    /// A signal of this number asked us to end, and everybody knows it.
    Interrupted(i32),
}

impl CommandError {
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Failed { error, .. } => Some(error.kind()),
            Self::BrokenPipe | Self::Interrupted(_) => None,
        }
    }

    /// Tells on stderr what went wrong, and returns the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        let (error, request_id) = match self {
            Self::Failed { error, request_id } => (error, request_id),
            Self::BrokenPipe => return ExitCode::SUCCESS,
            Self::Interrupted(signal) => return ExitCode::from(128 + u8::try_from(*signal).unwrap_or(0)),
        };
        let text = if json { self.as_json() } else { describe(error) };
        let mut stderr = io::stderr().lock();
        // Nobody is left to tell when stderr is gone too.
        stderr.write_all(text.as_bytes()).ok();
        if !json
            && let Some(id) = request_id
            && error.kind() == ErrorKind::Internal
        {
            writeln!(stderr, "request: {id}").ok();
        }
        ExitCode::from(EXIT_FAILURE)
    }

    /// The error in the shape that the API gives it, on one line.
    pub(crate) fn as_json(&self) -> String {
        let Self::Failed { error, request_id } = self else { return String::new() };
        let detail = ErrorDetail {
            kind: error.kind(),
            message: error.message().to_owned(),
            hint: hint(error).map(str::to_owned),
            request_id: request_id.clone().unwrap_or_default(),
        };
        let mut line = serde_json::to_string(&ErrorBody { error: detail }).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// The error's own, or what there is to say of its kind.
fn hint(error: &Error) -> Option<&str> {
    error.hint().or(match error.kind() {
        ErrorKind::NotFound => Some("Check the name and the path: there is nothing such."),
        ErrorKind::InvalidRequest => Some("Correct it; --help shows what the command takes."),
        _ => None,
    })
}

fn describe(error: &Error) -> String {
    use std::fmt::Write as _;
    let paint = crate::output::Paint::for_stderr();
    let mut text = format!("{} {}\n", paint.bad("error:"), error.message());
    let mut source = error.source();
    while let Some(cause) = source {
        writeln!(text, "  caused by: {cause}").ok();
        source = cause.source();
    }
    if let Some(hint) = hint(error) {
        writeln!(text, "{} {}", paint.note("hint:"), as_command(hint)).ok();
    }
    text
}

/// The daemon's hints are for every kind of client; here the next step has a name.
fn as_command(hint: &str) -> String {
    let of =
        |begin: &str, end: &str| hint.strip_prefix(begin)?.strip_suffix(end).filter(|name| is_word(name));
    if hint == "List sandboxes to see which there are." {
        return "`warren ps -a` lists all there are.".to_owned();
    }
    if hint.starts_with("Start it with `warren serve`") {
        return "`warren serve --take-over` starts one that does; the sandboxes live on.".to_owned();
    }
    if let Some(begin) = hint.strip_suffix("GET …/package-jobs lists them.") {
        return format!("{begin}`warren package status SANDBOX` lists them.");
    }
    if let Some(name) = of("Stop sandbox ", " first, or remove it by force.") {
        return format!("`warren rm -f {name}` stops it first.");
    }
    for (begin, verb) in
        [("Start sandbox ", "start"), ("Resume sandbox ", "resume"), ("Stop sandbox ", "stop")]
    {
        if let Some(name) = of(begin, " first.") {
            return format!("First: `warren {verb} {name}`.");
        }
    }
    hint.to_owned()
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_whitespace)
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self::Failed { error, request_id: None }
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => failure(None, error).into(),
        }
    }
}

macro_rules! from_invalid {
    ($($type:ty),*) => {$(
        impl From<$type> for CommandError {
            fn from(error: $type) -> Self {
                Error::from(error).into()
            }
        }
    )*};
}

from_invalid!(sandbox::InvalidExec, sandbox::InvalidName, sandbox::InvalidId);

/// A local failure with the thing that it concerns.
pub(crate) fn io_failure(what: impl Into<String>, error: io::Error) -> CommandError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => CommandError::BrokenPipe,
        _ => failure(Some(what.into()), error).into(),
    }
}

fn failure(what: Option<String>, error: io::Error) -> Error {
    // One of our own on its way through a stream says all there is to say.
    let error = match error.downcast::<Error>() {
        Ok(own) => return own,
        Err(error) => error,
    };
    let (kind, hint) = match error.kind() {
        io::ErrorKind::NotFound => (ErrorKind::NotFound, "Check the path, and what is there."),
        io::ErrorKind::PermissionDenied => (ErrorKind::Denied, "Check who may read and write there."),
        io::ErrorKind::AlreadyExists => {
            (ErrorKind::AlreadyExists, "Choose another name, or remove what is there.")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (ErrorKind::LimitReached, "Make room there, or choose another place.")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            (ErrorKind::WrongState, "Check the path, and what is there.")
        }
        _ => (ErrorKind::Unavailable, ""),
    };
    let message = what.map_or_else(|| error.to_string(), |what| format!("{what}: {error}"));
    let failed = Error::new(kind, message);
    if hint.is_empty() { failed } else { failed.with_hint(hint) }
}
