//! Starting a command, in a sandbox that may have to be started first and stopped afterwards.

use bytes::Bytes;
use engine::{ByteStream, ExecView, SandboxRef};
use futures_util::{StreamExt, stream};
use sandbox::{Error, ErrorKind, SandboxName, SandboxState};
use serde_json::json;

use super::fields::Prepared;
use crate::mcp::{Call, Failure, next_call::written};

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

impl Launched {
    /// A command that was started together with its sandbox.
    pub(crate) fn with_its_sandbox(exec: ExecView) -> Self {
        Self { which: SandboxRef::from(&exec.sandbox), exec, was_started: false, stop_after: None }
    }
}

pub(crate) async fn launch(call: &Call, prepared: &Prepared) -> Result<Launched, Failure> {
    let named = call.sandbox(&prepared.sandbox)?;
    let (engine, mut spec) = (call.engine(), prepared.spec.clone());
    let refused = |error| not_started(error, &prepared.sandbox);
    let mut started = None;
    if prepared.takes_default_shell {
        if prepared.start_if_stopped {
            started = engine.ensure_running(&call.who, &named).await.map_err(refused)?;
        }
        // Whatever is wrong with the sandbox, the exec says it.
        if let (Ok(shell), Some(program)) = (engine.shell(&call.who, &named).await, spec.command.first_mut())
        {
            *program = shell;
        }
    }
    let (exec, started) = match prepared.start_if_stopped {
        true => {
            let (exec, again) =
                engine.exec_ensuring_running(&call.who, &named, spec).await.map_err(refused)?;
            (exec, again.or(started))
        }
        false => (engine.exec(&call.who, &named, spec).await.map_err(refused)?, None),
    };
    Ok(Launched {
        which: SandboxRef::from(&exec.sandbox),
        exec,
        was_started: started.is_some(),
        stop_after: started.map(|view| view.name).filter(|_name| !prepared.keep_running),
    })
}

/// A stopped sandbox has one way more than others to go on.
fn not_started(error: Error, sandbox: &str) -> Failure {
    let is_stopped = error.state() == Some(SandboxState::Stopped);
    let failure = Failure::from(error);
    if is_stopped {
        let start = written("sandbox_start", &json!({ "name": sandbox }));
        failure.with_hint(format!("Call {start} first, or set startIfStopped to true."))
    } else {
        failure
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
