//! The sandbox that a call is about: a name in a namespace.

use std::time::Duration;

use engine::{RunEnd, RunOptions, SandboxRef};
use sandbox::{Error, ErrorKind, ExecOutcome, ExecSpec, Namespace};

use super::lines::{Lines, Stream};
use crate::{
    denials,
    mcp::{Call, Failure, Followed, while_running},
};

/// The longest time limit; a longer one is cut to this: a year is as good as none.
const MAX_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug)]
pub(super) struct Target {
    /// As the caller wrote it.
    pub(super) name: String,
    pub(super) which: SandboxRef,
    /// The call, within the namespace that it names.
    pub(super) call: Call,
}

impl Target {
    pub(super) fn new(call: &Call, name: &str, namespace: &str) -> Result<Self, Failure> {
        let namespace = namespace_of(call, namespace)?;
        let call = Call { namespace: Some(namespace.clone()), ..call.clone() };
        let which = SandboxRef::new(name, Some(namespace))?;
        Ok(Self { name: name.to_owned(), which, call })
    }

    /// The time limit that was asked for, or else the one that every call has.
    pub(super) fn time_limit(&self, seconds: Option<u64>) -> Duration {
        let asked = seconds.map(|seconds| Duration::from_secs(seconds).min(MAX_TIME_LIMIT));
        asked.unwrap_or_else(|| self.call.settings.default_timeout())
    }

    /// Runs something to its end, and gathers what it prints.
    pub(super) async fn run(&self, spec: ExecSpec, limit: Duration) -> Result<(ExecOutcome, Lines), Failure> {
        let (call, engine) = (&self.call, self.call.engine());
        let spec = ExecSpec { timeout: Some(limit), ..spec };
        spec.check().map_err(Error::from)?;
        let exec = engine.exec(&call.who, &self.which, spec).await?;
        let cancelled = Some(call.cancelled.clone());
        let options = RunOptions { limit: Some(limit), cancelled, ..RunOptions::default() };
        let run = engine.run_to_end(&call.who, &exec, options).await?;
        let mut lines = Lines::new(call.max_bytes(None));
        let Followed { end, .. } = while_running(call, run, Some(limit), |entry| lines.take(entry)).await?;
        match end {
            RunEnd::Ended(outcome) => {
                for sentence in denials::told(engine, &call.who, &exec).await {
                    lines.say(Stream::Stderr, &sentence);
                }
                Ok((outcome, lines))
            }
            RunEnd::Cancelled(_) => Err(Error::new(ErrorKind::Cancelled, "the call was cancelled").into()),
            RunEnd::Overdue | RunEnd::Left => {
                let message = format!(
                    "the time limit is over, and sandbox {:?} did not report how it ended",
                    self.name
                );
                Err(Error::new(ErrorKind::TimedOut, message).into())
            }
        }
    }
}

/// A namespace that the caller may see. Others are refused whether they exist or not.
pub(super) fn namespace_of(call: &Call, text: &str) -> Result<Namespace, Failure> {
    let namespace: Namespace = text.parse().map_err(Error::from)?;
    if call.who.sees(&namespace) {
        return Ok(namespace);
    }
    let message = format!("access denied: {} has no access to namespace {namespace}", call.who.name);
    Err(Error::new(ErrorKind::Denied, message).into())
}
