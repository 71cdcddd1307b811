//! `sandbox_wait` and `sandbox_drain`: until sandboxes have stopped.

use std::time::Duration;

use engine::{SandboxRef, SandboxView};
use jiff::Timestamp;
use sandbox::{Error, ErrorKind, SandboxState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mcp::{
    Call, Failure, Progress, ToolResult,
    tools::{
        select::{Row, Selector, Status, refused},
        telling::while_waiting,
    },
};

/// How often it is looked whether a drain has begun.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// A drain that has not begun by then waits behind other work on the sandbox, and will begin after it.
const BEGINS_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WaitArguments {
    #[serde(flatten)]
    selector: Selector,
    /// 0: no limit; absent: the server's default.
    timeout_ms: Option<u64>,
}

/// How a sandbox ended, or that it has not.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StopResult {
    status: Status,
    /// A sandbox as a whole ends with neither.
    exit_code: (),
    signal: (),
    observed_at: String,
    source: &'static str,
    timed_out: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl StopResult {
    fn of(view: SandboxView, timed_out: bool) -> Self {
        Self {
            status: Status::of(&view),
            exit_code: (),
            signal: (),
            observed_at: Timestamp::now().to_string(),
            source: "daemon",
            timed_out,
            stopped_at: view.stopped_at.map(|at| at.to_string()),
            reason: view.reason,
        }
    }
}

pub(super) async fn wait(call: Call, arguments: WaitArguments) -> ToolResult<Vec<Row<StopResult>>> {
    let time = match arguments.timeout_ms {
        None => Some(call.settings.default_timeout()),
        Some(0) => None,
        Some(ms) => Some(Duration::from_millis(ms)),
    };
    let targets = arguments.selector.resolve(&call).await?;
    // Told by time alone: how many have stopped says nothing of how long the others take.
    let quiet = Call { progress: Progress::default(), ..call.clone() };
    let waiting = targets.each(&quiet, |call, view| wait_for(call, view, time));
    while_waiting(&call, time, waiting).await
}

async fn wait_for(call: Call, view: SandboxView, time: Option<Duration>) -> Result<StopResult, Failure> {
    let which = SandboxRef::from(&view.id);
    let (engine, who) = (call.engine(), &call.who);
    match engine.wait_sandbox(who, &which, SandboxState::Stopped, time).await {
        Ok(view) => Ok(StopResult::of(view, false)),
        Err(error) => match error.kind() {
            ErrorKind::TimedOut => Ok(StopResult::of(engine.sandbox(who, &which).await?, true)),
            // It has ended, though not well.
            ErrorKind::WrongState => Ok(StopResult::of(engine.sandbox(who, &which).await?, false)),
            _ => Err(error.into()),
        },
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DrainArguments {
    #[serde(flatten)]
    selector: Selector,
    /// Wait this long; then it takes commands again.
    #[schemars(range(min = 1))]
    timeout_ms: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Drained {
    drain_requested: bool,
    status: Status,
}

pub(super) async fn drain(call: Call, arguments: DrainArguments) -> ToolResult<Vec<Row<Drained>>> {
    let time = arguments.timeout_ms.map(Duration::from_millis);
    let targets = arguments.selector.resolve(&call).await?;
    targets.each(&call, |call, view| drain_one(call, view, time)).await
}

async fn drain_one(call: Call, view: SandboxView, time: Option<Duration>) -> Result<Drained, Failure> {
    if matches!(view.state, SandboxState::Stopped | SandboxState::Stopping | SandboxState::Failed) {
        return Ok(Drained { drain_requested: false, status: Status::of(&view) });
    }
    let drained = match time {
        Some(_) => call.engine().drain_sandbox(&call.who, &SandboxRef::from(&view.id), time).await,
        None => begin_drain(&call, &view).await,
    };
    match drained {
        Ok(view) => Ok(Drained { drain_requested: true, status: Status::of(&view) }),
        Err(error) if error.kind() == ErrorKind::TimedOut => Err(Failure::from(error)
            .with_hint("It accepts commands again. Call sandbox_drain with more time, or sandbox_stop.")),
        Err(error) => Err(refused(error, &view)),
    }
}

/// Returns once no new commands are taken; the drain itself outlives the call.
async fn begin_drain(call: &Call, view: &SandboxView) -> Result<SandboxView, Error> {
    let which = SandboxRef::from(&view.id);
    let (engine, who) = (call.engine().clone(), call.who.clone());
    let mut draining = {
        let (engine, who, which) = (engine.clone(), who.clone(), which.clone());
        tokio::spawn(async move { engine.drain_sandbox(&who, &which, None).await })
    };
    let begun = async {
        loop {
            let view = engine.sandbox(&who, &which).await?;
            if view.draining || !view.state.is_live() {
                return Ok(view);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        biased;
        ended = &mut draining => match ended {
            Ok(result) => result,
            Err(error) => Err(Error::new(ErrorKind::Internal, "the drain stopped unexpectedly").with_source(error)),
        },
        begun = tokio::time::timeout(BEGINS_WITHIN, begun) => match begun {
            Ok(begun) => begun,
            Err(_elapsed) => engine.sandbox(&who, &which).await,
        },
    }
}
