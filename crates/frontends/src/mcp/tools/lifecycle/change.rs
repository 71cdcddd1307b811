//! Start, stop, remove, pause, resume, renew: each on every sandbox that is meant.

use std::time::Duration;

use engine::{Force, SandboxRef, SandboxView};
use sandbox::{ByteSize, CpuCount, ErrorKind, Lifetime, Limits, OnExpiry, SandboxState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mcp::{
    Answer, Call, Failure, Native, ToolResult,
    tools::select::{Row, Selector, Status, refused},
};

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SelectArguments {
    #[serde(flatten)]
    selector: Selector,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Started {
    started: bool,
    #[serde(skip_serializing_if = "is_false")]
    already_running: bool,
    status: Status,
}

pub(super) async fn start(call: Call, arguments: SelectArguments) -> ToolResult<Vec<Row<Started>>> {
    let targets = arguments.selector.resolve(&call).await?;
    targets
        .each(&call, |call, view| async move {
            if matches!(view.state, SandboxState::Creating | SandboxState::Running) {
                return Ok(Started { started: false, already_running: true, status: Status::of(&view) });
            }
            let started = call.engine().start_sandbox(&call.who, &SandboxRef::from(&view.id)).await;
            let started = started.map_err(|error| refused(error, &view))?;
            Ok(Started { started: true, already_running: false, status: Status::of(&started) })
        })
        .await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StopArguments {
    #[serde(flatten)]
    selector: Selector,
    /// At once, without grace.
    force: Option<bool>,
    #[schemars(extend("x-full-only" = true))]
    /// Grace before it is ended by force.
    timeout_ms: Option<u64>,
    /// Needed to force unnamed ones.
    confirm: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stopped {
    stopped: bool,
    #[serde(skip_serializing_if = "is_false")]
    already_stopped: bool,
    status: Status,
}

pub(super) async fn stop(call: Call, arguments: StopArguments) -> ToolResult<Vec<Row<Stopped>>> {
    let StopArguments { selector, force, timeout_ms, confirm } = arguments;
    let force = force.unwrap_or(false);
    if force {
        selector.check_confirmed(
            &call,
            "sandbox_stop",
            "sandbox_stop with force",
            confirm.unwrap_or(false),
        )?;
    }
    let grace = if force { Some(Duration::ZERO) } else { timeout_ms.map(Duration::from_millis) };
    let targets = selector.resolve(&call).await?;
    targets
        .each(&call, |call, view| async move {
            if matches!(view.state, SandboxState::Stopped | SandboxState::Failed) {
                return Ok(Stopped { stopped: false, already_stopped: true, status: Status::of(&view) });
            }
            let stopped = call.engine().stop_sandbox(&call.who, &SandboxRef::from(&view.id), grace).await;
            let stopped = stopped.map_err(|error| refused(error, &view))?;
            Ok(Stopped { stopped: true, already_stopped: false, status: Status::of(&stopped) })
        })
        .await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoveArguments {
    #[serde(flatten)]
    selector: Selector,
    /// Running ones too.
    force: Option<bool>,
    /// Needed to remove unnamed ones.
    confirm: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Removed {
    removed: bool,
}

pub(super) async fn remove(call: Call, arguments: RemoveArguments) -> ToolResult<Vec<Row<Removed>>> {
    let RemoveArguments { selector, force, confirm } = arguments;
    let force = force.unwrap_or(false);
    let force = if force { Force::Yes } else { Force::No };
    let targets = selector.resolve(&call).await?;
    selector.check_confirmed(&call, "sandbox_remove", "sandbox_remove", confirm.unwrap_or(false))?;
    let removed = targets.each(&call, |call, view| async move {
        let removed = call.engine().remove_sandbox(&call.who, &SandboxRef::from(&view.id), force).await;
        removed.map_err(|error| refused(error, &view))?;
        Ok(Removed { removed: true })
    });
    match (removed.await, selector.only_name()) {
        // One whose record cannot be read is not found; by its id and by force it can be removed all the same.
        (Err(failure), Some(id)) if failure.error().kind() == ErrorKind::Internal && force == Force::Yes => {
            call.engine().remove_sandbox(&call.who, &call.sandbox(id)?, force).await?;
            Ok(Answer::new(vec![Row::done(id, Removed { removed: true })]))
        }
        (removed, _) => removed,
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Paused {
    paused: bool,
    #[serde(skip_serializing_if = "is_false")]
    already_paused: bool,
    status: Status,
}

pub(super) async fn pause(call: Call, arguments: SelectArguments) -> ToolResult<Vec<Row<Paused>>> {
    let targets = arguments.selector.resolve(&call).await?;
    targets
        .each(&call, |call, view| async move {
            if view.state == SandboxState::Paused {
                return Ok(Paused { paused: false, already_paused: true, status: Status::Paused });
            }
            let paused = call.engine().pause_sandbox(&call.who, &SandboxRef::from(&view.id)).await;
            let paused = paused.map_err(|error| refused(error, &view))?;
            Ok(Paused { paused: true, already_paused: false, status: Status::of(&paused) })
        })
        .await
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resumed {
    resumed: bool,
    #[serde(skip_serializing_if = "is_false")]
    already_running: bool,
    status: Status,
}

pub(super) async fn resume(call: Call, arguments: SelectArguments) -> ToolResult<Vec<Row<Resumed>>> {
    let targets = arguments.selector.resolve(&call).await?;
    targets
        .each(&call, |call, view| async move {
            if view.state == SandboxState::Running {
                return Ok(Resumed { resumed: false, already_running: true, status: Status::of(&view) });
            }
            let resumed = call.engine().resume_sandbox(&call.who, &SandboxRef::from(&view.id)).await;
            let resumed = resumed.map_err(|error| refused(error, &view))?;
            Ok(Resumed { resumed: true, already_running: false, status: Status::of(&resumed) })
        })
        .await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RenewArguments {
    #[serde(flatten)]
    selector: Selector,
    /// Seconds from now; 0: no limit; absent: as before.
    ttl_secs: Option<u64>,
    /// Seconds without work; 0: no limit; absent: as before.
    idle_secs: Option<u64>,
    #[schemars(with = "Option<Native<OnExpiry>>")]
    on_expiry: Option<OnExpiry>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Renewed {
    renewed: bool,
    status: Status,
    /// Absent: it does not expire by time.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_secs: Option<u64>,
    on_expiry: String,
}

pub(super) async fn renew(call: Call, arguments: RenewArguments) -> ToolResult<Vec<Row<Renewed>>> {
    let RenewArguments { selector, ttl_secs, idle_secs, on_expiry } = arguments;
    let targets = selector.resolve(&call).await?;
    targets
        .each(&call, |call, view| async move {
            let lifetime = Lifetime {
                ttl: changed(ttl_secs, view.lifetime.ttl),
                idle: changed(idle_secs, view.lifetime.idle),
                on_expiry: on_expiry.unwrap_or(view.lifetime.on_expiry),
            };
            let renewed = call.engine().renew_sandbox(&call.who, &SandboxRef::from(&view.id), lifetime).await;
            renewed.map(renewed_row).map_err(|error| refused(error, &view))
        })
        .await
}

fn changed(asked: Option<u64>, before: Option<Duration>) -> Option<Duration> {
    match asked {
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => before,
    }
}

fn renewed_row(view: SandboxView) -> Renewed {
    Renewed {
        renewed: true,
        status: Status::of(&view),
        expires_at: view.expires_at.map(|at| at.to_string()),
        idle_secs: view.lifetime.idle.map(|idle| idle.as_secs()),
        on_expiry: match view.lifetime.on_expiry {
            OnExpiry::Stop => "stop".to_owned(),
            OnExpiry::Remove => "remove".to_owned(),
        },
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct UpdateArguments {
    #[serde(flatten)]
    selector: Selector,
    #[schemars(range(min = 16))]
    memory_mib: Option<u64>,
    /// Beside memory.
    swap_mib: Option<u64>,
    #[schemars(range(min = 0.01, max = 4096.0))]
    cpus: Option<f64>,
    /// Processes and threads.
    #[schemars(range(min = 1))]
    pids: Option<u32>,
}

impl UpdateArguments {
    fn limits(&self) -> Result<Limits, Failure> {
        const MIB: u64 = 1024 * 1024;
        let mib = |mib: u64| ByteSize(mib.saturating_mul(MIB));
        let count = |cpus: f64| {
            let count = CpuCount::from_f64(cpus);
            count.ok_or_else(|| {
                Failure::invalid(format!("{cpus} is not a number of cpus between 0.01 and 4096"))
            })
        };
        let limits = Limits {
            memory: self.memory_mib.map(mib),
            swap: self.swap_mib.map(mib),
            cpus: self.cpus.map(count).transpose()?,
            pids: self.pids,
            ..Limits::default()
        };
        if limits == Limits::default() {
            return Err(Failure::invalid("no limit was given").with_hint(
                "Give memoryMib, swapMib, cpus or pids; diskMib is set when a sandbox is created.",
            ));
        }
        Ok(limits)
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Updated {
    memory_mib: u64,
    swap_mib: u64,
    cpus: f64,
    pids: u32,
    status: Status,
}

impl Updated {
    fn of(view: &SandboxView) -> Self {
        let limits = &view.plan.limits;
        let mib = |size: ByteSize| size.bytes() / (1024 * 1024);
        Self {
            memory_mib: mib(limits.memory),
            swap_mib: mib(limits.swap),
            cpus: f64::from(limits.cpus.millis) / 1000.0,
            pids: limits.pids,
            status: Status::of(view),
        }
    }
}

pub(super) async fn update(call: Call, arguments: UpdateArguments) -> ToolResult<Vec<Row<Updated>>> {
    let limits = arguments.limits()?;
    let targets = arguments.selector.resolve(&call).await?;
    targets
        .each(&call, |call, view| {
            let limits = limits.clone();
            async move {
                let which = SandboxRef::from(&view.id);
                let changed = call.engine().change_limits(&call.who, &which, limits).await;
                changed.map(|view| Updated::of(&view)).map_err(|error| refused(error, &view))
            }
        })
        .await
}

fn is_false(flag: &bool) -> bool {
    !flag
}
