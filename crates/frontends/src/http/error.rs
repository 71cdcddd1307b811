//! Turns an error into a response.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    http::{
        HeaderValue, StatusCode,
        header::{RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use sandbox::{Error, ErrorKind, Limit, Next, Setting, Thing};

use super::{ErrorBody, ErrorDetail, foreign::ErrorForm};

pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// An error as a response. It travels as an extension of an empty response to [`super::request::frame`], which alone
/// knows the request's id, logs the error and writes the body.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Error);

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

#[derive(Clone)]
pub(crate) struct Failure(pub(crate) Arc<Error>);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = http_status(self.0.kind()).into_response();
        response.extensions_mut().insert(Failure(Arc::new(self.0)));
        response
    }
}

/// An error from the gate, which may know when to try again.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: Error,
    pub(crate) retry_after: Option<Duration>,
}

#[derive(Clone, Copy)]
pub(crate) struct RetryAfter(Duration);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, retry_after: None }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = ApiError(self.error).into_response();
        if let Some(wait) = self.retry_after {
            response.extensions_mut().insert(RetryAfter(wait));
        }
        response
    }
}

/// The table of kinds and statuses. No wildcard: a new kind does not compile until it has a status here.
pub(crate) fn http_status(kind: ErrorKind) -> StatusCode {
    let code = match kind {
        ErrorKind::InvalidRequest => 400,
        ErrorKind::Unauthenticated => 401,
        ErrorKind::Denied => 403,
        ErrorKind::NotFound => 404,
        ErrorKind::AlreadyExists | ErrorKind::WrongState => 409,
        ErrorKind::LimitReached => 429,
        ErrorKind::Cancelled => 499,
        ErrorKind::Internal => 500,
        ErrorKind::Unsupported => 501,
        ErrorKind::Unavailable => 503,
        ErrorKind::TimedOut => 504,
    };
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The next step in words that fit every client of the API: the table of this front end.
pub(crate) fn hint(error: &Error) -> Option<String> {
    let hint = match error.next()? {
        Next::Advice(advice) => advice.clone(),
        Next::Retry => "Try again in a moment.".to_owned(),
        Next::Nothing => "No action is needed.".to_owned(),
        Next::Start(sandbox) => format!("Start sandbox {sandbox} first."),
        Next::Resume(sandbox) => format!("Resume sandbox {sandbox} first."),
        Next::Stop(sandbox) => format!("Stop sandbox {sandbox} first."),
        Next::GiveUp(sandbox) => {
            format!("Try again when its back end responds, or remove sandbox {sandbox} by force.")
        }
        Next::StopOrForce(sandbox) => format!("Stop sandbox {sandbox} first, or remove it by force."),
        Next::AwaitRunning(sandbox) => format!("Wait until sandbox {sandbox} is running."),
        Next::AwaitStopped(sandbox) => format!("Wait until sandbox {sandbox} has stopped."),
        Next::Restart(sandbox) => {
            format!("Wait until sandbox {sandbox} has stopped, then start it if it still exists.")
        }
        Next::Reboot(sandbox) => format!("Stop sandbox {sandbox} and start it again; its files are kept."),
        Next::Inspect(sandbox) => format!("Inspect sandbox {sandbox} and try again."),
        Next::Replace(sandbox) => format!("Remove sandbox {sandbox} and create another."),
        Next::List(Thing::Exec) => {
            "List the execs of the sandbox; old ones are dropped when its log is full.".to_owned()
        }
        Next::List(Thing::PackageJob) => {
            "List the package jobs of the sandbox; only the latest are kept.".to_owned()
        }
        Next::List(Thing::Image) => {
            "List images to see the local ones, or pull it from its registry.".to_owned()
        }
        Next::List(Thing::Volume) => "List volumes to see which exist, or create it.".to_owned(),
        Next::List(what) => format!("List {} to see which exist.", plural(*what)),
        Next::Create(what) => {
            format!("Create the {what} first, or list {} to see which exist.", plural(*what))
        }
        Next::Name(_) => {
            "A name has at most 63 letters, digits, '-', '_' and '.', and starts with a letter or digit."
                .to_owned()
        }
        Next::FreeName(taken) => format!("Choose another name, or remove {taken}."),
        Next::Remove(what) => format!("Remove {} you no longer need, then try again.", plural(*what)),
        Next::RemoveUsers(Thing::Volume) => {
            "Remove these sandboxes first; stopped ones count too, because they need it to start.".to_owned()
        }
        Next::RemoveUsers(Thing::Secret) => {
            "Remove these sandboxes first, or remove it by force: running ones lose it at once, and stopped ones do \
             not start without it."
                .to_owned()
        }
        Next::Allow(host) => format!("Add {host:?} to `network.allow`."),
        Next::AskNetwork(_) => {
            "Omit it, or request it for a time with a reason: `POST /v1/sandboxes/{sandbox}/network/requests`; a person \
             decides."
                .to_owned()
        }
        Next::SetSecret { name, host } => {
            let host = host.as_deref().unwrap_or("HOST");
            format!("Ask the daemon's owner to run `warren secret set {name} --host {host}`.")
        }
        Next::RemoveUsers(_) => {
            "Remove those first, or remove it by force: it loses its name now and is deleted with the last of them."
                .to_owned()
        }
        Next::Pull(image) => {
            format!("Pull the image {image} first, or load an archive that includes the image.")
        }
        Next::HostImage(host) => {
            let fallback = match host.can_stand_in {
                true => ", or set `imageFallback` to true to use it whenever the image cannot be pulled",
                false => "",
            };
            format!(
                "Check the image's name and the network, or use the image `host`, which has {}{fallback}.",
                host.listed()
            )
        }
        Next::Raise(limit) => raise(*limit).to_owned(),
        Next::Archive(what) => format!("Use an archive that was saved from a {what}."),
        Next::VolumeSize => "A disk takes a size such as 1GiB; a directory takes a quota instead.".to_owned(),
        Next::VolumeQuota => "A directory takes a quota such as 1GiB; a disk takes a size instead.".to_owned(),
        Next::MakeKey => {
            "Send the header Authorization: Bearer <key> with the whole key; `warren key create` creates one."
                .to_owned()
        }
        Next::SignIn => {
            "Sign in with a key, or open the address that `warren dashboard` prints; each is good once.".to_owned()
        }
        Next::Diagnose => {
            "`warren doctor` on the daemon's machine shows what is missing and how to fix it.".to_owned()
        }
        Next::Recover => {
            "`warren doctor --recover` on the daemon's machine rebuilds the records.".to_owned()
        }
        Next::UseBackend(backend) => format!("Set `backend` to `{backend}`, or omit it."),
        Next::Configure(setting) => configure(*setting).to_owned(),
        Next::LogIn => {
            "Check the name: registries answer the same for images that do not exist. Or send `credentials`: keys use \
             the daemon's own login only for registries that its operator lists."
                .to_owned()
        }
        Next::Listen => "Start the daemon with `warren serve`, or with --listen and an address.".to_owned(),
    };
    Some(hint)
}

fn configure(setting: Setting) -> &'static str {
    match setting {
        Setting::PublishAddresses => {
            "Omit the address for 127.0.0.1, or ask the daemon's operator to allow this one (`serve --publish-on`)."
        }
        Setting::Registries => {
            "Use a public registry, or ask the daemon's operator to add this one to its configuration \
             (images.registries)."
        }
        Setting::Packages => {
            "Ask the daemon's operator to set packages.enabled to true in its configuration."
        }
    }
}

fn plural(what: Thing) -> String {
    match what {
        Thing::Sandbox => "sandboxes".to_owned(),
        what => format!("{what}s"),
    }
}

fn raise(limit: Limit) -> &'static str {
    match limit {
        Limit::Sandboxes => "Remove sandboxes you no longer need, or raise the daemon's limit.",
        Limit::KeySandboxes | Limit::KeyMemory => {
            "Remove a sandbox you no longer need, or use a key with a higher limit."
        }
        Limit::VolumeQuota => "Delete files from the volume, or use one with a higher quota.",
        Limit::Volumes => "Remove volumes you no longer need, or raise the daemon's limit.",
        Limit::Snapshots => "Remove snapshots you no longer need, or raise the daemon's limit.",
        Limit::Keys => "Revoke keys you no longer need.",
        Limit::Execs | Limit::PackageJobs => "Wait for some of them to finish, or use another sandbox.",
        Limit::RequestRate => "Wait for the time in Retry-After. The daemon's operator sets the rate.",
        Limit::Streams => "Close one. The daemon's operator sets the limit.",
    }
}

pub(crate) fn body(error: &Error, request_id: &str) -> ErrorBody {
    ErrorBody { error: ErrorDetail::new(error, hint(error), request_id) }
}

pub(super) fn render(
    status: StatusCode,
    error: &Error,
    form: ErrorForm,
    retry_after: Option<RetryAfter>,
    request_id: &str,
) -> Response {
    let status = form.status(status, error);
    let mut response = match form.body(error) {
        Some(theirs) => (status, Json(theirs)).into_response(),
        None => (status, Json(body(error, request_id))).into_response(),
    };
    let headers = response.headers_mut();
    if error.kind() == ErrorKind::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"warren\""));
    }
    if let Some(RetryAfter(wait)) = retry_after {
        // Whole seconds, rounded up.
        headers.insert(RETRY_AFTER, HeaderValue::from((wait.as_secs_f64().ceil() as u64).max(1)));
    }
    response
}

/// The message and all its causes, for the log.
pub(crate) fn chain(error: &Error) -> String {
    sandbox::causes(error).into_iter().fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
