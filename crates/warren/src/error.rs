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
}

impl CommandError {
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Failed { error, .. } => Some(error.kind()),
            Self::BrokenPipe => None,
        }
    }

    /// Tells on stderr what went wrong, and returns the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        let Self::Failed { error, request_id } = self else { return ExitCode::SUCCESS };
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
            hint: error.hint().map(str::to_owned),
            request_id: request_id.clone().unwrap_or_default(),
        };
        let mut line = serde_json::to_string(&ErrorBody { error: detail }).unwrap_or_default();
        line.push('\n');
        line
    }
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
    if let Some(hint) = error.hint() {
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
            _ => Error::new(ErrorKind::Unavailable, error.to_string()).into(),
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
    let kind = match error.kind() {
        io::ErrorKind::BrokenPipe => return CommandError::BrokenPipe,
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
        io::ErrorKind::StorageFull => ErrorKind::LimitReached,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("{}: {error}", what.into())).into()
}
