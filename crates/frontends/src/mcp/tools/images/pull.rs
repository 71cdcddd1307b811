//! `image_pull`, and how a caller who waits for a pull hears of it.

use std::{pin::pin, time::Duration};

use engine::{PullEvent, PullOptions};
use sandbox::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::shapes::{ImageHandle, warnings};
use crate::{
    images::{Password, Pulling, Registry, reference},
    mcp::{Answer, Call, Failure, ToolResult},
};

/// The time between two words of progress.
pub(super) const PROGRESS_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PullArguments {
    /// Such as alpine, python:3.12-slim or registry.example/team/app@sha256:…
    reference: String,
    /// Default this machine's: linux/amd64
    platform: Option<String>,
    /// With password; default what the daemon is configured with
    username: Option<String>,
    password: Option<Password>,
    /// Without TLS
    insecure: Option<bool>,
}

/// The image that is here now.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Pulled {
    #[serde(flatten)]
    handle: ImageHandle,
    pulled: bool,
}

pub(super) async fn pull(call: Call, arguments: PullArguments) -> ToolResult<Pulled> {
    let reference = reference(&arguments.reference)?;
    let options: PullOptions = Registry {
        platform: arguments.platform,
        username: arguments.username,
        password: arguments.password,
        insecure: arguments.insecure.unwrap_or(false),
    }
    .options()?;
    let pulling = Pulling::default();
    let work = call.engine().pull_image(&call.who, &reference, options, pulling.progress());
    let detail = while_pulling(&call, &pulling, || true, work).await?.map_err(not_pulled)?;
    let handle = ImageHandle::asked(&detail.summary, &arguments.reference);
    let warnings = warnings(&detail);
    Ok(Answer::new(Pulled { handle, pulled: true }).warn_all(warnings))
}

/// Returns the failure for an image that a registry did not give, with the next call.
pub(crate) fn not_pulled(error: Error) -> Failure {
    Failure::from(error).or_hint(
        ErrorKind::NotFound,
        "Check the name and the tag, then call image_pull again; image_list shows local images.",
    )
}

/// Works on something that pulls, and tells a caller who wants to know how far it is. One who cancels ends it, where it
/// may be dropped; what was downloaded is kept.
pub(crate) async fn while_pulling<T>(
    call: &Call,
    pulling: &Pulling,
    may_be_dropped: impl Fn() -> bool,
    work: impl Future<Output = T>,
) -> Result<T, Failure> {
    let mut work = pin!(work);
    let mut telling = Telling { call, pulling, last: 0.0 };
    let mut next_look = Instant::now();
    loop {
        let events = pulling.news(next_look);
        tokio::select! {
            biased;
            done = &mut work => {
                telling.tell(pulling.fresh()).await;
                return Ok(done);
            }
            () = call.cancelled.cancelled(), if may_be_dropped() => return Err(given_up()),
            events = events => {
                telling.tell(events).await;
                next_look = Instant::now() + PROGRESS_EVERY;
            }
        }
    }
}

fn given_up() -> Failure {
    let error = Error::new(ErrorKind::Cancelled, "the pull was cancelled");
    Failure::from(error).with_hint("Call it again to resume; downloaded data is kept for a while.")
}

struct Telling<'a> {
    call: &'a Call,
    pulling: &'a Pulling,
    /// The last number that was told: the next one has to be higher.
    last: f64,
}

impl Telling<'_> {
    async fn tell(&mut self, events: Vec<PullEvent>) {
        if events.is_empty() || !self.call.progress.is_wanted() {
            return;
        }
        let sum = self.pulling.sum();
        // Half of it is the download, half that it is unpacked.
        let (done, total) = ((sum.bytes + sum.done_bytes) as f64, (sum.total * 2) as f64);
        let retrying = events.iter().find_map(|event| match event {
            PullEvent::Retrying { wait, why } => Some(format!("{why}; retrying in {} s", wait.as_secs_f32())),
            _ => None,
        });
        let message = retrying.unwrap_or_else(|| {
            let (n_done, n_layers, bytes, total) = (sum.n_done, sum.n_layers, sum.bytes, sum.total);
            format!("{n_done} of {n_layers} layers, {bytes} of {total} bytes downloaded")
        });
        self.last = if done > self.last { done } else { self.last + 1.0 };
        self.call.progress.tell(self.last, Some(total.max(self.last)), message).await;
    }
}
