//! Starting a command, in a sandbox that may have to be started first and stopped afterwards.

use std::time::Duration;

use bytes::Bytes;
use engine::{ByteStream, ExecView, SandboxRef, SandboxView};
use futures_util::{StreamExt, stream};
use sandbox::{Error, ErrorKind, Result, SandboxName, SandboxState};

use super::fields::Prepared;
use crate::mcp::{call::Call, envelope::Failure};

/// Times that a sandbox may be stopped under our feet between its start and the exec.
const MAX_ATTEMPTS: usize = 3;
/// How long a stop that is under way may take before its sandbox can be started again.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const STOP_WARNING: &str = "sandbox was started for this command and will be stopped afterward";

/// A command that runs, or has turned out not to start.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) exec: ExecView,
    pub(crate) which: SandboxRef,
    /// Its sandbox was stopped before.
    pub(crate) was_started: bool,
    /// The sandbox that was started for it and is to be stopped when it ends.
    pub(crate) stop_after: Option<SandboxName>,
}

pub(crate) async fn launch(call: &Call, prepared: &Prepared) -> Result<Launched, Failure> {
    let named = call.sandbox(&prepared.sandbox)?;
    let mut started = None;
    for attempt in 1.. {
        if prepared.start_if_stopped
            && let Some(view) = make_run(call, &named).await?
        {
            started = Some(view.name);
        }
        match call.engine().exec(&call.who, &named, prepared.spec.clone()).await {
            Ok(exec) => {
                let which = SandboxRef::from(&exec.sandbox);
                return Ok(Launched {
                    exec,
                    which,
                    was_started: started.is_some(),
                    stop_after: started.filter(|_name| !prepared.keep_running),
                });
            }
            // Another call's stop came in between.
            Err(error)
                if prepared.start_if_stopped
                    && error.kind() == ErrorKind::WrongState
                    && attempt < MAX_ATTEMPTS => {}
            Err(error) => return Err(not_started(error)),
        }
    }
    Err(Failure::new(ErrorKind::Internal.as_str(), "the command was not started"))
}

/// A stopped sandbox has one way more than others to go on.
fn not_started(error: Error) -> Failure {
    let is_stopped = error.state() == Some(SandboxState::Stopped);
    let failure = Failure::from(error);
    if is_stopped {
        failure.with_hint("Call sandbox_start first, or set startIfStopped to true.")
    } else {
        failure
    }
}

/// Starts a sandbox that is stopped; `None` when it runs already. One that is being stopped is waited for: an earlier call
/// may have answered before the sandbox that it had started was down again.
async fn make_run(call: &Call, which: &SandboxRef) -> Result<Option<SandboxView>> {
    let (engine, who) = (call.engine(), &call.who);
    let view = engine.sandbox(who, which).await?;
    match view.state {
        SandboxState::Stopped => engine.start_sandbox(who, which).await.map(Some),
        SandboxState::Stopping => {
            engine.wait_sandbox(who, which, SandboxState::Stopped, Some(STOP_PATIENCE)).await?;
            engine.start_sandbox(who, which).await.map(Some)
        }
        SandboxState::Running if view.draining && view.n_running_execs == 0 => {
            engine.wait_sandbox(who, which, SandboxState::Stopped, Some(STOP_PATIENCE)).await?;
            engine.start_sandbox(who, which).await.map(Some)
        }
        // Whatever is wrong with the others, the exec says it.
        _ => Ok(None),
    }
}

/// Stops, in the background, a sandbox that was started for one command. Commands that others run in it meanwhile may
/// finish: it takes no new ones and stops with the last.
pub(crate) fn stop_in_background(call: &Call, which: &SandboxRef) {
    let (engine, who, which) = (call.engine().clone(), call.ender(), which.clone());
    call.mcp.spawn(async move {
        match engine.drain_sandbox(&who, &which, None).await {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WrongState) => {}
            Err(error) => tracing::warn!(%which, error = &error as &dyn std::error::Error, "not stopped"),
        }
    });
}

/// Bytes as the engine takes them.
pub(crate) fn byte_stream(bytes: Bytes) -> ByteStream {
    stream::iter((!bytes.is_empty()).then_some(Ok(bytes))).boxed()
}
