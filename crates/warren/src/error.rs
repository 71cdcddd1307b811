//! How a command fails, and what people and programs then see.

use std::{error::Error as _, io, io::Write as _, process::ExitCode};

use frontends::rest::v1::{ErrorBody, ErrorDetail};
use sandbox::{Error, ErrorKind, Limit, Next, Subject, Thing};

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
    /// What the daemon told.
    pub(crate) fn told(detail: ErrorDetail) -> Self {
        let request_id = Some(detail.request_id.clone());
        Self::Failed { error: detail.into_error(), request_id }
    }

    #[must_use]
    pub(crate) fn map(self, change: impl FnOnce(Error) -> Error) -> Self {
        match self {
            Self::Failed { error, request_id } => Self::Failed { error: change(error), request_id },
            other => other,
        }
    }

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
        let detail = ErrorDetail::new(error, hint(error), request_id.as_deref().unwrap_or_default());
        let mut line = serde_json::to_string(&ErrorBody { error: detail }).unwrap_or_default();
        line.push('\n');
        line
    }
}

fn describe(error: &Error) -> String {
    use std::fmt::Write as _;
    let paint = crate::output::Paint::for_stderr();
    let mut text = format!("{} {error}\n", paint.bad("error:"));
    let mut source = error.source();
    while let Some(cause) = source {
        writeln!(text, "  caused by: {cause}").ok();
        source = cause.source();
    }
    if let Some(hint) = hint(error) {
        writeln!(text, "{} {hint}", paint.note("hint:")).ok();
    }
    text
}

/// The next step in words, or what there is to say of the kind.
pub(crate) fn hint(error: &Error) -> Option<String> {
    error.next().map(in_words).or_else(|| of_kind(error.kind()).map(str::to_owned))
}

/// The next step as a command where there is one: the table of this front end.
pub(crate) fn in_words(next: &Next) -> String {
    match next {
        Next::Advice(advice) => advice.clone(),
        Next::Retry => "Try again in a moment.".to_owned(),
        Next::Nothing => "Nothing needs to be done: it is so already.".to_owned(),
        Next::Start(sandbox) => format!("First: `warren start {sandbox}`."),
        Next::Resume(sandbox) => format!("First: `warren resume {sandbox}`."),
        Next::Stop(sandbox) => format!("First: `warren stop {sandbox}`."),
        Next::GiveUp(sandbox) => format!("Try again when its back end answers, or give it up: `warren rm -f {sandbox}`."),
        Next::StopOrForce(sandbox) => format!("`warren rm -f {sandbox}` stops it first."),
        Next::AwaitRunning(sandbox) => format!("Wait until sandbox {sandbox} is running: `warren ps` tells."),
        Next::AwaitStopped(sandbox) => format!("Wait until it has stopped: `warren wait {sandbox}`."),
        Next::Restart(sandbox) => {
            format!("Wait until it has stopped with `warren wait {sandbox}`, then `warren start {sandbox}`.")
        }
        Next::Inspect(sandbox) => format!("`warren inspect {sandbox}` shows how it is."),
        Next::Replace(sandbox) => format!("`warren rm {sandbox}` removes it; then create another."),
        Next::List(what) => list(*what).to_owned(),
        Next::Create(Thing::Volume) => {
            "`warren volume create NAME` makes one; `warren volume ls` lists all there are.".to_owned()
        }
        Next::Create(what) => format!("Create the {what} first."),
        Next::Name(_) => {
            "A name has at most 63 letters, digits, '-', '_' and '.', and begins with a letter or digit."
                .to_owned()
        }
        Next::FreeName(Subject { what: Thing::Key, name }) => {
            format!("Choose another label, or run `warren key revoke {name}` first.")
        }
        Next::FreeName(taken) => format!("Choose another name, or remove {taken}."),
        Next::Remove(Thing::Key) => {
            "Revoke keys that are not needed: `warren key list` shows when each was last used.".to_owned()
        }
        Next::Remove(Thing::Sandbox) => "Remove sandboxes that are not needed with `warren rm`.".to_owned(),
        Next::Remove(what) => format!("Remove a {what} that is not needed."),
        Next::RemoveUsers(Thing::Volume) => {
            "Remove these sandboxes first with `warren rm`; stopped ones count, since they need it when they start."
                .to_owned()
        }
        Next::RemoveUsers(_) => {
            "Remove those first, or give --force: then it loses its name now and goes with the last of them.".to_owned()
        }
        Next::Pull(image) => {
            format!("`warren pull {image}` gets it, or load an archive that has the image inside.")
        }
        Next::Raise(limit) => raise(*limit).to_owned(),
        Next::Archive(what) => format!("Give an archive that `warren {what} save` wrote."),
        Next::VolumeSize => {
            "Give a disk a --size such as 1GiB; a directory has a --quota instead.".to_owned()
        }
        Next::VolumeQuota => {
            "Give a directory a --quota such as 1GiB; a disk has a --size instead.".to_owned()
        }
        Next::MakeKey => "`warren key create` on the daemon's machine makes a key; give it whole.".to_owned(),
        Next::Diagnose => "`warren doctor` tells what is missing and how to mend it.".to_owned(),
        Next::Recover => {
            "`warren doctor --recover` keeps the damaged file under another name and makes the records anew \
                          from the files of sandboxes, volumes and snapshots. Or put a backup in its place."
                .to_owned()
        }
        Next::UseBackend(backend) => format!("Give --backend {backend}, or leave it out."),
        Next::Listen => "`warren serve --take-over` starts one that does; the sandboxes live on.".to_owned(),
    }
}

fn list(what: Thing) -> &'static str {
    match what {
        Thing::Sandbox => "`warren ps -a` lists all there are.",
        Thing::Exec => "`warren logs SANDBOX` shows what there is; old execs go when the log is full.",
        Thing::PackageJob => "`warren package status SANDBOX` lists them.",
        Thing::Volume => "`warren volume ls` lists all there are; `warren volume create` makes one.",
        Thing::Snapshot => "`warren snapshot ls` lists all there are.",
        Thing::Image => "`warren image ls` lists those that are here; `warren pull` gets one.",
        Thing::Key => "`warren key list` shows ids and labels.",
        Thing::Context => "`warren context ls SANDBOX` lists them.",
        Thing::File | Thing::HostPath | Thing::Patch | Thing::Archive | Thing::Route | Thing::Backend => {
            "Check the name."
        }
    }
}

fn raise(limit: Limit) -> &'static str {
    match limit {
        Limit::Sandboxes => {
            "Remove sandboxes that are not needed with `warren rm`, or raise the daemon's limit."
        }
        Limit::KeySandboxes => {
            "Remove a sandbox that is not needed, or use a key with a higher --max-sandboxes."
        }
        Limit::KeyMemory => "Remove a sandbox that is not needed, or use a key with a higher --max-memory.",
        Limit::VolumeQuota => "Remove files from it, or use a volume with a higher --quota.",
        Limit::Volumes => "Remove volumes that are not needed, or raise the daemon's limit.",
        Limit::Snapshots => "Remove snapshots that are not needed, or raise the daemon's limit.",
        Limit::Keys => "Revoke keys that are not needed with `warren key revoke`.",
        Limit::Execs | Limit::PackageJobs => "Wait for some of them to end, or use another sandbox.",
        Limit::RequestRate => "Wait a moment. The daemon's operator sets the rate with --rate-limit.",
        Limit::Streams => "Close one. The daemon's operator sets the limit with --max-streams.",
    }
}

/// What there is to say where nothing is known but the kind.
fn of_kind(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::NotFound => Some("Check the name and the path: there is nothing such."),
        ErrorKind::InvalidRequest => Some("Correct it; --help shows what the command takes."),
        _ => None,
    }
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

/// As [`io_failure`], where a broken pipe is one too.
pub(crate) fn failure(what: Option<String>, error: io::Error) -> Error {
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
