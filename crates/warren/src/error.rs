//! How a command fails, and what people and programs then see.

use std::{io, io::Write as _, process::ExitCode};

use frontends::rest::v1::{ErrorBody, ErrorDetail};
use sandbox::{Error, ErrorKind, Limit, Next, Setting, Subject, Thing};

use crate::interrupt;

/// Exit code for a failure of Warren itself, as opposed to the program it ran.
pub(crate) const EXIT_FAILURE: u8 = 125;

pub(crate) type CommandResult<T = ExitCode> = Result<T, CommandError>;

#[derive(Debug)]
pub(crate) enum CommandError {
    Failed {
        error: Error,
        /// Finds the request in the daemon's log.
        request_id: Option<String>,
    },
    /// The reader of our output closed it. Not a failure.
    BrokenPipe,
    /// This signal asked us to end; nothing needs to be reported.
    Interrupted(i32),
}

impl CommandError {
    /// An error that the daemon reported.
    pub(crate) fn from_daemon(detail: ErrorDetail) -> Self {
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

    /// Whether a daemon stopped before its answer ended, or said that it was about to.
    pub(crate) fn is_lost_daemon(&self) -> bool {
        let Self::Failed { error, request_id } = self else { return false };
        let may_be_repeated = request_id.is_none() || error.next() == Some(&Next::Retry);
        error.kind() == ErrorKind::Unavailable && may_be_repeated
    }

    /// Prints the error on stderr, and returns the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        let (error, request_id) = match self {
            Self::Failed { error, request_id } => (error, request_id),
            Self::BrokenPipe => return ExitCode::SUCCESS,
            Self::Interrupted(signal) => return interrupt::exit_code(*signal),
        };
        let text = if json { self.as_json() } else { describe(error) };
        let mut stderr = io::stderr().lock();
        // If stderr is closed too, there is nobody to report to.
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
    for cause in sandbox::causes(error) {
        writeln!(text, "  caused by: {cause}").ok();
    }
    if let Some(hint) = hint(error) {
        writeln!(text, "{} {hint}", paint.note("hint:")).ok();
    }
    text
}

/// The message and its causes on one line.
pub(crate) fn in_full(error: &Error) -> String {
    sandbox::causes(error).into_iter().fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// The next step in words; without one, a general hint for the kind of error.
pub(crate) fn hint(error: &Error) -> Option<String> {
    let of_subject = || {
        let is_missing = error.kind() == ErrorKind::NotFound;
        error.subject().filter(|_| is_missing).map(|subject| list(subject.what).to_owned())
    };
    let of_next = || match (error.next()?, error.subject()) {
        // The subject is what does not exist yet.
        (Next::Create(Thing::Volume), Some(Subject { what: Thing::Volume, name })) => {
            Some(format!("`warren volume create {name}` creates it; `warren volume ls` lists all volumes."))
        }
        (next, _) => Some(in_words(next)),
    };
    of_next().or_else(of_subject).or_else(|| of_kind(error.kind()).map(str::to_owned))
}

/// The next step, as a command where one exists: the command line's table of hints.
pub(crate) fn in_words(next: &Next) -> String {
    match next {
        Next::Advice(advice) => advice.clone(),
        Next::Retry => "Try again in a moment.".to_owned(),
        Next::Nothing => "No action is needed.".to_owned(),
        Next::Start(sandbox) => format!("Run `warren start {sandbox}` first."),
        Next::Resume(sandbox) => format!("Run `warren resume {sandbox}` first."),
        Next::Stop(sandbox) => format!("Run `warren stop {sandbox}` first."),
        Next::GiveUp(sandbox) => {
            format!("Try again when its back end responds, or abandon it with `warren rm -f {sandbox}`.")
        }
        Next::StopOrForce(sandbox) => format!("`warren rm -f {sandbox}` stops and removes it."),
        Next::AwaitRunning(sandbox) => format!("Wait until sandbox {sandbox} is running; `warren ps` shows its state."),
        Next::AwaitStopped(sandbox) => format!("Wait until it has stopped: `warren wait {sandbox}`."),
        Next::Restart(sandbox) => {
            format!("Wait until it has stopped with `warren wait {sandbox}`, then run `warren start {sandbox}`.")
        }
        Next::Reboot(sandbox) => {
            format!("Run `warren stop {sandbox}`, then `warren start {sandbox}`; its files are kept.")
        }
        Next::Inspect(sandbox) => format!("`warren inspect {sandbox}` shows its state."),
        Next::Replace(sandbox) => format!("Remove it with `warren rm {sandbox}`, then create another."),
        Next::List(what) => list(*what).to_owned(),
        Next::Create(Thing::Volume) => {
            "`warren volume create NAME` creates one; `warren volume ls` lists all volumes.".to_owned()
        }
        Next::Create(what) => format!("Create the {what} first."),
        Next::Name(_) => {
            "A name has at most 63 letters, digits, '-', '_' and '.', and starts with a letter or digit."
                .to_owned()
        }
        Next::FreeName(Subject { what: Thing::Key, name }) => {
            format!("Choose another label, or run `warren key revoke {name}` first.")
        }
        Next::FreeName(taken) => match remover(taken.what) {
            Some(verb) => format!("Choose another name, or remove it with `warren {verb} {}`.", taken.name),
            None => format!("Choose another name, or remove {taken}."),
        },
        Next::Remove(Thing::Key) => {
            "Revoke keys you no longer need; `warren key list` shows when each was last used.".to_owned()
        }
        Next::Remove(Thing::Sandbox) => "Remove sandboxes you no longer need with `warren rm`.".to_owned(),
        Next::Remove(what) => format!("Remove a {what} you no longer need."),
        Next::RemoveUsers(Thing::Volume) => {
            "Remove these sandboxes first with `warren rm`; stopped ones count too, because they need it to start."
                .to_owned()
        }
        Next::RemoveUsers(Thing::Secret) => {
            "Remove these sandboxes first with `warren rm`, or pass --force: running ones lose it at once, and stopped \
             ones do not start without it."
                .to_owned()
        }
        Next::Allow(host) => format!("Add --allow {host}."),
        Next::AskNetwork(_) => {
            "Omit it, or ask the daemon's operator to allow it or to grant it for a time with `warren network`."
                .to_owned()
        }
        Next::SetSecret { name, host } => {
            let host = host.as_deref().unwrap_or("HOST");
            format!("`warren secret set {name} --host {host}` sets it; `warren secret ls` lists all secrets.")
        }
        Next::RemoveUsers(_) => {
            "Remove those first, or pass --force: it loses its name now and is deleted with the last of them.".to_owned()
        }
        Next::Pull(image) => {
            format!("Pull it with `warren pull {image}`, or load an archive that includes the image.")
        }
        Next::HostImage(host) => {
            let fallback = match host.can_stand_in {
                true => ", or --image-fallback to use it whenever the image cannot be pulled",
                false => "",
            };
            format!(
                "Check the image's name and the network, or use --image host, which has {}{fallback}.",
                host.listed()
            )
        }
        Next::Raise(limit) => raise(*limit).to_owned(),
        Next::Archive(what) => format!("Use an archive that `warren {what} save` wrote."),
        Next::VolumeSize => {
            "A disk takes a --size such as 1GiB; a directory takes a --quota instead.".to_owned()
        }
        Next::VolumeQuota => {
            "A directory takes a --quota such as 1GiB; a disk takes a --size instead.".to_owned()
        }
        Next::MakeKey => "Create a key with `warren key create` on the daemon's machine, and send all of it.".to_owned(),
        Next::SignIn => "Sign in with a key, or with a new address from `warren dashboard`.".to_owned(),
        Next::Diagnose => "`warren doctor` shows what is missing and how to fix it.".to_owned(),
        Next::Recover => {
            "Run `warren doctor --recover`, which keeps the damaged file under another name and rebuilds the records \
             from the files of sandboxes, volumes and snapshots; or restore a backup."
                .to_owned()
        }
        Next::UseBackend(backend) => format!("Use --backend {backend}, or omit --backend."),
        Next::Configure(setting) => configure(*setting).to_owned(),
        Next::LogIn => {
            "Check the name: registries answer the same for images that do not exist. Or run `warren login REGISTRY`. \
             If you have done so, the daemon may read another file: it looks in its own HOME or DOCKER_CONFIG."
                .to_owned()
        }
        Next::Listen => "Start one that does with `warren serve --take-over`; sandboxes keep running.".to_owned(),
    }
}

/// The command that removes one thing by its name.
fn remover(what: Thing) -> Option<&'static str> {
    match what {
        Thing::Sandbox => Some("rm"),
        Thing::Volume => Some("volume rm"),
        Thing::Snapshot => Some("snapshot rm"),
        Thing::Secret => Some("secret rm"),
        Thing::Image => Some("rmi"),
        _ => None,
    }
}

fn configure(setting: Setting) -> &'static str {
    match setting {
        Setting::PublishAddresses => {
            "Omit the address for 127.0.0.1. The operator allows others with `warren serve --publish-on`."
        }
        Setting::Registries => {
            "Use a public registry, or add this one to images.registries in the daemon's configuration."
        }
        Setting::Packages => "Set packages.enabled to true in the daemon's configuration.",
    }
}

fn list(what: Thing) -> &'static str {
    match what {
        Thing::Sandbox => "`warren ps -a` lists all sandboxes.",
        Thing::Exec => "`warren execs SANDBOX` lists them; old ones are dropped when the log is full.",
        Thing::PackageJob => "`warren package status SANDBOX` lists them.",
        Thing::Volume => "`warren volume ls` lists all volumes; `warren volume create` creates one.",
        Thing::Snapshot => "`warren snapshot ls` lists all snapshots.",
        Thing::Image => "`warren image ls` lists local images; `warren pull` gets one from a registry.",
        Thing::Secret => "`warren secret ls` lists all secrets.",
        Thing::Key => "`warren key list` shows ids and labels.",
        Thing::SshKey => "`warren ssh-key ls` lists them.",
        Thing::Context => "`warren context ls SANDBOX` lists them.",
        Thing::Port => "`warren port SANDBOX` lists them.",
        Thing::File | Thing::HostPath | Thing::Patch | Thing::Archive | Thing::Route | Thing::Backend => {
            "Check the name."
        }
    }
}

fn raise(limit: Limit) -> &'static str {
    match limit {
        Limit::Sandboxes => {
            "Remove sandboxes you no longer need with `warren rm`, or raise the daemon's limit."
        }
        Limit::KeySandboxes => {
            "Remove a sandbox you no longer need, or use a key with a higher --max-sandboxes."
        }
        Limit::KeyMemory => "Remove a sandbox you no longer need, or use a key with a higher --max-memory.",
        Limit::VolumeQuota => "Delete files from the volume, or use one with a higher --quota.",
        Limit::Volumes => "Remove volumes you no longer need, or raise the daemon's limit.",
        Limit::Snapshots => "Remove snapshots you no longer need, or raise the daemon's limit.",
        Limit::Keys => "Revoke keys you no longer need with `warren key revoke`.",
        Limit::Execs | Limit::PackageJobs => "Wait for some of them to finish, or use another sandbox.",
        Limit::RequestRate => "Wait a moment. The daemon's operator sets the rate with --rate-limit.",
        Limit::Streams => "Close one. The daemon's operator sets the limit with --max-streams.",
    }
}

/// A general hint, where only the kind of error is known.
fn of_kind(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::NotFound => Some("Check the name and the path."),
        ErrorKind::InvalidRequest => Some("Correct the arguments; --help shows what the command accepts."),
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

/// A local I/O failure, with the thing it concerns.
pub(crate) fn io_failure(what: impl Into<String>, error: io::Error) -> CommandError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => CommandError::BrokenPipe,
        _ => failure(Some(what.into()), error).into(),
    }
}

/// As [`io_failure`], where a broken pipe is one too.
pub(crate) fn failure(what: Option<String>, error: io::Error) -> Error {
    // One of our own errors, passed through a stream, is complete as it is.
    let error = match error.downcast::<Error>() {
        Ok(own) => return own,
        Err(error) => error,
    };
    let (kind, hint) = match error.kind() {
        io::ErrorKind::NotFound => (ErrorKind::NotFound, "Check the path and what exists there."),
        io::ErrorKind::PermissionDenied => (ErrorKind::Denied, "Check the permissions of the path."),
        io::ErrorKind::AlreadyExists => {
            (ErrorKind::AlreadyExists, "Choose another name, or remove the existing file.")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (ErrorKind::LimitReached, "Free some space, or choose another location.")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            (ErrorKind::WrongState, "Check the path and what exists there.")
        }
        _ => (ErrorKind::Unavailable, ""),
    };
    let message = what.map_or_else(|| error.to_string(), |what| format!("{what}: {error}"));
    let failed = Error::new(kind, message);
    if hint.is_empty() { failed } else { failed.with_hint(hint) }
}
